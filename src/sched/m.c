/* SPDX-License-Identifier: MIT */
/* m.c: threads: made when a P needs one, parked when there is nothing to do, ended when there are too many.
 *
 * Invariants  rt.nms counts Ms whose thread runs or is about to; rt.nidle_ms of them are in rt.idle_ms
 *             an M that is taken off the idle list is given a P, or told to end, before it is unparked
 * Ordering    MS1  list head release (new_m) -> acquire (reap, dump): without this a reader could walk into an M that is
 *                  not written yet.
 * Idle        as many parked Ms as there are Ps sleep without a deadline, so that an idle process has no wake-ups. What
 *             is more than that ends after mag__m_idle_exit; but not who keeps the time or sits in the poller: the others, asleep,
 *             would not know that it is their turn.
 * Deadlock    when the last M parks, nobody runs, no goroutine is outside, and the process has no thread but the runtime's
 *             and mag_run's caller, then nothing can ever happen again.
 */
#include "base/panic.h"
#include "sched/sanitize.h"
#include "sched/netpoll.h"
#include "sched/sched.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { PATIENCE = 10 }; /* tries for a stack, about 100 ms apart, before waiting for one counts as forever */

int64_t mag__m_idle_exit = (int64_t)5 * 1000000000;

struct rt mag__rt;

/* ---- identity ---- */

static __thread struct m *self __attribute__((tls_model("initial-exec")));

ptrdiff_t mag__m_self_at;

/* Before any other constructor that may call us. */
__attribute__((constructor(101))) static void find_self(void)
{
    char *thread;
#if defined(__x86_64__)
    __asm__ volatile("movq %%fs:0, %0" : "=r"(thread));
#else
    __asm__ volatile("mrs %0, tpidr_el0" : "=r"(thread));
#endif
    mag__m_self_at = (char *)&self - thread;
}

NOIPA void mag__m_set_self(struct m *m) { self = m; }

/* ---- the arena ---- */

struct arena *mag__arena_new(void)
{
    struct arena *a = calloc(1, sizeof *a);
    if (a == NULL)
        return NULL;
    mag__g_heap_init(&a->gs);
    mag__stack_init(&a->stacks);
    return a;
}

void mag__arena_free(struct arena *a)
{
    mag__local_clear(&a->gs);
    mag__g_heap_fini(&a->gs);
    mag__stack_fini(&a->stacks);
    mag__poll_fini(&a->poll);
    free(a);
}

/* ---- the thread ---- */

/* The thread's last act. The runtime may have ended without it. */
static void leave(struct m *m)
{
    struct rt *rt = &mag__rt;
    mag__m_set_self(NULL);
    mag__lock_take(&rt->m_lock);
    struct arena *last = NULL;
    if (m->orphan != NULL) {
        if (--m->orphan->users == 0)
            last = m->orphan;
    } else {
        m->gone = true;
        at_32_bump_owner(&rt->nms, (uint32_t)-1);
        at_32_add_rlx(&rt->ended, 1);
    }
    bool orphan = m->orphan != NULL;
    mag__lock_give(&rt->m_lock);
    if (!orphan) {
        mag__os_futex_wake(&rt->ended, INT32_MAX);
        return;
    }
    if (last != NULL)
        mag__arena_free(last);
    free(m);
}

static void *m_main(void *arg)
{
    struct m *m = arg;
    mag__m_set_self(m);
    at_32_store_rlx(&m->in_rt, 1);
    at_ptr_store_rlx(&m->curg, &m->g0);
    at_32_store_rlx(&m->tid, mag__os_thread_id());
    san_thread(&m->g0);
    if (m->p != NULL)
        p_acquire(m, m->p);
    mag__park_loop(m);
    leave(m);
    return NULL;
}

/* A spare M becomes a new one. Others may look at its words at any time (p->m still points here): what they look at is atomic, and
 * tok, which they compare, has been NULL since its thread ended. The rest was the thread's own, and that has been joined. */
static void renew(struct m *m)
{
    must(at_ptr_load_rlx(&m->tok) == NULL && m->deferred == NULL && m->orphan == NULL);
    at_ptr_store_rlx(&m->locked, NULL);
    at_32_store_rlx(&m->announced, 0);
    at_32_store_rlx(&m->loose, 0);
    at_32_store_rlx(&m->brisk, 0);
    m->p = m->handed = NULL;
    m->searching = m->keeper = m->ends = m->handed_search = m->handed_exit = false;
    m->lock_depth = 0;
}

