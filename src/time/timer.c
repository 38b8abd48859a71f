/* SPDX-License-Identifier: MIT */
/* timer.c: a 4-ary heap of deadlines, one per P.
 *
 * What        an array of (when, timer) in which every entry is due no earlier than its parent, the entry (i - 1) / 4. Four
 *             children lie in one cache line: half the depth of a binary heap, and moving down reads whole lines.
 * Deleting    most deadlines never arrive. Deleting one only empties its entry, in constant time; the timer's memory is
 *             free at once, and the entry goes when it comes to the top, or with the others when a quarter is dead.
 * Invariants  heap[t->at].t == t for every pending t; first == heap[0].when, or TIMER_NEVER
 *             a timer fires under the lock, so that delete waits for a firing that is under way
 * Who         anyone: the P's owner as a rule, others when it is busy or idle.
 */
#include "time/timer.h"
#include "base/panic.h"
#include "os/os.h"

#include <string.h>

enum { ROOM_FIRST = 1024 };

void mag__timer_init(struct timers *ts) { at_64_store_rlx(&ts->first, TIMER_NEVER); }

void mag__timer_fini(struct timers *ts)
{
    mag__os_unmap(ts->heap, ts->room * sizeof *ts->heap);
    ts->heap = NULL;
    ts->n = ts->room = ts->dead = 0;
    at_32_store_rlx(&ts->pending, 0);
    at_64_store_rlx(&ts->first, TIMER_NEVER);
}

/* ---- the heap ---- */

static void place(struct timers *ts, uint32_t i, struct timer_entry e)
{
    ts->heap[i] = e;
    if (e.t != NULL)
        e.t->at = i;
}

static void up(struct timers *ts, uint32_t i, struct timer_entry e)
{
    while (i > 0 && ts->heap[(i - 1) / 4].when > e.when) {
        place(ts, i, ts->heap[(i - 1) / 4]);
        i = (i - 1) / 4;
    }
    place(ts, i, e);
}

static void down(struct timers *ts, uint32_t i, struct timer_entry e)
{
    for (;;) {
        uint32_t child = 4 * i + 1, least = child;
        if (child >= ts->n)
            break;
        for (uint32_t k = child + 1; k < child + 4 && k < ts->n; k++)
            if (ts->heap[k].when < ts->heap[least].when)
                least = k;
        if (ts->heap[least].when >= e.when)
            break;
        place(ts, i, ts->heap[least]);
        i = least;
    }
    place(ts, i, e);
}

static void pop(struct timers *ts)
{
    struct timer_entry last = ts->heap[--ts->n];
    if (ts->n != 0)
        down(ts, 0, last);
}

static void drop_dead_top(struct timers *ts)
{
    while (ts->n != 0 && ts->heap[0].t == NULL) {
        ts->dead--;
        pop(ts);
    }
}

static void sweep(struct timers *ts)
{
    uint32_t keep = 0;
    for (uint32_t i = 0; i < ts->n; i++)
        if (ts->heap[i].t != NULL)
            ts->heap[keep++] = ts->heap[i];
    ts->n = keep;
    ts->dead = 0;
    for (uint32_t i = 0; i < keep; i++)
        ts->heap[i].t->at = i;
    for (uint32_t i = keep; i-- > 0;)
        if (4 * i + 1 < keep)
            down(ts, i, ts->heap[i]);
}

static void publish(struct timers *ts)
{
    at_64_store_rlx(&ts->first, (uint64_t)(ts->n == 0 ? TIMER_NEVER : ts->heap[0].when));
    at_32_store_rlx(&ts->pending, ts->n - ts->dead);
}

static bool make_room(struct timers *ts)
{
    if (ts->n < ts->room)
        return true;
    uint32_t room = ts->room == 0 ? ROOM_FIRST : ts->room * 2;
    struct timer_entry *heap = mag__os_reserve(room * sizeof *heap, 0);
    if (heap == NULL)
        return false;
    if (ts->n != 0)
        memcpy(heap, ts->heap, ts->n * sizeof *heap);
    mag__os_unmap(ts->heap, ts->room * sizeof *ts->heap);
    ts->heap = heap;
    ts->room = room;
    return true;
}

/* ---- the calls ---- */

bool mag__timer_add(struct timers *ts, struct timer *t, int64_t when, int64_t period)
{
    mag__spin_take(&ts->lock);
    bool room = make_room(ts);
    if (room) {
        t->when = when;
        t->period = period;
        t->home = ts;
        up(ts, ts->n++, (struct timer_entry){.when = when, .t = t});
        publish(ts);
    }
    mag__spin_give(&ts->lock);
    return room;
}

bool mag__timer_delete(struct timer *t)
{
    struct timers *ts = t->home;
    if (ts == NULL)
        return false;
    mag__spin_take(&ts->lock);
    bool pending = t->at != TIMER_OUT;
    if (pending) {
        ts->heap[t->at].t = NULL;
        t->at = TIMER_OUT;
        ts->dead++;
        if (ts->dead > ts->n / 4 && ts->n > 64)
            sweep(ts);
        drop_dead_top(ts);
        publish(ts);
    }
    mag__spin_give(&ts->lock);
    return pending;
}

/* The next time a periodic timer is due: ticks that were missed are dropped. */
static int64_t next_tick(const struct timer *t, int64_t now)
{
    int64_t missed = (now - t->when) / t->period, next;
    if (__builtin_mul_overflow(missed + 1, t->period, &next) || __builtin_add_overflow(t->when, next, &next))
        return TIMER_NEVER;
    return next;
}

bool mag__timer_run(struct timers *ts, int64_t now, struct g **ready, uint32_t most, uint32_t *n)
{
    *n = 0;
    if (mag__timer_first(ts) > now)
        return false;
    mag__spin_take(&ts->lock);
    drop_dead_top(ts);
    while (*n < most && ts->n != 0 && ts->heap[0].when <= now) {
        struct timer *t = ts->heap[0].t;
        if (t->period > 0) {
            t->when = next_tick(t, now);
            down(ts, 0, (struct timer_entry){.when = t->when, .t = t});
        } else {
            t->at = TIMER_OUT;
            pop(ts);
        }
        struct g *g = t->fire(t, now); /* the last touch */
        if (g != NULL)
            ready[(*n)++] = g;
        drop_dead_top(ts);
    }
    bool more = *n == most;
    publish(ts);
    mag__spin_give(&ts->lock);
    return more;
}
