/* SPDX-License-Identifier: MIT */
/* group.c: groups: members end together, a cancelled one gets -ECANCELED from whatever blocks and from nothing else, and
 * either something happened or it was cancelled, never both and never neither. */
#include "test.h"

#include <magpie.h>
#include <pthread.h>
#include <sys/mman.h>

static void on(int procs, mag_fn fn) { T_EQ(mag_run_with(&(mag_config){.procs = procs}, fn, NULL), 0); }

static void on_some(mag_fn fn)
{
    on(1, fn);
    on(2, fn);
    on(4, fn);
}

static void add(long *n, long by) { __atomic_add_fetch(n, by, __ATOMIC_RELAXED); }
static long get(const long *n) { return __atomic_load_n(n, __ATOMIC_ACQUIRE); }

static bool all_zero(const mag_group *g)
{
    static const mag_group zero;
    return memcmp(g, &zero, sizeof zero) == 0;
}

static void nothing(void *arg) { (void)arg; }
static void counts(void *arg) { add(arg, 1); }
static void sleeps_for_good(void *arg)
{
    T_EQ(mag_sleep(3600 * MAG_S), -ECANCELED);
    if (arg != NULL)
        add(arg, 1);
}

/* ---- members and their end ---- */

static void adds_its_number(void *arg)
{
    struct { long *sum, by; } *a = arg;
    mag_yield();
    add(a->sum, a->by);
}

static void go_and_wait(void *arg)
{
    (void)arg;
    mag_group g = {0};
    T_EQ(mag_group_wait(&g, MAG_FOREVER), 0); /* nobody */
    T_EQ(mag_group_wait(&g, MAG_TRY), 0);
    T_EQ(mag_group_end(&g), 0);
    T_TRUE(all_zero(&g));
    for (int round = 0; round < 3; round++) { /* reused without an end between */
        long n = 0, sum = 0;
        for (long i = 0; i < 100; i++) {
            T_EQ(mag_group_go(&g, counts, &n), 0);
            struct { long *sum, by; } a = {&sum, i};
            T_EQ(mag_group_go_copy(&g, adds_its_number, &a, sizeof a), 0);
            mag_go_config cfg = {.group = &g, .name = "with"};
            T_EQ(mag_go_with(&cfg, counts, &n), 0);
        }
        T_EQ(mag_group_wait(&g, MAG_FOREVER), 0);
        T_EQ(get(&n), 200);
        T_EQ(get(&sum), 99 * 100 / 2);
    }
    struct args { long *sum, by; };
    long sum = 0;
    T_EQ(MAG_GROUP_GO(&g, adds_its_number, struct args, &sum, 41), 0);
    T_EQ(mag_group_wait(&g, mag_in(100 * MAG_S)), 0);
    T_EQ(sum, 41);
    T_EQ(mag_group_go(&g, NULL, NULL), -EINVAL);
    T_EQ(mag_group_end(&g), 0);
    T_TRUE(all_zero(&g));
}

static void wait_waits_for_all(void) { on_some(go_and_wait); }

static void times_out(void *arg)
{
    (void)arg;
    mag_group g = {0};
    long n = 0;
    T_EQ(mag_group_go(&g, sleeps_for_good, &n), 0);
    T_EQ(mag_group_wait(&g, MAG_TRY), -ETIMEDOUT);
    mag_time deadline = mag_in(3 * MAG_MS);
    T_EQ(mag_group_wait(&g, deadline), -ETIMEDOUT);
    T_GE(mag_now(), deadline);
    T_EQ(get(&n), 0); /* the group goes on */
    T_EQ(mag_group_go(&g, nothing, NULL), 0);
    T_EQ(mag_group_end(&g), 0); /* cancels, but that is no failure: somebody said end */
    T_EQ(get(&n), 1);
    T_TRUE(all_zero(&g));
}

static void wait_may_time_out(void) { on_some(times_out); }

/* ---- every call that blocks ---- */

