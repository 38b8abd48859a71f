/* SPDX-License-Identifier: MIT */
/* find.h: the first steps of the search, inline: every switch goes through them. See find.c. */
#ifndef MAG_SCHED_FIND_H
#define MAG_SCHED_FIND_H

#include "sched/sched.h"

/* One G from the global queue, its turn having come; or NULL. */
struct g *mag__find_one_global(struct p *p);
/* Another goroutine goes before runnext, if there is one: nobody was told of it, and the other may compute for long. Who has
 * nothing to do, or soon has nothing to do, shall find it. */
void mag__find_passed_over(struct p *p);
/* This P's share of the global queue: the first of it, the others are in the ring, which was empty; or NULL. */
struct g *mag__find_global(struct p *p);

static inline struct g *mag__find_runnext(struct p *p) { return mag__runq_next_take_owner(&p->runq); }

/* The newest that was pushed aside, or the oldest of the ring. */
static ALWAYS_INLINE struct g *mag__find_queued(struct p *p)
{
    if (lifo_may_have(&p->lifo) && (p->lifo_streak < LIFO_STREAK || runq_ring_is_empty(&p->runq))) {
        struct g *g = mag__lifo_pop_owner(&p->lifo, at_32_load_rlx(&p->runq.alone) != 0);
        if (likely(g != NULL)) {
            p->lifo_streak++;
            return g;
        }
    }
    p->lifo_streak = 0;
    return mag__runq_get_owner(&p->runq);
}

/* Turns that do not come with every slice: the timers', the global queue's. */
struct g *mag__find_in_turn(struct p *p);

/* Not the next one by runnext: that shares its predecessor's slice. */
static ALWAYS_INLINE void find_begin_slice(struct p *p)
{
    at_32_store_rlx(&p->next_streak, 0);
    at_32_bump_owner(&p->tick, 1);
}

/* The next G by what this P knows itself, or NULL. */
static ALWAYS_INLINE struct g *mag__find_local(struct p *p)
{
    struct g *g;
    if (unlikely(at_32_load_rlx(&p->attention) != 0))
        return NULL;
    uint32_t streak = at_32_load_rlx(&p->next_streak);
    if (streak < 2 * NEXT_STREAK && (g = mag__find_runnext(p)) != NULL) {
        at_32_store_rlx(&p->next_streak, streak + 2);
        return g;
    }
    find_begin_slice(p);
    if (likely(--p->turn_in != 0) || (g = mag__find_in_turn(p)) == NULL)
        g = mag__find_queued(p);
    if (unlikely(g == NULL))
        return mag__find_runnext(p);
    if (unlikely(streak >= 2 * NEXT_STREAK))
        mag__find_passed_over(p);
    return g;
}

/* The same, then the global queue. */
static ALWAYS_INLINE struct g *mag__find_near(struct p *p)
{
    struct g *g = mag__find_local(p);
    if (g == NULL)
        hostile_point();
    if (g != NULL || unlikely(at_32_load_rlx(&p->attention) != 0 || !runq_ring_is_empty(&p->runq)))
        return g; /* attention was wanted a moment ago: the ring has not been looked at */
    if (unlikely(mag__timer_first(&p->timers) != TIMER_NEVER) && mag__clock_run_own(p))
        return (g = mag__find_runnext(p)) != NULL ? g : mag__find_queued(p);
    return mag__find_global(p);
}

#endif
