/* SPDX-License-Identifier: MIT */
/* locked.c: mag_lock_thread: a goroutine that must stay on its thread (thread-local state of libraries, GUI toolkits, namespaces).
 *
 * The thread runs nobody else. When its goroutine waits, the thread gives its P away and sleeps in its own parker; whoever
 * finds the goroutine runnable hands over its P and wakes the thread: a locked goroutine's turn costs two thread switches.
 * A goroutine that ends locked takes its thread with it: the thread may be in a state that no other goroutine expects.
 */
#include "base/panic.h"
#include "sched/sched.h"

void mag_lock_thread(void)
{
    struct m *m = mag__m_self();
    if (m == NULL || m_in_rt(m))
        mag__park_misused("mag_lock_thread");
    if (m->lock_depth++ != 0)
        return;
    struct g *g = m_curg(m);
    g->flags |= G_LOCKED;
    at_ptr_store_rlx(&m->locked, g);
}

void mag_unlock_thread(void)
{
    struct m *m = mag__m_self();
    if (m == NULL || m_in_rt(m))
        mag__park_misused("mag_unlock_thread");
    if (m->lock_depth == 0)
        mag__panic_misuse("mag_unlock_thread without mag_lock_thread");
    if (--m->lock_depth != 0)
        return;
    m_curg(m)->flags &= (uint16_t)~G_LOCKED;
    at_ptr_store_rlx(&m->locked, NULL);
}

void mag__locked_give_away(struct m *m)
{
    struct p *p = m->p;
    if (p == NULL)
        return;
    m->p = NULL;
    bool work = !p_is_empty(p) || mag__globq_length(&mag__rt.globq) != 0;
    if (work && mag__m_run(p, false) == 0)
        return;
    mag__globq_put_list(&mag__rt.globq, mag__p_drain(p));
    mag__idle_put(&mag__rt.idle, p->index, false);
    if (mag__find_any_work())
        mag__wake_searcher(NULL);
}

bool mag__locked_wait(struct m *m)
{
    struct rt *rt = &mag__rt;
    mag__locked_give_away(m);
    mag__lock_take(&rt->m_lock);
    if (mag__m_is_dead(m)) {
        mag__lock_give(&rt->m_lock);
        return false;
    }
    m->locked_parked = true;
    rt->nlocked_ms++;
    bool deadlock = mag__m_is_deadlock_locked();
    mag__lock_give(&rt->m_lock);
    if (deadlock)
        mag__rt_done(DONE_DEADLOCK);
    mag__parker_park(&m->parker, OS_FOREVER);
    if (m->handed_exit)
        return false;
    p_acquire(m, m->handed);
    m->handed = NULL;
    return true;
}

void mag__locked_run(struct m *m, struct g *g)
{
    struct rt *rt = &mag__rt;
    mag__lock_take(&rt->m_lock); /* it no longer counts as waiting before anyone can count again */
    struct m *target = at_ptr_load_rlx(&rt->ms);
    while (target != NULL && at_ptr_load_rlx(&target->locked) != g)
        target = target->next_all;
    must(target != NULL);
    if (target->locked_parked) {
        target->locked_parked = false;
        rt->nlocked_ms--;
        target->handed = m->p;
        mag__lock_give(&rt->m_lock);
        m->p = NULL;
        mag__parker_unpark(&target->parker);
        return;
    }
    mag__lock_give(&rt->m_lock);
    /* its thread is still on the way to its bed: the goroutine takes another round */
    mag__globq_put(&rt->globq, g);
    mag__find_moved(m->p);
    cpu_relax();
}
