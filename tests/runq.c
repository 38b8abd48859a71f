/* SPDX-License-Identifier: MIT */
/* runq.c: the run queue in its real size, with real threads. Every interleaving: tests/model/runq.c. */
#include "test.h"

#include "core/runq.h"
#include <pthread.h>

#ifdef MAG_HOSTILE
enum { MANY = 10000 }; /* pauses everywhere */
#else
enum { MANY = 200000 };
#endif
enum { THIEVES = 3 };

static struct g gs[2 * RUNQ_SIZE + 2]; /* for the cases with one thread */

/* Where the indices start: they wrap in the first, the second, the last round through the ring, or never. */
static const uint32_t starts[] = {0, UINT32_MAX, UINT32_MAX - RUNQ_SIZE / 2, UINT32_MAX - RUNQ_SIZE + 1};

static void fill(struct runq *q, uint32_t start, uint32_t n)
{
    mag__runq_init(q, start);
    for (uint32_t i = 0; i < n; i++)
        T_TRUE(mag__runq_put_owner(q, &gs[i]));
    T_EQ(mag__runq_length(q), n);
    T_EQ(mag__runq_is_empty(q), n == 0);
}

/* What is in the ring are gs[first .. end), oldest first. */
static void expect_rest(struct runq *q, uint32_t first, uint32_t end)
{
    for (uint32_t i = first; i < end; i++)
        T_EQ(mag__runq_get_owner(q), &gs[i]);
    T_EQ(mag__runq_get_owner(q), NULL);
    T_TRUE(mag__runq_is_empty(q));
}

static void what_goes_in_comes_out_in_order(void)
{
    struct runq q;
    for (size_t s = 0; s < sizeof starts / sizeof *starts; s++)
        for (uint32_t n = 0; n <= RUNQ_SIZE; n++) {
            fill(&q, starts[s], n);
            T_EQ(mag__runq_put_owner(&q, &gs[n]), n < RUNQ_SIZE);
            expect_rest(&q, 0, n < RUNQ_SIZE ? n + 1 : n);
        }
}

/* Put i, take i, on and on through the same ring. */
static void indices_wrap(void)
{
    struct runq q;
    mag__runq_init(&q, UINT32_MAX - 5 * RUNQ_SIZE);
    for (uint32_t round = 0; round < 10; round++)
        for (uint32_t n = 0; n <= RUNQ_SIZE; n++) {
            for (uint32_t i = 0; i < n; i++)
                T_TRUE(mag__runq_put_owner(&q, &gs[i]));
            expect_rest(&q, 0, n);
        }
}

static void alone_is_the_same(void)
{
    struct runq q;
    for (uint32_t n = 0; n <= RUNQ_SIZE; n++) {
        mag__runq_init(&q, UINT32_MAX - 3);
        at_32_store_rlx(&q.alone, 1);
        for (uint32_t i = 0; i < n; i++)
            T_TRUE(mag__runq_put_owner(&q, &gs[i]));
        T_EQ(mag__runq_next_swap_owner(&q, &gs[n]), NULL);
        T_EQ(mag__runq_next_swap_owner(&q, &gs[n + 1]), &gs[n]);
        T_EQ(mag__runq_next_take_owner(&q), &gs[n + 1]);
        T_EQ(mag__runq_next_take_owner(&q), NULL);
        expect_rest(&q, 0, n);
    }
}

static void thief_gets_half_rounded_up(void)
{
    struct runq q, to;
    for (size_t s = 0; s < sizeof starts / sizeof *starts; s++)
        for (uint32_t n = 1; n <= RUNQ_SIZE; n++) {
            uint32_t half = (n + 1) / 2, count = 0;
            fill(&q, starts[s], n);
            mag__runq_init(&to, starts[(s + n) % (sizeof starts / sizeof *starts)]);
            T_EQ(mag__runq_steal(&to, &q, 1, &count), &gs[half - 1]);
            T_EQ(count, half);
            T_EQ(mag__runq_length(&to), half - 1);
            T_EQ(mag__runq_length(&q), n - half);
            expect_rest(&to, 0, half - 1);
            expect_rest(&q, half, n);
        }
}

