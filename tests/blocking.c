/* SPDX-License-Identifier: MIT */
/* blocking.c: goroutines that sleep in the kernel, announced or not, and hogs without end: the others go on. */
#include "test.h"

#include <fcntl.h>
#include <magpie.h>
#include <netdb.h>
#include <pthread.h>
#include <sys/file.h>
#include <unistd.h>

static int get(int *flag) { return __atomic_load_n(flag, __ATOMIC_ACQUIRE); }
static void set(int *flag, int to) { __atomic_store_n(flag, to, __ATOMIC_RELEASE); }
static void done(void *wg) { mag_wg_done(wg); }
static void wait_for(mag_wg *wg) { T_EQ(mag_wg_wait(wg, MAG_FOREVER), 0); }

static mag_stats stats(void)
{
    mag_stats s;
    mag_stats_read(&s, NULL, 0);
    return s;
}

static void on(int procs, mag_fn fn, void *arg) { T_EQ(mag_run_with(&(mag_config){.procs = procs}, fn, arg), 0); }
static void on_1_and_2(mag_fn fn, void *arg)
{
    on(1, fn, arg);
    on(2, fn, arg);
}

/* ---- every way to block, until the others let it go ---- */

static int pipes[2], files[2], released;
static char lock_path[] = "/tmp/magpie-blocking-XXXXXX";
static pthread_mutex_t mutex = PTHREAD_MUTEX_INITIALIZER;

static void in_usleep(void)
{
    while (!get(&released))
        usleep(20000);
}

static void in_read(void)
{
    char c;
    T_EQ(read(pipes[0], &c, 1), 1);
}

static void in_flock(void)
{
    T_EQ(flock(files[1], LOCK_EX), 0);
    T_EQ(flock(files[1], LOCK_UN), 0);
}

static void in_mutex(void)
{
    pthread_mutex_lock(&mutex);
    pthread_mutex_unlock(&mutex);
}

static void in_getaddrinfo(void)
{
    struct addrinfo *a = NULL;
    while (!get(&released)) {
        if (getaddrinfo("localhost", "80", NULL, &a) == 0)
            freeaddrinfo(a);
        usleep(5000);
    }
}

static void *holds_the_mutex(void *holds)
{
    pthread_mutex_lock(&mutex);
    set(holds, 1);
    while (!get(&released))
        usleep(1000);
    pthread_mutex_unlock(&mutex);
    return NULL;
}

struct way {
    void (*block)(void);
    bool announced;
    mag_wg *wg;
};

static void blocks(void *arg)
{
    struct way *w = arg;
    if (w->announced)
        mag_block_begin();
    w->block();
    if (w->announced)
        mag_block_end();
    mag_wg_done(w->wg);
}

static void release_all(int n)
{
    set(&released, 1);
    for (int i = 0; i < n; i++)
        T_EQ(write(pipes[1], "x", 1), 1);
    T_EQ(flock(files[0], LOCK_UN), 0);
}

/* As many as would take every P, and more than ever were allowed to compute without one: what remains must run. */
static void others_go_on(void *arg)
{
    struct way w = *(struct way *)arg;
    mag_wg wg = {0}, others = {0};
    int n = 6 * mag_procs();
    T_EQ(flock(files[0], LOCK_EX), 0);
    w.wg = &wg;
    mag_wg_add(&wg, n);
    for (int i = 0; i < n; i++)
        T_EQ(mag_go_copy(blocks, &w, sizeof w), 0);
    for (int round = 0; round < 10; round++) { /* spawned after, each round finds a P */
        mag_wg_add(&others, 20);
        for (int i = 0; i < 20; i++)
            T_EQ(mag_go(done, &others), 0);
        wait_for(&others);
        T_EQ(mag_sleep(MAG_MS), 0);
    }
    release_all(w.block == in_read ? n : 0);
    wait_for(&wg);
}

