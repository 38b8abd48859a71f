/* SPDX-License-Identifier: MIT */
/* chan.c: channels: every value arrives exactly once and in order, blocked calls wake up for a value, a close or their
 * deadline, and a negative result means that nothing happened. */
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
static long get(const long *n) { return __atomic_load_n(n, __ATOMIC_RELAXED); }

/* Starts fn as a thread instead of a goroutine. */
struct in_thread {
    mag_fn fn;
    void *arg;
};

static void *thread_main(void *arg)
{
    struct in_thread t = *(struct in_thread *)arg;
    free(arg);
    t.fn(t.arg);
    return NULL;
}

static pthread_t start_thread(mag_fn fn, void *arg)
{
    pthread_t id;
    struct in_thread *t = malloc(sizeof *t);
    *t = (struct in_thread){fn, arg};
    T_EQ(pthread_create(&id, NULL, thread_main, t), 0);
    return id;
}

/* ---- one channel, every capacity ---- */

static void fills_and_drains(size_t cap)
{
    long v = -1;
    mag_chan *c = mag_chan_new(sizeof v, cap);
    T_TRUE(c != NULL);
    T_EQ(mag_chan_cap(c), cap);
    for (int turn = 0; turn < 3; turn++) { /* the ring starts somewhere else each time */
        T_EQ(mag_chan_len(c), 0);
        T_EQ(mag_chan_recv(c, &v, MAG_TRY), -ETIMEDOUT);
        T_EQ(mag_chan_recv(c, &v, mag_in(20 * MAG_US)), -ETIMEDOUT);
        T_EQ(v, -1);
        for (size_t i = 0; i < cap; i++) {
            long x = (long)i + 1000 * turn;
            T_EQ(mag_chan_len(c), i);
            T_EQ(mag_chan_send(c, &x, i % 2 ? MAG_TRY : MAG_FOREVER), 0);
        }
        T_EQ(mag_chan_len(c), cap);
        T_EQ(mag_chan_send(c, &v, MAG_TRY), -ETIMEDOUT);
        T_EQ(mag_chan_send(c, &v, mag_in(20 * MAG_US)), -ETIMEDOUT);
        T_EQ(mag_chan_len(c), cap);
        size_t take = turn == 2 ? cap / 2 : cap;
        for (size_t i = 0; i < take; i++) {
            T_EQ(mag_chan_recv(c, &v, i % 2 ? MAG_TRY : MAG_FOREVER), 0);
            T_EQ(v, (long)i + 1000 * turn);
        }
        v = -1;
        if (turn == 1 && cap > 1) { /* and an odd place */
            T_EQ(mag_chan_send(c, &v, MAG_TRY), 0);
            T_EQ(mag_chan_recv(c, NULL, MAG_TRY), 0);
        }
    }
    T_EQ(mag_chan_close(c), 0);
    T_EQ(mag_chan_close(c), -EPIPE);
    T_EQ(mag_chan_send(c, &v, MAG_FOREVER), -EPIPE);
    T_EQ(mag_chan_send(c, &v, MAG_TRY), -EPIPE);
    for (size_t i = cap / 2; i < cap; i++) {
        T_EQ(mag_chan_len(c), cap - i);
        T_EQ(mag_chan_recv(c, &v, i % 2 ? MAG_TRY : MAG_FOREVER), 0);
        T_EQ(v, (long)i + 2000);
    }
    v = -1;
    T_EQ(mag_chan_recv(c, &v, MAG_FOREVER), -EPIPE);
    T_EQ(mag_chan_recv(c, &v, MAG_TRY), -EPIPE);
    T_EQ(v, -1);
    mag_chan_unref(c);
}

static void all_capacities(void *arg)
{
    (void)arg;
    long v = 0;
    mag_chan *c = mag_chan_new(sizeof v, 0);
    T_EQ(mag_chan_recv(c, &v, mag_in(20 * MAG_US)), -ETIMEDOUT);
    T_EQ(mag_chan_send(c, &v, mag_in(20 * MAG_US)), -ETIMEDOUT);
    mag_chan_unref(c); /* who gave up is in no queue any more: this does not abort */
    for (size_t cap = 0; cap < 200; cap++)
        fills_and_drains(cap);
}

static void every_capacity(void)
{
    all_capacities(NULL); /* a thread, with no runtime at all */
    on_some(all_capacities);
}

/* ---- blocked calls ---- */

