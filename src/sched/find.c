/* SPDX-License-Identifier: MIT */
/* find.c: what runs next. One function a step, in the order of the search.
 *
 *   local    runnext, at most NEXT_STREAK times in a row; every GLOBAL_EVERY slices one G from the global queue; the newest of
 *            those that a spawn pushed aside (core/lifo.c), at most LIFO_STREAK times; the ring
 *   global   this P's share of the global queue
 *   poll     what has come for those who wait for file descriptors (netpoll.c); before it, what a P that got stuck leaves lying
 *   steal    half of somebody's ring, for about as long as putting a thread to sleep and waking it would cost; at the end,
 *            and at once by who was woken for it, also a runnext whose owner has not come for it
 *   give up  the P becomes idle, every source is looked at once more (core/idle.c says why), and the M sleeps
 *
 * A G handed over through runnext shares its predecessor's slice: it does not count as one.
 */
#include "base/panic.h"
#include "sched/find.h"
#include "sched/netpoll.h"

enum {
    SEARCH_NS = 20000,     /* about what a futex wake costs the sleeper */
    NEXT_WAIT_NS = 3000,   /* a runnext that its owner leaves this long is taken */
    PAUSES = 16,           /* between two rounds */
    RESCUE_MEMORY = 3,
    FEW_STOLEN = 16,       /* slices */
    GATHER = 128,          /* pauses: about two microseconds */
    STUCK_NS = 200000,     /* a slice that has lasted so long, seen from another P */
    HELD_EVERY = 8,        /* turns in a crowd between two held goroutines, once there is room for them */
};

/* The holder of p has something to do before it runs anybody. */
static bool must_attend(struct p *p) { return (at_32_load_rlx(&p->attention) & ATTEND_AT_ONCE) != 0; }

/* ---- local: the rest is in find.h ---- */

/* With more runnable goroutines than the ring holds, those in it would go round and round past the rest. Now and then its
 * older half changes places with as many from the global queue. */
static void rotate(struct p *p)
{
    struct globq *q = &mag__rt.globq;
    struct g *in[RUNQ_SIZE / 2];
    struct crate *out = mag__globq_new_crate(q);
    if (out == NULL)
        return; /* no memory: each comes in its turn of the global queue all the same, only later */
    out->n = mag__runq_half_into_owner(&p->runq, out->at);
    uint32_t n = mag__globq_get_many(q, in, out->n);
    if (out->n != 0)
        mag__globq_put_crate(q, out);
    else
        mag__globq_return_crate(q, out);
    mag__runq_put_many_owner(&p->runq, in, n); /* no more than just left it */
    mag__find_moved(p);
}

void mag__find_moved(struct p *p)
{
    if (rt_procs() > 1 && mag__idle_somebody(&mag__rt.idle) && mag__find_any_work())
        mag__wake_searcher(&p->count);
}

struct g *mag__find_one_global(struct p *p)
{
    p->global_at = at_32_load_rlx(&p->tick) + GLOBAL_EVERY;
    struct g *one = mag__globq_length(&mag__rt.globq) == 0 ? NULL : mag__globq_get(&mag__rt.globq);
    mag__netpoll_glance(p); /* which may bring more of the queue into the ring */
    if (one == NULL)
        return NULL;
    COUNT_OWNER(&p->count, global_gets);
    if (++p->rotate_in >= ROTATE_EVERY && mag__runq_length(&p->runq) > RUNQ_SIZE / 2 && !rt_urgent()) {
        p->rotate_in = 0;
        rotate(p); /* after the first of the queue, which may be urgent, is out of it */
    }
    return one;
}

struct g *mag__find_in_turn(struct p *p)
{
    struct g *g = NULL;
    uint32_t tick = at_32_load_rlx(&p->tick);
    if ((int32_t)(tick - p->timers_at) >= 0 && mag__clock_run_own(p))
        g = mag__find_runnext(p);
    if (g == NULL && (int32_t)(tick - p->global_at) >= 0)
        g = mag__find_one_global(p);
    int32_t timers = (int32_t)(p->timers_at - tick), global = (int32_t)(p->global_at - tick), next = timers < global ? timers : global;
    p->turn_in = next > 0 ? (uint32_t)next : 1;
    return g;
}