static void thief_leaves_small_queues(void)
{
    struct runq q, to;
    uint32_t count = 77;
    fill(&to, 0, 0);
    fill(&q, UINT32_MAX, 0);
    T_EQ(mag__runq_steal(&to, &q, 0, &count), NULL);
    T_EQ(mag__runq_steal(&to, &q, 1, &count), NULL);
    fill(&q, UINT32_MAX, 2);
    T_EQ(mag__runq_steal(&to, &q, 3, &count), NULL);
    T_EQ(count, 77);
    T_EQ(mag__runq_steal(&to, &q, 2, &count), &gs[0]);
    T_EQ(count, 1);
    expect_rest(&q, 1, 2);
}

static void spill_moves_the_older_half_and_the_new_one(void)
{
    struct runq q;
    for (size_t s = 0; s < sizeof starts / sizeof *starts; s++) {
        fill(&q, starts[s], RUNQ_SIZE);
        gs[RUNQ_SIZE].next = &gs[0]; /* whatever was there */
        struct g_list list = mag__runq_spill_owner(&q, &gs[RUNQ_SIZE]);
        T_EQ(list.n, RUNQ_SIZE / 2 + 1);
        T_EQ(list.last, &gs[RUNQ_SIZE]);
        struct g *g = list.first;
        for (uint32_t i = 0; i < RUNQ_SIZE / 2; i++, g = g->next)
            T_EQ(g, &gs[i]);
        T_EQ(g, &gs[RUNQ_SIZE]);
        T_EQ(g->next, NULL);
        expect_rest(&q, RUNQ_SIZE / 2, RUNQ_SIZE);
    }
}

/* What the scheduler uses: into a crate of the global queue. */
static void spill_into_an_array_is_the_same(void)
{
    struct runq q;
    struct g *to[RUNQ_SPILL + 1];
    for (size_t s = 0; s < sizeof starts / sizeof *starts; s++) {
        fill(&q, starts[s], RUNQ_SIZE);
        to[RUNQ_SPILL] = &gs[RUNQ_SIZE + 1];
        gs[0].next = gs[RUNQ_SIZE].next = &gs[7]; /* a crate needs no chain: they are not touched */
        T_EQ(mag__runq_spill_into_owner(&q, &gs[RUNQ_SIZE], to), RUNQ_SIZE / 2 + 1);
        for (uint32_t i = 0; i < RUNQ_SIZE / 2; i++)
            T_EQ(to[i], &gs[i]);
        T_EQ(to[RUNQ_SIZE / 2], &gs[RUNQ_SIZE]);
        T_EQ(to[RUNQ_SPILL], &gs[RUNQ_SIZE + 1]);
        T_EQ(gs[0].next, &gs[7]);
        T_EQ(gs[RUNQ_SIZE].next, &gs[7]);
        expect_rest(&q, RUNQ_SIZE / 2, RUNQ_SIZE);
    }
}

static void half_moves_the_older_half(void)
{
    struct runq q;
    for (size_t s = 0; s < sizeof starts / sizeof *starts; s++)
        for (uint32_t n = 0; n <= RUNQ_SIZE; n++) {
            fill(&q, starts[s], n);
            struct g *to[RUNQ_SIZE / 2 + 1] = {0};
            T_EQ(mag__runq_half_into_owner(&q, to), n / 2);
            for (uint32_t i = 0; i < n / 2; i++)
                T_EQ(to[i], &gs[i]);
            T_EQ(to[n / 2], NULL);
            expect_rest(&q, n / 2, n);
        }
}

static void many_come_in_their_order(void)
{
    struct runq q;
    for (size_t s = 0; s < sizeof starts / sizeof *starts; s++)
        for (uint32_t n = 0; n <= RUNQ_SIZE / 2; n++) {
            struct g *from[RUNQ_SIZE / 2 + 1];
            for (uint32_t i = 0; i < n; i++)
                from[i] = &gs[RUNQ_SIZE / 2 + i];
            fill(&q, starts[s], RUNQ_SIZE / 2);
            mag__runq_put_many_owner(&q, from, n);
            expect_rest(&q, 0, RUNQ_SIZE / 2 + n);
        }
}

