/* SPDX-License-Identifier: MIT */
/* wake.c: making goroutines runnable, and who is told.
 *
 * Waking is the expensive thing: a futex wake costs the waker 7 to 10 us and the sleeper 20 to 40, a ring operation 3 ns.
 * Rules       a G in the ring or the global queue wakes a searcher if nobody searches and a P is idle (core/idle.c)
 *             a G alone in runnext wakes nobody: its P's owner is about to run it. `rescued` corrects that guess: when a
 *             thief or sysmon had to rescue such a G, the next RESCUE_MEMORY ones wake a searcher as well. And the first one
 *             after sysmon has come to look seldom wakes sysmon, which then looks often for a while
 *             neither do a few Gs whose timers fired, by the same guess, which sysmon corrects when it finds one waiting
 *             one searcher at a time; it passes the baton when it finds more work than it takes
 */
#include "base/panic.h"
#include "sched/sched.h"

#include <errno.h>

enum { FEW = 16, FLAT = 1000 };

void mag__wake_searcher(struct counters *count)
{
    while (mag__idle_wake_wanted(&mag__rt.idle)) {
        int i = mag__idle_take_any(&mag__rt.idle, 0);
        if (i >= 0) {
            if (mag__m_run(p_at((uint32_t)i), true) == 0) {
                if (count != NULL)
                    COUNT_OWNER(count, wakes);
                else
                    COUNT_ANY(&mag__rt.count, wakes);
                return;
            }
            mag__idle_put(&mag__rt.idle, (unsigned)i, true);
            return; /* no thread to be had: sysmon tries again */
        }
        /* somebody took the last idle P meanwhile. While this thread was counted as searching others relied on it. */
        mag__idle_search_end(&mag__rt.idle);
        if (!mag__find_any_work())
            return;
    }
    if (unlikely(at_32_load_rlx(&mag__rt.announced) != 0)) /* BLK1 */
        mag__retake_announced();
}

static inline void told(struct p *p)
{
    if (rt_procs() > 1)
        mag__wake_searcher(&p->count);
}

/* A G is alone in runnext: is somebody told all the same? */
static inline void told_of_next(struct p *p)
{
    uint32_t rescued = at_32_load_rlx(&p->rescued);
    if (likely(rescued == 0))
        return;
    if ((rescued & RESCUE_ASK) != 0)
        rescued = mag__sysmon_asked(p);
    if (rescued != 0) {
        at_32_store_rlx(&p->rescued, rescued - 1);
        told(p);
    }
}

void mag__wake_batch(struct p *p, uint32_t n)
{
    uint32_t rescued = at_32_load_rlx(&p->rescued) & ~RESCUE_ASK;
    if (rescued != 0)
        at_32_store_rlx(&p->rescued, rescued - 1);
    if (n >= FEW || rescued != 0)
        told(p);
}

COLD void mag__wake_spill(struct p *p, struct g *g)
{
    struct globq *q = &mag__rt.globq;
    struct crate *c = mag__globq_new_crate(q);
    do {
        struct g_list list = {0};
        if (c == NULL) /* no memory: as a chain */
            mag__globq_put_list(q, list = mag__runq_spill_owner(&p->runq, g));
        else if ((c->n = list.n = mag__runq_spill_into_owner(&p->runq, g, c->at)) != 0)
            mag__globq_put_crate(q, c);
        if (list.n != 0) {
            COUNT_OWNER(&p->count, spills);
            return;
        }
    } while (!mag__runq_put_owner(&p->runq, g));
    if (c != NULL)
        mag__globq_return_crate(q, c);
}

void mag__wake_quietly(struct p *p, struct g *g)
{
    g_set_runnable(g);
    if (unlikely(!mag__runq_put_owner(&p->runq, g)))
        mag__wake_spill(p, g);
}

void mag__wake_tail(struct p *p, struct g *g)
{
    mag__wake_quietly(p, g);
    told(p);
}

static void age(struct p *p)
{
    struct g *old[LIFO_SIZE];
    uint32_t n = mag__lifo_take_old_owner(&p->lifo, old, LIFO_SIZE);
    for (uint32_t i = 0; i < n; i++)
        mag__wake_quietly(p, old[i]);
}

void mag__wake_old(struct p *p)
{
    age(p);
    told(p);
}

/* So many are no tree's branches: they come into the ring, in their order, and so do the next ones. */
static COLD void flatten(struct p *p, struct g *kicked)
{
    p->flat = FLAT;
    age(p);
    mag__wake_quietly(p, kicked);
}

void mag__wake_spawned(struct p *p, struct g *g)
{
    g_set_state(g, G_RUNNABLE);
    hostile_point();
    if (p->flat != 0 || hostile_chance(4)) {
        p->flat -= p->flat != 0;
        if (unlikely(!mag__runq_put_owner(&p->runq, g)))
            mag__wake_spill(p, g);
        told(p);
        return;
    }
    struct g *kicked = mag__runq_next_swap_owner(&p->runq, g);
    if (kicked != NULL) {
        if (unlikely(!mag__lifo_push_owner(&p->lifo, kicked)))
            flatten(p, kicked);
        told(p);
    } else {
        told_of_next(p);
    }
}

void mag__wake_next(struct p *p, struct g *g)
{
    if (hostile_chance(4)) {
        mag__wake_tail(p, g);
        return;
    }
    g_set_runnable(g);
    hostile_point();
    struct g *kicked = mag__runq_next_swap_owner(&p->runq, g);
    if (kicked != NULL) {
        if (unlikely(!mag__runq_put_owner(&p->runq, kicked)))
            mag__wake_spill(p, kicked);
        told(p);
    } else {
        told_of_next(p);
    }
}

void mag__wake_global_list(struct g_list list)
{
    mag__globq_put_list(&mag__rt.globq, list);
    mag__wake_searcher(NULL);
}

/* As many Ps as there are goroutines look there before their next slice; those that do not come within a slice are retaken. */
void mag__wake_urgent(struct g_list list)
{
    uint32_t procs = rt_procs(), n = list.n < procs ? list.n : procs;
    uint32_t first = at_32_add_rlx(&mag__rt.urgent_turn, n); /* any P will do, but not always the same one */
    at_64_store_rlx(&mag__rt.front_at, (uint64_t)mag__os_now());
    mag__globq_put_front(&mag__rt.globq, list);
    for (uint32_t i = 0; i < n; i++)
        at_32_or_rlx(&p_at((first + i) % procs)->attention, ATTEND_GLOBAL);
    mag__wake_searcher(NULL);
}

void mag__wake_global(struct g *g)
{
    g_set_runnable(g);
    g->next = NULL;
    mag__wake_global_list((struct g_list){.first = g, .last = g, .n = 1});
}

void mag__wake_any(struct m *m, struct g *g)
{
    if (likely(m != NULL && m->p != NULL))
        mag__wake_next(m->p, g);
    else
        mag__wake_global(g);
}
