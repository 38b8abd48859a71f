/* SPDX-License-Identifier: MIT */
/* waitq.c: a parking lot. Synchronisation objects are one word; their waiters live here, hashed by the object's address.
 *
 * Why         an object's last touch by a waker is the change of its word, so its memory may go the moment a waiter's
 *             call has returned. And a runtime that stops can find everyone who waits, without knowing the objects.
 * Protocol    waiter: lock the bucket; is there still something to wait for? queue up; leave the stack; unlock
 *             waker:  lock the bucket; change the object's word; unlink the waiters; unlock; make them runnable
 *             Both decide under the lock, so a waiter is either seen by the waker or sees its change.
 * Waiters     live on the stack of who waits. A goroutine's bucket is unlocked by its after-step: nobody can make it
 *             runnable before it is off its stack.
 * State       the table is not part of struct rt: threads may wait while no runtime runs, and the room that owns it is
 *             below sched.
 */
#include "sync/waitq.h"
#include "base/panic.h"

#include <errno.h>

struct waiter {
    struct waiter *next;  /* first of its key: the first of the bucket's next key */
    struct waiter *same;  /* the next with the same key, in order of arrival */
    struct waiter *last;  /* first of its key: the last with it */
    const void *key;
    struct g *g;          /* NULL: a thread */
    struct parker parker; /* of the thread */
    int result;
};

struct waitq_bucket {
    struct lock lock;
    struct waiter *first;
};

enum { BUCKET_BITS = 12 };

static struct waitq_bucket table[1 << BUCKET_BITS];

static struct waitq_bucket *bucket_of(const void *key)
{
    return &table[(uintptr_t)key * 0x9e3779b97f4a7c15u >> (64 - BUCKET_BITS)];
}

/* Where the first with this key is linked, or where it would be. */
static struct waiter **find_key(struct waitq_bucket *b, const void *key)
{
    struct waiter **at = &b->first;
    while (*at != NULL && (*at)->key != key)
        at = &(*at)->next;
    return at;
}

static void enqueue(struct waitq_bucket *b, struct waiter *w)
{
    struct waiter **at = find_key(b, w->key), *first = *at;
    if (first == NULL) {
        w->last = w;
        w->next = b->first; /* who came last is often woken first */
        b->first = w;
    } else {
        first->last->same = w;
        first->last = w;
    }
}

/* Takes out all with this key, chained through `same`. */
static struct waiter *unlink_key(struct waitq_bucket *b, const void *key)
{
    struct waiter **at = find_key(b, key), *first = *at;
    if (first != NULL)
        *at = first->next;
    return first;
}

/* Takes out this one. False: somebody else did. */
static bool unlink_one(struct waitq_bucket *b, struct waiter *w)
{
    struct waiter **at = find_key(b, w->key), *first = *at, *before = NULL;
    for (struct waiter *x = first; x != w; x = x->same) {
        if (x == NULL)
            return false;
        before = x;
    }
    if (before != NULL) {
        before->same = w->same;
        if (first->last == w)
            first->last = before;
    } else if (w->same != NULL) {
        w->same->next = w->next;
        w->same->last = w->last;
        *at = w->same;
    } else {
        *at = w->next;
    }
    return true;
}

/* ---- waiting ---- */

static void after_unlock(struct m *m, struct g *prev)
{
    (void)m;
    mag__lock_give(prev->after_arg);
}

static int wait_thread(struct waitq_bucket *b, struct waiter *w, int64_t deadline)
{
    mag__lock_give(&b->lock);
    if (mag__parker_park(&w->parker, deadline) == 0)
        return w->result;
    mag__lock_take(&b->lock);
    bool mine = unlink_one(b, w);
    mag__lock_give(&b->lock);
    if (mine)
        return -ETIMEDOUT;
    mag__parker_park(&w->parker, OS_FOREVER); /* the waker has it already: its last touch is the token */
    return w->result;
}

int mag__waitq_wait(struct m **m, const void *key, bool (*still)(void *arg), void *arg, enum g_reason why,
                    int64_t deadline)
{
    struct waitq_bucket *b = bucket_of(key);
    struct waiter w = {.key = key};
    mag__lock_take(&b->lock);
    if (!still(arg)) {
        mag__lock_give(&b->lock);
        return 0;
    }
    enqueue(b, &w);
    if (m == NULL)
        return wait_thread(b, &w, deadline);
    must(deadline == OS_FOREVER);
    w.g = m_curg(*m);
    *m = mag__park(*m, why, after_unlock, &b->lock);
    return w.result;
}

/* ---- waking ---- */

/* Makes the unlinked waiters runnable. */
static void ready(struct m *m, struct waiter *w)
{
    for (struct waiter *next; w != NULL; w = next) {
        next = w->same; /* from here on the waiter may be gone */
        if (w->g != NULL)
            mag__wake_any(m, w->g);
        else
            mag__parker_unpark(&w->parker);
    }
}

void mag__waitq_wake_all(const void *key, bool (*change)(void *arg), void *arg)
{
    struct waitq_bucket *b = bucket_of(key);
    struct m *m = mag__m_self();
    if (m != NULL) {
        if (m->in_rt)
            mag__panic_misuse("a synchronisation call in a signal handler that interrupted the runtime");
        mag__token_enter(m);
    }
    /* a thread outside keeps the runtime from going away while it holds goroutines of it in its hands */
    bool foreign = (m == NULL || m->p == NULL) && mag__foreign_enter() == 0;
    mag__lock_take(&b->lock);
    struct waiter *w = change(arg) ? unlink_key(b, key) : NULL;
    mag__lock_give(&b->lock);
    ready(m, w);
    if (foreign)
        mag__foreign_leave();
    if (m != NULL)
        mag__token_leave(m);
}

/* Takes out everyone with the key of the bucket's first; the threads among them are told. */
static bool clear_key(struct waitq_bucket *b)
{
    mag__lock_take(&b->lock);
    struct waiter *w = b->first == NULL ? NULL : unlink_key(b, b->first->key);
    mag__lock_give(&b->lock);
    bool some = w != NULL;
    for (struct waiter *next; w != NULL; w = next) {
        next = w->same;
        if (w->g == NULL) {
            w->result = -ESHUTDOWN;
            mag__parker_unpark(&w->parker);
        }
    }
    return some;
}

void mag__waitq_clear(void)
{
    for (size_t i = 0; i < ARRAY_LEN(table); i++)
        while (clear_key(&table[i]))
            continue;
}
