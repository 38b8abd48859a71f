/* SPDX-License-Identifier: MIT */
/* shutdown.c: the runtime ends while anything may be under way: goroutines wait, compute without a P, own their threads, are in
 * foreign code and come back around the end of patience, or in the next run; threads outside wait, wake, cancel and change procs. */
#include "test.h"

#include <magpie.h>
#include <pthread.h>

static void set(int *flag) { __atomic_store_n(flag, 1, __ATOMIC_RELEASE); }
static int get(const int *flag) { return __atomic_load_n(flag, __ATOMIC_ACQUIRE); }
static void nothing(void *arg) { (void)arg; }

struct kept {
    struct kept *next;
    mag_timer *timer;
};

/* What one run uses. Goroutines are discarded with locks held and units taken: each run has its own, and all stay to the end. */
struct world {
    struct world *before;
    mag_chan *full, *none;
    struct kept *timers;
    mag_mutex mutex;
    mag_rwmutex rwmutex;
    mag_cond cond;
    mag_once once;
    mag_sem sem;
    mag_wg gate;
    mag_group group;
    int64_t end;      /* about when patience ends, 0: not known yet */
    uint64_t random;
};

static struct world *world;
static mag_local key = {.destroy = nothing};

static struct world *new_world(void)
{
    struct world *w = calloc(1, sizeof *w);
    T_TRUE(w);
    w->full = mag_chan_new(sizeof(int), 2);
    w->none = mag_chan_new(sizeof(int), 0);
    T_TRUE(w->full && w->none);
    mag_sem_init(&w->sem, 1);
    mag_wg_add(&w->gate, 1);
    w->random = t_random();
    w->before = world;
    __atomic_store_n(&world, w, __ATOMIC_RELEASE);
    return w;
}

static void free_worlds(void)
{
    for (struct world *w = world, *before; w != NULL; w = before) {
        before = w->before;
        for (struct kept *k = w->timers, *next; k != NULL; k = next) {
            next = k->next;
            mag_timer_unref(k->timer);
            free(k);
        }
        mag_chan_unref(w->full);
        mag_chan_unref(w->none);
        free(w);
    }
    world = NULL;
}

#define PATIENCE (300 * MAG_US * t_state.slow)

static mag_time soon(uint32_t x) { return x % 8 == 0 ? MAG_FOREVER : x % 8 == 1 ? MAG_TRY : mag_in(x % 200 * MAG_US); }

/* ---- what a goroutine or a thread may do; many of these never return ---- */

static void spin_ns(int64_t ns)
{
    for (int64_t until = t_now() + ns; t_now() < until;)
        ;
}

static void short_life(void *arg);

static void uses_channels(struct world *w, uint32_t x, mag_time deadline)
{
    int v = 1;
    mag_case cases[] = {MAG_RECV(w->full, &v), MAG_SEND(w->none, &v), MAG_RECV(w->none, &v)};
    switch (x % 5) {
    case 0:
        mag_chan_send(w->full, &v, deadline);
        break;
    case 1:
        mag_chan_recv(w->full, &v, deadline);
        break;
    case 2:
        mag_chan_send(w->none, &v, deadline);
        break;
    case 3:
        mag_chan_recv(w->none, &v, deadline);
        break;
    case 4:
        mag_select(cases, 3, deadline);
        break;
    }
}

static void locks(struct world *w, uint32_t x, mag_time deadline)
{
    switch (x % 5) {
    case 0:
        mag_mutex_lock(&w->mutex);
        if (x % 2 == 0)
            mag_cond_wait(&w->cond, &w->mutex, deadline);
        mag_mutex_unlock(&w->mutex);
        break;
    case 1:
        mag_rwmutex_rlock(&w->rwmutex);
        mag_rwmutex_runlock(&w->rwmutex);
        break;
    case 2:
        mag_rwmutex_lock(&w->rwmutex);
        mag_rwmutex_unlock(&w->rwmutex);
        break;
    case 3:
        if (mag_sem_wait(&w->sem, deadline) == 0)
            mag_sem_post(&w->sem, 1);
        break;
    case 4:
        mag_wg_wait(&w->gate, deadline);
        break;
    }
}

