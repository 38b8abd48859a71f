/* SPDX-License-Identifier: MIT */
/* chan.c: channels.
 *
 * What        a ring of `cap` values under one lock, and two queues of those who wait.
 * Invariants  under the lock, of those still undecided: receivers wait only while the ring is empty and nobody sends,
 *             senders only while it is full; never both (but for one select that waits at both ends)
 *             a closed channel has no waiters
 * Handing over  a value goes straight from its sender to the slot where a waiter wants it, on that waiter's stack if need be.
 *             A receiver at a full ring takes the oldest value and moves the first sender's in: order is kept.
 * Deciding    a waiter taken from a queue must still be won (sched/wait.h): its deadline, or another case of its select, may
 *             have come first. Who lost is simply dropped from the queue.
 * Ordering    CH1  refs release and acquire (unref): without this the last unref could free what another is still reading.
 * Cost        an operation that does not block takes the lock and never enters the scheduler: the P stays a token in the M.
 *             MAG_TRY on a full or empty channel does not take the lock.
 * Rejected    a lock-free ring: with two queues of waiters beside it, each operation would need three atomics; the lock is one
 *             and a store.
 */
#include "sync/chan.h"
#include "base/panic.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

static inline void copy(void *to, const void *from, size_t n)
{
    if (likely(n == 8))
        memcpy(to, from, 8);
    else if (n == 4)
        memcpy(to, from, 4);
    else if (n != 0)
        memcpy(to, from, n);
}

/* ---- queues ---- */

static inline void unlink_locked(struct chan_queue *q, struct chan_wait *x)
{
    if (x->prev == NULL)
        at_ptr_store_rlx(&q->first, x->next);
    else
        x->prev->next = x->next;
    if (x->next == NULL)
        q->last = x->prev;
    else
        x->next->prev = x->prev;
    at_32_store_rlx(&x->queued, QUEUED_NOT);
}

void mag__chan_leave(struct chan_wait *x)
{
    if (at_32_load_rlx(&x->queued) == QUEUED_NOT)
        return;
    mag__spin_take(&x->c->lock);
    if (at_32_load_rlx(&x->queued) == QUEUED_IN)
        unlink_locked(x->send ? &x->c->senders : &x->c->receivers, x);
    mag__spin_give(&x->c->lock);
}

/* The first who still waits. It is decided; *ready: its waker makes it runnable. */
static inline struct chan_wait *take_locked(struct chan_queue *q, bool *ready)
{
    struct chan_wait *x;
    while ((x = at_ptr_load_rlx(&q->first)) != NULL) {
        at_ptr_store_rlx(&q->first, x->next);
        if (x->next == NULL)
            q->last = NULL;
        else
            x->next->prev = NULL;
        enum decided d = waiter_decide(x->w, WAIT_WOKEN);
        if (likely(d != DECIDED_LOST)) {
            *ready = d == DECIDED_READY;
            return x;
        }
        at_32_store_rlx(&x->queued, QUEUED_TAKEN);
    }
    return NULL;
}

/* What the taken one will see when it wakes up: its stack is its own again as soon as it runs. Who is to be made runnable, or NULL. */
static inline struct waiter *tell(struct chan_wait *x, int result, bool ready)
{
    struct waiter *w = x->w;
    w->fired = x->index;
    w->result = result;
    at_32_store_rlx(&x->queued, ready ? QUEUED_NOT : QUEUED_TAKEN);
    return ready ? w : NULL;
}

/* ---- the two operations ---- */

static inline char *slot(mag_chan *c, size_t i) { return c->buf + (i >= c->cap ? i - c->cap : i) * c->elem; }

static ALWAYS_INLINE int send_locked(mag_chan *c, const void *elem, struct waiter **woken)
{
    bool ready;
    struct chan_wait *x;
    if (unlikely(at_32_load_rlx(&c->closed) != 0))
        return -EPIPE;
    if (chan_some_wait(&c->receivers) && (x = take_locked(&c->receivers, &ready)) != NULL) {
        if (likely(x->elem != NULL))
            copy(x->elem, elem, c->elem);
        *woken = tell(x, 0, ready);
        return 0;
    }
    uint64_t n = at_64_load_rlx(&c->count);
    if (n == c->cap)
        return CHAN_WOULD_BLOCK;
    copy(slot(c, c->head + n), elem, c->elem);
    at_64_store_rlx(&c->count, n + 1);
    return 0;
}