static struct {
    mag_chan *empty, *full, *value;
    mag_sem none, some;
    mag_wg busy, idle;
    mag_mutex mutex;
    mag_cond cond;
    long blocked, cancelled;
} calls;

enum call { RECV, SEND, SELECT, SELECT_NONE, RECV_NULL, SLEEP, SEM, COND, WG, GROUP, TIMED_RECV, TIMED_SEM, TIMED_SELECT, CALLS };

static int block_in(enum call what, mag_time deadline)
{
    long v = 0;
    mag_case cases[] = {MAG_RECV(calls.empty, &v), MAG_SEND(calls.full, &v), MAG_RECV(NULL, NULL)};
    mag_group inner = {0};
    int r;
    mag_time timed = deadline == MAG_FOREVER ? mag_in(3600 * MAG_S) : deadline;
    switch (what) {
    case RECV: return mag_chan_recv(calls.empty, &v, deadline);
    case SEND: return mag_chan_send(calls.full, &v, deadline);
    case SELECT: return mag_select(cases, 3, deadline);
    case SELECT_NONE: return mag_select(NULL, 0, deadline);
    case RECV_NULL: return mag_chan_recv(NULL, &v, deadline);
    case SLEEP: return mag_sleep_until(timed);
    case SEM: return mag_sem_wait(&calls.none, deadline);
    case COND:
        mag_mutex_lock(&calls.mutex);
        r = mag_cond_wait(&calls.cond, &calls.mutex, deadline);
        T_EQ(mag_mutex_trylock(&calls.mutex), -EBUSY); /* it holds the mutex again */
        mag_mutex_unlock(&calls.mutex);
        return r;
    case WG: return mag_wg_wait(&calls.busy, deadline);
    case GROUP:
        r = mag_group_go(&inner, sleeps_for_good, NULL);
        T_EQ(r, 0);
        r = mag_group_wait(&inner, deadline);
        T_EQ(mag_group_wait(&inner, MAG_TRY), -ECANCELED); /* nobody left, and still cancelled */
        T_EQ(mag_group_end(&inner), -ECANCELED);
        return r;
    case TIMED_RECV: return mag_chan_recv(calls.empty, &v, timed);
    case TIMED_SEM: return mag_sem_wait(&calls.none, timed);
    case TIMED_SELECT: return mag_select(cases, 3, timed);
    case CALLS: break;
    }
    return 0;
}

/* What could go on at once: a cancelled goroutine may not even do that. */
static int go_on_in(enum call what)
{
    long v = 0;
    mag_case cases[] = {MAG_RECV(calls.value, &v)};
    mag_group empty = {0};
    switch (what) {
    case RECV: return mag_chan_recv(calls.value, &v, MAG_TRY);
    case SEND: return mag_chan_send(calls.empty, &v, MAG_TRY);
    case SELECT: return mag_select(cases, 1, MAG_TRY);
    case SLEEP: return mag_sleep(0);
    case SEM: return mag_sem_wait(&calls.some, MAG_TRY);
    case WG: return mag_wg_wait(&calls.idle, MAG_TRY);
    case GROUP: return mag_group_wait(&empty, MAG_TRY);
    default: return -ECANCELED;
    }
}

static void blocks_in(void *arg)
{
    enum call what = (enum call)(intptr_t)arg;
    add(&calls.blocked, 1);
    T_EQ(block_in(what, MAG_FOREVER), -ECANCELED);
    T_EQ(mag_cancelled(), -ECANCELED);
    for (int i = 0; i < CALLS; i++) { /* and from then on every other one, at once */
        T_EQ(block_in((enum call)i, MAG_FOREVER), -ECANCELED);
        T_EQ(block_in((enum call)i, MAG_TRY), -ECANCELED);
        T_EQ(go_on_in((enum call)i), -ECANCELED);
    }
    add(&calls.cancelled, 1);
}