/* Ms stay in rt.ms until the run is over: sysmon, dumps and p->m may look at them at any time. */
static struct m *new_m_locked(struct rt *rt)
{
    struct m *m = rt->spare_ms;
    if (m != NULL) {
        rt->spare_ms = m->next_idle;
        renew(m);
    } else {
        m = aligned_alloc(CACHE_LINE, (sizeof *m + CACHE_LINE - 1) / CACHE_LINE * CACHE_LINE);
        if (m == NULL)
            return NULL;
        memset(m, 0, sizeof *m);
        m->next_all = at_ptr_load_rlx(&rt->ms);
        m->id = rt->m_ids++;
        at_ptr_store_rel(&rt->ms, m); /* MS1 */
    }
    m->epoch = at_32_load_rlx(&rt->epoch);
    m->arena = rt->arena;
    at_32_store_rlx(&m->live, 1);
    at_32_bump_owner(&rt->nms, 1);
    return m;
}

static void spare_locked(struct rt *rt, struct m *m)
{
    at_32_store_rlx(&m->live, 0);
    m->next_idle = rt->spare_ms;
    rt->spare_ms = m;
}

static COLD void warn_threads(struct rt *rt, int error)
{
    mag__lock_take(&rt->m_lock);
    bool first = !rt->warned_threads;
    rt->warned_threads = true;
    mag__lock_give(&rt->m_lock);
    if (!first)
        return;
    if (error == 0)
        mag__panic_say("max_threads (%u) reached: goroutines wait for a thread", rt->max_threads);
    else
        mag__panic_say("cannot start a thread (%s)%s", strerror(-error),
                       at_32_load_rlx(&rt->nms) != 0 ? ": goroutines wait for one of those there are" : "");
}

bool mag__m_can_run(void)
{
    struct rt *rt = &mag__rt;
    if (at_32_load_rlx(&rt->nidle_ms) != 0 || at_32_load_rlx(&rt->nms) < rt->max_threads)
        return true;
    warn_threads(rt, 0);
    return false;
}

/* A new thread with this P. */
static COLD int start(struct p *p, bool searching)
{
    struct rt *rt = &mag__rt;
    mag__lock_take(&rt->m_lock);
    struct m *m = NULL;
    bool full = at_32_load_rlx(&rt->nms) >= rt->max_threads;
    if (!full)
        m = new_m_locked(rt);
    mag__lock_give(&rt->m_lock);
    if (m == NULL) {
        warn_threads(rt, full ? 0 : -ENOMEM);
        return full ? -EAGAIN : -ENOMEM;
    }
    m->p = p;
    m->searching = searching;
    char name[16];
    snprintf(name, sizeof name, "magpie-m%u", m->id);
    int r = mag__os_thread_start(&m->thread, name, m_main, m);
    if (r == 0)
        return 0;
    mag__lock_take(&rt->m_lock);
    at_32_bump_owner(&rt->nms, (uint32_t)-1);
    spare_locked(rt, m);
    mag__lock_give(&rt->m_lock);
    warn_threads(rt, r);
    return r;
}

/* ---- parking ---- */

int mag__m_run(struct p *p, bool searching)
{
    struct rt *rt = &mag__rt;
    mag__lock_take(&rt->m_lock);
    struct m **at = &rt->idle_ms;
    if (*at != NULL && at_32_load_rlx(&(*at)->sits) != 0 && (*at)->next_idle != NULL)
        at = &(*at)->next_idle; /* who sits in the poller is the last to be sent */
    struct m *m = *at;
    if (m != NULL) {
        *at = m->next_idle;
        at_32_bump_owner(&rt->nidle_ms, (uint32_t)-1);
    }
    mag__lock_give(&rt->m_lock);
    if (m == NULL)
        return start(p, searching);
    m->handed = p;
    m->handed_search = searching;
    mag__netpoll_unpark(m);
    return 0;
}

static uint64_t live_goroutines(void)
{
    uint64_t n = at_64_load_rlx(&mag__rt.count.spawned) - at_64_load_rlx(&mag__rt.count.finished);
    for (uint32_t i = 0; i < rt_made(); i++)
        n += at_64_load_rlx(&p_at(i)->count.spawned) - at_64_load_rlx(&p_at(i)->count.finished);
    return n;
}

bool mag__m_is_deadlock_locked(void)
{
    struct rt *rt = &mag__rt;
    uint32_t nms = at_32_load_rlx(&rt->nms);
    if (rt->m_ids == 0 /* main has not begun yet */ || at_32_load_rlx(&rt->nidle_ms) + rt->nlocked_ms != nms || rt->by_start)
        return false;
    if (mag__netpoll_is_wanted() || at_32_load_rlx(&rt->arena->transfers) != 0 || mag__clock_next() != TIMER_NEVER || at_32_load_acq(&rt->firing) != 0) /* CLK4 */
        return false;
    if (at_32_load_rlx(&rt->nnostack) != 0 && at_32_load_rlx(&rt->nostack_tries) <= PATIENCE)
        return false;
    return mag__globq_length(&rt->globq) == 0 && mag__globq_length(&rt->held) == 0 && live_goroutines() != 0 &&
           mag__os_thread_count() == (int)(at_32_load_rlx(&rt->nms) + at_32_load_rlx(&rt->helpers)) + 2;
}

