/* SPDX-License-Identifier: MIT */
/* set_procs.c: the number of Ps changes while everything runs: nothing is lost, nothing is counted twice. */
#include "test.h"

#include <limits.h>
#include <magpie.h>
#include <pthread.h>
#include <sched.h>

static void set(int *flag) { __atomic_store_n(flag, 1, __ATOMIC_RELEASE); }
static int get(const int *flag) { return __atomic_load_n(flag, __ATOMIC_ACQUIRE); }
static void add(long *n) { __atomic_add_fetch(n, 1, __ATOMIC_RELAXED); }
static long read_count(const long *n) { return __atomic_load_n(n, __ATOMIC_RELAXED); }
static void wait_for(mag_wg *wg) { T_EQ(mag_wg_wait(wg, MAG_FOREVER), 0); }

static void on(int procs, mag_fn fn, void *arg) { T_EQ(mag_run_with(&(mag_config){.procs = procs}, fn, arg), 0); }

static void spin_ns(int64_t ns)
{
    for (int64_t until = t_now() + ns; t_now() < until;)
        ;
}

static int below(uint64_t *random, uint32_t n) { return (int)(t_random_r(random) % n); }

/* ---- what it returns ---- */

static void changes(void *arg)
{
    (void)arg;
    static const int to[] = {5, 1, 1, 1024, 1024, 2, 1023, 3, 64, 65, 63, 3};
    int before = 3;
    T_EQ(mag_procs(), 3);
    for (size_t i = 0; i < sizeof to / sizeof *to; i++) {
        T_EQ(mag_set_procs(to[i]), before);
        T_EQ(mag_procs(), to[i]);
        T_EQ(mag_stats_read(NULL, NULL, 0), to[i]);
        before = to[i];
        mag_yield();
    }
}

static void it_returns_the_old_number(void) { on(3, changes, NULL); }

static const int wrong[] = {0, -1, 1025, INT_MAX, INT_MIN};

static void refuses(void *arg)
{
    (void)arg;
    for (size_t i = 0; i < sizeof wrong / sizeof *wrong; i++) {
        T_EQ(mag_set_procs(wrong[i]), -EINVAL);
        T_EQ(mag_procs(), 2);
    }
}

static void wrong_numbers_change_nothing(void)
{
    on(2, refuses, NULL);
    for (size_t i = 0; i < sizeof wrong / sizeof *wrong; i++)
        T_EQ(mag_set_procs(wrong[i]), -EINVAL);
}

static void without_a_runtime(void)
{
    T_EQ(mag_set_procs(1), -EPERM);
    T_EQ(mag_set_procs(1024), -EPERM);
    T_EQ(mag_procs(), 0);
}

/* ---- while goroutines spawn goroutines ---- */

enum { LINES = 16 };

static struct {
    mag_wg wg;
    long spawned, ran;
    int stop;
} family;

/* Each spawns its heir, and sometimes a child that has none. */
static void lives(void *arg)
{
    uint64_t random = (uintptr_t)arg;
    int what = below(&random, 16);
    add(&family.ran);
    if (what < 4) {
        add(&family.spawned);
        mag_wg_add(&family.wg, 1);
        T_EQ(mag_go(lives, (void *)0), 0); /* an even number: no heir */
    }
    if (what > 7)
        mag_yield();
    if (what == 15)
        spin_ns(5 * MAG_US);
    if (what == 14)
        mag_lock_thread(), mag_yield(), mag_unlock_thread();
    if (((uintptr_t)arg & 1) != 0 && !get(&family.stop)) {
        add(&family.spawned);
        mag_wg_add(&family.wg, 1);
        T_EQ(mag_go(lives, (void *)(uintptr_t)(random | 1)), 0);
    }
    mag_wg_done(&family.wg);
}

static void found(int lines)
{
    memset(&family, 0, sizeof family);
    family.spawned = lines;
    mag_wg_add(&family.wg, lines);
    for (int i = 0; i < lines; i++)
        T_EQ(mag_go(lives, (void *)(uintptr_t)(t_state.seed << 8 | (unsigned)i << 1 | 1)), 0);
}

