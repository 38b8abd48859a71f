/* SPDX-License-Identifier: MIT */
/* config.c: what mag_config and the environment say is done, or refused in one line that names the culprit. */
#include "test.h"

#include <limits.h>
#include <sched.h>
#include <magpie.h>

#ifdef MAG_HOSTILE
enum { QUEUE = 4 };
#else
enum { QUEUE = 256 };
#endif

static void set(void *arg) { *(int *)arg = 1; }

/* ---- refused ---- */

struct attempt {
    const char *variable, *value; /* NULL: none */
    mag_config cfg;
    bool start;
};

static void attempt(void *arg)
{
    const struct attempt *a = arg;
    int ran = 0;
    if (a->variable)
        t_setenv(a->variable, a->value);
    if (a->start)
        T_EQ(mag_start(&a->cfg), -EINVAL);
    else
        T_EQ(mag_run_with(&a->cfg, set, &ran), -EINVAL);
    T_EQ(ran, 0);
    T_EQ(mag_procs(), 0);
    if (a->variable)
        t_setenv(a->variable, NULL);
    T_EQ(mag_run(set, &ran), 0); /* the runtime is off, not broken */
    T_EQ(ran, 1);
}

static void refused(const char *words, struct attempt a)
{
    static struct t_child c;
    for (int i = 0; i < 2; i++) {
        a.start = i != 0;
        t_fork(&c, attempt, &a);
        if (c.code != 0)
            T_FAIL("not refused: %s, code %d, signal %d\n%s", words, c.code, c.signal, c.err);
        T_STR_HAS(c.err, words);
        T_EQ(strchr(c.err, '\n') - c.err, strlen(c.err) - 1);
    }
}

#define REFUSED(field, value) refused("mag_config." #field, (struct attempt){.cfg = {.field = (value)}})

static void bad_configs_are_refused(void)
{
    REFUSED(procs, -1);
    REFUSED(procs, 1025);
    REFUSED(procs, INT_MAX);
    REFUSED(procs, INT_MIN);
    REFUSED(max_threads, -1);
    REFUSED(max_threads, INT_MIN);
    REFUSED(stack_size, ((size_t)1 << 30) + 1);
    REFUSED(stack_size, SIZE_MAX);
    REFUSED(steal_min, -1);
    REFUSED(steal_min, QUEUE + 1);
    REFUSED(steal_min, INT_MAX);
    REFUSED(exit_wait, -1);
    REFUSED(exit_wait, INT64_MIN);
    for (int i = 0; i < 10; i++) {
        struct attempt a = {0};
        a.cfg.reserved[i] = 1;
        refused("mag_config.reserved", a);
    }
}

static void bad_environment_is_refused(void)
{
    static const char *const bad[][2] = {
        {"MAGPIE_PROCS", "0"},
        {"MAGPIE_PROCS", "-1"},
        {"MAGPIE_PROCS", "abc"},
        {"MAGPIE_PROCS", "1025"},
        {"MAGPIE_PROCS", ""},
        {"MAGPIE_PROCS", "2 "},
        {"MAGPIE_PROCS", " 2"},
        {"MAGPIE_PROCS", "+2"},
        {"MAGPIE_PROCS", "0x2"},
        {"MAGPIE_PROCS", "2.0"},
        {"MAGPIE_PROCS", "4294967298"},           /* 2^32 + 2 */
        {"MAGPIE_PROCS", "18446744073709551618"}, /* 2^64 + 2 */
        {"MAGPIE_STACK", "x"},
        {"MAGPIE_STACK", "0"},
        {"MAGPIE_STACK", ""},
        {"MAGPIE_STACK", "k"},
        {"MAGPIE_STACK", "-64k"},
        {"MAGPIE_STACK", "64kb"},
        {"MAGPIE_STACK", "64 k"},
        {"MAGPIE_STACK", "2g"},
        {"MAGPIE_STACK", "1073741825"},
        {"MAGPIE_STACK", "17179869185g"}, /* 2^34 + 1: its bytes are 2^64 + 2^30 */
        {"MAGPIE_DEBUG", "foo=1"},
        {"MAGPIE_DEBUG", "foo"},
        {"MAGPIE_DEBUG", "schedtrace"},
        {"MAGPIE_DEBUG", "schedtrace="},
        {"MAGPIE_DEBUG", "schedtrace=abc"},
        {"MAGPIE_DEBUG", "schedtrace=-1"},
        {"MAGPIE_DEBUG", "schedtrace=10 "},
        {"MAGPIE_DEBUG", "scheddetail=2"},
        {"MAGPIE_DEBUG", "schedtrace=10,foo=1"},
        {"MAGPIE_DEBUG", "schedtrace=10;scheddetail=1"},
        {"MAGPIE_DEBUG", "=1"},
        {"MAGPIE_GUARD", "nonsense"},
        {"MAGPIE_GUARD", ""},
        {"MAGPIE_GUARD", "mprotect "},
    };
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++)
        refused(bad[i][0], (struct attempt){.variable = bad[i][0], .value = bad[i][1]});
}