static struct {
    mag_chan *c;
    mag_wg wg;
    long entered, left, sum;
    int expect;
} blocked;

static void receives_one(void *arg)
{
    long v = 0;
    (void)arg;
    add(&blocked.entered, 1);
    int r = mag_chan_recv(blocked.c, &v, mag_in(60 * MAG_S));
    T_EQ(r, blocked.expect);
    add(&blocked.sum, v);
    add(&blocked.left, 1);
    mag_wg_done(&blocked.wg);
}

static void sends_one(void *arg)
{
    long v = (long)(intptr_t)arg;
    add(&blocked.entered, 1);
    T_EQ(mag_chan_send(blocked.c, &v, MAG_FOREVER), blocked.expect);
    add(&blocked.left, 1);
    mag_wg_done(&blocked.wg);
}

static void begin_blocked(size_t cap, int expect, int n)
{
    blocked.c = mag_chan_new(sizeof(long), cap);
    blocked.entered = blocked.left = blocked.sum = 0;
    blocked.expect = expect;
    mag_wg_add(&blocked.wg, n);
}

static void until_they_wait(long n)
{
    while (get(&blocked.entered) < n)
        mag_yield();
    mag_sleep(3 * MAG_MS);
    T_EQ(get(&blocked.left), 0);
}

static void blocks_and_wakes(void *arg)
{
    (void)arg;
    enum { N = 20 };
    for (size_t cap = 0; cap < 3; cap++) {
        begin_blocked(cap, 0, N);
        for (int i = 0; i < N; i++)
            T_EQ(mag_go(receives_one, NULL), 0);
        until_they_wait(N);
        T_EQ(mag_chan_len(blocked.c), 0);
        for (long i = 1; i <= N; i++)
            T_EQ(mag_chan_send(blocked.c, &i, i % 2 ? MAG_TRY : MAG_FOREVER), 0); /* they wait: none of these may block */
        T_EQ(mag_wg_wait(&blocked.wg, MAG_FOREVER), 0);
        T_EQ(blocked.sum, N * (N + 1) / 2);
        mag_chan_unref(blocked.c);

        begin_blocked(cap, 0, N);
        long v, sum = 0, x = 1000;
        for (size_t i = 0; i < cap; i++)
            T_EQ(mag_chan_send(blocked.c, &x, MAG_TRY), 0);
        for (long i = 1; i <= N; i++)
            T_EQ(mag_go(sends_one, (void *)i), 0);
        until_they_wait(N);
        T_EQ(mag_chan_len(blocked.c), cap);
        for (size_t i = 0; i < cap; i++) {
            T_EQ(mag_chan_recv(blocked.c, &v, MAG_TRY), 0);
            T_EQ(v, 1000); /* the buffer first, then those who waited */
        }
        for (long i = 1; i <= N; i++) {
            T_EQ(mag_chan_recv(blocked.c, &v, MAG_TRY), 0);
            sum += v;
        }
        T_EQ(sum, N * (N + 1) / 2);
        T_EQ(mag_wg_wait(&blocked.wg, MAG_FOREVER), 0);
        T_EQ(mag_chan_recv(blocked.c, &v, MAG_TRY), -ETIMEDOUT);
        mag_chan_unref(blocked.c);
    }
}

static void who_blocks_is_woken_by_the_other_side(void) { on_some(blocks_and_wakes); }

static void closes_on_many(void *arg)
{
    (void)arg;
    int n = (int)t_scale(500) + 10;
    for (int side = 0; side < 2; side++) {
        begin_blocked(0, -EPIPE, n);
        for (int i = 0; i < n - 2; i++)
            T_EQ(mag_go(side ? receives_one : sends_one, NULL), 0);
        pthread_t t[2] = {start_thread(side ? receives_one : sends_one, NULL), start_thread(side ? receives_one : sends_one, NULL)};
        until_they_wait(n);
        T_EQ(mag_chan_close(blocked.c), 0);
        T_EQ(mag_wg_wait(&blocked.wg, MAG_FOREVER), 0);
        T_EQ(blocked.left, n);
        T_EQ(pthread_join(t[0], NULL), 0);
        T_EQ(pthread_join(t[1], NULL), 0);
        mag_chan_unref(blocked.c);
    }
}

static void close_wakes_all(void) { on_some(closes_on_many); }