void mag__find_passed_over(struct p *p)
{
    if (mag__runq_next_peek(&p->runq) == NULL)
        return;
    at_32_store_rlx(&p->next_streak, 1); /* it stays the next one, and whoever gives up, or adds a P, sees it */
    if (rt_procs() == 1 || likely(!mag__idle_somebody(&mag__rt.idle)))
        return;
    at_32_store_rlx(&p->next_streak, 0);
    struct g *g = mag__runq_next_take_owner(&p->runq);
    if (g != NULL)
        mag__wake_tail(p, g);
}

/* ---- global ---- */

struct g *mag__find_global(struct p *p)
{
    uint32_t have = mag__globq_length(&mag__rt.globq);
    if (have == 0)
        return NULL;
    struct g *at[RUNQ_SIZE / 2];
    uint32_t n = mag__globq_get_many(&mag__rt.globq, at, mag__globq_share(have, rt_procs()));
    if (n == 0)
        return NULL;
    COUNT_OWNER(&p->count, global_gets);
    if (n > 1) {
        hostile_point(); /* nobody sees them */
        mag__runq_put_many_owner(&p->runq, at + 1, n - 1); /* the ring was empty, the share is at most half of it */
        mag__find_moved(p);
    }
    return at[0];
}

/* ---- steal ---- */

/* Takes a runnext whose owner had time enough to come for it. */
static struct g *steal_next(struct p *victim)
{
    struct g *g = mag__runq_next_peek(&victim->runq);
    if (g == NULL)
        return NULL;
    for (int64_t until = mag__os_now() + NEXT_WAIT_NS; mag__os_now() < until;) {
        cpu_relax();
        if (mag__runq_next_peek(&victim->runq) != g)
            return NULL;
    }
    if (!mag__runq_next_steal(&victim->runq, g))
        return NULL;
    at_32_store_rlx(&victim->rescued, RESCUE_MEMORY);
    return g;
}

/* Half of its ring; where that is empty, the oldest of those that were pushed aside. */
static struct g *steal_queued(struct p *p, struct p *victim, uint32_t *n)
{
    if (mag__rt.steal_min > 1 && p_length(victim) < mag__rt.steal_min)
        return NULL;
    struct g *g = mag__runq_steal(&p->runq, &victim->runq, 1, n);
    if (g == NULL && mag__lifo_length(&victim->lifo) != 0 && (g = mag__lifo_steal(&victim->lifo)) != NULL)
        *n = 1;
    return g;
}

static void count_stolen(struct p *p, uint32_t n)
{
    p->stole_tick = at_32_load_rlx(&p->tick);
    COUNT_OWNER(&p->count, steals);
    COUNT_OWNER_N(&p->count, stolen, n);
}

static struct g *steal_round(struct p *p, bool nexts, bool called)
{
    struct order_walk w = mag__order_begin(at_ptr_load_acq(&mag__rt.order) /* PR1 */, &p->rng);
    uint32_t i, n;
    while (mag__order_next(&w, &i)) {
        struct p *victim = p_at(i);
        if (victim == p || mag__idle_is(&mag__rt.idle, i) || mag__netpoll_is_brisk(victim, called ? BRISK_CALLED : BRISK_BUSY) || hostile_chance(8))
            continue;
        struct g *g = steal_queued(p, victim, &n);
        if (g == NULL && nexts && (g = steal_next(victim)) != NULL)
            n = 1;
        if (g != NULL) {
            count_stolen(p, n);
            return g;
        }
    }
    COUNT_OWNER(&p->count, failed_steals);
    return NULL;
}

/* A P that would ask the kernel for more looks after one of the others first. If that one has begun no slice for a while, its thread computes
 * or has lost its core, and what waits there came before what waits in the kernel. */
static struct g *steal_stuck(struct p *p)
{
    uint32_t procs = rt_procs(), n;
    if (procs == 1)
        return NULL;
    int64_t now = mag__os_now();
    uint32_t i = p->other.index;
    if (i == p->index || i >= procs || mag__idle_is(&mag__rt.idle, i) || at_32_load_rlx(&p_at(i)->tick) != p->other.tick) {
        i = (p->index + 1 + rng_below(&p->rng, procs - 1)) % procs;
        p->other = (struct progress){.at = now, .index = i, .tick = at_32_load_rlx(&p_at(i)->tick)};
        return NULL;
    }
    if (now - p->other.at < STUCK_NS)
        return NULL;
    struct g *g = steal_queued(p, p_at(i), &n);
    if (g == NULL && (g = steal_next(p_at(i))) != NULL)
        n = 1;
    if (g != NULL) {
        count_stolen(p, n);
        if (n > 1)
            mag__find_moved(p);
    }
    return g;
}

