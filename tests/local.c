/* SPDX-License-Identifier: MIT */
/* local.c: goroutine-local values: one's own wherever one runs, destroyed once at the end. */
#include "test.h"

#include <magpie.h>
#include <pthread.h>
#include <sys/syscall.h>

static void add(long *n) { __atomic_add_fetch(n, 1, __ATOMIC_RELAXED); }
static long read_count(const long *n) { return __atomic_load_n(n, __ATOMIC_RELAXED); }
static void reset(long *n) { __atomic_store_n(n, 0, __ATOMIC_RELAXED); }
static void wait_for(mag_wg *wg) { T_EQ(mag_wg_wait(wg, MAG_FOREVER), 0); }
static int tid(void) { return (int)syscall(SYS_gettid); }

static void on(int procs, mag_fn fn, void *arg) { T_EQ(mag_run_with(&(mag_config){.procs = procs}, fn, arg), 0); }

/* Runs fn(arg) as a goroutine and waits for its very end, destructors and children included. */
static void runs_to_its_end(mag_fn fn, void *arg)
{
    mag_stats before, now;
    mag_stats_read(&before, NULL, 0);
    T_EQ(mag_go(fn, arg), 0);
    while (mag_stats_read(&now, NULL, 0), now.goroutines > before.goroutines)
        mag_yield();
}

/* ---- values ---- */

enum { KEYS = 50 };
static mag_local keys[KEYS];

static void sets_and_gets(void *arg)
{
    (void)arg;
    static int a, b;
    T_EQ(mag_local_get(&keys[0]), NULL);
    T_EQ(mag_local_set(&keys[0], &a), 0);
    T_EQ(mag_local_get(&keys[0]), &a);
    T_EQ(mag_local_get(&keys[1]), NULL);
    T_EQ(mag_local_set(&keys[1], &b), 0);
    T_EQ(mag_local_get(&keys[0]), &a);
    T_EQ(mag_local_get(&keys[1]), &b);
    T_EQ(mag_local_set(&keys[0], &b), 0);
    T_EQ(mag_local_get(&keys[0]), &b);
    T_EQ(mag_local_set(&keys[0], NULL), 0);
    T_EQ(mag_local_get(&keys[0]), NULL);
    T_EQ(mag_local_get(&keys[1]), &b);
    for (int i = 0; i < KEYS; i++)
        T_EQ(mag_local_set(&keys[i], &keys[KEYS - 1 - i]), 0);
    for (int i = 0; i < KEYS; i++)
        T_EQ(mag_local_get(&keys[i]), &keys[KEYS - 1 - i]);
}

static void a_value_for_each_key(void)
{
    on(1, sets_and_gets, NULL);
    on(2, sets_and_gets, NULL); /* another run: another goroutine */
}

static void *in_a_thread(void *arg)
{
    static int x;
    T_EQ(mag_local_get(&keys[0]), NULL);
    T_EQ(mag_local_set(&keys[0], &x), -EPERM);
    T_EQ(mag_local_get(&keys[0]), NULL);
    return arg;
}

static void beside_a_thread(void *arg)
{
    pthread_t t;
    T_EQ(mag_local_set(&keys[0], &t), 0);
    T_EQ(mag_local_set(NULL, &t), -EINVAL);
    T_EQ(pthread_create(&t, NULL, in_a_thread, arg), 0);
    T_EQ(pthread_join(t, NULL), 0);
    T_EQ(mag_local_get(&keys[0]), &t);
}

static void outside_a_goroutine_there_is_none(void)
{
    in_a_thread(NULL);
    on(1, beside_a_thread, NULL);
    in_a_thread(NULL);
}

/* ---- one's own ---- */

static struct {
    mag_wg wg;
    long moved;
} walk;

