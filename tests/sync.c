/* SPDX-License-Identifier: MIT */
/* sync.c: mutex, rwmutex, cond, once and semaphore, for goroutines and threads: they exclude, they wake whom they should and
 * in order, nobody starves, misuse aborts, and their memory may go the moment a call has returned. (wg.c has the wait group.) */
#include "test.h"

#include <magpie.h>
#include <pthread.h>
#include <sched.h>
#include <sys/mman.h>

static void on(int procs, mag_fn fn) { T_EQ(mag_run_with(&(mag_config){.procs = procs}, fn, NULL), 0); }

static void on_some(mag_fn fn)
{
    on(1, fn);
    on(2, fn);
    on(4, fn);
}

static long inc(long *n) { return __atomic_add_fetch(n, 1, __ATOMIC_ACQ_REL); }
static long dec(long *n) { return __atomic_sub_fetch(n, 1, __ATOMIC_ACQ_REL); }
static long get(const long *n) { return __atomic_load_n(n, __ATOMIC_ACQUIRE); }

static mag_wg wg;
static mag_mutex mutex;
static mag_rwmutex rw;
static mag_cond cond;
static mag_sem sem;
static mag_once once;
static long counter, entered, left;
static int stop;

static bool stopped(void) { return __atomic_load_n(&stop, __ATOMIC_RELAXED); }

static void until(const long *n, long value)
{
    while (get(n) < value)
        mag_yield();
    mag_sleep(2 * MAG_MS); /* whoever counted waits by now */
}

static void *in_thread(void *fn)
{
    (*(mag_fn *)fn)(NULL);
    return NULL;
}

/* fn as n goroutines and some threads; waits for all. */
static void everybody(mag_fn fn, int goroutines, int threads)
{
    pthread_t t[4];
    mag_wg_add(&wg, goroutines + threads);
    for (int i = 0; i < threads; i++)
        T_EQ(pthread_create(&t[i], NULL, in_thread, &fn), 0);
    for (int i = 0; i < goroutines; i++)
        T_EQ(mag_go(fn, NULL), 0);
    T_EQ(mag_wg_wait(&wg, MAG_FOREVER), 0);
    for (int i = 0; i < threads; i++)
        T_EQ(pthread_join(t[i], NULL), 0);
}

/* ---- mutex ---- */

static void increments(void *arg)
{
    (void)arg;
    for (long i = 0; i < t_scale(20000); i++) {
        if (i % 16 == 0)
            while (mag_mutex_trylock(&mutex) == -EBUSY)
                mag_id() ? mag_yield() : (void)sched_yield();
        else
            mag_mutex_lock(&mutex);
        long seen = counter; /* no atomic: that is the mutex's business */
        if (i % 64 == 0 && mag_id())
            mag_yield();
        counter = seen + 1;
        mag_mutex_unlock(&mutex);
    }
    mag_wg_done(&wg);
}

static void mutex_excludes(void *arg)
{
    (void)arg;
    counter = 0;
    everybody(increments, 6, 0);
    T_EQ(counter, 6 * t_scale(20000));
    counter = 0;
    everybody(increments, 4, 2);
    T_EQ(counter, 6 * t_scale(20000));
    T_EQ(mutex.state, 0); /* as new */
    T_EQ(mag_mutex_trylock(&mutex), 0);
    T_EQ(mag_mutex_trylock(&mutex), -EBUSY);
    mag_mutex_unlock(&mutex);
}

static void a_mutex_excludes(void) { on_some(mutex_excludes); }

static void unlocks_another(void *arg)
{
    (void)arg;
    mag_mutex_unlock(&mutex);
}

static void any_may_unlock(void *arg)
{
    (void)arg;
    mag_mutex_lock(&mutex);
    T_EQ(mag_go(unlocks_another, NULL), 0);
    mag_mutex_lock(&mutex);
    mag_mutex_unlock(&mutex);
}

static void any_goroutine_may_unlock(void) { on_some(any_may_unlock); }

static void hogs(void *arg)
{
    (void)arg;
    while (!stopped()) {
        mag_mutex_lock(&mutex);
        for (int i = 0; i < 200; i++)
            __asm__ volatile("");
        mag_mutex_unlock(&mutex); /* and again at once */
        mag_checkpoint();
    }
    mag_wg_done(&wg);
}

