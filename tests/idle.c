/* SPDX-License-Identifier: MIT */
/* idle.c: idle Ps and searching Ms, with real threads. Every interleaving of the protocol: tests/model/idle.c. */
#include "test.h"

#include "core/idle.h"
#include "core/parker.h"
#include "os/os.h"
#include <pthread.h>
#include <sched.h>

static struct idle idle;
static const unsigned sizes[] = {1, 2, 63, 64, 65, 127, 128, 129, 130, 1000, PROCS_MAX};

static void all_idle(unsigned procs)
{
    mag__idle_init(&idle, procs);
    T_FALSE(mag__idle_some(&idle));
    for (unsigned i = 0; i < procs; i++) {
        T_FALSE(mag__idle_is(&idle, i));
        mag__idle_put(&idle, i, false);
        T_TRUE(mag__idle_is(&idle, i));
        T_EQ(mag__idle_count(&idle), i + 1);
    }
    T_TRUE(mag__idle_some(&idle));
}

/* From every start, each idle P is found once, and the one at the start first. */
static void each_is_taken_once(void)
{
    for (size_t s = 0; s < sizeof sizes / sizeof *sizes; s++)
        for (unsigned start = 0; start < sizes[s]; start += 1 + sizes[s] / 130) {
            unsigned procs = sizes[s];
            bool taken[PROCS_MAX] = {0};
            all_idle(procs);
            for (unsigned n = 0; n < procs; n++) {
                int i = mag__idle_take_any(&idle, start);
                T_GE(i, 0);
                T_LT(i, procs);
                T_FALSE(taken[i]);
                T_TRUE(n > 0 || i == (int)start);
                taken[i] = true;
            }
            T_EQ(mag__idle_take_any(&idle, start), -1);
            T_FALSE(mag__idle_some(&idle));
        }
}

static void one_idle_is_found_from_anywhere(void)
{
    unsigned procs = 130;
    mag__idle_init(&idle, procs);
    for (unsigned i = 0; i < procs; i++)
        for (unsigned start = 0; start < procs; start++) {
            mag__idle_put(&idle, i, false);
            T_EQ(mag__idle_take_any(&idle, start), i);
        }
}

static void take_is_exact(void)
{
    all_idle(130);
    T_TRUE(mag__idle_take(&idle, 64));
    T_FALSE(mag__idle_take(&idle, 64));
    T_FALSE(mag__idle_is(&idle, 64));
    T_TRUE(mag__idle_is(&idle, 63) && mag__idle_is(&idle, 65));
    T_EQ(mag__idle_count(&idle), 129);
}

static void a_grown_set_is_searched_to_its_end(void)
{
    mag__idle_init(&idle, 1);
    mag__idle_grow(&idle, 130);
    mag__idle_put(&idle, 129, false);
    T_TRUE(mag__idle_some(&idle));
    T_EQ(mag__idle_take_any(&idle, 0), 129);
    mag__idle_grow(&idle, 2); /* never shrinks */
    mag__idle_put(&idle, 129, false);
    T_EQ(mag__idle_take_any(&idle, 1), 129);
}

static void one_searches(void)
{
    mag__idle_init(&idle, 2);
    T_FALSE(mag__idle_wake_wanted(&idle)); /* nobody to wake */
    T_TRUE(mag__idle_search_begin(&idle));
    T_FALSE(mag__idle_search_begin(&idle));
    mag__idle_put(&idle, 0, false);
    T_FALSE(mag__idle_wake_wanted(&idle)); /* the searcher will find it */
    mag__idle_put(&idle, 1, true);         /* it gives up */
    T_TRUE(mag__idle_wake_wanted(&idle));
    T_FALSE(mag__idle_wake_wanted(&idle)); /* the one who is being woken counts already */
    T_FALSE(mag__idle_search_begin(&idle));
    mag__idle_search_end(&idle);
    T_TRUE(mag__idle_search_begin(&idle));
    mag__idle_search_end(&idle);
}

static void puts_twice(void *arg)
{
    (void)arg;
    mag__idle_init(&idle, 2);
    mag__idle_put(&idle, 1, false);
    mag__idle_put(&idle, 1, false);
}

static void ends_what_did_not_begin(void *arg)
{
    (void)arg;
    mag__idle_init(&idle, 2);
    mag__idle_search_end(&idle);
}

static void broken_books_are_noticed(void)
{
    T_ABORTS(puts_twice, NULL, "broken at");
    T_ABORTS(ends_what_did_not_begin, NULL, "broken at");
}

/* ---- with threads ---- */

enum { TAKERS = 4, PS = 3, FAR = 64 /* so that they are in several words */ };

static struct {
    ON_LINE unsigned long uses; /* plain: the owner of the P writes it */
} p[PS];
static a32 owner[PS];

static void *take_and_put(void *arg)
{
    uint64_t random = t_state.seed + (uintptr_t)arg;
    unsigned long *uses = arg;
    for (long n = t_scale(400000); n > 0; n--) {
        int i = mag__idle_take_any(&idle, t_random_r(&random) % (PS * FAR));
        if (i < 0)
            continue;
        T_EQ(i % FAR, 0);
        T_EQ(at_32_xchg_rlx(&owner[i / FAR], 1), 0);
        p[i / FAR].uses++;
        ++*uses;
        at_32_store_rlx(&owner[i / FAR], 0);
        mag__idle_put(&idle, (unsigned)i, false);
    }
    return NULL;
}

