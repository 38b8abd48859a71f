/* SPDX-License-Identifier: MIT */
/* p.c: Ps: made, retired, called back.
 *
 * Changing    mag_set_procs publishes the new number first: thieves and the global queue's shares go by it. A P that is too
 *             many becomes RETIRING and gets attention; whoever holds it drains it at the next scheduling step. If it is
 *             idle, or its M is in user code, it is taken and drained at once. No thread waits for another, except for the
 *             end of a drain that has begun when the P is wanted again.
 * Keeping     a retired P stays in memory with its counters, and is the first to come back.
 * Ordering    PR1  procs, made, order release (set_procs) -> acquire (rt_procs, thieves): without this a thief could walk
 *                  to a P that it sees unwritten.
 *             PR3  alone release (admit_company) -> alone acquire (end_solitude): without this a thief could meet the
 *                  owner's last plain steps in the ring.
 *             PR2  life release (retire) -> life acquire (set_procs, shutdown): without this a P could be called back while
 *                  its drain is not over.
 */
#include "base/panic.h"
#include "sched/sched.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

static struct p *new_p(uint32_t index)
{
    struct p *p = mag__os_reserve(sizeof *p, 0); /* zero-filled, page-aligned: no two Ps share a page */
    if (p == NULL)
        return NULL;
    p->index = index;
    mag__runq_init(&p->runq, 0);
    mag__lifo_init(&p->lifo, 0);
    rng_init(&p->rng, mag__os_random());
    at_32_store_rlx(&p->hog_tick, UINT32_MAX);
    p->global_at = GLOBAL_EVERY;
    p->timers_at = p->turn_in = TIMERS_EVERY;
    mag__timer_init(&p->timers);
    at_32_store_rlx(&p->rescued, 1); /* the first spawn of a run wakes a helper: nothing is known about its owner yet */
    at_32_store_rlx(&p->life, P_RETIRED);
    return p;
}

/* ---- retiring ---- */

struct g_list mag__p_drain(struct p *p)
{
    struct g_list list = mag__runq_drain_owner(&p->runq);
    struct g *g;
    while ((g = mag__lifo_pop_owner(&p->lifo, false)) != NULL)
        g_list_put(&list, g);
    return list;
}

bool mag__p_retire(struct p *p)
{
    uint32_t life = P_RETIRING;
    if (!at_32_cas_rlx(&p->life, &life, P_DRAINING))
        return false;
    struct g_list list = mag__p_drain(p);
    mag__g_cache_drain(&mag__rt.arena->gs, &p->gs);
    mag__stack_cache_drain(&mag__rt.arena->stacks, mag__rt.stack_class, &p->stacks);
    at_32_store_rel(&p->life, P_RETIRED); /* PR2 */
    if (list.n != 0)
        mag__wake_global_list(list);
    return true;
}

/* Takes a retiring P from where it can be taken. */
static void collect(struct p *p)
{
    struct m *m = at_ptr_load_acq(&p->m); /* TOK2 */
    if (at_32_load_rlx(&p->life) != P_RETIRING)
        return;
    if (!mag__idle_take(&mag__rt.idle, p->index) && !(m != NULL && mag__token_take(m, p, LOST_OTHER)))
        return; /* its M is in the runtime and will see to it */
    if (!mag__p_retire(p))
        mag__idle_put(&mag__rt.idle, p->index, false);
}

void mag__p_collect_retiring(void)
{
    if (rt_made() == rt_procs() || !mag__lock_try(&mag__rt.procs_lock))
        return;
    for (uint32_t i = rt_procs(); i < rt_made(); i++)
        collect(p_at(i));
    mag__lock_give(&mag__rt.procs_lock);
}

/* ---- the number ---- */

static int make_up_to(struct rt *rt, uint32_t procs)
{
    if (rt->orders[procs] == NULL && (rt->orders[procs] = mag__order_new(procs)) == NULL)
        return -ENOMEM;
    for (uint32_t i = at_32_load_rlx(&rt->made); i < procs; i++) {
        if ((rt->ps[i] = new_p(i)) == NULL)
            return -ENOMEM;
        at_32_store_rel(&rt->made, i + 1); /* PR1 */
    }
    return 0;
}

static void publish(struct rt *rt, uint32_t procs)
{
    at_ptr_store_rel(&rt->order, rt->orders[procs]); /* PR1 */
    at_32_store_rel(&rt->procs, procs);              /* PR1 */
}

/* True: nobody holds it, the caller makes it idle. */
static bool call_back(struct p *p)
{
    at_32_and_rlx(&p->attention, ~(uint32_t)ATTEND_RETIRE);
    uint32_t life = P_RETIRING;
    if (at_32_cas_rlx(&p->life, &life, P_LIVE))
        return false; /* still somebody's: it goes on */
    while (at_32_load_acq(&p->life) == P_DRAINING) /* PR2 */
        mag__os_nap(1000);
    at_32_store_rlx(&p->life, P_LIVE);
    return true;
}

