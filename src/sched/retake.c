/* SPDX-License-Identifier: MIT */
/* retake.c: nothing stalls the others: Ps are taken from goroutines that compute or block for long.
 *
 * Who         a P is retaken only where somebody waits for it and no P is idle: an idle one's M steals what waits.
 *               announced   the goroutine is between mag_block_begin and mag_block_end: by whoever has work for the P
 *               blocked     its thread sleeps in the kernel: at the first look that sees it. The kernel is asked (os.h); a
 *                           thread's CPU clock that stands still says nothing when there are more threads than cores
 *               computing   its slice is over: rt.slice, but URGENT_SLICE while somebody waits whose timer fired or whose
 *                           descriptor became ready. Where slices were short and the machine is full, the P may only have lost its
 *                           core: then its thread must have had the processor just now
 *             Whoever wakes up for a timer or a descriptor and finds every P busy takes one himself, at once, from a goroutine that
 *             lost its P the last time it ran: it need not prove again that it computes.
 * Afterwards  the goroutine goes on on its own thread, where the kernel shares the cores out, and gets an idle P, or queues
 *             for one, at its next call that may switch. Until then its kernel slice is the longest there is, and that of the
 *             threads that sleep meanwhile the shortest: the kernel then lets them go first when they wake up.
 * Crowds      each goroutine that computes without a P is a thread. From LOOSE_PER_P for each P on it is a crowd: the cores
 *             are busy with those, so goroutines that can be expected to compute for long too are held back until one of
 *             them comes back, and Ps rather stay free for the others. What is expected of a goroutine is what it did last,
 *             and what goroutines of its function did lately (HOGS of them). One that has computed for OLD_NS will not come
 *             back soon and does not count any more: endless ones hold nobody up for long.
 *             So a thousand long computations take about 5 threads for each P, and an endless loop takes one.
 * Rejected    retaking without end: a thousand computations became a thousand threads. Not retaking in a crowd: five endless
 *             loops on one P stopped everybody else for ever. Lending the P and giving it back: whoever it was lent to may
 *             compute for long himself.
 * Ordering    BLK1  announced := 1, fence, look for work (begin) <-> work visible, fence, read announced (wake_searcher): without
 *                   this work could wait for the P of a goroutine that blocks, until sysmon comes by.
 * See         tests/preempt.c, tests/blocking.c, tests/token.c
 */
#include "base/panic.h"
#include "sched/netpoll.h"

#define URGENT_SLICE (1000 * (int64_t)1000)
#define OLD_NS (4000 * (int64_t)1000000)
#define AGAIN_NS (100 * (int64_t)1000)
#define CORE_NS (200 * (int64_t)1000)
#define SLICE_LONG (100 * (int64_t)1000000) /* the longest and the shortest that the kernel has */
#define CALM_NS (100 * (int64_t)1000000)
#define SLICE_SHORT (100 * (int64_t)1000)
enum { LOOSE_PER_P = 4, HOGS = 3 };

/* ---- who computes for long ---- */

static void note_hog(const struct m *m, int64_t now)
{
    const struct g *g = m_curg(m); /* it may have gone on meanwhile: then a guess is wrong */
    void *fn = at_ptr_load_rlx(&g->fn);
    struct hog_fn *to = &mag__rt.hogs[0];
    for (struct hog_fn *h = mag__rt.hogs; h < mag__rt.hogs + HOG_FNS; h++) {
        if (at_ptr_load_rlx(&h->fn) == fn) {
            to = h;
            break;
        }
        if (at_64_load_rlx(&h->at) < at_64_load_rlx(&to->at))
            to = h;
    }
    bool same = at_ptr_load_rlx(&to->fn) == fn && now - (int64_t)at_64_load_rlx(&to->at) < OLD_NS;
    at_32_store_rlx(&to->n, same ? at_32_load_rlx(&to->n) + 1 : 1);
    at_64_store_rlx(&to->at, (uint64_t)now);
    at_ptr_store_rlx(&to->fn, fn);
}

