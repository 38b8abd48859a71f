/* SPDX-License-Identifier: MIT */
/* mutex.c: the mutex. One word: HELD, and while somebody waits the first waiter's address.
 *
 * Forms       [HELD]                                        nobody waits
 *             first waiter | QUEUE [| HELD] [| LOCKED]      LOCKED: the queue is being changed; others may only set HELD
 *             HELD is set by an or, a quarter of a nanosecond cheaper than a compare and exchange. It is cleared in the
 *             step that also sees that nobody waits, or under LOCKED: a subtraction would be cheaper still, and would leave a
 *             waiter to be woken in memory that may be gone.
 * Barging     a release wakes the first waiter and leaves the mutex free: whoever comes first gets it, most often one who
 *             runs already, and nobody stands still while a waiter is on its way. A waiter that came too late PATIENCE times
 *             is handed the mutex by the next release: nobody starves.
 * Spinning    with several Ps the holder is most likely running: a short spin is cheaper than a switch, and than the wake-up
 *             that it takes to come back. Each look takes the word's line from the holder, who needs it for the release and, most
 *             likely, for its next lock: so there are few, further and further apart. (Eight that do nothing else, on two procs:
 *             23 ns a lock with forty looks at even distances, 6 with four; 5 on one.)
 * Why         as with waitq.c: a release touches the mutex for the last time in the step that makes it free.
 * Ordering    MX1  HELD or / cas acquire (lock) -> word cas / store release (unlock): without this what the mutex guards could be
 *                  read before it was taken or written after it was given back.
 */
#include "sync/mutex.h"
#include "base/panic.h"

#include <errno.h>

#define QUEUE WAITQ_QUEUE
#define LOCKED WAITQ_LOCKED
#define HELD ((uint64_t)4)

enum { SPIN_FIRST = 16, SPIN_LAST = 128, PATIENCE = 4 };

_Static_assert(sizeof(mag_mutex) == sizeof(a64), "the public struct is the atomic word");

struct contender {
    struct waiter w; /* first: what a goroutine's after_arg points to */
    struct contender *next, *prev, *last;
    a64 *word;
    a32 in;          /* it is in the queue; LOCKED writes */
    uint32_t late;   /* times it was woken in vain */
    bool got;        /* owner, or under LOCKED: the mutex is its */
};

static a64 *word_of(mag_mutex *m) { return (a64 *)&m->state; }
static struct contender *first_of(uint64_t w) { return (struct contender *)(uintptr_t)(w & ~(QUEUE | LOCKED | HELD)); }
static uint64_t of_queue(struct contender *first) { return first == NULL ? 0 : (uint64_t)(uintptr_t)first | QUEUE; }

static inline bool try_lock(a64 *word)
{
    uint64_t seen = at_64_load_rlx(word);
    while ((seen & (HELD | LOCKED)) == 0)
        if (at_64_cas_acq(word, &seen, seen | HELD)) /* MX1 */
            return true;
    return false;
}

/* Locks the queue of a word that has been seen with one. False: look again. */
static bool lock_queue(a64 *word, uint64_t *seen)
{
    if ((*seen & LOCKED) != 0) {
        for (unsigned n = 0; (at_64_load_rlx(word) & LOCKED) != 0; n++)
            n < 200 ? cpu_relax() : mag__os_nap(20000);
        return false;
    }
    return at_64_cas_acqrel(word, seen, *seen | LOCKED); /* MX1 */
}

/* Joins the queue, or gets the mutex: then false. Who was woken in vain stands in front again. */
static bool publish(struct contender *c)
{
    for (;;) {
        uint64_t seen = at_64_load_rlx(c->word);
        at_32_store_rlx(&c->in, 0);
        if ((seen & HELD) == 0) {
            if (try_lock(c->word))
                return false;
            cpu_relax();
            continue;
        }
        c->next = c->prev = NULL;
        c->last = c;
        at_32_store_rlx(&c->in, 1);
        hostile_point();
        if ((seen & QUEUE) == 0) {
            if (at_64_cas_rel(c->word, &seen, of_queue(c) | HELD)) /* MX1 */
                return true;
            continue;
        }
        if (!lock_queue(c->word, &seen))
            continue;
        struct contender *first = first_of(seen);
        if (c->late != 0) {
            c->next = first;
            c->last = first->last;
            first->prev = c;
            first = c;
        } else {
            c->prev = first->last;
            first->last->next = c;
            first->last = c;
        }
        at_64_store_rel(c->word, of_queue(first) | HELD); /* MX1 */
        return true;
    }
}