static void begin_calls(void)
{
    long v = 1;
    calls.empty = mag_chan_new(sizeof v, 1);
    calls.full = mag_chan_new(sizeof v, 1);
    calls.value = mag_chan_new(sizeof v, 1);
    T_EQ(mag_chan_send(calls.full, &v, MAG_TRY), 0);
    T_EQ(mag_chan_send(calls.value, &v, MAG_TRY), 0);
    mag_sem_init(&calls.none, 0);
    mag_sem_init(&calls.some, 1);
    mag_wg_add(&calls.busy, 1);
    calls.blocked = calls.cancelled = 0;
}

static void end_calls(void)
{
    T_EQ(mag_chan_len(calls.empty), 0); /* nothing happened */
    T_EQ(mag_chan_len(calls.full), 1);
    T_EQ(mag_chan_len(calls.value), 1);
    T_EQ(mag_sem_wait(&calls.none, MAG_TRY), -ETIMEDOUT);
    T_EQ(mag_sem_wait(&calls.some, MAG_TRY), 0);
    T_EQ(mag_mutex_trylock(&calls.mutex), 0);
    mag_mutex_unlock(&calls.mutex);
    mag_wg_done(&calls.busy);
    mag_chan_unref(calls.empty); /* nobody is left in its queues */
    mag_chan_unref(calls.full);
    mag_chan_unref(calls.value);
}

enum when { AFTER_THEY_BLOCK, BEFORE_THEY_START, SOMETIME, WHENS };

static void cancels_calls(void *arg)
{
    (void)arg;
    enum { EACH = 3 };
    for (int when = 0; when < WHENS; when++)
        for (long round = 0; round < (when == SOMETIME ? t_scale(40) : 2); round++) {
            mag_group g = {0};
            begin_calls();
            for (intptr_t i = 0; i < CALLS * EACH; i++)
                T_EQ(mag_group_go(&g, blocks_in, (void *)(i % CALLS)), 0);
            if (when == AFTER_THEY_BLOCK) {
                while (get(&calls.blocked) < CALLS * EACH)
                    mag_yield();
                mag_sleep(2 * MAG_MS);
                T_EQ(get(&calls.cancelled), 0);
            } else if (when == SOMETIME) {
                mag_sleep((int64_t)(t_random() % 100) * MAG_US);
            }
            mag_time start = mag_now();
            mag_group_cancel(&g);
            T_EQ(mag_group_go(&g, nothing, NULL), -ECANCELED);
            T_EQ(mag_group_wait(&g, MAG_FOREVER), -ECANCELED);
            T_LT(mag_now() - start, 20 * MAG_S); /* the calls would have taken an hour */
            T_EQ(get(&calls.cancelled), CALLS * EACH);
            T_EQ(mag_group_end(&g), -ECANCELED);
            T_TRUE(all_zero(&g));
            end_calls();
        }
}

static void every_call_that_blocks_is_cancelled(void) { on_some(cancels_calls); }

/* ---- and those that are not ---- */

static struct {
    mag_mutex mutex;
    mag_rwmutex rw;
    mag_once once;
    mag_chan *c;
    long waiting, done, ran;
} spared;

static void initialises(void *arg)
{
    (void)arg;
    mag_shield_begin();
    long v;
    T_EQ(mag_chan_recv(spared.c, &v, MAG_FOREVER), -EPIPE);
    mag_shield_end();
    add(&spared.ran, 1);
}

static void locks(void *arg)
{
    add(&spared.waiting, 1);
    switch ((int)(intptr_t)arg) {
    case 0:
        mag_mutex_lock(&spared.mutex);
        mag_mutex_unlock(&spared.mutex);
        break;
    case 1:
        mag_rwmutex_rlock(&spared.rw);
        mag_rwmutex_runlock(&spared.rw);
        break;
    case 2:
        mag_rwmutex_lock(&spared.rw);
        mag_rwmutex_unlock(&spared.rw);
        break;
    case 3:
        mag_once_do(&spared.once, initialises, NULL);
        T_EQ(get(&spared.ran), 1);
        break;
    }
    T_EQ(mag_cancelled(), -ECANCELED);
    mag_yield();
    mag_sem s = {0};
    mag_wg wg = {0};
    mag_sem_post(&s, 1);
    mag_wg_add(&wg, 1);
    mag_wg_done(&wg);
    mag_chan *c = mag_chan_new(1, 0);
    T_EQ(mag_chan_close(c), 0);
    mag_chan_unref(c);
    mag_group g = {0};
    T_EQ(mag_group_end(&g), 0);
    add(&spared.done, 1);
}

