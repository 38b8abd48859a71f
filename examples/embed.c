/* SPDX-License-Identifier: MIT */
/* embed: a program with its own threads and its own event loop. It starts the runtime beside them, feeds goroutines through a
 * channel, and gets results back through an eventfd that its poll() loop watches. */
#include <magpie.h>
#include <poll.h>
#include <pthread.h>
#include <stdio.h>
#include <sys/eventfd.h>
#include <unistd.h>

enum { JOBS = 20, WORKERS = 4 };

struct job {
    int n;
    long result;
};

MAG_CHAN_TYPE(jobs, struct job);

static jobs *todo, *finished;
static int bell; /* rung once for every result */

static void worker(void *arg)
{
    (void)arg;
    struct job j;
    while (jobs_recv(todo, &j, MAG_FOREVER) == 0) {
        mag_sleep((j.n % 5) * MAG_MS); /* goroutines wait as they like: no thread of the program does */
        j.result = (long)j.n * j.n;
        jobs_send(finished, j, MAG_FOREVER);
        uint64_t one = 1;
        if (write(bell, &one, sizeof one) != sizeof one)
            return;
    }
}

/* A thread of the program that knows nothing of goroutines but the channel. */
static void *feeder(void *arg)
{
    (void)arg;
    for (int i = 0; i < JOBS; i++)
        jobs_send(todo, (struct job){i, 0}, MAG_FOREVER);
    jobs_close(todo);
    return NULL;
}

int main(void)
{
    bell = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
    todo = jobs_new(4);
    finished = jobs_new(JOBS);
    if (bell < 0 || mag_start(NULL) != 0)
        return 1;
    for (int i = 0; i < WORKERS; i++)
        mag_go(worker, NULL);
    pthread_t thread;
    if (pthread_create(&thread, NULL, feeder, NULL) != 0)
        return 1;

    int have = 0;
    while (have < JOBS) { /* the program's own event loop */
        struct pollfd p = {.fd = bell, .events = POLLIN};
        uint64_t rung;
        if (poll(&p, 1, 1000) <= 0 || read(bell, &rung, sizeof rung) != sizeof rung)
            continue;
        for (struct job j; jobs_recv(finished, &j, MAG_TRY) == 0; have++)
            printf("job %2d: %ld\n", j.n, j.result);
    }
    pthread_join(thread, NULL);
    int r = mag_stop(mag_in(MAG_S));
    jobs_unref(todo);
    jobs_unref(finished);
    close(bell);
    return r == 0 ? 0 : 1;
}