static void gets_its_turn(void *arg)
{
    (void)arg;
    mag_time start = mag_now();
    stop = 0;
    mag_wg_add(&wg, 2);
    T_EQ(mag_go(hogs, NULL), 0);
    T_EQ(mag_go(hogs, NULL), 0);
    for (int i = 0; i < 50; i++) {
        mag_mutex_lock(&mutex);
        mag_mutex_unlock(&mutex);
        mag_yield();
    }
    T_LT(mag_now() - start, 20 * MAG_S * t_state.slow); /* with a slice of 10 ms for each hog: a second */
    __atomic_store_n(&stop, 1, __ATOMIC_RELAXED);
    T_EQ(mag_wg_wait(&wg, MAG_FOREVER), 0);
}

/* The worst of them: it gives up the P only while it holds the mutex. */
static void hogs_while_it_holds(void *arg)
{
    (void)arg;
    while (!stopped()) {
        mag_mutex_lock(&mutex);
        mag_yield();
        mag_mutex_unlock(&mutex);
    }
    mag_wg_done(&wg);
}

static void gets_its_turn_all_the_same(void *arg)
{
    (void)arg;
    stop = 0;
    mag_wg_add(&wg, 1);
    T_EQ(mag_go(hogs_while_it_holds, NULL), 0);
    mag_yield();
    for (int i = 0; i < 50; i++) {
        mag_mutex_lock(&mutex);
        mag_mutex_unlock(&mutex);
        mag_yield();
    }
    __atomic_store_n(&stop, 1, __ATOMIC_RELAXED);
    T_EQ(mag_wg_wait(&wg, MAG_FOREVER), 0);
}

static void a_hog_starves_nobody(void)
{
    on_some(gets_its_turn);
    on_some(gets_its_turn_all_the_same);
}

/* ---- rwmutex ---- */

static long readers, writers;

static void reads_and_writes(void *arg)
{
    uint64_t random = t_state.seed + (uintptr_t)&random;
    (void)arg;
    for (long i = 0; i < t_scale(5000); i++) {
        if (t_random_r(&random) % 8 == 0) {
            mag_rwmutex_lock(&rw);
            T_EQ(inc(&writers), 1);
            T_EQ(get(&readers), 0);
            counter++;
            if (i % 16 == 0 && mag_id())
                mag_yield();
            T_EQ(get(&readers), 0);
            T_EQ(dec(&writers), 0);
            mag_rwmutex_unlock(&rw);
        } else {
            mag_rwmutex_rlock(&rw);
            inc(&readers);
            T_EQ(get(&writers), 0);
            if (i % 16 == 0 && mag_id())
                mag_yield();
            T_EQ(get(&writers), 0);
            dec(&readers);
            mag_rwmutex_runlock(&rw);
        }
    }
    mag_wg_done(&wg);
}

static void rwmutex_excludes(void *arg)
{
    (void)arg;
    everybody(reads_and_writes, 6, 0);
    everybody(reads_and_writes, 3, 3);
    T_EQ(rw.state, 0);
}

static void a_writer_is_alone(void) { on_some(rwmutex_excludes); }

static void reads_until_told(void *arg)
{
    mag_rwmutex_rlock(&rw);
    inc(&entered);
    T_EQ(mag_chan_recv(arg, NULL, MAG_FOREVER), -EPIPE);
    mag_rwmutex_runlock(&rw);
    mag_wg_done(&wg);
}

static void writes_once(void *arg)
{
    (void)arg;
    inc(&left);
    mag_rwmutex_lock(&rw);
    T_EQ(counter, 0);
    counter = 1;
    mag_rwmutex_unlock(&rw);
    mag_wg_done(&wg);
}

static void reads_after(void *arg)
{
    (void)arg;
    inc(&left);
    mag_rwmutex_rlock(&rw);
    T_EQ(counter, 1); /* the writer came first */
    mag_rwmutex_runlock(&rw);
    mag_wg_done(&wg);
}

static void readers_share(void *arg)
{
    (void)arg;
    enum { N = 20 };
    mag_chan *c = mag_chan_new(0, 0);
    counter = entered = left = 0;
    mag_wg_add(&wg, N + 2);
    for (int i = 0; i < N; i++)
        T_EQ(mag_go(reads_until_told, c), 0);
    until(&entered, N); /* all inside together */
    T_EQ(mag_go(writes_once, NULL), 0);
    until(&left, 1);
    T_EQ(mag_go(reads_after, NULL), 0);
    until(&left, 2);
    T_EQ(counter, 0);
    T_EQ(mag_chan_close(c), 0);
    T_EQ(mag_wg_wait(&wg, MAG_FOREVER), 0);
    T_EQ(counter, 1);
    mag_chan_unref(c);
}

