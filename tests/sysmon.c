/* SPDX-License-Identifier: MIT */
/* sysmon.c: after a long rest somebody looks after the program again, whoever was the first to have something to do. */
#include "test.h"

#include <magpie.h>
#include <dirent.h>
#include <pthread.h>
#include <string.h>

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

/* ---- what looking costs ---- */

/* Processor time of the runtime's own thread so far, in ns. */
static int64_t cost(void)
{
    DIR *tasks = opendir("/proc/self/task");
    int64_t ns = -1;
    T_TRUE(tasks != NULL);
    for (struct dirent *e; (e = readdir(tasks)) != NULL;) {
        char path[300], name[32] = "";
        snprintf(path, sizeof path, "/proc/self/task/%s/comm", e->d_name);
        FILE *f = fopen(path, "r");
        if (f == NULL)
            continue;
        bool it = fgets(name, sizeof name, f) != NULL && strcmp(name, "magpie-sysmon\n") == 0;
        fclose(f);
        snprintf(path, sizeof path, "/proc/self/task/%s/schedstat", e->d_name);
        if (!it || (f = fopen(path, "r")) == NULL)
            continue;
        long long n;
        if (fscanf(f, "%lld", &n) == 1)
            ns = n;
        fclose(f);
    }
    closedir(tasks);
    return ns;
}

static int64_t spent, during;

/* Every P has its goroutine and nobody waits: there is nothing to take from anybody. */
static void busy(void *wg)
{
    for (int64_t end = t_now() + 2500 * MAG_MS; t_now() < end;)
        if (wg == NULL)
            mag_yield();
    if (wg != NULL)
        mag_wg_done(wg);
}

static void looks_on(void *computing)
{
    mag_wg wg = {0};
    mag_wg_add(&wg, 1);
    mag_go(busy, &wg);
    if (computing == NULL)
        mag_go(busy, NULL);
    int64_t start = t_now();
    while (t_now() < start + 1000 * MAG_MS)
        if (computing == NULL)
            mag_yield();
    spent = cost();
    during = t_now();
    while (t_now() < during + 1000 * MAG_MS)
        if (computing == NULL)
            mag_yield();
    spent = cost() - spent;
    during = t_now() - during;
    mag_wg_wait(&wg, MAG_FOREVER);
}

/* Where nothing was retaken for a second, looking costs less than a hundredth of a core. */
static void looking_on_costs_little(void)
{
    static int yes = 1;
    if (t_state.slow > 1)
        T_SKIP("a figure of the machine itself");
    for (int i = 0; i < 2; i++) {
        T_EQ(mag_run_with(&(mag_config){.procs = 2}, looks_on, i == 0 ? &yes : NULL), 0);
        if (spent < 0)
            return; /* this kernel does not tell */
        printf("%s: %.2f %%  ", i == 0 ? "computing" : "yielding", 100.0 * (double)spent / (double)during);
        T_LT(100.0 * (double)spent / (double)during, 1.0 * (double)t_state.slow);
    }
}

int main(int argc, char **argv)
{
    t_init(argc, argv);
    T_RUN(slices_end_after_a_rest);
    T_RUN(at_rest_nothing_wakes_up);
    T_RUN(looking_on_costs_little);
    return t_done();
}