static void ends(void)
{
    set(&family.stop);
    wait_for(&family.wg);
    T_EQ(family.ran, family.spawned);
}

struct many {
    uint32_t most;
    long times;
};

static void changes_many_times(void *arg)
{
    const struct many *many = arg;
    uint64_t random = t_state.seed;
    int before = mag_procs();
    found(LINES);
    for (long i = 0; i < t_scale(many->times); i++) {
        int procs = 1 + below(&random, many->most);
        T_EQ(mag_set_procs(procs), before);
        before = procs;
        switch (below(&random, 4)) {
        case 0:
            mag_yield();
            break;
        case 1:
            spin_ns(below(&random, 200) * MAG_US);
            break;
        }
    }
    ends();
    mag_stats total;
    T_EQ(mag_stats_read(&total, NULL, 0), before);
    T_EVENTUALLY((mag_stats_read(&total, NULL, 0), total.finished == total.spawned - 1), 10000);
    T_EQ(total.spawned, family.spawned + 1); /* what retired Ps have counted counts */
    T_EQ(total.goroutines, 1);
}

static void changes_while_goroutines_spawn(void)
{
    on(1, changes_many_times, &(struct many){64, 1000});
    on(64, changes_many_times, &(struct many){3, 1000});
}

static void changes_up_to_1024(void) { on(1024, changes_many_times, &(struct many){1024, 150}); }

/* ---- work on Ps that retire ---- */

static struct {
    mag_wg wg;
    long ran;
    int hoarding;
} hoard;

enum { HOARDERS = 4, EACH = 100 }; /* no more than may compute without a P when there is one left */

static void runs(void *arg)
{
    (void)arg;
    add(&hoard.ran);
    mag_wg_done(&hoard.wg);
}

/* Fills the queue of its P and then stays in user code: nobody but who takes the P can get at it. */
static void hoards(void *arg)
{
    (void)arg;
    for (int i = 0; i < EACH; i++)
        T_EQ(mag_go(runs, NULL), 0);
    __atomic_add_fetch(&hoard.hoarding, 1, __ATOMIC_RELEASE);
    while (read_count(&hoard.ran) < HOARDERS * EACH)
        sched_yield();
    mag_wg_done(&hoard.wg);
}

static void retires_hoarders(void *arg)
{
    (void)arg;
    memset(&hoard, 0, sizeof hoard);
    mag_wg_add(&hoard.wg, HOARDERS * (EACH + 1));
    for (int i = 0; i < HOARDERS; i++)
        T_EQ(mag_go(hoards, NULL), 0);
    while (__atomic_load_n(&hoard.hoarding, __ATOMIC_ACQUIRE) < HOARDERS / 2)
        mag_yield();
    T_EQ(mag_set_procs(1), HOARDERS);
    wait_for(&hoard.wg);
    T_EQ(hoard.ran, HOARDERS * EACH);
}

static void work_on_retired_ps_is_not_lost(void)
{
    for (long i = 0; i < t_scale(20); i++)
        T_EQ(mag_run_with(&(mag_config){.procs = HOARDERS, .slice = MAG_MS}, retires_hoarders, NULL), 0);
}

/* Nothing but the change itself moves them: a slice never ends, and the last P is busy elsewhere. */
static void alone_on_one_of_two(void *arg)
{
    mag_wg *wg = arg;
    for (int i = 0; i < EACH; i++)
        T_EQ(mag_go(runs, NULL), 0);
    __atomic_add_fetch(&hoard.hoarding, 1, __ATOMIC_RELEASE);
    while (read_count(&hoard.ran) < EACH)
        sched_yield();
    mag_wg_done(wg);
}

static void retires_a_busy_p(void *arg)
{
    (void)arg;
    mag_wg wg = {0};
    memset(&hoard, 0, sizeof hoard);
    mag_wg_add(&hoard.wg, EACH);
    mag_wg_add(&wg, 1);
    T_EQ(mag_go(alone_on_one_of_two, &wg), 0);
    for (int i = 0; !__atomic_load_n(&hoard.hoarding, __ATOMIC_ACQUIRE); i++)
        sched_yield(); /* does not leave its own P: the other one must take it */
    T_EQ(mag_set_procs(1), 2);
    wait_for(&wg);
    wait_for(&hoard.wg);
    T_EQ(hoard.ran, EACH);
    T_EQ(mag_set_procs(2), 1);
}

