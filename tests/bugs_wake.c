/* SPDX-License-Identifier: MIT */
/* bugs_wake.c: wake-ups that others lost, each under its name: a goroutine is runnable, a P is idle, and nobody comes.
 *
 * In a whole runtime sysmon would come to the rescue some milliseconds later and hide it. Here it is stopped: one lost wake-up
 * and the test stands still. The search and the idle bits are compiled into this file, so that their threads loiter wherever
 * they could be interrupted: what takes nanoseconds, and would be hit once in an hour, takes a microsecond.
 */
#include "test.h"

#include "os/hostile.h"
#undef hostile_point
static void loiter(void);
#define hostile_point() loiter()
#include "core/idle.c"
#define mag__idle_put(idle, i, searching) (loiter(), mag__idle_put(idle, i, searching)) /* whoever has found nothing */
#include "sched/find.c"
#undef mag__idle_put

#include <pthread.h>
#include <sched.h>

static void loiter(void)
{
    static __thread uint64_t random;
    if (random == 0)
        random = t_state.seed ^ (uintptr_t)&random;
    uint32_t x = t_random_r(&random);
    if (x % 4 == 0)
        for (x = (x >> 8) % 64; x > 0; x--)
            cpu_relax();
}

static int64_t patience(void) { return t_now() + 15 * MAG_S * t_state.slow; }

static void set(int *flag) { __atomic_store_n(flag, 1, __ATOMIC_RELEASE); }
static int get(const int *flag) { return __atomic_load_n(flag, __ATOMIC_ACQUIRE); }
static void sets(void *flag) { set(flag); }
static void done(void *wg) { mag_wg_done(wg); }

static void spin_ns(int64_t ns)
{
    for (int64_t until = t_now() + ns; t_now() < until;)
        ;
}

/* Waits in user code, the P stays where it is. */
static void spin_until(const int *flag, const char *what)
{
    int64_t end = patience();
    for (int i = 0; !get(flag); i++)
        if (i % 1000 == 999) {
            if (t_now() > end)
                T_FAIL("lost: %s", what);
            sched_yield();
        }
}

/* fn runs in this thread, beside a runtime that nobody looks after. */
static void unattended(int procs, void (*fn)(void))
{
    T_EQ(mag_start(&(mag_config){.procs = procs, .slice = -1}), 0);
    at_32_store_rlx(&mag__rt.state, RT_STOPPING); /* what it ends at */
    mag__sysmon_stop();
    at_32_store_rel(&mag__rt.state, RT_RUNNING);
    fn();
    T_EQ(mag__sysmon_start(), 0);
    T_EQ(mag_stop(MAG_FOREVER), 0);
}

static void to_the_end(mag_fn fn)
{
    mag_wg wg = {0};
    mag_wg_add(&wg, 1);
    T_EQ(mag_go(fn, &wg), 0);
    T_EQ(mag_wg_wait(&wg, mag_in(60 * MAG_S * t_state.slow)), 0);
}

/* So many spawns push the goroutine before them out of runnext, of which alone nobody is told, into the ring. */
#ifdef MAG_HOSTILE
enum { LAST = 20, ROUNDS = 1000 }; /* not each becomes runnext there */
#else
enum { LAST = 1, ROUNDS = 6000 };
#endif

/* ---- go_55160 ----
 * Who went to sleep looked at every queue once more but the global one: what came there at that moment stayed there. */

static void comes_from_outside(void)
{
    uint64_t random = t_state.seed;
    for (long i = 0; i < t_scale(ROUNDS); i++) {
        int ran = 0;
        T_EQ(mag_go(sets, &ran), 0);
        spin_until(&ran, "a goroutine in the global queue");
        spin_ns(t_random_r(&random) % 30000); /* while those who found nothing go to sleep */
    }
}

static void go_55160_the_global_queue_counts(void)
{
    for (int procs = 1; procs <= 3; procs++)
        unattended(procs, comes_from_outside);
}

/* ---- julia_36699 ----
 * The one put a task into its queue and saw nobody asleep, the other one saw no task and fell asleep. */

static void fills_its_ring(void *wg)
{
    uint64_t random = t_state.seed;
    for (long i = 0; i < t_scale(ROUNDS); i++) {
        int first = 0;
        mag_wg last = {0};
        mag_wg_add(&last, LAST);
        T_EQ(mag_go(sets, &first), 0);
        for (int k = 0; k < LAST; k++)
            T_EQ(mag_go(done, &last), 0);
        spin_until(&first, "a goroutine in the ring of a P whose owner computes");
        while (mag_wg_wait(&last, MAG_TRY) != 0)
            mag_yield();
        spin_ns(t_random_r(&random) % 30000);
    }
    mag_wg_done(wg);
}

static void rings(void) { to_the_end(fills_its_ring); }

static void julia_36699_asleep_beside_a_task(void)
{
    for (int procs = 2; procs <= 4; procs++)
        unattended(procs, rings);
}