static void locks_are_not_cancelled(void *arg)
{
    (void)arg;
    enum { N = 12 };
    mag_group g = {0};
    spared.once = (mag_once){0};
    spared.waiting = spared.done = spared.ran = 0;
    spared.c = mag_chan_new(1, 0);
    mag_mutex_lock(&spared.mutex);
    mag_rwmutex_lock(&spared.rw);
    for (intptr_t i = 0; i < N; i++)
        T_EQ(mag_group_go(&g, locks, (void *)(i % 4)), 0);
    while (get(&spared.waiting) < N)
        mag_yield();
    mag_group_cancel(&g);
    T_EQ(mag_group_wait(&g, mag_in(5 * MAG_MS)), -ETIMEDOUT);
    T_EQ(get(&spared.done), 0);
    mag_mutex_unlock(&spared.mutex);
    mag_rwmutex_unlock(&spared.rw);
    T_EQ(mag_chan_close(spared.c), 0);
    T_EQ(mag_group_end(&g), -ECANCELED);
    T_EQ(spared.done, N);
    mag_chan_unref(spared.c);
}

static void locks_go_on(void) { on_some(locks_are_not_cancelled); }

/* ---- shields ---- */

static void shields(void *arg)
{
    long v = 0, *step = arg;
    T_EQ(mag_sleep(3600 * MAG_S), -ECANCELED);
    mag_shield_begin();
    T_EQ(mag_sleep(MAG_MS), 0);
    T_EQ(mag_cancelled(), -ECANCELED); /* shields ignored */
    mag_shield_begin();
    T_EQ(mag_chan_recv(calls.empty, &v, mag_in(MAG_MS)), -ETIMEDOUT);
    mag_shield_end();
    T_EQ(mag_sem_wait(&calls.none, mag_in(MAG_MS)), -ETIMEDOUT); /* they nest */
    mag_group inner = {0};
    T_EQ(mag_group_go(&inner, nothing, NULL), 0);
    T_EQ(mag_group_wait(&inner, MAG_FOREVER), 0);
    mag_shield_end();
    T_EQ(mag_sleep(MAG_MS), -ECANCELED);
    T_EQ(mag_chan_recv(calls.empty, &v, MAG_TRY), -ECANCELED);
    add(step, 1);
}

static void is_cancelled_behind_its_shield(void *arg)
{
    long v = 0, *step = arg;
    mag_shield_begin();
    add(step, 1);
    T_EQ(mag_chan_recv(calls.empty, &v, MAG_FOREVER), 0); /* the value, though it is cancelled while it waits */
    T_EQ(v, 77);
    mag_shield_end();
    T_EQ(mag_chan_recv(calls.empty, &v, MAG_FOREVER), -ECANCELED);
    add(step, 1);
}

static void shields_hold(void *arg)
{
    (void)arg;
    mag_group g = {0};
    long n = 0, v = 77;
    begin_calls();
    for (int i = 0; i < 10; i++)
        T_EQ(mag_group_go(&g, shields, &n), 0);
    mag_yield();
    mag_group_cancel(&g);
    T_EQ(mag_group_end(&g), -ECANCELED);
    T_EQ(n, 10);
    n = 0;
    T_EQ(mag_group_go(&g, is_cancelled_behind_its_shield, &n), 0);
    while (get(&n) < 1)
        mag_yield();
    mag_sleep(MAG_MS);
    mag_group_cancel(&g);
    T_EQ(mag_group_wait(&g, mag_in(3 * MAG_MS)), -ETIMEDOUT);
    T_EQ(mag_chan_send(calls.empty, &v, MAG_FOREVER), 0);
    T_EQ(mag_group_end(&g), -ECANCELED);
    T_EQ(n, 2);
    end_calls();
    mag_shield_begin(); /* no member: nothing to shield from */
    mag_shield_end();
    T_EQ(mag_cancelled(), 0);
}

