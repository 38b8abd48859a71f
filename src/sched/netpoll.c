/* SPDX-License-Identifier: MIT */
/* netpoll.c: who asks the kernel what has come.
 *
 *   the P's owner   when its ring and the global queue are empty, and now and then while they are not;
 *                   and for a moment before it goes to sleep, where the last sleeps were brief
 *   the sitter      of the Ms that sleep, one sleeps in the poller instead of in its bed, until the next timer; only while no busy
 *                   P looks by itself: a thread woken for each message would cost more than the message
 *   sysmon          when the busy Ps have not looked for GLANCE_LATE: then an idle M sits down although a P is busy, or sysmon asks
 *
 * One asks    while a P's owner asks often and can do alone what comes, the other Ps leave the events to it: two would only take them from
 *             each other, and the core from whoever waits for the answers.
 * Helpers     are called when what is in the ring is worth a wake-up: of slices that are shorter than that, only if there is a core for
 *             one more thread (cores.c), or if there is very much and the machine is not just full, or a helper gets more done there all the
 *             same (trial.c). The helper is late then and finds the newest, in the global queue; the oldest stay where they are next.
 * Seat        one thread at a time asks. Who finds the seat taken need not: an event wakes the sitter at once, and a P's owner
 *             is on its way with what it found.
 * Counting    each P counts the waits that began on it up and those that ended on it down: the sum is the number of goroutines
 *             that wait, without a shared line. While others run it may be off by those that move; whoever is the last to go idle
 *             sees it right, as all counted before they set their idle bits (core/idle.c, IDL2).
 * Ordering    NP1  seat cas acquire (sit) -> seat store release (rise): without this two could share what the first found.
 * Rejected    a sitter whenever an M is idle, as in Go: on two cores an echo server then pays a thread wake-up for most messages.
 */
#include "sched/netpoll.h"
#include "sched/cores.h"
#include "sched/fdwait.h"

enum { FEWEST = 8, FEW = 32 };
#define GLANCE_NS ((int64_t)50 * 1000)
#define GLANCE_LATE ((int64_t)1000 * 1000)
#define WORTH_NS ((int64_t)200 * 1000) /* of work in the ring call for a helper */
#define MUCH_NS ((int64_t)1400 * 1000) /* the same, of slices shorter than a wake-up, where nobody knows if a core is free */
#define BRISK_NS ((int64_t)500 * 1000)
#define SQUEEZED_NS ((int64_t)20 * 1000 * 1000) /* no P loses its core for so long */
#define PATIENCE_NS ((int64_t)2000 * 1000 * 1000)
#define FRONT_NS ((int64_t)2000 * 1000) /* so long what is urgent may still be in the global queue */
enum { WAKE_NS = 20000, LINGER_PAUSES = 128, LINGER_FIRST = 4, LINGER_LAST = 4096 };
#define LINGER_NS ((int64_t)60 * 1000)
#define BRIEF_NS ((int64_t)100 * 1000) /* falling asleep and waking up included */
#define LOOK_PACE ((int64_t)1000 * 1000)

static struct poll *rt_poll(void) { return &mag__rt.arena->poll; }

/* ---- the seat ---- */

static bool sit(void)
{
    uint32_t free = 0;
    return at_32_load_rlx(&mag__rt.seat) == 0 && at_32_cas_acq(&mag__rt.seat, &free, 1); /* NP1 */
}

static void rise(void) { at_32_store_rel(&mag__rt.seat, 0); /* NP1 */ }

bool mag__netpoll_is_wanted(void)
{
    uint64_t n = 0;
    if (!mag__poll_is_on(rt_poll()))
        return false;
    for (uint32_t i = 0; i < rt_made(); i++)
        n += at_64_load_rlx(&p_at(i)->io_waits);
    return n != 0;
}

bool mag__netpoll_is_kept(void) { return at_32_load_rlx(&mag__rt.seat) != 0 || !mag__netpoll_is_wanted(); }

