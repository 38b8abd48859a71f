/* SPDX-License-Identifier: MIT */
/* lifo.c: the goroutines that a spawn pushed aside, with real threads. Every interleaving: tests/model/lifo.c. */
#include "test.h"

#include "core/lifo.h"
#include <pthread.h>
#include <stdlib.h>

#ifdef MAG_HOSTILE
enum { MANY = 10000 }; /* pauses everywhere */
#else
enum { MANY = 200000 };
#endif
enum { THIEVES = 3 };

static struct g gs[LIFO_SIZE + 1]; /* for the cases with one thread */
static const uint32_t starts[] = {0, UINT32_MAX, UINT32_MAX - LIFO_SIZE / 2, UINT32_MAX - LIFO_SIZE + 1};

static void fill(struct lifo *l, uint32_t start, uint32_t n)
{
    mag__lifo_init(l, start);
    for (uint32_t i = 0; i < n; i++)
        T_TRUE(mag__lifo_push_owner(l, &gs[i]));
    T_EQ(mag__lifo_length(l), n);
}

static void newest_first(void)
{
    struct lifo l;
    for (size_t s = 0; s < sizeof starts / sizeof *starts; s++)
        for (uint32_t n = 0; n <= LIFO_SIZE; n++)
            for (int alone = 0; alone <= 1; alone++) {
                fill(&l, starts[s], n);
                for (uint32_t i = n; i-- > 0;) {
                    T_TRUE(lifo_may_have(&l));
                    T_EQ(mag__lifo_pop_owner(&l, alone), &gs[i]);
                }
                T_EQ(mag__lifo_pop_owner(&l, alone), NULL);
                T_EQ(mag__lifo_length(&l), 0);
            }
}

static void thieves_take_the_oldest(void)
{
    struct lifo l;
    for (size_t s = 0; s < sizeof starts / sizeof *starts; s++) {
        fill(&l, starts[s], LIFO_SIZE);
        for (uint32_t i = 0; i < LIFO_SIZE; i++)
            T_EQ(mag__lifo_steal(&l), &gs[i]);
        T_EQ(mag__lifo_steal(&l), NULL);
        T_EQ(mag__lifo_pop_owner(&l, false), NULL);
    }
}

static void full_is_full_until_the_oldest_go(void)
{
    struct lifo l;
    struct g *old[LIFO_SIZE];
    for (size_t s = 0; s < sizeof starts / sizeof *starts; s++) {
        fill(&l, starts[s], LIFO_SIZE);
        T_EQ(mag__lifo_push_owner(&l, &gs[LIFO_SIZE]), false);
        T_EQ(mag__lifo_take_old_owner(&l, old, LIFO_SIZE / 2), LIFO_SIZE / 2);
        for (uint32_t i = 0; i < LIFO_SIZE / 2; i++)
            T_EQ(old[i], &gs[i]);
        T_TRUE(mag__lifo_push_owner(&l, &gs[LIFO_SIZE]));
        T_EQ(mag__lifo_pop_owner(&l, false), &gs[LIFO_SIZE]);
        T_EQ(mag__lifo_pop_owner(&l, false), &gs[LIFO_SIZE - 1]);
        T_EQ(mag__lifo_take_old_owner(&l, old, LIFO_SIZE), LIFO_SIZE / 2 - 1); /* no more than there are */
        T_EQ(mag__lifo_take_old_owner(&l, old, LIFO_SIZE), 0);
    }
}

/* ---- owner and thieves ---- */

static struct lifo shared;
static struct g *many;
static unsigned char *runs;
static uint32_t left;

static void run_g(const struct g *g)
{
    T_EQ(g->arg, (void *)(uintptr_t)(g - many)); /* plain memory: what its maker wrote */
    T_EQ(__atomic_fetch_add(&runs[g - many], 1, __ATOMIC_RELAXED), 0);
    __atomic_fetch_sub(&left, 1, __ATOMIC_RELAXED);
}

static void *thief(void *arg)
{
    struct g *g;
    while (__atomic_load_n(&left, __ATOMIC_RELAXED) != 0)
        if ((g = mag__lifo_steal(&shared)) != NULL)
            run_g(g);
    return arg;
}

static void owner_and_three_thieves_run_each_once(void)
{
    pthread_t t[THIEVES];
    uint32_t n = (uint32_t)t_scale(MANY);
    struct g *old[LIFO_SIZE], *g;
    many = calloc(n, sizeof *many);
    runs = calloc(n, 1);
    left = n;
    mag__lifo_init(&shared, UINT32_MAX - n / 2);
    for (int i = 0; i < THIEVES; i++)
        T_EQ(pthread_create(&t[i], NULL, thief, NULL), 0);
    for (uint32_t i = 0; i < n; i++) {
        many[i].arg = (void *)(uintptr_t)i;
        while (!mag__lifo_push_owner(&shared, &many[i]))
            for (uint32_t k = mag__lifo_take_old_owner(&shared, old, LIFO_SIZE / 2); k-- > 0;)
                run_g(old[k]);
        if (i % 3 != 0 && (g = mag__lifo_pop_owner(&shared, false)) != NULL)
            run_g(g);
    }
    while ((g = mag__lifo_pop_owner(&shared, false)) != NULL)
        run_g(g);
    for (int i = 0; i < THIEVES; i++)
        pthread_join(t[i], NULL);
    for (uint32_t i = 0; i < n; i++)
        T_EQ(runs[i], 1);
    free(many);
    free(runs);
}

int main(int argc, char **argv)
{
    t_init(argc, argv);
    T_RUN(newest_first);
    T_RUN(thieves_take_the_oldest);
    T_RUN(full_is_full_until_the_oldest_go);
    T_RUN(owner_and_three_thieves_run_each_once);
    return t_done();
}
