/* SPDX-License-Identifier: MIT */
/* init.c: mag_run, mag_start, mag_stop: the runtime's beginning, and the way to its end (shutdown.c).
 *
 * One runtime at a time: rt.state goes OFF -> STARTING -> RUNNING -> STOPPING -> OFF, and whoever moves it from OFF owns it.
 */
#include "run/run.h"
#include "base/panic.h"
#include "sync/group.h"
#include "trace/dump.h"
#include "trace/out.h"
#include "trace/schedtrace.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

extern void *__cxa_get_globals(void) __attribute__((weak));

/* What no run changes: threads outside, and goroutines that outlived their runtime, may look at it at any time. */
/* Before the program's own constructors, which may start a runtime. */
__attribute__((constructor(102))) static void loaded(void)
{
    struct rt *rt = &mag__rt;
    rt->loaded = mag__os_now();
    rt->follow = mag__procs_follow;
    rt->trace_line = mag__schedtrace_line;
    rt->cxa_globals = __cxa_get_globals;
    mag__group_init();
    mag__out_loaded();
}

static void apply(const struct settings *s)
{
    struct rt *rt = &mag__rt;
    at_32_store_rlx(&rt->procs_fixed, s->procs_fixed);
    rt->steal_min = s->steal_min;
    rt->max_threads = s->max_threads;
    rt->stack_class = s->stack_class;
    rt->slice = s->slice;
    rt->exit_wait = s->exit_wait;
    rt->schedtrace = s->schedtrace;
    rt->scheddetail = s->scheddetail;
    rt->started = mag__os_now();
    at_64_store_rlx(&rt->clock, (uint64_t)rt->started);
    at_32_store_rlx(&rt->done, DONE_NOT);
    at_32_store_rlx(&rt->silent, 0);
    at_32_store_rlx(&rt->loose, 0);
    at_32_store_rlx(&rt->lingering.brief, 0);
    at_32_store_rlx(&rt->lingering.more, 0);
    at_64_store_rlx(&rt->polled_at, 0);
    at_32_store_rlx(&rt->asker, 0);
    memset(&rt->cores, 0, sizeof rt->cores);
    at_32_store_rlx(&rt->seat, 0);
    at_32_store_rlx(&rt->loose_cap, UINT32_MAX);
    at_32_store_rlx(&rt->announced, 0);
    at_64_store_rlx(&rt->urgent_at, 0);
    at_64_store_rlx(&rt->front_at, 0);
    at_64_store_rlx(&rt->keeper_woke, 0);
    memset(rt->hogs, 0, sizeof rt->hogs);
    at_64_store_rlx(&rt->keeper_until, (uint64_t)TIMER_NEVER);
    memset(&rt->count, 0, sizeof rt->count);
    rt->m_ids = 0;
    rt->warned_threads = rt->warned_stacks = false;
    memset(&rt->nostack, 0, sizeof rt->nostack);
    at_32_store_rlx(&rt->nnostack, 0);
    at_32_store_rlx(&rt->nostack_tries, 0);
}

/* Claims the runtime and brings it to where goroutines can be spawned. */
static int start(const mag_config *cfg, bool by_start)
{
    struct rt *rt = &mag__rt;
    struct settings s;
    uint32_t off = RT_OFF;
    if (mag__m_self() != NULL) { /* a goroutine: also one whose runtime has stopped, and there may be none now */
        uint32_t state = at_32_load_rlx(&rt->state);
        return state == RT_OFF || state == RT_FORKED ? -EPERM : -EBUSY;
    }
    if (!at_32_cas_acq(&rt->state, &off, RT_STARTING)) /* RUN1 */
        return off == RT_FORKED ? -EPERM : -EBUSY;
    int r = mag__config_read(cfg, &s);
    if (r == 0)
        r = mag__env_read(&s);
    if (r != 0)
        goto off;
    apply(&s);
    rt->by_start = by_start;
    r = -ENOMEM;
    if ((rt->arena = mag__arena_new()) == NULL)
        goto off;
    at_32_add_rlx(&rt->epoch, 1);
    if ((r = mag__p_init_all(s.procs)) != 0)
        goto no_ps;
    if ((r = mag__sysmon_start()) != 0)
        goto no_sysmon;
    mag__signal_install();
    mag__fork_prepare();
    at_32_store_rel(&rt->state, RT_RUNNING); /* FOR2 */
    return 0;
no_sysmon:
    mag__p_fini_all();
no_ps:
    mag__arena_free(rt->arena);
    rt->arena = NULL;
off:
    at_32_store_rel(&rt->state, RT_OFF); /* RUN1 */
    return r;
}

