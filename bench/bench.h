/* SPDX-License-Identifier: MIT */
/* bench.h: measure a thing a few times, print the median.
 *
 * Each result is a line for people and one for machines:
 *     bench NAME procs=N ns=X floor=Y n=Z
 * ns is per operation; floor is what the machine itself takes for the part that cannot be avoided, measured in the same
 * run; n is the number of operations of one measurement. BENCH_ROUNDS (5) sets how often each is measured.
 */
#ifndef MAG_BENCH_H
#define MAG_BENCH_H

#include <magpie.h>
#include <stdio.h>
#include <stdlib.h>

enum { BENCH_MAX = 99 };

static inline int bench_rounds(void)
{
    const char *text = getenv("BENCH_ROUNDS");
    int n = text != NULL ? atoi(text) : 5;
    return n < 1 ? 1 : n > BENCH_MAX ? BENCH_MAX : n;
}

static inline int bench_by_size(const void *a, const void *b)
{
    double x = *(const double *)a, y = *(const double *)b;
    return x < y ? -1 : x > y;
}

/* The median of what one(arg) returns, after a round that does not count. */
static inline double bench_median(double (*one)(void *arg), void *arg)
{
    double v[BENCH_MAX];
    int n = bench_rounds();
    one(arg);
    for (int i = 0; i < n; i++)
        v[i] = one(arg);
    qsort(v, (size_t)n, sizeof *v, bench_by_size);
    return v[n / 2];
}

static inline void bench_print(const char *name, int procs, double ns, double floor, long n)
{
    printf("bench %s procs=%d ns=%.2f floor=%.2f n=%ld\n", name, procs, ns, floor, n);
    fflush(stdout);
}

#endif
