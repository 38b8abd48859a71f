/* SPDX-License-Identifier: MIT */
/* time.c: sleeps, deadlines, timers, tickers and signals: never early, not much too late even when every P computes, and a
 * timer that was stopped or reset has said exactly what became of it. */
#include "test.h"

#include <magpie.h>
#include <pthread.h>

static void on(int procs, mag_fn fn) { T_EQ(mag_run_with(&(mag_config){.procs = procs}, fn, NULL), 0); }

static void on_some(mag_fn fn)
{
    on(1, fn);
    on(2, fn);
    on(4, fn);
}

static void add(long *n, long by) { __atomic_add_fetch(n, by, __ATOMIC_RELAXED); }

enum { LATE = 10 }; /* seconds: this machine has other things to do */

/* ---- sleeping ---- */

static void never_early(void *arg)
{
    (void)arg;
    for (long i = 0; i < t_scale(2000); i++) {
        int64_t ns = (int64_t)(t_random() % 100000);
        mag_time start = t_now();
        T_EQ(mag_sleep(ns), 0);
        T_GE(t_now() - start, ns);
        T_LT(t_now() - start, LATE * MAG_S);
        mag_time until = mag_now() + ns;
        T_EQ(mag_sleep_until(until), 0);
        T_GE(t_now(), until);
    }
}

static void returns_at_once(void *arg)
{
    (void)arg;
    mag_time start = t_now();
    for (int i = 0; i < 1000; i++) {
        T_EQ(mag_sleep(0), 0);
        T_EQ(mag_sleep(-1), 0);
        T_EQ(mag_sleep(INT64_MIN), 0);
        T_EQ(mag_sleep_until(0), 0);
        T_EQ(mag_sleep_until(-5), 0);
        T_EQ(mag_sleep_until(INT64_MIN), 0);
        T_EQ(mag_sleep_until(mag_now()), 0);
    }
    T_LT(t_now() - start, LATE * MAG_S);
}

static void sleeps_are_never_short(void)
{
    never_early(NULL);
    on_some(never_early);
    returns_at_once(NULL);
    on_some(returns_at_once);
}

static void deadlines_saturate(void)
{
    T_EQ(mag_in(INT64_MAX), MAG_FOREVER);
    T_EQ(mag_in(INT64_MAX - 1000), MAG_FOREVER);
    T_EQ(mag_in(INT64_MIN), 1);
    T_EQ(mag_in(-mag_now() - MAG_S), 1);
    T_GT(mag_in(MAG_S), mag_now());
    T_LE(mag_in(0), mag_now());
    T_LE(mag_in(-1), mag_now());
    T_LE(mag_in(MAG_US) - mag_now(), MAG_US);
    T_EQ(MAG_S, 1000 * MAG_MS);
    T_EQ(MAG_MS, 1000 * MAG_US);
    int64_t before = t_now(), now = mag_now(), after = t_now(); /* the same clock */
    T_GE(now, before);
    T_LE(now, after);
}

/* ---- many sleepers ---- */

enum { SLEEPERS = 100000, SPREAD_MS = 1000 };

static struct {
    mag_wg wg;
    long woken, swapped;
    mag_time latest; /* the latest due among those that have woken */
} crowd;

static void wakes_on_time(void *arg)
{
    mag_time due = *(mag_time *)arg;
    T_EQ(mag_sleep_until(due), 0);
    mag_time now = mag_now(), latest = __atomic_load_n(&crowd.latest, __ATOMIC_RELAXED);
    T_GE(now, due);
    while (due > latest && !__atomic_compare_exchange_n(&crowd.latest, &latest, due, false, __ATOMIC_RELAXED, __ATOMIC_RELAXED))
        continue;
    if (due < latest - SPREAD_MS * MAG_MS / 4)
        add(&crowd.swapped, 1);
    add(&crowd.woken, 1);
    mag_wg_done(&crowd.wg);
}

