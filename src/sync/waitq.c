/* SPDX-License-Identifier: MIT */
/* waitq.c: a word that is a value, or a queue of those who wait for it to change.
 *
 * Forms       value << 32                          nobody waits
 *             first waiter | QUEUE [| LOCKED]      the value has moved into the first waiter's record
 *             A waiter's record lives on the stack of who waits, and stays there until it is woken: so a queue costs no
 *             memory, no table, and one cas to join or to take over as a whole.
 * Invariants  QUEUE set => the first waiter's `value` and `last` are right, and change only under LOCKED
 *             whoever unlinks a waiter, under LOCKED, wakes it; nobody else touches it afterwards
 * Why         an object's last touch by a waker is the store that makes the word a value again, so the object's memory
 *             may go the moment a waiter's call has returned.
 * Goroutines  join the queue in their after-step, off their stack: a waker can never resume one that still runs.
 * Ordering    WQ1  word cas / store release (publish, unlock, release) -> word cas / load acquire (publish, lock): without
 *                  this whoever locks could see a record, or a value in it, as it was before its last change.
 * Rejected    waiters in a table hashed by the object's address. With ten thousand waiters, each on a stack of its own, every
 *             look into a bucket is a chain of cache misses: fib(27) cost 591 ns a goroutine with 256 buckets, 235 with
 *             4096, and the locked operations on buckets alone cost 9 ns of every wait.
 */
#include "sync/waitq.h"
#include "base/panic.h"

#include <errno.h>

enum { SPINS = 200 };

/* Threads outside the runtime that wait: shutdown must find them. Not part of struct rt: they may wait while none runs. */
static struct {
    struct lock lock;
    struct waiter *first;
} threads;

static struct waiter *first_of(uint64_t state)
{
    return (struct waiter *)(uintptr_t)(state & ~(WAITQ_QUEUE | WAITQ_LOCKED));
}

static uint64_t of_queue(const struct waiter *first) { return (uint64_t)(uintptr_t)first | WAITQ_QUEUE; }

/* ---- the lock bit ---- */

struct waiter *mag__waitq_lock(a64 *word)
{
    for (unsigned spins = 0;; spins++) {
        uint64_t state = at_64_load_acq(word); /* WQ1 */
        if ((state & WAITQ_QUEUE) == 0)
            return NULL;
        if ((state & WAITQ_LOCKED) == 0 && at_64_cas_acq(word, &state, state | WAITQ_LOCKED)) /* WQ1 */
            return hostile_point(), first_of(state);
        if (spins < SPINS)
            cpu_relax();
        else
            mag__os_nap(20000); /* the kernel took its holder off the core */
    }
}

void mag__waitq_unlock(a64 *word, struct waiter *first) { at_64_store_rel(word, of_queue(first)); /* WQ1 */ }

/* A thread of the runtime need not: while it lives, so do the stacks of its time. */
bool mag__waitq_pin(struct m *m)
{
    if (likely(m != NULL && !mag__m_is_dead(m)))
        return false;
    at_32_add_rlx(&mag__rt.foreign, 1);
    at_fence_seq(); /* FOR1 */
    return true;
}

void mag__waitq_unpin(bool pinned)
{
    if (pinned)
        mag__foreign_leave();
}

/* ---- joining ---- */

/* Joins the queue. False: there is nothing to wait for. */
static bool publish(struct waiter *w)
{
    for (;;) {
        uint64_t state = at_64_load_acq(w->word); /* WQ1 */
        if ((state & WAITQ_QUEUE) != 0) {
            struct waiter *first = mag__waitq_lock(w->word);
            if (first == NULL)
                continue;
            w->next = NULL;
            first->last->next = w;
            first->last = w;
            mag__waitq_unlock(w->word, first);
            return true;
        }
        w->value = waitq_value(state);
        if (!w->wait(w->value))
            return false;
        w->next = NULL;
        w->last = w;
        hostile_point();
        if (at_64_cas_rel(w->word, &state, of_queue(w))) /* WQ1 */
            return true;
    }
}

