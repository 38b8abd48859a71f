/* SPDX-License-Identifier: MIT */
/* select.c: of several channel operations exactly one happens: a ready one at once and each as likely, otherwise the first
 * that becomes possible, or none at the deadline. */
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

static void *as_thread(void *arg)
{
    (*(mag_fn *)arg)(NULL);
    return NULL;
}

/* ---- one case is always ready ---- */

static void tries_where_one_is_ready(void *arg)
{
    (void)arg;
    long n = t_scale(100000), v;
    for (long i = 0; i < n; i++) {
        mag_chan *a = mag_chan_new(sizeof v, 1), *b = mag_chan_new(sizeof v, 1);
        if (i % 3 == 0)
            T_EQ(mag_chan_close(i % 2 ? a : b), 0);
        else if (i % 3 == 1)
            T_EQ(mag_chan_send(i % 2 ? a : b, &i, MAG_TRY), 0);
        mag_case cases[] = {MAG_RECV(a, &v), i % 3 == 2 ? MAG_SEND(b, &i) : MAG_RECV(b, &v)};
        int r = mag_select(cases, 2, MAG_TRY);
        T_EQ(r, i % 3 == 2 ? 1 : i % 2 ? 0 : 1);
        T_EQ(cases[r].result, i % 3 == 0 ? -EPIPE : 0);
        mag_chan_unref(a);
        mag_chan_unref(b);
    }
}

/* While one goroutine selects, another makes the second case ready and only then takes the first one's value: at no moment
 * is neither of them ready. */
static struct {
    mag_chan *a, *b, *start, *back;
    mag_wg wg;
} two;

static void selects_all_along(void *arg)
{
    (void)arg;
    long v;
    while (mag_chan_recv(two.start, &v, MAG_FOREVER) == 0) {
        mag_case cases[] = {MAG_RECV(two.a, &v), MAG_RECV(two.b, &v)};
        T_GE(mag_select(cases, 2, MAG_TRY), 0);
        T_EQ(mag_chan_send(two.back, &v, MAG_FOREVER), 0);
    }
    mag_wg_done(&two.wg);
}

static void moves_readiness(void *arg)
{
    (void)arg;
    long n = t_scale(50000), v;
    for (long i = 0; i < n; i++) {
        two.a = mag_chan_new(sizeof v, 1);
        two.b = mag_chan_new(sizeof v, 1);
        T_EQ(mag_chan_send(two.a, &i, MAG_TRY), 0);
        T_EQ(mag_chan_send(two.start, &i, MAG_FOREVER), 0);
        T_EQ(i % 2 ? mag_chan_close(two.b) : mag_chan_send(two.b, &i, MAG_TRY), 0);
        mag_chan_recv(two.a, &v, MAG_TRY);
        T_EQ(mag_chan_recv(two.back, &v, MAG_FOREVER), 0);
        mag_chan_unref(two.a);
        mag_chan_unref(two.b);
    }
    T_EQ(mag_chan_close(two.start), 0);
}

static void never_times_out(void *arg)
{
    two.start = mag_chan_new(sizeof(long), 1);
    two.back = mag_chan_new(sizeof(long), 1);
    mag_wg_add(&two.wg, 1);
    T_EQ(mag_go(selects_all_along, NULL), 0);
    moves_readiness(arg);
    T_EQ(mag_wg_wait(&two.wg, MAG_FOREVER), 0);
    mag_chan_unref(two.start);
    mag_chan_unref(two.back);
}

static void a_ready_case_is_never_missed(void)
{
    tries_where_one_is_ready(NULL);
    on_some(tries_where_one_is_ready);
    on_some(never_times_out);
}

/* ---- fairness ---- */