/* Its values go with it from thread to thread, and nobody else's come in between. */
static void walks(void *arg)
{
    uint64_t random = (uintptr_t)arg;
    int n = 1 + (int)(t_random_r(&random) % KEYS), thread = tid();
    for (int i = 0; i < n; i++)
        T_EQ(mag_local_set(&keys[i], (char *)arg + i), 0);
    for (int r = 0; r < 50; r++) {
        mag_yield();
        for (int i = 0; i < KEYS; i++)
            T_EQ(mag_local_get(&keys[i]), i < n ? (char *)arg + i : NULL);
        if (tid() != thread)
            add(&walk.moved);
        thread = tid();
    }
    mag_wg_done(&walk.wg);
}

static void many_walk(void *arg)
{
    (void)arg;
    int n = (int)t_scale(400);
    mag_wg_add(&walk.wg, n);
    for (uintptr_t i = 1; i <= (uintptr_t)n; i++)
        T_EQ(mag_go(walks, (void *)(i << 8)), 0);
    wait_for(&walk.wg);
}

static void values_move_with_their_goroutine(void)
{
    walk.moved = 0;
    for (int i = 0; i < 100 && walk.moved == 0; i++)
        on(2 + i % 3, many_walk, NULL);
    T_GT(walk.moved, 0); /* otherwise nothing was shown */
}

static void knows_nothing(void *arg)
{
    for (int i = 0; i < KEYS; i++)
        T_EQ(mag_local_get(&keys[i]), NULL);
    for (uintptr_t i = 0; i < (uintptr_t)arg % KEYS; i++)
        T_EQ(mag_local_set(&keys[i], &keys[i]), 0);
    mag_wg_done(&walk.wg);
}

static void one_after_the_other(void *arg)
{
    (void)arg;
    for (long i = 0; i < t_scale(5000); i++) {
        mag_wg_add(&walk.wg, 1);
        T_EQ(mag_go(knows_nothing, (void *)(uintptr_t)i), 0);
        if (i % 100 == 99)
            wait_for(&walk.wg);
    }
    wait_for(&walk.wg);
}

static void a_new_goroutine_has_none(void)
{
    on(1, one_after_the_other, NULL);
    on(2, one_after_the_other, NULL);
}

/* ---- the end ---- */

static long destroyed[KEYS];

static void counts(void *value) { add(value); }

static mag_local counted[KEYS] = {
    {.destroy = counts}, {.destroy = counts}, {.destroy = counts},
    {.destroy = NULL},   {.destroy = counts}, {.destroy = counts},
};

static void leaves_values(void *arg)
{
    T_EQ(mag_local_set(&counted[0], &destroyed[0]), 0);
    T_EQ(mag_local_set(&counted[1], &destroyed[9]), 0);
    T_EQ(mag_local_set(&counted[1], &destroyed[1]), 0); /* what it replaces is the user's */
    T_EQ(mag_local_set(&counted[2], &destroyed[2]), 0);
    T_EQ(mag_local_set(&counted[2], NULL), 0);
    T_EQ(mag_local_set(&counted[3], &destroyed[3]), 0); /* no destructor */
    T_EQ(mag_local_set(&counted[4], &destroyed[4]), 0);
    T_EQ(mag_local_set(&counted[5], &destroyed[4]), 0); /* two values that are equal are two */
    mag_yield();
    if (arg != NULL)
        mag_exit();
}

static void end_both_ways(void *arg)
{
    (void)arg;
    for (int way = 0; way < 2; way++) {
        for (int i = 0; i < KEYS; i++)
            reset(&destroyed[i]);
        runs_to_its_end(leaves_values, way ? &way : NULL);
        static const long want[KEYS] = {1, 1, 0, 0, 2};
        for (int i = 0; i < KEYS; i++)
            T_EQ(read_count(&destroyed[i]), want[i]);
    }
}

static void each_value_is_destroyed_once(void)
{
    on(1, end_both_ways, NULL);
    on(2, end_both_ways, NULL);
    for (int way = 0; way < 2; way++) { /* main is a goroutine like any other, and over before the run is */
        memset(destroyed, 0, sizeof destroyed);
        on(1 + way, leaves_values, way ? &way : NULL);
        T_EQ(destroyed[0], 1);
        T_EQ(destroyed[4], 2);
    }
}