/* ---- telling ---- */

static bool is_short(const struct p *p) { return at_32_load_rlx(&p->io_slice) < WAKE_NS; }

static uint32_t busy(void)
{
    uint32_t procs = rt_procs(), idle = mag__idle_count(&mag__rt.idle);
    return idle < procs ? procs - idle : 0;
}

static bool is_full_of_others(uint32_t ps) { return !mag__cores_have(ps) && !mag__cores_are_contested(); }

/* So many Ps would not have a core each, and the others, who wait for the answers more often than not, have the rest: one more would only take
 * it from them. Not where the others want every core there is: there it gets its share; nor where it has been tried and was a help. */
static bool is_full(const struct p *p, uint32_t ps)
{
    return is_full_of_others(ps) && at_32_load_rlx(&p->helped) == 0;
}

static void look_at_trial(struct p *p, int64_t now)
{
    bool behind = now - p->dry_at >= PATIENCE_NS && is_short(p) && rt_procs() > 1 && is_full_of_others(busy() + 1);
    if (likely(!trial_is_due(&p->trial, now, behind)))
        return;
    uint32_t slices = 0;
    for (uint32_t i = 0; i < rt_made(); i++) /* who has retired keeps what it has done */
        slices += at_32_load_rlx(&p_at(i)->tick);
    at_32_store_rlx(&p->helped, mag__trial_step(&p->trial, now, behind, slices));
}

/* A helper is worth its wake-up only if the last of them would wait for long. Slices that end soon, as an echo server's do, are over
 * before a helper is awake, unless there are many or it has a core of its own. And whoever looks after the others sees it when a slice
 * does not end (sysmon.c). n of them; ps: that would be busy. */
static bool is_much_for(const struct p *p, uint32_t n, uint32_t ps)
{
    if (is_short(p) && is_full(p, ps))
        return false;
    bool cheap = !is_short(p) || (mag__cores_are_known() && mag__cores_have(ps));
    return (int64_t)n * at_32_load_rlx(&p->io_slice) > (cheap ? WORTH_NS : MUCH_NS);
}
static bool is_much(struct p *p) { return is_much_for(p, p_length(p), busy()); }

static bool asks_often(const struct p *p)
{
    int64_t at = (int64_t)at_64_load_rlx(&p->io_at), usual = is_short(p) ? (int64_t)GLOBAL_EVERY * at_32_load_rlx(&p->io_slice) : 0;
    return at != 0 && mag__os_now() - at < BRISK_NS + usual;
}

bool mag__netpoll_is_squeezed(const struct p *p, uint32_t more)
{
    int64_t at = (int64_t)at_64_load_rlx(&p->io_at);
    return at != 0 && is_short(p) && !mag__cores_have(busy() + more) && mag__os_now() - at < SQUEEZED_NS;
}

bool mag__netpoll_is_brisk(struct p *p, enum brisk_for who)
{
    return asks_often(p) && (!is_much(p) || (who != BRISK_CALLED && mag__netpoll_is_squeezed(p, who == BRISK_BUSY ? 0 : 1)));
}

/* Another P's owner asks, and can do alone what comes, or there is no core for a second: two would only take the events from each
 * other, and the core from the client that waits for the answers. */
static bool another_asks(const struct p *p)
{
    uint32_t i = at_32_load_rlx(&mag__rt.asker);
    return i != p->index && i < rt_procs() && !mag__idle_is(&mag__rt.idle, i) && asks_often(p_at(i)) &&
           (!is_much(p_at(i)) || !mag__cores_have(busy()));
}