static void after_publish(struct m *m, struct g *prev)
{
    struct contender *c = prev->after_arg;
    if (publish(c))
        return;
    c->got = true;
    mag__wake_next(m->p, prev);
}

/* A runtime that stops: the waiter is forgotten, the mutex stays held by whom it may concern. If it is out already, the mutex may
 * be gone. */
static void leave(struct waiter *w)
{
    struct contender *c = container_of(w, struct contender, w);
    while (at_32_load_rlx(&c->in) != 0) {
        uint64_t seen = at_64_load_rlx(c->word);
        if ((seen & QUEUE) == 0)
            return;
        if (!lock_queue(c->word, &seen))
            continue;
        struct contender *first = first_of(seen);
        if (at_32_load_rlx(&c->in) != 0 && c->prev != NULL) {
            c->prev->next = c->next;
            if (c->next != NULL)
                c->next->prev = c->prev;
            else
                first->last = c->prev;
        } else if (at_32_load_rlx(&c->in) != 0) {
            first = c->next;
            if (first != NULL) {
                first->last = c->last;
                first->prev = NULL;
            }
        }
        at_32_store_rlx(&c->in, 0);
        at_64_add_rel(c->word, of_queue(first) - (seen & ~HELD) - LOCKED); /* MX1: HELD may have been set meanwhile */
        return;
    }
}

static bool spin_lock(a64 *word)
{
    for (int pause = SPIN_FIRST; pause <= SPIN_LAST; pause *= 2) {
        for (int i = 0; i < pause; i++)
            cpu_relax();
        if (try_lock(word))
            return true;
    }
    return false;
}

static NOINLINE void lock_slow(a64 *word)
{
    struct m *m = mag__m_self();
    struct contender c;
    c.word = word;
    c.late = 0;
    for (;;) {
        if (rt_procs() > 1 && spin_lock(word))
            return;
        if (try_lock(word))
            return;
        c.got = false;
        if (m != NULL) {
            m = mag__park_enter(m, "mag_mutex_lock");
            waiter_init(&c.w, m_curg(m), false, leave);
            m = mag__park(m, WAIT_MUTEX, after_publish, &c);
            mag__token_leave(m);
        } else {
            waiter_init_thread(&c.w, leave); /* a runtime that stops wakes it, in vain: it goes on waiting */
            if (!publish(&c))
                return;
            mag__wait_thread(&c.w, OS_FOREVER);
        }
        if (c.got)
            return;
        c.late++;
    }
}

struct waiter *mag__mutex_release(mag_mutex *mutex)
{
    a64 *word = word_of(mutex);
    uint64_t seen = at_64_load_rlx(word);
    for (;;) {
        if (unlikely((seen & HELD) == 0))
            mag__panic_misuse("mag_mutex_unlock: it is not locked");
        if (likely((seen & QUEUE) == 0)) {
            if (at_64_cas_rel(word, &seen, 0)) /* MX1 */
                return NULL;
            continue;
        }
        if (!lock_queue(word, &seen)) {
            seen = at_64_load_rlx(word);
            continue;
        }
        struct contender *c = first_of(seen), *rest = c->next;
        if (rest != NULL) {
            rest->last = c->last;
            rest->prev = NULL;
        }
        c->got = c->late >= PATIENCE;
        uint64_t held = c->got ? HELD : 0;
        struct waiter *w = &c->w;
        hostile_point();
        bool ready = waiter_decide(w, WAIT_WOKEN) == DECIDED_READY;
        w->next = NULL;
        at_32_store_rlx(&c->in, 0); /* last: a runtime that stops waits for LOCKED while it is in */
        at_64_store_rel(word, of_queue(rest) | held); /* MX1 */
        return ready ? w : NULL;
    }
}

void mag_mutex_lock(mag_mutex *mutex)
{
    if (likely((at_64_or_acq(word_of(mutex), HELD) & HELD) == 0)) /* MX1 */
        return;
    lock_slow(word_of(mutex));
}

int mag_mutex_trylock(mag_mutex *mutex) { return try_lock(word_of(mutex)) ? 0 : -EBUSY; }

void mag_mutex_unlock(mag_mutex *mutex)
{
    uint64_t held = HELD;
    if (likely(at_64_cas_rel(word_of(mutex), &held, 0))) /* MX1 */
        return;
    struct m *m = mag__m_self();
    bool pinned = mag__wait_pin(m);
    mag__wait_ready_all(m, mag__mutex_release(mutex));
    mag__wait_unpin(pinned);
}