/* What was stolen last was little and is done already: stealing it cost more than running it, for the victim too, whose lines it
 * takes. A moment later there is more. */
static void let_them_gather(void)
{
    for (int i = 0; i < GATHER; i++)
        cpu_relax();
}

/* Changes when any of the others begins a slice. */
static uint32_t slices_of_others(const struct p *p)
{
    uint32_t sum = 1;
    for (uint32_t i = 0; i < rt_procs(); i++)
        sum += i == p->index ? 0 : at_32_load_rlx(&p_at(i)->tick);
    return sum != 0 ? sum : 1;
}

/* Is there anybody who may have something for p soon? */
static bool others_are_busy(const struct p *p)
{
    for (uint32_t i = 0; i < rt_procs(); i++)
        if (i != p->index && !mag__idle_is(&mag__rt.idle, i) && !mag__netpoll_is_brisk(p_at(i), BRISK_BUSY))
            return true;
    return false;
}

/* Looks at the others for a while. One M at a time does. */
static struct g *steal(struct m *m, struct p *p)
{
    if (rt_procs() == 1 || unlikely(must_attend(p)))
        return NULL; /* with attention wanted the ring need not be empty */
    bool woken = m->searching; /* its waker had something in mind, and that was a wake-up ago */
    if (!woken && !(m->searching = mag__idle_search_begin(&mag__rt.idle)))
        return NULL;
    if (at_32_load_rlx(&p->tick) - p->stole_tick < FEW_STOLEN)
        let_them_gather();
    /* If everybody else is idle, or through with what he has in no time, what comes next comes from the kernel, a timer or a thread outside:
     * it is awaited asleep. So it is if the others still compute what they did when this P last looked in vain. */
    bool alone = p->vain == slices_of_others(p) || !others_are_busy(p);
    int64_t end = mag__os_now() + (alone ? 0 : SEARCH_NS);
    for (;;) {
        bool last = mag__os_now() >= end;
        struct g *g = steal_round(p, last || woken, woken);
        woken = false;
        if (g == NULL)
            g = mag__find_global(p);
        if (g == NULL && last && mag__clock_run_all(p) && (g = mag__find_runnext(p)) == NULL)
            g = mag__find_queued(p);
        if (g != NULL || last || must_attend(p)) {
            p->vain = g != NULL ? 0 : slices_of_others(p);
            return g;
        }
        for (int i = 0; i < PAUSES; i++)
            cpu_relax();
    }
}

/* ---- in a crowd ---- */

/* A goroutine that will compute for long waits until fewer do. True: it was held back. */
static bool hold_back(struct g *g)
{
    if (!rt_crowded() || !mag__retake_expects_hog(g))
        return false;
    mag__globq_put(&mag__rt.held, g);
    return true;
}

static struct g *let_one_in(void)
{
    if (mag__globq_length(&mag__rt.held) == 0 || rt_crowded())
        return NULL;
    struct g *g = mag__globq_get(&mag__rt.held);
    if (g != NULL)
        g->flags &= (uint16_t)~G_HOG; /* it has waited its turn */
    return g;
}

/* The local steps and the global queue once more, for the time when too many compute without a P: one at a time, and those
 * that would only add to them stand aside. */
static struct g *find_in_crowd(struct p *p)
{
    struct g *g;
    find_begin_slice(p);
    mag__clock_run_own(p);
    if (++p->held_in >= HELD_EVERY) {
        p->held_in = 0;
        if ((g = let_one_in()) != NULL) {
            mag__find_passed_over(p);
            return g;
        }
    }
    while ((g = mag__find_runnext(p)) != NULL || (g = mag__find_queued(p)) != NULL)
        if (!hold_back(g))
            return g;
    for (uint32_t n = mag__globq_length(&mag__rt.globq); n > 0; n--) {
        if ((g = mag__globq_get(&mag__rt.globq)) == NULL)
            break;
        if (!hold_back(g)) {
            COUNT_OWNER(&p->count, global_gets);
            return g;
        }
    }
    return let_one_in();
}

/* ---- give up ---- */

bool mag__find_any_work(void)
{
    if (mag__globq_length(&mag__rt.globq) != 0 || (mag__globq_length(&mag__rt.held) != 0 && !rt_crowded()))
        return true;
    for (uint32_t i = 0; i < rt_procs(); i++)
        if ((p_length(p_at(i)) >= mag__rt.steal_min || p_passed_over(p_at(i))) && !mag__netpoll_is_brisk(p_at(i), BRISK_IDLE))
            return true;
    return false;
}