static void learn_slice(struct p *p, int64_t now)
{
    uint32_t tick = at_32_load_rlx(&p->tick), n = tick - p->io_tick;
    int64_t before = (int64_t)at_64_load_rlx(&p->io_at);
    if (before != 0 && n != 0) {
        uint32_t usual = at_32_load_rlx(&p->io_slice);
        int64_t each = (now - before) / n, most = 4 * (int64_t)usual + 1000; /* one that lost its core for a while says little */
        most = most < WORTH_NS ? most : WORTH_NS;
        at_32_store_rlx(&p->io_slice, (usual * 3 + (uint32_t)(each < most ? each : most)) / 4);
    }
    at_64_store_rlx(&p->io_at, (uint64_t)now);
    p->io_tick = tick;
}

/* With n more, has p's owner too much? */
static bool is_too_much(struct p *p, unsigned n) { return n > 1 && rt_procs() > 1 && is_much_for(p, p_length(p) + n, busy() + 1); }

static void bring_to_ring(struct p *p, const struct poll_chain *c)
{
    bool help = is_too_much(p, c->n);
    for (struct poll_wait *x = c->first, *next; x != NULL; x = next) {
        struct g *g = mag__fdwait_who(x);
        next = x->next;
        g_set_runnable(g);
        g->warm = x->d;
        mag__arch_prefetch_stack(&g->at);
        mag__wake_quietly(p, g); /* from here on it may be gone, and x with it */
    }
    if (help)
        mag__wake_searcher(&p->count);
}

/* p: NULL, or its owner, who will come for them. */
static void bring_to_global(struct p *p, const struct poll_chain *c, bool front)
{
    struct g_list list = {0};
    for (struct poll_wait *x = c->first, *next; x != NULL; x = next) {
        struct g *g = mag__fdwait_who(x);
        next = x->next;
        g_set_runnable(g);
        g_list_put(&list, g);
    }
    if (front) {
        mag__wake_urgent(list);
    } else if (p == NULL) {
        mag__wake_global_list(list);
    } else {
        bool help = is_too_much(p, c->n);
        mag__globq_put_list(&mag__rt.globq, list);
        if (help)
            mag__wake_searcher(&p->count);
    }
}

/* What waits in the global queue was there before: it comes into the ring first, as far as there is room. What is urgent stays where any P
 * takes it next. How many came. */
static uint32_t let_global_first(struct p *p, int64_t now)
{
    uint32_t have = mag__globq_length(&mag__rt.globq), room = RUNQ_SIZE - mag__runq_length(&p->runq);
    if (likely(have == 0) || now - (int64_t)at_64_load_rlx(&mag__rt.front_at) < FRONT_NS)
        return 0;
    struct g *at[RUNQ_SIZE / 2];
    room = room < RUNQ_SIZE / 2 ? room : RUNQ_SIZE / 2;
    if (at_32_load_rlx(&mag__rt.idle.searching) != 0) /* somebody was woken for them */
        have = mag__globq_share(have, rt_procs());
    uint32_t n = mag__globq_get_many(&mag__rt.globq, at, have < room ? have : room);
    mag__runq_put_many_owner(&p->runq, at, n);
    if (n != 0)
        mag__find_moved(p); /* one is enough: p's owner may have another one in its hands */
    return n;
}

enum where {
    TO_RING,
    TO_GLOBAL,
    TO_FRONT, /* of the global queue: the Ps compute, and one will be retaken for them (retake.c) */
};

/* p: NULL, or its owner's. */
static unsigned deliver(struct p *p, const struct harvest *h, int64_t now, enum where where)
{
    struct poll_chain c;
    mag__poll_chain_init(&c);
    mag__poll_deliver(rt_poll(), h->events, h->n, &c);
    if (c.n == 0)
        return 0;
    at_64_store_rlx(where == TO_RING ? &p->urgent_at : &mag__rt.urgent_at, (uint64_t)now);
    if (where == TO_RING)
        bring_to_ring(p, &c);
    else
        bring_to_global(p, &c, where == TO_FRONT);
    return c.n;
}

