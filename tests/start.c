/* SPDX-License-Identifier: MIT */
/* start.c: the runtime beside the program's own threads: mag_start, mag_stop, and threads that use it meanwhile. */
#include "test.h"

#include <magpie.h>
#include <pthread.h>
#include <sched.h>

enum { THREADS = 4 };

static void nothing(void *arg) { (void)arg; }
static void counts(void *arg) { __atomic_add_fetch((long *)arg, 1, __ATOMIC_RELAXED); }
static long read_count(const long *n) { return __atomic_load_n(n, __ATOMIC_RELAXED); }

static void in_threads(void *(*fn)(void *), void *arg, pthread_t t[THREADS])
{
    for (int i = 0; i < THREADS; i++)
        T_EQ(pthread_create(&t[i], NULL, fn, arg), 0);
}

static void join(pthread_t t[THREADS])
{
    for (int i = 0; i < THREADS; i++)
        T_EQ(pthread_join(t[i], NULL), 0);
}

/* ---- what it returns ---- */

static void outside_a_runtime_nothing_works(void)
{
    long ran = 0;
    T_EQ(mag_stop(MAG_FOREVER), -EPERM);
    T_EQ(mag_go(counts, &ran), -EPERM);
    T_EQ(mag_go_copy(counts, &ran, sizeof ran), -EPERM);
    T_EQ(mag_go_with(&(mag_go_config){.name = "x"}, counts, &ran), -EPERM);
    T_EQ(mag_dump(STDOUT_FILENO), -EPERM);
    T_EQ(mag_procs(), 0);
    mag_stats stats = {.spawned = 1};
    T_EQ(mag_stats_read(&stats, NULL, 0), 0);
    T_EQ(stats.spawned, 0);
    mag_checkpoint(); /* nothing to break */
    T_EQ(ran, 0);
}

struct once {
    mag_wg wg;
    int stop, run, start;
};

static void stops_from_inside(void *arg)
{
    struct once *o = arg;
    o->stop = mag_stop(MAG_FOREVER);
    o->run = mag_run(nothing, NULL);
    o->start = mag_start(NULL);
    mag_wg_done(&o->wg);
}

static void one_at_a_time(void)
{
    struct once o = {0};
    T_EQ(mag_start(&(mag_config){.procs = 2}), 0);
    T_EQ(mag_procs(), 2);
    T_EQ(mag_start(NULL), -EBUSY);
    T_EQ(mag_run(nothing, NULL), -EBUSY);
    mag_wg_add(&o.wg, 1);
    T_EQ(mag_go(stops_from_inside, &o), 0);
    T_EQ(mag_wg_wait(&o.wg, MAG_FOREVER), 0);
    T_EQ(o.stop, -EPERM);
    T_EQ(o.run, -EBUSY);
    T_EQ(o.start, -EBUSY);
    T_EQ(mag_stop(MAG_FOREVER), 0);
    outside_a_runtime_nothing_works();
    T_EQ(mag_run(nothing, NULL), 0); /* the other kind may follow */
}

static uint64_t finished(void)
{
    mag_stats s;
    mag_stats_read(&s, NULL, 0);
    return s.finished;
}

/* Nobody is in foreign code, so there is nothing that could take longer than a try. */
static void an_idle_runtime_stops_without_patience(void)
{
    for (long i = 0; i < t_scale(100); i++) {
        long ran = 0;
        T_EQ(mag_start(NULL), 0);
        T_EQ(mag_go(counts, &ran), 0);
        T_EVENTUALLY(finished() == 1, 10000);
        T_EQ(read_count(&ran), 1);
        T_EQ(mag_stop(MAG_TRY), 0);
    }
}

static int together; /* how many are there: the last one lets them all go */

static void meet(void)
{
    __atomic_add_fetch(&together, 1, __ATOMIC_ACQ_REL);
    while (__atomic_load_n(&together, __ATOMIC_ACQUIRE) % THREADS != 0)
        sched_yield();
}