bool mag__retake_expects_hog(const struct g *g)
{
    if ((g->flags & G_LOCKED) != 0)
        return false; /* its thread is there already */
    if ((g->flags & G_HOG) != 0)
        return true;
    void *fn = at_ptr_load_rlx(&g->fn);
    for (const struct hog_fn *h = mag__rt.hogs; h < mag__rt.hogs + HOG_FNS; h++)
        if (at_ptr_load_rlx(&h->fn) == fn)
            return at_32_load_rlx(&h->n) >= HOGS &&
                   (int64_t)(at_64_load_rlx(&mag__rt.clock) - at_64_load_rlx(&h->at)) < OLD_NS;
    return false;
}

COLD void mag__token_lost(struct m *m, enum lost why)
{
    m->p = NULL;
    if (why != LOST_SLICE)
        return;
    at_32_store_rlx(&m->loose, 1);
    m_curg(m)->flags |= G_HOG;
}

COLD void mag__token_settled(struct m *m)
{
    at_32_store_rlx(&m->loose, 0);
    if (m->epoch == at_32_load_rlx(&mag__rt.epoch)) /* a straggler's was another runtime's count */
        at_32_add_rlx(&mag__rt.loose, (uint32_t)-1);
    at_32_store_rlx(&m->brisk, 0);
    mag__os_thread_slice(0, OS_SLICE_USUAL);
}

/* ---- in the kernel's eyes ---- */

static bool is_loose(const struct m *m)
{
    /* it does not know of it yet, or does */
    return (enum lost)(uintptr_t)at_ptr_load_rlx(&m->tok) == LOST_SLICE || at_32_load_rlx(&m->loose) != 0;
}

/* Its thread goes on among the others, who wake up to do a little: they are to go first. */
static void let_others_first(struct m *m, int64_t now)
{
    uint32_t tid = at_32_load_rlx(&m->tid);
    at_64_store_rlx(&m->lost_at, (uint64_t)now);
    mag__os_thread_slice(tid, SLICE_LONG);
    if (!is_loose(m))
        mag__os_thread_slice(tid, OS_SLICE_USUAL); /* it was quicker */
}

void mag__retake_before_sleep(struct m *m)
{
    if (likely(at_32_load_rlx(&mag__rt.loose) == 0) || at_32_load_rlx(&m->brisk) != 0)
        return;
    mag__os_thread_slice(0, SLICE_SHORT);
    at_32_store_rlx(&m->brisk, 1); /* not before: sysmon may take it back as soon as it sees it */
    at_32_store_rlx(&mag__rt.some_brisk, 1); /* seen before the other, it misses this one: until somebody else becomes brisk */
}

/* Nobody has computed without a P for a while: those that are brisk have the usual slice again. */
static void look_at_brisk(int64_t now)
{
    if (at_32_load_rlx(&mag__rt.loose) != 0)
        mag__rt.loose_seen = now;
    if (likely(at_32_load_rlx(&mag__rt.some_brisk) == 0) || now - mag__rt.loose_seen < CALM_NS)
        return;
    at_32_store_rlx(&mag__rt.some_brisk, 0);
    for (struct m *m = at_ptr_load_acq(&mag__rt.ms); m != NULL; m = m->next_all) /* MS1 */
        if (at_32_load_rlx(&m->brisk) != 0) {
            at_32_store_rlx(&m->brisk, 0);
            mag__os_thread_slice(at_32_load_rlx(&m->tid), OS_SLICE_USUAL);
        }
}

/* ---- crowds ---- */

static uint32_t count_old(int64_t now)
{
    uint32_t n = 0;
    for (struct m *m = at_ptr_load_acq(&mag__rt.ms); m != NULL; m = m->next_all) { /* MS1 */
        n += is_loose(m) && now - (int64_t)at_64_load_rlx(&m->lost_at) >= OLD_NS;
    }
    return n;
}

static void set_crowd(bool crowd)
{
    for (uint32_t i = 0; i < rt_made(); i++) {
        a32 *word = &p_at(i)->attention;
        bool set = (at_32_load_rlx(word) & ATTEND_CROWD) != 0;
        if (crowd && !set)
            at_32_or_rlx(word, ATTEND_CROWD);
        else if (!crowd && set)
            at_32_and_rlx(word, ~(uint32_t)ATTEND_CROWD);
    }
}