static void waiters_are_served_in_order(void *arg)
{
    (void)arg;
    enum { N = 50 };
    begin_blocked(0, 0, N);
    for (long i = 0; i < N; i++) {
        T_EQ(mag_go(sends_one, (void *)i), 0);
        until_they_wait(i + 1); /* a sleep: it waits by now, or nearly always */
    }
    for (long i = 0, v = -1; i < N; i++) {
        T_EQ(mag_chan_recv(blocked.c, &v, MAG_FOREVER), 0);
        T_EQ(v, i);
    }
    T_EQ(mag_wg_wait(&blocked.wg, MAG_FOREVER), 0);
    mag_chan_unref(blocked.c);
}

static void first_come_first_served(void) { on(1, waiters_are_served_in_order); }

/* ---- many ---- */

enum { SIDES = 4 };

static struct {
    mag_chan *c;
    mag_wg wg;
    long each, received[SIDES];
    unsigned char *seen;
    bool timed;
} flow;

struct item {
    int from;
    int number;
};

static void produces(void *arg)
{
    int me = (int)(intptr_t)arg;
    uint64_t random = t_state.seed + (uint64_t)me;
    for (int i = 0; i < flow.each;) {
        struct item item = {me, i};
        int r = mag_chan_send(flow.c, &item, flow.timed && t_random_r(&random) % 4 == 0 ? mag_in(t_random_r(&random) % 2000) : MAG_FOREVER);
        T_TRUE(r == 0 || (flow.timed && r == -ETIMEDOUT));
        i += r == 0;
    }
    mag_wg_done(&flow.wg);
}

static void consumes(void *arg)
{
    int me = (int)(intptr_t)arg, last[SIDES], r;
    uint64_t random = t_state.seed + 100 + (uint64_t)me;
    memset(last, -1, sizeof last);
    struct item item;
    for (;;) {
        r = mag_chan_recv(flow.c, &item, flow.timed && t_random_r(&random) % 4 == 0 ? mag_in(t_random_r(&random) % 2000) : MAG_FOREVER);
        if (flow.timed && r == -ETIMEDOUT)
            continue;
        if (r != 0)
            break;
        T_LT(last[item.from], item.number); /* each producer's in order */
        last[item.from] = item.number;
        T_EQ(__atomic_fetch_add(&flow.seen[item.from * flow.each + item.number], 1, __ATOMIC_RELAXED), 0);
        flow.received[me]++;
    }
    T_EQ(r, -EPIPE);
    mag_wg_done(&flow.wg);
}

static void flow_through(size_t cap, long each, bool threads)
{
    pthread_t t[2 * SIDES];
    flow.c = mag_chan_new(sizeof(struct item), cap);
    flow.each = each;
    flow.seen = calloc((size_t)each, SIDES);
    memset(flow.received, 0, sizeof flow.received);
    mag_wg_add(&flow.wg, SIDES);
    for (int i = 0; i < SIDES; i++) {
        if (threads && i % 2)
            t[i] = start_thread(consumes, (void *)(intptr_t)i);
        else
            T_EQ(mag_go(consumes, (void *)(intptr_t)i), 0);
    }
    mag_wg_add(&flow.wg, SIDES);
    for (int i = 0; i < SIDES; i++) {
        if (threads && i % 2)
            t[SIDES + i] = start_thread(produces, (void *)(intptr_t)i);
        else
            T_EQ(mag_go(produces, (void *)(intptr_t)i), 0);
    }
    long total = 0;
    while (total < each * SIDES) { /* every value has been counted before the channel is closed */
        mag_sleep(200 * MAG_US);
        total = 0;
        for (long i = 0; i < each * SIDES; i++)
            total += __atomic_load_n(&flow.seen[i], __ATOMIC_RELAXED);
    }
    T_EQ(total, each * SIDES);
    T_EQ(mag_chan_close(flow.c), 0);
    T_EQ(mag_wg_wait(&flow.wg, MAG_FOREVER), 0);
    for (int i = 0; threads && i < 2 * SIDES; i++)
        if (i % 2)
            T_EQ(pthread_join(t[i], NULL), 0);
    total = 0;
    for (int i = 0; i < SIDES; i++)
        total += flow.received[i];
    T_EQ(total, each * SIDES);
    for (long i = 0; i < each * SIDES; i++)
        T_EQ(flow.seen[i], 1);
    free(flow.seen);
    mag_chan_unref(flow.c);
}