/* In words that say what was asked for: SIZE_MAX is not -1. */
static void large_values_are_named(void)
{
    refused("mag_config.stack_size is 18446744073709551615: ", (struct attempt){.cfg.stack_size = SIZE_MAX});
    refused("mag_config.reserved is 18446744073709551615: ", (struct attempt){.cfg.reserved[3] = UINTPTR_MAX});
}

/* ---- done ---- */

static void count_procs(void *arg) { *(int *)arg = mag_procs(); }

static int procs_of(const mag_config *cfg)
{
    int n = -1;
    T_EQ(mag_run_with(cfg, count_procs, &n), 0);
    return n;
}

static void edges_are_accepted(void)
{
    T_EQ(procs_of(&(mag_config){.procs = 1}), 1);
    T_EQ(procs_of(&(mag_config){.procs = 65}), 65);
    T_EQ(procs_of(&(mag_config){.procs = 1024}), 1024);
    T_EQ(procs_of(&(mag_config){.procs = 2, .max_threads = 1}), 2);
    T_EQ(procs_of(&(mag_config){.procs = 2, .max_threads = INT_MAX}), 2);
    T_EQ(procs_of(&(mag_config){.procs = 2, .stack_size = 1}), 2);
    T_EQ(procs_of(&(mag_config){.procs = 2, .stack_size = (size_t)1 << 30}), 2);
    T_EQ(procs_of(&(mag_config){.procs = 2, .steal_min = 1}), 2);
    T_EQ(procs_of(&(mag_config){.procs = 2, .steal_min = QUEUE}), 2);
    T_EQ(procs_of(&(mag_config){.procs = 2, .slice = 1}), 2);
    T_EQ(procs_of(&(mag_config){.procs = 2, .slice = -1}), 2);
    T_EQ(procs_of(&(mag_config){.procs = 2, .slice = INT64_MIN}), 2);
    T_EQ(procs_of(&(mag_config){.procs = 2, .slice = INT64_MAX}), 2);
    T_EQ(procs_of(&(mag_config){.procs = 2, .exit_wait = INT64_MAX}), 2);
}

static void defaults_follow_the_machine(void)
{
    cpu_set_t set;
    T_EQ(sched_getaffinity(0, sizeof set, &set), 0);
    int here = procs_of(NULL);
    T_GE(here, 1);
    T_LE(here, CPU_COUNT(&set)); /* a quota of the container may allow fewer */
}

static void one_cpu(void *arg)
{
    (void)arg;
    cpu_set_t all, one;
    T_EQ(sched_getaffinity(0, sizeof all, &all), 0);
    CPU_ZERO(&one);
    for (int i = 0; CPU_COUNT(&one) == 0; i++)
        if (CPU_ISSET(i, &all))
            CPU_SET(i, &one);
    T_EQ(sched_setaffinity(0, sizeof one, &one), 0);
    T_EQ(procs_of(NULL), 1);
}

static void defaults_follow_the_affinity(void)
{
    static struct t_child c;
    t_fork(&c, one_cpu, NULL);
    if (c.code != 0)
        T_FAIL("%s", c.err);
}

static void environment_overrides(void *arg)
{
    (void)arg;
    t_setenv("MAGPIE_PROCS", "3");
    T_EQ(procs_of(NULL), 3);
    T_EQ(procs_of(&(mag_config){.procs = 5}), 3);
    t_setenv("MAGPIE_PROCS", "1");
    T_EQ(procs_of(NULL), 1);
    t_setenv("MAGPIE_PROCS", "007");
    T_EQ(procs_of(NULL), 7);
    t_setenv("MAGPIE_PROCS", NULL);
    static const char *const stacks[] = {"1", "64k", "64K", "1m", "2M", "1g", "1G", "100000"};
    for (size_t i = 0; i < sizeof stacks / sizeof *stacks; i++) {
        t_setenv("MAGPIE_STACK", stacks[i]);
        T_EQ(procs_of(&(mag_config){.procs = 2}), 2);
    }
    t_setenv("MAGPIE_STACK", NULL);
    static const char *const debug[] = {"", "schedtrace=0", "scheddetail=0", "schedtrace=1000,scheddetail=1"};
    for (size_t i = 0; i < sizeof debug / sizeof *debug; i++) {
        t_setenv("MAGPIE_DEBUG", debug[i]);
        T_EQ(procs_of(&(mag_config){.procs = 2}), 2);
    }
}

