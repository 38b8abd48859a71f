/* SPDX-License-Identifier: MIT */
/* switch: from one stack to another and back, nothing else: no queue, no P. Floor: a call through a pointer. */
#include "../bench.h"
#include "arch/switch.h"
#include "core/g.h"

enum { N = 20000000 };

static struct g one, two;
static _Alignas(64) char stack[64 << 10];

static void nothing(struct m *m, struct g *prev) { (void)m, (void)prev; }

static void other(struct g *prev, struct g *self, struct m *m, g_after after)
{
    (void)after;
    for (;;) {
        struct switched s = mag__arch_switch(self, prev, m, nothing);
        prev = s.prev;
        m = s.m;
    }
}

static double switches(void *arg)
{
    (void)arg;
    mag_time start = mag_now();
    for (long i = 0; i < N; i++)
        mag__arch_switch(&one, &two, NULL, nothing);
    return (double)(mag_now() - start) / (2.0 * N);
}

/* As the scheduler does it: saved before, loaded after, on either side. */
static void other_with_control(struct g *prev, struct g *self, struct m *m, g_after after)
{
    (void)after;
    struct control control;
    for (;;) {
        mag__arch_control_save(&control);
        struct switched s = mag__arch_switch(self, prev, m, nothing);
        mag__arch_control_load(&control);
        prev = s.prev;
        m = s.m;
    }
}

static double with_control(void *arg)
{
    (void)arg;
    struct control control;
    mag_time start = mag_now();
    for (long i = 0; i < N; i++) {
        mag__arch_control_save(&control);
        mag__arch_switch(&one, &two, NULL, nothing);
        mag__arch_control_load(&control);
    }
    return (double)(mag_now() - start) / (2.0 * N);
}

static void (*volatile target)(struct m *, struct g *) = nothing;

static double calls(void *arg)
{
    (void)arg;
    mag_time start = mag_now();
    for (long i = 0; i < N; i++)
        target(NULL, NULL);
    return (double)(mag_now() - start) / N;
}

int main(void)
{
    mag__arch_prepare(&two.at, stack + sizeof stack, other);
    double floor = bench_median(calls, NULL);
    bench_print("switch", 1, bench_median(switches, NULL), floor, 2L * N);
    mag__arch_prepare(&two.at, stack + sizeof stack, other_with_control);
    bench_print("switch_control", 1, bench_median(with_control, NULL), floor, 2L * N);
    return 0;
}
