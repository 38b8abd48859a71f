/* SPDX-License-Identifier: MIT */
/* waitq.c: a word that is a value, or a queue of those who wait for it to change.
 *
 * Forms       value << 32                          nobody waits
 *             first waiter | QUEUE [| LOCKED]      the value has moved into the first waiter's record
 *             A waiter's record lives on the stack of who waits, and stays there until it is woken: so a queue costs no
 *             memory, no table, and one cas to join or to take over as a whole.
 * Invariants  QUEUE set => the first waiter's `value` and `last` are right, and change only under LOCKED
 *             whoever unlinks a waiter decides it, both under LOCKED; one that lost to its deadline finds itself unlinked
 * Why         an object's last touch by a waker is the store that unlocks the word, so the object's memory may go the moment
 *             a waiter's call has returned.
 * Goroutines  without a deadline join the queue in their after-step (sched/park.h): nothing else can wake them, and no word
 *             but the queue's is needed.
 * Ordering    WQ1  word cas / store release (publish, unlock) -> word cas / load acquire (publish, lock): without this whoever
 *                  locks could see a record, or a value in it, as it was before its last change.
 * Rejected    waiters in a table hashed by the object's address. With ten thousand waiters, each on a stack of its own, every
 *             look into a bucket is a chain of cache misses: fib(27) cost 591 ns a goroutine with 256 buckets, 235 with
 *             4096, and the locked operations on buckets alone cost 9 ns of every wait.
 */
#include "sync/waitq.h"
#include "base/panic.h"

#include <errno.h>

enum { SPINS = 200 };

/* ---- the lock bit ---- */

struct queued *mag__waitq_lock_wait(a64 *word)
{
    for (unsigned spins = 0;; spins++) {
        uint64_t state = at_64_load_acq(word); /* WQ1 */
        if ((state & WAITQ_QUEUE) == 0)
            return NULL;
        if ((state & WAITQ_LOCKED) == 0 && at_64_cas_acq(word, &state, state | WAITQ_LOCKED)) { /* WQ1 */
            hostile_point();
            return waitq_first(state);
        }
        if (spins < SPINS)
            cpu_relax();
        else
            mag__os_nap(20000); /* the kernel took its holder off the core */
    }
}

bool mag__waitq_take(struct queued **first, struct waiter ***woken_end)
{
    struct queued *q = *first;
    *first = q->next;
    if (q->next != NULL) {
        q->next->last = q->last;
        q->next->prev = NULL;
    }
    /* A goroutine may go on as soon as it is decided. A thread that a stopping runtime wakes must first get out of the queue, under our
     * lock, as long as it is in: else its frame could go before we have decided. */
    bool thread = q->waiter.g == NULL;
    if (!thread)
        at_32_store_rlx(&q->in, 0);
    hostile_point();
    enum decided d = waiter_decide(&q->waiter, WAIT_WOKEN);
    hostile_point();
    if (thread)
        at_32_store_rlx(&q->in, 0);
    if (d == DECIDED_READY) {
        q->waiter.next = NULL;
        **woken_end = &q->waiter;
        *woken_end = &q->waiter.next;
    }
    return d != DECIDED_LOST;
}

/* ---- joining and leaving ---- */

bool mag__waitq_join(struct queued *q)
{
    struct queued *first = mag__waitq_lock(q->word);
    if (first == NULL)
        return false;
    q->next = NULL;
    q->prev = first->last;
    at_32_store_rlx(&q->in, 1);
    first->last->next = q;
    first->last = q;
    mag__waitq_unlock(q->word, first, first->value);
    return true;
}

/* Joins the queue. False: there is nothing to wait for. */
static bool publish(struct queued *q)
{
    for (;;) {
        uint64_t state = at_64_load_acq(q->word); /* WQ1 */
        at_32_store_rlx(&q->in, 0);
        if ((state & WAITQ_QUEUE) != 0) {
            if (mag__waitq_join(q))
                return true;
            continue;
        }
        uint32_t value = waitq_value(state);
        if (!q->wait(&value, q->kind)) {
            if (at_64_cas_acqrel(q->word, &state, waitq_of_value(value))) /* WQ1 */
                return false;
            continue;
        }
        if (waitq_begin(q, state, value))
            return true;
    }
}

static void after_publish(struct m *m, struct g *prev)
{
    if (!publish(prev->after_arg))
        mag__wake_next(m->p, prev);
}