static void picks_evenly(void *arg)
{
    (void)arg;
    static const int sizes[] = {2, 3, 8, 9, 100};
    for (size_t s = 0; s < sizeof sizes / sizeof *sizes; s++) {
        enum { PER_CASE = 100 };
        int n = sizes[s];
        long v = 0, hits[100] = {0};
        mag_chan *c[100];
        mag_case cases[100];
        for (int i = 0; i < n; i++) {
            c[i] = mag_chan_new(sizeof v, 2);
            T_EQ(i % 3 == 2 ? mag_chan_close(c[i]) : mag_chan_send(c[i], &v, MAG_TRY), 0);
            cases[i] = i % 3 == 1 ? MAG_SEND(c[i], &v) : MAG_RECV(c[i], &v);
        }
        for (int k = 0; k < n * PER_CASE; k++) {
            int r = mag_select(cases, (size_t)n, k % 2 ? MAG_TRY : MAG_FOREVER);
            T_TRUE(r >= 0 && r < n);
            hits[r]++;
            T_EQ(cases[r].result, r % 3 == 2 ? -EPIPE : 0);
            if (r % 3 == 0) /* as it was */
                T_EQ(mag_chan_send(c[r], &v, MAG_TRY), 0);
            else if (r % 3 == 1)
                T_EQ(mag_chan_recv(c[r], &v, MAG_TRY), 0);
        }
        for (int i = 0; i < n; i++) { /* of 100: seven standard deviations, ten */
            T_GE(hits[i], PER_CASE * 3 / 10);
            T_LE(hits[i], PER_CASE * 2);
            mag_chan_unref(c[i]);
        }
    }
}

static void each_ready_case_is_as_likely(void)
{
    picks_evenly(NULL);
    on_some(picks_evenly);
}

/* ---- shapes ---- */

static void shapes(void *arg)
{
    (void)arg;
    long v = -1, x = 5;
    mag_chan *c = mag_chan_new(sizeof v, 1);
    mag_time deadline;

    T_EQ(mag_select(NULL, 0, MAG_TRY), -ETIMEDOUT); /* nothing to wait for */
    deadline = mag_in(3 * MAG_MS);
    T_EQ(mag_select(NULL, 0, deadline), -ETIMEDOUT);
    T_GE(mag_now(), deadline);

    mag_case nulls[] = {MAG_RECV(NULL, &v), MAG_SEND(NULL, &v)};
    T_EQ(mag_select(nulls, 2, MAG_TRY), -ETIMEDOUT);
    deadline = mag_in(3 * MAG_MS);
    T_EQ(mag_select(nulls, 2, deadline), -ETIMEDOUT);
    T_GE(mag_now(), deadline);

    mag_case beside_null[] = {MAG_RECV(NULL, &v), MAG_SEND(c, &x), MAG_SEND(NULL, &v)};
    T_EQ(mag_select(beside_null, 3, MAG_FOREVER), 1);
    T_EQ(mag_chan_len(c), 1);

    deadline = mag_in(3 * MAG_MS);
    T_EQ(mag_select(beside_null, 3, deadline), -ETIMEDOUT); /* full */
    T_GE(mag_now(), deadline);
    T_EQ(mag_chan_len(c), 1);

    mag_case one[] = {MAG_RECV(c, &v)};
    T_EQ(mag_select(one, 1, MAG_FOREVER), 0);
    T_EQ(v, 5);
    T_EQ(mag_select(one, 1, MAG_TRY), -ETIMEDOUT);
    T_EQ(v, 5);

    mag_case bad[] = {MAG_RECV(c, &v), MAG_RECV(c, &v)};
    for (int kind = -1; kind < 100; kind += kind == 0 ? 5 : kind < 0 ? 1 : 94) {
        bad[1].kind = kind;
        T_EQ(mag_select(bad, 2, MAG_FOREVER), -EINVAL);
    }
    T_EQ(mag_select(NULL, 1, MAG_TRY), -EINVAL);

    T_EQ(mag_chan_send(c, &x, MAG_TRY), 0);
    T_EQ(mag_chan_close(c), 0);
    mag_case closed[] = {MAG_RECV(c, &v)}, send_closed[] = {MAG_SEND(c, &x)};
    T_EQ(mag_select(closed, 1, MAG_FOREVER), 0); /* drained first */
    T_EQ(closed[0].result, 0);
    v = -1;
    T_EQ(mag_select(closed, 1, MAG_FOREVER), 0);
    T_EQ(closed[0].result, -EPIPE);
    T_EQ(v, -1);
    T_EQ(mag_select(send_closed, 1, MAG_TRY), 0);
    T_EQ(send_closed[0].result, -EPIPE);
    mag_chan_unref(c);
}