static void readers_are_together_and_a_writer_comes_before_later_ones(void) { on_some(readers_share); }

static void streams(void *arg)
{
    (void)arg;
    while (!stopped()) {
        mag_rwmutex_rlock(&rw);
        mag_yield();
        mag_rwmutex_runlock(&rw);
    }
    mag_wg_done(&wg);
}

static void writes_among_readers(void *arg)
{
    (void)arg;
    stop = 0;
    mag_wg_add(&wg, 8);
    for (int i = 0; i < 8; i++)
        T_EQ(mag_go(streams, NULL), 0);
    mag_time start = mag_now();
    for (int i = 0; i < 100; i++) {
        mag_rwmutex_lock(&rw);
        mag_rwmutex_unlock(&rw);
        mag_yield();
    }
    T_LT(mag_now() - start, 20 * MAG_S * t_state.slow);
    __atomic_store_n(&stop, 1, __ATOMIC_RELAXED);
    T_EQ(mag_wg_wait(&wg, MAG_FOREVER), 0);
}

static void a_stream_of_readers_starves_no_writer(void) { on_some(writes_among_readers); }

/* ---- misuse ---- */

static void unlocks(void *arg) { (void)arg, mag_mutex_unlock(&mutex); }
static void runlocks(void *arg) { (void)arg, mag_rwmutex_runlock(&rw); }
static void wunlocks(void *arg) { (void)arg, mag_rwmutex_unlock(&rw); }
static void runlocks_a_writer(void *arg)
{
    (void)arg;
    mag_rwmutex_lock(&rw);
    mag_rwmutex_runlock(&rw);
}
static void unlocks_a_reader(void *arg)
{
    (void)arg;
    mag_rwmutex_rlock(&rw);
    mag_rwmutex_unlock(&rw);
}
static void posts_too_many(void *arg)
{
    (void)arg;
    mag_sem_init(&sem, UINT32_MAX);
    mag_sem_post(&sem, 1);
}

static void misuse_aborts(void)
{
    T_ABORTS(unlocks, NULL, "mag_mutex_unlock: it is not locked");
    T_ABORTS(runlocks, NULL, "mag_rwmutex_runlock: it is not locked");
    T_ABORTS(wunlocks, NULL, "mag_rwmutex_unlock: it is not locked");
    T_ABORTS(runlocks_a_writer, NULL, "mag_rwmutex_runlock");
    T_ABORTS(unlocks_a_reader, NULL, "mag_rwmutex_unlock");
    T_ABORTS(posts_too_many, NULL, "mag_sem_post");
}

/* ---- cond ---- */

enum { CROWD = 20 };
static long order[CROWD], woken;

static void waits_in_line(void *arg)
{
    mag_mutex_lock(&mutex);
    inc(&entered);
    T_EQ(mag_cond_wait(&cond, &mutex, (intptr_t)arg % 2 ? MAG_FOREVER : mag_in(1000 * MAG_S)), 0);
    T_EQ(mag_mutex_trylock(&mutex), -EBUSY);
    order[woken] = (intptr_t)arg;
    inc(&woken);
    mag_mutex_unlock(&mutex);
    mag_wg_done(&wg);
}

static void line_up(void)
{
    entered = woken = 0;
    mag_wg_add(&wg, CROWD);
    for (intptr_t i = 0; i < CROWD; i++) {
        T_EQ(mag_go(waits_in_line, (void *)i), 0);
        while (get(&entered) <= i)
            mag_yield();
        mag_mutex_lock(&mutex); /* it let go: it is in the queue */
        mag_mutex_unlock(&mutex);
    }
}