static void a_p_retires_under_a_goroutine_that_computes(void)
{
    for (long i = 0; i < t_scale(50); i++)
        T_EQ(mag_run_with(&(mag_config){.procs = 2, .slice = 5 * MAG_MS}, retires_a_busy_p, NULL), 0);
}

/* ---- from outside ---- */

static struct {
    int stop;
    long done;
} outside;

static void *changes_from_outside(void *arg)
{
    uint64_t random = (uintptr_t)arg;
    while (!get(&outside.stop)) {
        int r = mag_set_procs(1 + below(&random, 32));
        T_GE(r, 1);
        T_LE(r, 32);
        add(&outside.done);
    }
    return NULL;
}

static void three_change_it(void *arg)
{
    (void)arg;
    pthread_t t[3];
    memset(&outside, 0, sizeof outside);
    found(LINES);
    for (uintptr_t i = 0; i < 3; i++)
        T_EQ(pthread_create(&t[i], NULL, changes_from_outside, (void *)(t_state.seed + i)), 0);
    while (read_count(&outside.done) < t_scale(3000)) {
        T_GE(mag_set_procs(2), 1);
        mag_yield();
    }
    set(&outside.stop);
    for (int i = 0; i < 3; i++)
        T_EQ(pthread_join(t[i], NULL), 0);
    ends();
}

static void foreign_threads_change_it(void) { on(4, three_change_it, NULL); }

static void *changes_come_what_may(void *arg)
{
    uint64_t random = (uintptr_t)arg;
    while (!get(&outside.stop)) {
        int r = mag_set_procs(1 + below(&random, 8));
        if (r < 0 && r != -EPERM && r != -ESHUTDOWN)
            T_FAIL("mag_set_procs: %d", r);
        add(&outside.done);
        sched_yield();
    }
    return NULL;
}

static void short_run(void *arg)
{
    (void)arg;
    found(2);
    for (int i = 0; i < 10; i++)
        mag_yield();
    ends();
}

static void while_runtimes_come_and_go(void)
{
    pthread_t t[2];
    memset(&outside, 0, sizeof outside);
    for (uintptr_t i = 0; i < 2; i++)
        T_EQ(pthread_create(&t[i], NULL, changes_come_what_may, (void *)(t_state.seed + i)), 0);
    for (long i = 0; i < t_scale(150); i++)
        on(1 + (int)i % 4, short_run, NULL);
    set(&outside.stop);
    for (int i = 0; i < 2; i++)
        T_EQ(pthread_join(t[i], NULL), 0);
    T_GT(outside.done, 0);
}

/* ---- one P, and then company ---- */

static struct {
    mag_wg wg;
    long turns;
    int stop;
} alone;

static void takes_turns(void *arg)
{
    (void)arg;
    while (!get(&alone.stop)) {
        add(&alone.turns);
        mag_yield();
    }
    mag_wg_done(&alone.wg);
}

static void computes(void *arg)
{
    (void)arg;
    while (!get(&alone.stop))
        ;
    mag_wg_done(&alone.wg);
}

/* The only P's owner skips what is needed against thieves. It must stop that before there are any, wherever it is just then. */
static void company_comes(void *arg)
{
    uint64_t random = t_state.seed + (uintptr_t)arg;
    int yielders = 3 + below(&random, 20), hogs = below(&random, 3);
    memset(&alone, 0, sizeof alone);
    mag_wg_add(&alone.wg, yielders + hogs);
    for (int i = 0; i < yielders; i++)
        T_EQ(mag_go(takes_turns, NULL), 0);
    for (int i = 0; i < hogs; i++)
        T_EQ(mag_go(computes, NULL), 0);
    for (int i = below(&random, 50); i > 0; i--)
        mag_yield();
    T_EQ(mag_set_procs(2 + below(&random, 4)), 1);
    long since = read_count(&alone.turns);
    while (read_count(&alone.turns) < since + 200)
        mag_yield();
    if (below(&random, 2) == 0)
        T_GT(mag_set_procs(1), 1);
    since = read_count(&alone.turns);
    while (read_count(&alone.turns) < since + 200)
        mag_yield();
    set(&alone.stop);
    wait_for(&alone.wg);
}