void mag__p_admit_company(struct p *p)
{
    at_32_store_rel(&p->runq.alone, 0); /* PR3 */
    at_32_and_rlx(&p->attention, ~(uint32_t)ATTEND_COMPANY);
}

/* The first P has been alone. Its holder says when it no longer counts on that; if nobody is in the runtime with it, the P is
 * taken and told. */
static void end_solitude(struct p *p)
{
    at_32_or_rlx(&p->attention, ATTEND_COMPANY);
    while (at_32_load_acq(&p->runq.alone) != 0) { /* PR3 */
        struct m *m = at_ptr_load_acq(&p->m); /* TOK2 */
        if (mag__idle_take(&mag__rt.idle, p->index)) {
            mag__p_admit_company(p);
            mag__idle_put(&mag__rt.idle, p->index, false);
        } else if (m != NULL && mag__token_take(m, p, LOST_OTHER)) {
            mag__p_admit_company(p);
            if (mag__m_run(p, false) == 0)
                return;
            mag__globq_put_list(&mag__rt.globq, mag__p_drain(p));
            mag__idle_put(&mag__rt.idle, p->index, false);
        } else {
            mag__os_nap(1000);
        }
    }
}

static void grow(struct rt *rt, uint32_t from, uint32_t to)
{
    bool free_ps[PROCS_MAX];
    if (from == 1)
        end_solitude(p_at(0));
    for (uint32_t i = from; i < to; i++)
        free_ps[i] = call_back(p_at(i));
    mag__idle_grow(&rt->idle, to);
    publish(rt, to);
    mag__os_barrier_all(); /* with one P nobody fenced before it looked whether to wake: now they all have */
    for (uint32_t i = from; i < to; i++)
        if (free_ps[i])
            mag__idle_put(&rt->idle, i, false);
}

static void shrink(struct rt *rt, uint32_t from, uint32_t to)
{
    publish(rt, to);
    for (uint32_t i = to; i < from; i++) {
        at_32_store_rlx(&p_at(i)->life, P_RETIRING);
        at_32_or_rlx(&p_at(i)->attention, ATTEND_RETIRE);
        collect(p_at(i));
    }
}

/* Under the lock: what was asked for meanwhile wins over what the machine allows; and shutdown, having passed this lock, counts on
 * every P that exists having been told to stop. */
static int refused(const struct rt *rt, bool follow)
{
    if (follow && at_32_load_rlx(&rt->procs_fixed) != 0)
        return -ECANCELED;
    return at_32_load_rlx(&rt->state) == RT_STOPPING ? -ESHUTDOWN : 0;
}

int mag__p_set_procs(uint32_t procs, bool follow)
{
    struct rt *rt = &mag__rt;
    mag__lock_take(&rt->procs_lock);
    uint32_t old = rt_procs();
    int r = refused(rt, follow);
    if (r == 0)
        r = make_up_to(rt, procs);
    if (r == 0 && procs > old)
        grow(rt, old, procs);
    else if (r == 0 && procs < old)
        shrink(rt, old, procs);
    mag__lock_give(&rt->procs_lock);
    if (r == 0 && mag__find_any_work())
        mag__wake_searcher(NULL);
    return r == 0 ? (int)old : r;
}

int mag__p_init_all(uint32_t procs)
{
    struct rt *rt = &mag__rt;
    at_32_store_rlx(&rt->procs, 0);
    at_32_store_rlx(&rt->made, 0);
    mag__idle_init(&rt->idle, procs);
    int r = make_up_to(rt, procs);
    if (r != 0) {
        mag__p_fini_all();
        return r;
    }
    if (procs == 1)
        at_32_store_rlx(&p_at(0)->runq.alone, 1);
    grow(rt, 0, procs);
    return 0;
}

void mag__p_fini_all(void)
{
    struct rt *rt = &mag__rt;
    for (uint32_t i = 0; i < rt_made(); i++) {
        mag__timer_fini(&rt->ps[i]->timers);
        mag__os_unmap(rt->ps[i], sizeof *rt->ps[i]);
        rt->ps[i] = NULL;
    }
    for (uint32_t i = 0; i <= PROCS_MAX; i++) {
        free(rt->orders[i]);
        rt->orders[i] = NULL;
    }
    at_ptr_store_rlx(&rt->order, NULL);
    at_32_store_rlx(&rt->procs, 0);
    at_32_store_rlx(&rt->made, 0);
}

bool mag__p_take_idle(struct m *m)
{
    int i = mag__m_is_dead(m) ? -1 : mag__idle_take_any(&mag__rt.idle, 0);
    if (i < 0)
        return false;
    p_acquire(m, p_at((uint32_t)i));
    mag__token_settle(m);
    if (unlikely((m_curg(m)->flags & G_HOG) != 0))
        mag__retake_mark(m->p, m_curg(m));
    return true;
}