static void shapes_and_errors(void)
{
    shapes(NULL);
    on_some(shapes);
}

/* ---- the one that fires is the one that was served ---- */

struct served {
    mag_chan *c[100];
    long n;
    mag_wg wg;
};

static void serves_one(void *arg)
{
    struct served *s = arg;
    long k = s->n / 2;
    mag_sleep(200 * MAG_US); /* the other waits by now, as a rule */
    T_EQ(mag_chan_send(s->c[k], &k, MAG_FOREVER), 0);
    mag_wg_done(&s->wg);
}

static void closes_one(void *arg)
{
    struct served *s = arg;
    mag_sleep(200 * MAG_US);
    T_EQ(mag_chan_close(s->c[s->n - 1]), 0);
    mag_wg_done(&s->wg);
}

static void waits_for_one_of(void *arg)
{
    (void)arg;
    static const long sizes[] = {1, 2, 8, 9, 100};
    static struct served s;
    mag_case cases[100];
    for (size_t k = 0; k < sizeof sizes / sizeof *sizes; k++) {
        long v = -1;
        s.n = sizes[k];
        for (long i = 0; i < s.n; i++) {
            s.c[i] = mag_chan_new(sizeof v, (size_t)i % 2);
            cases[i] = MAG_RECV(s.c[i], &v);
        }
        mag_wg_add(&s.wg, 1);
        T_EQ(mag_go(serves_one, &s), 0);
        T_EQ(mag_select(cases, (size_t)s.n, k % 2 ? MAG_FOREVER : mag_in(100 * MAG_S)), s.n / 2);
        T_EQ(v, s.n / 2);
        T_EQ(mag_wg_wait(&s.wg, MAG_FOREVER), 0);
        mag_wg_add(&s.wg, 1);
        T_EQ(mag_go(closes_one, &s), 0);
        T_EQ(mag_select(cases, (size_t)s.n, k % 2 ? MAG_FOREVER : mag_in(100 * MAG_S)), s.n - 1);
        T_EQ(cases[s.n - 1].result, -EPIPE);
        T_EQ(mag_wg_wait(&s.wg, MAG_FOREVER), 0);
        for (long i = 0; i < s.n; i++)
            mag_chan_unref(s.c[i]); /* it left all their queues: none of these aborts */
    }
}

static void woken_by_the_case_that_was_served(void) { on_some(waits_for_one_of); }

static void sends_numbers(void *arg)
{
    long n = t_scale(5000);
    for (long i = 0; i < n; i++)
        T_EQ(mag_chan_send(arg, &i, MAG_FOREVER), 0);
    mag_wg_done(&two.wg);
}

static void same_channel_twice(void *arg)
{
    (void)arg;
    for (size_t cap = 0; cap < 2; cap++) {
        long n = t_scale(5000), x, y;
        mag_chan *c = mag_chan_new(sizeof x, cap);
        mag_wg_add(&two.wg, 1);
        T_EQ(mag_go(sends_numbers, c), 0);
        for (long i = 0; i < n; i++) {
            x = y = -1;
            mag_case cases[] = {MAG_RECV(c, &x), MAG_RECV(c, &y)};
            int r = mag_select(cases, 2, MAG_FOREVER);
            T_EQ(r == 0 ? x : y, i);
            T_EQ(r == 0 ? y : x, -1);
        }
        T_EQ(mag_chan_recv(c, &x, MAG_TRY), -ETIMEDOUT);
        T_EQ(mag_wg_wait(&two.wg, MAG_FOREVER), 0);
        mag_chan_unref(c);
    }
}

static void the_same_channel_twice(void) { on_some(same_channel_twice); }

