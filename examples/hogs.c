/* SPDX-License-Identifier: MIT */
/* hogs: four goroutines that compute without a pause, on two procs, and a ticker of 1 ms beside them. How late is it, with the
 * hogs' procs retaken (the default) and without? */
#include <magpie.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

enum { HOGS = 4, TICKS = 1000 };

static int stop;
static double late[TICKS];
static mag_wg wg;

static void hog(void *arg)
{
    (void)arg;
    volatile unsigned x = 0;
    while (!__atomic_load_n(&stop, __ATOMIC_RELAXED)) /* no call, no checkpoint: nothing a scheduler could hook into */
        x++;
    mag_wg_done(&wg);
}

static int by_size(const void *a, const void *b)
{
    double x = *(const double *)a, y = *(const double *)b;
    return x < y ? -1 : x > y;
}

static void app(void *arg)
{
    int n = 0;
    stop = 0;
    mag_wg_add(&wg, HOGS);
    for (int i = 0; i < HOGS; i++)
        mag_go(hog, NULL);
    mag_time next = mag_now(), end = mag_in(TICKS * MAG_MS);
    while (n < TICKS && mag_now() < end) {
        next += MAG_MS;
        mag_sleep_until(next);
        late[n] = (double)(mag_now() - next) / 1e6;
        if (late[n++] > 1)
            next = mag_now();
    }
    __atomic_store_n(&stop, 1, __ATOMIC_RELAXED);
    mag_wg_wait(&wg, MAG_FOREVER);
    qsort(late, (size_t)n, sizeof *late, by_size);
    mag_stats s;
    mag_stats_read(&s, NULL, 0);
    printf("%-18s %4d ticks, late: %8.3f ms p50 %8.3f p99 %8.3f worst; %llu retakes, %llu threads\n",
           arg != NULL ? "never retaken:" : "retaken:", n, late[n / 2], late[n * 99 / 100], late[n - 1],
           (unsigned long long)(s.retakes_computing + s.retakes_blocked), (unsigned long long)s.threads);
}

/* Somebody must end it when nobody is retaken: a thread of our own. */
static void *ends_it(void *arg)
{
    (void)arg;
    sleep(2);
    __atomic_store_n(&stop, 1, __ATOMIC_RELAXED);
    return NULL;
}

int main(void)
{
    pthread_t t;
    mag_config on = {.procs = 2}, off = {.procs = 2, .slice = -1};
    mag_run_with(&on, app, NULL);
    pthread_create(&t, NULL, ends_it, NULL);
    mag_run_with(&off, app, "off");
    pthread_join(t, NULL);
    return 0;
}