static void flows(void *arg)
{
    (void)arg;
    static const size_t caps[] = {0, 1, 2, 7, 100, 199};
    for (int timed = 0; timed < 2; timed++)
        for (size_t i = 0; i < sizeof caps / sizeof *caps; i++) {
            flow.timed = timed;
            flow_through(caps[i], t_scale(1000), false);
            flow_through(caps[i], t_scale(500), true);
        }
}

static void each_exactly_once_and_in_order(void) { on_some(flows); }

/* ---- elements ---- */

static void element_sizes(void *arg)
{
    (void)arg;
    static const size_t sizes[] = {0, 1, 3, 4, 8, 12, 4096, 65536};
    for (size_t s = 0; s < sizeof sizes / sizeof *sizes; s++) {
        size_t size = sizes[s];
        unsigned char *in = malloc(size + 16), *out = malloc(size + 16);
        for (size_t cap = 0; cap < 4; cap++) {
            flow.c = mag_chan_new(size, cap);
            T_TRUE(flow.c != NULL);
            for (size_t round = 0; round < cap * 2; round++) {
                for (size_t i = 0; i < cap; i++) {
                    memset(in, (int)(round * 16 + i + 1), size + 16);
                    T_EQ(mag_chan_send(flow.c, in, MAG_TRY), 0);
                }
                for (size_t i = 0; i < cap; i++) {
                    memset(out, 0, size + 16);
                    memset(in, (int)(round * 16 + i + 1), size + 16);
                    T_EQ(mag_chan_recv(flow.c, out, MAG_TRY), 0);
                    T_EQ(memcmp(in, out, size), 0);
                    for (size_t k = size; k < size + 16; k++)
                        T_EQ(out[k], 0); /* and not a byte more */
                }
            }
            mag_chan_unref(flow.c);
        }
        free(in);
        free(out);
    }
}

static void sends_from_its_stack(void *arg)
{
    unsigned char big[65536];
    for (int i = 0; i < 50; i++) {
        memset(big, i + (int)(intptr_t)arg, sizeof big);
        T_EQ(mag_chan_send(flow.c, big, MAG_FOREVER), 0);
        memset(big, 0xee, sizeof big); /* it has been copied */
    }
    mag_wg_done(&flow.wg);
}

static void from_stack_to_stack(void *arg)
{
    (void)arg;
    unsigned char big[65536];
    for (size_t cap = 0; cap < 3; cap++) {
        flow.c = mag_chan_new(sizeof big, cap);
        mag_wg_add(&flow.wg, 2);
        T_EQ(mag_go(sends_from_its_stack, (void *)0), 0);
        T_EQ(mag_go(sends_from_its_stack, (void *)100), 0);
        int next[2] = {0, 0};
        for (int i = 0; i < 100; i++) {
            T_EQ(mag_chan_recv(flow.c, big, MAG_FOREVER), 0);
            int who = big[0] / 100;
            T_EQ(big[0], 100 * who + next[who]++);
            for (size_t k = 1; k < sizeof big; k += 997)
                T_EQ(big[k], big[0]);
            T_EQ(big[sizeof big - 1], big[0]);
        }
        T_EQ(mag_wg_wait(&flow.wg, MAG_FOREVER), 0);
        mag_chan_unref(flow.c);
    }
}

static void elements_of_any_size(void)
{
    element_sizes(NULL);
    on_some(element_sizes);
    on_some(from_stack_to_stack);
}

static void sends_three(void *arg)
{
    for (int i = 1; i <= 3; i++)
        T_EQ(mag_chan_send(arg, &i, MAG_FOREVER), 0);
    mag_wg_done(&flow.wg);
}

static void drops(void *arg)
{
    (void)arg;
    for (size_t cap = 0; cap < 3; cap++) {
        int v = 0;
        mag_chan *c = mag_chan_new(sizeof v, cap);
        mag_wg_add(&flow.wg, 1);
        T_EQ(mag_go(sends_three, c), 0);
        T_EQ(mag_chan_recv(c, NULL, MAG_FOREVER), 0); /* straight, or from the buffer */
        T_EQ(mag_chan_recv(c, NULL, MAG_FOREVER), 0);
        T_EQ(mag_chan_recv(c, &v, MAG_FOREVER), 0);
        T_EQ(v, 3);
        T_EQ(mag_wg_wait(&flow.wg, MAG_FOREVER), 0);
        mag_chan_unref(c);
    }
}

