/* SPDX-License-Identifier: MIT */
/* compute: a long loop beside a goroutine that keeps house every 5 ms, on one proc: with mag_checkpoint in the loop, without it
 * but with the P retaken, and with neither. What it does to both. */
#include <magpie.h>
#include <stdio.h>

static volatile unsigned sink;
static int done, with_checkpoint;
static double computing;
static mag_wg wg;

static void compute(void *arg)
{
    (void)arg;
    mag_time start = mag_now();
    unsigned x = 1;
    for (long i = 0; i < 300000000; i++) {
        x = x * 1664525u + 1013904223u;
        if (with_checkpoint && i % 4096 == 0)
            mag_checkpoint();
    }
    sink = x;
    computing = (double)(mag_now() - start) / 1e6;
    __atomic_store_n(&done, 1, __ATOMIC_RELAXED);
    mag_wg_done(&wg);
}

static void keep_house(void *arg)
{
    int rounds = 0;
    double worst = 0, sum = 0;
    for (mag_time due = mag_now(); !__atomic_load_n(&done, __ATOMIC_RELAXED); rounds++) {
        due += 5 * MAG_MS;
        mag_sleep_until(due);
        double late = (double)(mag_now() - due) / 1e6;
        sum += late;
        worst = late > worst ? late : worst;
        if (late > 5)
            due = mag_now();
    }
    printf("%-28s computed %4.0f ms; %3d rounds of housekeeping, late %6.2f ms on average, %7.2f at worst\n",
           (const char *)arg, computing, rounds, rounds ? sum / rounds : 0, worst);
    mag_wg_done(&wg);
}

static void app(void *arg)
{
    done = 0;
    mag_wg_add(&wg, 2);
    mag_go(keep_house, arg);
    mag_yield();
    mag_go(compute, NULL);
    mag_wg_wait(&wg, MAG_FOREVER);
}

int main(void)
{
    mag_config retaken = {.procs = 1}, never = {.procs = 1, .slice = -1};
    with_checkpoint = 1;
    mag_run_with(&retaken, app, "with mag_checkpoint:");
    with_checkpoint = 0;
    mag_run_with(&retaken, app, "without, P retaken:");
    mag_run_with(&never, app, "without, never retaken:");
    return 0;
}