static void shields_nest(void) { on_some(shields_hold); }

/* ---- failures ---- */

static void fails(void *arg)
{
    mag_sleep(MAG_MS);
    mag_fail((int)(intptr_t)arg);
    T_EQ(mag_cancelled(), 0); /* spared */
    T_EQ(mag_sleep(MAG_MS), 0);
    mag_fail(-ENOSPC); /* too late: the first one counts */
    T_EQ(mag_sleep(MAG_US), 0);
}

static void fails_when_cancelled(void *arg)
{
    T_EQ(mag_sleep(3600 * MAG_S), -ECANCELED);
    T_EQ(mag_cancelled(), -EIO); /* the cause */
    mag_fail(-ENODEV);
    add(arg, 1);
}

static void failures(void *arg)
{
    (void)arg;
    for (int i = 0; i < 10; i++) {
        mag_group g = {0};
        long n = 0;
        for (int k = 0; k < 10; k++)
            T_EQ(mag_group_go(&g, fails_when_cancelled, &n), 0);
        T_EQ(mag_group_go(&g, fails, (void *)(intptr_t)-EIO), 0);
        T_EQ(mag_group_wait(&g, MAG_FOREVER), -EIO);
        T_EQ(n, 10);
        mag_group_cancel(&g); /* not the first */
        T_EQ(mag_group_wait(&g, MAG_TRY), -EIO);
        T_EQ(mag_group_go(&g, nothing, NULL), -ECANCELED);
        T_EQ(mag_group_end(&g), -EIO);
        T_TRUE(all_zero(&g));
        T_EQ(mag_group_go(&g, nothing, NULL), 0); /* as new */
        T_EQ(mag_group_end(&g), 0);
        mag_group_cancel(&g);
        T_EQ(mag_group_end(&g), -ECANCELED);
    }
}

static void the_first_failure_wins(void) { on_some(failures); }

static void fails_outside(void *arg)
{
    (void)arg;
    mag_fail(-EIO);
}

static void runs_fails_outside(void *arg)
{
    (void)arg;
    mag_run(fails_outside, NULL);
}

static void ends_a_shield(void *arg)
{
    (void)arg;
    mag_shield_end();
}

static void in_a_group_ends_a_shield(void *arg)
{
    (void)arg;
    mag_group g = {0};
    mag_group_go(&g, ends_a_shield, NULL);
    mag_group_end(&g);
}

static void runs_ends_a_shield(void *arg)
{
    (void)arg;
    mag_run(in_a_group_ends_a_shield, NULL);
}

static void misuse_aborts(void)
{
    T_ABORTS(fails_outside, NULL, "mag_fail");
    T_ABORTS(runs_fails_outside, NULL, "mag_fail");
    T_ABORTS(ends_a_shield, NULL, "mag_shield_end");
    T_ABORTS(runs_ends_a_shield, NULL, "mag_shield_end");
}

/* ---- groups in groups ---- */

static long leaves, nodes;

static void node(void *arg)
{
    intptr_t depth = (intptr_t)arg;
    if (depth == 0) {
        T_EQ(mag_sleep(3600 * MAG_S), -ECANCELED);
        mag_shield_begin();
        mag_sleep((int64_t)(mag_id() % 500) * MAG_US); /* cleans up, for a while */
        mag_shield_end();
        add(&leaves, 1);
        return;
    }
    mag_group inner = {0}; /* on the stack: gone when this returns */
    for (int i = 0; i < 3; i++)
        T_EQ(mag_group_go(&inner, node, (void *)(depth - 1)), 0);
    T_EQ(mag_group_wait(&inner, depth % 2 ? MAG_FOREVER : mag_in(3600 * MAG_S)), -ECANCELED);
    memset(&inner, 0xff, sizeof inner); /* nobody touches it any more */
    add(&nodes, 1);
}

