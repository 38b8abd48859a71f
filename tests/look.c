/* SPDX-License-Identifier: MIT */
/* look.c: what the program shows of itself: mag_stats_read, mag_dump. */
#include "test.h"

#include <magpie.h>
#include <pthread.h>

static void set(int *flag) { __atomic_store_n(flag, 1, __ATOMIC_RELEASE); }
static int get(const int *flag) { return __atomic_load_n(flag, __ATOMIC_ACQUIRE); }
static void nothing(void *arg) { (void)arg; }
static void done(void *wg) { mag_wg_done(wg); }
static void wait_for(mag_wg *wg) { T_EQ(mag_wg_wait(wg, MAG_FOREVER), 0); }

static void on(int procs, mag_fn fn) { T_EQ(mag_run_with(&(mag_config){.procs = procs, .slice = -1}, fn, NULL), 0); }

static void burst(int n)
{
    mag_wg wg = {0};
    mag_wg_add(&wg, n);
    for (int i = 0; i < n; i++)
        T_EQ(mag_go(done, &wg), 0);
    wait_for(&wg);
}

static mag_stats stats(void)
{
    mag_stats total;
    T_GT(mag_stats_read(&total, NULL, 0), 0);
    return total;
}

/* ---- mag_stats_read ---- */

static void sums(void *arg)
{
    (void)arg;
    enum { PROCS = 3 };
    mag_stats total, per[PROCS + 1], sum = {0};
    for (int i = 0; i < 10; i++)
        burst(1000);
    t_sleep_ms(20); /* the others are idle by now */
    memset(per, 0xee, sizeof per);
    T_EQ(mag_stats_read(&total, per, PROCS + 1), PROCS);
    for (int i = 0; i < PROCS; i++) {
#define SUM(name) sum.name += per[i].name
        SUM(spawned), SUM(finished), SUM(switches), SUM(steals), SUM(stolen), SUM(failed_steals), SUM(spills);
        SUM(global_gets), SUM(parks), SUM(wakes), SUM(queue), SUM(runnable);
        for (size_t k = 0; k < sizeof per[i].reserved / sizeof *per[i].reserved; k++)
            T_EQ(per[i].reserved[k], 0);
    }
    T_EQ(per[PROCS].spawned, UINT64_C(0xeeeeeeeeeeeeeeee)); /* no P, not written */
    T_GE(total.spawned, sum.spawned + 1); /* mag_run's caller had no P when it spawned main; nor has one whose P was taken */
    T_EQ(total.spawned, 10001);
    T_GE(total.finished, sum.finished); /* likewise */
    T_EQ(total.switches, sum.switches);
    T_EQ(total.steals, sum.steals);
    T_EQ(total.stolen, sum.stolen);
    T_EQ(total.failed_steals, sum.failed_steals);
    T_EQ(total.spills, sum.spills);
    T_EQ(total.global_gets, sum.global_gets);
    T_EQ(total.parks, sum.parks);
    T_GE(total.wakes, sum.wakes); /* sysmon wakes somebody, too */
    T_EQ(total.queue, sum.queue);
    T_EQ(total.runnable, sum.runnable);
    T_GE(total.parks, 1);
}

static void the_parts_make_the_whole(void) { on(3, sums); }

static void few(void *arg)
{
    (void)arg;
    mag_stats per[2];
    memset(per, 0xee, sizeof per);
    T_EQ(mag_stats_read(NULL, per, 1), 2);
    T_NE(per[0].spawned, UINT64_C(0xeeeeeeeeeeeeeeee));
    T_EQ(per[1].spawned, UINT64_C(0xeeeeeeeeeeeeeeee));
    T_EQ(mag_stats_read(NULL, NULL, 0), 2);
    T_EQ(mag_stats_read(NULL, NULL, 100), 2);
}

static void as_many_as_asked_for(void) { on(2, few); }

static void queues(void *arg)
{
    (void)arg;
    mag_wg wg = {0};
    mag_stats total, per;
    mag_wg_add(&wg, 1000);
    for (int i = 0; i < 1000; i++)
        T_EQ(mag_go(done, &wg), 0);
    T_EQ(mag_stats_read(&total, &per, 1), 1);
    T_EQ(total.goroutines, 1001);
    T_EQ(total.runnable, 1000); /* with those that did not fit the ring */
    T_GT(total.queue, 0);
    T_LE(total.queue, 1000);
    T_EQ(per.queue, total.queue);
    wait_for(&wg);
}

static void gauges_count_the_queued(void) { on(1, queues); }

/* ---- mag_dump ---- */

static char text[1 << 20];

struct reader {
    int fd;
    size_t n;
};

static void *reads_all(void *arg)
{
    struct reader *r = arg;
    ssize_t n;
    while ((n = read(r->fd, text + r->n, sizeof text - 1 - r->n)) > 0)
        r->n += (size_t)n;
    text[r->n] = 0;
    return NULL;
}

