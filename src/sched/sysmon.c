/* SPDX-License-Identifier: MIT */
/* sysmon.c: the thread that looks after the others when nobody else passes by.
 *
 * Duties      1 rescue: a runnable G waits while a P is idle: wake a searcher
 *             2 retake: a goroutine computes past its slice, or blocks, while others wait (retake.c)
 *             3 give memory back: stacks and descriptors that nobody needed for TRIM_NS
 *             4 follow the machine: affinity and quota change while a program runs
 *             5 print the schedtrace line
 * Pace        a look costs 10 to 20 us here, so it cannot come every 20: LOOK_FAST for BUSY_NS after it had something to do,
 *             then doubling up to LOOK_SLOW, or earlier when a slice ends. From ask_from on it asks to be woken by the next
 *             goroutine that is left to its P's owner alone (RESCUE_ASK), and begins with LOOK_FAST again. After DEEP_NS with
 *             every P idle it sleeps until the next M is given a P. An idle process has no wake-ups at all.
 * Ordering    SYS1  asleep store, fence (sleep_deep), read the idle bits <-> a P taken, fence (p_acquire), read asleep:
 *                   without this an M could start to run while sysmon goes to sleep, and nobody would look after it.
 */
#include "base/panic.h"
#include "sched/cores.h"
#include "sched/netpoll.h"
#include "sched/sched.h"

#define LOOK_FAST (100 * (int64_t)1000)
#define LOOK_SLOW (10 * (int64_t)1000000)
#define ASK_FROM (400 * (int64_t)1000)
#define BUSY_NS (10 * (int64_t)1000000)
#define DEEP_NS (1000 * (int64_t)1000000)
#define TRIM_NS (100 * (int64_t)1000000)
#define FOLLOW_NS (1000 * (int64_t)1000000)
#define OLD_NS (10 * (int64_t)1000000)
#define GLOBAL_NS (5 * (int64_t)1000000)
#define RELOOK_NS (20 * (int64_t)1000)
enum { LOOKS = 4, RESCUE_MEMORY = 3, TRIM_TURNS = 8000, TRIM_LATEST = 30 };

uint32_t mag_checkpoint_word; /* the public header reads it: no wrapper type there */

static void set_checkpoint(bool wanted)
{
    a32 *word = (a32 *)&mag_checkpoint_word;
    if (at_32_load_rlx(word) != wanted)
        at_32_store_rlx(word, wanted);
}

struct watch {
    int64_t pause;      /* until the next look */
    int64_t busy_until; /* keep looking often until then */
    int64_t ask_from;   /* a pause as long as this is seldom */
    int64_t idle_since; /* every P has been idle since, 0: not so */
    uint64_t turns;     /* goroutines begun and ended at the last trim */
    int trim_held;      /* trims put off in a row */
    int64_t trim_at, trace_at, follow_at, global_at;
};

/* ---- rescue ---- */

/* A runnext that nobody is told about: has its owner come for it within RELOOK_NS? */
static void rescue_next(struct watch *w, struct p *p)
{
    struct g *g = mag__runq_next_peek(&p->runq);
    uint32_t tick = at_32_load_rlx(&p->tick);
    if (g == NULL || !mag__idle_some(&mag__rt.idle))
        return;
    mag__os_nap(RELOOK_NS);
    if (mag__runq_next_peek(&p->runq) != g || at_32_load_rlx(&p->tick) != tick)
        return;
    at_32_store_rlx(&p->rescued, RESCUE_MEMORY);
    mag__wake_searcher(NULL);
    w->busy_until = mag__os_now() + BUSY_NS;
    w->pause = LOOK_FAST;
    w->ask_from = ASK_FROM;
}

/* Work lies about. Where the machine is full, the Ps that do not get on may only have lost their cores for a while, and a helper would
 * have none either. */
static bool is_helper_needed(void)
{
    int looks = 0;
    for (uint32_t i = 0; i < rt_procs(); i++) {
        struct p *p = p_at(i);
        const struct m *m = at_ptr_load_acq(&p->m); /* TOK2 */
        if (mag__idle_is(&mag__rt.idle, i) || m == NULL || mag__netpoll_is_brisk(p, BRISK_IDLE))
            continue;
        if (++looks > LOOKS || mag__retake_is_stuck(p, m))
            return true;
    }
    return mag__idle_count(&mag__rt.idle) >= rt_procs();
}

static void rescue(struct watch *w)
{
    if (!mag__idle_some(&mag__rt.idle))
        return;
    for (uint32_t i = 0; i < rt_procs(); i++) {
        rescue_next(w, p_at(i));
        if (p_length(p_at(i)) != 0)
            at_32_store_rlx(&p_at(i)->rescued, RESCUE_MEMORY);
    }
    if (mag__find_any_work() && is_helper_needed())
        mag__wake_searcher(NULL);
}

