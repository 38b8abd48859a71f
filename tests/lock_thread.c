/* SPDX-License-Identifier: MIT */
/* lock_thread.c: a goroutine and its thread: they stay together, the thread runs nobody else, and they end together. */
#include "test.h"

#include <magpie.h>
#include <sys/syscall.h>

static void set(int *flag) { __atomic_store_n(flag, 1, __ATOMIC_RELEASE); }
static int get(const int *flag) { return __atomic_load_n(flag, __ATOMIC_ACQUIRE); }
static void wait_for(mag_wg *wg) { T_EQ(mag_wg_wait(wg, MAG_FOREVER), 0); }
static int tid(void) { return (int)syscall(SYS_gettid); }

static void on(int procs, mag_fn fn, void *arg)
{
    T_EQ(mag_run_with(&(mag_config){.procs = procs, .slice = MAG_MS}, fn, arg), 0);
}

static void spin_ns(int64_t ns)
{
    for (int64_t until = t_now() + ns; t_now() < until;)
        ;
}

static mag_stats stats(void)
{
    mag_stats total;
    T_GT(mag_stats_read(&total, NULL, 0), 0);
    return total;
}

static bool thread_lives(int id)
{
    char path[64];
    snprintf(path, sizeof path, "/proc/self/task/%d", id);
    return access(path, F_OK) == 0;
}

/* ---- together, and nobody else ---- */

enum { LOCKED = 8, FREE = 20, MANY = 100 };

static struct {
    mag_wg locked, free;
    int thread[MANY]; /* of the locked goroutine i, 0: it is not locked */
    int stop, n;
    long rounds;
} crowd;

static void begin(int n, long rounds)
{
    memset(&crowd, 0, sizeof crowd);
    crowd.n = n;
    crowd.rounds = rounds;
}

static void mark(int i, int thread) { __atomic_store_n(&crowd.thread[i], thread, __ATOMIC_RELAXED); }

/* A locked goroutine takes its mark away on its thread before it unlocks: who runs there later cannot see it any more. */
static void nobody_owns_this_thread(void)
{
    int here = tid();
    for (int i = 0; i < crowd.n; i++)
        T_NE(__atomic_load_n(&crowd.thread[i], __ATOMIC_RELAXED), here);
}

static void wanders(void *arg)
{
    (void)arg;
    while (!get(&crowd.stop)) {
        nobody_owns_this_thread();
        mag_yield();
    }
    mag_wg_done(&crowd.free);
}

static void child_of_locked(void *arg)
{
    nobody_owns_this_thread();
    mag_wg_done(arg);
}

/* Yields, and waits for children: here every time. */
static void stays(void *arg)
{
    int i = (int)(intptr_t)arg;
    mag_lock_thread();
    int here = tid();
    mark(i, here);
    for (long r = 0; r < crowd.rounds; r++) {
        mag_yield();
        T_EQ(tid(), here);
        mag_wg children = {0};
        mag_wg_add(&children, 2);
        T_EQ(mag_go(child_of_locked, &children), 0);
        T_EQ(mag_go(child_of_locked, &children), 0);
        wait_for(&children);
        T_EQ(tid(), here);
    }
    mark(i, 0);
    mag_unlock_thread();
    mag_yield();
    mag_wg_done(&crowd.locked);
}

static void locked_and_free(void *arg)
{
    (void)arg;
    begin(LOCKED, t_scale(60));
    mag_wg_add(&crowd.locked, LOCKED);
    mag_wg_add(&crowd.free, FREE);
    for (intptr_t i = 0; i < LOCKED; i++)
        T_EQ(mag_go(stays, (void *)i), 0);
    for (int i = 0; i < FREE; i++)
        T_EQ(mag_go(wanders, NULL), 0);
    wait_for(&crowd.locked);
    set(&crowd.stop);
    wait_for(&crowd.free);
}

static void nobody_else_runs_there(void)
{
    for (int procs = 1; procs <= 4; procs *= 2)
        on(procs, locked_and_free, NULL);
}

/* ---- two that wake each other ---- */

static struct {
    mag_wg wg, ball[2];
    long rounds;
} game;

static void plays(void *arg)
{
    int me = (int)(intptr_t)arg;
    mag_lock_thread();
    int here = tid();
    for (long r = 0; r < game.rounds; r++) {
        wait_for(&game.ball[me]);
        T_EQ(tid(), here);
        mag_wg_add(&game.ball[me], 1);
        mag_wg_done(&game.ball[!me]);
    }
    mag_unlock_thread();
    mag_wg_done(&game.wg);
}

static void two_play(void *arg)
{
    (void)arg;
    memset(&game, 0, sizeof game);
    game.rounds = t_scale(1000);
    mag_wg_add(&game.ball[1], 1);
    mag_wg_add(&game.wg, 2);
    T_EQ(mag_go(plays, (void *)0), 0);
    T_EQ(mag_go(plays, (void *)1), 0);
    wait_for(&game.wg);
}