static void crowd_sleeps(void *arg)
{
    (void)arg;
    long n = T_TSAN ? 4000 : t_scale(mag_procs() > 1 ? SLEEPERS : SLEEPERS / 4);
    memset(&crowd, 0, sizeof crowd);
    mag_wg_add(&crowd.wg, (int)n);
    mag_time base = mag_in(300 * MAG_MS);
    for (long i = 0; i < n; i++) {
        mag_time due = base + (int64_t)(t_random() % (SPREAD_MS * 1000)) * MAG_US;
        T_EQ(mag_go_copy(wakes_on_time, &due, sizeof due), 0);
    }
    bool in_time = mag_now() < base; /* or the first were due before the last were there */
    T_EQ(mag_wg_wait(&crowd.wg, mag_in(60 * MAG_S)), 0);
    T_EQ(crowd.woken, n);
    if (in_time) /* a stalled core holds up what its P has at hand: not most of them */
        T_LE(crowd.swapped, n / 3);
}

static void a_crowd_of_sleepers(void)
{
    on(1, crowd_sleeps);
    on(2, crowd_sleeps);
}

/* ---- while every P computes ---- */

static struct {
    mag_wg wg;
    int stop;
} busy;

static void hogs(void *arg)
{
    (void)arg;
    while (!__atomic_load_n(&busy.stop, __ATOMIC_RELAXED))
        continue;
    mag_wg_done(&busy.wg);
}

static int by_size(const void *a, const void *b)
{
    int64_t x = *(const int64_t *)a, y = *(const int64_t *)b;
    return x < y ? -1 : x > y;
}

static void sleeps_beside_hogs(void *arg)
{
    (void)arg;
    enum { TRIES = 20 };
    int64_t late[TRIES], v;
    int n = 2 * mag_procs();
    busy.stop = 0;
    mag_wg_add(&busy.wg, n);
    for (int i = 0; i < n; i++)
        T_EQ(mag_go(hogs, NULL), 0);
    mag_timer *t = mag_timer_new(MAG_FOREVER, 0);
    for (int i = 0; i < TRIES; i++) {
        mag_time due = mag_in(5 * MAG_MS);
        if (i % 2) {
            T_EQ(mag_sleep_until(due), 0);
        } else {
            mag_timer_reset(t, due, 0);
            T_EQ(mag_chan_recv(mag_timer_chan(t), &v, MAG_FOREVER), 0);
        }
        late[i] = mag_now() - due;
        T_GE(late[i], 0);
    }
    __atomic_store_n(&busy.stop, 1, __ATOMIC_RELAXED);
    T_EQ(mag_wg_wait(&busy.wg, MAG_FOREVER), 0);
    mag_timer_unref(t);
    qsort(late, TRIES, sizeof *late, by_size);
    T_LT(late[TRIES / 2], MAG_S * t_state.slow); /* alone it is some 10 ms */
}

static void timers_fire_while_all_are_busy(void)
{
    on(1, sleeps_beside_hogs);
    on(2, sleeps_beside_hogs);
}

static void short_sleeps(void *arg)
{
    (void)arg;
    enum { N = 1001 };
    static int64_t took[N];
    for (int i = 0; i < N; i++) {
        mag_time start = mag_now();
        T_EQ(mag_sleep(MAG_US), 0);
        took[i] = mag_now() - start;
    }
    qsort(took, N, sizeof *took, by_size);
    T_GE(took[0], MAG_US);
    T_LT(took[N / 2], MAG_MS * t_state.slow);
}

static void a_microsecond_is_not_a_millisecond(void) { on_some(short_sleeps); }

/* ---- timers ---- */

