/* SPDX-License-Identifier: MIT */
/* runq.c: the run queue of one P. One producer, the owner; many thieves.
 *
 * What        a ring of RUNQ_SIZE slots between two free-running 32-bit indices, and in front of it runnext, the one G
 *             that should run before the rest because what it needs is still in the cache.
 * Invariants  0 <= tail - head <= RUNQ_SIZE; slots [head, tail) hold Gs that nobody else holds
 *             tail is written by the owner alone; head only grows, by cas, and whoever moves it owns what it passed
 *             head_seen <= head, both free-running
 * Who         *_owner: the M that holds the P. steal (as the owner of `to`), next_steal, length, is_empty: anyone.
 * Ordering    RQ1  tail release (put) -> tail acquire (steal): without this a thief could take a slot that it sees unwritten.
 *             RQ2  head cas release (steal, get, spill) -> head acquire (put, steal): without this a slot could be filled
 *                  anew while the thief that passed it is still reading it, and one G would run twice.
 *             RQ3  next xchg release (next_swap) -> next cas acquire (next_steal): without this a thief could run a G whose
 *                  fn and arg it sees unwritten.
 *             RQ4  next acquire between two loads of tail (is_empty) <- release of next and of tail (swap, take, put);
 *                  without this the second tail could be read before next, and a G kicked from next into the ring
 *                  between the two would be seen in neither.
 * Rejected    a growable Chase-Lev deque: the owner pops LIFO, which starves old Gs, and every take
 *             needs a fence.
 *             Stealing at the tail: a second cas on every put.
 *             Plain slots, as in Go: in C a thief whose cas fails has read them in a race: undefined behaviour.
 *             Reading head on every put: it is the line that thieves write; head_seen is enough until the ring looks full.
 * Alone       with one P there are no thieves, and the owner's locked instructions are for nobody: 2 ns of each. Before a
 *             second P comes to life, the owner clears `alone` (sched/p.c).
 * Inline      put and get are in runq.h: a call costs as much as they do.
 * See         tests/runq.c, tests/model/runq.c, bench/micro/runq.c
 */
#include "core/runq.h"
#include "base/panic.h"

#define MASK RUNQ_MASK

void mag__runq_init(struct runq *q, uint32_t start)
{
    at_32_store_rlx(&q->alone, 0);
    at_32_store_rlx(&q->head, start);
    at_32_store_rlx(&q->tail, start);
    q->head_seen = start;
    at_ptr_store_rlx(&q->next, NULL);
}

void mag__runq_put_many_owner(struct runq *q, struct g *const *from, uint32_t n)
{
    uint32_t t = at_32_load_rlx(&q->tail);
    q->head_seen = at_32_load_acq(&q->head); /* RQ2 */
    must(t - q->head_seen + n <= RUNQ_SIZE);
    for (uint32_t i = 0; i < n; i++)
        at_ptr_store_rlx(&q->slot[(t + i) & MASK], from[i]);
    hostile_point();
    at_32_store_rel(&q->tail, t + n); /* RQ1 RQ4 */
}

/* The n oldest from h on; false when a thief was faster. */
static bool take_into(struct runq *q, uint32_t h, uint32_t n, struct g **to)
{
    for (uint32_t i = 0; i < n; i++)
        to[i] = at_ptr_load_rlx(&q->slot[(h + i) & MASK]);
    hostile_point();
    return n != 0 && at_32_cas_rel(&q->head, &h, h + n); /* RQ2 */
}

/* The same, chained. */
static struct g_list take_older(struct runq *q, uint32_t h, uint32_t n)
{
    struct g *batch[RUNQ_SPILL];
    if (!take_into(q, h, n, batch))
        return (struct g_list){0};
    for (uint32_t i = 0; i + 1 < n; i++)
        batch[i]->next = batch[i + 1];
    batch[n - 1]->next = NULL;
    return (struct g_list){.first = batch[0], .last = batch[n - 1], .n = n};
}

uint32_t mag__runq_half_into_owner(struct runq *q, struct g **to)
{
    uint32_t h = at_32_load_rlx(&q->head);
    uint32_t n = (at_32_load_rlx(&q->tail) - h) / 2;
    return take_into(q, h, n, to) ? n : 0;
}

struct g_list mag__runq_spill_owner(struct runq *q, struct g *g)
{
    uint32_t h = at_32_load_rlx(&q->head);
    struct g_list list = {0};
    if (at_32_load_rlx(&q->tail) - h != RUNQ_SIZE)
        return list; /* thieves made room meanwhile */
    list = take_older(q, h, RUNQ_SIZE / 2);
    if (list.n == 0)
        return list;
    list.last->next = g;
    list.last = g;
    list.n++;
    g->next = NULL;
    return list;
}

uint32_t mag__runq_spill_into_owner(struct runq *q, struct g *g, struct g **to)
{
    uint32_t h = at_32_load_rlx(&q->head);
    if (at_32_load_rlx(&q->tail) - h != RUNQ_SIZE || !take_into(q, h, RUNQ_SIZE / 2, to))
        return 0;
    to[RUNQ_SIZE / 2] = g;
    return RUNQ_SPILL;
}

struct g_list mag__runq_drain_owner(struct runq *q)
{
    struct g_list list = {0};
    struct g *g;
    while ((g = mag__runq_next_take_owner(q)) != NULL || (g = mag__runq_get_owner(q)) != NULL) {
        g->next = NULL;
        if (list.last == NULL)
            list.first = g;
        else
            list.last->next = g;
        list.last = g;
        list.n++;
    }
    return list;
}

bool mag__runq_next_steal(struct runq *q, struct g *g)
{
    void *seen = g;
    return at_ptr_cas_acq(&q->next, &seen, NULL); /* RQ3 */
}

struct g *mag__runq_steal(struct runq *to, struct runq *from, uint32_t least, uint32_t *count)
{
    uint32_t t = at_32_load_rlx(&to->tail);
    to->head_seen = at_32_load_acq(&to->head); /* RQ2 */
    for (;;) {
        uint32_t h = at_32_load_acq(&from->head); /* RQ2 */
        uint32_t have = at_32_load_acq(&from->tail) - h; /* RQ1 */
        if (have > RUNQ_SIZE) /* head and tail are from different moments */
            continue;
        if (have == 0 || have < least)
            return NULL;
        uint32_t n = have - have / 2;
        for (uint32_t i = 0; i < n; i++) {
            void *g = at_ptr_load_rlx(&from->slot[(h + i) & MASK]);
            at_ptr_store_rlx(&to->slot[(t + i) & MASK], g);
        }
        hostile_point();
        if (!at_32_cas_rel(&from->head, &h, h + n)) /* RQ2 */
            continue;
        struct g *newest = at_ptr_load_rlx(&to->slot[(t + n - 1) & MASK]);
        if (n > 1)
            at_32_store_rel(&to->tail, t + n - 1); /* RQ1 */
        *count = n;
        return newest;
    }
}

uint32_t mag__runq_length(const struct runq *q)
{
    for (;;) {
        uint32_t h = at_32_load_acq(&q->head); /* RQ2 */
        uint32_t n = at_32_load_rlx(&q->tail) - h;
        if (likely(n <= RUNQ_SIZE))
            return n;
    }
}

bool mag__runq_is_empty(const struct runq *q)
{
    for (;;) {
        uint32_t h = at_32_load_acq(&q->head); /* RQ2 */
        uint32_t t = at_32_load_rlx(&q->tail);
        void *next = at_ptr_load_acq(&q->next); /* RQ3 RQ4 */
        if (t == at_32_load_rlx(&q->tail))
            return h == t && next == NULL;
    }
}