static void the_oldest_and_the_newest_change_places(void)
{
    struct runq q;
    for (size_t s = 0; s < sizeof starts / sizeof *starts; s++)
        for (uint32_t n = 1; n <= RUNQ_SIZE; n++) {
            fill(&q, starts[s], n);
            T_EQ(mag__runq_oldest_owner(&q), &gs[0]);
            mag__runq_turn_owner(&q, &gs[n]);
            expect_rest(&q, 1, n + 1);
            T_EQ(mag__runq_oldest_owner(&q), NULL);
        }
}

static void spill_needs_a_full_ring(void)
{
    struct runq q;
    struct g *to[RUNQ_SPILL];
    for (uint32_t n = 0; n < RUNQ_SIZE; n++) {
        fill(&q, UINT32_MAX, n);
        T_EQ(mag__runq_spill_owner(&q, &gs[n]).n, 0);
        T_EQ(mag__runq_spill_into_owner(&q, &gs[n], to), 0);
        expect_rest(&q, 0, n);
    }
}

/* A thief came between the put that failed and the spill: there is room, and the new one goes in behind what is left. */
static void a_thief_makes_room_before_the_spill(void)
{
    struct runq q, thief;
    struct g *to[RUNQ_SPILL];
    for (size_t s = 0; s < sizeof starts / sizeof *starts; s++) {
        uint32_t n = 0;
        fill(&q, starts[s], RUNQ_SIZE);
        mag__runq_init(&thief, starts[s]);
        T_FALSE(mag__runq_put_owner(&q, &gs[RUNQ_SIZE]));
        T_EQ(mag__runq_steal(&thief, &q, 1, &n), &gs[RUNQ_SIZE / 2 - 1]);
        T_EQ(n, RUNQ_SIZE / 2);
        T_EQ(mag__runq_spill_into_owner(&q, &gs[RUNQ_SIZE], to), 0);
        T_TRUE(mag__runq_put_owner(&q, &gs[RUNQ_SIZE]));
        expect_rest(&thief, 0, RUNQ_SIZE / 2 - 1);
        expect_rest(&q, RUNQ_SIZE / 2, RUNQ_SIZE + 1);
    }
}

static void drain_takes_runnext_and_the_ring(void)
{
    struct runq q;
    fill(&q, UINT32_MAX, RUNQ_SIZE);
    mag__runq_next_swap_owner(&q, &gs[RUNQ_SIZE]);
    struct g_list list = mag__runq_drain_owner(&q);
    T_EQ(list.n, RUNQ_SIZE + 1);
    struct g *g = list.first;
    T_EQ(g, &gs[RUNQ_SIZE]);
    for (uint32_t i = 0; i < RUNQ_SIZE; i++) {
        g = g->next;
        T_EQ(g, &gs[i]);
    }
    T_EQ(g, list.last);
    T_EQ(g->next, NULL);
    T_TRUE(mag__runq_is_empty(&q));
    T_EQ(mag__runq_drain_owner(&q).n, 0);
}

static void runnext_is_taken_once(void)
{
    struct runq q;
    fill(&q, 0, 0);
    T_EQ(mag__runq_next_take_owner(&q), NULL);
    T_EQ(mag__runq_next_swap_owner(&q, &gs[0]), NULL);
    T_FALSE(mag__runq_is_empty(&q));
    T_EQ(mag__runq_length(&q), 0);
    T_EQ(mag__runq_next_swap_owner(&q, &gs[1]), &gs[0]);
    T_EQ(mag__runq_next_peek(&q), &gs[1]);
    T_FALSE(mag__runq_next_steal(&q, &gs[0])); /* it is another by now */
    T_TRUE(mag__runq_next_steal(&q, &gs[1]));
    T_FALSE(mag__runq_next_steal(&q, &gs[1]));
    T_EQ(mag__runq_next_take_owner(&q), NULL);
    T_TRUE(mag__runq_is_empty(&q));
}

/* ---- with threads ---- */

