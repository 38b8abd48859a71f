/* SPDX-License-Identifier: MIT */
/* park.c: how a goroutine leaves its stack, and what runs there next.
 *
 * Switching   goroutine to goroutine directly where this P knows the next one; otherwise to g0, the thread's own stack,
 *             which searches. What makes the leaver visible to others (a queue, an unlock) is its `after` step: it runs
 *             on the next stack, because until then another thread could resume a stack that is still in use. With one P
 *             none could, and it runs before the switch (done_before).
 * Starting    a goroutine gets its stack here, before its first run. When none can be had it waits in rt.nostack for one
 *             to come free: a goroutine once accepted runs.
 * Ending      a finished goroutine followed by a fresh one of the same size costs no switch: mag__park_main loops and the
 *             next one takes the hot stack over.
 * Identity    `m` is read again, or comes out of the switch, after everything that may switch: the goroutine may be on
 *             another thread then.
 */
#include "base/panic.h"
#include "sched/park.h"

#include <errno.h>
#include <stdlib.h>

NOINLINE void mag__park_save_cxa(struct cxa_globals *saved) { *saved = *(struct cxa_globals *)mag__rt.cxa_globals(); }
NOINLINE void mag__park_load_cxa(struct cxa_globals *saved) { *(struct cxa_globals *)mag__rt.cxa_globals() = *saved; }

/* ---- starting ---- */

static COLD void no_stack(struct g *g)
{
    mag__lock_take(&mag__rt.nostack_lock);
    struct g_list *l = &mag__rt.nostack;
    g_list_put(l, g);
    at_32_store_rlx(&mag__rt.nnostack, l->n);
    bool warn = !mag__rt.warned_stacks;
    mag__rt.warned_stacks = true;
    mag__lock_give(&mag__rt.nostack_lock);
    if (warn)
        mag__panic_say("no memory or mappings for another stack after %llu: goroutines that have not started wait "
                       "until others end%s",
                       (unsigned long long)at_64_load_rlx(&mag__rt.arena->stacks.made),
                       mag__os_guard_costs_mapping() ? " (vm.max_map_count is the limit: see docs/stacks.md)" : "");
}

COLD void mag__park_retry(void)
{
    mag__lock_take(&mag__rt.nostack_lock);
    struct g_list *l = &mag__rt.nostack;
    struct g *g = l->first;
    if (g != NULL) {
        l->first = g->next;
        l->n--;
        at_32_store_rlx(&mag__rt.nnostack, l->n);
    }
    mag__lock_give(&mag__rt.nostack_lock);
    if (g != NULL)
        mag__wake_global(g);
}

NOINLINE bool mag__park_bind(struct p *p, struct g *g)
{
    if (g->stack == NULL) { /* a large copy brought one along */
        g->stack = mag__stack_get(&mag__rt.arena->stacks, g->stack_class, &p->stacks, mag__rt.stack_class);
        if (unlikely(g->stack == NULL)) {
            no_stack(g);
            return false;
        }
    }
    if (unlikely(at_32_load_rlx(&mag__rt.nostack_tries) != 0))
        at_32_store_rlx(&mag__rt.nostack_tries, 0);
    lay_first_frame(g);
    return true;
}

/* ---- ending ---- */

/* g ended, off its stack, or in its last steps on it, or its stack has passed to another. It is an ordinary one, and there is room. */
static ALWAYS_INLINE void discard(struct p *p, struct g *g)
{
    g->stack = NULL;
    g->flags = 0;
    COUNT_OWNER(&p->count, finished);
    mag__g_free_cached(&p->gs, g);
}

/* The same for any, and with its stack. */
static void after_end(struct m *m, struct g *g)
{
    struct p *p = m->p;
    san_unbound(g);
    if (unlikely(mag__m_is_dead(m)))
        return; /* the arena goes as a whole */
    /* while somebody waits for a stack none is kept where only one P finds it */
    bool keep = p != NULL && likely(at_32_load_rlx(&mag__rt.nnostack) == 0);
    mag__stack_put(&m->arena->stacks, g->stack_class, keep ? &p->stacks : NULL, mag__rt.stack_class, g->stack);
    if (at_64_load_rlx(&g->name[0]) != 0)
        mag__g_set_name(g, NULL);
    if (p != NULL) {
        if (unlikely(p->gs.none == MAGAZINE))
            mag__g_flush(&m->arena->gs, &p->gs);
        discard(p, g);
    } else {
        g->stack = NULL;
        g->flags = 0;
        COUNT_ANY(&mag__rt.count, finished);
        mag__g_free_any(&m->arena->gs, g);
    }
    if (unlikely(at_32_load_rlx(&mag__rt.nnostack) != 0))
        mag__park_retry();
}

/* Main's frame outlives it: others may wait on what lies there until the runtime has stopped. So its stack is not used again,
 * and what its end needs is done here, on g0's, or above that frame (run/init.c). */