static void trees(void *arg)
{
    (void)arg;
    for (long i = 0; i < t_scale(30); i++) {
        mag_group g = {0};
        leaves = nodes = 0;
        T_EQ(mag_group_go(&g, node, (void *)4), 0);
        if (i % 3)
            mag_sleep((int64_t)(t_random() % 400) * MAG_US);
        mag_group_cancel(&g);
        T_EQ(mag_group_wait(&g, MAG_FOREVER), -ECANCELED);
        T_EQ(nodes, 1 + 3 + 9 + 27);
        T_EQ(leaves, 81);
    }
}

static void a_cancelled_wait_leaves_nobody_behind(void) { on_some(trees); }

/* ---- the deadline ---- */

static void deadlines(void *arg)
{
    (void)arg;
    long n = 0;
    mag_group g = {0};
    mag_time start = mag_now(), t = start + 10 * MAG_MS;
    for (int i = 0; i < 5; i++)
        T_EQ(mag_group_go(&g, sleeps_for_good, &n), 0);
    mag_group_set_deadline(&g, t);
    T_EQ(mag_group_wait(&g, MAG_FOREVER), -ETIMEDOUT);
    T_GE(mag_now(), t);
    T_LT(mag_now() - t, 10 * MAG_S);
    T_EQ(n, 5);
    T_EQ(mag_group_go(&g, nothing, NULL), -ECANCELED);
    T_EQ(mag_group_end(&g), -ETIMEDOUT);
    T_TRUE(all_zero(&g));

    T_EQ(mag_group_go(&g, sleeps_for_good, &n), 0); /* earlier, while it waits */
    mag_group_set_deadline(&g, mag_in(3600 * MAG_S));
    T_EQ(mag_group_wait(&g, mag_in(2 * MAG_MS)), -ETIMEDOUT);
    T_EQ(n, 5);
    mag_group_set_deadline(&g, mag_in(3 * MAG_MS));
    T_EQ(mag_group_wait(&g, MAG_FOREVER), -ETIMEDOUT);
    T_EQ(mag_group_end(&g), -ETIMEDOUT);

    n = 0;
    T_EQ(mag_group_go(&g, sleeps_for_good, &n), 0); /* later, and never */
    mag_group_set_deadline(&g, mag_in(200 * MAG_MS));
    mag_group_set_deadline(&g, mag_in(3600 * MAG_S));
    T_EQ(mag_group_wait(&g, mag_in(300 * MAG_MS)), -ETIMEDOUT);
    T_EQ(get(&n), 0);
    mag_group_set_deadline(&g, MAG_FOREVER);
    T_EQ(get(&n), 0);
    mag_group_set_deadline(&g, mag_in(-1)); /* past: at once */
    T_EQ(mag_group_wait(&g, MAG_FOREVER), -ETIMEDOUT);
    T_EQ(n, 1);
    T_EQ(mag_group_end(&g), -ETIMEDOUT);

    mag_group_set_deadline(&g, mag_in(5 * MAG_MS)); /* nobody is there when it passes */
    T_EQ(mag_group_go(&g, nothing, NULL), 0);
    T_EQ(mag_group_wait(&g, MAG_FOREVER), 0);
    T_EQ(mag_group_end(&g), 0);
    memset(&g, 0xff, sizeof g); /* no timer fires into it */
    mag_sleep(10 * MAG_MS);
    for (size_t i = 0; i < sizeof g; i++)
        T_EQ(((unsigned char *)&g)[i], 0xff);
}

static void deadlines_move(void) { on_some(deadlines); }

/* ---- who is a member ---- */

static struct {
    mag_chan *c;
    long plain;
} outside;

static void is_no_member(void *arg)
{
    long v;
    (void)arg;
    T_EQ(mag_cancelled(), 0);
    T_EQ(mag_chan_recv(outside.c, &v, MAG_FOREVER), 0);
    T_EQ(mag_cancelled(), 0);
    add(&outside.plain, 1);
}

