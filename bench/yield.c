/* SPDX-License-Identifier: MIT */
/* yield: what giving way costs: two goroutines, and a thousand in turn. Floor: a system call that does nothing, the price
 * a kernel thread would pay at least. */
#include "bench.h"

#include <sys/syscall.h>
#include <unistd.h>

static mag_wg wg;

struct turns {
    int goroutines;
    long each;
};

static void yielder(void *arg)
{
    for (long i = *(long *)arg; i > 0; i--)
        mag_yield();
    mag_wg_done(&wg);
}

static double yields(void *arg)
{
    struct turns *t = arg;
    mag_time start = mag_now();
    mag_wg_add(&wg, t->goroutines);
    for (int i = 0; i < t->goroutines; i++)
        mag_go(yielder, &t->each);
    mag_wg_wait(&wg, MAG_FOREVER);
    return (double)(mag_now() - start) / ((double)t->each * t->goroutines);
}

static double system_calls(void *arg)
{
    long n = *(long *)arg;
    mag_time start = mag_now();
    for (long i = 0; i < n; i++)
        syscall(SYS_getppid);
    return (double)(mag_now() - start) / (double)n;
}

static void app(void *arg)
{
    (void)arg;
    long calls = 1000000;
    double floor = bench_median(system_calls, &calls);
    struct turns two = {2, 5000000}, many = {1000, 5000};
    bench_print("yield", mag_procs(), bench_median(yields, &two), floor, 2 * two.each);
    bench_print("yield1000", mag_procs(), bench_median(yields, &many), floor, 1000 * many.each);
}

int main(void) { return mag_run(app, NULL) == 0 ? 0 : 1; }
