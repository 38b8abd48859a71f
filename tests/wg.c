/* SPDX-License-Identifier: MIT */
/* wg.c: wait groups, for goroutines and threads: everyone is woken once the count is zero, nobody before, and the memory
 * may go the moment a wait has returned. */
#include "test.h"

#include <magpie.h>
#include <limits.h>
#include <pthread.h>
#include <sched.h>
#include <sys/mman.h>

static void add(long *n) { __atomic_add_fetch(n, 1, __ATOMIC_RELAXED); }
static long read_count(const long *n) { return __atomic_load_n(n, __ATOMIC_RELAXED); }
static void done(void *wg) { mag_wg_done(wg); }

static void on(int procs, mag_fn fn) { T_EQ(mag_run_with(&(mag_config){.procs = procs}, fn, NULL), 0); }

static void on_one_and_two(mag_fn fn)
{
    on(1, fn);
    on(2, fn);
}

/* ---- counts ---- */

static void counts(void *arg)
{
    (void)arg;
    mag_wg wg = {0};
    T_EQ(mag_wg_wait(&wg, MAG_FOREVER), 0); /* nothing to wait for */
    T_EQ(mag_wg_wait(&wg, MAG_TRY), 0);
    mag_wg_add(&wg, 0);
    T_EQ(mag_wg_wait(&wg, MAG_FOREVER), 0);
    mag_wg_add(&wg, 3);
    T_EQ(mag_wg_wait(&wg, MAG_TRY), -ETIMEDOUT);
    mag_wg_done(&wg);
    T_EQ(mag_wg_wait(&wg, MAG_TRY), -ETIMEDOUT);
    mag_wg_add(&wg, -2);
    T_EQ(mag_wg_wait(&wg, MAG_TRY), 0);
    mag_wg_add(&wg, INT_MAX);
    T_EQ(mag_wg_wait(&wg, MAG_TRY), -ETIMEDOUT);
    mag_wg_add(&wg, -INT_MAX);
    T_EQ(mag_wg_wait(&wg, MAG_FOREVER), 0);
    T_EQ(wg.state, 0); /* as new */
}

static void it_counts(void)
{
    counts(NULL); /* a thread may, without a runtime too */
    on_one_and_two(counts);
}

/* ---- waiters ---- */

struct race {
    mag_wg gate, finish;
    long before, after;
    int open;
};

static void passes(void *arg)
{
    struct race *r = arg;
    add(&r->before);
    T_EQ(mag_wg_wait(&r->gate, MAG_FOREVER), 0);
    T_EQ(__atomic_load_n(&r->open, __ATOMIC_RELAXED), 1); /* what the last one wrote before done is seen */
    add(&r->after);
    mag_wg_done(&r->finish);
}

static void opens_for_many(void *arg)
{
    (void)arg;
    int n = (int)(T_TSAN ? 500 : t_scale(5000));
    for (int round = 0; round < 5; round++) { /* the same group, again and again */
        static struct race r;
        r.before = r.after = r.open = 0;
        mag_wg_add(&r.gate, 2);
        mag_wg_add(&r.finish, n);
        for (int i = 0; i < n; i++)
            T_EQ(mag_go(passes, &r), 0);
        while (read_count(&r.before) < n)
            mag_yield();
        mag_wg_done(&r.gate);
        for (int i = 0; i < 10; i++)
            mag_yield();
        T_EQ(read_count(&r.after), 0);
        __atomic_store_n(&r.open, 1, __ATOMIC_RELAXED);
        mag_wg_done(&r.gate);
        T_EQ(mag_wg_wait(&r.finish, MAG_FOREVER), 0);
        T_EQ(r.after, n);
    }
}

static void many_wait_for_one(void) { on_one_and_two(opens_for_many); }

static void waits_for_many(void *arg)
{
    (void)arg;
    mag_wg wg = {0};
    for (long i = 0; i < t_scale(2000); i++) {
        int n = 1 + (int)(i % 20);
        mag_wg_add(&wg, n);
        for (int k = 0; k < n; k++)
            T_EQ(mag_go(done, &wg), 0);
        T_EQ(mag_wg_wait(&wg, MAG_FOREVER), 0);
    }
}

static void one_waits_for_many(void) { on_one_and_two(waits_for_many); }

/* Goroutines and threads, all waiting and all doing, on groups whose addresses share buckets of any table. */
enum { GROUPS = 600, SIDES = 3 };

static struct {
    mag_wg wg[GROUPS], over;
} mix;

static void meets_all(void *arg)
{
    (void)arg;
    for (int i = 0; i < GROUPS; i++) {
        mag_wg_done(&mix.wg[i]);
        T_EQ(mag_wg_wait(&mix.wg[i], MAG_FOREVER), 0);
    }
    mag_wg_done(&mix.over);
}