static void timers(void *arg)
{
    (void)arg;
    mag_time v = -1, due = mag_in(2 * MAG_MS);
    mag_timer *t = mag_timer_new(due, 0);
    mag_chan *c = mag_timer_chan(t);
    T_EQ(mag_chan_cap(c), 1);
    T_EQ(mag_chan_recv(c, &v, mag_in(60 * MAG_S)), 0);
    T_GE(v, due);
    T_GE(mag_now(), v);
    T_EQ(mag_timer_stop(t), 0); /* it has fired */
    T_EQ(mag_timer_stop(t), 0);

    T_EQ(mag_timer_reset(t, mag_in(3600 * MAG_S), 0), 0);
    T_EQ(mag_timer_reset(t, mag_in(3600 * MAG_S), 0), 1);
    T_EQ(mag_timer_stop(t), 1);
    T_EQ(mag_timer_stop(t), 0);
    T_EQ(mag_chan_recv(c, &v, MAG_TRY), -ETIMEDOUT);

    T_EQ(mag_timer_reset(t, mag_in(MAG_MS), 0), 0); /* fired and unread: no stale value */
    T_EVENTUALLY(mag_chan_len(c) == 1, 60000);
    T_EQ(mag_timer_stop(t), 0);
    T_EQ(mag_chan_len(c), 0);
    T_EQ(mag_timer_reset(t, mag_in(MAG_US), 0), 0);
    T_EVENTUALLY(mag_chan_len(c) == 1, 60000);
    due = mag_in(5 * MAG_MS);
    T_EQ(mag_timer_reset(t, due, 0), 0);
    T_EQ(mag_chan_recv(c, &v, mag_in(60 * MAG_S)), 0);
    T_GE(v, due);

    T_EQ(mag_timer_reset(t, MAG_TRY, 0), 0); /* long past: at once */
    T_EQ(mag_chan_recv(c, &v, mag_in(60 * MAG_S)), 0);
    T_EQ(mag_timer_reset(t, INT64_MIN, 0), 0);
    T_EQ(mag_chan_recv(c, &v, mag_in(60 * MAG_S)), 0);
    T_EQ(mag_timer_reset(t, MAG_FOREVER, 0), 0); /* never */
    T_EQ(mag_timer_stop(t), 0);
    T_EQ(mag_timer_reset(t, mag_in(1), -1), -EINVAL);
    T_TRUE(mag_timer_new(mag_in(1), -1) == NULL);
    T_TRUE(mag_timer_ref(t) == t);
    mag_timer_unref(t);
    T_EQ(mag_timer_reset(t, mag_in(3600 * MAG_S), 0), 0);
    mag_timer_unref(t); /* pending */
    mag_timer_unref(NULL);
    T_TRUE(mag_timer_ref(NULL) == NULL);
}

static void timers_say_what_happened(void)
{
    on_some(timers);
    T_TRUE(mag_timer_new(mag_in(1), 0) == NULL); /* no runtime */
}

/* Stop and reset meet the firing: "it was pending" and a value exclude each other, and one of the two is true. */
static void stops_while_it_fires(void *arg)
{
    (void)arg;
    long pending = 0, fired = 0, n = t_scale(30000);
    mag_time v, first;
    mag_timer *t = mag_timer_new(MAG_FOREVER, 0);
    mag_chan *c = mag_timer_chan(t);
    for (long i = 0; i < n; i++) {
        first = mag_in((int64_t)(t_random() % 4000));
        T_EQ(mag_timer_reset(t, first, 0), 0);
        if (i % 4 == 0)
            mag_yield();
        if (i % 16 == 0)
            mag_sleep(2 * MAG_US);
        while (i % 4 && mag_now() < first)
            continue;
        bool got = i % 2 && mag_chan_recv(c, &v, MAG_TRY) == 0;
        int r = i % 3 ? mag_timer_stop(t) : mag_timer_reset(t, MAG_FOREVER, 0);
        T_TRUE(r == 0 || r == 1);
        T_FALSE(got && r == 1);
        T_EQ(mag_chan_recv(c, &v, MAG_TRY), -ETIMEDOUT);
        pending += r;
        fired += !r;
    }
    T_EQ(pending + fired, n);
    mag_timer_unref(t);
}

static void stop_meets_firing(void) { on_some(stops_while_it_fires); }

static struct {
    mag_timer *t;
    mag_wg wg;
    long pending, values;
    int stop;
} crossed;

static void resets(void *arg)
{
    uint64_t random = t_state.seed + (uintptr_t)arg;
    long pending = 0;
    for (long i = 0; i < t_scale(20000); i++) {
        pending += mag_timer_reset(crossed.t, mag_in((int64_t)(t_random_r(&random) % 4000)), 0);
        if (i % 8 == 0)
            mag_sleep(MAG_US);
    }
    add(&crossed.pending, pending);
    mag_wg_done(&crossed.wg);
}