static struct runq queue, loot[THIEVES];
static struct g *many;
static a32 *runs; /* of each of many */
static uint32_t nmany;
static a32 total, over;

static void run_g(struct g *g)
{
    uint32_t i = (uint32_t)(g - many);
    T_LT(i, nmany);
    T_EQ(g->arg, &many[nmany - i]); /* plain: written by the owner before it put g into the ring */
    T_EQ(at_32_add_rlx(&runs[i], 1), 0);
    at_32_add_rlx(&total, 1);
}

static void run_all_of(struct runq *q)
{
    struct g *g;
    while ((g = mag__runq_get_owner(q)) != NULL)
        run_g(g);
}

/* Steals from the owner, from its runnext and from the other thieves, but only when it has nothing itself. */
static void *thief(void *arg)
{
    struct runq *mine = arg;
    uint64_t random = t_state.seed + (uint64_t)(mine - loot);
    while (at_32_load_rlx(&total) < nmany) {
        uint32_t n, r = t_random_r(&random);
        struct runq *victim = r % 4 < THIEVES ? &loot[r % 4] : &queue;
        struct g *g;
        if (mag__runq_length(mine) != 0) {
            if (r & 1u << 20) /* otherwise the others may have it */
                run_all_of(mine);
        } else if (victim != mine && (g = mag__runq_steal(mine, victim, 1, &n)) != NULL) {
            T_GE(n, 1);
            T_LE(n, RUNQ_SIZE / 2);
            run_g(g);
        } else if ((g = mag__runq_next_peek(&queue)) != NULL && mag__runq_next_steal(&queue, g)) {
            run_g(g);
        }
    }
    return NULL;
}

static void *prober(void *arg)
{
    (void)arg;
    while (at_32_load_rlx(&over) == 0) {
        T_LE(mag__runq_length(&queue), RUNQ_SIZE);
        T_FALSE(at_32_load_rlx(&total) > nmany);
    }
    return NULL;
}

static uint32_t run_list(struct g_list list)
{
    for (struct g *next; list.first != NULL; list.first = next) {
        next = list.first->next;
        run_g(list.first);
    }
    return list.n;
}

static void halve(void)
{
    struct g *to[RUNQ_SIZE / 2];
    for (uint32_t i = 0, n = mag__runq_half_into_owner(&queue, to); i < n; i++)
        run_g(to[i]);
}

static uint32_t spill(struct g *g)
{
    struct g *to[RUNQ_SPILL];
    if ((g - many) % 2 == 0)
        return run_list(mag__runq_spill_owner(&queue, g));
    uint32_t n = mag__runq_spill_into_owner(&queue, g, to);
    for (uint32_t i = 0; i < n; i++)
        run_g(to[i]);
    T_TRUE(n == 0 || to[n - 1] == g);
    return n;
}

static void put_or_spill(struct g *g)
{
    while (!mag__runq_put_owner(&queue, g))
        if (spill(g) != 0)
            return;
}

static void owner_works(void)
{
    uint64_t random = t_state.seed;
    for (uint32_t made = 0; made < nmany;) {
        uint32_t burst = t_random_r(&random) % (RUNQ_SIZE * 3 / 2);
        for (; burst > 0 && made < nmany; burst--, made++) {
            many[made].arg = &many[nmany - made];
            struct g *kicked = &many[made];
            if (made % 3 == 0)
                kicked = mag__runq_next_swap_owner(&queue, &many[made]);
            if (kicked != NULL)
                put_or_spill(kicked);
        }
        if (t_random_r(&random) % 4 == 0)
            halve();
        struct g *g;
        for (uint32_t n = t_random_r(&random) % RUNQ_SIZE; n > 0 && (g = mag__runq_get_owner(&queue)) != NULL; n--)
            run_g(g);
        if ((made & 1) != 0 && (g = mag__runq_next_take_owner(&queue)) != NULL)
            run_g(g);
    }
    while (at_32_load_rlx(&total) < nmany) {
        run_all_of(&queue);
        struct g *g = mag__runq_next_take_owner(&queue);
        if (g != NULL)
            run_g(g);
    }
}

