/* SPDX-License-Identifier: MIT */
/* bug_brpc_1776_3380.c: a compiler takes the address of a thread-local for a constant and keeps it in a register across a call.
 * In between the goroutine may have gone to another thread: it reads the errno, the current goroutine, the whatever of a thread
 * where somebody else runs. The more the compiler sees the more it keeps: this file is also built with -O3, and as one program
 * with the whole library under link-time optimisation.
 */
#include "test.h"

#include <magpie.h>
#include <pthread.h>
#include <sys/syscall.h>

static int tid(void) { return (int)syscall(SYS_gettid); }
static void add(long *n) { __atomic_add_fetch(n, 1, __ATOMIC_RELAXED); }
static long read_count(const long *n) { return __atomic_load_n(n, __ATOMIC_RELAXED); }

/* The truth about this thread, asked for through a pointer that no compiler sees through. */
static int *(*volatile errno_here)(void) = __errno_location;

#ifdef __clang__
#define OPAQUE __attribute__((noinline))
#else
#define OPAQUE __attribute__((noinline, noipa))
#endif

/* How a program gets at a thread-local of its own in a goroutine: never by name. */
static __thread int mark;
static OPAQUE int *mark_here(void)
{
    int *p = &mark;
    __asm__ volatile("" : "+r"(p)::"memory");
    return p;
}

/* ---- everything in one function, where a register could hold it all ---- */

enum { WALKERS = 8 };

static struct {
    mag_wg wg;
    long moved, rounds;
} walk;

static mag_local key;

struct parent {
    uint64_t id;
    mag_wg wg;
};

static void child(void *arg)
{
    struct parent *parent = arg;
    T_NE(mag_id(), parent->id);
    T_NE(mag_id(), 0);
    T_EQ(mag_local_get(&key), NULL);
    mag_wg_done(&parent->wg);
}

static void walks(void *arg)
{
    uint64_t random = t_state.seed + (uintptr_t)arg, me = mag_id();
    int thread = tid();
    T_EQ(mag_local_set(&key, &walk.wg), 0);
    for (long r = 0; r < walk.rounds; r++) {
        errno = 1000 + (int)(uintptr_t)arg;
        T_EQ(&errno, errno_here());
        T_EQ(errno, 1000 + (int)(uintptr_t)arg);
        *mark_here() = tid();
        switch (t_random_r(&random) % 4) {
        case 0: {
            struct parent parent = {.id = me};
            mag_wg_add(&parent.wg, 1);
            T_EQ(mag_go(child, &parent), 0); /* never switches: errno is as it was */
            T_EQ(errno, 1000 + (int)(uintptr_t)arg);
            T_EQ(mag_wg_wait(&parent.wg, MAG_FOREVER), 0);
            break;
        }
        case 1:
            for (int64_t until = t_now() + (int64_t)(t_random_r(&random) % 300) * MAG_US; t_now() < until;)
                ; /* its P may be gone then: the next call is made by who has none */
            break;
        }
        mag_yield();
        T_EQ(&errno, errno_here());
        T_EQ(close(-1), -1);
        T_EQ(errno, EBADF); /* what the system call said on this thread */
        T_EQ(errno, *errno_here());
        T_EQ(mag_id(), me);
        T_EQ(mag_local_get(&key), &walk.wg);
        int now = tid();
        T_TRUE(*mark_here() == 0 || *mark_here() == now);
        if (now != thread)
            add(&walk.moved);
        thread = now;
    }
    mag_wg_done(&walk.wg);
}

static void many_walk(void *arg)
{
    (void)arg;
    mag_wg_add(&walk.wg, WALKERS);
    for (uintptr_t i = 0; i < WALKERS; i++)
        T_EQ(mag_go(walks, (void *)i), 0);
    T_EQ(mag_wg_wait(&walk.wg, MAG_FOREVER), 0);
}

static void brpc_1776_3380_errno_and_thread_locals(void)
{
    long enough = t_scale(300);
    walk.rounds = t_scale(500);
    walk.moved = 0;
    for (int i = 0; i < 40 && read_count(&walk.moved) < enough; i++)
        T_EQ(mag_run_with(&(mag_config){.procs = 2 + i % 3, .slice = 100 * MAG_US}, many_walk, NULL), 0);
    printf("%ld moves  ", walk.moved);
    T_GE(walk.moved, enough); /* otherwise nothing was shown */
}

/* ---- brpc_1776, its first half ----
 * A destructor of a goroutine's value blocked, the goroutine woke up on another thread, and its end went on with what it had known
 * of the first one: the stack was freed by the wrong thread while still in use. */

static struct {
    mag_wg wg;
    long moved, destroyed;
} last;

static void wanders(void *value)
{
    uint64_t me = mag_id();
    int thread = tid();
    T_EQ(value, &last);
    for (int i = 0; i < 5; i++) {
        if (i == 2)
            for (int64_t until = t_now() + 50 * MAG_US; t_now() < until;)
                ;
        mag_yield();
        T_EQ(mag_id(), me);
    }
    if (tid() != thread)
        add(&last.moved);
    add(&last.destroyed);
    mag_wg_done(&last.wg);
}

static mag_local wandering = {.destroy = wanders};

static void ends(void *arg)
{
    char mine[512];
    memset(mine, (int)(uintptr_t)arg, sizeof mine);
    T_EQ(mag_local_set(&wandering, &last), 0);
    mag_yield();
    for (size_t i = 0; i < sizeof mine; i++)
        T_EQ(mine[i], (char)(uintptr_t)arg);
    if ((uintptr_t)arg % 2)
        mag_exit();
}

static void many_end(void *arg)
{
    (void)arg;
    long n = t_scale(2000);
    mag_wg_add(&last.wg, (int)n);
    for (uintptr_t i = 0; i < (uintptr_t)n; i++) {
        T_EQ(mag_go(ends, (void *)i), 0);
        if (i % 20 == 19)
            mag_yield();
    }
    T_EQ(mag_wg_wait(&last.wg, MAG_FOREVER), 0);
    T_EQ(read_count(&last.destroyed), n);
}

static void brpc_1776_a_destructor_that_switches(void)
{
    memset(&last, 0, sizeof last);
    for (int i = 0; i < 40 && read_count(&last.moved) < 10; i++) {
        last.destroyed = 0;
        T_EQ(mag_run_with(&(mag_config){.procs = 2 + i % 3, .slice = 100 * MAG_US}, many_end, NULL), 0);
    }
    printf("%ld moves  ", last.moved);
    T_GE(last.moved, 10);
}

int main(int argc, char **argv)
{
    t_init(argc, argv);
    T_RUN(brpc_1776_3380_errno_and_thread_locals);
    T_RUN(brpc_1776_a_destructor_that_switches);
    return t_done();
}