void mag__waitq_after(struct m *m, struct g *prev)
{
    if (!publish(prev->after_arg))
        mag__wake_next(m->p, prev);
}

/* Takes one out of the queue it may still be in. False: somebody else has. */
static bool leave(struct waiter *w)
{
    struct waiter *first = mag__waitq_lock(w->word), *before = NULL;
    if (first == NULL)
        return false;
    struct waiter *x = first;
    while (x != NULL && x != w) {
        before = x;
        x = x->next;
    }
    if (x == NULL) {
        mag__waitq_unlock(w->word, first);
        return false;
    }
    if (before != NULL) {
        before->next = w->next;
        if (first->last == w)
            first->last = before;
        mag__waitq_unlock(w->word, first);
    } else if (w->next != NULL) {
        w->next->value = w->value;
        w->next->last = w->last;
        mag__waitq_unlock(w->word, w->next);
    } else {
        at_64_store_rel(w->word, waitq_of_value(w->value)); /* WQ1 */
    }
    return true;
}

/* ---- threads ---- */

static void list_thread(struct waiter *w)
{
    mag__lock_take(&threads.lock);
    w->thread_next = threads.first;
    w->thread_link = &threads.first;
    if (threads.first != NULL)
        threads.first->thread_link = &w->thread_next;
    threads.first = w;
    mag__lock_give(&threads.lock);
}

static void unlist_thread(struct waiter *w)
{
    mag__lock_take(&threads.lock);
    *w->thread_link = w->thread_next;
    if (w->thread_next != NULL)
        w->thread_next->thread_link = w->thread_link;
    mag__lock_give(&threads.lock);
}

int mag__waitq_wait_thread(a64 *word, bool (*wait)(uint32_t value), int64_t deadline)
{
    struct waiter w = {.word = word, .wait = wait};
    list_thread(&w);
    if (publish(&w) && mag__parker_park(&w.parker, deadline) == -ETIMEDOUT) {
        if (leave(&w))
            w.result = -ETIMEDOUT;
        else
            mag__parker_park(&w.parker, OS_FOREVER); /* the waker has it: its last touch is the token */
    }
    unlist_thread(&w);
    return w.result;
}

/* ---- waking ---- */

void mag__waitq_release(struct m *m, a64 *word, struct waiter *first, uint32_t value)
{
    at_64_store_rel(word, waitq_of_value(value)); /* WQ1 */
    if (m != NULL) {
        if (unlikely(m->in_rt))
            mag__panic_misuse("a synchronisation call in a signal handler that interrupted the runtime");
        mag__token_enter(m);
    }
    bool with_p = m != NULL && m->p != NULL;
    bool running = with_p || mag__foreign_enter() == 0;
    for (struct waiter *w = first, *next; w != NULL; w = next) {
        next = w->next; /* from here on the waiter may be gone */
        if (w->g == NULL)
            mag__parker_unpark(&w->parker);
        else if (likely(running)) /* otherwise its goroutine is discarded anyway */
            mag__wake_any(m, w->g);
    }
    if (running && !with_p)
        mag__foreign_leave();
    if (m != NULL)
        mag__token_leave(m);
}

/* ---- shutdown ---- */

static void clear_g(struct g *g, void *arg)
{
    (void)arg;
    if (g_state(g) == G_WAITING)
        leave(g->after_arg);
}

void mag__waitq_clear(void)
{
    mag__g_each(&mag__rt.arena->gs, clear_g, NULL);
    mag__lock_take(&threads.lock);
    for (struct waiter *w = threads.first; w != NULL; w = w->thread_next)
        if (leave(w)) {
            w->result = -ESHUTDOWN;
            mag__parker_unpark(&w->parker);
        }
    mag__lock_give(&threads.lock);
}
