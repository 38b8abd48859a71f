/* SPDX-License-Identifier: MIT */
/* timer.h: a 4-ary heap of deadlines, one per P. See timer.c. */
#ifndef MAG_TIME_TIMER_H
#define MAG_TIME_TIMER_H

#include "os/spin.h"

#define TIMER_NEVER INT64_MAX

struct g;
struct timer;
struct timers;

/* It is due. Called with the heap locked; may take other locks, but none under which a timer is added or deleted. Returns a
 * goroutine to be made runnable, or NULL. */
typedef struct g *(*timer_fire)(struct timer *t, int64_t now);

/* In what it is for: a waiter on a stack, a mag_timer. Its memory may go once it is not pending and delete has returned. */
struct timer {
    int64_t when, period; /* period 0: once */
    timer_fire fire;
    struct timers *home;  /* where it was added last */
    uint32_t epoch;       /* for those that may outlive a runtime: the run they were added in */
    uint32_t slot;        /* its number in home, TIMER_OUT: not pending; home's lock */
};

#define TIMER_OUT UINT32_MAX

struct timer_entry {
    int64_t when;
    uint32_t slot;
};

struct timers {
    ON_LINE struct spin lock;
    uint32_t n, room, dead;
    uint32_t used, free;      /* slots ever used; the first free one of them, plus one, 0: none */
    struct timer_entry *heap; /* n of room */
    struct timer **who;       /* whose a slot is: NULL, deleted but still in the heap; a free one says which is the next */
    ON_LINE a64 first; /* when the first is due, TIMER_NEVER: none; anyone reads */
    a32 pending;       /* how many are; anyone reads */
};

void mag__timer_init(struct timers *ts);
void mag__timer_fini(struct timers *ts);
/* False: no memory. t is not pending. */
bool mag__timer_add(struct timers *ts, struct timer *t, int64_t when, int64_t period);
/* True: it was pending and will not fire any more. False: it fired, is firing no longer, or never was added. */
bool mag__timer_delete(struct timer *t);
/* Fires what is due. Chains at most `most` goroutines through `ready` into *list; true: there may be more. */
bool mag__timer_run(struct timers *ts, int64_t now, struct g **ready, uint32_t most, uint32_t *n);

static inline int64_t mag__timer_first(const struct timers *ts) { return (int64_t)at_64_load_rlx(&ts->first); }

static inline uint32_t mag__timer_pending(const struct timers *ts) { return at_32_load_rlx(&ts->pending); }

#endif