static void look_at_crowd(int64_t now)
{
    uint32_t loose = at_32_load_rlx(&mag__rt.loose), cap = LOOSE_PER_P * rt_procs();
    if (loose >= cap)
        cap += count_old(now);
    at_32_store_rlx(&mag__rt.loose_cap, cap);
    set_crowd(loose >= cap || mag__globq_length(&mag__rt.held) != 0);
}

/* ---- taking ---- */

static bool others_wait(const struct p *p)
{
    return mag__globq_length(&mag__rt.globq) != 0 || !p_is_empty(p) ||
           (mag__globq_length(&mag__rt.held) != 0 && !rt_crowded());
}

static bool retake(struct p *p, struct m *m, enum lost why, int64_t now)
{
    if (!mag__m_can_run() || !mag__token_take(m, p, why))
        return false; /* no thread to give it to; or the goroutine is in the runtime now */
    if (why == LOST_SLICE) {
        let_others_first(m, now);
        note_hog(m, now);
        look_at_crowd(now);
        COUNT_ANY(&mag__rt.count, retakes_computing);
    } else {
        COUNT_ANY(&mag__rt.count, retakes_blocked);
    }
    p_global_next(p); /* who waits longest, or is urgent, waits there */
    at_32_store_rlx(&p->next_streak, 2 * NEXT_STREAK);
    p->lifo_streak = LIFO_STREAK;
    mag__retake_pass_on(p);
    return true;
}

void mag__retake_pass_on(struct p *p)
{
    if (mag__m_run(p, false) == 0)
        return;
    /* no thread after all: what waits here goes where the others find it, and the P to whoever comes first */
    mag__globq_put_list(&mag__rt.globq, mag__p_drain(p));
    mag__idle_put(&mag__rt.idle, p->index, false);
    if (mag__find_any_work())
        mag__wake_searcher(NULL);
}

/* ---- by who has something urgent ---- */

void mag__retake_mark(struct p *p, struct g *g)
{
    g->flags &= (uint16_t)~G_HOG; /* unless it loses this one too */
    at_32_bump_owner(&p->tick, 1);
    at_32_store_rlx(&p->hog_tick, at_32_load_rlx(&p->tick));
}

struct p *mag__retake_from_hog(const struct m *self)
{
    uint32_t procs = rt_procs(), first = at_32_add_rlx(&mag__rt.urgent_turn, 1);
    if (mag__m_is_dead(self) || mag__rt.slice < 0)
        return NULL;
    for (uint32_t i = 0; i < procs; i++) {
        struct p *p = p_at((first + i) % procs);
        struct m *m = at_ptr_load_acq(&p->m); /* TOK2 */
        if (m == NULL || mag__token_peek(m) != p || at_32_load_rlx(&p->hog_tick) != at_32_load_rlx(&p->tick))
            continue;
        if (!mag__token_take(m, p, LOST_SLICE))
            continue;
        let_others_first(m, mag__os_now());
        COUNT_ANY(&mag__rt.count, retakes_computing);
        at_32_bump_owner(&p->tick, 1); /* what comes is a slice of its own */
        p->lifo_streak = LIFO_STREAK;
        p_global_next(p);
        return p;
    }
    return NULL;
}

void mag__retake_announced(void)
{
    for (uint32_t i = 0; i < rt_procs(); i++) {
        struct p *p = p_at(i);
        struct m *m = at_ptr_load_acq(&p->m); /* TOK2 */
        if (m == NULL || at_32_load_rlx(&m->announced) == 0 || mag__token_peek(m) != p || !mag__m_can_run())
            continue;
        if (retake(p, m, LOST_BLOCKED, 0))
            return;
    }
}

/* ---- looking ---- */