static void hammer(uint32_t start)
{
    pthread_t threads[THIEVES], watch;
    memset(runs, 0, nmany * sizeof *runs);
    at_32_store_rlx(&total, 0);
    at_32_store_rlx(&over, 0);
    mag__runq_init(&queue, start);
    for (int i = 0; i < THIEVES; i++)
        mag__runq_init(&loot[i], start + nmany / 8 * (uint32_t)i);
    for (int i = 0; i < THIEVES; i++)
        T_EQ(pthread_create(&threads[i], NULL, thief, &loot[i]), 0);
    T_EQ(pthread_create(&watch, NULL, prober, NULL), 0);
    owner_works();
    for (int i = 0; i < THIEVES; i++)
        pthread_join(threads[i], NULL);
    at_32_store_rlx(&over, 1);
    pthread_join(watch, NULL);
    T_EQ(at_32_load_rlx(&total), nmany);
    for (uint32_t i = 0; i < nmany; i++)
        T_EQ(at_32_load_rlx(&runs[i]), 1);
    T_TRUE(mag__runq_is_empty(&queue));
}

/* The indices wrap while all are at work. */
static void owner_and_three_thieves_run_each_once(void)
{
    nmany = (uint32_t)t_scale(MANY);
    many = calloc(nmany, sizeof *many);
    runs = calloc(nmany, sizeof *runs);
    T_TRUE(many != NULL && runs != NULL);
    for (uint32_t round = 1; round <= 5; round++)
        hammer(UINT32_MAX - nmany / 10 * round);
    free(many);
    free(runs);
}

static void *expects_company(void *arg)
{
    a32 *looks = arg;
    for (; at_32_load_rlx(&over) == 0; at_32_bump_owner(looks, 1))
        T_FALSE(mag__runq_is_empty(&queue));
    return NULL;
}

/* Two Gs change places between runnext, the ring and the owner's hand; at least one is always in the queue. */
static void probe_during_a_kick_never_says_empty(void)
{
    pthread_t watch;
    a32 looks = {0};
    long rounds = t_scale(10 * MANY);
    mag__runq_init(&queue, UINT32_MAX - 1000);
    at_32_store_rlx(&over, 0);
    struct g *in = &gs[0], *out = &gs[1];
    mag__runq_next_swap_owner(&queue, in);
    T_EQ(pthread_create(&watch, NULL, expects_company, &looks), 0);
    while (at_32_load_rlx(&looks) == 0)
        sched_yield(); /* on a busy machine all would be over before it begins */
    for (long i = 0; i < rounds; i++) {
        T_EQ(mag__runq_next_swap_owner(&queue, out), in);
        T_TRUE(mag__runq_put_owner(&queue, in));
        T_EQ(mag__runq_next_take_owner(&queue), out);
        T_EQ(mag__runq_next_swap_owner(&queue, out), NULL);
        T_EQ(mag__runq_get_owner(&queue), in);
        struct g *was_in = in;
        in = out;
        out = was_in;
    }
    at_32_store_rlx(&over, 1);
    pthread_join(watch, NULL);
}

int main(int argc, char **argv)
{
    t_init(argc, argv);
    T_RUN(what_goes_in_comes_out_in_order);
    T_RUN(indices_wrap);
    T_RUN(alone_is_the_same);
    T_RUN(thief_gets_half_rounded_up);
    T_RUN(thief_leaves_small_queues);
    T_RUN(spill_moves_the_older_half_and_the_new_one);
    T_RUN(spill_into_an_array_is_the_same);
    T_RUN(half_moves_the_older_half);
    T_RUN(many_come_in_their_order);
    T_RUN(the_oldest_and_the_newest_change_places);
    T_RUN(spill_needs_a_full_ring);
    T_RUN(a_thief_makes_room_before_the_spill);
    T_RUN(drain_takes_runnext_and_the_ring);
    T_RUN(runnext_is_taken_once);
    T_RUN(owner_and_three_thieves_run_each_once);
    T_RUN(probe_during_a_kick_never_says_empty);
    return t_done();
}
