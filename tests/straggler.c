/* SPDX-License-Identifier: MIT */
/* straggler.c: a goroutine that is still in foreign code when the runtime ends keeps its thread and its stack, is named,
 * and harms nobody: not the next run, and not itself. */
#include "test.h"

#include <magpie.h>
#include <pthread.h>

static void nothing(void *arg) { (void)arg; }
static void set(int *flag) { __atomic_store_n(flag, 1, __ATOMIC_RELEASE); }
static int get(const int *flag) { return __atomic_load_n(flag, __ATOMIC_ACQUIRE); }

static int inside, let_go, returned; /* in static memory: the goroutine outlives whoever started it */

static void yields(void) { mag_yield(); }
static void exits(void) { mag_exit(); }
static void ends(void) {}

static void waits(void)
{
    static mag_wg wg;
    mag_wg_add(&wg, 1);
    mag_wg_wait(&wg, MAG_FOREVER);
}

/* Counted as a caller from outside when it ends, it would be waited for ever after. */
static void selects(void)
{
    mag_chan *c = NULL;
    int v;
    mag_select(&MAG_RECV(c, &v), 1, MAG_FOREVER);
}

/* These do not switch, so they return; the next one that may does not. */
static void spawns_first(void)
{
    T_EQ(mag_go(nothing, NULL), -ESHUTDOWN);
    T_EQ(mag_go(nothing, NULL), -ESHUTDOWN);
    T_NE(mag_id(), 0);
    mag_set_name("late");
    mag_checkpoint();
    mag_yield();
}

/* No runtime runs, and a goroutine is not the one to start it. */
static int tried, let_it_try, tried_again;
static void starts_one(void)
{
    T_EQ(mag_procs(), 0);
    T_EQ(mag_start(NULL), -EPERM);
    T_EQ(mag_procs(), 0);
    T_EQ(mag_run(nothing, NULL), -EPERM);
    T_EQ(mag_stop(MAG_FOREVER), -EPERM);
    set(&tried);
    while (!get(&let_it_try))
        usleep(1000);
    T_EQ(mag_start(NULL), -EBUSY); /* now there is one */
    T_EQ(mag_run(nothing, NULL), -EBUSY);
    T_EQ(mag_stop(MAG_FOREVER), -EPERM); /* though it is not this goroutine's to stop */
    set(&tried_again);
    mag_yield();
}

static void stuck(void *arg)
{
    void (*last_call)(void) = (void (*)(void))arg;
    volatile char mine[4096];
    memset((char *)mine, 0x5a, sizeof mine);
    set(&inside);
    while (!get(&let_go))
        usleep(1000);
    for (size_t i = 0; i < sizeof mine; i++)
        T_EQ(mine[i], 0x5a); /* its stack is still there */
    last_call();
    if (last_call != ends)
        set(&returned);
}

static void leaves_one_stuck(void *arg)
{
    T_EQ(mag_go_with(&(mag_go_config){.name = "digger"}, stuck, arg), 0);
    while (!get(&inside))
        mag_yield();
}

/* Threads beside the runtime's. A sanitizer starts one of its own with the first. */
static long other_threads(void)
{
    T_EQ(mag_run(nothing, NULL), 0);
    return t_threads();
}

static void leave_one(void (*last_call)(void))
{
    inside = let_go = returned = 0;
    mag_config cfg = {.procs = 2, .exit_wait = 50 * MAG_MS};
    int64_t start = t_now();
    T_EQ(mag_run_with(&cfg, leaves_one_stuck, (void *)last_call), -ETIMEDOUT);
    T_GE(t_now() - start, 50 * MAG_MS);
    T_EQ(mag_procs(), 0);
}

static void let_it_go(long threads)
{
    set(&let_go);
    T_EVENTUALLY(t_threads() <= threads, 10000);
    T_EQ(get(&returned), 0);
}

struct story {
    void (*last_call)(void);
};

static void tell(void *arg)
{
    const struct story *s = arg;
    long threads = other_threads(), maps = t_maps();
    leave_one(s->last_call);
    for (int i = 0; i < 5; i++) /* others may run meanwhile */
        T_EQ(mag_run(nothing, NULL), 0);
    T_GT(t_threads(), threads);
    let_it_go(threads);
    T_EQ(mag_run(nothing, NULL), 0);
    if (t_state.slow == 1)
        T_EVENTUALLY(t_maps() <= maps + 16, 2000);
}

static void tell_of(void (*last_call)(void))
{
    static struct t_child c;
    struct story s = {last_call};
    t_fork(&c, tell, &s);
    if (c.code != 0)
        T_FAIL("code %d, signal %d%s\n%s", c.code, c.signal, c.timed_out ? ", timed out" : "", c.err);
    T_STR_HAS(c.err, "\"digger\"");
    T_STR_HAS(c.err, "still in foreign code");
    T_EQ(strchr(c.err, '\n') - c.err, strlen(c.err) - 1); /* one line: nobody else was late */
}