/* ---- both ends in one select ---- */

static struct {
    mag_chan *c;
    mag_wg wg;
    long sent, received, sum_sent, sum_received;
    int left;
} ends;

/* Nobody meets himself, everybody meets somebody: as many sent as received. */
static void sends_and_receives(void *arg)
{
    long n = t_scale(20000), sent = 0, received = 0, sum_sent = 0, sum_received = 0;
    for (long i = 0; i < n; i++) {
        long x = i * 8 + (intptr_t)arg, v = -1;
        mag_case cases[] = {MAG_SEND(ends.c, &x), MAG_RECV(ends.c, &v)};
        int r = mag_select(cases, 2, MAG_FOREVER);
        T_GE(r, 0);
        if (cases[r].result == -EPIPE)
            break;
        if (r == 0) {
            T_EQ(v, -1);
            sent++;
            sum_sent += x;
        } else {
            T_NE(v % 8, (intptr_t)arg);
            received++;
            sum_received += v;
        }
    }
    add(&ends.sent, sent);
    add(&ends.received, received);
    add(&ends.sum_sent, sum_sent);
    add(&ends.sum_received, sum_received);
    mag_chan_close(ends.c); /* who is left over has nobody to meet */
    mag_wg_done(&ends.wg);
}

static void meets_itself_never(void *arg)
{
    (void)arg;
    for (int who = 2; who <= 5; who++) {
        ends.c = mag_chan_new(sizeof(long), 0);
        ends.sent = ends.received = ends.sum_sent = ends.sum_received = 0;
        mag_wg_add(&ends.wg, who);
        for (intptr_t i = 0; i < who; i++)
            T_EQ(mag_go(sends_and_receives, (void *)i), 0);
        T_EQ(mag_wg_wait(&ends.wg, MAG_FOREVER), 0);
        T_EQ(ends.sent, ends.received);
        T_EQ(ends.sum_sent, ends.sum_received);
        T_GE(ends.sent, t_scale(20000) / 2);
        mag_chan_unref(ends.c);
    }
    long x = 1, v;
    mag_chan *c = mag_chan_new(sizeof x, 0);
    mag_case cases[] = {MAG_SEND(c, &x), MAG_RECV(c, &v)};
    T_EQ(mag_select(cases, 2, MAG_TRY), -ETIMEDOUT);
    T_EQ(mag_select(cases, 2, mag_in(MAG_MS)), -ETIMEDOUT);
    mag_chan_unref(c);
}

static void both_ends_in_one_select(void) { on_some(meets_itself_never); }

/* ---- nothing lost, nothing twice ---- */

enum { CHANS = 3, WORKERS = 4 };

static struct {
    mag_chan *c[CHANS];
    mag_wg wg;
    long in, out, sum_in, sum_out, late;
    int stop;
} race;

static void selects_at_random(void *arg)
{
    uint64_t random = t_state.seed + (uintptr_t)arg;
    long in = 0, out = 0, sum_in = 0, sum_out = 0, late = 0, n = t_scale(15000);
    for (long i = 0; i < n; i++) {
        mag_case cases[12];
        long x[12], v[12];
        size_t count = 1 + t_random_r(&random) % (t_random_r(&random) % 8 == 0 ? 12 : 4);
        for (size_t k = 0; k < count; k++) {
            mag_chan *c = race.c[t_random_r(&random) % CHANS];
            x[k] = (long)(t_random_r(&random) & 0xffff);
            v[k] = -1;
            cases[k] = t_random_r(&random) % 2 ? MAG_SEND(c, &x[k]) : MAG_RECV(c, &v[k]);
        }
        int r = mag_select(cases, count, mag_in((int64_t)(t_random_r(&random) % 8000)));
        for (int k = 0; k < (int)count; k++)
            if (k != r)
                T_EQ(v[k], -1);
        if (r < 0) {
            T_EQ(r, -ETIMEDOUT);
            late++;
        } else if (cases[r].kind == MAG_CASE_SEND) {
            in++;
            sum_in += x[r];
        } else {
            T_GE(v[r], 0);
            out++;
            sum_out += v[r];
        }
    }
    add(&race.in, in);
    add(&race.out, out);
    add(&race.sum_in, sum_in);
    add(&race.sum_out, sum_out);
    add(&race.late, late);
    mag_wg_done(&race.wg);
}

