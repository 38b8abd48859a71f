/* SPDX-License-Identifier: MIT */
/* steal: what stealing does to an uneven load. One goroutine creates waves of short ones, each on the P that it is on; the others take
 * them. For 1, 4, 8 and 16 procs: the median time from mag_go to the first step, and steals per second. What one steal costs against
 * a local dequeue is in bench/micro/runq.c (rows steal and ring). Floor: the time the work itself takes. */
#include "bench.h"

enum { WAVE = 200, WAVES = 200, WORK_NS = 2000 };

static mag_wg wg;
static double waited[WAVE * WAVES];

struct shot {
    mag_time made;
    int index;
};

static void work(void *arg)
{
    struct shot *s = arg;
    mag_time now = mag_now();
    waited[s->index] = (double)(now - s->made);
    while (mag_now() < now + WORK_NS)
        continue;
    mag_wg_done(&wg);
}

static void app(void *arg)
{
    (void)arg;
    mag_time start = mag_now();
    for (int w = 0; w < WAVES; w++) {
        mag_wg_add(&wg, WAVE);
        for (int i = 0; i < WAVE; i++)
            MAG_GO(work, struct shot, mag_now(), w * WAVE + i);
        mag_wg_wait(&wg, MAG_FOREVER);
    }
    double seconds = (double)(mag_now() - start) / 1e9;
    mag_stats s;
    int procs = mag_stats_read(&s, NULL, 0);
    qsort(waited, WAVE * WAVES, sizeof *waited, bench_by_size);
    bench_print("steal_latency", procs, waited[WAVE * WAVES / 2], WORK_NS, WAVE * WAVES);
    printf("  steal: %2d procs: p50 %.1f us, %.1fk steals/s, %.1f goroutines a steal\n", procs,
           waited[WAVE * WAVES / 2] / 1e3, (double)s.steals / seconds / 1e3, s.steals ? (double)s.stolen / (double)s.steals : 0);
}

int main(void)
{
    const char *given = getenv("MAGPIE_PROCS");
    if (given != NULL && atoi(given) != 1)
        return 0; /* it chooses its own: once is enough */
    unsetenv("MAGPIE_PROCS");
    static const int procs[] = {1, 4, 8, 16};
    for (int i = 0; i < 4; i++) {
        mag_config cfg = {.procs = procs[i]};
        if (mag_run_with(&cfg, app, NULL) != 0)
            return 1;
    }
    return 0;
}