/* Takes one out of the queue it may still be in. */
static void leave(struct waiter *w)
{
    struct queued *q = container_of(w, struct queued, waiter), *first = mag__waitq_lock(q->word);
    if (first == NULL)
        return;
    uint32_t value = first->value;
    if (at_32_load_rlx(&q->in) != 0 && q->prev != NULL) {
        q->prev->next = q->next;
        if (q->next != NULL)
            q->next->prev = q->prev;
        else
            first->last = q->prev;
    } else if (at_32_load_rlx(&q->in) != 0) {
        first = q->next;
        if (first != NULL) {
            first->last = q->last;
            first->prev = NULL;
        }
    }
    at_32_store_rlx(&q->in, 0);
    mag__waitq_unlock(q->word, first, value);
}

void mag__waitq_forget(struct waiter *w)
{
    if (at_32_load_rlx(&container_of(w, struct queued, waiter)->in) != 0)
        leave(w);
}

struct step {
    void (*before)(struct m *m, void *arg);
    void *arg;
};

static NOINLINE int wait_thread(struct queued *q, int64_t deadline, const struct step *s)
{
    waiter_init_thread(&q->waiter, mag__waitq_forget);
    if (!publish(q))
        return 0;
    if (s != NULL)
        s->before(NULL, s->arg);
    mag__wait_thread(&q->waiter, deadline);
    if (q->waiter.result != -ESHUTDOWN) /* then it has left, and the object may have gone with the stacks */
        leave(&q->waiter);
    return waiter_outcome(&q->waiter) == WAIT_LATE ? -ETIMEDOUT : q->waiter.result;
}

static NOINLINE int wait_until(struct m *m, struct queued *q, enum g_reason why, int64_t deadline, const struct step *s)
{
    waiter_init(&q->waiter, m_curg(m), true, mag__waitq_forget);
    if (deadline != OS_FOREVER && !mag__wait_arm(m, &q->waiter, deadline)) {
        mag__token_leave(m);
        return -ENOMEM;
    }
    bool queued = publish(q);
    if (queued) {
        if (s != NULL)
            s->before(m, s->arg);
        m = mag__wait_park(m, &q->waiter, why);
    }
    mag__wait_disarm(&q->waiter);
    int error = queued ? wait_error(waiter_outcome(&q->waiter)) : 0;
    if (queued) /* woken or not: who decided it may not have unlocked the word yet, and that is its last touch */
        leave(&q->waiter);
    mag__token_leave(m);
    return error != 0 ? error : q->waiter.result;
}

int mag__waitq_wait_with(a64 *word, bool (*wait)(uint32_t *value, uint32_t kind), uint32_t kind, enum g_reason why,
                         int64_t deadline, const char *function, void (*before)(struct m *m, void *arg), void *arg)
{
    struct queued q;
    struct step s = {.before = before, .arg = arg};
    q.word = word;
    q.wait = wait;
    q.kind = kind;
    struct m *m = mag__m_self();
    if (m == NULL)
        return wait_thread(&q, deadline, &s);
    return wait_until(mag__park_enter(m, function), &q, why, deadline, &s);
}

static ALWAYS_INLINE int waits(a64 *word, bool (*wait)(uint32_t *value, uint32_t kind), uint32_t kind, enum g_reason why,
                               int64_t deadline, const char *function, bool cancel)
{
    struct queued q;
    q.word = word;
    q.wait = wait;
    q.kind = kind;
    struct m *m = mag__m_self();
    if (unlikely(m == NULL))
        return wait_thread(&q, deadline, NULL);
    m = mag__park_enter(m, function);
    if (deadline != OS_FOREVER || (cancel && g_may_cancel(m_curg(m))))
        return wait_until(m, &q, why, deadline, NULL);
    waiter_init(&q.waiter, m_curg(m), false, mag__waitq_forget);
    m = mag__park(m, why, after_publish, &q);
    mag__token_leave(m);
    return q.waiter.result;
}

int mag__waitq_wait_cancel(a64 *word, bool (*wait)(uint32_t *value, uint32_t kind), uint32_t kind, enum g_reason why,
                           int64_t deadline, const char *function)
{
    return waits(word, wait, kind, why, deadline, function, true);
}

int mag__waitq_wait(a64 *word, bool (*wait)(uint32_t *value, uint32_t kind), uint32_t kind, enum g_reason why,
                    int64_t deadline, const char *function)
{
    return waits(word, wait, kind, why, deadline, function, false);
}