static void wakes(struct world *w, uint32_t x)
{
    switch (x % 8) {
    case 0:
        mag_cond_signal(&w->cond);
        break;
    case 1:
        mag_cond_broadcast(&w->cond);
        break;
    case 2:
        if (x % 64 == 2)
            mag_group_cancel(&w->group);
        break;
    case 3:
        mag_group_set_deadline(&w->group, mag_in(x % 300 * MAG_US));
        break;
    case 4:
        mag_group_go(&w->group, short_life, w);
        break;
    case 5:
        mag_go(short_life, w);
        break;
    case 6:
        mag_set_procs(1 + (int)(x / 8 % 4));
        break;
    case 7:
        mag_stats_read(NULL, NULL, 0);
        break;
    }
}

static void ticks(struct world *w, uint32_t x, mag_time deadline)
{
    mag_timer *t = mag_timer_new(mag_in(x % 100 * MAG_US), x % 3 * 50 * MAG_US);
    if (t == NULL)
        return; /* no runtime */
    if (x % 2 == 0) { /* it may not come back from there */
        struct kept *k = malloc(sizeof *k);
        T_TRUE(k);
        k->timer = mag_timer_ref(t);
        k->next = __atomic_load_n(&w->timers, __ATOMIC_RELAXED);
        while (!__atomic_compare_exchange_n(&w->timers, &k->next, k, 0, __ATOMIC_ACQ_REL, __ATOMIC_RELAXED))
            ;
        mag_timer_unref(t);
        mag_time at, most = mag_in(MAG_MS);
        mag_chan_recv(mag_timer_chan(t), &at, deadline < most ? deadline : most);
        mag_timer_stop(t);
    } else {
        mag_timer_stop(t);
        mag_timer_unref(t);
    }
}

static void is_a_goroutine(uint32_t x, mag_time deadline)
{
    switch (x % 6) {
    case 0:
        mag_yield();
        break;
    case 1:
        mag_checkpoint();
        break;
    case 2:
        mag_lock_thread();
        mag_yield();
        mag_unlock_thread();
        break;
    case 3:
        mag_lock_thread(); /* and never again unlocked */
        break;
    case 4:
        mag_local_set(&key, &key);
        break;
    case 5:
        mag_sleep_until(deadline == MAG_FOREVER ? mag_in(MAG_S) : deadline);
        break;
    }
}

static void does_something(struct world *w, uint64_t *random, bool goroutine)
{
    uint32_t what = t_random_r(random), x = t_random_r(random);
    mag_time deadline = soon(t_random_r(random));
    if (!goroutine && deadline == MAG_FOREVER && what % 8 < 4)
        deadline = mag_in(200 * MAG_US); /* a thread outside is only told once the runtime stops, and there may be none */
    switch (what % 8) {
    case 0:
    case 1:
        uses_channels(w, x, deadline);
        break;
    case 2:
        if (goroutine) /* the mutex of a discarded goroutine stays held */
            locks(w, x, deadline);
        break;
    case 3:
        ticks(w, x, deadline);
        break;
    case 4:
        if (goroutine)
            is_a_goroutine(x, deadline);
        break;
    case 5:
        if (goroutine && x % 4 == 0)
            mag_group_wait(&w->group, deadline);
        break;
    default:
        wakes(w, x);
    }
}

static uint64_t next_random(struct world *w) { return __atomic_add_fetch(&w->random, 0x9e3779b9, __ATOMIC_RELAXED); }

static void short_life(void *arg)
{
    struct world *w = arg;
    uint64_t random = next_random(w);
    for (int i = 0; i < 3; i++)
        if (t_random_r(&random) % 8 == 0)
            spin_ns(20 * MAG_US);
        else if (t_random_r(&random) % 4 != 0) /* rarely a spawn: each must have fewer than one child */
            does_something(w, &random, true);
}

