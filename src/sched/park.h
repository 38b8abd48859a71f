/* SPDX-License-Identifier: MIT */
/* park.h: leaving a stack, inline: what waits (yield, wait groups, channels) holds the switch in its own frame, so that one
 * return, and one prediction, lies between it and user code. See park.c. */
#ifndef MAG_SCHED_PARK_H
#define MAG_SCHED_PARK_H

#include "arch/switch.h"
#include "sched/find.h"
#include "sched/sanitize.h"

/* What the C++ runtime keeps per thread about exceptions in flight belongs to the goroutine. */
struct cxa_globals {
    void *caught;
    uintptr_t uncaught;
};

void mag__park_save_cxa(struct cxa_globals *saved);
void mag__park_load_cxa(struct cxa_globals *saved);

/* Leaves self for next. Returns when somebody switches back, with the M it is on then. */
static ALWAYS_INLINE struct m *switch_to(struct m *m, struct g *self, struct g *next, g_after after, bool ends)
{
    struct cxa_globals saved;
    if (unlikely(mag__rt.cxa_globals != NULL)) /* or never, while a runtime runs */
        mag__park_save_cxa(&saved);
    struct control control;
    if (!ends) /* it does not come back */
        mag__arch_control_save(&control);
    at_ptr_store_rlx(&m->curg, next);
    san_before(self, next, ends);
    struct switched s = mag__arch_switch(self, next, m, after);
    san_after(self);
    if (!ends)
        mag__arch_control_load(&control);
    if (unlikely(mag__rt.cxa_globals != NULL))
        mag__park_load_cxa(&saved);
    s.after(s.m, s.prev);
    return s.m;
}

/* Gives g its stack and first frame. False: none can be had, g waits for one. */
bool mag__park_bind(struct p *p, struct g *g);

/* It has run before, belongs to no thread, and is not known to compute: nothing else to look at. */
static ALWAYS_INLINE bool g_is_plain(const struct g *g)
{
    return (g->flags & (G_STARTED | G_LOCKED | G_HOG)) == G_STARTED;
}

/* Makes g ready to be switched to. */
static inline bool make_ready(struct p *p, struct g *g)
{
    return likely((g->flags & G_STARTED) != 0) || mag__park_bind(p, g);
}

static inline void running(struct p *p, struct g *g)
{
    g_set_state(g, G_RUNNING);
    COUNT_OWNER(&p->count, switches);
}

/* A goroutine and a thread that belong to each other meet by way of g0. */
static inline bool must_pass_g0(struct m *m, struct g *g)
{
    if (likely((g->flags & (G_LOCKED | G_HOG)) == 0))
        return false;
    if ((g->flags & G_HOG) != 0)
        mag__retake_mark(m->p, g);
    if ((g->flags & G_LOCKED) == 0)
        return false;
    m->deferred = g;
    return true;
}

/* The next G if this P knows one that can run; g0 otherwise. locked: for one that leaves with a lock held, which its after-step gives
 * back. Then there are no turns, as timers may want it: g0 takes them. */
static ALWAYS_INLINE struct g *next_or_g0(struct m *m, struct p *p, bool locked)
{
    struct g *g;
    if (unlikely(m_locked(m) != NULL))
        return &m->g0;
    while (!(locked && unlikely(p->turn_in == 1)) && (g = mag__find_local(p)) != NULL) {
        if (unlikely(!g_is_plain(g)) && must_pass_g0(m, g))
            break;
        if (likely(make_ready(p, g))) {
            running(p, g);
            return g;
        }
    }
    return &m->g0;
}

/* The goroutine that runs on m waits. `after` runs when it is off its stack and makes it visible to its waker. Returns
 * the M it woke up on, in the runtime. */
static ALWAYS_INLINE struct m *park(struct m *m, enum g_reason why, g_after after, void *after_arg, bool locked)
{
    struct g *g = m_curg(m);
    struct p *p = m->p;
    g->after_arg = after_arg;
    at_64_store_rlx(&g->since, at_64_load_rlx(&mag__rt.clock));
    g_set_waiting(g, why);
    COUNT_OWNER(&p->count, parks);
    return switch_to(m, g, next_or_g0(m, p, locked), after, false);
}
static ALWAYS_INLINE struct m *mag__park(struct m *m, enum g_reason why, g_after after, void *after_arg)
{
    return park(m, why, after, after_arg, false);
}
static ALWAYS_INLINE struct m *mag__park_locked(struct m *m, enum g_reason why, g_after after, void *after_arg)
{
    return park(m, why, after, after_arg, true);
}

#endif
