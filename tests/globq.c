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

/* At most so many come, and they are gs[first .. end). */
static void expect(struct globq *q, uint32_t most, uint32_t first, uint32_t end)
{
    struct g *at[10 * N];
    uint32_t n = mag__globq_get_many(q, at, most);
    T_EQ(n, end - first);
    for (uint32_t i = 0; i < n; i++)
        T_EQ(at[i], &gs[first + i]);
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
        expect(&q, 1, i, i + 1);
    T_EQ(mag__globq_get(&q), NULL);
    T_EQ(mag__globq_length(&q), 0);
    mag__globq_clear(&q);
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
    expect(&q, 0, 0, 0);
    expect(&q, 5, 0, 5);
    expect(&q, 1, 5, 6);
    T_EQ(mag__globq_length(&q), N - 6);
    expect(&q, 10 * N, 6, N);
    T_EQ(mag__globq_length(&q), 0);
    mag__globq_put(&q, &gs[7]); /* an emptied queue works like a new one */
    expect(&q, 2, 7, 8);
    mag__globq_clear(&q);
}

/* gs[first .. end) in a crate. */
static void put_crate(struct globq *q, uint32_t first, uint32_t end)
{
    struct crate *c = mag__globq_new_crate(q);
    T_TRUE(c != NULL);
    T_LE(end - first, RUNQ_SPILL);
    c->from = 0;
    c->n = end - first;
    for (uint32_t i = first; i < end; i++) {
        gs[i].next = &gs[0]; /* not looked at */
        c->at[i - first] = &gs[i];
    }
    mag__globq_put_crate(q, c);
}

static void crates_keep_their_order(void)
{
    struct globq q = {0};
    struct g *at[N];
    uint32_t n = 0;
    put_crate(&q, 0, 2);
    put_crate(&q, 2, 3);
    put_crate(&q, 3, 5);
    T_EQ(mag__globq_length(&q), 5);
    expect(&q, 1, 0, 1);
    while (n < 4) {
        uint32_t got = mag__globq_get_many(&q, at + n, 2);
        T_EQ(got, 2);
        n += got;
        T_EQ(mag__globq_length(&q), 4 - n);
    }
    for (uint32_t i = 0; i < 4; i++)
        T_EQ(at[i], &gs[i + 1]);
    T_EQ(mag__globq_get_many(&q, at, N), 0);
    T_EQ(mag__globq_get(&q), NULL);
    mag__globq_return_crate(&q, mag__globq_new_crate(&q));
    mag__globq_clear(&q);
}

static void some_come_first(void)
{
    struct globq q = {0};
    mag__globq_put_list(&q, chain(10, 13));
    put_crate(&q, 13, 15);
    mag__globq_put_front(&q, chain(5, 10));
    mag__globq_put_front(&q, (struct g_list){0});
    mag__globq_put_front(&q, chain(0, 5));
    mag__globq_put(&q, &gs[15]);
    T_EQ(mag__globq_length(&q), 16);
    expect(&q, 3, 0, 3);
    expect(&q, 10 * N, 3, 16);
    mag__globq_put_front(&q, chain(0, N)); /* more than a crate, into an empty queue */
    mag__globq_put(&q, &gs[3]);
    expect(&q, N, 0, N);
    expect(&q, N, 3, 4);
    mag__globq_put_list(&q, chain(0, N));
    mag__globq_clear(&q);
    T_EQ(mag__globq_length(&q), 0);
    T_EQ(mag__globq_get(&q), NULL);
    mag__globq_put(&q, &gs[5]); /* it works like a new one */
    expect(&q, 2, 5, 6);
    mag__globq_clear(&q);
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
        struct g *at[7];
        uint32_t n = mag__globq_get_many(&queue, at, t_random_r(&random) % 7);
        for (uint32_t i = 0; i < n; i++) {
            struct g *g = at[i];
            int who = g >= many[1] && g < many[1] + each;
            T_EQ(g->arg, g);
            T_GT(g, last[who]);
            last[who] = g;
            g->arg = NULL; /* a second run would see it */
        }
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
    T_EQ(mag__globq_get(&queue), NULL);
    mag__globq_clear(&queue);
    for (int i = 0; i < MAKERS; i++)
        free(many[i]);
}

int main(int argc, char **argv)
{
    t_init(argc, argv);
    T_RUN(first_in_first_out);
    T_RUN(lists_keep_their_order);
    T_RUN(crates_keep_their_order);
    T_RUN(some_come_first);
    T_RUN(share_is_fair_and_fits_the_ring);
    T_RUN(makers_and_takers_lose_nothing);
    return t_done();
}
