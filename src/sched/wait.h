/* SPDX-License-Identifier: MIT */
/* wait.h: one wait, for the first of several things.
 *
 * What        a waiter lives on the stack of who waits and hangs in the queues of what it waits for. One word decides: who moves
 *             it out of PREPARING or PARKED has won (a value, a close, the deadline), everybody else has lost and leaves the
 *             waiter alone. A goroutine's word is in its descriptor, which stays while the stack may go.
 * Protocol    goroutine, one source     leave the stack; the after-step makes it visible (its last touch). Nobody else can
 *                                       decide it, so it needs no word
 *             goroutine, several        word := PREPARING; visible at each source; leave the stack; the after-step moves it
 *                                       to PARKED, or finds it decided and makes it runnable itself
 *                                       (with one P the after-step may come first: sched/park.h)
 *             waker                     decides; a goroutine found PARKED is made runnable, one found PREPARING is not: its
 *                                       after-step does that when it is off its stack
 *             woken                     takes itself out of the sources that lost, under their locks
 * Tickets     the upper bits count waits: a decision can never hit the next wait of the same goroutine.
 * Ordering    WT2  word := PREPARING, fence, read "cancelled" (look_cancelled) <-> "cancelled" := true, fence, read the words
 *                  (group cancel): without this a goroutine could fall asleep just after its group was cancelled.
 *             WT3  word cas release (commit) -> word cas acquire (decide): without this a waker could resume a goroutine whose
 *                  saved stack pointer it does not see yet.
 *             WT1  word cas release (decide) -> word acquire (outcome, after-step): without this the woken could miss what its
 *                  waker wrote for it.
 */
#ifndef MAG_SCHED_WAIT_H
#define MAG_SCHED_WAIT_H

#include "sched/park.h"

#include <errno.h>

enum wait_state { WAIT_FREE, WAIT_PREPARING, WAIT_PARKED, WAIT_WOKEN, WAIT_LATE, WAIT_CANCELLED };
#define WAIT_STATE ((uint64_t)0xff)
#define WAIT_MAY_CANCEL ((uint64_t)0x100) /* cancellation is one of the sources */
#define WAIT_ONE ((uint64_t)0x200)        /* tickets count in these */

struct waiter {
    a64 *word;                        /* these two: unless single */
    uint64_t ticket;
    struct g *g;                      /* NULL: a thread */
    void (*leave)(struct waiter *w);  /* takes it out of the queues it is in, for a runtime that stops; touches no others */
    struct waiter *next;              /* of those a waker has decided and not yet made runnable */
    bool single;                      /* one source, whose lock who decides holds: nobody else can */
    int result;
    uint32_t fired;                   /* select: the case */
    struct timer timer;
    struct parker parker;             /* of a thread */
    a64 own;
    struct waiter *thread_next, **thread_link;
};

enum decided { DECIDED_LOST, DECIDED_READY, DECIDED_LATER };

/* May this goroutine be cancelled now, or be cancelled already? */
static inline bool g_may_cancel(const struct g *g)
{
    const struct g_ext *x = g->ext;
    return unlikely(x != NULL) && x->group != NULL && at_32_load_rlx(&x->shield) == 0 && at_32_load_rlx(&x->spared) == 0;
}

static inline bool g_is_member_of_cancelled(const struct g *g) { return at_32_load_rlx(&g->ext->group->cancelled) != 0; }
/* Is it? For calls that block, before anything else. */
static inline bool g_is_cancelled(const struct g *g) { return g_may_cancel(g) && g_is_member_of_cancelled(g); }
/* The same for whoever calls: threads outside never are. */
static inline bool m_is_cancelled(const struct m *m) { return m != NULL && unlikely(m_curg(m)->ext != NULL) && g_is_cancelled(m_curg(m)); }

/* A goroutine's. Several sources, a deadline or cancellation among them: PREPARING first. leave: how it gets out of its
 * queues. */
static ALWAYS_INLINE void waiter_init(struct waiter *w, struct g *g, bool several, void (*leave)(struct waiter *w))
{
    w->result = 0;
    w->single = !several;
    w->leave = leave;
    w->g = g;
    if (!several)
        return;
    w->timer.home = NULL;
    w->word = &g->wait;
    w->ticket = (at_64_load_rlx(&g->wait) | (WAIT_ONE - 1)) + 1;
    if (g_may_cancel(g))
        w->ticket |= WAIT_MAY_CANCEL;
    at_64_store_rlx(&g->wait, w->ticket | WAIT_PREPARING);
}

/* A thread's: it may be woken while it is still awake. */
static inline void waiter_init_thread(struct waiter *w, void (*leave)(struct waiter *w))
{
    w->result = 0;
    w->single = false;
    w->leave = leave;
    w->timer.home = NULL;
    w->g = NULL;
    w->word = &w->own;
    w->ticket = 0;
    at_32_store_rlx(&w->parker.word, 0);
    at_64_store_rlx(&w->own, WAIT_PARKED);
}

