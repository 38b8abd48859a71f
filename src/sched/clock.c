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
 */
#include "sched/sched.h"

enum { BATCH = 64 };

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

static bool run(struct timers *ts, struct p *p, int64_t now)
{
    struct g *ready[BATCH];
    uint32_t n;
    bool more, some = false;
    do {
        more = mag__timer_run(ts, now, ready, BATCH, &n);
        for (uint32_t i = 0; i < n; i++) {
            if (p != NULL)
                mag__wake_tail(p, ready[i]);
            else
                mag__wake_global(ready[i]);
            some = true;
        }
    } while (more);
    return some;
}

bool mag__clock_run_own(struct p *p)
{
    p->timers_in = TIMERS_EVERY;
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

int64_t mag__clock_keep(void)
{
    for (;;) {
        int64_t next = mag__clock_next();
        uint64_t until = at_64_load_rlx(&mag__rt.keeper_until);
        if (next >= (int64_t)until)
            return TIMER_NEVER;
        at_64_store_rlx(&mag__rt.keeper_until, (uint64_t)next);
        at_fence_seq(); /* CLK1 */
        if (mag__clock_next() >= next)
            return next;
    }
}

void mag__clock_kept(int64_t until)
{
    uint64_t mine = (uint64_t)until;
    if (until != TIMER_NEVER)
        at_64_cas_rlx(&mag__rt.keeper_until, &mine, (uint64_t)TIMER_NEVER);
}

bool mag__clock_add(struct timer *t, int64_t when, int64_t period)
{
    if (mag__foreign_enter() != 0)
        return false;
    struct m *m = mag__m_self();
    struct p *p = m == NULL ? NULL : at_ptr_load_rlx(&m->tok); /* its heap has a lock: it need not be ours */
    t->epoch = at_32_load_rlx(&mag__rt.epoch);
    t->at = TIMER_OUT;
    bool added = mag__timer_add(p != NULL ? &p->timers : &p_at(0)->timers, t, when, period);
    at_fence_seq(); /* CLK1 */
    if (added && when < (int64_t)at_64_load_rlx(&mag__rt.keeper_until))
        mag__sysmon_wake(); /* it looks at the timers at once, and from then on in time */
    mag__foreign_leave();
    return added;
}

bool mag__clock_delete(struct timer *t)
{
    if (t->home == NULL || mag__foreign_enter() != 0)
        return false;
    bool pending = t->epoch == at_32_load_rlx(&mag__rt.epoch) && mag__timer_delete(t);
    mag__foreign_leave();
    return pending;
}