static void others_go_on_beside(void (*block)(void))
{
    for (int announced = 0; announced < 2; announced++)
        for (int procs = 1; procs <= 2; procs++) {
            struct way w = {.block = block, .announced = announced};
            int holds = 0;
            pthread_t holder;
            set(&released, 0);
            T_EQ(pthread_create(&holder, NULL, holds_the_mutex, &holds), 0);
            while (!get(&holds))
                usleep(1000);
            on(procs, others_go_on, &w);
            pthread_join(holder, NULL);
        }
}

static void beside_usleep(void) { others_go_on_beside(in_usleep); }
static void beside_read(void) { others_go_on_beside(in_read); }
static void beside_flock(void) { others_go_on_beside(in_flock); }
static void beside_a_pthread_mutex(void) { others_go_on_beside(in_mutex); }
static void beside_getaddrinfo(void) { others_go_on_beside(in_getaddrinfo); }

/* ---- announced: by whoever has work ---- */

static void *spawns_from_outside(void *wg)
{
    usleep(1000);
    T_EQ(mag_go(done, wg), 0);
    return NULL;
}

static void reads_until(void *arg)
{
    mag_wg *wg = arg;
    for (int i = 0; i < 100; i++) {
        pthread_t t;
        mag_wg_add(wg, 1);
        T_EQ(pthread_create(&t, NULL, spawns_from_outside, wg), 0);
        mag_block_begin();
        pthread_join(t, NULL);
        mag_block_end();
        wait_for(wg);
    }
    for (int i = 0; i < 1000; i++) { /* nothing is lost when nobody comes, or when they nest */
        mag_block_begin();
        mag_block_begin();
        mag_block_end();
        mag_block_end();
    }
}

static void an_announced_p_is_taken_by_who_needs_it(void)
{
    mag_wg wg = {0};
    on(1, reads_until, &wg);
    mag_block_begin(); /* outside a goroutine: nothing */
    mag_block_end();
}

/* ---- hogs without end ---- */

static int stop;

static void endless(void *wg)
{
    volatile unsigned x = 0;
    while (!get(&stop))
        x++;
    mag_wg_done(wg);
}

/* A bug of ours: with as many hogs loose as were allowed, nobody was retaken any more, and the others stopped for ever. */
static void beside_endless_hogs(void *arg)
{
    (void)arg;
    mag_wg hogs = {0}, others = {0};
    int n = 6 * mag_procs();
    set(&stop, 0);
    mag_wg_add(&hogs, n);
    for (int i = 0; i < n; i++)
        T_EQ(mag_go(endless, &hogs), 0);
    for (int round = 0; round < 20; round++) {
        mag_wg_add(&others, 5);
        for (int i = 0; i < 5; i++)
            T_EQ(mag_go(done, &others), 0); /* fresh, of a function that never computed long: never held up */
        wait_for(&others);
        T_EQ(mag_sleep(MAG_MS), 0);
    }
    set(&stop, 1);
    wait_for(&hogs);
}

static void bug_five_endless_hogs_stopped_everybody(void) { on_1_and_2(beside_endless_hogs, NULL); }

/* Those of the same function are held back; but one that computes for ever does not count for ever. */
static void one_after_the_other(void *arg)
{
    (void)arg;
    mag_wg hogs = {0};
    int n = 5; /* one more than a crowd, and it must run too */
    set(&stop, 0);
    mag_wg_add(&hogs, n);
    for (int i = 0; i < n; i++)
        T_EQ(mag_go(endless, &hogs), 0);
    T_EVENTUALLY(stats().runnable == 0, 30000);
    set(&stop, 1);
    wait_for(&hogs);
}

static void endless_ones_hold_nobody_up_for_ever(void) { on(1, one_after_the_other, NULL); }

/* ---- limits ---- */

static void sleeps(void *wg)
{
    usleep(500);
    mag_wg_done(wg);
}

static void many_blocking(void *arg)
{
    (void)arg;
    mag_wg wg = {0};
    int n = (int)t_scale(10000);
    mag_wg_add(&wg, n);
    for (int i = 0; i < n; i++)
        T_EQ(mag_go(sleeps, &wg), 0);
    wait_for(&wg);
    T_LE(stats().threads, 64);
}

