/* SPDX-License-Identifier: MIT */
/* find.h: the first steps of the search, inline: every switch goes through them. See find.c. */
#ifndef MAG_SCHED_FIND_H
#define MAG_SCHED_FIND_H

#include "sched/sched.h"

/* One G from the global queue, its turn having come; or NULL. */
struct g *mag__find_one_global(struct p *p);
/* Another goroutine goes before runnext, of which nobody was told, and may compute for long: who has nothing to do shall find it. */
void mag__find_passed_over(struct p *p);
/* This P's share of the global queue: the first of it, the others are in the ring, which was empty; or NULL. */
struct g *mag__find_global(struct p *p);

static inline struct g *mag__find_runnext(struct p *p)
{
    struct g *g = mag__runq_next_take_owner(&p->runq);
    if (g != NULL && unlikely(at_32_load_rlx(&p->rescued) != 0))
        at_32_store_rlx(&p->rescued, at_32_load_rlx(&p->rescued) - 1); /* the owner came by itself */
    return g;
}

/* The next G by what this P knows itself, or NULL. */
static inline struct g *mag__find_local(struct p *p)
{
    struct g *g;
    if (unlikely(at_32_load_rlx(&p->attention) != 0))
        return NULL;
    if (p->next_streak < NEXT_STREAK && (g = mag__find_runnext(p)) != NULL) {
        p->next_streak++;
        return g;
    }
    bool over = p->next_streak == NEXT_STREAK;
    p->next_streak = 0;
    at_32_bump_owner(&p->tick, 1);
    if (unlikely(--p->timers_in == 0) && mag__clock_run_own(p) && (g = mag__find_runnext(p)) != NULL)
        return g;
    if (likely(--p->global_in != 0) || (g = mag__find_one_global(p)) == NULL)
        g = mag__runq_get_owner(&p->runq);
    if (g == NULL)
        return mag__find_runnext(p);
    if (over && unlikely(mag__idle_some(&mag__rt.idle) || at_32_load_rlx(&mag__rt.idle.searching) != 0))
        mag__find_passed_over(p);
    return g;
}

/* The same, then the global queue. */
static inline struct g *mag__find_near(struct p *p)
{
    struct g *g = mag__find_local(p);
    if (g != NULL || unlikely(at_32_load_rlx(&p->attention) != 0))
        return g;
    if (unlikely(mag__timer_first(&p->timers) != TIMER_NEVER) && mag__clock_run_own(p))
        return (g = mag__find_runnext(p)) != NULL ? g : mag__runq_get_owner(&p->runq);
    return mag__find_global(p);
}

#endif
