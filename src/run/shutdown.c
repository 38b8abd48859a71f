/* SPDX-License-Identifier: MIT */
/* shutdown.c: taking the runtime apart while goroutines may be anywhere.
 *
 * Protocol    1 state := STOPPING: foreign calls are refused
 *             2 sysmon ends: nobody else moves Ps any more
 *             3 every P is told to stop at its next scheduling step; then a new epoch: an M of the old one that looks for a P
 *               ends, and one that is made from here on meets a P that says stop before it runs anything. The Ps are
 *               collected: from their idle bits, or out of the token of an M in user code. An M in the runtime puts its P
 *               among the idle ones and ends
 *             4 parked Ms are sent home
 *             5 who is in the runtime without a P comes out of it, and calls of foreign threads that are under way end: they may
 *               hold a goroutine in their hands, between two queues
 *             6 whoever waits for anything: goroutines leave the queues, which may outlive them, and threads are told
 *             7 all threads end, or the deadline passes: a goroutine that is still in foreign code keeps its thread, which
 *               ends at its next call, and with the last such thread the arena goes. Until then no stack is unmapped:
 *               it may hold pointers into others' stacks. The same for transfers that the kernel has not done with (io/uring.c)
 * Ordering    RUN1  state release (off) -> state cas acquire (start), load acquire (a timer's deletion): without this the next
 *                   runtime could see what the last one left half taken apart, or a timer's memory go while it still fires.
 */
#include "run/run.h"
#include "base/panic.h"
#include "io/uring.h"
#include "sched/netpoll.h"
#include "sched/wait.h"

#include <errno.h>
#include <stdlib.h>

static void collect_ps(void)
{
    struct rt *rt = &mag__rt;
    int64_t pause = 1000;
    for (uint32_t i = 0; i < rt_made();) {
        struct p *p = p_at(i);
        struct m *m = at_ptr_load_acq(&p->m); /* TOK2 */
        if (at_32_load_acq(&p->life) == P_RETIRED /* PR2 */ || mag__idle_take(&rt->idle, i) || (m != NULL && mag__token_take(m, p, LOST_OTHER))) {
            i++;
            continue;
        }
        mag__os_nap(pause); /* its M is in the runtime, or on its way there with it */
        if (pause < 1000000)
            pause *= 2;
    }
}

static void send_idle_ms_home(void)
{
    struct rt *rt = &mag__rt;
    mag__lock_take(&rt->m_lock);
    for (struct m *m = at_ptr_load_rlx(&rt->ms); m != NULL; m = m->next_all)
        if (m->locked_parked) { /* asleep beside its goroutine */
            m->locked_parked = false;
            m->next_idle = rt->idle_ms;
            rt->idle_ms = m;
        }
    struct m *m = rt->idle_ms;
    rt->idle_ms = NULL;
    rt->nlocked_ms = 0;
    at_32_store_rlx(&rt->nidle_ms, 0);
    mag__lock_give(&rt->m_lock);
    for (struct m *next; m != NULL; m = next) {
        next = m->next_idle;
        m->handed_exit = true;
        mag__netpoll_unpark(m);
    }
}

static void wait_foreign(void)
{
    while (at_32_load_acq(&mag__rt.foreign) != 0) /* FOR3 */
        mag__os_nap(20000);
}

/* Live Ms whose thread has not come to its end. m_lock. */
static uint32_t count_stragglers_locked(void)
{
    uint32_t n = 0;
    for (struct m *m = at_ptr_load_rlx(&mag__rt.ms); m != NULL; m = m->next_all)
        n += at_32_load_rlx(&m->live) != 0 && !m->gone;
    return n;
}

static bool some_in_runtime(void)
{
    struct rt *rt = &mag__rt;
    bool some = false;
    mag__lock_take(&rt->m_lock);
    for (struct m *m = at_ptr_load_rlx(&rt->ms); m != NULL; m = m->next_all)
        some |= at_32_load_rlx(&m->live) != 0 && !m->gone && at_32_load_acq(&m->in_rt) != 0; /* TOK3 */
    mag__lock_give(&rt->m_lock);
    return some;
}

static void wait_runtime(void)
{
    struct rt *rt = &mag__rt;
    uint32_t ended = at_32_load_rlx(&rt->ended);
    while (some_in_runtime()) { /* it ends, or goes back to user code */
        mag__os_futex_wait(&rt->ended, ended, mag__os_now() + 50000);
        ended = at_32_load_rlx(&rt->ended);
    }
}