static void a_null_element_drops_the_value(void) { on_some(drops); }

static void null_channel(void *arg)
{
    (void)arg;
    int v = 7;
    T_EQ(mag_chan_send(NULL, &v, MAG_TRY), -ETIMEDOUT);
    T_EQ(mag_chan_recv(NULL, &v, MAG_TRY), -ETIMEDOUT);
    for (int i = 0; i < 2; i++) {
        mag_time deadline = mag_in(5 * MAG_MS);
        T_EQ(i ? mag_chan_send(NULL, &v, deadline) : mag_chan_recv(NULL, &v, deadline), -ETIMEDOUT);
        T_GE(mag_now(), deadline);
    }
    T_EQ(v, 7);
    mag_chan_unref(NULL);
    T_TRUE(mag_chan_ref(NULL) == NULL);
}

static void a_null_channel_blocks(void)
{
    null_channel(NULL);
    on_some(null_channel);
}

static void sizes_that_overflow(void)
{
    T_TRUE(mag_chan_new(SIZE_MAX, 1) == NULL);
    T_TRUE(mag_chan_new(2, SIZE_MAX) == NULL);
    T_TRUE(mag_chan_new(SIZE_MAX / 2, 3) == NULL);
    T_TRUE(mag_chan_new(SIZE_MAX / 2, 2) == NULL);
    T_TRUE(mag_chan_new((size_t)1 << 32, (size_t)1 << 32) == NULL);
    mag_chan *c = mag_chan_new(0, SIZE_MAX); /* it has room for as many of nothing */
    if (c != NULL) {
        T_EQ(mag_chan_send(c, NULL, MAG_TRY), 0);
        T_EQ(mag_chan_send(c, "", MAG_TRY), 0);
        T_EQ(mag_chan_len(c), 2);
        T_EQ(mag_chan_recv(c, NULL, MAG_TRY), 0);
        T_EQ(mag_chan_cap(c), SIZE_MAX);
        mag_chan_unref(c);
    }
}

/* ---- references ---- */

static void receives_from(void *arg)
{
    long v;
    mag_chan_recv(arg, &v, MAG_FOREVER);
}

static void unrefs_too_early(void *arg)
{
    (void)arg;
    mag_chan *c = mag_chan_new(sizeof(long), 0);
    mag_go(receives_from, c);
    mag_sleep(20 * MAG_MS);
    mag_chan_unref(c);
}

static void runs_unrefs_too_early(void *arg)
{
    (void)arg;
    mag_run(unrefs_too_early, NULL);
}

static void the_last_unref_with_a_waiter_aborts(void)
{
    T_ABORTS(runs_unrefs_too_early, NULL, "mag_chan_unref: the last reference goes while somebody waits on the channel");
    mag_chan *c = mag_chan_new(1, 1);
    T_TRUE(mag_chan_ref(c) == c);
    mag_chan_unref(c);
    T_EQ(mag_chan_send(c, "x", MAG_TRY), 0); /* still there */
    mag_chan_unref(c);
}

static void takes_a_reference(void *arg)
{
    mag_chan *c = arg;
    long v;
    T_EQ(mag_chan_recv(c, &v, MAG_FOREVER), 0);
    mag_chan_unref(c); /* perhaps the last, while the sender is hardly back */
    mag_wg_done(&flow.wg);
}

static void hands_over_and_lets_go(void *arg)
{
    (void)arg;
    for (long i = 0; i < t_scale(20000); i++) {
        mag_chan *c = mag_chan_new(sizeof i, (size_t)i % 2);
        mag_wg_add(&flow.wg, 1);
        T_EQ(mag_go(takes_a_reference, mag_chan_ref(c)), 0);
        T_EQ(mag_chan_send(c, &i, MAG_FOREVER), 0);
        mag_chan_unref(c);
    }
    T_EQ(mag_wg_wait(&flow.wg, MAG_FOREVER), 0);
}

static void either_side_may_be_the_last(void) { on_some(hands_over_and_lets_go); }

/* ---- a value and a deadline meet ---- */

static struct {
    mag_chan *c;
    mag_wg wg;
    long sent, received, send_late, recv_late, sum_sent, sum_received;
    int senders;
} meet;

enum { MEET_TRIES = 4000 };

/* Deadlines spread over the time that a hand-over takes. */
static mag_time near(uint64_t *random) { return mag_in((int64_t)(t_random_r(random) % 6000)); }