static ALWAYS_INLINE int recv_locked(mag_chan *c, void *elem, struct waiter **woken)
{
    bool ready;
    struct chan_wait *x;
    uint64_t n = at_64_load_rlx(&c->count);
    if (n != 0) {
        if (likely(elem != NULL))
            copy(elem, slot(c, c->head), c->elem);
        c->head = c->head + 1 == c->cap ? 0 : c->head + 1;
        if (chan_some_wait(&c->senders) && (x = take_locked(&c->senders, &ready)) != NULL) {
            copy(slot(c, c->head + n - 1), x->elem, c->elem);
            *woken = tell(x, 0, ready);
        } else {
            at_64_store_rlx(&c->count, n - 1);
        }
        return 0;
    }
    if (chan_some_wait(&c->senders) && (x = take_locked(&c->senders, &ready)) != NULL) {
        if (likely(elem != NULL))
            copy(elem, x->elem, c->elem);
        *woken = tell(x, 0, ready);
        return 0;
    }
    return at_32_load_rlx(&c->closed) != 0 ? -EPIPE : CHAN_WOULD_BLOCK;
}

int mag__chan_send_locked(mag_chan *c, const void *elem, struct waiter **woken) { return send_locked(c, elem, woken); }
int mag__chan_recv_locked(mag_chan *c, void *elem, struct waiter **woken) { return recv_locked(c, elem, woken); }

/* ---- waiting ---- */

struct op {
    struct waiter w; /* first: what a goroutine's after_arg points to */
    struct chan_wait x;
};

static void leave(struct waiter *w) { mag__chan_forget(&container_of(w, struct op, w)->x); }

static void after_unlock(struct m *m, struct g *prev)
{
    (void)m;
    struct op *op = prev->after_arg;
    mag__spin_give(&op->x.c->lock);
}

static NOINLINE int wait_thread(struct op *op, int64_t deadline)
{
    mag_chan *c = op->x.c;
    waiter_init_thread(&op->w, leave);
    mag__chan_enqueue_locked(&op->x);
    mag__spin_give(&c->lock);
    mag__wait_thread(&op->w, deadline);
    bool late = waiter_outcome(&op->w) == WAIT_LATE;
    if (late || op->w.result == -ESHUTDOWN)
        mag__chan_leave(&op->x); /* somebody may have it in hand, under the lock, though he did not decide it */
    return late ? -ETIMEDOUT : op->w.result;
}

static NOINLINE int wait_until(struct m *m, struct op *op, enum g_reason why, int64_t deadline)
{
    mag_chan *c = op->x.c;
    waiter_init(&op->w, m_curg(m), true, leave);
    mag__chan_enqueue_locked(&op->x);
    mag__spin_give(&c->lock);
    int r = 0;
    if (deadline == MAG_FOREVER || mag__wait_arm(m, &op->w, deadline)) {
        m = mag__wait_park(m, &op->w, why);
        mag__wait_disarm(&op->w);
        r = wait_error(waiter_outcome(&op->w));
    } else if (waiter_decide(&op->w, WAIT_LATE) != DECIDED_LOST) {
        r = -ENOMEM; /* otherwise it was served meanwhile */
    }
    mag__chan_leave(&op->x); /* served or not: who decided it may still be copying, under the lock */
    mag__token_leave(m);
    return r != 0 ? r : op->w.result;
}

static ALWAYS_INLINE int attempt(mag_chan *c, void *elem, bool send, struct waiter **woken)
{
    return send ? send_locked(c, elem, woken) : recv_locked(c, elem, woken);
}

/* Nothing to be done now: waits, with the lock held. For the two functions below, which the operations do not inline: who need not
 * wait saves no registers for it. */
static ALWAYS_INLINE int wait_locked(struct m *m, mag_chan *c, void *elem, bool send, int64_t deadline)
{
    struct op op;
    op.x.c = c;
    op.x.elem = elem;
    op.x.send = send;
    op.x.w = &op.w;
    op.x.index = 0;
    if (unlikely(m == NULL))
        return wait_thread(&op, deadline);
    enum g_reason why = send ? WAIT_SEND : WAIT_RECEIVE;
    if (unlikely(m_in_rt(m)))
        mag__park_misused(send ? "mag_chan_send" : "mag_chan_recv");
    if (unlikely(mag__token_enter(m) == NULL)) { /* it may have to leave the thread: not with the lock */
        mag__spin_give(&c->lock);
        m = mag__park_regain(m);
        mag__spin_take(&c->lock);
        struct waiter *woken = NULL;
        int r = send ? mag__chan_send_locked(c, elem, &woken) : mag__chan_recv_locked(c, elem, &woken);
        if (r != CHAN_WOULD_BLOCK) {
            mag__spin_give(&c->lock);
            mag__token_leave(m);
            mag__wait_ready_one(mag__m_self(), woken);
            return r;
        }
    }
    if (deadline != MAG_FOREVER || g_may_cancel(m_curg(m)))
        return wait_until(m, &op, why, deadline);
    waiter_init(&op.w, m_curg(m), false, leave);
    mag__chan_enqueue_locked(&op.x);
    m = mag__park_locked(m, why, after_unlock, &op);
    mag__token_leave(m);
    return op.w.result;
}