static void from_one_and_back(void)
{
    for (long i = 0; i < t_scale(60); i++)
        T_EQ(mag_run_with(&(mag_config){.procs = 1, .slice = MAG_MS}, company_comes, (void *)(uintptr_t)i), 0);
}

/* From outside, at any moment of a P that never rests; and at one that sleeps. */
static void *brings_company(void *arg)
{
    (void)arg;
    t_sleep_ms(2);
    T_EQ(mag_set_procs(4), 1);
    set(&alone.stop);
    return NULL;
}

static void busy_until_company(void *arg)
{
    (void)arg;
    memset(&alone, 0, sizeof alone);
    mag_wg_add(&alone.wg, 10);
    pthread_t t;
    T_EQ(pthread_create(&t, NULL, brings_company, NULL), 0);
    for (int i = 0; i < 10; i++)
        T_EQ(mag_go(takes_turns, NULL), 0);
    wait_for(&alone.wg);
    T_EQ(pthread_join(t, NULL), 0);
    T_EQ(mag_procs(), 4);
}

static void asleep_until_company(void *arg)
{
    (void)arg;
    memset(&alone, 0, sizeof alone);
    pthread_t t;
    T_EQ(pthread_create(&t, NULL, brings_company, NULL), 0);
    T_EQ(pthread_join(t, NULL), 0); /* in foreign code all the while */
    T_EQ(mag_procs(), 4);
    mag_yield();
}

static void company_from_outside(void)
{
    for (long i = 0; i < t_scale(30); i++) {
        on(1, busy_until_company, NULL);
        on(1, asleep_until_company, NULL);
        T_EQ(mag_start(&(mag_config){.procs = 1}), 0);
        T_EQ(mag_set_procs(3), 1); /* no thread has run yet */
        T_EQ(mag_procs(), 3);
        T_EQ(mag_stop(MAG_FOREVER), 0);
    }
}

/* ---- the counters ---- */

enum { COUNTED = 8, PARKED = 40 };

static struct {
    mag_wg gate, wg;
    int there;
} counted;

/* ---- who waits is woken by a thread outside while the first P gets company and loses it ----
 * With one P a goroutine can be woken before it is off its stack: nobody may resume it there. */

enum { PATRONS = 8 };

static mag_wg *orders[PATRONS];
static int closing;
static mag_wg patrons;

static void *serve(void *arg)
{
    long *served = arg;
    while (!get(&closing))
        for (int i = 0; i < PATRONS; i++) {
            mag_wg *wg = __atomic_exchange_n(&orders[i], NULL, __ATOMIC_ACQ_REL);
            if (wg != NULL) {
                mag_wg_done(wg);
                ++*served;
            }
        }
    return NULL;
}

static void dine(void *arg)
{
    mag_wg **order = arg;
    for (long n = t_scale(20000); n > 0; n--) {
        mag_wg wg = {0};
        volatile long mine[8];
        for (int i = 0; i < 8; i++)
            mine[i] = n + i;
        mag_wg_add(&wg, 1);
        __atomic_store_n(order, &wg, __ATOMIC_RELEASE);
        wait_for(&wg);
        for (int i = 0; i < 8; i++)
            T_EQ(mine[i], n + i);
        if (n % 3 == 0)
            mag_yield();
    }
    mag_wg_done(&patrons);
}

static void dines_in_company(void *arg)
{
    (void)arg;
    pthread_t waiter;
    long served = 0;
    closing = 0;
    T_EQ(pthread_create(&waiter, NULL, serve, &served), 0);
    mag_wg_add(&patrons, PATRONS);
    for (int i = 0; i < PATRONS; i++)
        T_EQ(mag_go(dine, &orders[i]), 0);
    for (int n = 0; mag_wg_wait(&patrons, mag_in(200 * MAG_US)) != 0; n++)
        T_TRUE(mag_set_procs(1 + n % 2) > 0);
    set(&closing);
    T_EQ(pthread_join(waiter, NULL), 0);
    T_EQ(served, PATRONS * t_scale(20000));
}