static void locked_ones_wake_each_other(void)
{
    for (int procs = 1; procs <= 3; procs++)
        on(procs, two_play, NULL);
}

/* ---- nesting ---- */

static void yields_often(void *arg)
{
    (void)arg;
    while (!get(&crowd.stop))
        mag_yield();
    mag_wg_done(&crowd.free);
}

static void nests(void *arg)
{
    (void)arg;
    begin(1, 0);
    mag_wg_add(&crowd.free, FREE);
    for (int i = 0; i < FREE; i++)
        T_EQ(mag_go(i % 2 ? yields_often : wanders, NULL), 0);
    for (int depth = 1; depth <= 3; depth++) {
        mag_lock_thread();
        int here = tid();
        mark(0, here);
        for (int i = 1; i < depth; i++)
            mag_lock_thread();
        for (int i = 1; i < depth; i++) {
            mag_unlock_thread(); /* still locked */
            for (int k = 0; k < 100; k++) {
                mag_yield();
                T_EQ(tid(), here);
            }
        }
        mark(0, 0);
        mag_unlock_thread();
        for (int k = 0; k < 100; k++)
            mag_yield();
    }
    set(&crowd.stop);
    wait_for(&crowd.free);
}

static void locks_nest(void)
{
    on(1, nests, NULL);
    on(2, nests, NULL);
}

/* Unlocked, it moves again: else the lock would last. */
static void moves(void *arg)
{
    (void)arg;
    begin(0, 0);
    mag_lock_thread();
    mag_yield();
    mag_unlock_thread();
    int here = tid();
    mag_wg_add(&crowd.free, FREE);
    for (int i = 0; i < FREE; i++)
        T_EQ(mag_go(yields_often, NULL), 0);
    int64_t end = t_now() + 20 * MAG_S * t_state.slow;
    while (tid() == here && t_now() < end) {
        spin_ns(2 * MAG_MS); /* its P is taken: it goes on wherever there is one */
        mag_yield();
    }
    T_NE(tid(), here);
    set(&crowd.stop);
    wait_for(&crowd.free);
}

static void unlocked_it_moves_again(void) { on(2, moves, NULL); }

/* ---- many ---- */

static void holds_its_thread(void *arg)
{
    int i = (int)(intptr_t)arg;
    mag_lock_thread();
    mark(i, tid());
    mag_wg_done(&crowd.locked);
    wait_for(&crowd.free);
    T_EQ(tid(), crowd.thread[i]);
    mag_yield();
    T_EQ(tid(), crowd.thread[i]);
    mag_wg_done(&crowd.locked);
    mag_unlock_thread();
}

static void each_has_its_own(void *arg)
{
    int n = *(int *)arg;
    begin(0, 0);
    mag_wg_add(&crowd.locked, n);
    mag_wg_add(&crowd.free, 1);
    for (intptr_t i = 0; i < n; i++)
        T_EQ(mag_go(holds_its_thread, (void *)i), 0);
    wait_for(&crowd.locked);
    for (int i = 0; i < n; i++)
        for (int k = 0; k < i; k++)
            T_NE(crowd.thread[i], crowd.thread[k]);
    T_GE(stats().threads, n);
    mag_wg_add(&crowd.locked, n);
    mag_wg_done(&crowd.free);
    wait_for(&crowd.locked);
}

static void many_at_once(void)
{
    int n = (int)t_scale(MANY);
    on(1, each_has_its_own, &n);
    on(2, each_has_its_own, &n);
}

/* ---- ending locked ---- */

static void returns_locked(void *arg)
{
    mag_lock_thread();
    mag_yield();
    *(int *)arg = tid();
    mag_wg_done(&crowd.locked);
}

static void exits_locked(void *arg)
{
    mag_lock_thread();
    mag_lock_thread();
    *(int *)arg = tid();
    mag_wg_done(&crowd.locked);
    mag_exit();
}

/* Its slice is over when it ends: it ends without a P. */
static void ends_without_a_p(void *arg)
{
    mag_lock_thread();
    spin_ns(5 * MAG_MS);
    *(int *)arg = tid();
    mag_wg_done(&crowd.locked);
    spin_ns(5 * MAG_MS);
}