/* Without a P nothing keeps the runtime from being taken apart: so it counts as a foreign call. */
void mag__netpoll_bring_in(struct p *p, const struct harvest *h)
{
    if (h->n == 0)
        return;
    if (p != NULL) {
        int64_t now = mag__os_now();
        at_64_store_rlx(&p->io_at, (uint64_t)now);
        p->dry_at = now; /* it was asleep */
        p->io_tick = at_32_load_rlx(&p->tick);
        deliver(p, h, now, TO_RING);
    } else if (mag__foreign_enter() == 0) {
        deliver(NULL, h, mag__os_now(), TO_GLOBAL);
        mag__foreign_leave();
    }
}

void mag__netpoll_bring_first(const struct harvest *h)
{
    if (h->n != 0)
        deliver(NULL, h, mag__os_now(), TO_FRONT);
}

/* ---- in the search ---- */

/* At most as many as the ring has room for: what spilled from it into the global queue would fall behind all that comes later. In
 * the kernel they wait in the order in which they came. And only a few where nobody will come to help: what the kernel touched to tell of
 * them, and we to wake them, is still in the cache when they run. */
static unsigned most_wanted(const struct p *p)
{
    uint32_t room = RUNQ_SIZE - mag__runq_length(&p->runq), most = is_short(p) && (rt_procs() == 1 || is_full(p, busy() + 1)) ? FEW : HARVEST;
    return room < FEWEST ? FEWEST : room < most ? room : most;
}

static bool ask(struct p *p, int64_t now)
{
    struct harvest h;
    if (!sit())
        return false;
    uint32_t n = let_global_first(p, now);
    at_64_store_rlx(&mag__rt.polled_at, (uint64_t)now);
    if (at_32_load_rlx(&mag__rt.asker) != p->index)
        at_32_store_rlx(&mag__rt.asker, p->index);
    if (at_64_load_rlx(&p->io_at) == 0)
        p->dry_at = now; /* it was idle */
    learn_slice(p, now);
    bool empty = n == 0 && p_is_empty(p);
    h.n = mag__backend_wait(&rt_poll()->backend, h.events, most_wanted(p), 0);
    rise();
    if (empty && h.n < FEW)
        p->dry_at = now;
    look_at_trial(p, now);
    COUNT_OWNER(&p->count, polls);
    /* Where the machine is full a helper is late. It is to find the newest, who have a long way before them here as well, instead of
     * taking the oldest from the ring. */
    if (h.n != 0) {
        bool rest = mag__globq_length(&mag__rt.globq) != 0 || (is_too_much(p, h.n) && mag__netpoll_is_squeezed(p, 1));
        n += deliver(p, &h, now, rest ? TO_GLOBAL : TO_RING);
    }
    return n != 0;
}

bool mag__netpoll_try(struct p *p) { return !another_asks(p) && ask(p, mag__os_now()); }

void mag__netpoll_glance(struct p *p)
{
    if (!mag__netpoll_is_wanted())
        return;
    int64_t now = mag__os_now();
    if (now - (int64_t)at_64_load_rlx(&mag__rt.polled_at) >= GLANCE_NS && !another_asks(p))
        ask(p, now);
}

/* ---- before sleeping ---- */

/* Where the next event comes sooner than a thread falls asleep and wakes up, it is awaited awake: whoever sends it pays for the
 * wake-up, more than we do for asking. It is tried when sleeps have been brief LINGER_FIRST times in a row; each time it was in
 * vain, more of them are wanted. Not more often than every other microsecond: the other core may be this one's other half. */
bool mag__netpoll_linger(struct p *p)
{
    struct lingering *l = &mag__rt.lingering;
    uint32_t more = at_32_load_rlx(&l->more);
    if (likely(at_32_load_rlx(&l->brief) < LINGER_FIRST + more) || !mag__netpoll_is_wanted() || another_asks(p))
        return false;
    int64_t now = mag__os_now(), end = now + LINGER_NS;
    for (; now < end; now = mag__os_now()) {
        if (ask(p, now)) {
            at_32_store_rlx(&l->more, more / 2);
            return true;
        }
        if ((at_32_load_rlx(&p->attention) & ~(uint32_t)ATTEND_CROWD) != 0 || mag__find_any_work() || mag__timer_first(&p->timers) <= now)
            return true; /* a crowd lasts: it is nothing to look for */
        for (int i = 0; i < LINGER_PAUSES; i++)
            cpu_relax();
    }
    at_32_store_rlx(&l->brief, 0);
    at_32_store_rlx(&l->more, more * 2 + LINGER_FIRST < LINGER_LAST ? more * 2 + LINGER_FIRST : LINGER_LAST);
    return false;
}