static bool wait_threads(int64_t deadline)
{
    struct rt *rt = &mag__rt;
    for (;;) {
        uint32_t ended = at_32_load_rlx(&rt->ended);
        mag__lock_take(&rt->m_lock);
        uint32_t n = count_stragglers_locked();
        mag__lock_give(&rt->m_lock);
        if (n == 0)
            return true;
        if (mag__os_now() < deadline)
            mag__os_futex_wait(&rt->ended, ended, deadline);
        else if (some_in_runtime())
            mag__os_nap(50000); /* on its way out: that takes as long as it takes */
        else
            return false;
    }
}

static void report(struct m *m)
{
    struct g *g = m_curg(m);
    char name[G_NAME];
    mag__g_get_name(g, name);
    mag__panic_say("goroutine %llu%s%s%s is still in foreign code: it keeps its thread until its next call",
                   (unsigned long long)at_64_load_rlx(&g->id), name[0] ? " \"" : "", name, name[0] ? "\"" : "");
}

/* Lets go of threads that do not come back. Returns whether there are any; then the arena is theirs. */
static bool orphan_stragglers(void)
{
    struct rt *rt = &mag__rt;
    mag__lock_take(&rt->m_lock);
    uint32_t n = count_stragglers_locked();
    rt->arena->users = n + 1; /* and this thread, which is not done with it */
    struct m *rest = NULL;
    for (struct m *m = at_ptr_load_rlx(&rt->ms), *next; m != NULL; m = next) {
        next = m->next_all;
        if (at_32_load_rlx(&m->live) != 0 && !m->gone) {
            report(m);
            mag__os_thread_detach(&m->thread);
            m->orphan = rt->arena; /* from here on it is its own: it may be freed as soon as the lock is */
        } else {
            m->next_all = rest;
            rest = m;
        }
    }
    at_ptr_store_rlx(&rt->ms, rest);
    mag__lock_give(&rt->m_lock);
    return n != 0;
}

/* This thread has no more use for the arena. True: nobody has. */
static bool is_last_user(struct arena *a)
{
    mag__lock_take(&mag__rt.m_lock);
    bool last = --a->users == 0;
    mag__lock_give(&mag__rt.m_lock);
    return last;
}

static void free_ms(void)
{
    struct m *m = at_ptr_load_rlx(&mag__rt.ms);
    at_ptr_store_rlx(&mag__rt.ms, NULL);
    mag__rt.spare_ms = NULL;
    for (struct m *next; m != NULL; m = next) {
        next = m->next_all;
        if (m->gone)
            mag__os_thread_join(&m->thread);
        if (m->gone || at_32_load_rlx(&m->live) == 0)
            free(m);
    }
    at_32_store_rlx(&mag__rt.nms, 0);
}

int mag__shutdown(int64_t deadline)
{
    struct rt *rt = &mag__rt;
    uint32_t running = RT_RUNNING;
    if (!at_32_cas_rlx(&rt->state, &running, RT_STOPPING))
        return -EPERM; /* another mag_stop was first */
    at_fence_seq(); /* FOR1 */
    mag__sigchan_stop();
    mag__sysmon_stop();
    mag__lock_take(&rt->procs_lock); /* a mag_set_procs under way ends first */
    for (uint32_t i = 0; i < rt_made(); i++)
        at_32_or_rlx(&p_at(i)->attention, ATTEND_STOP);
    mag__lock_give(&rt->procs_lock);
    mag__lock_take(&rt->m_lock); /* an M decides under this lock whether it parks or ends */
    at_32_add_rlx(&rt->epoch, 1);
    mag__lock_give(&rt->m_lock);
    at_fence_seq(); /* CLK3 */
    collect_ps();
    send_idle_ms_home();
    wait_runtime();
    wait_foreign();
    at_32_store_rel(&rt->silent, 1); /* CLK2: nobody touches a heap any more, threads outside neither */
    mag__uring_stop(rt->arena);
    mag__wait_clear();
    wait_foreign();
    mag__globq_clear(&rt->globq);
    mag__globq_clear(&rt->held);
    bool late = !wait_threads(deadline) && orphan_stragglers();
    struct arena *arena = rt->arena;
    late |= !mag__uring_end(arena, deadline, late);
    mag__poll_stop(&arena->poll, late);
    rt->arena = NULL;
    free_ms();
    mag__p_fini_all();
    mag__signal_remove();
    if (!late || is_last_user(arena))
        mag__arena_free(arena);
    at_32_store_rel(&rt->state, RT_OFF); /* RUN1 */
    return late ? -ETIMEDOUT : 0;
}