static void reads(void *arg)
{
    (void)arg;
    mag_time v, last = 0;
    for (;;) {
        int r = mag_chan_recv(mag_timer_chan(crossed.t), &v, mag_in(MAG_MS));
        if (r != 0 && __atomic_load_n(&crossed.stop, __ATOMIC_RELAXED))
            break;
        T_TRUE(r == 0 || r == -ETIMEDOUT);
        if (r != 0)
            continue;
        T_GE(v, last);
        last = v;
        add(&crossed.values, 1);
    }
}

static void reads_as_goroutine(void *wg)
{
    reads(NULL);
    mag_wg_done(wg);
}

static void *reads_as_thread(void *arg)
{
    reads(arg);
    return NULL;
}

/* Each time it is set ends in one of: found pending, a value, a value that was taken away unread. */
static void several_reset_one(void *arg)
{
    (void)arg;
    for (int threads = 0; threads < 2; threads++) {
        pthread_t thread;
        mag_wg reader = {0};
        crossed.t = mag_timer_new(MAG_FOREVER, 0);
        crossed.pending = crossed.values = crossed.stop = 0;
        mag_wg_add(&crossed.wg, 2);
        for (intptr_t i = 0; i < 2; i++)
            T_EQ(mag_go(resets, (void *)i), 0);
        if (threads) {
            T_EQ(pthread_create(&thread, NULL, reads_as_thread, NULL), 0);
        } else {
            mag_wg_add(&reader, 1);
            T_EQ(mag_go(reads_as_goroutine, &reader), 0);
        }
        T_EQ(mag_wg_wait(&crossed.wg, MAG_FOREVER), 0);
        crossed.pending += mag_timer_stop(crossed.t);
        __atomic_store_n(&crossed.stop, 1, __ATOMIC_RELAXED);
        T_EQ(mag_wg_wait(&reader, MAG_FOREVER), 0);
        if (threads)
            T_EQ(pthread_join(thread, NULL), 0);
        T_LE(crossed.values + crossed.pending, 2 * t_scale(20000));
        T_GT(crossed.values + crossed.pending, 0); /* the reader may have come last of all */
        mag_timer_unref(crossed.t);
    }
}

static void several_reset_one_timer(void) { on_some(several_reset_one); }

/* ---- tickers ---- */

static void ticks(void *arg)
{
    (void)arg;
    enum { PERIOD = 2 * MAG_MS };
    mag_time v, last = 0, first = mag_in(PERIOD);
    mag_timer *t = mag_timer_new(first, PERIOD);
    mag_chan *c = mag_timer_chan(t);
    for (int i = 0; i < 20; i++) {
        T_EQ(mag_chan_recv(c, &v, mag_in(60 * MAG_S)), 0);
        T_GE(v, first + i * PERIOD); /* no tick before its time, however late the one before was */
        T_GT(v, last);
        last = v;
    }
    mag_sleep(10 * PERIOD); /* a slow reader: all but one are dropped */
    T_EQ(mag_chan_len(c), 1);
    T_EQ(mag_chan_recv(c, &v, MAG_TRY), 0);
    T_LT(v, mag_now());
    mag_time next;
    T_EQ(mag_chan_recv(c, &next, mag_in(60 * MAG_S)), 0);
    T_GE((next - first) / PERIOD, (v - first) / PERIOD + 1); /* in step with the first, not with the reader */
    T_EQ(mag_timer_stop(t), 1); /* a ticker is always pending */
    T_EQ(mag_timer_stop(t), 0);
    mag_sleep(2 * PERIOD);
    T_EQ(mag_chan_len(c), 0);
    T_EQ(mag_timer_reset(t, mag_in(PERIOD), 0), 0); /* a ticker becomes a timer */
    T_EQ(mag_chan_recv(c, &v, mag_in(60 * MAG_S)), 0);
    T_EQ(mag_timer_stop(t), 0);
    mag_timer_unref(t);
}

static void a_ticker_drops_ticks(void) { on_some(ticks); }

