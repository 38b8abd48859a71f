/* SPDX-License-Identifier: MIT */
/* mutex: eight goroutines that lock, add one, unlock. Floor: an atomic addition, uncontended. */
#include "bench.h"

enum { GOROUTINES = 8, EACH = 500000 };

static mag_wg wg;
static mag_mutex mutex;
static long count;

static void adder(void *arg)
{
    (void)arg;
    for (int i = 0; i < EACH; i++) {
        mag_mutex_lock(&mutex);
        count++;
        mag_mutex_unlock(&mutex);
    }
    mag_wg_done(&wg);
}

static double contend(void *arg)
{
    (void)arg;
    count = 0;
    mag_wg_add(&wg, GOROUTINES);
    mag_time start = mag_now();
    for (int i = 0; i < GOROUTINES; i++)
        mag_go(adder, NULL);
    mag_wg_wait(&wg, MAG_FOREVER);
    double ns = (double)(mag_now() - start) / (GOROUTINES * EACH);
    if (count != (long)GOROUTINES * EACH)
        abort();
    return ns;
}

static double additions(void *arg)
{
    (void)arg;
    mag_time start = mag_now();
    for (long i = 0; i < GOROUTINES * EACH; i++)
        __atomic_fetch_add(&count, 1, __ATOMIC_RELAXED);
    return (double)(mag_now() - start) / (GOROUTINES * EACH);
}

static void app(void *arg)
{
    (void)arg;
    double floor = bench_median(additions, NULL);
    bench_print("mutex8", mag_procs(), bench_median(contend, NULL), floor, GOROUTINES * EACH);
}

int main(void) { return mag_run(app, NULL) == 0 ? 0 : 1; }
