/* SPDX-License-Identifier: MIT */
/* bugs_queue.c: bugs that others had in their run queues, each under its name, against ours.
 *
 * The queue is compiled into this file with a hook at its hostile points: a thief, or the owner, stands still between reading the
 * slots and moving the head, and whatever the test wants happens meanwhile. No luck is needed.
 */
#include "test.h"

#include "os/hostile.h"
#undef hostile_point
static void at_the_point(void);
#define hostile_point() at_the_point()
#include "core/runq.h"
#include "core/runq.c"

#include <pthread.h>

static void (*meanwhile)(void); /* happens once, at the next hostile point of this thread */
static __thread bool stands_still;

static void at_the_point(void)
{
    void (*now)(void) = meanwhile;
    if (!stands_still || now == NULL)
        return;
    meanwhile = NULL;
    now();
}

/* ---- goroutines that count how often they were taken ---- */

enum { MOST = 1 << 16 };

static struct g gs[MOST];
static long taken[MOST];

static struct runq q, to, other;

static void begin(uint32_t start)
{
    mag__runq_init(&q, start);
    mag__runq_init(&to, start + 7);
    mag__runq_init(&other, ~start);
    memset(taken, 0, sizeof taken);
    meanwhile = NULL;
    stands_still = true;
}

static void take(struct g *g)
{
    T_TRUE(g >= gs && g < gs + MOST);
    T_EQ(__atomic_add_fetch(&taken[g - gs], 1, __ATOMIC_RELAXED), 1);
}

static void put(struct runq *into, uint32_t i) { T_TRUE(mag__runq_put_owner(into, &gs[i])); }

static void take_list(struct g_list list)
{
    uint32_t n = 0;
    for (struct g *g = list.first, *next; g != NULL; g = next, n++) {
        next = g->next;
        take(g);
    }
    T_EQ(n, list.n);
}

static void take_rest(struct runq *from) { take_list(mag__runq_drain_owner(from)); }

static void all_taken_once(uint32_t n)
{
    for (uint32_t i = 0; i < MOST; i++)
        T_EQ(taken[i], i < n);
    T_TRUE(mag__runq_is_empty(&q) && mag__runq_is_empty(&to) && mag__runq_is_empty(&other));
}

static uint32_t steal(struct runq *into, struct runq *from)
{
    uint32_t n = 0;
    struct g *g = mag__runq_steal(into, from, 1, &n);
    if (g == NULL)
        return 0;
    take(g);
    T_EQ(mag__runq_length(into), n - 1);
    take_rest(into);
    return n;
}

static const uint32_t starts[] = {0, UINT32_MAX, UINT32_MAX - RUNQ_SIZE, UINT32_MAX - 70000, 0x7ffffff0};

/* ---- tokio_5041 ----
 * A thief stood still while so many came and went that the 16-bit head was where he had seen it: his cas succeeded, and he took
 * what was not there. Here the indices have 32 bits, and 2^16 rounds later he must notice. */

static uint32_t turns, next_g;

static void came_and_went(void)
{
    stands_still = false;
    uint32_t have = mag__runq_length(&q);
    for (uint32_t i = 0; i < have; i++)
        take(mag__runq_get_owner(&q));
    for (uint32_t i = have; i < turns; i++) { /* who comes and goes is not counted: there are not so many */
        T_TRUE(mag__runq_put_owner(&q, &gs[MOST - 1]));
        T_EQ(mag__runq_get_owner(&q), &gs[MOST - 1]);
    }
    put(&q, next_g++);
    stands_still = true;
}

static void tokio_5041_index_aba(void)
{
    static const uint32_t many[] = {RUNQ_SIZE, 1 << 8, 1 << 15, 1 << 16, 1 << 17, 1 << 20};
    for (size_t s = 0; s < sizeof starts / sizeof *starts; s++)
        for (size_t k = 0; k < sizeof many / sizeof *many; k++) {
            if (many[k] > (uint32_t)t_scale(1 << 20))
                continue;
            begin(starts[s]);
            turns = many[k];
            for (next_g = 0; next_g < RUNQ_SIZE; next_g++)
                put(&q, next_g);
            meanwhile = came_and_went;
            T_EQ(steal(&to, &q), 1); /* the one that is there now */
            T_EQ(meanwhile, NULL);
            all_taken_once(next_g);
        }
}