static void odd_periods(void *arg)
{
    (void)arg;
    static const struct {
        mag_time first;
        int64_t period;
        int values;
    } odd[] = {
        {MAG_TRY, MAG_MS, 5},    /* years behind: the ticks in between are dropped, not sent */
        {1, 1, 5},
        {-5, MAG_MS, 5},
        {INT64_MIN, MAG_MS, 5},
        {INT64_MIN, INT64_MAX, 1},
        {MAG_TRY, INT64_MAX, 1}, /* the second tick never comes */
        {1, INT64_MAX, 1},
    };
    for (size_t i = 0; i < sizeof odd / sizeof *odd; i++) {
        mag_time v, last = 0;
        mag_timer *t = mag_timer_new(odd[i].first, odd[i].period);
        for (int k = 0; k < odd[i].values; k++) {
            int r = mag_chan_recv(mag_timer_chan(t), &v, mag_in(20 * MAG_S));
            if (r != 0)
                T_FAIL("first %lld, period %lld: no tick %d (%d)", (long long)odd[i].first, (long long)odd[i].period, k, r);
            T_GE(v, last);
            last = v;
        }
        mag_timer_unref(t);
    }
}

static void far_off_periods(void) { on(1, odd_periods); }

/* Threads outside wait for ticks with their waiters on their own stacks. */
static void *thread_reads_ticks(void *arg)
{
    mag_time v;
    for (long i = 0; i < t_scale(5000); i++)
        T_EQ(mag_chan_recv(arg, &v, mag_in(60 * MAG_S)), 0);
    return NULL;
}

static void ticks_for_threads(void *arg)
{
    (void)arg;
    pthread_t thread[2];
    mag_timer *t[2];
    for (int i = 0; i < 2; i++) {
        t[i] = mag_timer_new(mag_in(1000), 10 * MAG_US);
        T_EQ(pthread_create(&thread[i], NULL, thread_reads_ticks, mag_timer_chan(t[i])), 0);
    }
    for (int i = 0; i < 2; i++) {
        T_EQ(pthread_join(thread[i], NULL), 0);
        mag_timer_unref(t[i]);
    }
}

static void threads_read_ticks(void)
{
    on(1, ticks_for_threads);
    on(2, ticks_for_threads);
}

/* ---- the end of a run ---- */

static void makes_timers(void *arg)
{
    (void)arg;
    for (;;) { /* never switches: it goes on until the run is over, and a little longer */
        mag_timer *t = mag_timer_new(mag_in((int64_t)(mag_now() % 20000)), mag_now() % 2 ? 0 : 5000);
        if (t == NULL)
            break;
        mag_timer_reset(t, mag_in((int64_t)(mag_now() % 20000)), 0);
        if (mag_now() % 2)
            mag_timer_stop(t);
        mag_timer_unref(t);
        mag_checkpoint();
    }
}

static void ends_among_timers(void *arg)
{
    (void)arg;
    for (int i = 0; i < 3; i++)
        T_EQ(mag_go(makes_timers, NULL), 0);
    mag_sleep(300 * MAG_US);
}

static mag_timer *left;

static void leaves_a_timer(void *arg)
{
    (void)arg;
    left = mag_timer_new(mag_in(10 * MAG_US), 10 * MAG_US);
    T_TRUE(left != NULL);
}

static void uses_the_left_timer(void *arg)
{
    (void)arg;
    mag_time v;
    T_EQ(mag_timer_stop(left), 0); /* of another run: not pending */
    T_EQ(mag_timer_reset(left, mag_in(MAG_US), 0), 0);
    T_EQ(mag_chan_recv(mag_timer_chan(left), &v, mag_in(60 * MAG_S)), 0);
    T_EQ(mag_timer_reset(left, mag_in(3600 * MAG_S), 0), 0);
}

static void timers_end_with_the_run(void)
{
    for (long i = 0; i < t_scale(100) + 5; i++) {
        int r = mag_run_with(&(mag_config){.procs = 1 + (int)i % 4}, ends_among_timers, NULL);
        T_EQ(r, 0);
    }
    on(2, leaves_a_timer);
    on(2, uses_the_left_timer);
    T_EQ(mag_timer_stop(left), 0);
    mag_timer_unref(left);
}

/* ---- mistakes ---- */

static void passes_durations(void *arg)
{
    (void)arg;
    long v;
    mag_chan *c = mag_chan_new(sizeof v, 0);
    mag_sem s = {0};
    for (int i = 0; i < 5; i++) {
        T_EQ(mag_chan_recv(c, &v, 100), -ETIMEDOUT);
        T_EQ(mag_sem_wait(&s, 50), -ETIMEDOUT);
    }
    mag_chan_unref(c);
}