/* What mag_dump writes, through a pipe that is too small for it. */
static void dump(void)
{
    int fd[2];
    struct reader r = {0};
    pthread_t t;
    T_EQ(pipe(fd), 0);
    r.fd = fd[0];
    T_EQ(pthread_create(&t, NULL, reads_all, &r), 0);
    T_EQ(mag_dump(fd[1]), 0);
    close(fd[1]);
    T_EQ(pthread_join(t, NULL), 0);
    close(fd[0]);
}

static char *line_with(const char *part) { return t_line_with(text, part); }

static long lines(void)
{
    long n = 0;
    for (const char *at = text; (at = strchr(at, '\n')) != NULL; at++)
        n++;
    return n;
}

static void parks(void *arg) { mag_wg_wait(arg, MAG_FOREVER); }

static void shows_states(void *arg)
{
    (void)arg;
    mag_wg gate = {0};
    unsigned long long id = 0;
    int ms = 0;
    mag_wg_add(&gate, 1);
    T_EQ(mag_go_with(&(mag_go_config){.name = "sleeper"}, parks, &gate), 0);
    while (stats().parks == 0)
        mag_yield();
    t_sleep_ms(100);
    T_EQ(mag_go_with(&(mag_go_config){.name = "next"}, nothing, NULL), 0);
    dump();
    T_EQ(lines(), 3);
    T_EQ(sscanf(line_with("\"main\""), "goroutine %llu \"main\" [running]", &id), 1);
    T_EQ(id, mag_id());
    T_EQ(sscanf(line_with("\"sleeper\""), "goroutine %llu \"sleeper\" [wait group, %d ms]", &id, &ms), 2);
    T_NE(id, mag_id());
    T_GE(ms, 50);
    T_STR_HAS(line_with("\"next\""), "\"next\" [runnable]");
    T_STR_HAS(line_with("\"main\""), ", created at ");
    T_STR_HAS(line_with("\"sleeper\""), ", created at ");
    mag_set_name(NULL);
    dump();
    T_FALSE(strstr(text, "\"main\""));
    mag_wg_done(&gate);
    while (stats().goroutines > 1)
        mag_yield();
    dump();
    T_EQ(lines(), 1);
}

static void a_dump_shows_names_and_states(void) { on(1, shows_states); }

static void shows_many(void *arg)
{
    (void)arg;
    enum { N = 2000 };
    mag_wg gate = {0};
    mag_wg_add(&gate, 1);
    for (int i = 0; i < N; i++)
        T_EQ(mag_go(parks, &gate), 0);
    while (stats().parks < N)
        mag_yield();
    dump();
    T_EQ(lines(), N + 1);
    long waiting = 0;
    for (const char *at = text; (at = strstr(at, "[wait group, ")) != NULL; at++)
        waiting++;
    T_EQ(waiting, N);
    mag_wg_done(&gate);
}

static void a_dump_shows_everybody(void) { on(2, shows_many); }

static void bad_fd(void *arg)
{
    (void)arg;
    int fd[2];
    T_EQ(mag_dump(-1), -EBADF);
    T_EQ(pipe2(fd, O_NONBLOCK), 0);
    while (write(fd[1], text, 4096) > 0)
        ;
    T_EQ(mag_dump(fd[1]), -EAGAIN);
    close(fd[0]);
    close(fd[1]);
}

static void a_dump_that_cannot_be_written_says_so(void) { on(1, bad_fd); }

static int stop;

static void *dumps_and_reads(void *arg)
{
    (void)arg;
    int null = open("/dev/null", O_WRONLY);
    mag_stats s, per[4];
    while (!get(&stop)) {
        T_EQ(mag_dump(null), 0);
        T_EQ(mag_stats_read(&s, per, 4), 2);
        T_LE(s.finished, s.spawned + 5000); /* not a snapshot, but no nonsense */
    }
    close(null);
    return NULL;
}

static void busy(void *arg)
{
    (void)arg;
    pthread_t t;
    stop = 0;
    T_EQ(pthread_create(&t, NULL, dumps_and_reads, NULL), 0);
    for (long i = 0; i < t_scale(100); i++) {
        burst(1000);
        mag_set_name(i % 2 ? "odd" : "even");
    }
    set(&stop);
    T_EQ(pthread_join(t, NULL), 0);
}

static void looking_disturbs_nobody(void) { on(2, busy); }

int main(int argc, char **argv)
{
    t_init(argc, argv);
    T_RUN(the_parts_make_the_whole);
    T_RUN(as_many_as_asked_for);
    T_RUN(gauges_count_the_queued);
    T_RUN(a_dump_shows_names_and_states);
    T_RUN(a_dump_shows_everybody);
    T_RUN(a_dump_that_cannot_be_written_says_so);
    T_RUN(looking_disturbs_nobody);
    return t_done();
}
