/* SPDX-License-Identifier: MIT */
/* idle.c: no wake-up is lost, under every interleaving of publishers and Ms that give up.
 *
 * The Ms here follow the protocol of core/idle.c as the scheduler does, with one simplification: whoever takes an idle
 * P wakes the M that it is for. When everybody sleeps, no work may be left, every P is idle and nobody counts as
 * searching. What a P holds is plain memory: two owners at a time, or one that has not seen what the last one did, are
 * a race.
 */
#include "explore.h"
#include "core/globq.h"
#include "core/idle.h"
#include "core/parker.h"
#include "os/os.h"

enum { MS = 2, WORKS = 2 };

static struct idle idle;
static struct parker parker[MS];
static struct {
    unsigned long runs; /* whatever the owner of the P writes */
} p[MS];
static unsigned procs;

/* P 0 is for M 0, any other for M 1. */
static unsigned m_of(unsigned p) { return p == 0 ? 0 : 1; }

/* Work comes as flags (as cheap as a ring, and one access to publish) or through the global queue. With endless work an
 * M runs one G and never looks for another: then somebody else must. */
static bool global, endless;
static a32 flag[WORKS];
static struct globq globq;
static struct crate crate; /* it needs no more: the model has no malloc */
static struct g g[WORKS];
static unsigned published, done[WORKS];

static void start(unsigned nprocs, unsigned nidle, bool through_globq)
{
    mag__idle_init(&idle, nprocs);
    crate = (struct crate){0};
    globq = (struct globq){.spare = &crate, .nspare = 1};
    global = through_globq;
    endless = false;
    published = 0;
    procs = nprocs;
    for (unsigned i = 0; i < MS; i++) {
        parker[i] = (struct parker){0};
        p[i].runs = 0;
        if (i < nidle)
            mag__idle_put(&idle, i, false);
    }
    for (unsigned i = 0; i < WORKS; i++) {
        at_32_store_rlx(&flag[i], 0);
        g[i].arg = NULL;
        done[i] = 0;
    }
    MODEL_NAME_ARRAY(flag);
    MODEL_NAME_ARRAY(parker);
    MODEL_NAME_ARRAY(p);
    MODEL_NAME_ARRAY(g);
    MODEL_NAME_ARRAY(idle.bits);
    MODEL_NAME(idle.words);
    MODEL_NAME(idle.searching);
    MODEL_NAME(globq.length);
    MODEL_NAME(globq.lock);
}

static void one_p(void) { start(1, 0, false); }
static void two_ps(void) { start(2, 0, false); }
static void two_ps_asleep_endless(void)
{
    start(2, 2, false);
    endless = true;
}
static void two_ps_first_asleep_endless(void)
{
    start(2, 1, false);
    at_32_store_rlx(&idle.searching, 1);
    endless = true;
}
static void one_p_asleep(void) { start(1, 1, false); }
static void one_p_to_be(void)
{
    start(64, 0, false);
    procs = 1;
}
static void one_p_globq(void) { start(1, 0, true); }
static void one_p_searches(void)
{
    start(1, 0, false);
    at_32_store_rlx(&idle.searching, 1);
}
static void two_ps_one_searches(void)
{
    start(2, 0, false);
    at_32_store_rlx(&idle.searching, 1);
}

static void quiet(void)
{
    M_TRUE(mag__idle_count(&idle) == (endless ? 0 : procs));
    M_TRUE(at_32_load_rlx(&idle.searching) == 0);
    M_TRUE(mag__globq_length(&globq) == 0);
    for (unsigned i = 0; i < WORKS; i++)
        M_TRUE(done[i] == (i < published));
}

/* ---- work ---- */

static void publish(unsigned i)
{
    g[i].arg = &g[i];
    model_tally(&published);
    if (global)
        mag__globq_put(&globq, &g[i]);
    else
        at_32_store_rel(&flag[i], 1);
}

static bool any_work(void)
{
    if (global)
        return mag__globq_length(&globq) != 0;
    for (unsigned i = 0; i < WORKS; i++)
        if (at_32_load_rlx(&flag[i]) != 0)
            return true;
    return false;
}