/* ---- tokio_2387 ----
 * 1 the indices had as many values as the ring has slots: full and empty looked alike, and it spilled before it was full.
 * 2 a queue that was stolen into was stolen from at the same time: slots were filled anew before their thief had read them. */

static void stolen_from_while_stolen_into(void)
{
    T_EQ(steal(&other, &to), 0);    /* what is being copied there is not there yet */
    uint32_t n = steal(&other, &q); /* and the victim has another thief */
    T_GT(n, 0);
    stands_still = false;
    while (mag__runq_put_owner(&q, &gs[next_g])) /* its owner fills every slot that came free */
        next_g++;
    stands_still = true;
}

static void tokio_2387_full_and_stolen_both_ways(void)
{
    for (size_t s = 0; s < sizeof starts / sizeof *starts; s++) {
        begin(starts[s]);
        for (uint32_t i = 0; i < RUNQ_SIZE; i++)
            put(&q, i);
        T_FALSE(mag__runq_put_owner(&q, &gs[RUNQ_SIZE])); /* full is full, and not a moment earlier */
        T_EQ(mag__runq_length(&q), RUNQ_SIZE);
        T_FALSE(mag__runq_is_empty(&q));
        next_g = RUNQ_SIZE;
        meanwhile = stolen_from_while_stolen_into;
        T_GT(steal(&to, &q), 0);
        T_EQ(meanwhile, NULL);
        take_rest(&q);
        all_taken_once(next_g);
    }
}

/* ---- stdexec_bwos_1692_1755 ----
 * Thief and owner changed blocks at the same moment, and the tasks of one block belonged to nobody. Our block change is the spill:
 * the older half leaves the ring while it is stolen from. */

static void a_thief_comes(void) { T_GT(steal(&to, &q), 0); }

static void the_owner_spills(void)
{
    struct g_list list = mag__runq_spill_owner(&q, &gs[RUNQ_SIZE]);
    T_EQ(list.n, RUNQ_SIZE / 2 + 1);
    take_list(list);
}

static void stdexec_bwos_1692_1755_spill_and_steal(void)
{
    for (size_t s = 0; s < sizeof starts / sizeof *starts; s++)
        for (int who = 0; who < 2; who++) {
            begin(starts[s]);
            for (uint32_t i = 0; i < RUNQ_SIZE; i++)
                put(&q, i);
            if (who ==
                0) { /* the owner stands still in its spill, a thief is through: there is room, nothing is spilled */
                meanwhile = a_thief_comes;
                T_EQ(mag__runq_spill_owner(&q, &gs[RUNQ_SIZE]).n, 0);
                put(&q, RUNQ_SIZE);
            } else { /* a thief stands still, the half it has read is spilled: it takes of what is left */
                meanwhile = the_owner_spills;
                T_EQ(steal(&to, &q), RUNQ_SIZE / 4 ? RUNQ_SIZE / 4 : 1);
            }
            T_EQ(meanwhile, NULL);
            take_rest(&q);
            all_taken_once(RUNQ_SIZE + 1);
        }
}

/* The same with threads and luck: an owner that is always at the brim, and thieves. */
static struct {
    int stop;
    long n;
} brim;

static void *steals(void *arg)
{
    struct runq mine;
    (void)arg;
    mag__runq_init(&mine, 0);
    while (!__atomic_load_n(&brim.stop, __ATOMIC_ACQUIRE))
        steal(&mine, &q);
    return NULL;
}

static void stdexec_bwos_1692_1755_at_the_brim(void)
{
    pthread_t t[2];
    long rounds = t_scale(20);
    for (long r = 0; r < rounds; r++) {
        begin(UINT32_MAX - RUNQ_SIZE * 3);
        stands_still = false;
        brim.stop = 0;
        for (int i = 0; i < 2; i++)
            T_EQ(pthread_create(&t[i], NULL, steals, NULL), 0);
        for (uint32_t i = 0; i < MOST; i++)
            while (!mag__runq_put_owner(&q, &gs[i])) {
                struct g_list list = mag__runq_spill_owner(&q, &gs[i]);
                if (list.n != 0) {
                    take_list(list);
                    break;
                }
            }
        __atomic_store_n(&brim.stop, 1, __ATOMIC_RELEASE);
        for (int i = 0; i < 2; i++)
            T_EQ(pthread_join(t[i], NULL), 0);
        take_rest(&q);
        all_taken_once(MOST);
    }
}

