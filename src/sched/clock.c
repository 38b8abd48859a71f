/* SPDX-License-Identifier: MIT */
/* clock.c: who runs the timers.
 *
 *   the P's owner   when it has nothing else to do, and every TIMERS_EVERY slices; reading the clock costs 24 ns
 *   the keeper      of the Ms that sleep, one sleeps until the first timer of all is due; an M that goes to sleep with an
 *                   earlier one takes the office over
 *   a searcher      at the end of its search, everybody's
 *   sysmon          when every P is busy
 *
 * Ordering    CLK1  keeper_until store, fence, look at the timers again (keep) <-> a timer is added before its M goes to
 *                   sleep (fence in the same place): without this two Ms could each count on the other to keep the time.
 *             CLK4  firing release (run) -> acquire (deadlock check): without this a goroutine between the heap and a queue could
 *                   be taken for one that waits forever.
 *             CLK2  silent release (shutdown) -> acquire (delete): without this a timer's memory could go while it still fires.
 *             CLK3  in_rt := 1, fence, read the epoch (delete, block) <-> epoch += 1, fence, read in_rt (shutdown): without this the Ps
 *                   could go while a goroutine's thread deletes a timer from one.
 */
#include "sched/sched.h"

enum { BATCH = 64, COALESCE_FROM = 64 };
#define COALESCE_NS ((int64_t)400 * 1000)

int64_t mag__clock_next(void)
{
    int64_t next = TIMER_NEVER;
    for (uint32_t i = 0; i < rt_made(); i++) {
        int64_t first = mag__timer_first(&p_at(i)->timers);
        if (first < next)
            next = first;
    }
    return next;
}

/* With a P the first one runs next and the others queue. Without, every P is busy; and where goroutines compute for long, who
 * queues behind them is late: then they go before the others in the global queue, and a P is retaken for them soon (retake.c). */
static void ready_all(struct p *p, struct g **ready, uint32_t n, bool first)
{
    struct g_list list = {0};
    bool front = p == NULL || at_32_load_rlx(&mag__rt.hogged) != 0;
    for (uint32_t i = 0; i < n; i++) {
        if (p != NULL && first && i == 0 && mag__runq_next_peek(&p->runq) == NULL) {
            g_set_runnable(ready[i]);
            mag__runq_next_swap_owner(&p->runq, ready[i]);
        } else if (!front) {
            mag__wake_quietly(p, ready[i]);
        } else {
            g_set_runnable(ready[i]);
            g_list_put(&list, ready[i]);
        }
    }
    if (p != NULL && !front)
        mag__wake_batch(p, n);
    if (list.n != 0) {
        mag__wake_urgent(list);
        if (p != NULL)
            p_global_next(p);
    }
}

static bool run(struct timers *ts, struct p *p, int64_t now)
{
    struct g *ready[BATCH];
    uint32_t n;
    bool more, some = false;
    at_32_add_rlx(&mag__rt.firing, 1);
    do {
        more = mag__timer_run(ts, now, ready, BATCH, &n);
        ready_all(p, ready, n, !some);
        some |= n != 0;
    } while (more);
    if (some)
        at_64_store_rlx(p != NULL ? &p->urgent_at : &mag__rt.urgent_at, (uint64_t)now);
    at_32_add_rel(&mag__rt.firing, (uint32_t)-1); /* CLK4 */
    return some;
}

bool mag__clock_run_own(struct p *p)
{
    p->timers_at = at_32_load_rlx(&p->tick) + TIMERS_EVERY;
    if (mag__timer_first(&p->timers) == TIMER_NEVER)
        return false;
    int64_t now = mag__os_now();
    return mag__timer_first(&p->timers) <= now && run(&p->timers, p, now);
}

bool mag__clock_run_all(struct p *p)
{
    int64_t now = mag__os_now();
    bool some = false;
    for (uint32_t i = 0; i < rt_made(); i++)
        if (mag__timer_first(&p_at(i)->timers) <= now)
            some |= run(&p_at(i)->timers, p, now);
    return some;
}