static int wait_done(void)
{
    uint32_t how;
    while ((how = at_32_load_rlx(&mag__rt.done)) == DONE_NOT)
        mag__os_futex_wait(&mag__rt.done, DONE_NOT, OS_FOREVER);
    return (int)how;
}

static mag_time in_or_forever(int64_t ns) { return ns == INT64_MAX ? MAG_FOREVER : mag_in(ns); }

/* Main is in the global queue. A first thread that cannot be had is an error now, not a hang; a P that is in somebody's hands for
 * a moment (mag_set_procs) comes back, or with a thread. */
static int first_thread(void)
{
    struct rt *rt = &mag__rt;
    while (at_32_load_rlx(&rt->nms) == 0 && mag__globq_length(&rt->globq) != 0) {
        int i = mag__idle_take_any(&rt->idle, 0), r;
        if (i < 0) {
            mag__os_nap(20000);
            continue;
        }
        if ((r = mag__m_run(p_at((uint32_t)i), false)) == 0)
            break;
        mag__idle_put(&rt->idle, (unsigned)i, false);
        return mag__globq_get(&rt->globq) != NULL ? r : 0; /* unless sysmon has found one after all */
    }
    return 0;
}

struct main_call {
    mag_fn fn;
    void *arg;
};

enum { MAIN_ROOM = 2048 };

/* Main's frame outlives it: others may wait on what lies there until the runtime has stopped (park.c). What the end of main needs
 * of its stack is above it, here. */
static NOINLINE void run_main(void *arg)
{
    const struct main_call *c = arg;
    char room[MAIN_ROOM], *used = room;
    at_ptr_store_rlx(&m_curg(mag__m_self())->fn, (void *)(uintptr_t)c->fn); /* for dumps */
    c->fn(c->arg);
    __asm__ volatile("" ::"r"(used) : "memory"); /* so that this frame is there until then */
}

int mag_run_with(const mag_config *cfg, mag_fn fn, void *arg)
{
    if (fn == NULL)
        return -EINVAL;
    int r = start(cfg, false);
    if (r != 0)
        return r;
    struct main_call call = {.fn = fn, .arg = arg};
    struct spawn s = {.fn = run_main,
                      .arg = &call,
                      .name = "main",
                      .stack_class = SPAWN_DEFAULT,
                      .flags = G_MAIN,
                      .created = __builtin_return_address(0)};
    r = mag__spawn(&s);
    if (r == 0)
        r = first_thread();
    if (r == 0 && wait_done() == DONE_DEADLOCK) {
        mag__panic_say("deadlock: every goroutine waits for something that can never come");
        mag__dump_all(STDERR_FILENO);
        r = -EDEADLK;
    }
    int stopped = mag__shutdown(in_or_forever(mag__rt.exit_wait));
    return r != 0 ? r : stopped;
}

int mag_run(mag_fn fn, void *arg) { return mag_run_with(NULL, fn, arg); }

int mag_start(const mag_config *cfg) { return start(cfg, true); }

int mag_stop(mag_time deadline)
{
    if (mag__m_self() != NULL || at_32_load_rlx(&mag__rt.state) != RT_RUNNING || !mag__rt.by_start)
        return -EPERM;
    return mag__shutdown(deadline);
}

/* ---- time and errno ---- */

mag_time mag_now(void) { return mag__os_now(); }

mag_time mag_in(int64_t ns)
{
    mag_time now = mag__os_now(), t;
    if (__builtin_add_overflow(now, ns, &t))
        return ns > 0 ? MAG_FOREVER : 1;
    return t > 0 ? t : 1; /* 0 would mean MAG_TRY, a negative one nothing */
}

#undef errno
#if defined(__GLIBC__)
extern int *__errno_location(void);
#endif

NOIPA int *mag_errno(void)
{
    int *at = __errno_location();
    __asm__ volatile("" : "+r"(at)::"memory");
    return at;
}