void mag__m_check_deadlock(void)
{
    mag__lock_take(&mag__rt.m_lock);
    bool deadlock = mag__m_is_deadlock_locked();
    mag__lock_give(&mag__rt.m_lock);
    if (deadlock)
        mag__rt_done(DONE_DEADLOCK);
}

/* The deadline passed: the M ends, unless it was just given something. */
static bool take_off_idle_list(struct m *m)
{
    struct rt *rt = &mag__rt;
    bool found = false;
    mag__lock_take(&rt->m_lock);
    for (struct m **at = &rt->idle_ms; *at != NULL; at = &(*at)->next_idle)
        if (*at == m) {
            *at = m->next_idle;
            at_32_bump_owner(&rt->nidle_ms, (uint32_t)-1);
            found = true;
            break;
        }
    mag__lock_give(&rt->m_lock);
    return found;
}

bool mag__m_park(struct m *m)
{
    struct rt *rt = &mag__rt;
    must(m->p == NULL && !m->searching);
    mag__lock_take(&rt->m_lock);
    if (mag__m_is_dead(m)) {
        mag__lock_give(&rt->m_lock);
        return false;
    }
    m->next_idle = rt->idle_ms;
    rt->idle_ms = m;
    at_32_bump_owner(&rt->nidle_ms, 1);
    uint32_t idle = at_32_load_rlx(&rt->nidle_ms);
    bool deadlock = mag__m_is_deadlock_locked();
    mag__lock_give(&rt->m_lock);
    if (deadlock)
        mag__rt_done(DONE_DEADLOCK);
    hostile_point();
    int64_t exit_at = idle > rt_procs() ? mag__os_now() + mag__m_idle_exit : OS_FOREVER;
    struct harvest h;
    for (;;) {
        mag__retake_before_sleep(m);
        int64_t until = mag__clock_keep();
        bool keeper = until != TIMER_NEVER;
        enum slept how = mag__netpoll_sleep(m, mag__clock_coalesce(until), keeper ? OS_FOREVER : exit_at, &h);
        mag__clock_kept(until);
        if (how == SLEPT_TOKEN)
            break;
        int64_t now = mag__os_now();
        bool timers = now >= until, due = timers || h.n != 0;
        if (timers)
            at_64_store_rlx(&mag__rt.keeper_woke, (uint64_t)now);
        struct p *taken = NULL;
        if (due && !mag__idle_some(&mag__rt.idle) && (taken = mag__retake_from_hog(m)) == NULL) {
            mag__netpoll_bring_in(NULL, &h); /* every P is busy: one may have to be retaken */
            if (timers && mag__clock_run_all(NULL))
                mag__sysmon_wake();
            continue;
        }
        if (!due && (how == SLEPT_AGAIN || keeper || now < exit_at))
            continue;
        if (!take_off_idle_list(m)) {
            if (taken != NULL)
                mag__retake_pass_on(taken);
            mag__parker_park(&m->parker, OS_FOREVER); /* the token is on its way */
            break;
        }
        if (!due) {
            mag__m_reap(); /* sysmon may be fast asleep */
            return false;
        }
        if (taken != NULL) {
            p_acquire(m, taken);
        } else if (!mag__p_take_idle(m)) {
            mag__netpoll_bring_in(NULL, &h);
            return mag__m_park(m);
        }
        m->keeper = timers;
        if (taken != NULL)
            mag__netpoll_bring_first(&h);
        else
            mag__netpoll_bring_in(m->p, &h);
        return true;
    }
    if (m->handed_exit)
        return false;
    p_acquire(m, m->handed);
    m->searching = m->handed_search;
    m->handed = NULL;
    mag__netpoll_bring_in(m->p, &h);
    return true;
}

/* Joins threads that have ended by themselves. */
void mag__m_reap(void)
{
    struct rt *rt = &mag__rt;
    for (struct m *m = at_ptr_load_acq(&rt->ms); m != NULL; m = m->next_all) { /* MS1 */
        mag__lock_take(&rt->m_lock);
        bool gone = m->gone;
        m->gone = false;
        mag__lock_give(&rt->m_lock);
        if (!gone)
            continue;
        mag__os_thread_join(&m->thread);
        mag__lock_take(&rt->m_lock);
        spare_locked(rt, m);
        mag__lock_give(&rt->m_lock);
    }
}

void mag__rt_done(enum rt_done how)
{
    uint32_t not_yet = DONE_NOT;
    if (at_32_cas_rlx(&mag__rt.done, &not_yet, how))
        mag__os_futex_wake(&mag__rt.done, 1);
}
