/* SPDX-License-Identifier: MIT */
/* fib: fork and join, a goroutine for every other call. A foolish way to compute Fibonacci numbers and a good way to see
 * what a goroutine costs. Usage: fib [n] */
#include <magpie.h>
#include <stdio.h>
#include <stdlib.h>

struct call {
    int n;
    long *result;
    mag_wg *done;
};

static long fib(int n);

static void run(void *arg)
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
    if (MAG_GO(run, struct call, n - 1, &left, &done) != 0)
        abort();
    right = fib(n - 2);
    mag_wg_wait(&done, MAG_FOREVER);
    return left + right;
}

static void app(void *arg)
{
    int n = *(int *)arg;
    mag_time start = mag_now();
    long result = fib(n);
    double took = (double)(mag_now() - start);
    mag_stats s;
    int procs = mag_stats_read(&s, NULL, 0);
    printf("fib(%d) = %ld on %d procs: %.0f ms, %llu goroutines, %.0f ns each, %llu steals\n", n, result, procs, took / 1e6,
           (unsigned long long)s.spawned, took / (double)s.spawned, (unsigned long long)s.steals);
}

int main(int argc, char **argv)
{
    int n = argc > 1 ? atoi(argv[1]) : 27;
    return mag_run(app, &n) == 0 ? 0 : 1;
}