/* In foreign code until patience is about to end, or a little longer; and then it calls. */
static void long_life(void *arg)
{
    struct world *w = arg;
    uint64_t random = next_random(w);
    if (t_random_r(&random) % 4 == 0)
        mag_lock_thread();
    if (t_random_r(&random) % 2 == 0)
        does_something(w, &random, true);
    int64_t jitter = (t_random_r(&random) % 600 * MAG_US - 100 * MAG_US) * t_state.slow, end;
    bool computes = t_random_r(&random) % 4 == 0;
    do {
        if (!computes)
            usleep(20);
        end = __atomic_load_n(&w->end, __ATOMIC_RELAXED);
    } while (end == 0 || t_now() < end + jitter);
    for (int i = 0; i < 6; i++)
        does_something(w, &random, true);
}

/* ---- the runs ---- */

enum { SHORT = 12, LONG = 5, OUTSIDE = 2 };

static void fill(struct world *w)
{
    for (int i = 0; i < SHORT; i++)
        T_EQ(mag_go(short_life, w), 0);
    for (int i = 0; i < LONG; i++)
        mag_go_with(&(mag_go_config){.group = i % 2 == 0 ? &w->group : NULL}, long_life, w); /* it may be cancelled already */
}

static void fills_and_returns(void *arg)
{
    struct world *w = arg;
    fill(w);
    uint64_t random = next_random(w);
    for (uint32_t i = t_random_r(&random) % 8; i > 0; i--)
        mag_yield();
    if (t_random_r(&random) % 2 == 0)
        mag_sleep(t_random_r(&random) % 500 * MAG_US);
    __atomic_store_n(&w->end, t_now() + PATIENCE, __ATOMIC_RELAXED);
}

static int stop;

static void *acts_from_outside(void *arg)
{
    uint64_t random = (uintptr_t)arg;
    while (!get(&stop)) {
        struct world *w = __atomic_load_n(&world, __ATOMIC_ACQUIRE);
        if (w != NULL)
            does_something(w, &random, false);
        if (t_random_r(&random) % 16 == 0)
            usleep(100);
    }
    return NULL;
}

static long run_once(const mag_config *cfg, bool by_start)
{
    struct world *w = new_world();
    int r;
    if (!by_start) {
        r = mag_run_with(cfg, fills_and_returns, w);
    } else {
        T_EQ(mag_start(cfg), 0);
        fill(w);
        usleep(t_random() % 500);
        __atomic_store_n(&w->end, t_now() + PATIENCE, __ATOMIC_RELAXED);
        r = mag_stop(mag_in(PATIENCE));
    }
    if (r != 0 && r != -ETIMEDOUT)
        T_FAIL("%d", r);
    return r != 0;
}

static void it_ends_whatever_is_under_way(void)
{
    pthread_t t[OUTSIDE];
    stop = 0;
    T_EQ(mag_run(nothing, NULL), 0); /* a sanitizer starts a thread of its own with the first */
    long threads = t_threads(), late = 0, n = 20 + t_scale(600);
    for (uintptr_t i = 0; i < OUTSIDE; i++)
        T_EQ(pthread_create(&t[i], NULL, acts_from_outside, (void *)(t_state.seed + i)), 0);
    int null = open("/dev/null", O_WRONLY), told = dup(STDERR_FILENO);
    dup2(null, STDERR_FILENO); /* each late one is named there */
    for (long i = 0; i < n; i++)
        late += run_once(&(mag_config){.procs = 1 + (int)i % 3, .slice = 200 * MAG_US, .exit_wait = PATIENCE}, i % 4 == 3);
    dup2(told, STDERR_FILENO);
    close(null);
    close(told);
    set(&stop);
    for (int i = 0; i < OUTSIDE; i++)
        T_EQ(pthread_join(t[i], NULL), 0);
    T_EVENTUALLY(t_threads() <= threads, 10000);
    T_EQ(mag_run(nothing, NULL), 0);
    free_worlds();
    printf("%ld of %ld late  ", late, n);
}