/* The global queue's turns count in slices. Where those are long it would wait for ever: one turn at least every GLOBAL_NS. */
static void look_at_global(struct watch *w, int64_t now)
{
    if (now < w->global_at || mag__globq_length(&mag__rt.globq) == 0)
        return;
    w->global_at = now + GLOBAL_NS;
    for (uint32_t i = 0; i < rt_procs(); i++)
        if (!mag__idle_is(&mag__rt.idle, i))
            at_32_or_rlx(&p_at(i)->attention, ATTEND_GLOBAL);
}

/* Under a stream of new ones the oldest that was pushed aside would never have its turn. */
static void look_at_old(int64_t now)
{
    for (uint32_t i = 0; i < rt_procs(); i++) {
        struct p *p = p_at(i);
        uint32_t top = at_32_load_rlx(&p->lifo.top);
        if (top != p->seen_top || mag__lifo_length(&p->lifo) == 0) {
            p->seen_top = top;
            p->seen_top_at = now;
        } else if (now - p->seen_top_at >= OLD_NS) {
            p->seen_top_at = now;
            at_32_or_rlx(&p->attention, ATTEND_OLD);
        }
    }
}

/* ---- retake ---- */

static void look_at_slices(struct watch *w, int64_t now)
{
    struct retake_look l = {.again = w->pause};
    mag__retake_look(&l, now);
    w->pause = l.again;
    if (l.blocked) { /* such calls come in numbers */
        w->busy_until = now + BUSY_NS;
        w->pause = LOOK_FAST;
    }
    set_checkpoint(l.wanted);
    if (at_32_load_rlx(&mag__rt.hogged) != l.hogged)
        at_32_store_rlx(&mag__rt.hogged, l.hogged);
}

/* ---- timers ---- */

/* Where an M keeps the time there is nothing to do; where all are busy, this thread does it. */
static void look_at_timers(struct watch *w, int64_t now)
{
    int64_t next = mag__clock_next();
    if (next == TIMER_NEVER || (int64_t)at_64_load_rlx(&mag__rt.keeper_until) <= next)
        return;
    if (next <= now) {
        if (mag__clock_run_all(NULL))
            w->pause = LOOK_FAST; /* those it woke may set theirs again: see when */
        next = mag__clock_next();
    }
    int64_t left = next - now < LOOK_FAST / 2 ? LOOK_FAST / 2 : next - now;
    if (w->pause > left)
        w->pause = left;
}

/* ---- the pace ---- */

/* Who looks seldom would find a runnext that waits too late: it asks to be told of the next one. Not of every one, as a program may
 * hand goroutines over a million times a second: after each time that nothing had to be rescued, seldom is twice as long. */
static void ask_to_be_told(void)
{
    for (uint32_t i = 0; i < rt_procs(); i++)
        if (at_32_load_rlx(&p_at(i)->rescued) == 0)
            at_32_store_rlx(&p_at(i)->rescued, RESCUE_ASK);
}

static void set_pace(struct watch *w, int64_t now)
{
    bool alert = at_32_load_rlx(&mag__rt.sysmon_alert) != 0;
    w->pause = alert || now < w->busy_until ? LOOK_FAST : w->pause < LOOK_SLOW / 2 ? w->pause * 2 : LOOK_SLOW;
    if (alert) {
        at_32_store_rlx(&mag__rt.sysmon_alert, 0);
        w->ask_from = w->ask_from < LOOK_SLOW / 2 ? w->ask_from * 2 : LOOK_SLOW;
    }
    if (w->pause >= w->ask_from && rt_procs() > 1)
        ask_to_be_told();
}

/* ---- the loop ---- */

/* What is free now is what a program that starts and ends goroutines by the thousand will take next: giving it back and
 * faulting it in again cost a million sleepers a third of their time. What was not needed in TRIM_LATEST intervals goes all the
 * same. */
static bool may_trim(struct watch *w)
{
    uint64_t turns = at_64_load_rlx(&mag__rt.count.spawned) + at_64_load_rlx(&mag__rt.count.finished);
    for (uint32_t i = 0; i < rt_made(); i++)
        turns += at_64_load_rlx(&p_at(i)->count.spawned) + at_64_load_rlx(&p_at(i)->count.finished);
    bool many = turns - w->turns > TRIM_TURNS;
    w->turns = turns;
    w->trim_held = many && w->trim_held < TRIM_LATEST ? w->trim_held + 1 : 0;
    return w->trim_held == 0;
}