/* Lets go of the P. True: there is work after all, and the M has a P again. */
static bool give_up(struct m *m)
{
    struct p *p = m->p;
    if (unlikely(at_32_load_rlx(&mag__rt.nnostack) != 0 && p->stacks.n != 0)) {
        mag__stack_cache_drain(&mag__rt.arena->stacks, mag__rt.stack_class, &p->stacks);
        mag__park_retry();
    }
    m->p = NULL;
    at_64_store_rlx(&p->io_at, 0);
    bool searched = m->searching;
    m->searching = false;
    mag__idle_put(&mag__rt.idle, p->index, searched);
    hostile_point();
    if (!mag__find_any_work())
        return false;
    int i = mag__idle_take_any(&mag__rt.idle, p->index);
    if (i < 0)
        return false; /* whoever has them will look here too before they give up */
    p_acquire(m, p_at((uint32_t)i));
    return true;
}

/* The searcher has work. Others relied on its search: is there more? */
static void pass_the_baton(struct m *m)
{
    m->searching = false;
    mag__idle_search_end(&mag__rt.idle);
    if (mag__idle_some(&mag__rt.idle) && mag__find_any_work())
        mag__wake_searcher(&m->p->count);
}

/* The P is to stop or to retire. False: the thread must end. */
static COLD bool attend(struct m *m)
{
    struct p *p = m->p;
    uint32_t why = at_32_load_rlx(&p->attention);
    bool stop = (why & ATTEND_STOP) != 0, searched = m->searching;
    if ((why & ATTEND_COMPANY) != 0) {
        mag__p_admit_company(p);
        if ((why & (ATTEND_STOP | ATTEND_RETIRE)) == 0)
            return true;
    }
    m->p = NULL;
    m->searching = false;
    if (stop) {
        mag__idle_put(&mag__rt.idle, p->index, searched);
        return false;
    }
    if (!mag__p_retire(p)) { /* it was called back meanwhile */
        m->p = p;
        m->searching = searched;
        return true;
    }
    if (searched)
        mag__idle_search_end(&mag__rt.idle);
    if (mag__find_any_work()) /* others relied on this search, or on this P to come for what it put into the global queue */
        mag__wake_searcher(NULL);
    return true;
}

struct g *mag__find_next(struct m *m)
{
    bool relied_on = false; /* it gave up searching, and there was work after all: perhaps for more than one */
    for (;;) {
        if (m->p == NULL && !mag__m_park(m))
            return NULL;
        struct p *p = m->p;
        if (unlikely(must_attend(p))) {
            if (!attend(m))
                return NULL;
            continue;
        }
        bool crowd = (at_32_load_rlx(&p->attention) & ATTEND_CROWD) != 0;
        if (unlikely(m->keeper)) {
            m->keeper = false;
            mag__clock_run_all(p);
        }
        struct g *g = NULL;
        if (unlikely((at_32_load_rlx(&p->attention) & ATTEND_OLD) != 0)) {
            at_32_and_rlx(&p->attention, ~(uint32_t)ATTEND_OLD);
            mag__wake_old(p);
        }
        if (unlikely((at_32_load_rlx(&p->attention) & ATTEND_GLOBAL) != 0)) {
            at_32_and_rlx(&p->attention, ~(uint32_t)ATTEND_GLOBAL);
            if (!crowd && (g = mag__find_one_global(p)) != NULL)
                mag__find_passed_over(p);
        }
        if (g == NULL)
            g = unlikely(crowd) ? find_in_crowd(p) : mag__find_near(p);
        if (g == NULL && unlikely(!p_is_empty(p)))
            continue; /* attention was wanted just then: what follows counts on an empty ring */
        if (g == NULL && mag__netpoll_is_wanted()) {
            g = steal_stuck(p);
            if (g == NULL && mag__netpoll_try(p))
                continue;
        }
        if (g == NULL && (g = steal(m, p)) != NULL && unlikely(crowd) && hold_back(g))
            continue;
        if (g != NULL) {
            if (m->searching)
                pass_the_baton(m);
            else if (relied_on)
                mag__find_moved(p);
            return g;
        }
        if (unlikely(at_32_load_rlx(&p->attention) != (crowd ? ATTEND_CROWD : 0)))
            continue;
        if (mag__netpoll_linger(p))
            continue;
        relied_on |= m->searching;
        if (give_up(m))
            continue;
        relied_on = false;
        if (!mag__m_park(m))
            return NULL;
    }
}