static void *meets_all_in_a_thread(void *arg)
{
    meets_all(arg);
    return NULL;
}

static void mixes(void *arg)
{
    (void)arg;
    pthread_t t[SIDES];
    for (long round = 0; round < t_scale(8); round++) {
        for (int i = 0; i < GROUPS; i++)
            mag_wg_add(&mix.wg[i], 2 * SIDES);
        mag_wg_add(&mix.over, 2 * SIDES);
        for (int i = 0; i < SIDES; i++) {
            T_EQ(pthread_create(&t[i], NULL, meets_all_in_a_thread, NULL), 0);
            T_EQ(mag_go(meets_all, NULL), 0);
        }
        T_EQ(mag_wg_wait(&mix.over, MAG_FOREVER), 0);
        for (int i = 0; i < SIDES; i++)
            T_EQ(pthread_join(t[i], NULL), 0);
    }
}

static void goroutines_and_threads_mix(void) { on_one_and_two(mixes); }

static void threads_need_no_runtime(void)
{
    pthread_t t[2 * SIDES];
    for (int i = 0; i < GROUPS; i++)
        mag_wg_add(&mix.wg[i], 2 * SIDES);
    mag_wg_add(&mix.over, 2 * SIDES);
    for (int i = 0; i < 2 * SIDES; i++)
        T_EQ(pthread_create(&t[i], NULL, meets_all_in_a_thread, NULL), 0);
    T_EQ(mag_wg_wait(&mix.over, MAG_FOREVER), 0);
    for (int i = 0; i < 2 * SIDES; i++)
        T_EQ(pthread_join(t[i], NULL), 0);
}

/* ---- deadlines ---- */

static void waits_until(void *arg)
{
    (void)arg;
    mag_wg wg = {0};
    mag_wg_add(&wg, 1);
    mag_time start = mag_now(), deadline = mag_in(50 * MAG_MS);
    T_EQ(mag_wg_wait(&wg, deadline), -ETIMEDOUT);
    T_GE(mag_now(), deadline);
    T_LT(mag_now() - start, 10 * MAG_S);
    T_EQ(mag_wg_wait(&wg, mag_in(-5)), -ETIMEDOUT); /* has passed */
    T_EQ(mag_wg_wait(&wg, start), -ETIMEDOUT);
    T_EQ(mag_wg_wait(&wg, 1), -ETIMEDOUT);
    mag_wg_done(&wg); /* nobody is there any more */
    T_EQ(mag_wg_wait(&wg, mag_in(MAG_S)), 0);
    T_EQ(mag_wg_wait(&wg, start), 0); /* a deadline that has passed still tries */
    T_EQ(wg.state, 0);
}

static void a_thread_waits_until_its_deadline(void) { waits_until(NULL); }
static void a_goroutine_waits_until_its_deadline(void) { on_one_and_two(waits_until); }

/* The deadline and the end of the count meet: one of the two is true, and nothing is left behind. */
static struct {
    mag_wg wg, over;
    int stop;
    long woken, late;
} meet;

static void times_out_or_not(void *arg)
{
    uint64_t random = t_state.seed + (uintptr_t)arg;
    while (!__atomic_load_n(&meet.stop, __ATOMIC_RELAXED)) {
        int r = mag_wg_wait(&meet.wg, mag_in(t_random_r(&random) % 200000));
        T_TRUE(r == 0 || r == -ETIMEDOUT);
        add(r == 0 ? &meet.woken : &meet.late);
        if (mag_id() != 0)
            mag_yield();
    }
    mag_wg_done(&meet.over);
}

static void *times_out_in_a_thread(void *arg)
{
    times_out_or_not(arg);
    return NULL;
}

static void deadlines_race_with_done(void)
{
    pthread_t t[3];
    T_EQ(mag_start(&(mag_config){.procs = 2}), 0);
    mag_wg_add(&meet.over, 6);
    for (uintptr_t i = 0; i < 3; i++) {
        T_EQ(pthread_create(&t[i], NULL, times_out_in_a_thread, (void *)i), 0);
        T_EQ(mag_go(times_out_or_not, (void *)(i + 3)), 0);
    }
    for (long i = 0; i < t_scale(500); i++) {
        mag_wg_add(&meet.wg, 1);
        usleep(t_random() % 200);
        mag_wg_done(&meet.wg);
    }
    __atomic_store_n(&meet.stop, 1, __ATOMIC_RELAXED);
    T_EQ(mag_wg_wait(&meet.over, MAG_FOREVER), 0);
    for (int i = 0; i < 3; i++)
        T_EQ(pthread_join(t[i], NULL), 0);
    T_EQ(mag_stop(MAG_FOREVER), 0);
    T_GT(meet.woken, 0);
    T_GT(meet.late, 0);
    T_EQ(meet.wg.state, 0);
}