static long many_destroyed;
static void destroys(void *value)
{
    free(value);
    add(&many_destroyed);
}

static mag_local heap[2] = {{.destroy = destroys}, {.destroy = destroys}};

static void takes_memory(void *arg)
{
    T_EQ(mag_local_set(&heap[0], malloc(10)), 0);
    mag_yield();
    T_EQ(mag_local_set(&heap[1], malloc(10)), 0);
    if ((uintptr_t)arg % 2)
        mag_exit();
}

static void many_take_memory(void *arg)
{
    (void)arg;
    long n = t_scale(10000);
    mag_stats s;
    reset(&many_destroyed);
    for (long i = 0; i < n; i++) {
        T_EQ(mag_go(takes_memory, (void *)(uintptr_t)i), 0);
        if (i % 500 == 0)
            mag_yield();
    }
    while (mag_stats_read(&s, NULL, 0), s.finished < (uint64_t)n)
        mag_yield();
    T_EQ(read_count(&many_destroyed), 2 * n);
}

static void ten_thousand_ends(void) { on(3, many_take_memory, NULL); }

/* ---- what a destructor may do ---- */

static struct {
    long id, calls, children;
    mag_wg wg;
} user;

static void child(void *arg)
{
    (void)arg;
    add(&user.children);
    mag_wg_done(&user.wg);
}

static mag_local lively, other;

static void does_everything(void *value)
{
    add(&user.calls);
    T_EQ(value, &user);
    T_EQ(mag_id(), read_count(&user.id)); /* the goroutine itself runs it */
    T_EQ(mag_local_get(&lively), NULL);
    T_EQ(mag_local_get(&other), &user.wg); /* still there: it comes later, or has no destructor */
    mag_wg_add(&user.wg, 2);
    T_EQ(mag_go(child, NULL), 0);
    T_EQ(mag_go(child, NULL), 0);
    mag_yield();
    wait_for(&user.wg);
    mag_lock_thread();
    mag_yield();
    mag_unlock_thread();
}

static mag_local lively = {.destroy = does_everything};

static void lives(void *arg)
{
    __atomic_store_n(&user.id, (long)mag_id(), __ATOMIC_RELAXED);
    T_EQ(mag_local_set(&lively, &user), 0);
    T_EQ(mag_local_set(&other, &user.wg), 0);
    if (arg != NULL)
        mag_exit();
}

static void lives_twice(void *arg)
{
    (void)arg;
    for (int way = 0; way < 2; way++) {
        reset(&user.calls);
        reset(&user.children);
        runs_to_its_end(lives, way ? &way : NULL);
        T_EQ(read_count(&user.calls), 1);
        T_EQ(read_count(&user.children), 2);
    }
}

static void a_destructor_is_user_code(void)
{
    on(1, lives_twice, NULL);
    on(2, lives_twice, NULL);
}

static long first_calls, second_calls, endless_calls;
static mag_local first, second, endless;

static void sets_the_second(void *value)
{
    add(&first_calls);
    T_EQ(mag_local_set(&second, value), 0);
}
static void counts_second(void *value)
{
    (void)value;
    add(&second_calls);
}
static void sets_itself(void *value)
{
    add(&endless_calls);
    T_EQ(mag_local_set(&endless, value), 0);
}

static mag_local first = {.destroy = sets_the_second}, second = {.destroy = counts_second},
                 endless = {.destroy = sets_itself};

static void sets_again(void *arg)
{
    T_EQ(mag_local_set(&second, NULL), 0); /* the second is passed by before the first is destroyed */
    T_EQ(mag_local_set(&first, arg), 0);
}

static void sets_for_ever(void *arg) { T_EQ(mag_local_set(&endless, arg), 0); }