/* ---- go_43997 ----
 * Who looked whether a queue was empty read the ring, then runnext; between the two a G was kicked from runnext into the ring and
 * runnext was taken: empty, it said, and nobody came. Here two Gs change places all the time and one is always there. */

static void *probes(void *arg)
{
    long *n = arg;
    for (; !__atomic_load_n(&brim.stop, __ATOMIC_ACQUIRE); ++*n)
        T_FALSE(mag__runq_is_empty(&q));
    return NULL;
}

static void go_43997_empty_while_runnext_is_kicked(void)
{
    pthread_t t;
    long probed = 0;
    begin(UINT32_MAX - 1000);
    stands_still = false;
    brim.stop = 0;
    struct g *a = &gs[0], *b = &gs[1];
    T_EQ(mag__runq_next_swap_owner(&q, a), NULL);
    T_EQ(pthread_create(&t, NULL, probes, &probed), 0);
    for (int64_t end = t_now() + 300000000; t_now() < end;)
        for (int i = 0; i < 1000; i++) {
            T_EQ(mag__runq_next_swap_owner(&q, b), a); /* b pushes a out */
            T_TRUE(mag__runq_put_owner(&q, a));
            T_EQ(mag__runq_next_take_owner(&q), b); /* b runs: only a is there */
            T_EQ(mag__runq_next_swap_owner(&q, b), NULL);
            T_EQ(mag__runq_get_owner(&q), a);
            struct g *c = a;
            a = b;
            b = c;
        }
    __atomic_store_n(&brim.stop, 1, __ATOMIC_RELEASE);
    T_EQ(pthread_join(t, NULL), 0);
    T_GT(probed, 100);
    take_rest(&q);
    T_EQ(taken[0] + taken[1], 1);
}

/* ---- le_deque_underflow ----
 * Taking from an empty deque moved its bottom below its top; the next put was lost, or a thief read what was never written. */

static void the_last_one_is_stolen(void) { T_EQ(steal(&to, &q), 1); }

static void le_deque_underflow(void)
{
    for (size_t s = 0; s < sizeof starts / sizeof *starts; s++) {
        begin(starts[s]);
        for (int i = 0; i < 1000; i++) {
            T_EQ(mag__runq_get_owner(&q), NULL);
            T_EQ(mag__runq_next_take_owner(&q), NULL);
            T_EQ(steal(&to, &q), 0);
        }
        T_EQ(mag__runq_length(&q), 0);
        T_EQ(at_32_load_rlx(&q.head), starts[s]);
        T_EQ(at_32_load_rlx(&q.tail), starts[s]);
        put(&q, 0); /* what comes after it is all there */
        put(&q, 1);
        T_EQ(mag__runq_length(&q), 2);
        take(mag__runq_get_owner(&q));
        meanwhile = the_last_one_is_stolen; /* between the owner's look and its step */
        T_EQ(mag__runq_get_owner(&q), NULL);
        T_EQ(meanwhile, NULL);
        T_EQ(mag__runq_get_owner(&q), NULL);
        T_EQ(mag__runq_length(&q), 0);
        put(&q, 2);
        take(mag__runq_get_owner(&q));
        all_taken_once(3);
    }
}

int main(int argc, char **argv)
{
    t_init(argc, argv);
    T_RUN(tokio_5041_index_aba);
    T_RUN(tokio_2387_full_and_stolen_both_ways);
    T_RUN(stdexec_bwos_1692_1755_spill_and_steal);
    T_RUN(stdexec_bwos_1692_1755_at_the_brim);
    T_RUN(go_43997_empty_while_runnext_is_kicked);
    T_RUN(le_deque_underflow);
    return t_done();
}