static void ends_locked(void *arg)
{
    (void)arg;
    static const mag_fn ways[] = {returns_locked, exits_locked, ends_without_a_p};
    for (long r = 0; r < t_scale(20); r++)
        for (int w = 0; w < 3; w++) {
            begin(0, 0);
            mag_wg_add(&crowd.locked, 4);
            mag_wg_add(&crowd.free, 4);
            for (int i = 0; i < 4; i++) {
                T_EQ(mag_go(ways[w], &crowd.thread[i]), 0);
                T_EQ(mag_go(yields_often, NULL), 0);
            }
            wait_for(&crowd.locked);
            for (int i = 0; i < 4; i++)
                T_EVENTUALLY(!thread_lives(crowd.thread[i]), 10000);
            set(&crowd.stop);
            wait_for(&crowd.free);
        }
    T_EVENTUALLY(stats().threads <= 12, 10000); /* there were 240, one after the other */
}

static void the_thread_ends_with_its_goroutine(void)
{
    on(1, ends_locked, NULL);
    on(2, ends_locked, NULL);
}

/* A new goroutine may look like one that ended locked: same descriptor, same stack. Its thread is another. */
static void locks_and_waits(void *arg)
{
    (void)arg;
    mag_lock_thread();
    int here = tid();
    for (int i = 0; i < 3; i++) {
        mag_wg children = {0};
        mag_wg_add(&children, 1);
        T_EQ(mag_go(child_of_locked, &children), 0);
        wait_for(&children);
        mag_yield();
        T_EQ(tid(), here);
    }
    mag_unlock_thread();
    mag_wg_done(&crowd.locked);
}

static void ends_and_begins(void *arg)
{
    (void)arg;
    for (long r = 0; r < t_scale(200); r++) {
        begin(0, 0);
        mag_wg_add(&crowd.locked, 4);
        for (int i = 0; i < 4; i++)
            T_EQ(mag_go(i % 2 ? returns_locked : exits_locked, &crowd.thread[i]), 0);
        wait_for(&crowd.locked);
        while (stats().goroutines > 1)
            mag_yield();
        mag_wg_add(&crowd.locked, 4);
        for (int i = 0; i < 4; i++)
            T_EQ(mag_go(locks_and_waits, NULL), 0);
        wait_for(&crowd.locked);
    }
}

static void the_next_one_is_not_mistaken_for_it(void)
{
    for (int procs = 1; procs <= 3; procs++)
        on(procs, ends_and_begins, NULL);
}

static void main_ends_locked(void *arg)
{
    mag_lock_thread();
    *(int *)arg = tid();
}

static void main_may_end_locked(void)
{
    for (long i = 0; i < t_scale(100); i++) {
        int thread = 0;
        on(1 + (int)i % 3, main_ends_locked, &thread);
        T_NE(thread, 0);
        T_EVENTUALLY(!thread_lives(thread), 1000); /* joined: the kernel may still be busy with the rest of it */
    }
}

/* ---- without a P ---- */

static int ran_beside;

static void runs_beside(void *arg)
{
    set(&ran_beside);
    mag_wg_done(arg);
}

static void loses_its_p(void *arg)
{
    (void)arg;
    for (int i = 0; i < 10; i++) {
        mag_wg wg = {0};
        ran_beside = 0;
        if (i % 2 == 0)
            mag_lock_thread();
        int here = tid();
        mag_wg_add(&wg, 1);
        T_EQ(mag_go(runs_beside, &wg), 0);
        int64_t end = t_now() + 20 * MAG_S * t_state.slow;
        while (!get(&ran_beside) && t_now() < end)
            ; /* on one P the other runs only when this one has lost it */
        T_TRUE(ran_beside);
        if (i % 2 != 0)
            mag_lock_thread(); /* without a P */
        T_EQ(tid(), here);
        for (int k = 0; k < 10; k++) {
            mag_yield();
            T_EQ(tid(), here);
        }
        wait_for(&wg);
        T_EQ(tid(), here);
        if (i % 3 == 0)
            spin_ns(3 * MAG_MS);
        mag_unlock_thread();
    }
    T_GE(stats().retakes_computing, 10);
}

static void it_stays_when_its_p_is_taken(void) { on(1, loses_its_p, NULL); }

/* ---- deadlock ---- */

static mag_wg never;

static void locked_main_waits(void *arg)
{
    (void)arg;
    mag_lock_thread();
    wait_for(&never);
}

static void locked_waits(void *arg)
{
    (void)arg;
    mag_lock_thread();
    wait_for(&never);
}

static void some_locked_all_wait(void *arg)
{
    (void)arg;
    for (int i = 0; i < 4; i++)
        T_EQ(mag_go(i % 2 ? locked_waits : locked_main_waits, NULL), 0);
    wait_for(&never);
}

static void locks_and_ends(void *arg)
{
    (void)arg;
    mag_lock_thread();
}

/* The only thread there was ends with a goroutine: nobody is left to notice that main waits for ever. */
static void waits_without_a_thread(void *arg)
{
    (void)arg;
    T_EQ(mag_go(locks_and_ends, NULL), 0);
    wait_for(&never);
}