static void passes_deadlines(void *arg)
{
    (void)arg;
    long v;
    mag_chan *c = mag_chan_new(sizeof v, 0);
    T_EQ(mag_chan_recv(c, &v, MAG_TRY), -ETIMEDOUT);
    T_EQ(mag_chan_recv(c, &v, mag_in(-1)), -ETIMEDOUT);
    T_EQ(mag_chan_recv(c, &v, mag_in(100)), -ETIMEDOUT);
    T_EQ(mag_chan_recv(c, &v, mag_now()), -ETIMEDOUT);
    mag_chan_unref(c);
}

static void runs(void *fn) { T_EQ(mag_run(*(mag_fn *)fn, NULL), 0); }

static void a_duration_is_no_deadline(void)
{
    static struct t_child c;
    mag_fn fn = passes_durations;
    t_fork(&c, runs, &fn);
    T_EQ(c.code, 0);
    T_STR_HAS(c.err, "mag_in()");
    T_TRUE(strstr(strstr(c.err, "mag_in()") + 1, "mag_in()") == NULL); /* once */
    t_fork(&c, passes_durations, NULL); /* a thread's too */
    T_EQ(c.code, 0);
    T_STR_HAS(c.err, "mag_in()");
    fn = passes_deadlines;
    t_fork(&c, runs, &fn);
    T_EQ(c.code, 0);
    T_TRUE(strstr(c.err, "mag_in()") == NULL);
}

static void waits_for_timers_only(void *arg)
{
    (void)arg;
    mag_time v;
    mag_timer *t = mag_timer_new(mag_in(150 * MAG_MS), 0);
    T_EQ(mag_chan_recv(mag_timer_chan(t), &v, MAG_FOREVER), 0);
    mag_timer_unref(t);
    T_EQ(mag_sleep(150 * MAG_MS), 0);
    mag_chan *c = mag_chan_new(1, 0);
    T_EQ(mag_chan_recv(c, NULL, mag_in(150 * MAG_MS)), -ETIMEDOUT);
    mag_chan_unref(c);
}

static void a_pending_timer_is_no_deadlock(void) { on_some(waits_for_timers_only); }

/* ---- signals ---- */

/* Sent, and taken by no thread yet. For threads that block it, as ours do. */
static bool is_pending(int sig)
{
    sigset_t set;
    T_EQ(sigpending(&set), 0);
    return sigismember(&set, sig) == 1;
}

static void receives_signals(void *arg)
{
    (void)arg;
    sigset_t set, other;
    int sig = 0;
    sigemptyset(&set);
    sigaddset(&set, SIGUSR1);
    sigaddset(&set, SIGUSR2);
    sigemptyset(&other);
    sigaddset(&other, SIGUSR2);
    mag_chan *c = mag_signal_new(&set, 4), *d = mag_signal_new(&other, 1);
    T_TRUE(c != NULL && d != NULL);
    for (int i = 0; i < 50; i++) {
        T_EQ(kill(getpid(), i % 2 ? SIGUSR1 : SIGUSR2), 0);
        T_EQ(mag_chan_recv(c, &sig, mag_in(60 * MAG_S)), 0);
        T_EQ(sig, i % 2 ? SIGUSR1 : SIGUSR2);
        if (i % 2 == 0) { /* both who asked for it */
            T_EQ(mag_chan_recv(d, &sig, mag_in(60 * MAG_S)), 0);
            T_EQ(sig, SIGUSR2);
        }
    }
    for (int i = 0; i < 20; i++) /* more than it has room for: dropped, and nobody hangs */
        T_EQ(kill(getpid(), SIGUSR1), 0);
    T_EQ(mag_chan_recv(c, &sig, mag_in(60 * MAG_S)), 0);
    T_EQ(sig, SIGUSR1);
    T_EVENTUALLY(!is_pending(SIGUSR1), 10000); /* or it would meet the program's handler */
    T_EQ(mag_chan_close(c), 0);
    T_EQ(kill(getpid(), SIGUSR2), 0); /* the other still wants it */
    T_EQ(mag_chan_recv(d, &sig, mag_in(60 * MAG_S)), 0);
    mag_chan_unref(c);
    mag_chan_unref(d); /* not closed: ends with the runtime */
    sigset_t bad;
    sigemptyset(&bad);
    sigaddset(&bad, SIGKILL);
    T_TRUE(mag_signal_new(&bad, 1) == NULL);
    T_TRUE(mag_signal_new(NULL, 1) == NULL);
}

