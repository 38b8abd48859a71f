/* SPDX-License-Identifier: MIT */
/* bugs_procs.c: what went wrong when the number of Ps or of threads changed at the wrong moment, each under its name. */
#include "test.h"

#include "sched/netpoll.h"

#include <pthread.h>

static void set(int *flag) { __atomic_store_n(flag, 1, __ATOMIC_RELEASE); }
static int get(const int *flag) { return __atomic_load_n(flag, __ATOMIC_ACQUIRE); }

/* ---- mag_run found the only P in the hands of a mag_set_procs, and took that for "no thread can be had" ---- */

static int stop, held;

/* What mag_set_procs does with an idle P, only longer. */
static void *holds_the_p(void *arg)
{
    while (!get(&stop)) {
        if (mag__foreign_enter() != 0)
            continue;
        if (mag__idle_take(&mag__rt.idle, 0)) {
            mag__os_nap(300000);
            mag__idle_put(&mag__rt.idle, 0, false);
            __atomic_add_fetch(&held, 1, __ATOMIC_RELAXED);
        }
        mag__foreign_leave();
        mag__os_nap(100000);
    }
    return arg;
}

static void sets(void *flag) { set(flag); }

static void a_run_begins_while_its_p_is_held(void)
{
    pthread_t t;
    stop = held = 0;
    T_EQ(pthread_create(&t, NULL, holds_the_p, NULL), 0);
    for (long i = 0; i < 10 + t_scale(300); i++) {
        int ran = 0;
        T_EQ(mag_run_with(&(mag_config){.procs = 1}, sets, &ran), 0);
        T_EQ(ran, 1);
    }
    set(&stop);
    T_EQ(pthread_join(t, NULL), 0);
    if (t_state.slow == 1)
        T_GT(held, 0); /* in all those runs it met one at least */
}

/* ---- what the machine allows was applied after somebody had asked for a number ---- */

static int followed;

static uint32_t is_asked_meanwhile(void)
{
    if (!get(&followed)) {
        T_GE(mag_set_procs(5), 1);
        set(&followed);
    }
    return 2;
}

static void asks_while_sysmon_looks(void *arg)
{
    (void)arg;
    at_32_store_rlx(&mag__rt.procs_fixed, 0);
    T_EVENTUALLY(get(&followed), 10000);
    for (int i = 0; i < 20; i++) { /* sysmon returns from there, and does what it does */
        T_EQ(mag_procs(), 5);
        t_sleep_ms(1);
    }
}

static void a_number_asked_for_wins(void)
{
    uint32_t (*follow)(void) = mag__rt.follow;
    mag__rt.follow = is_asked_meanwhile;
    followed = 0;
    T_EQ(mag_run_with(&(mag_config){.procs = 3}, asks_while_sysmon_looks, NULL), 0);
    mag__rt.follow = follow;
}

/* ---- a mag_set_procs that came behind shutdown made Ps that nobody had told to stop ---- */

static void changes_too_late(void *arg)
{
    (void)arg;
    at_32_store_rlx(&mag__rt.state, RT_STOPPING);
    int r = mag__p_set_procs(6, false);
    at_32_store_rel(&mag__rt.state, RT_RUNNING);
    T_EQ(r, -ESHUTDOWN);
    T_EQ(mag_procs(), 2);
}

static void none_is_made_while_it_stops(void)
{
    T_EQ(mag_run_with(&(mag_config){.procs = 2, .slice = -1}, changes_too_late, NULL), 0);
}

/* ---- a thread that was one too many kept the time, and left: no timer fired any more ---- */

static mag_wg blocked, over;

static void blocks(void *arg)
{
    (void)arg;
    t_sleep_ms(200);
    mag_wg_done(&blocked);
}

static void sleeps_beyond(void *arg)
{
    (void)arg;
    mag_wg_add(&blocked, 20);
    for (int i = 0; i < 20; i++)
        T_EQ(mag_go(blocks, NULL), 0);
    mag_wg_wait(&blocked, MAG_FOREVER);
    T_EQ(mag_sleep(3 * MAG_S), 0); /* sysmon is fast asleep after the first, those too many leave after the second */
    mag_wg_done(&over);
}