static void sends_near_its_deadline(void *arg)
{
    uint64_t random = t_state.seed + (uintptr_t)arg;
    long n = t_scale(MEET_TRIES), sent = 0, late = 0, sum = 0;
    for (long i = 0; i < n; i++) {
        long v = (long)(t_random_r(&random) & 0xffff);
        int r = mag_chan_send(meet.c, &v, near(&random));
        sent += r == 0;
        sum += r == 0 ? v : 0;
        late += r == -ETIMEDOUT;
        T_TRUE(r == 0 || r == -ETIMEDOUT);
    }
    add(&meet.sent, sent);
    add(&meet.sum_sent, sum);
    add(&meet.send_late, late);
    if (__atomic_sub_fetch(&meet.senders, 1, __ATOMIC_ACQ_REL) == 0)
        T_EQ(mag_chan_close(meet.c), 0);
    mag_wg_done(&meet.wg);
}

static void receives_near_its_deadline(void *arg)
{
    uint64_t random = t_state.seed + 50 + (uintptr_t)arg;
    long received = 0, late = 0, sum = 0;
    for (;;) {
        long v = -1;
        int r = mag_chan_recv(meet.c, &v, near(&random));
        if (r == -EPIPE)
            break;
        T_TRUE(r == 0 || r == -ETIMEDOUT);
        if (r == 0)
            T_GE(v, 0);
        else
            T_EQ(v, -1); /* untouched */
        received += r == 0;
        sum += r == 0 ? v : 0;
        late += r == -ETIMEDOUT;
    }
    add(&meet.received, received);
    add(&meet.sum_received, sum);
    add(&meet.recv_late, late);
    mag_wg_done(&meet.wg);
}

static void meets(void *arg)
{
    (void)arg;
    for (size_t cap = 0; cap < 2; cap++)
        for (int threads = 0; threads < 2; threads++) {
            pthread_t t[2];
            meet.c = mag_chan_new(sizeof(long), cap);
            meet.sent = meet.received = meet.send_late = meet.recv_late = meet.sum_sent = meet.sum_received = 0;
            meet.senders = 2 + threads;
            mag_wg_add(&meet.wg, 4 + 2 * threads);
            for (long i = 0; i < 2; i++) {
                T_EQ(mag_go(sends_near_its_deadline, (void *)i), 0);
                T_EQ(mag_go(receives_near_its_deadline, (void *)i), 0);
            }
            if (threads) {
                t[0] = start_thread(sends_near_its_deadline, (void *)7);
                t[1] = start_thread(receives_near_its_deadline, (void *)8);
            }
            T_EQ(mag_wg_wait(&meet.wg, MAG_FOREVER), 0);
            for (int i = 0; threads && i < 2; i++)
                T_EQ(pthread_join(t[i], NULL), 0);
            T_EQ(meet.sent, meet.received);
            T_EQ(meet.sum_sent, meet.sum_received);
            T_EQ(mag_chan_len(meet.c), 0);
            mag_chan_unref(meet.c);
        }
}

static void a_value_meets_a_deadline(void) { on_some(meets); }

/* A value goes straight to the stack of a receiver that is just falling asleep: it sees all of it, or it was too late. */
enum { WHOLE = 64 * 1024 };

static void receives_whole(void *arg)
{
    (void)arg;
    static const mag_time waits[] = {5 * MAG_US, 100 * MAG_S};
    long n = 0;
    unsigned char big[WHOLE];
    for (;;) {
        memset(big, 0, sizeof big);
        int r = mag_chan_recv(meet.c, big, mag_in(waits[n++ % 2]));
        if (r == -EPIPE)
            break;
        T_TRUE(r == 0 || r == -ETIMEDOUT);
        T_EQ(big[0] != 0, r == 0);
        T_EQ(big[WHOLE - 1], big[0]);
        T_EQ(big[WHOLE / 2], big[0]);
        T_EQ(memcmp(big, big + 1, WHOLE - 1), 0);
        add(&meet.received, r == 0);
    }
    mag_wg_done(&meet.wg);
}