static void after_main(struct m *m, struct g *g)
{
    san_unbound(g);
    m->ends = m_locked(m) != NULL;
    if (m->p == NULL)
        mag__p_take_idle(m);
    if (!mag__m_is_dead(m))
        mag__rt_done(DONE_MAIN);
    g_set_state(g, G_FREE); /* but in no free list: it goes with the arena */
    if (m->p != NULL)
        COUNT_OWNER(&m->p->count, finished);
    else
        COUNT_ANY(&mag__rt.count, finished);
}

/* Stack and descriptor go into this P's own caches. They may while the goroutine is still on that stack: only who holds the P takes
 * them from there, and that is this thread, until it is on the next one. False: not so. */
static ALWAYS_INLINE bool keep_both(struct p *p, struct g *g)
{
    if (SAN_SWITCHES || hostile_chance(2) ||
        unlikely(p->stacks.n == STACK_CACHE || p->gs.none == MAGAZINE || at_32_load_rlx(&mag__rt.nnostack) != 0))
        return false;
    p->stacks.top[p->stacks.n++] = g->stack;
    discard(p, g);
    return true;
}

/* The end of main, of one that has no P or a thread of its own, and of whatever else is out of the ordinary. */
static NOINLINE NORETURN void finish_otherwise(struct m *m, struct g *g)
{
    if ((g->flags & G_MAIN) != 0)
        leave_for(m, g, &m->g0, after_main);
    m->ends = m_locked(m) != NULL;
    if (m->p == NULL)
        mag__p_take_idle(m); /* g0 goes on with it, or sleeps */
    else if (!m->ends)
        leave_for(m, g, next_or_g0(m, m->p, false), after_end);
    leave_for(m, g, &m->g0, after_end);
}

/* The goroutine's function is over. Returns on the same stack, with the next goroutine to run on it; adopt == false: does
 * not return. */
static ALWAYS_INLINE struct m *finish(struct m *m, bool adopt)
{
    struct p *p = mag__token_enter(m);
    struct g *g = m_curg(m);
    if (unlikely(p == NULL || g->flags != G_STARTED))
        finish_otherwise(m, g);
    struct g *next = mag__find_local(p);
    if (next == NULL) {
        next = &m->g0;
    } else if (likely(g_is_plain(next))) {
        running(p, next);
    } else if (adopt && !SAN_SWITCHES && next->flags == 0 && likely(mag__rt.cxa_globals == NULL)) {
        next->stack = g->stack;
        next->flags = G_STARTED;
        if (unlikely(p->gs.none == MAGAZINE))
            mag__g_flush(&m->arena->gs, &p->gs);
        discard(p, g);
        at_ptr_store_rlx(&m->curg, next);
        running(p, next);
        mag__arch_control_load(&mag__arch_control_default);
        return m;
    } else if (!ready_to_run(m, p, next)) {
        next = m->deferred != NULL ? &m->g0 : next_or_g0(m, p, false);
    }
    leave_for(m, g, next, keep_both(p, g) ? NULL : after_end);
}

/* HOT: a compiler takes what does not return for what is seldom run. */
HOT NORETURN void mag__park_main(struct g *prev, struct g *self, struct m *m, g_after after)
{
    san_after(self);
    mag__arch_control_load(&mag__arch_control_default);
    if (unlikely(mag__rt.cxa_globals != NULL))
        mag__park_load_cxa(&(struct cxa_globals){0});
    if (after != NULL)
        after(m, prev);
    for (;;) {
        struct g *g = m_curg(m);
        mag_fn fn = g_fn(g);
        void *arg = g->arg;
        mag__token_leave(m);
        fn(arg);
        m = mag__m_self();
        if (unlikely(m == NULL))
            exit(EXIT_SUCCESS); /* in a forked child the goroutine was the last thread */
        if (unlikely(g->ext != NULL)) {
            mag__local_end(g);
            m = mag__m_self();
        }
        m = finish(m, true);
        __asm__("" : "+r"(m)); /* a compiler that knows it to be the same keeps addresses of its members, in memory */
    }
}

void mag_exit(void)
{
    struct m *m = mag__m_self();
    if (m == NULL && at_32_load_rlx(&mag__rt.state) == RT_FORKED)
        exit(EXIT_SUCCESS);
    if (m == NULL || m_in_rt(m))
        mag__park_misused("mag_exit");
    if (m_curg(m)->ext != NULL)
        mag__local_end(m_curg(m));
    finish(mag__m_self(), false);
    __builtin_unreachable();
}

/* ---- waiting ---- */

/* Its runtime has stopped without it: it is discarded now, as the others were then. Its group's memory may outlive it. */
static void after_dead(struct m *m, struct g *prev)
{
    (void)m;
    if (prev->ext != NULL && prev->ext->group != NULL)
        mag__rt.leave_group(prev->ext);
}

static void after_global(struct m *m, struct g *prev)
{
    if (likely(!mag__m_is_dead(m)))
        mag__wake_global(prev);
    else
        after_dead(m, prev);
}

/* A P for a goroutine that lost its own: an idle one, or in turn through the global queue. */
struct m *mag__park_regain(struct m *m)
{
    struct g *g = m_curg(m);
    if (unlikely(mag__m_is_dead(m)))
        leave_for(m, g, &m->g0, after_dead);
    if (mag__p_take_idle(m))
        return m;
    return switch_to(m, g, &m->g0, after_global);
}

