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
    struct waiter *next;
    const void *key;
    struct g *g;          /* NULL: a thread */
    struct parker parker; /* of the thread */
    int result;
};

struct waitq_bucket {
    ON_LINE struct lock lock;
    struct waiter *first, *last;
};

enum { BUCKETS = 256 };

static struct waitq_bucket table[BUCKETS];

static struct waitq_bucket *bucket_of(const void *key)
{
    return &table[(uintptr_t)key * 0x9e3779b97f4a7c15u >> 56];
}
_Static_assert(BUCKETS == 1 << 8, "bucket_of takes the top 8 bits");

static void enqueue(struct waitq_bucket *b, struct waiter *w)
{
    w->next = NULL;
    if (b->first == NULL)
        b->first = w;
    else
        b->last->next = w;
    b->last = w;
}

/* Takes out those for whom match says so, in order. */
static struct waiter *unlink_if(struct waitq_bucket *b, bool (*match)(const struct waiter *, const void *), const void *arg)
{
    struct waiter *out = NULL, **out_end = &out, *last = NULL;
    for (struct waiter **at = &b->first, *w; (w = *at) != NULL;) {
        if (match(w, arg)) {
            *at = w->next;
            w->next = NULL;
            *out_end = w;
            out_end = &w->next;
        } else {
            last = w;
            at = &w->next;
        }
    }
    b->last = last;
    return out;
}

static bool has_key(const struct waiter *w, const void *key) { return w->key == key; }
static bool is_it(const struct waiter *w, const void *it) { return w == it; }
static bool is_anyone(const struct waiter *w, const void *arg) { return (void)w, (void)arg, true; }

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
    struct waiter *mine = unlink_if(b, is_it, w);
    mag__lock_give(&b->lock);
    if (mine != NULL)
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

/* Makes the unlinked waiters runnable. Returns how many were goroutines: those need the runtime. */
static void ready(struct m *m, struct waiter *w)
{
    for (struct waiter *next; w != NULL; w = next) {
        next = w->next; /* from here on the waiter may be gone */
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
    struct waiter *w = change(arg) ? unlink_if(b, has_key, key) : NULL;
    mag__lock_give(&b->lock);
    ready(m, w);
    if (foreign)
        mag__foreign_leave();
    if (m != NULL)
        mag__token_leave(m);
}

void mag__waitq_clear(void)
{
    for (int i = 0; i < BUCKETS; i++) {
        struct waitq_bucket *b = &table[i];
        mag__lock_take(&b->lock);
        struct waiter *w = unlink_if(b, is_anyone, NULL);
        mag__lock_give(&b->lock);
        for (struct waiter *next; w != NULL; w = next) {
            next = w->next;
            if (w->g == NULL) {
                w->result = -ESHUTDOWN;
                mag__parker_unpark(&w->parker);
            }
        }
    }
}
