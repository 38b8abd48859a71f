/* SPDX-License-Identifier: MIT */
/* sleep: a million goroutines that each sleep 100 ms; and how late a 1 ms ticker is. Floor: for the sleepers the first touch of a
 * page, for the ticker a plain thread's clock_nanosleep to the same instants. */
#include "bench.h"

#include <sys/mman.h>
#include <sys/prctl.h>
#include <time.h>

enum { SLEEPERS = 1000000, TICKS = 500, PAGES = 20000 };

static mag_wg wg;

static void sleeper(void *arg)
{
    (void)arg;
    mag_sleep(100 * MAG_MS);
    mag_wg_done(&wg);
}

static double sleepers(void *arg)
{
    (void)arg;
    mag_time start = mag_now();
    mag_wg_add(&wg, SLEEPERS);
    for (int i = 0; i < SLEEPERS; i++)
        mag_go(sleeper, NULL);
    mag_wg_wait(&wg, MAG_FOREVER);
    return (double)(mag_now() - start) / SLEEPERS;
}

static double pages(void *arg)
{
    (void)arg;
    char *at = mmap(NULL, PAGES * 4096ul, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (at == MAP_FAILED)
        return 0;
    madvise(at, PAGES * 4096ul, MADV_NOHUGEPAGE);
    mag_time start = mag_now();
    for (long i = 0; i < PAGES; i++)
        at[i * 4096] = 1;
    double ns = (double)(mag_now() - start) / PAGES;
    munmap(at, PAGES * 4096ul);
    return ns;
}

static double middle(double *late)
{
    qsort(late, TICKS, sizeof *late, bench_by_size);
    return late[TICKS / 2];
}

static double ticker(void *arg)
{
    (void)arg;
    static double late[TICKS];
    mag_time due = mag_now();
    for (int i = 0; i < TICKS; i++) {
        due += MAG_MS;
        mag_sleep_until(due);
        late[i] = (double)(mag_now() - due);
    }
    return middle(late);
}

static double nanosleeps(void *arg)
{
    (void)arg;
    static double late[TICKS];
    prctl(PR_SET_TIMERSLACK, 1UL);
    mag_time due = mag_now();
    for (int i = 0; i < TICKS; i++) {
        due += MAG_MS;
        struct timespec t = {.tv_sec = due / MAG_S, .tv_nsec = due % MAG_S};
        clock_nanosleep(CLOCK_MONOTONIC, TIMER_ABSTIME, &t, NULL);
        late[i] = (double)(mag_now() - due);
    }
    return middle(late);
}

static double floor_ticker;

static void app(void *arg)
{
    (void)arg;
    bench_print("ticker", mag_procs(), bench_median(ticker, NULL), floor_ticker, TICKS);
    bench_print("sleep1M", mag_procs(), bench_median(sleepers, NULL), bench_median(pages, NULL), SLEEPERS);
}

int main(void)
{
    floor_ticker = bench_median(nanosleeps, NULL);
    return mag_run(app, NULL) == 0 ? 0 : 1;
}
