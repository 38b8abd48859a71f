/* SPDX-License-Identifier: MIT */
/* deadlock.c: when nobody can ever be woken the run ends with -EDEADLK and says who waited where; never a moment earlier. */
#include "test.h"

#include <magpie.h>
#include <pthread.h>

static void nothing(void *arg) { (void)arg; }
static void wait_for(mag_wg *wg) { T_EQ(mag_wg_wait(wg, MAG_FOREVER), 0); }

static struct t_child child;

/* Runs it in a process that has one thread. False: here it has more (an emulator's, a sanitizer's), and a thread that magpie
 * does not know could wake somebody. */
static bool in_a_child(void (*fn)(void *), void *arg)
{
    t_fork(&child, fn, arg);
    if (child.code != 0 && child.code != 77)
        T_FAIL("code %d, signal %d%s\n%s", child.code, child.signal, child.timed_out ? ", timed out" : "", child.err);
    return child.code == 0;
}

static void must_be_alone(void)
{
    if (t_threads() != 1)
        _exit(77);
}

#define ONLY_ALONE(ran)                                                                                                \
    do {                                                                                                               \
        if (!(ran))                                                                                                    \
            T_SKIP("the process has threads of its own here");                                                         \
    } while (0)

static int lines_with(const char *text, const char *part)
{
    int n = 0;
    for (; (text = strstr(text, part)) != NULL; text += strlen(part))
        n++;
    return n;
}

/* ---- reported ---- */

static mag_wg never, a, b;

static void waits(void *wg) { wait_for(wg); }

static void main_waits(void *arg)
{
    (void)arg;
    mag_wg_add(&never, 1);
    wait_for(&never);
    T_FAIL("it was woken");
}

static void run_main_waits(void *procs)
{
    must_be_alone();
    for (int i = 0; i < 3; i++) { /* again, and other runs between */
        never = (mag_wg){0};
        T_EQ(mag_run_with(&(mag_config){.procs = *(int *)procs}, main_waits, NULL), -EDEADLK);
        T_EQ(mag_procs(), 0);
        T_EQ(mag_run(nothing, NULL), 0);
    }
    T_EVENTUALLY(t_threads() == 1, 2000);
}

static void a_main_that_waits_forever(void)
{
    for (int procs = 1; procs <= 3; procs++) {
        ONLY_ALONE(in_a_child(run_main_waits, &procs));
        T_EQ(lines_with(child.err, "magpie: deadlock"), 3);
        T_EQ(lines_with(child.err, "\"main\" [wait group, "), 3);
        T_EQ(lines_with(child.err, ", created at "), 3);
    }
}

static void waits_for_each_other(void *arg)
{
    (void)arg;
    mag_wg_add(&a, 1);
    mag_wg_add(&b, 1);
    char name[16];
    for (int i = 0; i < 20; i++) {
        snprintf(name, sizeof name, "fork-%d", i);
        T_EQ(mag_go_with(&(mag_go_config){.name = name}, waits, i % 2 ? &a : &b), 0);
    }
    wait_for(&a);
}

static void run_each_other(void *arg)
{
    (void)arg;
    must_be_alone();
    T_EQ(mag_run_with(&(mag_config){.procs = 2}, waits_for_each_other, NULL), -EDEADLK);
    T_EQ(mag_run(nothing, NULL), 0);
}

static void everybody_is_named(void)
{
    ONLY_ALONE(in_a_child(run_each_other, NULL));
    T_EQ(lines_with(child.err, "goroutine "), 21 + lines_with(child.err, "every goroutine "));
    T_EQ(lines_with(child.err, "[wait group, "), 21);
    T_EQ(lines_with(child.err, ", created at "), 21);
    char name[16];
    for (int i = 0; i < 20; i++) {
        snprintf(name, sizeof name, "\"fork-%d\"", i);
        T_STR_HAS(child.err, name);
    }
}

/* ---- not reported ---- */

static void *wakes_later(void *arg)
{
    t_sleep_ms(300);
    mag_wg_done(arg);
    return NULL;
}

static void run_with_a_thread_that_wakes(void *arg)
{
    (void)arg;
    pthread_t t;
    mag_wg_add(&never, 1);
    T_EQ(pthread_create(&t, NULL, wakes_later, &never), 0);
    T_EQ(mag_run(waits, &never), 0);
    T_EQ(pthread_join(t, NULL), 0);
}

static void a_thread_may_still_wake_it(void)
{
    T_TRUE(in_a_child(run_with_a_thread_that_wakes, NULL));
    T_STR_EQ(child.err, "");
}

static void sleeps_and_wakes(void *arg)
{
    usleep(300000);
    mag_wg_done(arg);
}