static int send_waits(struct m *m, void *c, void *elem, int64_t deadline, int64_t unused)
{
    (void)unused;
    return wait_locked(m, c, elem, true, deadline);
}

static int recv_waits(struct m *m, void *c, void *elem, int64_t deadline, int64_t unused)
{
    (void)unused;
    return wait_locked(m, c, elem, false, deadline);
}

static ALWAYS_INLINE int operate(mag_chan *c, void *elem, bool send, int64_t deadline)
{
    struct m *m = mag__m_self();
    struct waiter *woken = NULL;
    if (m_is_cancelled(m))
        return -ECANCELED;
    bool pinned = mag__wait_pin(m);
    mag__spin_take(&c->lock);
    int r = attempt(c, elem, send, &woken);
    if (r == CHAN_WOULD_BLOCK && deadline > MAG_TRY) {
        mag__wait_unpin(pinned);
        return mag__arch_detour(m, c, elem, deadline, 0, send ? send_waits : recv_waits);
    }
    mag__spin_give(&c->lock);
    if (woken != NULL)
        mag__wait_ready_one(m, woken);
    mag__wait_unpin(pinned);
    return r != CHAN_WOULD_BLOCK ? r : -ETIMEDOUT;
}

/* ---- the public calls ---- */

mag_chan *mag_chan_new(size_t elem_size, size_t capacity)
{
    size_t size;
    if (__builtin_mul_overflow(elem_size, capacity, &size) || __builtin_add_overflow(size, sizeof(mag_chan), &size) ||
        __builtin_add_overflow(size, CACHE_LINE, &size) || size > PTRDIFF_MAX)
        return NULL;
    mag_chan *c = aligned_alloc(CACHE_LINE, size / CACHE_LINE * CACHE_LINE);
    if (c == NULL)
        return NULL;
    memset(c, 0, sizeof *c);
    c->elem = elem_size;
    c->cap = capacity;
    at_32_store_rlx(&c->refs, 1);
    return c;
}

mag_chan *mag_chan_ref(mag_chan *c)
{
    if (c != NULL)
        at_32_add_rlx(&c->refs, 1);
    return c;
}

void mag_chan_unref(mag_chan *c)
{
    if (c == NULL)
        return;
    uint32_t before = at_32_add_acqrel(&c->refs, (uint32_t)-1); /* CH1 */
    if (before == 0)
        mag__panic_misuse("mag_chan_unref: more unrefs than refs");
    if (before != 1)
        return;
    if (chan_some_wait(&c->receivers) || chan_some_wait(&c->senders))
        mag__panic_misuse("mag_chan_unref: the last reference goes while somebody waits on the channel");
    free(c);
}

int mag_chan_send(mag_chan *c, const void *elem, mag_time deadline)
{
    if (unlikely(c == NULL))
        return mag__chan_never(deadline);
    if (deadline <= MAG_TRY && !mag__chan_may_send(c))
        return m_is_cancelled(mag__m_self()) ? -ECANCELED : -ETIMEDOUT;
    return operate(c, (void *)(uintptr_t)elem, true, deadline);
}

int mag_chan_recv(mag_chan *c, void *elem, mag_time deadline)
{
    if (unlikely(c == NULL))
        return mag__chan_never(deadline);
    if (deadline <= MAG_TRY && !mag__chan_may_recv(c))
        return m_is_cancelled(mag__m_self()) ? -ECANCELED : -ETIMEDOUT;
    return operate(c, elem, false, deadline);
}

int mag_chan_close(mag_chan *c)
{
    if (c == NULL)
        return -EINVAL;
    struct m *m = mag__m_self();
    struct waiter *woken = NULL, **end = &woken;
    bool pinned = mag__wait_pin(m), ready;
    mag__spin_take(&c->lock);
    int r = at_32_load_rlx(&c->closed) != 0 ? -EPIPE : 0;
    at_32_store_rlx(&c->closed, 1);
    struct chan_wait *x;
    while ((x = take_locked(&c->receivers, &ready)) != NULL || (x = take_locked(&c->senders, &ready)) != NULL) {
        struct waiter *w = tell(x, -EPIPE, ready);
        if (w == NULL)
            continue;
        w->next = NULL;
        *end = w;
        end = &w->next;
    }
    mag__spin_give(&c->lock);
    mag__wait_ready_all(m, woken);
    mag__wait_unpin(pinned);
    return r;
}

size_t mag_chan_len(const mag_chan *c) { return c == NULL ? 0 : (size_t)at_64_load_rlx(&c->count); }
size_t mag_chan_cap(const mag_chan *c) { return c == NULL ? 0 : c->cap; }