static struct g *take_work(void)
{
    if (global)
        return mag__globq_length(&globq) != 0 ? mag__globq_get(&globq) : NULL;
    for (unsigned i = 0; i < WORKS; i++)
        if (at_32_load_rlx(&flag[i]) != 0 && at_32_xchg_acq(&flag[i], 0) != 0)
            return &g[i];
    return NULL;
}

static bool run(unsigned with_p, struct g *x)
{
    if (x == NULL)
        return false;
    p[m_of(with_p)].runs++;
    M_TRUE(x->arg == x);
    M_TRUE(model_tally(&done[x - g]) == 1);
    return true;
}

static bool run_one(unsigned with_p) { return run(with_p, take_work()); }

/* ---- the protocol ---- */

static void wake_searcher(void)
{
    while (mag__idle_wake_wanted(&idle)) {
        int i = mag__idle_take_any(&idle, 0);
        if (i >= 0) {
            p[m_of((unsigned)i)].runs++;
            mag__parker_unpark(&parker[m_of((unsigned)i)]);
            return;
        }
        mag__idle_search_end(&idle);
        if (!any_work())
            return;
    }
}

static void pass_the_baton(void)
{
    mag__idle_search_end(&idle);
    if (mag__idle_some(&idle) && any_work())
        wake_searcher();
}

/* Others relied on it, or what it moved was not to be seen. */
static void moved(void)
{
    if (mag__idle_somebody(&idle) && any_work())
        wake_searcher();
}

/* An M with P `i`: works while there is work, tries to be the one that searches, gives up. False: it has work for good;
 * otherwise it has no P any more. */
static bool work_until_dry(unsigned i, bool searching, bool relied_on)
{
    do {
        for (;;) {
            if (run_one(i)) {
                if (searching)
                    pass_the_baton();
                else if (relied_on)
                    moved();
                searching = relied_on = false;
                if (endless)
                    return false;
            } else if (searching || !(searching = mag__idle_search_begin(&idle))) {
                break;
            }
        }
        p[m_of(i)].runs++;
        mag__idle_put(&idle, i, searching);
        relied_on |= searching;
        searching = false;
    } while (any_work() && mag__idle_take(&idle, i));
    return true;
}

static void m(unsigned i, bool searching, bool relied_on)
{
    while (work_until_dry(i, searching, relied_on)) {
        mag__parker_park(&parker[m_of(i)], OS_FOREVER);
        searching = true; /* whoever woke us counted us */
        relied_on = false;
    }
}

/* The last steps of an M that has found nothing; it does not look before it lets go, so that nothing but the protocol
 * saves the work. */
static void m_gives_up(unsigned i, bool searching)
{
    p[m_of(i)].runs++;
    mag__idle_put(&idle, i, searching);
    if (any_work() && mag__idle_take(&idle, i)) {
        m(i, false, searching);
    } else {
        mag__parker_park(&parker[m_of(i)], OS_FOREVER);
        m(i, true, false);
    }
}

static void m0(void) { m(0, false, false); }
static void m1(void) { m(1, false, false); }
static void m0_gives_up(void) { m_gives_up(0, false); }
static void m0_gives_up_search(void) { m_gives_up(0, true); }
static void m1_gives_up(void) { m_gives_up(1, false); }
static void m1_gives_up_search(void) { m_gives_up(1, true); }
static void m0_sleeps(void)
{
    mag__parker_park(&parker[0], OS_FOREVER);
    m(0, true, false);
}
static void m1_sleeps(void)
{
    mag__parker_park(&parker[1], OS_FOREVER);
    m(1, true, false);
}

/* The first P whose bit is in another word. */
static void m1_grows_and_gives_up(void)
{
    mag__idle_grow(&idle, 65);
    m_gives_up(64, false);
}

static void publisher_0(void)
{
    publish(0);
    wake_searcher();
}

static void publisher_1(void)
{
    publish(1);
    wake_searcher();
}

static void publisher_of_both(void)
{
    publish(0);
    wake_searcher();
    publish(1);
    wake_searcher();
}