static bool is_blocked(struct p *p, const struct m *m)
{
    uint32_t tid = at_32_load_rlx(&m->tid);
    if (p->watched != tid) {
        if (p->watch != 0)
            mag__os_unwatch(p->watch);
        p->watch = mag__os_watch(tid);
        p->watched = p->watch == 0 ? 0 : tid;
    }
    if (p->watch == 0)
        return false; /* the slice will be over some time */
    enum os_doing doing = mag__os_look(p->watch);
    if (doing == OS_UNKNOWN) {
        p->watch = 0; /* not closed: it is no longer ours */
        p->watched = 0;
    }
    return doing == OS_BLOCKED;
}

/* Where the machine is full a slice may last because its thread lost its core. One that sleeps in the kernel has none either. */
bool mag__retake_is_stuck(struct p *p, const struct m *m)
{
    if (likely(!mag__netpoll_is_squeezed(p, 1)) || at_32_load_rlx(&mag__rt.loose) != 0 || is_blocked(p, m) || p->watch == 0)
        return true;
    uint32_t tid = at_32_load_rlx(&m->tid), tick = at_32_load_rlx(&p->tick);
    int64_t before = mag__os_thread_cpu(tid);
    mag__os_nap(CORE_NS);
    return mag__os_thread_cpu(tid) - before >= CORE_NS / 2 && at_32_load_rlx(&p->tick) == tick;
}

/* How long the P's present slice has lasted, by what sysmon has seen of it. */
static int64_t slice_age(struct p *p, int64_t now)
{
    uint32_t tick = at_32_load_rlx(&p->tick);
    if (tick != p->seen_tick || p->seen_at == 0) {
        p->seen_tick = tick;
        p->seen_at = now;
    }
    return now - p->seen_at;
}

static int64_t slice_of(const struct p *p, int64_t now)
{
    uint64_t here = at_64_load_rlx(&p->urgent_at), there = at_64_load_rlx(&mag__rt.urgent_at);
    bool urgent = now - (int64_t)(here > there ? here : there) < URGENT_NS;
    return urgent && mag__rt.slice > URGENT_SLICE ? URGENT_SLICE : mag__rt.slice;
}

static void look_at(struct retake_look *l, struct p *p, int64_t now)
{
    struct m *m = at_ptr_load_acq(&p->m); /* TOK2 */
    int64_t age = slice_age(p, now), slice = slice_of(p, now);
    l->hogged |= age >= URGENT_SLICE;
    if (m == NULL || !others_wait(p))
        return;
    bool outside = mag__token_peek(m) == p;
    if (outside && (at_32_load_rlx(&m->announced) != 0 || is_blocked(p, m))) {
        l->blocked |= retake(p, m, LOST_BLOCKED, now);
        p->seen_at = 0;
        return;
    }
    if (slice < 0)
        return;
    l->wanted |= age >= slice / 2;
    if (age < slice)
        l->again = l->again > slice - age ? slice - age : l->again; /* when it ends */
    else if (outside && mag__retake_is_stuck(p, m) && retake(p, m, LOST_SLICE, now)) {
        p->seen_at = 0;
        l->again = AGAIN_NS;
    }
}

void mag__retake_look(struct retake_look *l, int64_t now)
{
    bool announced = false;
    look_at_crowd(now);
    look_at_brisk(now);
    for (uint32_t i = 0; i < rt_procs(); i++) {
        struct p *p = p_at(i);
        struct m *m = at_ptr_load_acq(&p->m); /* TOK2 */
        announced |= m != NULL && at_32_load_rlx(&m->announced) != 0;
        if (mag__idle_is(&mag__rt.idle, i))
            p->seen_at = 0;
        else if (mag__idle_some(&mag__rt.idle) && mag__rt.steal_min == 1)
            slice_age(p, now); /* what waits here is stolen */
        else
            look_at(l, p, now);
    }
    if (!announced && at_32_load_rlx(&mag__rt.announced) != 0)
        at_32_store_rlx(&mag__rt.announced, 0); /* one that comes just now is found by the next look */
}

void mag__retake_stop(void)
{
    for (uint32_t i = 0; i < rt_made(); i++) {
        struct p *p = p_at(i);
        if (p->watch != 0)
            mag__os_unwatch(p->watch);
        p->watch = 0;
    }
}