static void learn_sleep(int64_t ns)
{
    struct lingering *l = &mag__rt.lingering;
    uint32_t brief = at_32_load_rlx(&l->brief);
    at_32_store_rlx(&l->brief, ns >= BRIEF_NS ? 0 : brief < 2 * LINGER_LAST ? brief + 1 : brief);
}

/* ---- instead of sleeping ---- */

/* Does a busy P ask often enough? */
static bool is_asked(void)
{
    int64_t since = mag__os_now() - GLANCE_LATE;
    for (uint32_t i = 0; i < rt_procs(); i++)
        if (!mag__idle_is(&mag__rt.idle, i) && (int64_t)at_64_load_rlx(&p_at(i)->io_at) > since)
            return true;
    return false;
}

static bool should_sit(void)
{
    unsigned idle = mag__idle_count(&mag__rt.idle);
    return idle != 0 && mag__netpoll_is_wanted() && (idle >= rt_procs() || !is_asked()) && sit();
}

enum slept mag__netpoll_sleep(struct m *m, int64_t until, int64_t exit_at, struct harvest *h)
{
    h->n = 0;
    if (!should_sit())
        return mag__parker_park(&m->parker, until < exit_at ? until : exit_at) == 0 ? SLEPT_TOKEN : SLEPT_LATE;
    if (!mag__parker_away(&m->parker)) {
        rise();
        return SLEPT_TOKEN;
    }
    at_32_store_rlx(&m->sits, 1);
    int64_t since = mag__os_now();
    h->n = mag__backend_wait(&rt_poll()->backend, h->events, HARVEST, until);
    learn_sleep(h->n != 0 ? mag__os_now() - since : BRIEF_NS);
    at_32_store_rlx(&m->sits, 0);
    rise();
    if (mag__parker_back(&m->parker))
        return SLEPT_TOKEN;
    return h->n != 0 ? SLEPT_HARVEST : mag__os_now() >= until ? SLEPT_LATE : SLEPT_AGAIN;
}

void mag__netpoll_unpark(struct m *m)
{
    if (mag__parker_unpark(&m->parker) == PARKER_AWAY)
        mag__backend_ring(&rt_poll()->backend);
}

/* ---- sysmon ---- */

void mag__netpoll_look(int64_t now, int64_t *pause)
{
    const struct p *asker = p_at(at_32_load_rlx(&mag__rt.asker));
    mag__cores_look(now, busy() + 1, at_64_load_rlx(&asker->io_at) != 0 && is_short(asker));
    if (mag__netpoll_is_kept() || is_asked())
        return;
    int i = mag__idle_take_any(&mag__rt.idle, 0);
    if (i >= 0) { /* an M that finds nothing else to do with it sits down */
        if (mag__m_run(p_at((uint32_t)i), false) == 0)
            return;
        mag__idle_put(&mag__rt.idle, (unsigned)i, false);
    }
    if (at_32_load_rlx(&mag__rt.announced) != 0)
        mag__retake_announced(); /* a P of one that blocks, and says so: the same */
    struct harvest h;
    if (!sit())
        return;
    h.n = mag__backend_wait(&rt_poll()->backend, h.events, HARVEST, 0);
    rise();
    COUNT_ANY(&mag__rt.count, polls);
    if (h.n != 0)
        deliver(NULL, &h, now, TO_FRONT);
    if (*pause > LOOK_PACE)
        *pause = LOOK_PACE;
}