/* A runnext that was passed over: nobody is told unless there is somebody. */
static void passer_by(void)
{
    publish(0);
    if (mag__idle_somebody(&idle))
        wake_searcher();
}

/* A goroutine that lost its P and needs one again: takes an idle one, works, gives it up like everybody. */
static void returner(void)
{
    int i = mag__idle_take_any(&idle, 0);
    if (i >= 0)
        work_until_dry((unsigned)i, false, false);
}

/* What is there goes from one queue to another, and one of it is run for good. */
static void two_ps_endless_both_there(void)
{
    start(2, 0, false);
    endless = true;
    publish(0);
    publish(1);
}

static void m1_moves(void)
{
    struct g *keeps = take_work(), *moves = take_work();
    M_TRUE(run(1, keeps));
    if (moves == NULL)
        return;
    at_32_store_rel(&flag[moves - g], 1);
    moved();
}

/* ---- who owns a P ---- */

static unsigned owners;

static void two_idle(void)
{
    owners = 0;
    start(2, 2, false);
}

static void taker(void)
{
    int i = mag__idle_take_any(&idle, 1);
    if (i < 0)
        return;
    model_tally(&owners);
    p[i].runs++;
}

static void taker_of_one(void)
{
    if (!mag__idle_take(&idle, 1))
        return;
    model_tally(&owners);
    p[1].runs++;
    mag__idle_put(&idle, 1, false);
}

static void taken(void)
{
    M_TRUE(owners >= 2);
    M_TRUE(p[0].runs + p[1].runs == owners);
}

enum { M0 = 1 << 0, BOTH = 1 << 0 | 1 << 1 }; /* who may sleep at the end */

static const struct model_case cases[] = {
    {"give up", one_p, {m0_gives_up, publisher_0}, quiet, M0},
    {"give up, searching", one_p_searches, {m0_gives_up_search, publisher_0}, quiet, M0},
    {"give up, passed over", one_p, {m0_gives_up, passer_by}, quiet, M0},
    {"give up, searching, passed over", one_p_searches, {m0_gives_up_search, passer_by}, quiet, M0},
    {"two Ms, passed over", two_ps_one_searches, {m0_gives_up_search, m1_gives_up, passer_by}, quiet, BOTH, 2, 1},
    {"work on", one_p, {m0, publisher_of_both}, quiet, M0, .preempt = 4, .stale = 2},
    {"global queue", one_p_globq, {m0_gives_up, publisher_0}, quiet, M0, .stale = 2},
    {"two publishers", one_p, {m0_gives_up, publisher_0, publisher_1}, quiet, M0, .stale = 1},
    {"two publishers, search", one_p_searches, {m0_gives_up_search, publisher_0, publisher_1}, quiet, M0, .stale = 1},
    {"two publishers, global queue", one_p_globq, {m0_gives_up, publisher_0, publisher_1}, quiet, M0, 2, 1},
    {"two Ms", two_ps, {m0_gives_up, m1_gives_up, publisher_of_both}, quiet, BOTH, 2, 1},
    {"two Ms, the searcher finds", two_ps_one_searches, {m0_gives_up_search, m1, publisher_of_both}, quiet, BOTH, 2, 1},
    {"two Ms, endless work", two_ps_asleep_endless, {m0_sleeps, m1_sleeps, publisher_of_both}, quiet},
    {"two Ms, who gives up was relied on", two_ps_first_asleep_endless, {m0_sleeps, m1_gives_up_search, publisher_of_both}, quiet},
    {"two Ms, work is moved", two_ps_endless_both_there, {m0_gives_up, m1_moves}, quiet},
    {"a new P", one_p_to_be, {m1_grows_and_gives_up, publisher_0}, quiet, M0},
    {"a goroutine comes back", one_p_asleep, {m0_sleeps, publisher_0, returner}, quiet, M0},
    {"a goroutine comes back, M gives up", one_p, {m0_gives_up, publisher_0, returner}, quiet, M0, .stale = 1},
    {"one owner", two_idle, {taker, taker, taker_of_one}, taken},
};

int main(int argc, char **argv) { return model_main(argc, argv, cases, ARRAY_LEN(cases)); }