/* ---- go_45867 ----
 * Only who had searched looked again after it had let go of its P. Who had not relied on the others, they on him, and one P of
 * several stayed idle beside a full queue. All Ps at once or never. */

static struct {
    mag_wg wg;
    int n, there;
} step;

static void meets_the_others(void *arg)
{
    (void)arg;
    int64_t end = patience();
    __atomic_add_fetch(&step.there, 1, __ATOMIC_RELEASE);
    for (int i = 0; get(&step.there) < step.n; i++)
        if (i % 1000 == 999) {
            if (t_now() > end)
                T_FAIL("%d of %d Ps are at work", get(&step.there), step.n);
            sched_yield();
        }
    mag_wg_done(&step.wg);
}

static void meet(void *wg)
{
    uint64_t random = t_state.seed;
    for (long i = 0; i < t_scale(1500); i++) {
        step.there = 0;
        step.n = mag_procs();
        mag_wg_add(&step.wg, step.n);
        for (int k = 0; k < step.n; k++)
            T_EQ(mag_go(meets_the_others, NULL), 0);
        int burst = LAST + (int)(t_random_r(&random) % 20);
        mag_wg few = {0};
        mag_wg_add(&few, burst);
        for (int k = 0; k < LAST; k++)
            T_EQ(mag_go(done, &few), 0);
        T_EQ(mag_wg_wait(&step.wg, MAG_FOREVER), 0);
        for (int k = LAST; k < burst; k++)
            T_EQ(mag_go(done, &few), 0);
        T_EQ(mag_wg_wait(&few, MAG_FOREVER), 0);
        if (i % 8 == 0)
            spin_ns(t_random_r(&random) % 50000);
    }
    mag_wg_done(wg);
}

static void meetings(void) { to_the_end(meet); }

static void go_45867_work_conservation(void)
{
    for (int procs = 2; procs <= 4; procs++)
        unattended(procs, meetings);
}

/* ---- neither here nor there ----
 * A P that was not counted as searching took several goroutines out of the global queue. Before it had put them into its ring another
 * one gave up, saw them in neither, and nobody told it of them. And a searcher gave up, saw that two had come after all, took the
 * first and told nobody of the second: who had published it had counted on the search. */

static void from_outside(void)
{
    uint64_t random = t_state.seed;
    int64_t end = mag_in(60 * MAG_S * t_state.slow);
    for (long i = 0; i < t_scale(ROUNDS / 2); i++) {
        mag_wg few = {0};
        step.there = 0;
        step.n = mag_procs();
        mag_wg_add(&step.wg, step.n);
        mag_wg_add(&few, step.n);
        for (int k = 0; k < step.n; k++)
            T_EQ(mag_go(done, &few), 0); /* whoever has run these looks into the queue */
        spin_ns(t_random_r(&random) % 3000);
        for (int k = 0; k < step.n; k++)
            T_EQ(mag_go(meets_the_others, NULL), 0);
        T_EQ(mag_wg_wait(&step.wg, end), 0);
        T_EQ(mag_wg_wait(&few, end), 0);
    }
}

static void moved_from_queue_to_queue(void)
{
    for (int procs = 2; procs <= 4; procs++)
        unattended(procs, from_outside);
}

/* ---- passed over ----
 * A runnext has had its turns and the ring gets one: nobody was told of the goroutine that now waits in runnext, who searched has
 * passed by already, and who comes from the ring computes for long. */

static int chain_ended;

static void chain(void *arg)
{
    uintptr_t left = (uintptr_t)arg;
    if (left == 0)
        set(&chain_ended);
    else
        T_EQ(mag_go(chain, (void *)(left - 1)), 0);
}

static void computes_until_the_chain_ends(void *wg)
{
    spin_until(&chain_ended, "a runnext behind its turns");
    mag_wg_done(wg);
}

static void chain_beside(void *wg)
{
    for (long i = 0; i < t_scale(3000); i++) {
        mag_wg computed = {0};
        mag_wg_add(&computed, 1);
        chain_ended = 0;
        T_EQ(mag_go(computes_until_the_chain_ends, &computed), 0);
        T_EQ(mag_go(chain, (void *)(uintptr_t)8), 0);
        T_EQ(mag_wg_wait(&computed, MAG_FOREVER), 0);
        spin_ns(i % 30 * 1000); /* the helper is asleep again, or about to be */
    }
    mag_wg_done(wg);
}

static void chains(void) { to_the_end(chain_beside); }

static void a_runnext_passed_over_is_told(void)
{
#ifdef MAG_HOSTILE
    T_SKIP("the search passes Ps by at random there, and a runnext that it overlooks is sysmon's");
#endif
    for (int procs = 2; procs <= 4; procs++)
        unattended(procs, chains);
}

int main(int argc, char **argv)
{
    t_init(argc, argv);
    T_RUN(go_55160_the_global_queue_counts);
    T_RUN(julia_36699_asleep_beside_a_task);
    T_RUN(go_45867_work_conservation);
    T_RUN(moved_from_queue_to_queue);
    T_RUN(a_runnext_passed_over_is_told);
    return t_done();
}