static void *stops(void *arg)
{
    meet();
    int r = mag_stop(MAG_FOREVER);
    if (r == 0)
        counts(arg);
    else
        T_EQ(r, -EPERM);
    return NULL;
}

static void of_many_stops_one_wins(void)
{
    for (long i = 0; i < t_scale(300); i++) {
        pthread_t t[THREADS];
        long won = 0;
        T_EQ(mag_start(NULL), 0);
        in_threads(stops, &won, t);
        join(t);
        T_EQ(won, 1);
    }
}

static void *starts(void *arg)
{
    meet();
    int r = mag_start(NULL);
    if (r == 0)
        counts(arg);
    else
        T_EQ(r, -EBUSY);
    return NULL;
}

static void of_many_starts_one_wins(void)
{
    for (long i = 0; i < t_scale(300); i++) {
        pthread_t t[THREADS];
        long won = 0;
        in_threads(starts, &won, t);
        join(t);
        T_EQ(won, 1);
        T_EQ(mag_stop(MAG_FOREVER), 0);
    }
}

/* ---- threads that spawn ---- */

enum { EACH = 5000 };

struct job {
    mag_wg wg;
    long ran;
};

static void works(void *arg)
{
    struct job *j = arg;
    counts(&j->ran);
    mag_wg_done(&j->wg);
}

static void *spawns(void *arg)
{
    struct job *j = arg;
    for (long i = 0; i < t_scale(EACH); i++) {
        mag_wg_add(&j->wg, 1);
        T_EQ(mag_go(works, j), 0);
    }
    T_EQ(mag_wg_wait(&j->wg, MAG_FOREVER), 0);
    return NULL;
}

static void threads_spawn_and_wait(void)
{
    struct job j = {0};
    pthread_t t[THREADS];
    T_EQ(mag_start(NULL), 0);
    in_threads(spawns, &j, t);
    join(t);
    T_EQ(mag_stop(MAG_FOREVER), 0);
    T_EQ(j.ran, THREADS * t_scale(EACH));
}

static void restarts_leave_nothing(void)
{
    long threads = 0, fds = 0, maps = 0, warm = 20, rounds = warm + t_scale(400);
    for (long i = 0; i < rounds; i++) {
        struct job j = {0};
        T_EQ(mag_start(NULL), 0);
        mag_wg_add(&j.wg, 8);
        for (int k = 0; k < 8; k++)
            T_EQ(mag_go(works, &j), 0);
        T_EQ(mag_wg_wait(&j.wg, MAG_FOREVER), 0);
        T_EQ(mag_stop(MAG_FOREVER), 0);
        if (i == warm) {
            threads = t_threads();
            fds = t_fds();
            maps = t_maps();
        }
    }
    T_EVENTUALLY(t_threads() <= threads, 2000);
    T_EQ(t_fds(), fds);
    if (t_state.slow == 1)
        T_LE(t_maps(), maps + 16);
}

/* ---- threads that do not know that it stops ---- */

struct hammer {
    int stop;
    long accepted, ran, refused;
};

static void *hammers(void *arg)
{
    struct hammer *h = arg;
    while (!__atomic_load_n(&h->stop, __ATOMIC_RELAXED)) {
        int r = mag_go(counts, &h->ran);
        if (r != 0 && r != -ESHUTDOWN && r != -EPERM)
            T_FAIL("mag_go returned %d", r);
        counts(r == 0 ? &h->accepted : &h->refused);
        mag_stats total;
        mag_stats_read(&total, NULL, 0);
        mag_procs();
    }
    return NULL;
}

static void spawning_threads_meet_the_end(void)
{
    static struct hammer h;
    pthread_t t[THREADS];
    in_threads(hammers, &h, t);
    for (long i = 0; i < t_scale(100); i++) {
        long before = read_count(&h.ran);
        T_EQ(mag_start(&(mag_config){.procs = 1 + i % 3}), 0);
        T_EVENTUALLY(read_count(&h.ran) > before, 10000);
        T_EQ(mag_stop(MAG_FOREVER), 0);
    }
    __atomic_store_n(&h.stop, 1, __ATOMIC_RELAXED);
    join(t);
    T_GT(h.refused, 0);
    T_LE(h.ran, h.accepted);
}