static void cond_in_order(void *arg)
{
    (void)arg;
    mag_cond_signal(&cond); /* nobody: nothing is kept */
    mag_cond_broadcast(&cond);
    line_up();
    for (long i = 0; i < CROWD; i++) {
        T_EQ(get(&woken), i);
        mag_cond_signal(&cond);
        while (get(&woken) <= i)
            mag_yield();
        if (i % 5 == 0)
            mag_sleep(MAG_MS);
        T_EQ(get(&woken), i + 1); /* one, not two */
    }
    T_EQ(mag_wg_wait(&wg, MAG_FOREVER), 0);
    for (long i = 0; i < CROWD; i++)
        T_EQ(order[i], i);
    line_up();
    mag_cond_broadcast(&cond);
    T_EQ(mag_wg_wait(&wg, MAG_FOREVER), 0);
    T_EQ(woken, CROWD);

    mag_mutex_lock(&mutex);
    mag_time deadline = mag_in(3 * MAG_MS);
    T_EQ(mag_cond_wait(&cond, &mutex, deadline), -ETIMEDOUT);
    T_GE(mag_now(), deadline);
    T_EQ(mag_mutex_trylock(&mutex), -EBUSY);
    T_EQ(mag_cond_wait(&cond, &mutex, MAG_TRY), -ETIMEDOUT);
    T_EQ(mag_mutex_trylock(&mutex), -EBUSY);
    mag_mutex_unlock(&mutex);
    T_EQ(cond.state, 0);
}

static void a_cond_wakes_one_in_order_or_all(void) { on_some(cond_in_order); }

static long items, taken;

static void takes_items(void *arg)
{
    (void)arg;
    uint64_t random = t_state.seed + (uintptr_t)&random;
    for (;;) {
        mag_mutex_lock(&mutex);
        while (items == 0) {
            int r = mag_cond_wait(&cond, &mutex, t_random_r(&random) % 3 ? MAG_FOREVER : mag_in(t_random_r(&random) % 20000));
            T_TRUE(r == 0 || r == -ETIMEDOUT);
        }
        if (items < 0)
            break;
        items--;
        taken++;
        mag_mutex_unlock(&mutex);
    }
    mag_mutex_unlock(&mutex);
    mag_wg_done(&wg);
}

static void gives_items(void *arg)
{
    long n = t_scale(10000);
    (void)arg;
    for (long i = 0; i < n; i++) {
        mag_mutex_lock(&mutex);
        items++;
        mag_mutex_unlock(&mutex);
        mag_cond_signal(&cond); /* one signal for each: none may be lost on one that timed out */
        if (i % 16 == 0)
            mag_yield();
    }
    for (bool all = false; !all;) {
        mag_mutex_lock(&mutex);
        all = items == 0;
        if (all)
            items = -1;
        mag_mutex_unlock(&mutex);
        mag_yield();
    }
    mag_cond_broadcast(&cond);
    mag_wg_done(&wg);
}

static void work_is_done(void *arg)
{
    (void)arg;
    for (int threads = 0; threads < 3; threads += 2) {
        items = taken = 0;
        mag_wg_add(&wg, 1);
        T_EQ(mag_go(gives_items, NULL), 0);
        everybody(takes_items, 4, threads);
        T_EQ(taken, t_scale(10000));
    }
}

/* A signal meets the deadline of the first in the queue: either it wakes that one, or the next. */
static struct {
    mag_chan *results;
    mag_time deadline;
} meet;

static void waits_first(void *arg)
{
    (void)arg;
    mag_mutex_lock(&mutex);
    inc(&entered);
    int r = mag_cond_wait(&cond, &mutex, meet.deadline);
    mag_mutex_unlock(&mutex);
    T_EQ(mag_chan_send(meet.results, &r, MAG_FOREVER), 0);
}

static void waits_second(void *arg)
{
    (void)arg;
    mag_mutex_lock(&mutex);
    inc(&entered);
    T_EQ(mag_cond_wait(&cond, &mutex, MAG_FOREVER), 0);
    mag_mutex_unlock(&mutex);
    inc(&woken);
    mag_wg_done(&wg);
}