static volatile sig_atomic_t own;

static void own_handler(int sig) { own = sig; }

static void signals_on_a_channel(void)
{
    if (T_TSAN)
        T_SKIP("TSan holds a handler back while its thread is in a futex wait of ours");
    struct sigaction sa = {.sa_handler = own_handler}, now;
    T_EQ(sigaction(SIGUSR1, &sa, NULL), 0);
    T_EQ(sigaction(SIGUSR2, &sa, NULL), 0);
    on_some(receives_signals);
    T_EQ(own, 0); /* none was the program's while they were asked for */
    T_EQ(sigaction(SIGUSR1, NULL, &now), 0);
    T_TRUE(now.sa_handler == own_handler); /* as it was */
    T_EQ(sigaction(SIGUSR2, NULL, &now), 0);
    T_TRUE(now.sa_handler == own_handler);
    T_EQ(raise(SIGUSR1), 0);
    T_EQ(own, SIGUSR1);
    sigset_t set;
    sigemptyset(&set);
    T_TRUE(mag_signal_new(&set, 1) == NULL); /* no runtime */
}

/* ---- many, each a little after the other ---- */

enum { STAGGERED = 10000 };

static long woken;
static int enough;

static void ticks_each_second(void *arg)
{
    mag_time next = mag_now() + (int64_t)(uintptr_t)arg * (MAG_S / STAGGERED);
    while (!__atomic_load_n(&enough, __ATOMIC_RELAXED)) {
        T_EQ(mag_sleep_until(next), 0);
        T_GE(mag_now(), next);
        next += MAG_S;
    }
    add(&woken, 1);
}

static int64_t cpu(void)
{
    struct timespec t;
    clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &t);
    return t.tv_sec * MAG_S + t.tv_nsec;
}

/* Ten thousand wake-ups a second, 0.1 ms apart: with a thread woken for each they would take a fifth of a core and more. */
static void staggered(void *arg)
{
    (void)arg;
    woken = 0;
    __atomic_store_n(&enough, 0, __ATOMIC_RELAXED);
    for (uintptr_t i = 0; i < STAGGERED; i++)
        T_EQ(mag_go(ticks_each_second, (void *)i), 0);
    bool measure = t_state.slow == 1; /* elsewhere it is enough that all come */
    T_EQ(mag_sleep((measure ? 1500 : 200) * MAG_MS), 0);
    int64_t before = cpu(), start = mag_now();
    T_EQ(mag_sleep((measure ? 1000 : 200) * MAG_MS), 0);
    double share = (double)(cpu() - before) / (double)(mag_now() - start);
    __atomic_store_n(&enough, 1, __ATOMIC_RELAXED);
    printf("%.1f %% of a core  ", 100 * share);
    T_LT(share, measure ? 0.2 : 10); /* on a quiet machine below a tenth */
    while (__atomic_load_n(&woken, __ATOMIC_RELAXED) < STAGGERED)
        T_EQ(mag_sleep(10 * MAG_MS), 0);
}

static void staggered_timers_are_coalesced(void)
{
    if (T_TSAN)
        T_SKIP("too many at a time for the thread sanitizer");
    on(1, staggered);
    on(2, staggered);
}

/* ---- a bug of ours ---- */

/* An M that went to sleep announced until when it would keep the time, saw an earlier timer, looked again, and when that one
 * had gone meanwhile it took its own announcement for another's: everybody slept on, and no timer fired any more. It takes
 * many threads that go to sleep while deadlines come and go. */
struct couple {
    mag_chan *c;
    long rounds;
    mag_wg *wg;
};

static void waits_briefly(void *arg)
{
    struct couple *k = arg;
    uint64_t random = (uintptr_t)k->c;
    for (long i = 0; i < k->rounds; i++) {
        int r = mag_chan_recv(k->c, NULL, mag_in((int64_t)(t_random_r(&random) % 6000)));
        T_TRUE(r == 0 || r == -ETIMEDOUT);
    }
    mag_wg_done(k->wg);
}