/* Whoever gets READY makes it runnable. By the word and the ticket alone: */
static inline enum decided word_decide(a64 *word, uint64_t ticket, enum wait_state how)
{
    uint64_t seen = at_64_load_rlx(word);
    for (;;) {
        uint64_t state = seen - ticket;
        if (state != WAIT_PREPARING && state != WAIT_PARKED)
            return DECIDED_LOST;
        if (at_64_cas_acqrel(word, &seen, ticket | how)) /* WT1 WT3 */
            return state == WAIT_PARKED ? DECIDED_READY : DECIDED_LATER;
    }
}

static inline enum decided waiter_decide(struct waiter *w, enum wait_state how)
{
    if (likely(w->single)) /* its after-step made it visible under the lock that the caller holds */
        return DECIDED_READY;
    return word_decide(w->word, w->ticket, how);
}

/* What a wait that was not served returns. */
static inline int wait_error(enum wait_state s)
{
    return s == WAIT_LATE ? -ETIMEDOUT : s == WAIT_CANCELLED ? -ECANCELED : 0;
}

static inline enum wait_state waiter_outcome(const struct waiter *w)
{
    return (enum wait_state)(at_64_load_acq(w->word) & WAIT_STATE); /* WT1 */
}

/* Makes runnable who was decided READY: m in the runtime, or NULL and pinned. */
static inline void waiter_ready(struct m *m, struct waiter *w)
{
    if (likely(w->g != NULL))
        mag__wake_any(m, w->g);
    else
        mag__parker_unpark(&w->parker);
}

/* The after-step of a wait with several sources. */
void mag__wait_commit(struct m *m, struct g *prev);

void mag__wait_look_cancelled(struct waiter *w);

/* The goroutine waits, its sources armed; the M it woke up on. */
static ALWAYS_INLINE struct m *mag__wait_park(struct m *m, struct waiter *w, enum g_reason why)
{
    if (unlikely((w->ticket & WAIT_MAY_CANCEL) != 0))
        mag__wait_look_cancelled(w);
    return mag__park(m, why, mag__wait_commit, w);
}

/* The same where a lock was taken since waiter_init, as for whatever it waits in. */
static ALWAYS_INLINE struct m *mag__wait_park_locked_since(struct m *m, struct waiter *w, enum g_reason why)
{
    if (unlikely((w->ticket & WAIT_MAY_CANCEL) != 0)) {
        at_fence_seq_after_rmw(); /* WT2 */
        if (unlikely(g_is_member_of_cancelled(w->g)))
            waiter_decide(w, WAIT_CANCELLED);
    }
    return mag__park(m, why, mag__wait_commit, w);
}

/* Arms the deadline of a goroutine's wait that began with `several`. False: no memory for it. */
bool mag__wait_arm(struct m *m, struct waiter *w, int64_t deadline);
/* After a wait that was. What its own deadline ended needs nothing: deciding it was the timer's last touch. */
static inline void mag__wait_disarm(struct waiter *w)
{
    if (w->timer.home != NULL && waiter_outcome(w) != WAIT_LATE)
        mag__timer_delete(&w->timer);
}

/* A thread waits, its sources armed: WOKEN or LATE, or -ESHUTDOWN in w->result. */
void mag__wait_thread(struct waiter *w, int64_t deadline);

/* Shutdown, while no goroutine runs: goroutines leave their queues, threads get -ESHUTDOWN. */
void mag__wait_clear(void);

/* Between these nobody's stack goes away, and so no waiter. While a thread of the runtime lives, so do the stacks of its time:
 * only threads outside must count. */
void mag__wait_pin_thread(void);
static inline bool mag__wait_pin(const struct m *m)
{
    if (likely(m != NULL && !mag__m_is_dead(m)))
        return false;
    mag__wait_pin_thread();
    return true;
}
static inline void mag__wait_unpin(bool pinned)
{
    if (unlikely(pinned))
        mag__foreign_leave();
}

/* m's runtime has ended, and g was discarded with it: decided while it lasted, it must not run in the next. */
static inline bool m_outlived(const struct m *m, const struct g *g)
{
    return unlikely(m != NULL && mag__m_is_dead(m)) && mag__g_is_of(&m->arena->gs, g);
}

/* In user code: makes a chain of decided waiters runnable, through `next`. */
void mag__wait_ready_chain(struct m *m, struct waiter *first);
static inline void mag__wait_ready_all(struct m *m, struct waiter *first)
{
    if (first != NULL)
        mag__wait_ready_chain(m, first);
}

/* The same for one goroutine that was decided, by one that most likely has its P and is not in the runtime: the last thing its caller
 * does. */
void mag__wait_ready_behind(struct m *m, struct g *g, struct p *p);
static ALWAYS_INLINE void mag__wait_ready_g(struct m *m, struct g *g)
{
    struct p *p = token_try(m);
    if (token_is_lost(p) || unlikely(!mag__wake_woken_quick(p, g))) {
        mag__wait_ready_behind(m, g, p);
        return;
    }
    mag__token_leave(m);
}

/* The same for one alone, by a goroutine that most likely has its P. */
static ALWAYS_INLINE void mag__wait_ready_one(struct m *m, struct waiter *w)
{
    if (w == NULL)
        return;
    struct g *g = w->g;
    if (unlikely(m == NULL || g == NULL || m_in_rt(m))) {
        w->next = NULL;
        mag__wait_ready_chain(m, w);
        return;
    }
    mag__wait_ready_g(m, g);
}

#endif