static void selects_as_thread(void *arg)
{
    (void)arg;
    selects_at_random((void *)99);
}

static void races(void *arg)
{
    (void)arg;
    for (int threads = 0; threads < 2; threads++) {
        race.in = race.out = race.sum_in = race.sum_out = race.late = 0;
        for (size_t i = 0; i < CHANS; i++)
            race.c[i] = mag_chan_new(sizeof(long), i); /* one without a buffer */
        mag_wg_add(&race.wg, WORKERS + threads);
        pthread_t t;
        mag_fn fn = selects_as_thread;
        if (threads)
            T_EQ(pthread_create(&t, NULL, as_thread, &fn), 0);
        for (intptr_t i = 0; i < WORKERS; i++)
            T_EQ(mag_go(selects_at_random, (void *)i), 0);
        T_EQ(mag_wg_wait(&race.wg, MAG_FOREVER), 0);
        if (threads)
            T_EQ(pthread_join(t, NULL), 0);
        long left = 0, v;
        for (int i = 0; i < CHANS; i++) {
            T_LE(mag_chan_len(race.c[i]), i);
            while (mag_chan_recv(race.c[i], &v, MAG_TRY) == 0) {
                left++;
                race.sum_out += v;
            }
            mag_chan_unref(race.c[i]);
        }
        T_EQ(race.in, race.out + left);
        T_EQ(race.sum_in, race.sum_out);
        T_GT(race.in, 0);
    }
}

static void values_are_conserved(void) { on_some(races); }

/* ---- memory ---- */

static void answers(void *arg)
{
    (void)arg;
    long v;
    while (mag_chan_recv(two.start, &v, MAG_FOREVER) == 0)
        T_EQ(mag_chan_send(two.back, &v, MAG_FOREVER), 0);
    mag_wg_done(&two.wg);
}

static void selects_for_long(void *arg)
{
    (void)arg;
    long v, before = 0, n = t_scale(200000);
    mag_case cases[12];
    two.start = mag_chan_new(sizeof v, 0);
    two.back = mag_chan_new(sizeof v, 0);
    mag_wg_add(&two.wg, 1);
    T_EQ(mag_go(answers, NULL), 0);
    for (int i = 0; i < 12; i++)
        cases[i] = MAG_RECV(i == 5 ? two.back : i < 8 ? NULL : two.back, &v);
    for (long i = 0; i < n; i++) {
        if (i == n / 4)
            before = t_rss();
        T_EQ(mag_chan_send(two.start, &i, MAG_FOREVER), 0);
        T_GE(mag_select(cases, i % 2 ? 12 : 6, i % 3 ? MAG_FOREVER : mag_in(MAG_S * 100)), 0);
        T_EQ(v, i);
    }
    T_EQ(mag_chan_close(two.start), 0);
    T_EQ(mag_wg_wait(&two.wg, MAG_FOREVER), 0);
    if (!T_TSAN && !T_ASAN)
        T_LT(t_rss() - before, 4 << 20); /* 24 bytes kept each time would be more */
    mag_chan_unref(two.start);
    mag_chan_unref(two.back);
}

static void memory_does_not_grow(void) { on(2, selects_for_long); }

int main(int argc, char **argv)
{
    t_init(argc, argv);
    T_RUN(shapes_and_errors);
    T_RUN(a_ready_case_is_never_missed);
    T_RUN(each_ready_case_is_as_likely);
    T_RUN(woken_by_the_case_that_was_served);
    T_RUN(the_same_channel_twice);
    T_RUN(both_ends_in_one_select);
    T_RUN(values_are_conserved);
    T_RUN(memory_does_not_grow);
    return t_done();
}