static void it_ends_at_a_yield(void) { tell_of(yields); }
static void it_ends_at_a_wait(void) { tell_of(waits); }
static void it_ends_at_its_exit(void) { tell_of(exits); }
static void it_ends_at_its_end(void) { tell_of(ends); }
static void it_ends_at_a_select(void) { tell_of(selects); }
static void it_cannot_spawn(void) { tell_of(spawns_first); }

static void tell_of_a_start(void *arg)
{
    (void)arg;
    long threads = other_threads();
    leave_one(starts_one);
    set(&let_go);
    T_EVENTUALLY(get(&tried), 10000);
    T_EQ(mag_start(NULL), 0);
    set(&let_it_try);
    T_EVENTUALLY(get(&tried_again), 10000);
    T_EQ(mag_stop(MAG_FOREVER), 0);
    let_it_go(threads);
}

static void it_starts_no_runtime(void)
{
    static struct t_child c;
    t_fork(&c, tell_of_a_start, NULL);
    if (c.code != 0)
        T_FAIL("code %d, signal %d%s\n%s", c.code, c.signal, c.timed_out ? ", timed out" : "", c.err);
}

/* ---- its group ---- */

static mag_group group;

static void leaves_a_member_stuck(void *arg)
{
    (void)arg;
    T_EQ(mag_go_with(&(mag_go_config){.name = "digger", .group = &group}, stuck, (void *)(uintptr_t)yields), 0);
    while (!get(&inside))
        mag_yield();
}

static void waits_for_the_group(void *arg)
{
    (void)arg;
    mag_group_cancel(&group); /* who has gone is not looked at */
    T_EQ(mag_group_wait(&group, mag_in(10 * MAG_S)), -ECANCELED);
}

/* The group outlives the run, and the member that did not come back in time leaves it when it does. */
static void tell_of_a_member(void *arg)
{
    (void)arg;
    long threads = other_threads();
    mag_config cfg = {.procs = 2, .exit_wait = 50 * MAG_MS};
    T_EQ(mag_run_with(&cfg, leaves_a_member_stuck, NULL), -ETIMEDOUT);
    T_EQ(mag_group_wait(&group, MAG_TRY), -ETIMEDOUT);
    let_it_go(threads);
    T_EQ(mag_run(waits_for_the_group, NULL), 0);
}

static void it_leaves_its_group(void)
{
    static struct t_child c;
    t_fork(&c, tell_of_a_member, NULL);
    if (c.code != 0)
        T_FAIL("code %d, signal %d%s\n%s", c.code, c.signal, c.timed_out ? ", timed out" : "", c.err);
}

/* ---- the next run ---- */

static int hog_stop;

static void hog(void *arg)
{
    (void)arg;
    while (!get(&hog_stop))
        ;
}

static void ends_the_hog(void *arg)
{
    (void)arg;
    set(&hog_stop);
}

/* On one P: only preemption lets the second goroutine run. */
static void needs_preemption(void *arg)
{
    (void)arg;
    hog_stop = 0;
    T_EQ(mag_go(ends_the_hog, NULL), 0);
    T_EQ(mag_go(hog, NULL), 0);
    while (!get(&hog_stop))
        mag_yield();
}

static void ends_meanwhile(void *arg)
{
    let_it_go(*(long *)arg + 1 + mag_procs()); /* this runtime has threads, too */
    t_sleep_ms(20);
    needs_preemption(NULL);
}

/* It comes back while another runtime is there, and must not be taken for one of its own. */
static void tell_of_two_runs(void *arg)
{
    (void)arg;
    long threads = other_threads();
    for (int i = 0; i < 3; i++) {
        leave_one(yields);
        T_EQ(mag_run_with(&(mag_config){.procs = 1}, ends_meanwhile, &threads), 0);
        T_EVENTUALLY(t_threads() <= threads, 10000);
    }
}

static void it_comes_back_in_another_run(void)
{
    static struct t_child c;
    t_fork(&c, tell_of_two_runs, NULL);
    if (c.code != 0)
        T_FAIL("code %d, signal %d%s\n%s", c.code, c.signal, c.timed_out ? ", timed out" : "", c.err);
}

/* ---- several, with pointers into each other's stacks ---- */

enum { MANY = 8 };

struct ring {
    int *next; /* in another one's stack */
    int mine;
};

static int *place[MANY];
static int placed;

