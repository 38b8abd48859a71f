/* SPDX-License-Identifier: MIT */
/* sysmon.c: after a long rest somebody looks after the program again, whoever was the first to have something to do. */
#include "test.h"

#include <magpie.h>
#include <pthread.h>

static int flag;
static mag_wg gate, over;

static void sets(void *arg)
{
    (void)arg;
    __atomic_store_n(&flag, 1, __ATOMIC_RELEASE);
}

/* With one P the other one runs only if this one's slice comes to an end. */
static void computes(void *arg)
{
    (void)arg;
    T_EQ(mag_go(sets, NULL), 0);
    for (int64_t end = t_now() + 10 * MAG_S * t_state.slow; !__atomic_load_n(&flag, __ATOMIC_ACQUIRE) && t_now() < end;)
        ;
    T_EQ(flag, 1);
    mag_wg_done(&over);
}

static void rest(void) { t_sleep_ms(2500); } /* nothing to do for a second: the runtime's own thread sleeps too */

static void waits_and_computes(void *arg)
{
    T_EQ(mag_wg_wait(&gate, MAG_FOREVER), 0);
    computes(arg);
}

static void locked_waits_and_computes(void *arg)
{
    mag_lock_thread();
    waits_and_computes(arg);
}

static void nothing(void *arg) { (void)arg; }

/* What ran before the rest, and what is spawned after it. */
static const struct {
    const char *name;
    mag_fn before, after;
} ways[] = {
    {"the first goroutine of all", NULL, computes},
    {"a new goroutine", nothing, computes},
    {"one that waited", waits_and_computes, NULL},
    {"one that waited, locked to its thread", locked_waits_and_computes, NULL},
};

enum { WAYS = sizeof ways / sizeof *ways };

static void one_way(int i)
{
    mag_wg_add(&gate, 1);
    mag_wg_add(&over, 1);
    T_EQ(mag_start(&(mag_config){.procs = 1}), 0);
    if (ways[i].before != NULL)
        T_EQ(mag_go(ways[i].before, NULL), 0);
    rest();
    if (ways[i].after != NULL)
        T_EQ(mag_go(ways[i].after, NULL), 0);
    mag_wg_done(&gate);
    T_EQ(mag_wg_wait(&over, MAG_FOREVER), 0);
    T_EQ(mag_stop(MAG_FOREVER), 0);
}

static void slices_end_after_a_rest(void)
{
    pid_t pids[WAYS];
    fflush(NULL);
    for (int i = 0; i < WAYS; i++) { /* they rest at the same time */
        T_GE(pids[i] = fork(), 0);
        if (pids[i] == 0) {
            t_state.now = ways[i].name;
            one_way(i);
            _exit(0);
        }
    }
    int failed = 0;
    for (int i = 0; i < WAYS; i++) {
        int status;
        T_EQ(waitpid(pids[i], &status, 0), pids[i]);
        failed += status != 0;
    }
    T_EQ(failed, 0);
}

/* ---- at rest ---- */

static mag_wg parked_gate;

static void parks(void *arg)
{
    (void)arg;
    T_EQ(mag_wg_wait(&parked_gate, MAG_FOREVER), 0);
}

/* Ten thousand wait, and nobody else is there: not one wake-up, of any thread. */
static void at_rest_nothing_wakes_up(void)
{
    mag_wg_add(&parked_gate, 1);
    T_EQ(mag_start(NULL), 0);
    for (long i = 0; i < t_scale(10000); i++)
        T_EQ(mag_go(parks, NULL), 0);
    long n = 1;
    for (int tries = 0; tries < 10 && n != 0; tries++) { /* memory is given back first, and surplus threads end */
        t_sleep_ms(1500);
        long before = t_wake_ups();
        t_sleep_ms(1000);
        n = t_wake_ups() - before;
    }
    T_EQ(n, 0);
    mag_wg_done(&parked_gate);
    T_EQ(mag_stop(MAG_FOREVER), 0);
}

int main(int argc, char **argv)
{
    t_init(argc, argv);
    T_RUN(slices_end_after_a_rest);
    T_RUN(at_rest_nothing_wakes_up);
    return t_done();
}
