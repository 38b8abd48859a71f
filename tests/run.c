/* SPDX-License-Identifier: MIT */
/* run.c: mag_run begins and ends: what it returns, and that it leaves nothing behind. */
#include "test.h"

#include <magpie.h>
#include <pthread.h>

static void nothing(void *arg) { (void)arg; }
static void set(void *arg) { __atomic_store_n((int *)arg, 1, __ATOMIC_RELEASE); }
static int get(const int *flag) { return __atomic_load_n(flag, __ATOMIC_ACQUIRE); }

/* ---- what it returns ---- */

static void main_runs(void)
{
    int ran = 0;
    T_EQ(mag_run(set, &ran), 0);
    T_EQ(ran, 1);
    ran = 0;
    T_EQ(mag_run_with(&(mag_config){0}, set, &ran), 0);
    T_EQ(ran, 1);
    T_EQ(mag_procs(), 0);
    T_EQ(mag_id(), 0);
}

static void no_main_is_refused(void)
{
    T_EQ(mag_run(NULL, NULL), -EINVAL);
    T_EQ(mag_run_with(&(mag_config){.procs = 1}, NULL, NULL), -EINVAL);
    main_runs(); /* and the runtime is off afterwards */
}

static void runs_again(void *arg)
{
    int ran = 0;
    T_EQ(mag_run(set, &ran), -EBUSY);
    T_EQ(mag_start(NULL), -EBUSY);
    T_EQ(mag_stop(MAG_FOREVER), -EPERM);
    T_EQ(ran, 0);
    mag_yield();
    *(int *)arg = 1;
}

static void a_run_inside_a_run_is_busy(void)
{
    int done = 0;
    T_EQ(mag_run(runs_again, &done), 0);
    T_EQ(done, 1);
}

static void *runs_elsewhere(void *arg)
{
    T_EQ(mag_run(nothing, NULL), -EBUSY);
    T_EQ(mag_start(NULL), -EBUSY);
    T_EQ(mag_stop(MAG_FOREVER), -EPERM); /* it was not mag_start */
    *(int *)arg = 1;
    return NULL;
}

static void starts_a_thread(void *arg)
{
    pthread_t t;
    T_EQ(pthread_create(&t, NULL, runs_elsewhere, arg), 0);
    T_EQ(pthread_join(t, NULL), 0);
}

static void a_run_of_another_thread_is_busy(void)
{
    int done = 0;
    T_EQ(mag_run(starts_a_thread, &done), 0);
    T_EQ(done, 1);
}

__attribute__((noinline)) static void leaves(void) { mag_exit(); }

static void exits(void *arg)
{
    mag_yield();
    set(arg);
    leaves();
    T_FAIL("mag_exit returned");
}

static void exit_in_main_is_a_return(void)
{
    int ran = 0;
    T_EQ(mag_run(exits, &ran), 0);
    T_EQ(ran, 1);
}

/* A run may begin on any thread, and each on another one. */
static void *runs_here(void *arg)
{
    T_EQ(mag_run(set, arg), 0);
    return NULL;
}

static void any_thread_may_run_it(void)
{
    for (int i = 0; i < 10; i++) {
        pthread_t t;
        int ran = 0;
        T_EQ(pthread_create(&t, NULL, runs_here, &ran), 0);
        T_EQ(pthread_join(t, NULL), 0);
        T_EQ(ran, 1);
    }
}

/* ---- errno ---- */