static void a_p_has_one_owner(void)
{
    pthread_t threads[TAKERS];
    unsigned long uses[TAKERS] = {0}, made = 0, seen = 0;
    mag__idle_init(&idle, PS * FAR);
    for (unsigned i = 0; i < PS; i++)
        mag__idle_put(&idle, i * FAR, false);
    for (int t = 0; t < TAKERS; t++)
        T_EQ(pthread_create(&threads[t], NULL, take_and_put, &uses[t]), 0);
    for (int t = 0; t < TAKERS; t++) {
        pthread_join(threads[t], NULL);
        made += uses[t];
    }
    T_EQ(mag__idle_count(&idle), PS);
    for (unsigned i = 0; i < PS; i++)
        seen += p[i].uses;
    T_EQ(seen, made);
    T_GT(made, 0);
}

/* A publisher has a flag, and sets it with a store and no more, as a ring's tail is: the fences must do the rest.
 * Whoever takes an idle P wakes the M it is for; an M that finds nothing gives its P up. */
enum { MS = 2, PUBLISHERS = 2, ROUNDS = 50000 };

static struct parker parker[MS];
static struct {
    ON_LINE a32 flag;
} work[PUBLISHERS];
static a64 done;
static a32 stop;

static bool any_work(void)
{
    for (int i = 0; i < PUBLISHERS; i++)
        if (at_32_load_rlx(&work[i].flag) != 0)
            return true;
    return false;
}

static void wake_searcher(void)
{
    while (mag__idle_wake_wanted(&idle)) {
        int i = mag__idle_take_any(&idle, 0);
        if (i >= 0) {
            mag__parker_unpark(&parker[i]);
            return;
        }
        mag__idle_search_end(&idle);
        if (!any_work())
            return;
    }
}

static bool run_one(void)
{
    for (int i = 0; i < PUBLISHERS; i++)
        if (at_32_load_rlx(&work[i].flag) != 0 && at_32_xchg_rlx(&work[i].flag, 0) != 0) {
            at_64_add_rlx(&done, 1);
            return true;
        }
    return false;
}

static void *m(void *arg)
{
    unsigned i = (unsigned)(uintptr_t)arg;
    for (bool searching = false;;) {
        while (run_one())
            if (searching) {
                searching = false;
                mag__idle_search_end(&idle);
                if (mag__idle_some(&idle) && any_work())
                    wake_searcher();
            }
        mag__idle_put(&idle, i, searching);
        searching = false;
        if (any_work() && mag__idle_take(&idle, i))
            continue;
        mag__parker_park(&parker[i], OS_FOREVER);
        if (at_32_load_rlx(&stop) != 0)
            return NULL;
        searching = true;
    }
}

/* Publishes one and waits until it was taken: nothing but a wake-up that is not lost lets it go on. */
static void *publisher(void *arg)
{
    a32 *mine = arg;
    uint64_t random = t_state.seed + (uintptr_t)arg;
    for (long n = t_scale(ROUNDS); n > 0; n--) {
        at_32_store_rlx(mine, 1);
        wake_searcher();
        int64_t end = t_now() + INT64_C(10000000000) * t_state.slow;
        for (unsigned looks = 1; at_32_load_rlx(mine) != 0; looks++) {
            cpu_relax();
            if (looks % 1024 != 0)
                continue;
            sched_yield();
            if (t_now() > end)
                T_FAIL("nobody comes; %u Ps are idle, %u Ms search", mag__idle_count(&idle),
                       at_32_load_rlx(&idle.searching));
        }
        for (uint32_t pause = t_random_r(&random) % 500; pause > 0; pause--)
            compiler_barrier();
    }
    return NULL;
}

static void publish_and_sleep(int nms, int npublishers)
{
    pthread_t ms[MS], publishers[PUBLISHERS];
    at_64_store_rlx(&done, 0);
    at_32_store_rlx(&stop, 0);
    mag__idle_init(&idle, (unsigned)nms);
    for (int i = 0; i < nms; i++)
        T_EQ(pthread_create(&ms[i], NULL, m, (void *)(uintptr_t)i), 0);
    for (int i = 0; i < npublishers; i++)
        T_EQ(pthread_create(&publishers[i], NULL, publisher, &work[i].flag), 0);
    for (int i = 0; i < npublishers; i++)
        pthread_join(publishers[i], NULL);
    T_EVENTUALLY(mag__idle_count(&idle) == (unsigned)nms && at_32_load_rlx(&idle.searching) == 0, 10000);
    T_EQ(at_64_load_rlx(&done), npublishers * t_scale(ROUNDS));
    at_32_store_rlx(&stop, 1);
    for (int i = 0; i < nms; i++) {
        mag__parker_unpark(&parker[i]);
        pthread_join(ms[i], NULL);
    }
}

static void no_wake_up_is_lost(void) { publish_and_sleep(1, 1); } /* with two, the next wake-up would hide it */

static void no_wake_up_of_two_is_lost(void) { publish_and_sleep(MS, PUBLISHERS); }

int main(int argc, char **argv)
{
    t_init(argc, argv);
    T_RUN(each_is_taken_once);
    T_RUN(one_idle_is_found_from_anywhere);
    T_RUN(take_is_exact);
    T_RUN(a_grown_set_is_searched_to_its_end);
    T_RUN(one_searches);
    T_RUN(broken_books_are_noticed);
    T_RUN(a_p_has_one_owner);
    T_RUN(no_wake_up_is_lost);
    T_RUN(no_wake_up_of_two_is_lost);
    return t_done();
}