static void run_deadlocks(void *procs)
{
    if (t_threads() != 1)
        _exit(77);
    mag_config cfg = {.procs = *(int *)procs};
    mag_wg_add(&never, 1);
    T_EQ(mag_run_with(&cfg, locked_main_waits, NULL), -EDEADLK);
    never = (mag_wg){0};
    mag_wg_add(&never, 1);
    T_EQ(mag_run_with(&cfg, some_locked_all_wait, NULL), -EDEADLK);
    never = (mag_wg){0};
    mag_wg_add(&never, 1);
    T_EQ(mag_run_with(&cfg, waits_without_a_thread, NULL), -EDEADLK);
    T_EVENTUALLY(t_threads() == 1, 2000);
}

static void a_locked_deadlock_is_reported(void)
{
    static struct t_child c;
    for (int procs = 1; procs <= 3; procs++) {
        t_fork(&c, run_deadlocks, &procs);
        if (c.code == 77)
            T_SKIP("the process has threads of its own here");
        if (c.code != 0)
            T_FAIL("code %d, signal %d%s\n%s", c.code, c.signal, c.timed_out ? ", timed out" : "", c.err);
        T_STR_HAS(c.err, "deadlock");
    }
}

/* ---- discarded ---- */

static void locked_yields(void *arg)
{
    (void)arg;
    mag_lock_thread();
    for (;;)
        mag_yield();
}

static void locked_computes(void *arg)
{
    (void)arg;
    mag_lock_thread();
    for (;;) {
        spin_ns(2 * MAG_MS);
        mag_yield();
    }
}

static void leaves_them(void *arg)
{
    static const mag_fn kinds[] = {locked_waits, locked_yields, locked_computes};
    uint64_t random = (uintptr_t)arg;
    for (int i = 0; i < 6; i++)
        T_EQ(mag_go(kinds[t_random_r(&random) % 3], NULL), 0);
    for (uint32_t n = t_random_r(&random) % 50; n > 0; n--)
        mag_yield();
    if (t_random_r(&random) % 2)
        mag_lock_thread();
}

static void they_are_discarded_with_the_runtime(void)
{
    on(2, leaves_them, NULL); /* what the process needs once it has now */
    never = (mag_wg){0};
    mag_wg_add(&never, 1);
    long threads = t_threads();
    for (long i = 0; i < t_scale(60); i++)
        on(1 + (int)i % 3, leaves_them, (void *)(uintptr_t)(t_state.seed + (uint64_t)i));
    T_EVENTUALLY(t_threads() <= threads, 5000);
}

/* ---- misuse ---- */

static void unlocks(void *arg)
{
    (void)arg;
    mag_unlock_thread();
}

static void unlocks_once_too_often(void *arg)
{
    (void)arg;
    mag_lock_thread();
    mag_lock_thread();
    mag_unlock_thread();
    mag_unlock_thread();
    mag_unlock_thread();
}

/* The lock is the goroutine's: another one cannot give it up. */
static void unlocks_anothers(void *arg)
{
    (void)arg;
    T_EQ(mag_go(locked_yields, NULL), 0);
    for (int i = 0; i < 10; i++)
        mag_yield();
    mag_unlock_thread();
}

static void run_it(void *fn) { mag_run_with(&(mag_config){.procs = 1}, *(mag_fn *)fn, NULL); }
static void lock_outside(void *arg) { (void)arg, mag_lock_thread(); }

static void misuse_aborts(void)
{
    T_ABORTS(run_it, &(mag_fn){unlocks}, "mag_unlock_thread without mag_lock_thread");
    T_ABORTS(run_it, &(mag_fn){unlocks_once_too_often}, "mag_unlock_thread without mag_lock_thread");
    T_ABORTS(run_it, &(mag_fn){unlocks_anothers}, "mag_unlock_thread without mag_lock_thread");
    T_ABORTS(lock_outside, NULL, "mag_lock_thread called outside a goroutine");
    T_ABORTS(unlocks, NULL, "mag_unlock_thread called outside a goroutine");
}

int main(int argc, char **argv)
{
    t_init(argc, argv);
    T_RUN(misuse_aborts); /* what forks comes first: the thread sanitizer takes discarded goroutines for threads */
    T_RUN(a_locked_deadlock_is_reported);
    T_RUN(nobody_else_runs_there);
    T_RUN(locked_ones_wake_each_other);
    T_RUN(locks_nest);
    T_RUN(unlocked_it_moves_again);
    T_RUN(many_at_once);
    T_RUN(the_thread_ends_with_its_goroutine);
    T_RUN(the_next_one_is_not_mistaken_for_it);
    T_RUN(main_may_end_locked);
    T_RUN(it_stays_when_its_p_is_taken);
    T_RUN(they_are_discarded_with_the_runtime);
    return t_done();
}