enum { MINE = 777 };
#define KEEPS_ERRNO(call)                                                                                              \
    do {                                                                                                               \
        errno = MINE;                                                                                                  \
        call;                                                                                                          \
        int t_left = errno;                                                                                            \
        if (t_left != MINE)                                                                                            \
            T_FAIL("%s leaves errno %d", #call, t_left);                                                               \
    } while (0)

/* Those that never switch. */
static void calls_them_all(void *arg)
{
    (void)arg;
    char large[1000] = "";
    int value = 1;
    mag_stats total;
    mag_wg wg = {0};
    mag_mutex mutex = {0};
    mag_sem sem = {0};
    mag_group group = {0};
    mag_chan *chan = NULL;
    static mag_local key;
    int null = open("/dev/null", O_WRONLY);
    KEEPS_ERRNO(T_EQ(mag_go(nothing, NULL), 0));
    KEEPS_ERRNO(T_EQ(mag_go_copy(nothing, large, sizeof large), 0));
    KEEPS_ERRNO(T_EQ(mag_go_with(&(mag_go_config){.name = "small", .stack_size = 16384}, nothing, NULL), 0));
    KEEPS_ERRNO(T_EQ(mag_group_go(&group, nothing, NULL), 0));
    KEEPS_ERRNO(for (int i = 0; i < 10000; i++) T_EQ(mag_go(nothing, NULL), 0));
    KEEPS_ERRNO(T_EQ(mag_set_procs(3), 2));
    KEEPS_ERRNO(T_EQ(mag_stats_read(&total, NULL, 0), 3));
    KEEPS_ERRNO(T_EQ(mag_dump(null), 0));
    KEEPS_ERRNO(mag_set_name("named"));
    KEEPS_ERRNO(mag_lock_thread());
    KEEPS_ERRNO(mag_unlock_thread());
    KEEPS_ERRNO(mag_block_begin());
    KEEPS_ERRNO(mag_block_end());
    KEEPS_ERRNO(T_EQ(mag_local_set(&key, &value), 0));
    KEEPS_ERRNO(mag_wg_add(&wg, 1));
    KEEPS_ERRNO(T_EQ(mag_wg_wait(&wg, MAG_TRY), -ETIMEDOUT));
    KEEPS_ERRNO(mag_wg_done(&wg));
    KEEPS_ERRNO(T_EQ(mag_mutex_trylock(&mutex), 0));
    KEEPS_ERRNO(mag_mutex_unlock(&mutex));
    KEEPS_ERRNO(mag_sem_post(&sem, 1));
    KEEPS_ERRNO(T_EQ(mag_sem_wait(&sem, MAG_TRY), 0));
    KEEPS_ERRNO(T_TRUE((chan = mag_chan_new(sizeof value, 1)) != NULL));
    KEEPS_ERRNO(T_EQ(mag_chan_send(chan, &value, MAG_TRY), 0));
    KEEPS_ERRNO(T_EQ(mag_chan_recv(chan, &value, MAG_TRY), 0));
    KEEPS_ERRNO(T_EQ(mag_chan_close(chan), 0));
    KEEPS_ERRNO(mag_chan_unref(chan));
    KEEPS_ERRNO(T_EQ(mag_close(null), 0));
    T_EQ(mag_group_end(&group), 0);
}

static void runs_and_keeps_errno(void *arg)
{
    (void)arg;
    KEEPS_ERRNO(T_EQ(mag_run(nothing, NULL), 0));
    KEEPS_ERRNO(T_EQ(mag_run_with(&(mag_config){.procs = 2}, calls_them_all, NULL), 0));
    KEEPS_ERRNO(T_EQ(mag_start(NULL), 0));
    KEEPS_ERRNO(T_EQ(mag_go(nothing, NULL), 0));
    KEEPS_ERRNO(T_EQ(mag_stop(MAG_FOREVER), 0));
}

/* In a process where none has run yet: the first one looks at the machine. */
static void errno_stays_as_it_was(void)
{
    static struct t_child c;
    t_fork(&c, runs_and_keeps_errno, NULL);
    if (c.code != 0)
        T_FAIL("code %d, signal %d\n%s", c.code, c.signal, c.err);
}

/* ---- what it leaves behind ---- */

struct held {
    long threads, fds, maps, rss;
};

static struct held held(void) { return (struct held){t_threads(), t_fds(), t_maps(), t_rss()}; }

/* The allocator of the C library keeps some, an emulator or a sanitizer much more: memory is only compared without. */
static void nothing_is_left(struct held before, long maps, long rss)
{
    T_EVENTUALLY(t_threads() <= before.threads, 2000); /* a joined thread is not quite gone from /proc */
    T_EQ(t_fds(), before.fds);
    if (t_state.slow == 1) {
        T_LE(t_maps(), before.maps + maps);
        T_LE(t_rss(), before.rss + rss);
    }
}

static void done(void *wg) { mag_wg_done(wg); }

static void spawns_ten(void *arg)
{
    (void)arg;
    mag_wg wg = {0};
    mag_wg_add(&wg, 10);
    for (int i = 0; i < 10; i++)
        T_EQ(mag_go(done, &wg), 0);
    T_EQ(mag_wg_wait(&wg, MAG_FOREVER), 0);
}

static void a_thousand_runs_leave_nothing(void)
{
    for (int i = 0; i < 50; i++)
        T_EQ(mag_run(spawns_ten, NULL), 0);
    struct held before = held();
    for (long i = 0; i < t_scale(1000); i++)
        T_EQ(mag_run(spawns_ten, NULL), 0);
    nothing_is_left(before, 16, 1 << 20);
}

struct crowd {
    mag_wg gate;
    long n, parked;
};

static void parks(void *arg)
{
    struct crowd *c = arg;
    __atomic_add_fetch(&c->parked, 1, __ATOMIC_RELAXED);
    mag_wg_wait(&c->gate, MAG_FOREVER);
    T_FAIL("nobody opened the gate");
}

static void leaves_a_crowd(void *arg)
{
    struct crowd *c = arg;
    mag_wg_add(&c->gate, 1);
    for (long i = 0; i < c->n; i++)
        T_EQ(mag_go(parks, c), 0);
    while (__atomic_load_n(&c->parked, __ATOMIC_RELAXED) < c->n)
        mag_yield();
}

static void a_hundred_thousand_parked_leave_nothing(void)
{
    struct crowd warm = {.n = T_TSAN ? 100 : 1000};
    T_EQ(mag_run(leaves_a_crowd, &warm), 0);
    struct held before = held();
    struct crowd c = {.n = T_TSAN ? 2000 : t_scale(100000)};
    T_EQ(mag_run(leaves_a_crowd, &c), 0);
    T_EQ(c.parked, c.n);
    nothing_is_left(before, 16, 4 << 20);
}

/* What they wait on may lie in main's own frame. Others run between its return and the end, and use stacks. */
__attribute__((noinline)) static void scribbles(void *arg)
{
    (void)arg;
    volatile char all[16 << 10];
    memset((char *)all, 0xff, sizeof all);
}

static void waits_in_mains_frame(void *gate) { mag_wg_wait(gate, MAG_FOREVER); }

static void returns_too_early(void *arg)
{
    (void)arg;
    mag_wg gate[100] = {0}; /* some of them are where the frames of others will be */
    for (int i = 0; i < 100; i++) {
        mag_wg_add(&gate[i], 1);
        T_EQ(mag_go(waits_in_mains_frame, &gate[i]), 0);
    }
    mag_yield();
    for (int i = 0; i < 200; i++)
        T_EQ(mag_go(scribbles, NULL), 0);
}

static void waiting_on_mains_frame_is_harmless(void)
{
    if (T_TSAN)
        T_SKIP("ThreadSanitizer's own calls use what main's frame leaves");
    for (long i = 0; i < t_scale(200); i++)
        T_EQ(mag_run_with(&(mag_config){.procs = 1 + i % 2}, returns_too_early, NULL), 0);
}

static long ran; /* not on a stack: a late goroutine must not get away with it */

static void takes_its_time(void *arg)
{
    (void)arg;
    for (int64_t until = t_now() + 20 * MAG_US; t_now() < until;)
        ;
    __atomic_add_fetch(&ran, 1, __ATOMIC_RELAXED);
}

static void leaves_runnables(void *arg)
{
    for (int i = 0; i < 1000; i++)
        T_EQ(mag_go(takes_its_time, arg), 0);
}

static void unfinished_goroutines_are_discarded(void)
{
    T_EQ(mag_run(nothing, NULL), 0);
    struct held before = held();
    for (int i = 0; i < 20; i++) {
        T_EQ(mag_run(leaves_runnables, NULL), 0);
        T_EQ(mag_go(takes_its_time, NULL), -EPERM);
        long then = __atomic_load_n(&ran, __ATOMIC_RELAXED);
        t_sleep_ms(1);
        T_EQ(__atomic_load_n(&ran, __ATOMIC_RELAXED), then);
    }
    T_LT(ran, 20 * 1000); /* 20 ms of work a run, on two Ps 10 */
    nothing_is_left(before, 16, 4 << 20);
}

/* Who has called done is in its own code for some instructions more: it must have left that too. */
static void spawns_ten_and_sees_them_end(void *arg)
{
    mag_stats s;
    spawns_ten(arg);
    while (mag_stats_read(&s, NULL, 0), s.finished < 10)
        mag_yield();
}

/* A runtime where nobody is in foreign code has nothing to wait for, however short the patience. */
static void no_patience_is_needed(void)
{
    for (long i = 0; i < t_scale(100); i++)
        T_EQ(mag_run_with(&(mag_config){.exit_wait = 1}, spawns_ten_and_sees_them_end, NULL), 0);
}

/* ---- foreign threads at the end ---- */

struct waiter {
    mag_wg wg;
    int about_to, result;
};

static void *waits(void *arg)
{
    struct waiter *w = arg;
    set(&w->about_to);
    w->result = mag_wg_wait(&w->wg, MAG_FOREVER);
    return NULL;
}

static void leaves_a_waiter(void *arg)
{
    struct waiter *w = arg;
    while (!get(&w->about_to))
        mag_yield();
    t_sleep_ms(100); /* it is in the call by now */
}

static void a_waiting_thread_is_told(void)
{
    struct waiter w = {.result = 1};
    pthread_t t;
    mag_wg_add(&w.wg, 1);
    T_EQ(pthread_create(&t, NULL, waits, &w), 0);
    T_EQ(mag_run(leaves_a_waiter, &w), 0);
    T_EQ(pthread_join(t, NULL), 0);
    T_EQ(w.result, -ESHUTDOWN);
}

/* ---- released while the runtime stops ----
 * A releaser took a thread out of the queue, and before it had decided who wakes it a stopping runtime had: the thread went on, and the
 * releaser looked at what had been its frame. */

enum wait_kind { BY_MUTEX, BY_WG, BY_SEM, BY_GROUP, WAIT_KINDS };

static struct {
    enum wait_kind kind;
    mag_mutex mutex;
    mag_wg wg;
    mag_sem sem;
    mag_group group;
    int there;
    uint32_t dice;
} both;

static void spin_us(uint32_t us)
{
    for (int64_t end = t_now() + us * MAG_US; t_now() < end;)
        ;
}

/* Where the frames of the wait have been. */
static __attribute__((noinline)) void nobody_writes_here(void)
{
    volatile unsigned char frame[2048];
    for (size_t i = 0; i < sizeof frame; i++)
        frame[i] = 0x5a;
    spin_us(40);
    for (size_t i = 0; i < sizeof frame; i++)
        T_EQ(frame[i], 0x5a);
}

static void *is_released(void *arg)
{
    (void)arg;
    int r = 0;
    __atomic_store_n(&both.there, 1, __ATOMIC_RELEASE);
    if (both.kind == BY_MUTEX)
        mag_mutex_lock(&both.mutex);
    else if (both.kind == BY_WG)
        r = mag_wg_wait(&both.wg, MAG_FOREVER);
    else if (both.kind == BY_SEM)
        r = mag_sem_wait(&both.sem, MAG_FOREVER);
    else
        r = mag_group_wait(&both.group, MAG_FOREVER);
    nobody_writes_here();
    T_TRUE(r == 0 || r == -ESHUTDOWN || r == -EPERM);
    return NULL;
}

static void *releases(void *arg)
{
    (void)arg;
    while (!get(&both.there))
        sched_yield();
    spin_us(20 + both.dice % 512);
    if (both.kind == BY_MUTEX)
        mag_mutex_unlock(&both.mutex);
    else if (both.kind == BY_WG)
        mag_wg_done(&both.wg);
    else if (both.kind == BY_SEM)
        mag_sem_post(&both.sem, 1);
    return NULL;
}

static void ends_soon(void *arg)
{
    (void)arg;
    spin_us(20 + both.dice / 512 % 64);
}

static void is_a_member(void *arg)
{
    pthread_t t[2];
    if (both.kind == BY_GROUP)
        T_EQ(mag_group_go(&both.group, ends_soon, NULL), 0);
    for (int i = 0; i < 2; i++)
        T_EQ(pthread_create(&t[i], NULL, i == 0 ? is_released : releases, NULL), 0);
    memcpy(arg, t, sizeof t);
    while (!get(&both.there))
        sched_yield();
    spin_us(20 + both.dice / 65536 % 64);
}

static void a_thread_is_released_while_the_runtime_stops(void)
{
    for (long i = 0; i < t_scale(1200); i++) {
        pthread_t t[2];
        memset(&both, 0, sizeof both);
        both.kind = (enum wait_kind)(i % WAIT_KINDS);
        both.dice = t_random();
        mag_mutex_lock(&both.mutex);
        mag_wg_add(&both.wg, 1);
        T_EQ(mag_run(is_a_member, t), 0);
        for (int k = 0; k < 2; k++)
            T_EQ(pthread_join(t[k], NULL), 0);
    }
}

int main(int argc, char **argv)
{
    t_init(argc, argv);
    T_RUN(errno_stays_as_it_was);
    T_RUN(main_runs);
    T_RUN(no_main_is_refused);
    T_RUN(a_run_inside_a_run_is_busy);
    T_RUN(a_run_of_another_thread_is_busy);
    T_RUN(exit_in_main_is_a_return);
    T_RUN(any_thread_may_run_it);
    T_RUN(a_thousand_runs_leave_nothing);
    T_RUN(a_hundred_thousand_parked_leave_nothing);
    T_RUN(waiting_on_mains_frame_is_harmless);
    T_RUN(unfinished_goroutines_are_discarded);
    T_RUN(no_patience_is_needed);
    T_RUN(a_waiting_thread_is_told);
    T_RUN(a_thread_is_released_while_the_runtime_stops);
    return t_done();
}
