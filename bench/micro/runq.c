/* SPDX-License-Identifier: MIT */
/* runq: a put and a get by the owner, and a steal of half a full ring, per G that it moves. Floor: the same through an
 * array with plain indices, as if nobody could steal. */
#include "../bench.h"
#include "core/runq.h"

#include <string.h>

enum { N = 20000000, STEALS = 100000 };

static struct runq q, thief;
static struct g gs[RUNQ_SIZE];

static double put_get(void *arg)
{
    (void)arg;
    mag_time start = mag_now();
    for (long i = 0; i < N; i++) {
        mag__runq_put_owner(&q, &gs[0]);
        __asm__ volatile("" ::: "memory");
        if (mag__runq_get_owner(&q) != &gs[0])
            abort();
    }
    return (double)(mag_now() - start) / N;
}

static double next(void *arg)
{
    (void)arg;
    mag_time start = mag_now();
    for (long i = 0; i < N; i++) {
        mag__runq_next_swap_owner(&q, &gs[0]);
        if (mag__runq_next_take_owner(&q) != &gs[0])
            abort();
    }
    return (double)(mag_now() - start) / N;
}

static struct {
    unsigned head, tail;
    struct g *slot[RUNQ_SIZE];
} plain;

static double plain_put_get(void *arg)
{
    (void)arg;
    mag_time start = mag_now();
    for (long i = 0; i < N; i++) {
        plain.slot[plain.tail++ % RUNQ_SIZE] = &gs[0];
        __asm__ volatile("" ::: "memory");
        if (plain.slot[plain.head++ % RUNQ_SIZE] != &gs[0])
            abort();
    }
    return (double)(mag_now() - start) / N;
}

static double steals(void *arg)
{
    (void)arg;
    double total = 0;
    long moved = 0;
    for (long i = 0; i < STEALS / 10; i++) {
        for (unsigned k = 0; k < RUNQ_SIZE; k++)
            mag__runq_put_owner(&q, &gs[k]);
        mag_time start = mag_now();
        uint32_t n;
        while (mag__runq_steal(&thief, &q, 1, &n) != NULL) {
            moved += n;
            while (mag__runq_get_owner(&thief) != NULL)
                continue;
        }
        total += (double)(mag_now() - start);
    }
    return total / (double)moved;
}

int main(void)
{
    mag__runq_init(&q, 0);
    mag__runq_init(&thief, 0);
    double floor = bench_median(plain_put_get, NULL);
    bench_print("ring", 1, bench_median(put_get, NULL), floor, N);
    bench_print("runnext", 1, bench_median(next, NULL), floor, N);
    bench_print("steal", 1, bench_median(steals, NULL), floor, STEALS / 10 * (long)RUNQ_SIZE);
    return 0;
}
