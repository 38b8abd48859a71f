/* SPDX-License-Identifier: MIT */
/* imbalance: a thousand goroutines that compute, all created on one P. Watch the others live on what they steal from it, then
 * compare with a run on one P alone. Usage: imbalance [goroutines] */
#include <magpie.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum { MAX_PS = 64, BAR = 32, WAVE = 200 };

struct work {
    int n;             /* goroutines */
    long rounds;       /* of computing, for each */
    mag_wg done;
    mag_stats ps[MAX_PS];
    mag_stats total;
    int procs;
    double seconds;
};

static unsigned compute(long rounds)
{
    unsigned x = 12345;
    while (rounds-- > 0)
        x = x * 1664525u + 1013904223u;
    return x;
}

static volatile unsigned sink; /* so that the compiler keeps the work */

static void worker(void *arg)
{
    struct work *w = arg;
    sink = compute(w->rounds);
    mag_wg_done(&w->done);
}

/* While there is one P, everything is created on it, in waves that fit its ring; then the others come, and have nothing. */
static void app(void *arg)
{
    struct work *w = arg;
    int procs = mag_procs();
    mag_time start = mag_now();
    for (int left = w->n; left > 0; left -= WAVE) {
        int wave = left < WAVE ? left : WAVE;
        mag_set_procs(1);
        mag_yield(); /* onto that P */
        mag_wg_add(&w->done, wave);
        for (int i = 0; i < wave; i++)
            if (mag_go(worker, w) != 0)
                mag_wg_done(&w->done);
        mag_set_procs(procs);
        mag_wg_wait(&w->done, MAG_FOREVER);
    }
    w->seconds = (double)(mag_now() - start) / 1e9;
    do {
        mag_yield(); /* the last one may still be on its way out */
        w->procs = mag_stats_read(&w->total, w->ps, MAX_PS);
    } while (w->total.goroutines > 1);
}

/* ---- the picture: a plain thread beside the runtime ---- */

static volatile int watching;

static int draw(int n, int lines)
{
    mag_stats ps[MAX_PS];
    int procs = mag_stats_read(NULL, ps, MAX_PS);
    if (procs > MAX_PS)
        procs = MAX_PS;
    if (procs < lines)
        return lines; /* just now there is one P alone */
    if (lines != 0)
        printf("\033[%dA", lines);
    for (int i = 0; i < procs; i++) {
        int len = (int)(ps[i].finished * BAR / (unsigned)n);
        printf("\033[K  P%-2d %.*s%*s %5llu run %5llu stolen %3llu waiting\n", i, len, "################################",
               BAR - len, "", (unsigned long long)ps[i].finished, (unsigned long long)ps[i].stolen,
               (unsigned long long)ps[i].queue);
    }
    fflush(stdout);
    return procs;
}

static void *watch(void *arg)
{
    int n = *(int *)arg, lines = 0;
    for (; watching; usleep(50000))
        lines = draw(n, lines);
    if (lines != 0)
        printf("\033[%dA\033[J", lines);
    return NULL;
}

/* ---- two runs ---- */

static void run(struct work *w, int procs, int picture)
{
    mag_config cfg = {.procs = procs};
    pthread_t thread;
    watching = picture;
    if (picture)
        picture = pthread_create(&thread, NULL, watch, &w->n) == 0;
    int r = mag_run_with(&cfg, app, w);
    watching = 0;
    if (picture)
        pthread_join(thread, NULL);
    if (r != 0) {
        fprintf(stderr, "imbalance: %s\n", strerror(-r));
        exit(1);
    }
}

static long calibrate(void)
{
    mag_time start = mag_now();
    sink = compute(20000000);
    return (long)(20000000 * 2e6 / (double)(mag_now() - start)); /* about 2 ms of computing */
}

int main(int argc, char **argv)
{
    int n = argc > 1 ? atoi(argv[1]) : 1000;
    if (n < 1) {
        fprintf(stderr, "usage: imbalance [goroutines]\n");
        return 2;
    }
    struct work many = {.n = n, .rounds = calibrate()}, one = many;
    printf("%d goroutines of about 2 ms each, all created on one P\n", n);
    run(&many, 0, isatty(STDOUT_FILENO));
    uint64_t loose = many.total.finished;
    for (int i = 0; i < many.procs && i < MAX_PS; loose -= many.ps[i++].finished)
        printf("  P%-2d created %5llu, ran %5llu, stole %5llu in %llu steals\n", i, (unsigned long long)many.ps[i].spawned,
               (unsigned long long)many.ps[i].finished, (unsigned long long)many.ps[i].stolen,
               (unsigned long long)many.ps[i].steals);
    if (loose != 0 && many.procs <= MAX_PS)
        printf("  %llu lost their P on the way: the machine is busy\n", (unsigned long long)loose);
    run(&one, 1, 0);
    printf("%d procs: %.2f s, %llu steals moved %llu goroutines. 1 proc: %.2f s. Speed-up %.2f\n", many.procs, many.seconds,
           (unsigned long long)many.total.steals, (unsigned long long)many.total.stolen, one.seconds,
           one.seconds / many.seconds);
    return 0;
}