static void keep_house(struct watch *w, int64_t now)
{
    if (now >= w->trim_at) {
        size_t n = may_trim(w) ? mag__stack_trim(&mag__rt.arena->stacks) + mag__g_heap_trim(&mag__rt.arena->gs) : 1;
        mag__m_reap();
        if (unlikely(at_32_load_rlx(&mag__rt.nnostack) != 0)) { /* memory may have come free elsewhere */
            at_32_add_rlx(&mag__rt.nostack_tries, 1);
            mag__park_retry();
        }
        w->trim_at = now + TRIM_NS;
        if (n != 0) /* there may be more that was used during the last interval: look again before the deep sleep */
            w->idle_since = 0;
    }
    if (now >= w->follow_at) {
        uint32_t procs;
        if (at_32_load_rlx(&mag__rt.procs_fixed) == 0 && (procs = mag__rt.follow()) != rt_procs())
            mag__p_set_procs(procs, true);
        w->follow_at = now + FOLLOW_NS;
    }
    if (mag__rt.schedtrace != 0 && now >= w->trace_at) {
        mag__rt.trace_line(now);
        w->trace_at += mag__rt.schedtrace;
        if (w->trace_at <= now)
            w->trace_at = now + mag__rt.schedtrace;
    }
    if (mag__rt.schedtrace != 0 && w->pause > w->trace_at - now)
        w->pause = w->trace_at - now;
}

/* Every P idle for a second: nothing to look after until an M is given a P. */
static bool may_sleep_deep(struct watch *w, int64_t now)
{
    if (mag__idle_count(&mag__rt.idle) != rt_procs() || mag__find_any_work() || mag__globq_length(&mag__rt.held) != 0 ||
        at_32_load_rlx(&mag__rt.nnostack) != 0) {
        if (at_32_load_rlx(&mag__rt.nnostack) != 0)
            mag__m_check_deadlock();
        w->idle_since = 0;
        return false;
    }
    if (w->idle_since == 0)
        w->idle_since = now;
    mag__m_check_deadlock();
    return now - w->idle_since >= DEEP_NS && mag__netpoll_is_kept() && mag__rt.schedtrace == 0 &&
           (int64_t)at_64_load_rlx(&mag__rt.keeper_until) <= mag__clock_next();
}

static void sleep_deep(struct watch *w, uint32_t word)
{
    at_32_store_rlx(&mag__rt.sysmon_asleep, 1);
    at_fence_seq(); /* SYS1 */
    if (mag__idle_count(&mag__rt.idle) == rt_procs())
        mag__os_futex_wait(&mag__rt.sysmon_word, word, OS_FOREVER);
    at_32_store_rlx(&mag__rt.sysmon_asleep, 0);
    w->idle_since = 0;
    w->pause = LOOK_FAST;
}

static void *sysmon_main(void *arg)
{
    (void)arg;
    int64_t now = mag__os_now();
    struct watch w = {.pause = LOOK_FAST,
                      .ask_from = ASK_FROM,
                      .trim_at = now + TRIM_NS,
                      .follow_at = now + FOLLOW_NS,
                      .trace_at = now + mag__rt.schedtrace};
    for (;;) {
        uint32_t word = at_32_load_rlx(&mag__rt.sysmon_word);
        if (at_32_load_rlx(&mag__rt.state) == RT_STOPPING)
            return NULL;
        now = mag__os_now();
        at_64_store_rlx(&mag__rt.sysmon_until, (uint64_t)(now + w.pause));
        mag__os_futex_wait(&mag__rt.sysmon_word, word, now + w.pause);
        now = mag__os_now();
        at_64_store_rlx(&mag__rt.clock, (uint64_t)now);
        set_pace(&w, now);
        look_at_timers(&w, now);
        rescue(&w);
        mag__netpoll_look(now, &w.pause);
        look_at_slices(&w, now);
        look_at_global(&w, now);
        look_at_old(now);
        mag__p_collect_retiring();
        keep_house(&w, now);
        word = at_32_load_rlx(&mag__rt.sysmon_word);
        if (may_sleep_deep(&w, now) && at_32_load_rlx(&mag__rt.state) != RT_STOPPING)
            sleep_deep(&w, word);
    }
}

int mag__sysmon_start(void) { return mag__os_thread_start(&mag__rt.sysmon, "magpie-sysmon", sysmon_main, NULL); }

void mag__sysmon_wake(void)
{
    at_32_add_rlx(&mag__rt.sysmon_word, 1);
    mag__os_futex_wake(&mag__rt.sysmon_word, 1);
}

COLD uint32_t mag__sysmon_asked(struct p *p)
{
    uint32_t rescued = at_32_load_rlx(&p->rescued) & ~RESCUE_ASK;
    at_32_store_rlx(&p->rescued, rescued);
    if (rescued == 0 && mag__idle_some(&mag__rt.idle)) {
        at_32_store_rlx(&mag__rt.sysmon_alert, 1);
        mag__sysmon_wake();
    }
    return rescued;
}

void mag__sysmon_rouse(void)
{
    at_64_store_rlx(&mag__rt.clock, (uint64_t)mag__os_now());
    mag__sysmon_wake();
}

void mag__sysmon_stop(void)
{
    mag__sysmon_wake();
    mag__os_thread_join(&mag__rt.sysmon);
    mag__retake_stop();
    mag__cores_stop();
}
