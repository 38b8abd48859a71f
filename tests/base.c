/* SPDX-License-Identifier: MIT */
/* base.c: the random generator and the last words. */
#include "test.h"

#include "base/panic.h"
#include "base/rng.h"

/* 2^20 draws from 16 values: each comes 65536 times, standard deviation 248. Eight of those is never. */
static void rng_is_even(void)
{
    struct rng r;
    long seen[16] = {0};
    rng_init(&r, t_state.seed);
    for (int i = 0; i < 1 << 20; i++) {
        uint32_t x = rng_below(&r, 16);
        T_LT(x, 16);
        seen[x]++;
    }
    for (int i = 0; i < 16; i++) {
        T_GT(seen[i], 65536 - 2000);
        T_LT(seen[i], 65536 + 2000);
    }
}

static void rng_follows_its_seed(void)
{
    struct rng a, b, c;
    int same = 0;
    rng_init(&a, t_state.seed);
    rng_init(&b, t_state.seed);
    rng_init(&c, t_state.seed + 1);
    for (int i = 0; i < 1000; i++) {
        uint32_t x = rng_next(&a);
        T_EQ(x, rng_next(&b));
        same += x == rng_next(&c);
    }
    T_LT(same, 3);
}

static void misuses(void *arg) { mag__panic_misuse("%s: called from nowhere", (const char *)arg); }

static void breaks(void *arg) { must(arg == NULL && "one P, one owner"); }

static void says_too_much(void *arg)
{
    (void)arg;
    char text[2000];
    memset(text, 'x', sizeof text - 1);
    text[sizeof text - 1] = 0;
    mag__panic_say("%s", text);
}

static void panics_name_what_happened(void)
{
    T_ABORTS(misuses, "mag_yield", "magpie: mag_yield: called from nowhere\n");
    T_ABORTS(breaks, "not null", "one P, one owner");
}

static void a_long_line_is_cut_and_ended(void)
{
    static struct t_child c;
    t_fork(&c, says_too_much, NULL);
    T_EQ(c.code, 0);
    T_LT(strlen(c.err), 600);
    T_EQ(c.err[strlen(c.err) - 1], '\n');
}

int main(int argc, char **argv)
{
    t_init(argc, argv);
    T_RUN(rng_is_even);
    T_RUN(rng_follows_its_seed);
    T_RUN(panics_name_what_happened);
    T_RUN(a_long_line_is_cut_and_ended);
    return t_done();
}