static void sends_briefly(void *arg)
{
    struct couple *k = arg;
    uint64_t random = (uintptr_t)k->c + 1;
    for (long i = 0; i < k->rounds; i++) {
        if (t_random_r(&random) % 4 == 0)
            T_EQ(mag_sleep((int64_t)(t_random_r(&random) % 6000)), 0);
        int r = mag_chan_send(k->c, NULL, mag_in((int64_t)(t_random_r(&random) % 6000)));
        T_TRUE(r == 0 || r == -ETIMEDOUT);
    }
    mag_wg_done(k->wg);
}

static void couples(void *arg)
{
    (void)arg;
    enum { COUPLES = 8 };
    struct couple k[COUPLES];
    mag_wg wg = {0};
    mag_wg_add(&wg, 2 * COUPLES);
    for (int i = 0; i < COUPLES; i++) {
        k[i] = (struct couple){.c = mag_chan_new(0, 0), .rounds = t_scale(10000), .wg = &wg};
        T_EQ(mag_go(waits_briefly, &k[i]), 0);
        T_EQ(mag_go(sends_briefly, &k[i]), 0);
    }
    T_EQ(mag_wg_wait(&wg, MAG_FOREVER), 0);
    for (int i = 0; i < COUPLES; i++)
        mag_chan_unref(k[i].c);
}

static void bug_the_keeper_believed_itself_another(void)
{
    on(4, couples);
    on(16, couples);
}

/* Who waits for a tick leaves with the channel's lock held, and looks on its way off for what is next: the timers among it, one of
 * which wanted that lock. */
static int ticks_over;

static void yields_beside(void *wg)
{
    while (!__atomic_load_n(&ticks_over, __ATOMIC_RELAXED))
        mag_yield();
    mag_wg_done(wg);
}

static void receives_ticks_just_due(void *arg)
{
    (void)arg;
    mag_wg wg = {0};
    mag_time due = mag_now() + MAG_MS;
    mag_timer *t = mag_timer_new(due, 50 * MAG_US);
    ticks_over = 0;
    mag_wg_add(&wg, 4);
    for (int i = 0; i < 4; i++)
        mag_go(yields_beside, &wg);
    for (long i = 0; i < t_scale(4000); i++) {
        mag_time at;
        for (long k = i % 16; k > 0; k--) /* five take turns: every one is once the timers' */
            mag_yield();
        while (mag_chan_recv(mag_timer_chan(t), &at, MAG_TRY) == 0)
            ;
        while (due <= mag_now())
            due += 50 * MAG_US;
        while (mag_now() <= due)
            ; /* and nobody has run the timer yet */
        T_EQ(mag_chan_recv(mag_timer_chan(t), &at, MAG_FOREVER), 0);
    }
    __atomic_store_n(&ticks_over, 1, __ATOMIC_RELAXED);
    mag_wg_wait(&wg, MAG_FOREVER);
    mag_timer_unref(t);
}

static void bug_a_receiver_ran_the_timer_it_waited_for(void)
{
    on(1, receives_ticks_just_due);
    on(2, receives_ticks_just_due);
}

int main(int argc, char **argv)
{
    t_init(argc, argv);
    T_RUN(sleeps_are_never_short);
    T_RUN(deadlines_saturate);
    T_RUN(a_crowd_of_sleepers);
    T_RUN(timers_fire_while_all_are_busy);
    T_RUN(a_microsecond_is_not_a_millisecond);
    T_RUN(timers_say_what_happened);
    T_RUN(stop_meets_firing);
    T_RUN(several_reset_one_timer);
    T_RUN(a_ticker_drops_ticks);
    T_RUN(far_off_periods);
    T_RUN(threads_read_ticks);
    T_RUN(timers_end_with_the_run);
    T_RUN(a_duration_is_no_deadline);
    T_RUN(a_pending_timer_is_no_deadlock);
    T_RUN(signals_on_a_channel);
    T_RUN(staggered_timers_are_coalesced);
    T_RUN(bug_the_keeper_believed_itself_another);
    T_RUN(bug_a_receiver_ran_the_timer_it_waited_for);
    return t_done();
}
