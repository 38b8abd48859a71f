/* SPDX-License-Identifier: MIT */
/* parker.c: a thread's bed, with real threads and the real futex. */
#include "test.h"

#include "core/parker.h"
#include "os/os.h"
#include <pthread.h>
#include <sched.h>
#include <sys/prctl.h>

static void token_before_the_park_is_not_lost(void)
{
    struct parker k = {0};
    T_FALSE(mag__parker_unpark(&k)); /* nobody to wake */
    T_EQ(mag__parker_park(&k, OS_FOREVER), 0);
    T_EQ(mag__parker_park(&k, 0), -ETIMEDOUT); /* it was the only one */
}

static void two_tokens_are_one(void)
{
    struct parker k = {0};
    mag__parker_unpark(&k);
    T_FALSE(mag__parker_unpark(&k));
    T_EQ(mag__parker_park(&k, OS_FOREVER), 0);
    T_EQ(mag__parker_park(&k, mag__os_now() + 1000000), -ETIMEDOUT);
    mag__parker_unpark(&k); /* a timeout leaves the bed as it was */
    T_EQ(mag__parker_park(&k, 0), 0);
}

static void deadline_is_kept(void)
{
    struct parker k = {0};
    int64_t start = mag__os_now();
    T_EQ(mag__parker_park(&k, start - 1), -ETIMEDOUT);
    T_EQ(mag__parker_park(&k, -1), -ETIMEDOUT);
    T_EQ(mag__parker_park(&k, start + 20000000), -ETIMEDOUT);
    T_GE(mag__os_now() - start, 20000000); /* never early */
}

/* ---- with threads ---- */

static struct parker ping, pong;
/* Plain, handed over with the token. Nobody takes its address: with LTO, gcc then keeps it in a register across any
 * function of ours in which it sees nothing but atomics and leaf calls. */
static long ball;
static long rounds;

static void *returner(void *arg)
{
    (void)arg;
    for (long i = 0; i < rounds; i++) {
        T_EQ(mag__parker_park(&ping, OS_FOREVER), 0);
        T_EQ(ball, 2 * i + 1);
        ball++;
        mag__parker_unpark(&pong);
    }
    return NULL;
}

static void two_threads_take_turns(void)
{
    pthread_t thread;
    rounds = t_scale(20000);
    ball = 0;
    T_EQ(pthread_create(&thread, NULL, returner, NULL), 0);
    for (long i = 0; i < rounds; i++) {
        T_EQ(ball, 2 * i);
        ball++;
        mag__parker_unpark(&ping);
        T_EQ(mag__parker_park(&pong, OS_FOREVER), 0);
    }
    pthread_join(thread, NULL);
    T_EQ(ball, 2 * rounds);
}

static struct parker bed;
static a64 sent, seen; /* the sender waits until a token was used before it leaves another */
static a32 over;

static void *sender(void *arg)
{
    uint64_t random = t_state.seed;
    for (const int64_t *end = arg; t_now() < *end;) {
        if (at_64_load_rlx(&seen) != at_64_load_rlx(&sent)) {
            sched_yield();
            continue;
        }
        for (uint32_t n = t_random_r(&random) % 4000; n > 0; n--)
            compiler_barrier();
        at_64_bump_owner(&sent, 1);
        mag__parker_unpark(&bed);
    }
    at_32_store_rel(&over, 1);
    return NULL;
}

/* Tokens that come while the deadline passes are taken now or by the next park: none is lost, none is doubled. */
static void token_and_deadline_race(void)
{
    pthread_t thread;
    uint64_t random = t_state.seed + 1, tokens = 0;
    int64_t end = t_now() + INT64_C(500000000);
    at_64_store_rlx(&sent, 0);
    at_64_store_rlx(&seen, 0);
    at_32_store_rlx(&over, 0);
    prctl(PR_SET_TIMERSLACK, 1UL); /* otherwise the token always comes first */
    T_EQ(pthread_create(&thread, NULL, sender, &end), 0);
    while (at_32_load_acq(&over) == 0 || at_64_load_rlx(&sent) != tokens) {
        T_LT(t_now(), end + INT64_C(10000000000) * t_state.slow);
        int r = mag__parker_park(&bed, mag__os_now() + t_random_r(&random) % 4000 - 2000);
        if (r == -ETIMEDOUT)
            continue;
        T_EQ(r, 0);
        T_EQ(at_64_load_rlx(&sent), ++tokens);
        at_64_bump_owner(&seen, 1);
    }
    pthread_join(thread, NULL);
    T_EQ(mag__parker_park(&bed, 0), -ETIMEDOUT);
    T_GT(tokens, 0);
}

int main(int argc, char **argv)
{
    t_init(argc, argv);
    T_RUN(token_before_the_park_is_not_lost);
    T_RUN(two_tokens_are_one);
    T_RUN(deadline_is_kept);
    T_RUN(two_threads_take_turns);
    T_RUN(token_and_deadline_race);
    return t_done();
}