static void stuck_in_a_ring(void *arg)
{
    int i = *(int *)arg;
    int mine = 100 + i;
    __atomic_store_n(&place[i], &mine, __ATOMIC_RELEASE);
    __atomic_add_fetch(&placed, 1, __ATOMIC_RELEASE);
    while (!get(&let_go) || i != __atomic_load_n(&inside, __ATOMIC_ACQUIRE)) /* one after the other */
        usleep(500);
    for (int k = i; k < MANY; k++) /* the stacks of those that have not gone yet */
        T_EQ(*(volatile int *)place[k], 100 + k);
    __atomic_store_n(&inside, i + 1, __ATOMIC_RELEASE);
    mag_yield();
    set(&returned);
}

static void leaves_many_stuck(void *arg)
{
    (void)arg;
    for (int i = 0; i < MANY; i++)
        T_EQ(mag_go_copy(stuck_in_a_ring, &i, sizeof i), 0);
    while (__atomic_load_n(&placed, __ATOMIC_ACQUIRE) < MANY)
        mag_yield();
}

static void tell_of_many(void *arg)
{
    (void)arg;
    long threads = other_threads();
    inside = let_go = returned = placed = 0;
    mag_config cfg = {.procs = 2, .slice = MAG_MS, .exit_wait = 50 * MAG_MS};
    T_EQ(mag_run_with(&cfg, leaves_many_stuck, NULL), -ETIMEDOUT);
    T_GE(t_threads(), threads + MANY);
    let_it_go(threads);
    T_EQ(get(&inside), MANY);
}

static void many_keep_their_stacks(void)
{
    static struct t_child c;
    t_fork(&c, tell_of_many, NULL);
    if (c.code != 0)
        T_FAIL("code %d, signal %d%s\n%s", c.code, c.signal, c.timed_out ? ", timed out" : "", c.err);
}

/* ---- on the border ---- */

enum { CLOSE = 3 };

static int arrived;
static int64_t until[CLOSE];

static void leaves_when_it_is_over(void *arg)
{
    int64_t *mine = arg, end;
    __atomic_add_fetch(&arrived, 1, __ATOMIC_RELEASE);
    do {
        usleep(20);
        end = __atomic_load_n(mine, __ATOMIC_RELAXED);
    } while (end == 0 || t_now() < end);
    mag_yield(); /* the end, or just another one */
}

static void leaves_some_behind(void *arg)
{
    (void)arg;
    __atomic_store_n(&arrived, 0, __ATOMIC_RELAXED);
    for (int i = 0; i < CLOSE; i++) /* those of the last run may still look */
        __atomic_store_n(&until[i], 0, __ATOMIC_RELAXED);
    for (int i = 0; i < CLOSE; i++)
        T_EQ(mag_go(leaves_when_it_is_over, &until[i]), 0);
    while (__atomic_load_n(&arrived, __ATOMIC_ACQUIRE) < CLOSE)
        mag_yield();
    for (int i = 0; i < CLOSE; i++) /* around the moment when patience ends */
        __atomic_store_n(&until[i], t_now() + MAG_MS + t_random() % 400000 - 100000, __ATOMIC_RELAXED);
}

static void tell_of_the_border(void *arg)
{
    (void)arg;
    long threads = other_threads(), late = 0, maps = 0, n = 10 + t_scale(300);
    for (long i = 0; i < n; i++) {
        mag_config cfg = {.procs = CLOSE + 1, .exit_wait = MAG_MS};
        int r = mag_run_with(&cfg, leaves_some_behind, NULL);
        T_TRUE(r == 0 || r == -ETIMEDOUT);
        late += r != 0;
        if (i == 10) {
            T_EVENTUALLY(t_threads() <= threads, 10000);
            maps = t_maps();
        }
    }
    T_EVENTUALLY(t_threads() <= threads, 10000);
    printf("%ld of %ld late  ", late, n);
    if (t_state.slow == 1)
        T_LE(t_maps(), maps + 64); /* each thread may have an arena of the C library */
}

static void they_come_back_at_the_last_moment(void)
{
    static struct t_child c;
    t_fork(&c, tell_of_the_border, NULL);
    if (c.code != 0)
        T_FAIL("code %d, signal %d%s\n%s", c.code, c.signal, c.timed_out ? ", timed out" : "",
               strstr(c.err, "ERROR") ? strstr(c.err, "ERROR") : c.err + (strlen(c.err) > 1500 ? strlen(c.err) - 1500 : 0));
}

int main(int argc, char **argv)
{
    t_init(argc, argv);
    T_RUN(it_ends_at_a_yield);
    T_RUN(it_ends_at_a_wait);
    T_RUN(it_ends_at_its_exit);
    T_RUN(it_ends_at_its_end);
    T_RUN(it_ends_at_a_select);
    T_RUN(it_cannot_spawn);
    T_RUN(it_starts_no_runtime);
    T_RUN(it_leaves_its_group);
    T_RUN(it_comes_back_in_another_run);
    T_RUN(many_keep_their_stacks);
    T_RUN(they_come_back_at_the_last_moment);
    return t_done();
}
