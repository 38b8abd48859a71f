/* SPDX-License-Identifier: MIT */
/* million.c: very many goroutines at a time: what each costs, that the memory comes back, and what happens when no more fit. */
#include "test.h"

#include <magpie.h>
#include <sys/mman.h>

#ifndef MADV_GUARD_INSTALL
#define MADV_GUARD_INSTALL 102
#endif

/* ---- this machine ---- */

static long number_in(const char *path, const char *key)
{
    char line[256];
    long n = -1;
    FILE *f = fopen(path, "r");
    if (f == NULL)
        return -1;
    while (n < 0 && fgets(line, sizeof line, f) != NULL)
        if (strncmp(line, key, strlen(key)) == 0)
            sscanf(line + strlen(key), "%ld", &n);
    fclose(f);
    return n;
}

/* Can guards be had without a mapping each? As magpie finds out: does the page really go? */
static bool guards_are_cheap(void)
{
    int fd[2];
    bool cheap = false;
    void *at = mmap(NULL, 4096, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    T_TRUE(at != MAP_FAILED && pipe(fd) == 0);
    if (madvise(at, 4096, MADV_GUARD_INSTALL) == 0)
        cheap = write(fd[1], at, 1) < 0;
    close(fd[0]);
    close(fd[1]);
    munmap(at, 4096);
    return cheap;
}

static long most_mappings(void)
{
    long n = number_in("/proc/sys/vm/max_map_count", "");
    return n > 0 ? n : 65530;
}

static bool is_measured(void)
{
    return t_state.slow <= 2 && !T_ASAN && !T_TSAN;
} /* tools and emulators have memory of their own */

static long how_many(void)
{
    long n = is_measured() && number_in("/proc/meminfo", "MemAvailable:") > 8L << 20 ? 1000000 : 100000;
    if (T_TSAN)
        n = 4000;
    else if (!is_measured())
        n = t_scale(100000);
    long fit = (most_mappings() - 3000) / 2;
    return !guards_are_cheap() && n > fit ? fit : n;
}

static long memory(void) /* bytes; page tables count too */
{
    return (number_in("/proc/self/status", "VmRSS:") + number_in("/proc/self/status", "VmPTE:")) * 1024;
}

/* ---- many ---- */

static mag_stats stats(void)
{
    mag_stats total;
    T_GT(mag_stats_read(&total, NULL, 0), 0);
    return total;
}

static void in_a_child(struct t_child *c, void (*fn)(void *), void *arg)
{
    t_fork(c, fn, arg);
    if (c->code != 0)
        T_FAIL("code %d, signal %d%s\n%s", c->code, c->signal, c->timed_out ? ", timed out" : "", c->err);
}

static mag_wg gate, over;
static long woken;

static void parks(void *arg)
{
    (void)arg;
    mag_wg_wait(&gate, MAG_FOREVER);
    __atomic_add_fetch(&woken, 1, __ATOMIC_RELAXED);
}

static void spawn_parked(long n)
{
    mag_wg_add(&gate, 1);
    uint64_t before = stats().parks;
    for (long i = 0; i < n; i++) {
        T_EQ(mag_go(parks, NULL), 0);
        if (i % 256 == 255)
            mag_yield();
    }
    while (stats().parks < before + (uint64_t)n)
        mag_yield();
}

static void wake_all(long n)
{
    __atomic_store_n(&woken, 0, __ATOMIC_RELAXED);
    mag_wg_done(&gate);
    while (stats().goroutines > 1)
        mag_yield();
    T_EQ(__atomic_load_n(&woken, __ATOMIC_RELAXED), n);
}

static void many(void *arg)
{
    long n = *(long *)arg;
    spawn_parked(100); /* what is needed once is there now */
    wake_all(100);
    long before = memory(), maps = t_maps();
    int64_t start = t_now();
    spawn_parked(n);
    int64_t parked = t_now();
    long most = memory();
    printf("%ld: %ld bytes and %lld ns each, %ld mappings  ", n, (most - before) / n, (long long)(parked - start) / n,
           t_maps() - maps);
    fflush(stdout);
    T_EQ(stats().goroutines, n + 1);
    if (is_measured() && guards_are_cheap()) {
        T_LE((most - before) / n, 4900);
        T_LE(t_maps() - maps, 50);
    }
    wake_all(n);
    if (is_measured())
        T_EVENTUALLY(memory() - before <= (most - before) / 10, 15000);
    spawn_parked(1000); /* as before */
    wake_all(1000);
}

static void a_million_wait(void)
{
    long n = how_many();
    T_EQ(mag_run_with(&(mag_config){.procs = 2}, many, &n), 0);
}

static void leaves_many(void *arg) { spawn_parked(*(long *)arg); }

static void run_leaves_many(void *arg)
{
    T_EQ(mag_run_with(&(mag_config){.procs = 2}, leaves_many, arg), 0);
    long before = memory(), maps = t_maps();
    for (int i = 0; i < 3; i++) {
        gate = (mag_wg){0};
        T_EQ(mag_run_with(&(mag_config){.procs = 1 + i}, leaves_many, arg), 0);
    }
    if (is_measured()) {
        T_LE(memory() - before, 4L << 20);
        T_LE(t_maps() - maps, 30); /* stacks and arenas that the C library keeps for threads to come */
    }
}

/* In a child: a shutdown that takes seconds for each thousand would never end. */
static void a_run_that_leaves_many_gives_all_back(void)
{
    static struct t_child c;
    in_a_child(&c, run_leaves_many, &(long){how_many() / 10});
}

/* ---- more than the kernel has mappings for ---- */

enum { BATCH = 16 };

static mag_wg special[BATCH + 1];

static void waits(void *arg) { mag_wg_wait(arg, MAG_FOREVER); }

static struct {
    mag_wg start, ended;
    int stop;
} busy;

/* So that each P has something else to do than to run on the stack it has just got back. */
static void keeps_busy(void *arg)
{
    (void)arg;
    mag_wg_wait(&busy.start, MAG_FOREVER);
    while (!__atomic_load_n(&busy.stop, __ATOMIC_ACQUIRE)) {
        for (int64_t until = t_now() + 20 * MAG_US; t_now() < until;)
            ;
        mag_yield();
    }
    mag_wg_done(&busy.ended);
}

static void passes_by(void *arg)
{
    (void)arg;
    mag_wg_done(&over);
}

/* Is there one that was accepted and does not get to its wait? */
static bool somebody_waits_for_a_stack(void)
{
    uint64_t parks = 0;
    for (int i = 0; i < 50; i++) { /* a while in which nobody gets there */
        mag_stats s = stats();
        if (s.parks != parks)
            i = 0;
        parks = s.parks;
        if (s.parks + 1 >= s.goroutines)
            return false;
        mag_yield();
        t_sleep_ms(1);
    }
    return true;
}

/* Spawns goroutines that wait, until the first one gets no stack. */
static long fill_up(void)
{
    long n = (most_mappings() - 1024) / 2 - 400;
    mag_wg_add(&gate, 1);
    for (long i = 0; i < n; i++) {
        T_EQ(mag_go(parks, NULL), 0);
        if (i % 256 == 255)
            mag_yield();
    }
    while (stats().parks + 1 < stats().goroutines)
        mag_yield();
    for (; !somebody_waits_for_a_stack(); n += BATCH) {
        T_LT(n, most_mappings());
        for (int i = 0; i < BATCH; i++)
            T_EQ(mag_go(parks, NULL), 0);
    }
    return n;
}

static void too_many(void *arg)
{
    (void)arg;
    enum { MORE = 3000 };
    long n = fill_up();
    T_GE(n, most_mappings() / 2 - 2000); /* nearly all that fit */
    for (int i = 0; i < MORE; i++)
        T_EQ(mag_go(parks, NULL), 0); /* accepted */
    for (int i = 0; i < 100; i++)
        mag_yield();
    T_LE(stats().parks, n);
    void *own = mmap(NULL, 4096, PROT_READ, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    T_TRUE(own != MAP_FAILED); /* the program still can */
    munmap(own, 4096);
    wake_all(n + MORE);
}

/* One stack is enough for all who come one after the other: all others stay in use, and it must be found wherever it is kept. */
static void through_one_stack(void *arg)
{
    (void)arg;
    enum { MORE = 200, BUSY = 4 };
    mag_wg_add(&busy.start, 1);
    mag_wg_add(&busy.ended, BUSY);
    for (int i = 0; i < BUSY; i++)
        T_EQ(mag_go(keeps_busy, NULL), 0);
    for (int i = 0; i <= BATCH; i++) {
        mag_wg_add(&special[i], 1);
        T_EQ(mag_go(waits, &special[i]), 0);
    }
    fill_up();
    mag_stats s = stats();
    int before = (int)(s.goroutines - 1 - s.parks); /* they will keep a stack when they get it */
    T_GE(before, 1);
    T_LE(before, BATCH);
    mag_wg_add(&over, MORE);
    for (int i = 0; i < MORE; i++)
        T_EQ(mag_go(passes_by, NULL), 0);
    mag_wg_done(&busy.start);
    for (int i = 0; i <= before; i++)
        mag_wg_done(&special[i]);
    T_EQ(mag_wg_wait(&over, MAG_FOREVER), 0);
    __atomic_store_n(&busy.stop, 1, __ATOMIC_RELEASE);
    T_EQ(mag_wg_wait(&busy.ended, MAG_FOREVER), 0);
    for (int i = before + 1; i <= BATCH; i++)
        mag_wg_done(&special[i]);
    wake_all((long)s.goroutines - 1 - (BATCH + 1) - BUSY);
}

static void run_too_many(void *procs)
{
    t_setenv("MAGPIE_GUARD", "mprotect");
    T_EQ(mag_run_with(&(mag_config){.procs = *(int *)procs}, too_many, NULL), 0);
}

static void run_through_one_stack(void *procs)
{
    t_setenv("MAGPIE_GUARD", "mprotect");
    T_EQ(mag_run_with(&(mag_config){.procs = *(int *)procs}, through_one_stack, NULL), 0);
}

static const char *no_such_limit(void)
{
    if (T_ASAN || T_TSAN)
        return "the sanitizer has mappings of its own";
    if (t_state.slow > 2)
        return "an emulator has mappings of its own";
    if (most_mappings() > 200000)
        return "the limit of mappings is too high to reach";
    return NULL;
}

static void more_than_mappings_allow(void)
{
    static struct t_child c;
    if (no_such_limit())
        T_SKIP(no_such_limit());
    for (int procs = 1; procs <= 2; procs++) {
        in_a_child(&c, run_too_many, &procs);
        T_STR_HAS(c.err, "stack");
        T_STR_HAS(c.err, "vm.max_map_count");
        char *line = strstr(c.err, "no memory or mappings");
        T_TRUE(line);
        T_EQ(strstr(line + 1, "no memory or mappings"), NULL); /* said once */
    }
}

static void the_last_stack_serves_all_in_turn(void)
{
    static struct t_child c;
    if (no_such_limit())
        T_SKIP(no_such_limit());
    for (int procs = 1; procs <= 2; procs++)
        in_a_child(&c, run_through_one_stack, &procs);
}

int main(int argc, char **argv)
{
    t_init(argc, argv);
    T_RUN(more_than_mappings_allow);
    T_RUN(the_last_stack_serves_all_in_turn);
    T_RUN(a_million_wait);
    T_RUN(a_run_that_leaves_many_gives_all_back);
    return t_done();
}
