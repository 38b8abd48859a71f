/* SPDX-License-Identifier: MIT */
/* lifo.c: the goroutines of one P that a spawn pushed aside, the newest first.
 *
 * What        a spawn puts the new goroutine into runnext; the one that was there comes here. Who forks and joins then works
 *             down one branch of its tree at a time, on a few stacks that stay in the cache, instead of laying out all of it:
 *             of a binary tree of depth 12 about 40 goroutines have begun and not ended at once, not thousands (tests/sched.c). The
 *             oldest, at the other end, stand for the largest branches: those are stolen.
 * Invariants  0 <= bottom - top <= LIFO_SIZE, but for one more step of bottom while the owner pops
 *             slots [top, bottom) hold Gs that nobody else holds
 *             bottom is written by the owner alone; top only grows, by cas, and whoever moves it owns what it passed
 *             top_seen <= top
 * Who         *_owner: the M that holds the P. steal, length: anyone.
 * Ordering    LF1  bottom release (push, pop) -> bottom acquire (steal): without this a thief could take a slot, or run a G, that it
 *                  sees unwritten. Also when it is moved back: a thief may read that value.
 *             LF2  top cas release (steal) -> top acquire (push): without this a slot could be filled anew while the
 *                  thief that passed it is still reading it, and one G would run twice.
 *             LF3  bottom := b, fence, read top (pop) <-> read top, fence, read bottom (steal): without this the owner and a
 *                  thief could each miss that the other takes the same G.
 * Waiting     the oldest could wait for ever under a stream of new ones. So the ring has its turn after LIFO_STREAK in a row, and
 *             sysmon has those that lie here for long moved into the ring.
 * Rejected    the ring for all, with the newest taken from its tail: thieves take half of it by one cas, and an owner that goes
 *             back past what a thief has counted would run those twice.
 *             A slot for each, taken by exchange: as quick, but nobody can say without looking at all of them whether there is one.
 *             Everybody who is pushed aside, also by a goroutine made ready: those are woken in an order, and it is kept.
 * See         tests/lifo.c, tests/model/lifo.c
 */
#include "core/lifo.h"

void mag__lifo_init(struct lifo *l, uint32_t start)
{
    at_32_store_rlx(&l->top, start);
    at_32_store_rlx(&l->bottom, start);
    l->top_seen = start;
}

uint32_t mag__lifo_take_old_owner(struct lifo *l, struct g **to, uint32_t n)
{
    uint32_t t = at_32_load_rlx(&l->top), have = at_32_load_rlx(&l->bottom) - t;
    if (n > have)
        n = have;
    for (uint32_t i = 0; i < n; i++)
        to[i] = at_ptr_load_rlx(&l->slot[(t + i) & LIFO_MASK]);
    hostile_point();
    return n != 0 && at_32_cas_rlx(&l->top, &t, t + n) ? n : 0;
}

struct g *mag__lifo_steal(struct lifo *l)
{
    uint32_t t = at_32_load_rlx(&l->top);
    at_fence_seq(); /* LF3 */
    if ((int32_t)(at_32_load_acq(&l->bottom) - t) <= 0) /* LF1 */
        return NULL;
    struct g *g = at_ptr_load_rlx(&l->slot[t & LIFO_MASK]);
    hostile_point();
    return at_32_cas_rel(&l->top, &t, t + 1) ? g : NULL; /* LF2 */
}
