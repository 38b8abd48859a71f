/* SPDX-License-Identifier: MIT */
#include "sched/wait.h"
#include "base/panic.h"

/* Threads outside the runtime that wait: shutdown must find them. Not part of struct rt: they may wait while none runs. */
static struct {
    struct lock lock;
    struct waiter *first;
} threads;

void mag__wait_commit(struct m *m, struct g *prev)
{
    uint64_t seen = at_64_load_acq(&prev->wait); /* WT1 */
    if ((seen & WAIT_STATE) == WAIT_PREPARING && at_64_cas_rel(&prev->wait, &seen, (seen & ~WAIT_STATE) | WAIT_PARKED)) /* WT3 */
        return;
    mag__wake_next(m->p, prev);
}

static struct g *fire(struct timer *t, int64_t now)
{
    (void)now;
    struct waiter *w = container_of(t, struct waiter, timer);
    struct g *g = w->g;
    return waiter_decide(w, WAIT_LATE) == DECIDED_READY ? g : NULL;
}

/* A deadline before the program was loaded is a duration by mistake: it would pass for "long ago" without a word. */
static void look_at_deadline(int64_t deadline)
{
    if (likely(deadline <= 0 || deadline >= mag__rt.loaded))
        return;
    uint32_t no = 0;
    if (at_32_cas_rlx(&mag__rt.warned_duration, &no, 1))
        mag__panic_say("a deadline of %lld ns looks like a duration: use mag_in()", (long long)deadline);
}

bool mag__wait_arm(struct m *m, struct waiter *w, int64_t deadline)
{
    look_at_deadline(deadline);
    w->timer.fire = fire;
    w->timer.slot = TIMER_OUT;
    if (unlikely(at_32_load_rlx(&mag__rt.hogged) != 0) && (uint64_t)deadline < at_64_load_rlx(&mag__rt.sysmon_until))
        mag__sysmon_wake(); /* this P may run a goroutine next that does not come back in time */
    return mag__timer_add(&m->p->timers, &w->timer, deadline, 0);
}

/* ---- cancellation ---- */

void mag__wait_look_cancelled(struct waiter *w)
{
    at_fence_seq(); /* WT2 */
    if (g_is_member_of_cancelled(w->g))
        waiter_decide(w, WAIT_CANCELLED); /* the after-step finds it and lets the goroutine go on */
}

/* ---- threads ---- */

void mag__wait_thread(struct waiter *w, int64_t deadline)
{
    look_at_deadline(deadline);
    mag__lock_take(&threads.lock);
    w->thread_next = threads.first;
    w->thread_link = &threads.first;
    if (threads.first != NULL)
        threads.first->thread_link = &w->thread_next;
    threads.first = w;
    mag__lock_give(&threads.lock);

    if (mag__parker_park(&w->parker, deadline) == -ETIMEDOUT && waiter_decide(w, WAIT_LATE) == DECIDED_LOST)
        mag__parker_park(&w->parker, OS_FOREVER); /* it was decided at the last moment: the token is on its way */

    mag__lock_take(&threads.lock);
    *w->thread_link = w->thread_next;
    if (w->thread_next != NULL)
        w->thread_next->thread_link = w->thread_link;
    mag__lock_give(&threads.lock);
}

/* ---- waking ---- */

void mag__wait_pin_thread(void)
{
    at_32_add_rlx(&mag__rt.foreign, 1);
    at_fence_seq(); /* FOR1 */
}

/* In the runtime, and without a P. */
static COLD void ready_lost(struct m *m, struct g *g)
{
    if (mag__foreign_enter() != 0)
        return; /* its goroutine is discarded anyway */
    if (!m_outlived(m, g))
        mag__wake_global(g);
    mag__foreign_leave();
}

NOINLINE void mag__wait_ready_behind(struct m *m, struct g *g, struct p *p)
{
    if (token_is_lost(p)) {
        mag__token_lost(m, (enum lost)(uintptr_t)p);
        ready_lost(m, g);
    } else {
        mag__wake_next(p, g);
    }
    mag__token_leave(m);
}

void mag__wait_ready_chain(struct m *m, struct waiter *first)
{
    if (m != NULL) {
        if (unlikely(m_in_rt(m)))
            mag__panic_misuse("a synchronisation call in a signal handler that interrupted the runtime");
        mag__token_enter(m);
    }
    bool with_p = m != NULL && m->p != NULL;
    bool running = with_p || mag__foreign_enter() == 0;
    for (struct waiter *w = first, *next; w != NULL; w = next) {
        next = w->next; /* from here on the waiter may be gone */
        if (w->g == NULL || (likely(running) && !m_outlived(m, w->g))) /* otherwise its goroutine is discarded anyway */
            waiter_ready(m, w);
    }
    if (running && !with_p)
        mag__foreign_leave();
    if (m != NULL)
        mag__token_leave(m);
}

/* ---- shutdown ---- */

static void clear_g(struct g *g, void *arg)
{
    (void)arg;
    enum g_state state = g_state(g);
    if (state != G_WAITING && state != G_RUNNABLE)
        return; /* running on, or just ended: then ext is a free list's */
    struct waiter *w = g_waiter(g);
    if (w != NULL && w->leave != NULL)
        w->leave(w); /* also one that was woken: by its deadline, or by one of several sources */
    if (g->ext != NULL && g->ext->group != NULL)
        mag__rt.leave_group(g->ext); /* the group's memory may outlive this run */
}

void mag__wait_clear(void)
{
    mag__g_each(&mag__rt.arena->gs, clear_g, NULL);
    mag__lock_take(&threads.lock);
    for (struct waiter *w = threads.first; w != NULL; w = w->thread_next)
        if (waiter_decide(w, WAIT_WOKEN) == DECIDED_READY) {
            w->result = -ESHUTDOWN;
            if (w->leave != NULL)
                w->leave(w);
            mag__parker_unpark(&w->parker);
        }
    mag__lock_give(&threads.lock);
}
