/* SPDX-License-Identifier: MIT */
/* order.c: a thief visits every P exactly once a round, whatever their number, and not always in the same order. */
#include "test.h"

#include "core/order.h"

#include <stdlib.h>

static void everyone_once(void)
{
    struct rng rng;
    rng_init(&rng, t_state.seed);
    for (uint32_t n = 1; n <= 130; n++) {
        struct order *o = mag__order_new(n);
        T_TRUE(o != NULL);
        for (int round = 0; round < 50; round++) {
            unsigned char seen[130] = {0};
            struct order_walk w = mag__order_begin(o, &rng);
            uint32_t i, visits = 0;
            while (mag__order_next(&w, &i)) {
                T_LT(i, n);
                T_EQ(seen[i]++, 0);
                visits++;
            }
            T_EQ(visits, n);
        }
        free(o);
    }
}

/* Every P is the first to be visited about as often as another. */
static void no_favourites(void)
{
    enum { N = 7, ROUNDS = 70000 };
    struct rng rng;
    rng_init(&rng, t_state.seed);
    struct order *o = mag__order_new(N);
    long first[N] = {0}, strides = 0;
    for (long r = 0; r < ROUNDS; r++) {
        struct order_walk w = mag__order_begin(o, &rng);
        uint32_t i, second;
        T_TRUE(mag__order_next(&w, &i) && mag__order_next(&w, &second));
        first[i]++;
        strides |= 1L << ((second + N - i) % N);
    }
    for (int i = 0; i < N; i++) {
        T_GT(first[i], ROUNDS / N * 9 / 10);
        T_LT(first[i], ROUNDS / N * 11 / 10);
    }
    T_EQ(strides, 0x7e); /* 1 to 6: all that share no factor with 7 */
    free(o);
}

int main(int argc, char **argv)
{
    t_init(argc, argv);
    T_RUN(everyone_once);
    T_RUN(no_favourites);
    return t_done();
}