static void a_signal_meets_a_deadline(void *arg)
{
    (void)arg;
    meet.results = mag_chan_new(sizeof(int), 1);
    int64_t end = t_now() + 3 * MAG_S; /* on a loaded machine the kernel's slices make the pace: whoever is waited for is not running */
    for (long i = 0; i < t_scale(2000) && (i < 50 || t_now() < end); i++) {
        int r;
        entered = woken = 0;
        meet.deadline = mag_in(20 * MAG_US + (int64_t)(t_random() % 20000));
        T_EQ(mag_go(waits_first, NULL), 0);
        while (get(&entered) < 1)
            mag_yield();
        mag_wg_add(&wg, 1);
        T_EQ(mag_go(waits_second, NULL), 0);
        while (get(&entered) < 2)
            mag_yield();
        mag_mutex_lock(&mutex); /* both are in the queue */
        mag_mutex_unlock(&mutex);
        while (mag_now() < meet.deadline - 500 + (int64_t)(t_random() % 1000))
            continue;
        mag_cond_signal(&cond);
        T_EQ(mag_chan_recv(meet.results, &r, MAG_FOREVER), 0);
        T_TRUE(r == 0 || r == -ETIMEDOUT);
        if (r == 0) {
            T_EQ(get(&woken), 0);
            mag_cond_signal(&cond);
        }
        T_EQ(mag_wg_wait(&wg, mag_in(20 * MAG_S * t_state.slow)), 0);
    }
    mag_chan_unref(meet.results);
}

static void no_signal_is_lost(void)
{
    on_some(work_is_done);
    on_some(a_signal_meets_a_deadline);
}

/* ---- once ---- */

static void runs_long(void *arg)
{
    (void)arg;
    inc(&entered);
    mag_sleep(2 * MAG_MS);
    counter = 1;
}

static void runs_long_and_exits(void *arg)
{
    runs_long(arg);
    mag_exit();
}

static void asks_once(void *arg)
{
    mag_wg_done(&wg);
    mag_once_do(&once, arg != NULL ? runs_long_and_exits : runs_long, NULL);
    T_EQ(counter, 1); /* it has run, whoever ran it */
    inc(&left);
}

static void once_runs_once(void *arg)
{
    (void)arg;
    enum { N = 20 };
    for (intptr_t exits = 0; exits < 2; exits++) {
        once = (mag_once){0};
        counter = entered = left = 0;
        mag_wg_add(&wg, N);
        for (int i = 0; i < N; i++)
            T_EQ(mag_go(asks_once, (void *)exits), 0);
        T_EQ(mag_wg_wait(&wg, MAG_FOREVER), 0);
        while (get(&left) < N - exits) /* one ended inside */
            mag_yield();
        T_EQ(entered, 1);
        mag_once_do(&once, runs_long, NULL);
        T_EQ(entered, 1);
    }
}

static void once_is_once(void) { on_some(once_runs_once); }

static mag_once outer, inner;

static void exits_inside(void *arg)
{
    (void)arg;
    mag_exit();
}

static void calls_inner(void *arg)
{
    (void)arg;
    mag_once_do(&inner, exits_inside, NULL);
}

static void calls_outer(void *arg)
{
    (void)arg;
    mag_once_do(&outer, calls_inner, NULL);
    T_FAIL("it went on after mag_exit");
}

static void nested_once(void *arg)
{
    (void)arg;
    outer = inner = (mag_once){0};
    T_EQ(mag_go(calls_outer, NULL), 0);
    mag_sleep(MAG_MS);
    mag_once_do(&outer, nested_once, NULL); /* both have run */
    mag_once_do(&inner, nested_once, NULL);
}

static void an_exit_ends_every_once_it_is_in(void) { on_some(nested_once); }

/* ---- semaphore ---- */

static long inside;

static void enters(void *arg)
{
    (void)arg;
    uint64_t random = t_state.seed + (uintptr_t)&random;
    for (long i = 0; i < t_scale(5000); i++) {
        int r = mag_sem_wait(&sem, i % 4 ? MAG_FOREVER : mag_in(t_random_r(&random) % 10000));
        if (r == -ETIMEDOUT)
            continue;
        T_EQ(r, 0);
        T_LE(inc(&inside), 3);
        if (i % 8 == 0 && mag_id())
            mag_yield();
        dec(&inside);
        mag_sem_post(&sem, 1);
    }
    mag_wg_done(&wg);
}

static void sem_in_line(void *arg)
{
    inc(&entered);
    T_EQ(mag_sem_wait(&sem, (intptr_t)arg % 2 ? MAG_FOREVER : mag_in(1000 * MAG_S)), 0);
    order[inc(&woken) - 1] = (intptr_t)arg;
    mag_wg_done(&wg);
}