static void good_environment_overrides(void)
{
    static struct t_child c;
    t_fork(&c, environment_overrides, NULL);
    if (c.code != 0)
        T_FAIL("code %d, signal %d\n%s", c.code, c.signal, c.err);
    T_STR_EQ(c.err, "");
}

static void asks_for_a_trace(void *arg)
{
    (void)arg;
    t_setenv("MAGPIE_GUARD", "mprotect");
    t_setenv("MAGPIE_TRACE", "/nowhere/trace");
    for (int i = 0; i < 3; i++)
        T_EQ(procs_of(&(mag_config){.procs = 2}), 2);
}

static void a_trace_is_declined_once(void)
{
    static struct t_child c;
    t_fork(&c, asks_for_a_trace, NULL);
    if (c.code != 0)
        T_FAIL("code %d, signal %d\n%s", c.code, c.signal, c.err);
    T_STR_EQ(c.err, "magpie: MAGPIE_TRACE=/nowhere/trace: this version has no tracer, nothing is written\n");
}

/* A quarter of the stack is the largest copy: so the size shows. */
static void largest_copy(void *arg)
{
    static char big[1 << 20];
    size_t n = *(size_t *)arg;
    T_EQ(mag_go_copy(count_procs, big, n), 0);
    T_EQ(mag_go_copy(count_procs, big, n + 1), -E2BIG);
}

static void stack_sizes(void *arg)
{
    (void)arg;
    size_t quarter = 64 << 10;
    T_EQ(mag_run(largest_copy, &quarter), 0);
    quarter = 4 << 10;
    T_EQ(mag_run_with(&(mag_config){.stack_size = 1}, largest_copy, &quarter), 0);
    quarter = 256 << 10;
    T_EQ(mag_run_with(&(mag_config){.stack_size = 1000000}, largest_copy, &quarter), 0);
    t_setenv("MAGPIE_STACK", "64k");
    quarter = 16 << 10;
    T_EQ(mag_run(largest_copy, &quarter), 0);
    T_EQ(mag_run_with(&(mag_config){.stack_size = 1 << 20}, largest_copy, &quarter), 0);
}

static void stacks_have_the_size_asked_for(void)
{
    static struct t_child c;
    t_fork(&c, stack_sizes, NULL);
    if (c.code != 0)
        T_FAIL("code %d, signal %d\n%s", c.code, c.signal, c.err);
}

static void done(void *wg) { mag_wg_done(wg); }

static void spawns_many(void *arg)
{
    mag_wg wg = {0};
    int n = (int)t_scale(20000);
    T_EQ(mag_procs(), 1024);
    mag_wg_add(&wg, n);
    for (int i = 0; i < n; i++) {
        T_EQ(mag_go(done, &wg), 0);
        if (i % 100 == 0)
            mag_yield();
    }
    T_EQ(mag_wg_wait(&wg, MAG_FOREVER), 0);
    set(arg);
}

static void a_thousand_procs(void *arg)
{
    int ran = 0;
    (void)arg;
    t_setenv("MAGPIE_PROCS", "1024");
    T_EQ(mag_run(spawns_many, &ran), 0);
    T_EQ(ran, 1);
}

static void a_thousand_procs_on_a_small_machine(void)
{
    static struct t_child c;
    t_fork(&c, a_thousand_procs, NULL);
    if (c.code != 0)
        T_FAIL("code %d, signal %d\n%s", c.code, c.signal, c.err);
    T_STR_EQ(c.err, "");
}

int main(int argc, char **argv)
{
    t_init(argc, argv);
    t_setenv("MAGPIE_PROCS", NULL); /* whoever runs the tests may have set them */
    t_setenv("MAGPIE_STACK", NULL);
    t_setenv("MAGPIE_DEBUG", NULL);
    t_setenv("MAGPIE_GUARD", NULL);
    t_setenv("MAGPIE_TRACE", NULL);
    T_RUN(bad_configs_are_refused);
    T_RUN(bad_environment_is_refused);
    T_RUN(large_values_are_named);
    T_RUN(edges_are_accepted);
    T_RUN(defaults_follow_the_machine);
    T_RUN(defaults_follow_the_affinity);
    T_RUN(good_environment_overrides);
    T_RUN(a_trace_is_declined_once);
    T_RUN(stacks_have_the_size_asked_for);
    T_RUN(a_thousand_procs_on_a_small_machine);
    return t_done();
}