static void sends_whole(void *arg)
{
    (void)arg;
    unsigned char *big = malloc(WHOLE);
    long n = t_scale(4000), sent = 0;
    for (long i = 0; sent < n; i++) {
        memset(big, 1 + (int)(sent % 255), WHOLE);
        int r = mag_chan_send(meet.c, big, i % 2 ? MAG_TRY : mag_in(20 * MAG_US));
        sent += r == 0;
        if (i % 8 == 0)
            mag_yield();
    }
    add(&meet.sent, sent);
    free(big);
    if (__atomic_sub_fetch(&meet.senders, 1, __ATOMIC_ACQ_REL) == 0)
        T_EQ(mag_chan_close(meet.c), 0);
    mag_wg_done(&meet.wg);
}

static void wholes(void *arg)
{
    (void)arg;
    meet.c = mag_chan_new(WHOLE, 0);
    meet.sent = meet.received = 0;
    meet.senders = 2;
    mag_wg_add(&meet.wg, 4);
    for (long i = 0; i < 2; i++) {
        T_EQ(mag_go(receives_whole, (void *)i), 0);
        T_EQ(mag_go(sends_whole, (void *)i), 0);
    }
    T_EQ(mag_wg_wait(&meet.wg, MAG_FOREVER), 0);
    T_EQ(meet.sent, meet.received);
    mag_chan_unref(meet.c);
}

static void a_value_arrives_whole(void)
{
    on(2, wholes);
    on(4, wholes);
}

/* ---- runs ---- */

static mag_chan *lasting;

static void waits_for_good(void *arg)
{
    long v;
    (void)arg;
    mag_chan_recv(lasting, &v, MAG_FOREVER);
    T_FAIL("a discarded goroutine went on");
}

static void selects_for_good(void *arg)
{
    long v;
    (void)arg;
    mag_case cases[] = {MAG_RECV(lasting, &v), MAG_RECV(NULL, NULL)};
    mag_select(cases, 2, mag_in(3600 * MAG_S));
    T_FAIL("a discarded goroutine went on");
}

static void leaves_waiters(void *arg)
{
    long v = 0, *expect = arg;
    T_EQ(mag_chan_recv(lasting, &v, MAG_FOREVER), 0);
    T_EQ(v, *expect);
    T_EQ(mag_chan_recv(lasting, &v, MAG_TRY), -ETIMEDOUT);
    for (int i = 0; i < 20; i++)
        T_EQ(mag_go(i % 2 ? waits_for_good : selects_for_good, NULL), 0);
    mag_sleep(2 * MAG_MS);
}

static void channels_outlive_runs(void)
{
    lasting = mag_chan_new(sizeof(long), 2);
    for (long i = 0; i < 20; i++) {
        T_EQ(mag_chan_send(lasting, &i, MAG_TRY), 0); /* nobody who is gone gets it */
        T_EQ(mag_chan_len(lasting), 1);
        T_EQ(mag_run_with(&(mag_config){.procs = 1 + (int)i % 2}, leaves_waiters, &i), 0);
    }
    mag_chan_unref(lasting);
}

/* ---- typed ---- */

struct job {
    int id;
    double weight;
    char name[21];
};

MAG_CHAN_TYPE(jobs, struct job);
MAG_CHAN_TYPE(longs, long);

static void typed_channels(void)
{
    jobs *c = jobs_new(2);
    struct job job = {0};
    T_EQ(jobs_send(c, (struct job){.id = 1, .weight = 0.5, .name = "first"}, MAG_TRY), 0);
    T_EQ(jobs_send(c, (struct job){.id = 2}, MAG_TRY), 0);
    T_EQ(jobs_send(c, (struct job){.id = 3}, MAG_TRY), -ETIMEDOUT);
    T_EQ(jobs_recv(c, &job, MAG_TRY), 0);
    T_EQ(job.id, 1);
    T_EQ(job.weight, 0.5);
    T_STR_EQ(job.name, "first");
    T_EQ(jobs_close(c), 0);
    T_EQ(jobs_recv(c, NULL, MAG_TRY), 0);
    T_EQ(jobs_recv(c, &job, MAG_TRY), -EPIPE);
    T_TRUE(jobs_ref(c) == c);
    jobs_unref(c);
    jobs_unref(c);
    longs *l = longs_new(1);
    T_EQ(longs_send(l, 5, MAG_TRY), 0);
    longs_unref(l);
}

/* ---- programs made of channels ---- */

struct stage {
    longs *in, *out;
    long arg;
};

static void filters(void *arg)
{
    struct stage *s = arg;
    long v;
    while (longs_recv(s->in, &v, MAG_FOREVER) == 0)
        if (v % s->arg != 0)
            T_EQ(longs_send(s->out, v, MAG_FOREVER), 0);
    longs_close(s->out);
    longs_unref(s->in);
    longs_unref(s->out);
}

