/* SPDX-License-Identifier: MIT */
/* token: leaving the runtime and entering it again, when nobody takes the P meanwhile. Floor: one exchange. */
#include "../bench.h"
#include "sched/token.h"

enum { N = 50000000 };

static struct m m;
static struct p p;
static aptr word;

static double border(void *arg)
{
    (void)arg;
    m.p = &p;
    mag_time start = mag_now();
    for (long i = 0; i < N; i++) {
        mag__token_leave(&m);
        if (mag__token_enter(&m) == NULL)
            abort();
    }
    return (double)(mag_now() - start) / N;
}

static double exchange(void *arg)
{
    (void)arg;
    mag_time start = mag_now();
    for (long i = 0; i < N; i++)
        at_ptr_xchg_acq(&word, &p);
    return (double)(mag_now() - start) / N;
}

int main(void)
{
    double floor = bench_median(exchange, NULL);
    bench_print("token", 1, bench_median(border, NULL), floor, N);
    return 0;
}