static void starts_one(void *arg)
{
    (void)arg;
    T_EQ(mag_go(is_no_member, NULL), 0);
    T_EQ(mag_sleep(3600 * MAG_S), -ECANCELED);
}

static void members(void *arg)
{
    (void)arg;
    mag_group g = {0};
    outside.c = mag_chan_new(sizeof(long), 0);
    outside.plain = 0;
    T_EQ(mag_group_go(&g, starts_one, NULL), 0);
    mag_sleep(MAG_MS);
    mag_group_cancel(&g);
    T_EQ(mag_group_end(&g), -ECANCELED); /* does not wait for it */
    T_EQ(get(&outside.plain), 0);
    long v = 1;
    T_EQ(mag_chan_send(outside.c, &v, MAG_FOREVER), 0);
    while (get(&outside.plain) < 1)
        mag_yield();
    mag_chan_unref(outside.c);
}

static void a_plain_goroutine_is_no_member(void) { on_some(members); }

/* ---- threads ---- */

static void *uses_groups(void *arg)
{
    (void)arg;
    for (long i = 0; i < t_scale(100) + 5; i++) {
        mag_group g = {0};
        long n = 0;
        for (int k = 0; k < 5; k++)
            T_EQ(mag_group_go(&g, sleeps_for_good, &n), 0);
        if (i % 5 == 0) {
            T_EQ(mag_group_wait(&g, mag_in(MAG_MS)), -ETIMEDOUT);
        } else if (i % 5 == 1) {
            mag_group_set_deadline(&g, mag_in(MAG_MS));
            T_EQ(mag_group_wait(&g, MAG_FOREVER), -ETIMEDOUT);
        }
        if (i % 2)
            mag_group_cancel(&g);
        int r = mag_group_end(&g);
        T_EQ(r, i % 5 == 1 ? -ETIMEDOUT : i % 2 ? -ECANCELED : 0);
        T_EQ(n, 5);
    }
    T_EQ(mag_cancelled(), 0);
    return NULL;
}

static void from_threads(void *arg)
{
    (void)arg;
    pthread_t t[3];
    for (int i = 0; i < 3; i++)
        T_EQ(pthread_create(&t[i], NULL, uses_groups, NULL), 0);
    for (int i = 0; i < 3; i++)
        T_EQ(pthread_join(t[i], NULL), 0);
}

static void threads_have_groups_too(void) { on_some(from_threads); }

/* ---- a value and a cancellation meet ---- */

static struct {
    mag_chan *c, *d;
    mag_sem sem;
    long sent, received, sum_sent, sum_received, taken;
} meet;

static void sends_until_cancelled(void *arg)
{
    uint64_t random = t_state.seed + (uintptr_t)arg;
    for (;;) {
        long v = (long)(t_random_r(&random) & 0xffff);
        mag_case cases[] = {MAG_SEND(meet.c, &v), MAG_SEND(meet.d, &v)};
        int r = v % 2 ? mag_chan_send(meet.c, &v, MAG_FOREVER) : mag_select(cases, 2, v % 3 ? MAG_FOREVER : mag_in(5000));
        if (r == -ECANCELED)
            return;
        T_TRUE(r >= 0 || r == -ETIMEDOUT);
        if (r >= 0) {
            add(&meet.sent, 1);
            add(&meet.sum_sent, v);
        }
        if (v % 64 == 0)
            add(&meet.taken, -1), mag_sem_post(&meet.sem, 1);
    }
}