static void who_is_woken_early_is_resumed_late(void) { on(1, dines_in_company, NULL); }

/* ---- a P is to retire, and then is not, while its ring is full ---- */

static int tired;

static void yields_on(void *arg)
{
    while (!get(&tired))
        mag_yield();
    mag_wg_done(arg);
}

static void calls_back(void *arg)
{
    (void)arg;
    mag_wg wg = {0};
    mag_wg_add(&wg, 600);
    tired = 0;
    for (int i = 0; i < 600; i++)
        T_EQ(mag_go(yields_on, &wg), 0);
    for (long n = t_scale(1000); n > 0; n--) {
        T_TRUE(mag_set_procs(1) > 0);
        T_TRUE(mag_set_procs(2) > 0);
        mag_yield();
    }
    set(&tired);
    wait_for(&wg);
}

static void bug_a_ring_was_taken_for_empty(void) { on(2, calls_back, NULL); }

static void parks(void *arg)
{
    (void)arg;
    mag_wg_wait(&counted.gate, MAG_FOREVER);
}

/* They spawn when all are there: each on a P of its own. */
static void spawns(void *arg)
{
    (void)arg;
    __atomic_add_fetch(&counted.there, 1, __ATOMIC_RELEASE);
    while (get(&counted.there) < COUNTED)
        sched_yield();
    for (int i = 0; i < PARKED; i++)
        T_EQ(mag_go(parks, NULL), 0);
    mag_wg_done(&counted.wg);
}

static void sums(void *arg)
{
    (void)arg;
    enum { N = COUNTED * PARKED };
    mag_stats total, per[COUNTED];
    memset(&counted, 0, sizeof counted);
    mag_wg_add(&counted.gate, 1);
    mag_wg_add(&counted.wg, COUNTED);
    for (int i = 0; i < COUNTED; i++)
        T_EQ(mag_go(spawns, NULL), 0);
    wait_for(&counted.wg);
    while (mag_stats_read(&total, NULL, 0), total.goroutines != N + 1 || total.runnable != 0 || total.parks < N)
        mag_yield();
    static const int steps[] = {1, 8, 2, 8, 1};
    int before = COUNTED;
    for (size_t i = 0; i < sizeof steps / sizeof *steps; i++) {
        T_EQ(mag_set_procs(steps[i]), before);
        before = steps[i];
        memset(per, 0xee, sizeof per);
        T_EQ(mag_stats_read(&total, per, COUNTED), steps[i]);
        T_EQ(total.spawned, N + COUNTED + 1); /* what retired Ps have counted counts */
        T_EQ(total.finished, COUNTED);
        T_EQ(total.goroutines, N + 1);
        uint64_t spawned = 0;
        for (int p = 0; p < steps[i]; p++)
            spawned += per[p].spawned;
        T_LE(spawned, N + COUNTED); /* main came from outside; and retired Ps are not shown one by one */
        for (int p = steps[i]; p < COUNTED; p++)
            T_EQ(per[p].spawned, UINT64_C(0xeeeeeeeeeeeeeeee));
    }
    mag_wg_done(&counted.gate);
    T_EQ(mag_set_procs(COUNTED), 1);
    while (mag_stats_read(&total, NULL, 0), total.finished < N + COUNTED)
        mag_yield();
    T_EQ(total.goroutines, 1);
    T_EQ(total.runnable, 0);
}

static void the_counters_stay_right(void) { on(COUNTED, sums, NULL); }

/* ---- the machine changes ---- */

static cpu_set_t all_cpus;

static void all_threads_on(const cpu_set_t *set)
{
    DIR *dir = opendir("/proc/self/task");
    T_TRUE(dir);
    for (struct dirent *e; (e = readdir(dir)) != NULL;)
        if (e->d_name[0] != '.')
            sched_setaffinity(atoi(e->d_name), sizeof *set, set); /* one that has just ended: no matter */
    closedir(dir);
}