COLD void mag__park_misused(const char *function)
{
    mag__panic_misuse("%s called outside a goroutine", function);
}

/* ---- yielding ---- */

/* mag__wake_tail, for one that was running. */
static void after_yield(struct m *m, struct g *prev)
{
    struct p *p = m->p;
    g_set_state(prev, G_RUNNABLE);
    if (unlikely(!mag__runq_put_owner(&p->runq, prev)))
        mag__wake_tail(p, prev);
    else if (rt_procs() > 1)
        mag__wake_searcher(&p->count);
}

static COLD struct m *yield_locked(struct m *m)
{
    bool alone = p_is_empty(m->p) && mag__globq_length(&mag__rt.globq) == 0;
    if (alone && at_32_load_rlx(&m->p->attention) == 0)
        return m;
    return switch_to(m, m_curg(m), &m->g0, after_yield);
}

/* With one P, and nothing else to look at: the oldest of its ring, whose place self has taken, before it is off its stack (done_before
 * says why). NULL: by the long way. */
static ALWAYS_INLINE struct g *take_turns(struct p *p, struct g *self)
{
    if (at_32_load_rlx(&p->runq.alone) == 0 || at_32_load_rlx(&p->attention) != 0 || mag__runq_next_peek(&p->runq) != NULL ||
        lifo_may_have(&p->lifo) || unlikely(p->turn_in == 1))
        return NULL;
    struct g *g = mag__runq_oldest_owner(&p->runq);
    if (g == NULL || unlikely(!g_is_plain(g)))
        return NULL;
    find_begin_slice(p);
    p->turn_in--;
    p->lifo_streak = 0;
    g_set_state(self, G_RUNNABLE);
    mag__runq_turn_owner(&p->runq, self);
    hostile_point();
    return g;
}

ALWAYS_INLINE struct m *mag__park_yield(struct m *m)
{
    struct p *p = m->p;
    struct g *g;
    if (unlikely(m_locked(m) != NULL))
        return yield_locked(m);
    if ((g = take_turns(p, m_curg(m))) != NULL) {
        running(p, g);
        return switch_to(m, m_curg(m), g, NULL);
    }
    while ((g = mag__find_near(p)) != NULL) {
        if (likely(ready_to_run(m, p, g)))
            return switch_to(m, m_curg(m), g, after_yield);
        if (m->deferred != NULL)
            return switch_to(m, m_curg(m), &m->g0, after_yield);
    }
    if (unlikely(at_32_load_rlx(&p->attention) != 0))
        return switch_to(m, m_curg(m), &m->g0, after_yield);
    return m;
}

/* A goroutine that computes without a P, while Ps are idle, stands in nobody's way: the kernel shares the cores out, and a P that it
 * took would have to be taken from it again as soon as something urgent comes. */
static bool may_stay_loose(const struct m *m)
{
    return at_32_load_rlx(&m->loose) != 0 && !mag__m_is_dead(m) && mag__idle_some(&mag__rt.idle) && !rt_crowded() &&
           mag__globq_length(&mag__rt.globq) == 0 && mag__globq_length(&mag__rt.held) == 0;
}

static ALWAYS_INLINE void yield(struct m *m, const char *function)
{
    if (unlikely(m == NULL || m_in_rt(m)))
        mag__park_misused(function);
    if (unlikely(mag__token_enter(m) == NULL)) {
        if (may_stay_loose(m)) {
            mag__token_leave(m);
            mag__os_yield();
            return;
        }
        m = mag__park_regain(m);
    }
    mag__token_leave(mag__park_yield(m));
}

void mag_yield(void) { yield(mag__m_self(), "mag_yield"); }

void mag_checkpoint_slow(void)
{
    struct m *m = mag__m_self();
    if (m == NULL || m_in_rt(m))
        return; /* a load and a branch is all that others pay: no contract to break */
    yield(m, "mag_checkpoint");
}

/* ---- g0 ---- */

/* What this thread runs next; NULL: it must end. */
static struct g *next_for_thread(struct m *m)
{
    if (unlikely(m_locked(m) != NULL)) {
        if (m->ends) {
            mag__locked_give_away(m);
            at_ptr_store_rlx(&m->locked, NULL); /* its descriptor will be somebody else's */
            return NULL;
        }
        return mag__locked_wait(m) ? m_locked(m) : NULL;
    }
    for (;;) {
        struct g *g = m->deferred != NULL ? m->deferred : mag__find_next(m);
        m->deferred = NULL;
        if (g == NULL || likely((g->flags & G_LOCKED) == 0))
            return g;
        mag__locked_run(m, g);
    }
}

void mag__park_loop(struct m *m)
{
    struct g *g;
    while ((g = next_for_thread(m)) != NULL)
        if (likely((g->flags & G_STARTED) != 0 || mag__park_bind(m->p, g))) {
            if (unlikely((g->flags & G_HOG) != 0))
                mag__retake_mark(m->p, g);
            running(m->p, g);
            switch_to(m, &m->g0, g, NULL);
            mag__token_settle(m);
        }
}
