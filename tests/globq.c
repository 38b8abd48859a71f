/* SPDX-License-Identifier: MIT */
/* globq.c: the global queue. */
#include "test.h"

#include "core/globq.h"
#include <pthread.h>

enum { N = 100 };

static struct g gs[N];

/* A chain of gs[first .. end). */
static struct g_list chain(uint32_t first, uint32_t end)
{
    for (uint32_t i = first; i < end; i++)
        gs[i].next = i + 1 < end ? &gs[i + 1] : NULL;
    return (struct g_list){.first = &gs[first], .last = &gs[end - 1], .n = end - first};
}

static void expect_list(struct g_list list, uint32_t first, uint32_t end)
{
    T_EQ(list.n, end - first);
    struct g *g = list.first;
    for (uint32_t i = first; i < end; i++, g = g->next) {
        T_EQ(g, &gs[i]);
        if (i + 1 == end)
            T_EQ(g, list.last);
    }
    T_EQ(g, NULL);
}

static void first_in_first_out(void)
{
    struct globq q = {0};
    for (uint32_t i = 0; i < N; i++) {
        gs[i].next = &gs[0]; /* whatever was there */
        mag__globq_put(&q, &gs[i]);
        T_EQ(mag__globq_length(&q), i + 1);
    }
    for (uint32_t i = 0; i < N; i++)
        expect_list(mag__globq_get(&q, 1), i, i + 1);
    T_EQ(mag__globq_get(&q, 1).n, 0);
    T_EQ(mag__globq_length(&q), 0);
}

static void lists_keep_their_order(void)
{
    struct globq q = {0};
    mag__globq_put_list(&q, (struct g_list){0});
    T_EQ(mag__globq_length(&q), 0);
    mag__globq_put_list(&q, chain(0, 3));
    mag__globq_put(&q, &gs[3]);
    mag__globq_put_list(&q, chain(4, N));
    T_EQ(mag__globq_length(&q), N);
    T_EQ(mag__globq_get(&q, 0).n, 0);
    expect_list(mag__globq_get(&q, 5), 0, 5);
    expect_list(mag__globq_get(&q, 1), 5, 6);
    T_EQ(mag__globq_length(&q), N - 6);
    expect_list(mag__globq_get(&q, 10 * N), 6, N);
    T_EQ(mag__globq_length(&q), 0);
    mag__globq_put(&q, &gs[7]); /* an emptied queue works like a new one */
    expect_list(mag__globq_get(&q, 2), 7, 8);
}

static void share_is_fair_and_fits_the_ring(void)
{
    for (uint32_t procs = 1; procs <= 130; procs++)
        for (uint32_t length = 0; length <= 4 * RUNQ_SIZE; length++) {
            uint32_t n = mag__globq_share(length, procs);
            T_LE(n, length);
            T_LE(n, RUNQ_SIZE / 2);
            T_GE(n > 0, length > 0); /* work is never left because it is little */
            T_LE(n, length / procs + 1);
        }
    T_EQ(mag__globq_share(1, 8), 1);
    T_EQ(mag__globq_share(2 * RUNQ_SIZE, 1), RUNQ_SIZE / 2);
}

/* ---- with threads ---- */

enum { MAKERS = 2, TAKERS = 2 };

static struct globq queue;
static struct g *many[MAKERS];
static uint32_t each;
static a32 total;

static void *maker(void *arg)
{
    uint32_t who = (uint32_t)(uintptr_t)arg;
    uint64_t random = t_state.seed + who;
    struct g *mine = many[who];
    for (uint32_t i = 0; i < each;) {
        uint32_t n = 1 + t_random_r(&random) % 5;
        if (n > each - i)
            n = each - i;
        for (uint32_t k = i; k < i + n; k++) {
            mine[k].arg = &mine[k];
            mine[k].next = k + 1 < i + n ? &mine[k + 1] : NULL;
        }
        if (n == 1)
            mag__globq_put(&queue, &mine[i]);
        else
            mag__globq_put_list(&queue, (struct g_list){.first = &mine[i], .last = &mine[i + n - 1], .n = n});
        i += n;
    }
    return NULL;
}

/* What one taker gets of one maker comes in the order in which it was put. */
static void *taker(void *arg)
{
    uint64_t random = t_state.seed + 100 + (uintptr_t)arg;
    struct g *last[MAKERS] = {0};
    while (at_32_load_rlx(&total) < MAKERS * each) {
        struct g_list list = mag__globq_get(&queue, t_random_r(&random) % 7);
        uint32_t n = 0;
        for (struct g *g = list.first, *next; g != NULL; g = next, n++) {
            next = g->next;
            int who = g >= many[1] && g < many[1] + each;
            T_EQ(g->arg, g);
            T_GT(g, last[who]);
            T_TRUE(next != NULL || g == list.last);
            last[who] = g;
            g->arg = NULL; /* a second run would see it */
        }
        T_EQ(n, list.n);
        at_32_add_rlx(&total, n);
    }
    return NULL;
}

static void makers_and_takers_lose_nothing(void)
{
    pthread_t threads[MAKERS + TAKERS];
    each = (uint32_t)t_scale(200000);
    at_32_store_rlx(&total, 0);
    for (int i = 0; i < MAKERS; i++)
        T_TRUE((many[i] = calloc(each, sizeof(struct g))) != NULL);
    for (uintptr_t i = 0; i < MAKERS + TAKERS; i++)
        T_EQ(pthread_create(&threads[i], NULL, i < MAKERS ? maker : taker, (void *)i), 0);
    for (int i = 0; i < MAKERS + TAKERS; i++)
        pthread_join(threads[i], NULL);
    T_EQ(at_32_load_rlx(&total), MAKERS * each);
    T_EQ(mag__globq_length(&queue), 0);
    T_EQ(mag__globq_get(&queue, 1).n, 0);
    for (int i = 0; i < MAKERS; i++)
        free(many[i]);
}

int main(int argc, char **argv)
{
    t_init(argc, argv);
    T_RUN(first_in_first_out);
    T_RUN(lists_keep_their_order);
    T_RUN(share_is_fair_and_fits_the_ring);
    T_RUN(makers_and_takers_lose_nothing);
    return t_done();
}