static void sem_counts(void *arg)
{
    (void)arg;
    mag_sem_init(&sem, 3);
    everybody(enters, 6, 0);
    everybody(enters, 4, 2);
    for (int i = 0; i < 3; i++)
        T_EQ(mag_sem_wait(&sem, MAG_TRY), 0);
    T_EQ(mag_sem_wait(&sem, MAG_TRY), -ETIMEDOUT);
    T_EQ(sem.state, 0);
    mag_time deadline = mag_in(3 * MAG_MS);
    T_EQ(mag_sem_wait(&sem, deadline), -ETIMEDOUT);
    T_GE(mag_now(), deadline);

    entered = woken = 0;
    mag_wg_add(&wg, CROWD);
    for (intptr_t i = 0; i < CROWD; i++) {
        T_EQ(mag_go(sem_in_line, (void *)i), 0);
        until(&entered, i + 1);
    }
    for (long i = 0; i < 5; i++) { /* one by one, in order */
        mag_sem_post(&sem, 1);
        while (get(&woken) <= i)
            mag_yield();
    }
    mag_sem_post(&sem, 0);
    mag_sem_post(&sem, 7); /* seven at a time */
    while (get(&woken) < 12)
        mag_yield();
    mag_sleep(MAG_MS);
    T_EQ(get(&woken), 12);
    mag_sem_post(&sem, CROWD); /* more than wait: the rest is kept */
    T_EQ(mag_wg_wait(&wg, MAG_FOREVER), 0);
    for (long i = 0; i < 5; i++)
        T_EQ(order[i], i);
    for (int i = 0; i < 12; i++)
        T_EQ(mag_sem_wait(&sem, MAG_TRY), 0);
    T_EQ(mag_sem_wait(&sem, MAG_TRY), -ETIMEDOUT);
}

static void a_semaphore_counts_in_order(void) { on_some(sem_counts); }

/* ---- memory ---- */

union object {
    mag_sem sem;
    mag_wg wg;
    mag_mutex mutex;
};

static void wakes_sem(void *arg) { mag_sem_post(arg, 1); }
static void wakes_wg(void *arg) { mag_wg_done(arg); }
static void wakes_mutex(void *arg) { mag_mutex_unlock(arg); }

/* The object's page goes when the call has returned; a waker that touched it later would crash. Deadlines, too: they make a
 * waiter that can be decided before it sleeps. */
static void waits_and_unmaps(void *arg)
{
    (void)arg;
    size_t page = (size_t)sysconf(_SC_PAGESIZE);
    for (long i = 0; i < t_scale(10000); i++) {
        union object *o = mmap(NULL, page, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
        T_TRUE(o != MAP_FAILED);
        mag_time deadline = i % 2 ? MAG_FOREVER : mag_in(1000 * MAG_S);
        switch (i % 6 / 2) {
        case 0:
            T_EQ(mag_go(wakes_sem, o), 0);
            T_EQ(mag_sem_wait(&o->sem, deadline), 0);
            break;
        case 1:
            mag_wg_add(&o->wg, 1);
            T_EQ(mag_go(wakes_wg, o), 0);
            T_EQ(mag_wg_wait(&o->wg, deadline), 0);
            break;
        case 2:
            mag_mutex_lock(&o->mutex);
            T_EQ(mag_go(wakes_mutex, o), 0);
            mag_mutex_lock(&o->mutex);
            break;
        }
        T_EQ(munmap(o, page), 0);
    }
    mag_wg_done(&wg);
}

static void unmaps(void *arg)
{
    (void)arg;
    everybody(waits_and_unmaps, 2, mag_procs() > 1 ? 1 : 0);
}

static void memory_may_go_at_once(void) { on_some(unmaps); }

int main(int argc, char **argv)
{
    t_init(argc, argv);
    T_RUN(a_mutex_excludes);
    T_RUN(any_goroutine_may_unlock);
    T_RUN(a_hog_starves_nobody);
    T_RUN(a_writer_is_alone);
    T_RUN(readers_are_together_and_a_writer_comes_before_later_ones);
    T_RUN(a_stream_of_readers_starves_no_writer);
    T_RUN(misuse_aborts);
    T_RUN(a_cond_wakes_one_in_order_or_all);
    T_RUN(no_signal_is_lost);
    T_RUN(once_is_once);
    T_RUN(an_exit_ends_every_once_it_is_in);
    T_RUN(a_semaphore_counts_in_order);
    T_RUN(memory_may_go_at_once);
    return t_done();
}