/* Goroutines park on gates, threads open them, the runtime goes: whoever holds a goroutine that was just woken must not
 * find it gone. */
enum { GATES = 64 };

struct gates {
    mag_wg gate[GATES];
    int stop;
    long parked;
};

struct pass {
    struct gates *gates;
    int i;
};

static void passes(void *arg)
{
    struct pass *p = arg;
    counts(&p->gates->parked);
    for (;;) {
        mag_wg_wait(&p->gates->gate[p->i], MAG_FOREVER);
        mag_yield();
    }
}

static void *opens_and_closes(void *arg)
{
    struct gates *g = arg;
    while (!__atomic_load_n(&g->stop, __ATOMIC_RELAXED))
        for (int i = 0; i < GATES; i++) {
            mag_wg_add(&g->gate[i], 1);
            mag_wg_done(&g->gate[i]);
        }
    return NULL;
}

static void waking_threads_meet_the_end(void)
{
    static struct gates g;
    pthread_t t[THREADS];
    in_threads(opens_and_closes, &g, t);
    for (long round = 0; round < t_scale(100); round++) {
        long before = read_count(&g.parked);
        T_EQ(mag_start(&(mag_config){.procs = 2}), 0);
        for (int i = 0; i < GATES; i++)
            T_EQ(MAG_GO(passes, struct pass, &g, i), 0);
        T_EVENTUALLY(read_count(&g.parked) > before + GATES / 2, 10000);
        T_EQ(mag_stop(MAG_FOREVER), 0);
    }
    __atomic_store_n(&g.stop, 1, __ATOMIC_RELAXED);
    join(t);
}

/* The same with one gate and a crowd behind it: waking them all takes longer than stopping. */
struct crowd {
    mag_wg gate;
    long parked;
    int go;
    int64_t delay;
};

static void waits(void *arg)
{
    struct crowd *c = arg;
    counts(&c->parked);
    mag_wg_wait(&c->gate, MAG_FOREVER);
}

static void *opens(void *arg)
{
    struct crowd *c = arg;
    while (!__atomic_load_n(&c->go, __ATOMIC_ACQUIRE))
        ;
    for (int64_t until = t_now() + c->delay; t_now() < until;)
        ;
    mag_wg_done(&c->gate);
    return NULL;
}

static void a_crowd_is_woken_at_the_end(void)
{
    long n = T_TSAN ? 100 : t_scale(5000);
    for (long round = 0; round < (T_TSAN ? 20 : 60); round++) {
        static struct crowd c;
        c = (struct crowd){.delay = t_random() % 150000};
        pthread_t t;
        mag_wg_add(&c.gate, 1);
        T_EQ(mag_start(&(mag_config){.procs = 2}), 0);
        T_EQ(pthread_create(&t, NULL, opens, &c), 0);
        for (long i = 0; i < n; i++)
            T_EQ(mag_go(waits, &c), 0);
        T_EVENTUALLY(read_count(&c.parked) == n, 10000);
        __atomic_store_n(&c.go, 1, __ATOMIC_RELEASE);
        T_EQ(mag_stop(MAG_FOREVER), 0);
        T_EQ(pthread_join(t, NULL), 0);
    }
}

int main(int argc, char **argv)
{
    t_init(argc, argv);
    T_RUN(outside_a_runtime_nothing_works);
    T_RUN(one_at_a_time);
    T_RUN(an_idle_runtime_stops_without_patience);
    T_RUN(of_many_stops_one_wins);
    T_RUN(of_many_starts_one_wins);
    T_RUN(threads_spawn_and_wait);
    T_RUN(restarts_leave_nothing);
    T_RUN(spawning_threads_meet_the_end);
    T_RUN(waking_threads_meet_the_end);
    T_RUN(a_crowd_is_woken_at_the_end);
    return t_done();
}