static void waits_for_a_sleeper(void *arg)
{
    (void)arg;
    mag_wg_add(&a, 1);
    T_EQ(mag_go(sleeps_and_wakes, &a), 0);
    wait_for(&a);
}

static void run_sleeper(void *procs)
{
    T_EQ(mag_run_with(&(mag_config){.procs = *(int *)procs}, waits_for_a_sleeper, NULL), 0);
}

static void a_goroutine_in_a_blocking_call_may_wake_it(void)
{
    for (int procs = 1; procs <= 2; procs++) {
        T_TRUE(in_a_child(run_sleeper, &procs));
        T_STR_EQ(child.err, "");
    }
}

static void computes_and_wakes(void *arg)
{
    for (int64_t until = t_now() + 300 * MAG_MS; t_now() < until;)
        ;
    mag_wg_done(arg);
}

static void waits_for_a_loose_one(void *arg)
{
    (void)arg;
    mag_wg_add(&a, 1);
    T_EQ(mag_go(nothing, NULL), 0); /* makes the other lose its P */
    T_EQ(mag_go(computes_and_wakes, &a), 0);
    wait_for(&a);
}

static void run_loose(void *arg)
{
    (void)arg;
    T_EQ(mag_run_with(&(mag_config){.procs = 1, .slice = MAG_MS}, waits_for_a_loose_one, NULL), 0);
}

static void a_goroutine_without_a_p_may_wake_it(void)
{
    T_TRUE(in_a_child(run_loose, NULL));
    T_STR_EQ(child.err, "");
}

static void sleeps(void *arg)
{
    (void)arg;
    T_EQ(mag_sleep(300 * MAG_MS), 0);
    mag_wg_add(&a, 1);
    T_EQ(mag_wg_wait(&a, mag_in(300 * MAG_MS)), -ETIMEDOUT);
}

static void run_sleeps(void *procs) { T_EQ(mag_run_with(&(mag_config){.procs = *(int *)procs}, sleeps, NULL), 0); }

static void a_deadline_may_wake_it(void)
{
    for (int procs = 1; procs <= 2; procs++) {
        T_TRUE(in_a_child(run_sleeps, &procs));
        T_STR_EQ(child.err, "");
    }
}

static void run_started(void *arg)
{
    (void)arg;
    must_be_alone();
    mag_wg_add(&a, 1);
    mag_wg_add(&b, 1);
    T_EQ(mag_start(NULL), 0);
    T_EQ(mag_go(waits, &a), 0);
    t_sleep_ms(300);
    T_EQ(mag_go(sleeps_and_wakes, &b), 0); /* this thread could always do that */
    wait_for(&b);
    T_EQ(mag_stop(MAG_FOREVER), 0);
}

static void a_program_beside_the_runtime_may_wake_it(void)
{
    ONLY_ALONE(in_a_child(run_started, NULL));
    T_STR_EQ(child.err, "");
}

/* Whoever looks for deadlocks meets the first goroutine on its way to the queue. The moment is short: many runs. */
static void run_often(void *arg)
{
    (void)arg;
    for (long i = 0; i < t_scale(6000); i++)
        T_EQ(mag_run(nothing, NULL), 0);
}

static void a_main_that_has_not_begun_is_no_deadlock(void)
{
    T_TRUE(in_a_child(run_often, NULL));
    T_STR_EQ(child.err, "");
}

/* ---- reported later ---- */

static void *ends_later(void *arg)
{
    t_sleep_ms(*(int *)arg);
    return NULL;
}

static void run_with_a_thread_that_ends(void *ms)
{
    pthread_t t;
    must_be_alone();
    T_EQ(pthread_create(&t, NULL, ends_later, ms), 0);
    int64_t start = t_now();
    T_EQ(mag_run(main_waits, NULL), -EDEADLK);
    T_GE(t_now() - start, (*(int *)ms - 50) * MAG_MS);
    T_EQ(pthread_join(t, NULL), 0);
}

static void a_thread_that_ends_leaves_a_deadlock(void)
{
    int ms = 200;
    ONLY_ALONE(in_a_child(run_with_a_thread_that_ends, &ms));
}

int main(int argc, char **argv)
{
    t_init(argc, argv);
    T_RUN(a_main_that_waits_forever);
    T_RUN(everybody_is_named);
    T_RUN(a_thread_may_still_wake_it);
    T_RUN(a_goroutine_in_a_blocking_call_may_wake_it);
    T_RUN(a_goroutine_without_a_p_may_wake_it);
    T_RUN(a_deadline_may_wake_it);
    T_RUN(a_program_beside_the_runtime_may_wake_it);
    T_RUN(a_main_that_has_not_begun_is_no_deadlock);
    T_RUN(a_thread_that_ends_leaves_a_deadlock);
    return t_done();
}