/* ---- one by one ---- */

static mag_chan *quiet[2];

/* Its deadline makes it runnable, and it never runs again: it still hangs in the channels' queues. */
static void selects(void *arg)
{
    int v;
    mag_case cases[] = {MAG_RECV(quiet[0], &v), MAG_RECV(quiet[1], &v)};
    set(arg);
    mag_select(cases, 2, mag_in(200 * MAG_MS));
}

static void receives(void *arg)
{
    int v;
    set(arg);
    mag_chan_recv(quiet[0], &v, mag_in(200 * MAG_MS));
}

/* Keeps the only P until the runtime stops. */
static void stays(void *arg)
{
    set(arg);
    while (mag_procs() != 0)
        ;
    t_sleep_ms(20); /* and until its P has been taken */
}

static long runnable(void)
{
    mag_stats s;
    mag_stats_read(&s, NULL, 0);
    return (long)s.runnable;
}

static void who_was_woken_and_never_ran_leaves_no_trace(void)
{
    static const mag_fn waits[] = {selects, receives};
    for (int i = 0; i < 2; i++) {
        int waiting = 0, staying = 0;
        quiet[0] = mag_chan_new(sizeof(int), 0);
        quiet[1] = mag_chan_new(sizeof(int), 0);
        T_EQ(mag_start(&(mag_config){.procs = 1, .slice = -1}), 0);
        T_EQ(mag_go(waits[i], &waiting), 0);
        T_EVENTUALLY(get(&waiting), 10000);
        T_EQ(mag_go(stays, &staying), 0);
        T_EVENTUALLY(get(&staying), 10000);
        T_EVENTUALLY(runnable() == 1, 10000); /* by sysmon: nobody else runs timers */
        T_EQ(mag_stop(MAG_FOREVER), 0);
        mag_chan_unref(quiet[0]); /* with somebody waiting on it that aborts */
        mag_chan_unref(quiet[1]);
    }
}

/* Several set the deadline of one group at once: one timer, in one heap. */

static mag_group moved;

static void *moves_the_deadline(void *arg)
{
    uint64_t random = (uintptr_t)arg;
    for (long i = 0; i < 20 + t_scale(30000); i++) {
        uint32_t x = t_random_r(&random);
        mag_group_set_deadline(&moved, x % 8 == 0 ? MAG_FOREVER : mag_in(MAG_S + x % MAG_S));
    }
    return NULL;
}

static void moves(void *arg) { moves_the_deadline(arg); }

static void all_move_it(void *arg)
{
    (void)arg;
    pthread_t t[2];
    mag_group movers = {0};
    for (uintptr_t i = 0; i < 2; i++) {
        T_EQ(pthread_create(&t[i], NULL, moves_the_deadline, (void *)(t_state.seed + i)), 0);
        T_EQ(mag_group_go(&movers, moves, (void *)(t_state.seed + 9 + i)), 0);
    }
    T_EQ(mag_group_wait(&movers, MAG_FOREVER), 0);
    for (int i = 0; i < 2; i++)
        T_EQ(pthread_join(t[i], NULL), 0);
    mag_group_set_deadline(&moved, mag_in(MAG_MS));
    T_EQ(mag_group_wait(&moved, MAG_FOREVER), 0); /* no member: the timer goes, fired or not */
}

static void one_deadline_set_by_many(void)
{
    for (int i = 0; i < 5; i++) {
        memset(&moved, 0, sizeof moved);
        T_EQ(mag_run_with(&(mag_config){.procs = 3}, all_move_it, NULL), 0);
    }
}

int main(int argc, char **argv)
{
    t_init(argc, argv);
    T_RUN(who_was_woken_and_never_ran_leaves_no_trace);
    T_RUN(one_deadline_set_by_many);
    T_RUN(it_ends_whatever_is_under_way);
    return t_done();
}