static void again(void *arg)
{
    (void)arg;
    runs_to_its_end(sets_again, &user);
    T_EQ(read_count(&first_calls), 1);
    T_EQ(read_count(&second_calls), 1);
    runs_to_its_end(sets_for_ever, &user);
    T_GT(read_count(&endless_calls), 1);
    T_LE(read_count(&endless_calls), 16); /* then it is given up */
}

static void a_destructor_may_set_again(void) { on(1, again, NULL); }

static mag_local grows[KEYS];

static void sets_many(void *value)
{
    for (int i = 1; i < KEYS; i++) /* the array of values moves under who walks through it */
        T_EQ(mag_local_set(&grows[i], value), 0);
    add(&first_calls);
}

static void sets_one_that_grows(void *arg)
{
    grows[0].destroy = sets_many;
    for (int i = 1; i < KEYS; i++)
        grows[i].destroy = counts_second;
    T_EQ(mag_local_set(&grows[0], arg), 0);
}

static void growing(void *arg)
{
    (void)arg;
    reset(&first_calls);
    reset(&second_calls);
    runs_to_its_end(sets_one_that_grows, &user);
    T_EQ(read_count(&first_calls), 1);
    T_EQ(read_count(&second_calls), KEYS - 1);
}

static void a_destructor_may_add_many(void) { on(1, growing, NULL); }

static long late_calls;
static void exits(void *value)
{
    (void)value;
    add(&late_calls);
    mag_exit();
}
static mag_local exiting[3] = {{.destroy = exits}, {.destroy = exits}, {.destroy = exits}};

static void ends_in_its_end(void *arg)
{
    for (int i = 0; i < 3; i++)
        T_EQ(mag_local_set(&exiting[i], arg), 0);
}

static void exit_in_exit(void *arg)
{
    (void)arg;
    reset(&late_calls);
    runs_to_its_end(ends_in_its_end, &user);
    T_EQ(read_count(&late_calls), 3);
}

static void a_destructor_may_exit(void) { on(1, exit_in_exit, NULL); }

/* ---- discarded ---- */

static mag_wg never;

static void keeps_and_waits(void *arg)
{
    for (int i = 0; i < 20; i++)
        T_EQ(mag_local_set(&counted[i], arg), 0);
    mag_wg_done(&walk.wg);
    wait_for(&never);
}

static void keeps_and_yields(void *arg)
{
    T_EQ(mag_local_set(&counted[0], arg), 0);
    mag_wg_done(&walk.wg);
    for (;;)
        mag_yield();
}

static void leaves_them(void *arg)
{
    int n = (int)t_scale(500);
    mag_wg_add(&walk.wg, 2 * n);
    for (int i = 0; i < n; i++) {
        T_EQ(mag_go(keeps_and_waits, arg), 0);
        T_EQ(mag_go(keeps_and_yields, arg), 0);
    }
    wait_for(&walk.wg);
}

/* The values stay the user's; what magpie kept them in goes (the address sanitizer's build would tell). */
static void discarded_goroutines_destroy_nothing(void)
{
    never = (mag_wg){0};
    mag_wg_add(&never, 1);
    memset(destroyed, 0, sizeof destroyed);
    for (int procs = 1; procs <= 3; procs++)
        on(procs, leaves_them, &destroyed[0]);
    T_EQ(destroyed[0], 0);
}

int main(int argc, char **argv)
{
    t_init(argc, argv);
    T_RUN(a_value_for_each_key);
    T_RUN(outside_a_goroutine_there_is_none);
    T_RUN(values_move_with_their_goroutine);
    T_RUN(a_new_goroutine_has_none);
    T_RUN(each_value_is_destroyed_once);
    T_RUN(ten_thousand_ends);
    T_RUN(a_destructor_is_user_code);
    T_RUN(a_destructor_may_set_again);
    T_RUN(a_destructor_may_add_many);
    T_RUN(a_destructor_may_exit);
    T_RUN(discarded_goroutines_destroy_nothing);
    return t_done();
}
