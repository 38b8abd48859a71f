/* SPDX-License-Identifier: MIT */
/* timer.c: a 4-ary heap of deadlines, one per P.
 *
 * What        an array of (when, slot) in which every entry is due no earlier than its parent, the entry (i - 1) / 4. Four
 *             children lie in one cache line: half the depth of a binary heap, and moving down reads whole lines.
 * Slots       a timer lies on a stack, in a page of its own that nobody has touched for as long as the sleeper sleeps. An entry
 *             that moves must not go there to say where it is now: a timer knows its slot, and who[slot] the timer, for as long as
 *             it pends. (With places written into the timers that was a fifth of all a million sleepers cost.)
 * Deleting    most deadlines never arrive. Deleting one only empties its slot, in constant time; the timer's memory is
 *             free at once, and the entry goes when it comes to the top, or with the others when a quarter is dead.
 * Invariants  who[t->slot] == t for every pending t; each slot below `used` is in one entry or in the free list;
 *             first == heap[0].when, or TIMER_NEVER
 *             a timer fires under the lock, so that delete waits for a firing that is under way
 * Who         anyone: the P's owner as a rule, others when it is busy or idle.
 */
#include "time/timer.h"
#include "base/panic.h"
#include "os/os.h"

#include <string.h>

enum { ROOM_FIRST = 1024, AT_ONCE = 16 };

void mag__timer_init(struct timers *ts) { at_64_store_rlx(&ts->first, TIMER_NEVER); }

/* ---- memory: the heap, so that the children of every entry begin a line, and behind it who ---- */

enum { SHIFT = 3 };

static size_t size_of(uint32_t room) { return (SHIFT + (size_t)room) * sizeof(struct timer_entry) + room * sizeof(struct timer *); }

static void unmap(struct timers *ts)
{
    if (ts->room != 0)
        mag__os_unmap(ts->heap - SHIFT, size_of(ts->room));
}

void mag__timer_fini(struct timers *ts)
{
    unmap(ts);
    ts->heap = NULL;
    ts->who = NULL;
    ts->n = ts->room = ts->dead = ts->used = ts->free = 0;
    at_32_store_rlx(&ts->pending, 0);
    at_64_store_rlx(&ts->first, TIMER_NEVER);
}

static bool make_room(struct timers *ts)
{
    if (ts->n < ts->room)
        return true;
    uint32_t room = ts->room == 0 ? ROOM_FIRST : ts->room * 2;
    struct timer_entry *heap = mag__os_reserve(size_of(room), 0);
    if (heap == NULL)
        return false;
    heap += SHIFT;
    struct timer **who = (struct timer **)(heap + room);
    if (ts->n != 0) { /* all slots are in use */
        memcpy(heap, ts->heap, ts->n * sizeof *heap);
        memcpy(who, ts->who, ts->n * sizeof *who);
    }
    unmap(ts);
    ts->heap = heap;
    ts->who = who;
    ts->room = room;
    return true;
}

/* ---- slots ---- */

/* A free slot keeps the number of the next one, plus one. */
static uint32_t slot_new(struct timers *ts, struct timer *t)
{
    uint32_t slot = ts->free == 0 ? ts->used++ : ts->free - 1;
    if (ts->free != 0)
        ts->free = (uint32_t)(uintptr_t)ts->who[slot];
    ts->who[slot] = t;
    return slot;
}

static void slot_free(struct timers *ts, uint32_t slot)
{
    ts->who[slot] = (struct timer *)(uintptr_t)ts->free;
    ts->free = slot + 1;
}

/* ---- the heap ---- */

static void up(struct timers *ts, uint32_t i, struct timer_entry e)
{
    for (; i > 0 && ts->heap[(i - 1) / 4].when > e.when; i = (i - 1) / 4)
        ts->heap[i] = ts->heap[(i - 1) / 4];
    ts->heap[i] = e;
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
        ts->heap[i] = ts->heap[least];
        i = least;
    }
    ts->heap[i] = e;
}

/* The first leaves; its slot is the caller's. */
static uint32_t pop(struct timers *ts)
{
    uint32_t slot = ts->heap[0].slot;
    struct timer_entry last = ts->heap[--ts->n];
    if (ts->n != 0)
        down(ts, 0, last);
    return slot;
}

static void drop_dead_top(struct timers *ts)
{
    while (ts->n != 0 && ts->who[ts->heap[0].slot] == NULL) {
        ts->dead--;
        slot_free(ts, pop(ts));
    }
}

static void sweep(struct timers *ts)
{
    uint32_t keep = 0;
    for (uint32_t i = 0; i < ts->n; i++) {
        if (ts->who[ts->heap[i].slot] != NULL)
            ts->heap[keep++] = ts->heap[i];
        else
            slot_free(ts, ts->heap[i].slot);
    }
    ts->n = keep;
    ts->dead = 0;
    for (uint32_t i = keep; i-- > 0;)
        if (4 * i + 1 < keep)
            down(ts, i, ts->heap[i]);
}

static void publish(struct timers *ts)
{
    at_64_store_rlx(&ts->first, (uint64_t)(ts->n == 0 ? TIMER_NEVER : ts->heap[0].when));
    at_32_store_rlx(&ts->pending, ts->n - ts->dead);
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
        t->slot = slot_new(ts, t);
        up(ts, ts->n++, (struct timer_entry){.when = when, .slot = t->slot});
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
    bool pending = t->slot != TIMER_OUT;
    if (pending) {
        ts->who[t->slot] = NULL;
        t->slot = TIMER_OUT;
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

/* Takes up to `most` that are due out of the heap. Each lies in a page that was not looked at for long: they are fetched together,
 * not one after the other. */
static uint32_t take_due(struct timers *ts, int64_t now, uint32_t *slots, uint32_t most)
{
    uint32_t n = 0;
    while (n < most && ts->n != 0 && ts->heap[0].when <= now) {
        slots[n++] = pop(ts);
        drop_dead_top(ts);
    }
    for (uint32_t i = 0; i < n; i++) {
        char *t = (char *)ts->who[slots[i]];
        __builtin_prefetch(t, 1);
        __builtin_prefetch(t - 64); /* what it is for */
    }
    return n;
}

static struct g *fire(struct timers *ts, uint32_t slot, int64_t now)
{
    struct timer *t = ts->who[slot];
    if (t->period > 0) {
        t->when = next_tick(t, now);
        up(ts, ts->n++, (struct timer_entry){.when = t->when, .slot = slot});
    } else {
        t->slot = TIMER_OUT;
        slot_free(ts, slot);
    }
    return t->fire(t, now); /* the last touch */
}

bool mag__timer_run(struct timers *ts, int64_t now, struct g **ready, uint32_t most, uint32_t *n)
{
    uint32_t slots[AT_ONCE], k;
    *n = 0;
    if (mag__timer_first(ts) > now)
        return false;
    mag__spin_take(&ts->lock);
    drop_dead_top(ts);
    while (*n < most && (k = take_due(ts, now, slots, most - *n < AT_ONCE ? most - *n : AT_ONCE)) != 0)
        for (uint32_t i = 0; i < k; i++) {
            struct g *g = fire(ts, slots[i], now);
            if (g != NULL)
                ready[(*n)++] = g;
        }
    bool more = *n == most;
    publish(ts);
    mag__spin_give(&ts->lock);
    return more;
}