static cpu_set_t first_cpu(void)
{
    cpu_set_t one;
    CPU_ZERO(&one);
    for (int i = 0; i < CPU_SETSIZE && CPU_COUNT(&one) == 0; i++)
        if (CPU_ISSET(i, &all_cpus))
            CPU_SET(i, &one);
    return one;
}

static void follows(void *arg)
{
    (void)arg;
    cpu_set_t one = first_cpu();
    int procs = mag_procs();
    if (procs < 2)
        _exit(77);
    for (int i = 0; i < 2; i++) {
        all_threads_on(&one);
        T_EVENTUALLY((all_threads_on(&one), mag_procs() == 1), 10000);
        all_threads_on(&all_cpus);
        T_EVENTUALLY((all_threads_on(&all_cpus), mag_procs() == procs), 10000);
    }
}

static void follows_the_machine(void *arg)
{
    (void)arg;
    T_EQ(mag_run(follows, NULL), 0);
}

static void the_machine_is_followed(void)
{
    static struct t_child c;
    T_EQ(sched_getaffinity(0, sizeof all_cpus, &all_cpus), 0);
    t_setenv("MAGPIE_PROCS", NULL);
    if (CPU_COUNT(&all_cpus) < 2)
        T_SKIP("one CPU");
    t_fork(&c, follows_the_machine, NULL);
    if (c.code == 77)
        T_SKIP("a quota of one CPU");
    if (c.code != 0)
        T_FAIL("code %d, signal %d%s\n%s", c.code, c.signal, c.timed_out ? ", timed out" : "", c.err);
}

static void stays_at_two(void *arg)
{
    (void)arg;
    cpu_set_t one = first_cpu();
    if (mag_procs() != 2)
        T_EQ(mag_set_procs(2), mag_procs() == 2 ? 1 : 2);
    for (int i = 0; i < 25; i++) {
        all_threads_on(&one);
        T_EQ(mag_procs(), 2);
        t_sleep_ms(100);
    }
}

static void sets_two_and_stays(void *arg)
{
    int before = mag_procs();
    T_EQ(mag_set_procs(2), before);
    stays_at_two(arg);
}

static void by_config(void *arg) { T_EQ(mag_run_with(&(mag_config){.procs = 2}, stays_at_two, arg), 0); }
static void by_call(void *arg) { T_EQ(mag_run(sets_two_and_stays, arg), 0); }
static void by_environment(void *arg)
{
    t_setenv("MAGPIE_PROCS", "2");
    T_EQ(mag_run(stays_at_two, arg), 0);
}

static void a_given_number_stays(void)
{
    static void (*const ways[])(void *) = {by_config, by_call, by_environment};
    pid_t pids[3];
    T_EQ(sched_getaffinity(0, sizeof all_cpus, &all_cpus), 0);
    if (CPU_COUNT(&all_cpus) < 2)
        T_SKIP("one CPU");
    fflush(NULL);
    for (int i = 0; i < 3; i++) { /* each takes longer than the machine is looked at: all at once */
        T_GE(pids[i] = fork(), 0);
        if (pids[i] == 0) {
            ways[i](NULL);
            _exit(0);
        }
    }
    for (int i = 0; i < 3; i++) {
        int status;
        T_EQ(waitpid(pids[i], &status, 0), pids[i]);
        T_EQ(status, 0);
    }
}

int main(int argc, char **argv)
{
    t_init(argc, argv);
    T_RUN(the_machine_is_followed);
    T_RUN(a_given_number_stays);
    T_RUN(it_returns_the_old_number);
    T_RUN(wrong_numbers_change_nothing);
    T_RUN(without_a_runtime);
    T_RUN(changes_while_goroutines_spawn);
    T_RUN(changes_up_to_1024);
    T_RUN(work_on_retired_ps_is_not_lost);
    T_RUN(a_p_retires_under_a_goroutine_that_computes);
    T_RUN(foreign_threads_change_it);
    T_RUN(while_runtimes_come_and_go);
    T_RUN(from_one_and_back);
    T_RUN(company_from_outside);
    T_RUN(who_is_woken_early_is_resumed_late);
    T_RUN(bug_a_ring_was_taken_for_empty);
    T_RUN(the_counters_stay_right);
    return t_done();
}