void mag__clock_kept(int64_t until)
{
    uint64_t mine = (uint64_t)until;
    if (until != TIMER_NEVER)
        at_64_cas_rlx(&mag__rt.keeper_until, &mine, (uint64_t)TIMER_NEVER);
}

/* Many timers, each due a little after the other, must not each wake a thread: the next wake-up is COALESCE_NS after the last.
 * Few may: a goroutine that sleeps for microseconds is meant to. */
int64_t mag__clock_coalesce(int64_t until)
{
    int64_t earliest = (int64_t)at_64_load_rlx(&mag__rt.keeper_woke) + COALESCE_NS;
    if (until >= earliest)
        return until;
    uint32_t pending = 0;
    for (uint32_t i = 0; i < rt_made() && pending <= COALESCE_FROM; i++)
        pending += mag__timer_pending(&p_at(i)->timers);
    return pending > COALESCE_FROM ? earliest : until;
}

/* What stands in keeper_until is kept by somebody: who changes its mind takes its own word back before it looks again, or it
 * would believe that word to be another's. */
int64_t mag__clock_keep(void)
{
    for (;;) {
        int64_t next = mag__clock_next();
        uint64_t until = at_64_load_rlx(&mag__rt.keeper_until);
        if (next >= (int64_t)until)
            return TIMER_NEVER;
        if (!at_64_cas_rlx(&mag__rt.keeper_until, &until, (uint64_t)next))
            continue;
        at_fence_seq(); /* CLK1 */
        hostile_point();
        if (mag__clock_next() >= next)
            return next;
        mag__clock_kept(next);
    }
}

bool mag__clock_add(struct timer *t, int64_t when, int64_t period)
{
    if (mag__foreign_enter() != 0)
        return false;
    struct m *m = mag__m_self();
    struct p *p = m == NULL ? NULL : mag__token_peek(m); /* its heap has a lock: it need not be ours */
    t->epoch = at_32_load_rlx(&mag__rt.epoch);
    t->slot = TIMER_OUT;
    bool added = mag__timer_add(p != NULL ? &p->timers : &p_at(0)->timers, t, when, period);
    at_fence_seq(); /* CLK1 */
    if (added && when < (int64_t)at_64_load_rlx(&mag__rt.keeper_until))
        mag__sysmon_wake(); /* it looks at the timers at once, and from then on in time */
    mag__foreign_leave();
    return added;
}

/* The runtime is stopping: until its Ps are collected somebody may still run timers; afterwards nobody will. */
static void wait_for_silence(void)
{
    while (at_32_load_acq(&mag__rt.state) == RT_STOPPING /* RUN1 */ && at_32_load_acq(&mag__rt.silent) == 0) /* CLK2 */
        mag__os_nap(20000);
}

static bool delete_if_of(struct timer *t, uint32_t epoch) { return t->epoch == epoch && mag__timer_delete(t); }

/* The timer's memory may go afterwards, so this must be right even while the runtime is taken apart. A goroutine's thread is
 * not let go while it is in the runtime; a foreign thread is waited for once it has been counted. */
bool mag__clock_delete(struct timer *t)
{
    bool pending = false, alive = false;
    if (t->home == NULL)
        return false;
    struct m *m = mag__m_self();
    if (m != NULL) {
        mag__token_enter(m);
        at_fence_seq(); /* CLK3 */
        uint32_t epoch = at_32_load_rlx(&mag__rt.epoch);
        alive = m->epoch == epoch;
        if (likely(alive))
            pending = delete_if_of(t, epoch);
        mag__token_leave(m); /* before any wait: the P is one of those it is for */
    }
    if (likely(alive))
        return pending;
    bool of_this_run = false;
    if (mag__foreign_enter() == 0) { /* also a straggler, of a timer that it added in the next runtime */
        uint32_t epoch = at_32_load_rlx(&mag__rt.epoch);
        of_this_run = t->epoch == epoch;
        pending = delete_if_of(t, epoch);
        mag__foreign_leave();
    }
    if (!of_this_run)
        wait_for_silence(); /* the end may have begun in between: its heaps are still there, and so is the timer */
    return pending;
}
