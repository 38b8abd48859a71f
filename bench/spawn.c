/* SPDX-License-Identifier: MIT */
/* spawn: what a goroutine costs that does nothing: five million at once, a thousand at a time, one at a time, and one for
 * every call of fib. Floor: a call through a pointer. */
#include "bench.h"

static mag_wg wg;

static void nothing(void *arg)
{
    (void)arg;
    mag_wg_done(&wg);
}

struct batches {
    long n, of;
};

static double spawns(void *arg)
{
    struct batches *b = arg;
    mag_time start = mag_now();
    for (long i = 0; i < b->n; i++) {
        mag_wg_add(&wg, (int)b->of);
        for (long k = 0; k < b->of; k++)
            mag_go(nothing, NULL);
        mag_wg_wait(&wg, MAG_FOREVER);
    }
    return (double)(mag_now() - start) / ((double)b->n * (double)b->of);
}

struct call {
    int n;
    long *result;
    mag_wg *done;
};

static long fib(int n);

static void run_call(void *arg)
{
    struct call *c = arg;
    *c->result = fib(c->n);
    mag_wg_done(c->done);
}

static long fib(int n)
{
    if (n < 2)
        return n;
    long left, right;
    mag_wg done = {0};
    mag_wg_add(&done, 1);
    if (MAG_GO(run_call, struct call, n - 1, &left, &done) != 0)
        abort();
    right = fib(n - 2);
    mag_wg_wait(&done, MAG_FOREVER);
    return left + right;
}

enum { FIB = 27, FIB_SPAWNS = 317810 };

static double fibs(void *arg)
{
    (void)arg;
    mag_time start = mag_now();
    if (fib(FIB) != 196418)
        abort();
    return (double)(mag_now() - start) / FIB_SPAWNS;
}

static void (*volatile target)(void *);
static void empty(void *arg) { (void)arg; }

static double calls(void *arg)
{
    long n = *(long *)arg;
    target = empty;
    mag_time start = mag_now();
    for (long i = 0; i < n; i++)
        target(NULL);
    return (double)(mag_now() - start) / (double)n;
}

static void app(void *arg)
{
    (void)arg;
    long n = 10000000;
    double floor = bench_median(calls, &n);
    struct batches all = {1, 5000000}, thousand = {1000, 1000}, one = {1000000, 1};
    bench_print("spawn1", mag_procs(), bench_median(spawns, &one), floor, one.n);
    bench_print("spawn1000", mag_procs(), bench_median(spawns, &thousand), floor, 1000000);
    bench_print("fib", mag_procs(), bench_median(fibs, NULL), floor, FIB_SPAWNS);
    bench_print("spawn5M", mag_procs(), bench_median(spawns, &all), floor, all.of);
}

int main(void) { return mag_run(app, NULL) == 0 ? 0 : 1; }
