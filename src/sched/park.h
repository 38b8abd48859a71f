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
static ALWAYS_INLINE struct m *switch_to(struct m *m, struct g *self, struct g *next, g_after after)
{
    struct cxa_globals saved;
    if (unlikely(mag__rt.cxa_globals != NULL)) /* or never, while a runtime runs */
        mag__park_save_cxa(&saved);
    struct control control;
    mag__arch_control_save(&control);
    at_ptr_store_rlx(&m->curg, next);
    san_before(self, next, false);
    struct switched s = mag__arch_switch(self, next, m, after);
    san_after(self);
    mag__arch_control_load(&control);
    if (unlikely(mag__rt.cxa_globals != NULL))
        mag__park_load_cxa(&saved);
    if (s.after != NULL)
        s.after(s.m, s.prev);
    return s.m;
}

/* Leaves self for good. Nothing of it is touched from here on, but by `after`. */
static ALWAYS_INLINE NORETURN void leave_for(struct m *m, struct g *self, struct g *next, g_after after)
{
    at_ptr_store_rlx(&m->curg, next);
    san_before(self, next, true);
    mag__arch_leave(self, next, m, after);
}

/* `after` at once where it may be: with one P, which this thread holds until it is on the next stack, nobody can resume a goroutine that
 * was woken meanwhile. What is left to be done, which is then nothing. */
static ALWAYS_INLINE g_after done_before(struct m *m, struct g *self, g_after after)
{
    if (at_32_load_rlx(&m->p->runq.alone) == 0)
        return after;
    after(m, self);
    hostile_point(); /* tests/set_procs.c: nobody resumes it here */
    return NULL;
}

/* What runs on a goroutine's stack, from its first frame on. */
void mag__park_main(struct g *prev, struct g *self, struct m *m, g_after after);
/* Gives g its stack and first frame. False: none can be had, g waits for one. */
bool mag__park_bind(struct p *p, struct g *g);

/* Spreads stacks over the sets of the first-level cache: their tops are page-aligned and would all meet in a few. */
static inline size_t colour(const char *top) { return ((uintptr_t)top * 0x9e3779b97f4a7c15u >> 60) * CACHE_LINE; }

static ALWAYS_INLINE void lay_first_frame(struct g *g)
{
    char *top = g->stack;
    g->flags |= G_STARTED;
    mag__arch_prepare(&g->at, top - colour(top), mag__park_main);
    san_bound(g);
}

/* The same for an ordinary one, where nobody waits for a stack and the P has one at hand. */
static ALWAYS_INLINE bool park_bind_quick(struct p *p, struct g *g)
{
    if (unlikely(p->stacks.n == 0 || at_32_load_rlx(&mag__rt.nostack_tries) != 0))
        return mag__park_bind(p, g);
    g->stack = p->stacks.top[--p->stacks.n];
    lay_first_frame(g);
    return true;
}

/* It has run before, belongs to no thread, and is not known to compute: nothing else to look at. */
static ALWAYS_INLINE bool g_is_plain(const struct g *g)
{
    return (g->flags & (G_STARTED | G_LOCKED | G_HOG)) == G_STARTED;
}

static inline void running(struct p *p, struct g *g)
{
    g_set_state(g, G_RUNNING);
    COUNT_OWNER(&p->count, switches);
}

/* A goroutine and a thread that belong to each other meet by way of g0: it is in m->deferred then. */
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

/* The P's next: may it be switched to, here? False: it is in m->deferred, or waits for a stack. */
static ALWAYS_INLINE bool ready_to_run(struct m *m, struct p *p, struct g *g)
{
    if (unlikely(!g_is_plain(g))) {
        if (g->flags != 0 && must_pass_g0(m, g))
            return false;
        if (g->flags == 0 ? !park_bind_quick(p, g) : (g->flags & G_STARTED) == 0 && !mag__park_bind(p, g))
            return false;
    }
    running(p, g);
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
        if (likely(ready_to_run(m, p, g)))
            return g;
        if (m->deferred != NULL)
            break;
    }
    return &m->g0;
}

/* The goroutine that runs on m waits. `after` makes it visible to its waker, when it is off its stack or nobody can resume it. Returns
 * the M it woke up on, in the runtime. */
static ALWAYS_INLINE struct m *park(struct m *m, enum g_reason why, g_after after, void *after_arg, bool locked)
{
    struct g *g = m_curg(m);
    struct p *p = m->p;
    g->after_arg = after_arg;
    at_64_store_rlx(&g->since, at_64_load_rlx(&mag__rt.clock));
    g_set_waiting(g, why);
    COUNT_OWNER(&p->count, parks);
    struct g *next = next_or_g0(m, p, locked);
    return switch_to(m, g, next, done_before(m, g, after));
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