static void receives_until_cancelled(void *arg)
{
    uint64_t random = t_state.seed + (uintptr_t)arg;
    for (;;) {
        long v = -1, w = -1;
        uint32_t how = t_random_r(&random);
        mag_case cases[] = {MAG_RECV(meet.c, &v), MAG_RECV(meet.d, &w)};
        int r = how % 2 ? mag_chan_recv(meet.c, &v, how % 3 ? MAG_FOREVER : mag_in(5000)) : mag_select(cases, 2, MAG_FOREVER);
        if (r >= 0) {
            add(&meet.received, 1);
            add(&meet.sum_received, r == 1 ? w : v);
        } else {
            T_EQ(v, -1);
            T_EQ(w, -1);
        }
        if (r == -ECANCELED)
            return;
        if (how % 64 == 0 && mag_sem_wait(&meet.sem, how % 128 ? MAG_TRY : MAG_FOREVER) == 0)
            add(&meet.taken, 1);
    }
}

static void cancels_at_random(void *arg)
{
    (void)arg;
    for (long i = 0; i < t_scale(600); i++) {
        mag_group senders = {0}, receivers = {0};
        memset(&meet, 0, sizeof meet);
        meet.c = mag_chan_new(sizeof(long), (size_t)i % 2);
        meet.d = mag_chan_new(sizeof(long), 0);
        for (uintptr_t k = 0; k < 3; k++) {
            T_EQ(mag_group_go(&senders, sends_until_cancelled, (void *)(k + (uintptr_t)i * 16)), 0);
            T_EQ(mag_group_go(&receivers, receives_until_cancelled, (void *)(k + (uintptr_t)i * 16 + 8)), 0);
        }
        mag_sleep((int64_t)(t_random() % 300) * MAG_US);
        mag_group_cancel(i % 3 ? &senders : &receivers);
        if (i % 2)
            mag_yield();
        mag_group_cancel(i % 3 ? &receivers : &senders);
        T_EQ(mag_group_end(&senders), -ECANCELED);
        T_EQ(mag_group_end(&receivers), -ECANCELED);
        long v, left = 0;
        while (mag_chan_recv(meet.c, &v, MAG_TRY) == 0) {
            left++;
            meet.sum_received += v;
        }
        T_EQ(meet.sent, meet.received + left);
        T_EQ(meet.sum_sent, meet.sum_received);
        while (mag_sem_wait(&meet.sem, MAG_TRY) == 0)
            meet.taken++;
        T_EQ(meet.taken, 0);
        mag_chan_unref(meet.c);
        mag_chan_unref(meet.d);
    }
}

static void a_value_meets_a_cancellation(void) { on_some(cancels_at_random); }

/* ---- memory ---- */

static void cancels(void *arg) { mag_group_cancel(arg); }

/* The group's memory goes the moment its wait has returned, however many members were woken. */
static void unmaps(void *arg)
{
    (void)arg;
    long page = sysconf(_SC_PAGESIZE);
    for (long i = 0; i < t_scale(2000); i++) {
        static const int sizes[] = {1, 2, 63, 64, 65, 128};
        int n = sizes[i % 6];
        mag_group *g = mmap(NULL, (size_t)page, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
        T_TRUE(g != MAP_FAILED);
        for (int k = 0; k < n; k++)
            T_EQ(mag_group_go(g, sleeps_for_good, NULL), 0);
        if (i % 3)
            mag_sleep(50 * MAG_US);
        T_EQ(mag_go(cancels, g), 0);
        T_EQ(mag_group_wait(g, MAG_FOREVER), -ECANCELED);
        T_EQ(munmap(g, (size_t)page), 0);
    }
}

static void memory_may_go_at_once(void)
{
    on(2, unmaps);
    on(4, unmaps);
}

int main(int argc, char **argv)
{
    t_init(argc, argv);
    T_RUN(wait_waits_for_all);
    T_RUN(wait_may_time_out);
    T_RUN(every_call_that_blocks_is_cancelled);
    T_RUN(locks_go_on);
    T_RUN(shields_nest);
    T_RUN(the_first_failure_wins);
    T_RUN(misuse_aborts);
    T_RUN(a_cancelled_wait_leaves_nobody_behind);
    T_RUN(deadlines_move);
    T_RUN(a_plain_goroutine_is_no_member);
    T_RUN(threads_have_groups_too);
    T_RUN(a_value_meets_a_cancellation);
    T_RUN(memory_may_go_at_once);
    return t_done();
}