static void few_threads(void *arg)
{
    (void)arg;
    T_EQ(mag_run_with(&(mag_config){.procs = 2, .max_threads = 64}, many_blocking, NULL), 0);
}

static void ten_thousand_blocking_calls_on_64_threads(void)
{
    struct t_child c;
    t_fork(&c, few_threads, NULL);
    T_EQ(c.signal, 0);
    T_EQ(c.code, 0);
}

/* ---- what stays with a goroutine that lost its P ---- */

static __thread int own;
static pthread_mutex_t held = PTHREAD_MUTEX_INITIALIZER;
static long under_mutex;

static void holds_and_computes(void *wg)
{
    for (int i = 0; i < 3; i++) {
        pthread_mutex_lock(&held);
        own = (int)mag_id();
        errno = own;
        long before = under_mutex;
        for (mag_time end = mag_now() + 15 * MAG_MS; mag_now() < end;)
            ;
        under_mutex = before + 1;
        T_EQ(own, (int)mag_id()); /* it is still on its thread, with its thread-locals and errno */
        T_EQ(errno, own);
        pthread_mutex_unlock(&held);
        mag_yield();
    }
    mag_wg_done(wg);
}

static void mutex_holders(void *arg)
{
    (void)arg;
    mag_wg wg = {0};
    enum { N = 8 };
    under_mutex = 0;
    mag_wg_add(&wg, N);
    for (int i = 0; i < N; i++)
        T_EQ(mag_go(holds_and_computes, &wg), 0);
    wait_for(&wg);
    T_EQ(under_mutex, 3 * N);
    T_GT(stats().retakes_computing + stats().retakes_blocked, 0);
}

static void a_mutex_held_without_a_p(void) { on_1_and_2(mutex_holders, NULL); }

/* ---- a thousand retakes a second ---- */

static void naps(void *arg)
{
    mag_wg *wg = arg;
    while (!get(&stop)) {
        usleep(200);
        mag_yield();
    }
    mag_wg_done(wg);
}

static void retaken_often(void *arg)
{
    (void)arg;
    mag_wg wg = {0};
    enum { N = 32 };
    set(&stop, 0);
    mag_wg_add(&wg, N);
    for (int i = 0; i < N; i++)
        T_EQ(mag_go(naps, &wg), 0);
    int64_t ns = (getenv("MAGPIE_TEST_LONG") != NULL ? 60 : 2) * MAG_S;
    for (mag_time end = mag_in(ns); mag_now() < end;)
        T_EQ(mag_sleep(MAG_MS), 0);
    set(&stop, 1);
    wait_for(&wg);
    printf("%llu retakes  ", (unsigned long long)stats().retakes_blocked);
    T_GT(stats().retakes_blocked, 100);
}

static void a_thousand_retakes_a_second(void) { on_1_and_2(retaken_often, NULL); }

int main(int argc, char **argv)
{
    t_init(argc, argv);
    T_EQ(pipe2(pipes, O_CLOEXEC), 0);
    T_GE(files[0] = mkstemp(lock_path), 0);
    T_GE(files[1] = open(lock_path, O_RDWR | O_CLOEXEC), 0);
    T_EQ(unlink(lock_path), 0);
    T_RUN(beside_usleep);
    T_RUN(beside_read);
    T_RUN(beside_flock);
    T_RUN(beside_a_pthread_mutex);
    T_RUN(beside_getaddrinfo);
    T_RUN(an_announced_p_is_taken_by_who_needs_it);
    T_RUN(bug_five_endless_hogs_stopped_everybody);
    T_RUN(endless_ones_hold_nobody_up_for_ever);
    T_RUN(ten_thousand_blocking_calls_on_64_threads);
    T_RUN(a_mutex_held_without_a_p);
    T_RUN(a_thousand_retakes_a_second);
    return t_done();
}
