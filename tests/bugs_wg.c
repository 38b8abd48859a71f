/* SPDX-License-Identifier: MIT */
/* bugs_wg.c: a goroutine that was about to wait found that it need not, and the runtime stopped before it had run again. What it was to
 * wait with said neither that it was in a queue nor that it was not, and shutdown took it out of one: of the threads that waited at the
 * same wait group by then.
 *
 * The wait group is compiled into this file, so that the moment at which it is about to wait can be held.
 */
#include "test.h"

#include "os/hostile.h"
#undef hostile_point
static void hold(void);
#define hostile_point() hold()
#include "sync/wg.c"

#include <pthread.h>

static int armed, step;
static mag_wg wg;

static int at(void) { return __atomic_load_n(&step, __ATOMIC_ACQUIRE); }
static void go_on(int to) { __atomic_store_n(&step, to, __ATOMIC_RELEASE); }
static void until(int which)
{
    while (at() != which)
        t_sleep_ms(1);
}

static void hold(void)
{
    if (!__atomic_exchange_n(&armed, 0, __ATOMIC_ACQ_REL))
        return;
    go_on(1);
    while (at() != 2)
        cpu_relax();
}

static void *is_done_meanwhile(void *arg)
{
    until(1);
    mag_wg_done(&wg);
    go_on(2);
    return arg;
}

static int others_result;

static void *waits_later(void *arg)
{
    until(3);
    others_result = mag_wg_wait(&wg, MAG_FOREVER);
    return arg;
}

static NOINLINE void leave_traces(void)
{
    volatile char stack[8192];
    for (size_t i = 0; i < sizeof stack; i++)
        stack[i] = 0x41;
}

static void waits(void *arg)
{
    (void)arg;
    leave_traces();
    mag_wg_wait(&wg, MAG_FOREVER);
#ifndef MAG_HOSTILE /* where it is left to chance who goes on first */
    T_FAIL("it ran, and nothing was shown");
#endif
}

/* Runs first, and keeps the only P until the runtime is about to stop. */
static void computes(void *arg)
{
    (void)arg;
    for (int64_t end = t_now() + 300 * MAG_MS; t_now() < end;)
        ;
}

static pthread_t threads[2];

static void stops_at_once(void *arg)
{
    (void)arg;
    mag_wg_add(&wg, 1);
    T_EQ(pthread_create(&threads[0], NULL, is_done_meanwhile, NULL), 0);
    T_EQ(pthread_create(&threads[1], NULL, waits_later, NULL), 0);
    __atomic_store_n(&armed, 1, __ATOMIC_RELEASE);
    T_EQ(mag_go(waits, NULL), 0);
    mag_yield(); /* it is runnable again, and this one goes on first */
    mag_wg_add(&wg, 1);
    go_on(3);
    while ((at_64_load_rlx(word_of(&wg)) & WAITQ_QUEUE) == 0)
        cpu_relax(); /* who sleeps outside loses its P, and the other would run */
    T_EQ(mag_go(computes, NULL), 0);
}

static void a_waiter_that_woke_itself_and_a_runtime_that_stops(void)
{
    T_EQ(mag_run_with(&(mag_config){.procs = 1, .slice = -1}, stops_at_once, NULL), 0);
    for (int i = 0; i < 2; i++)
        T_EQ(pthread_join(threads[i], NULL), 0);
    T_EQ(others_result, -ESHUTDOWN);
}

int main(int argc, char **argv)
{
    t_init(argc, argv);
    T_RUN(a_waiter_that_woke_itself_and_a_runtime_that_stops);
    return t_done();
}