static void counts_up(void *arg)
{
    struct stage *s = arg;
    for (long i = 2; i <= s->arg; i++)
        T_EQ(longs_send(s->out, i, MAG_FOREVER), 0);
    longs_close(s->out);
    longs_unref(s->out);
}

static void sieve(void *arg)
{
    (void)arg;
    long limit = t_scale(1500) < 50 ? 50 : t_scale(1500), prime, primes = 0, expect = 0;
    for (long i = 2; i <= limit; i++) {
        bool is = true;
        for (long k = 2; k * k <= i; k++)
            is &= i % k != 0;
        expect += is;
    }
    longs *in = longs_new(0);
    T_EQ(MAG_GO(counts_up, struct stage, NULL, longs_ref(in), limit), 0);
    while (longs_recv(in, &prime, MAG_FOREVER) == 0) {
        for (long k = 2; k * k <= prime; k++)
            T_NE(prime % k, 0);
        primes++;
        longs *out = longs_new(0);
        T_EQ(MAG_GO(filters, struct stage, in, longs_ref(out), prime), 0); /* in is its own now */
        in = out;
    }
    T_EQ(primes, expect);
    longs_unref(in);
}

static void prime_sieve(void) { on_some(sieve); }

static void adds_one(void *arg)
{
    struct stage *s = arg;
    long v;
    while (longs_recv(s->in, &v, MAG_FOREVER) == 0)
        T_EQ(longs_send(s->out, v + 1, MAG_FOREVER), 0);
    longs_close(s->out);
    longs_unref(s->in);
    longs_unref(s->out);
}

static void pipeline(void *arg)
{
    (void)arg;
    enum { STAGES = 100 };
    long n = t_scale(2000), v;
    longs *in = longs_new(1), *out = in;
    T_EQ(MAG_GO(counts_up, struct stage, NULL, longs_ref(in), n), 0);
    for (int i = 0; i < STAGES; i++) {
        out = longs_new((size_t)i % 3);
        T_EQ(MAG_GO(adds_one, struct stage, in, longs_ref(out), 0), 0);
        in = out;
    }
    for (long i = 2; i <= n; i++) {
        T_EQ(longs_recv(out, &v, MAG_FOREVER), 0);
        T_EQ(v, i + STAGES);
    }
    T_EQ(longs_recv(out, &v, MAG_FOREVER), -EPIPE);
    longs_unref(out);
}

static void pipeline_of_100(void) { on_some(pipeline); }

static void sends_its_number(void *arg)
{
    struct stage *s = arg;
    T_EQ(longs_send(s->out, s->arg, MAG_FOREVER), 0);
}

static void fan_in(void *arg)
{
    (void)arg;
    long n = T_TSAN ? 1000 : t_scale(10000), sum = 0, v;
    longs *c = longs_new(0);
    for (long i = 0; i < n; i++)
        T_EQ(MAG_GO(sends_its_number, struct stage, NULL, c, i), 0);
    for (long i = 0; i < n; i++) {
        T_EQ(longs_recv(c, &v, MAG_FOREVER), 0);
        sum += v;
    }
    T_EQ(sum, n * (n - 1) / 2);
    T_EQ(longs_recv(c, &v, MAG_TRY), -ETIMEDOUT);
    longs_unref(c);
}

static void fan_in_of_10000(void) { on_some(fan_in); }

int main(int argc, char **argv)
{
    t_init(argc, argv);
    T_RUN(every_capacity);
    T_RUN(who_blocks_is_woken_by_the_other_side);
    T_RUN(close_wakes_all);
    T_RUN(first_come_first_served);
    T_RUN(each_exactly_once_and_in_order);
    T_RUN(elements_of_any_size);
    T_RUN(a_null_element_drops_the_value);
    T_RUN(a_null_channel_blocks);
    T_RUN(sizes_that_overflow);
    T_RUN(the_last_unref_with_a_waiter_aborts);
    T_RUN(either_side_may_be_the_last);
    T_RUN(a_value_meets_a_deadline);
    T_RUN(a_value_arrives_whole);
    T_RUN(channels_outlive_runs);
    T_RUN(typed_channels);
    T_RUN(prime_sieve);
    T_RUN(pipeline_of_100);
    T_RUN(fan_in_of_10000);
    return t_done();
}