static void the_keeper_of_the_time_left(void)
{
    int64_t usual = mag__m_idle_exit;
    mag__m_idle_exit = 2 * MAG_S;
    mag_wg_add(&over, 1);
    T_EQ(mag_start(&(mag_config){.procs = 2}), 0);
    T_EQ(mag_go(sleeps_beyond, NULL), 0);
    T_EQ(mag_wg_wait(&over, mag_in(20 * MAG_S * t_state.slow)), 0);
    mag_stats s;
    T_GE(mag_stats_read(&s, NULL, 0), 0);
    T_LE(s.threads, 6); /* there were twenty; who keeps the time may stay beside one for each P */
    T_EQ(mag_stop(MAG_FOREVER), 0);
    mag__m_idle_exit = usual;
}

/* What runs by timers alone never comes to runnext by the way that counts a rescue down: each batch woke a searcher, for ever. */
static void a_rescue_is_forgotten(void)
{
    static struct p p;
    at_32_store_rlx(&p.rescued, 3 | RESCUE_ASK);
    for (int i = 0; i < 3; i++) {
        T_TRUE(at_32_load_rlx(&p.rescued) != 0);
        mag__wake_batch(&p, 1);
    }
    T_EQ(at_32_load_rlx(&p.rescued) & ~RESCUE_ASK, 0);
}

/* ---- who had given its P up saw work that it would not have taken with the P, and took it back for nothing, again and again ---- */

enum { SOME = 8 };

/* busy of the Ps are, the first of them has work. The bits are set as they are: no time passes between two looks. */
static bool leaves_it(struct p *victim, uint32_t busy, enum brisk_for who)
{
    at_64_store_rlx(&mag__rt.idle.bits[0], (UINT64_C(1) << SOME) - (UINT64_C(1) << busy));
    at_64_store_rlx(&victim->io_at, (uint64_t)mag__os_now());
    return mag__netpoll_is_brisk(victim, who);
}

static void with_and_without_a_p_it_sees_the_same(void)
{
    static struct p ps[SOME];
    struct rt *rt = &mag__rt;
    long both[2] = {0, 0};
    at_32_store_rlx(&rt->procs, SOME);
    mag__idle_init(&rt->idle, SOME);
    for (uint32_t i = 0; i < SOME; i++)
        rt->ps[i] = &ps[i];
    for (uint32_t busy = 2; busy <= SOME; busy++)
        for (uint32_t free = 0; free <= SOME + 1; free++)
            for (uint32_t slice = 2000; slice <= 32000; slice *= 2)
                for (uint32_t length = 1; length <= RUNQ_SIZE; length *= 2) {
                    at_32_store_rlx(&rt->cores.free, free);
                    at_32_store_rlx(&ps[0].io_slice, slice);
                    at_32_store_rlx(&ps[0].runq.tail, at_32_load_rlx(&ps[0].runq.head) + length);
                    bool with = leaves_it(&ps[0], busy, BRISK_BUSY), without = leaves_it(&ps[0], busy - 1, BRISK_IDLE);
                    T_EQ(with, without);
                    both[with]++;
                }
    T_GT(both[1], 100);
    if (RUNQ_SIZE >= 256) /* in the hostile build a ring never has much */
        T_GT(both[0], 100);
    memset(rt->ps, 0, sizeof rt->ps[0] * SOME);
    at_32_store_rlx(&rt->procs, 0);
    at_32_store_rlx(&rt->cores.free, 0);
}

int main(int argc, char **argv)
{
    t_init(argc, argv);
    T_RUN(a_run_begins_while_its_p_is_held);
    T_RUN(a_number_asked_for_wins);
    T_RUN(none_is_made_while_it_stops);
    T_RUN(the_keeper_of_the_time_left);
    T_RUN(a_rescue_is_forgotten);
    T_RUN(with_and_without_a_p_it_sees_the_same);
    return t_done();
}