/* ---- the memory goes at once ---- */

/* Each in a page of its own. */
static mag_wg *new_page(void)
{
    void *page = mmap(NULL, 4096, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    T_TRUE(page != MAP_FAILED);
    return page;
}

static void round_of_pages(long rounds, int (*spawn)(mag_fn, void *))
{
    for (long i = 0; i < rounds; i++) {
        mag_wg *wg = new_page();
        mag_wg_add(wg, 2);
        T_EQ(spawn(done, wg), 0);
        T_EQ(spawn(done, wg), 0);
        if (i % 3 == 0 && mag_id() != 0)
            mag_yield();
        T_EQ(mag_wg_wait(wg, MAG_FOREVER), 0);
        T_EQ(munmap(wg, 4096), 0); /* a late touch is a crash */
    }
}

static void goroutine_unmaps(void *arg)
{
    (void)arg;
    round_of_pages(t_scale(20000), mag_go);
}

static void the_page_goes_when_a_goroutine_has_waited(void) { on_one_and_two(goroutine_unmaps); }

static void the_page_goes_when_a_thread_has_waited(void)
{
    T_EQ(mag_start(&(mag_config){.procs = 2}), 0);
    round_of_pages(t_scale(20000), mag_go);
    T_EQ(mag_stop(MAG_FOREVER), 0);
}

/* Threads that call done as fast as they can, against a waiter that unmaps. */
struct slot {
    mag_wg *wg; /* NULL: taken */
};

static struct slot slots[2];
static int doers_stop;

static void *does(void *arg)
{
    struct slot *s = arg;
    while (!__atomic_load_n(&doers_stop, __ATOMIC_RELAXED)) {
        mag_wg *wg = __atomic_exchange_n(&s->wg, NULL, __ATOMIC_ACQUIRE);
        if (wg)
            mag_wg_done(wg);
        else
            sched_yield();
    }
    return NULL;
}

static void waits_and_unmaps(void *arg)
{
    (void)arg;
    for (long i = 0; i < t_scale(5000); i++) {
        mag_wg *wg = new_page();
        mag_wg_add(wg, 2);
        for (int k = 0; k < 2; k++)
            __atomic_store_n(&slots[k].wg, wg, __ATOMIC_RELEASE);
        T_EQ(mag_wg_wait(wg, MAG_FOREVER), 0);
        T_EQ(munmap(wg, 4096), 0);
    }
}

static void the_page_goes_while_threads_are_done(void)
{
    pthread_t t[2];
    doers_stop = 0;
    for (int i = 0; i < 2; i++)
        T_EQ(pthread_create(&t[i], NULL, does, &slots[i]), 0);
    on(1, waits_and_unmaps);
    waits_and_unmaps(NULL);
    __atomic_store_n(&doers_stop, 1, __ATOMIC_RELAXED);
    for (int i = 0; i < 2; i++)
        T_EQ(pthread_join(t[i], NULL), 0);
}

/* ---- misuse ---- */

static void falls_below_zero(void *arg)
{
    (void)arg;
    mag_wg wg = {0};
    mag_wg_add(&wg, 1);
    mag_wg_add(&wg, -2);
}

static void is_done_too_often(void *arg)
{
    (void)arg;
    mag_wg wg = {0};
    mag_wg_done(&wg);
}

static void is_done_in_a_goroutine(void *arg) { mag_run(is_done_too_often, arg); }

static void exceeds(void *arg)
{
    (void)arg;
    mag_wg wg = {0};
    mag_wg_add(&wg, INT_MAX);
    mag_wg_add(&wg, 1);
}

static void a_wrong_count_aborts(void)
{
    T_ABORTS(falls_below_zero, NULL, "magpie: mag_wg_add, mag_wg_done: the count falls below zero\n");
    T_ABORTS(is_done_too_often, NULL, "below zero\n");
    T_ABORTS(is_done_in_a_goroutine, NULL, "below zero\n");
    T_ABORTS(exceeds, NULL, "magpie: mag_wg_add: the count exceeds");
}

int main(int argc, char **argv)
{
    t_init(argc, argv);
    T_RUN(it_counts);
    T_RUN(many_wait_for_one);
    T_RUN(one_waits_for_many);
    T_RUN(goroutines_and_threads_mix);
    T_RUN(threads_need_no_runtime);
    T_RUN(a_thread_waits_until_its_deadline);
    T_RUN(a_goroutine_waits_until_its_deadline);
    T_RUN(deadlines_race_with_done);
    T_RUN(the_page_goes_when_a_goroutine_has_waited);
    T_RUN(the_page_goes_when_a_thread_has_waited);
    T_RUN(the_page_goes_while_threads_are_done);
    T_RUN(a_wrong_count_aborts);
    return t_done();
}
