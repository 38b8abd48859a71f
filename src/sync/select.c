/* SPDX-License-Identifier: MIT */
/* select.c: the first of several channel operations; descriptors among them are the business of selectfd.c.
 *
 * Protocol    1 lock every channel of the cases, each once, in the order of their addresses
 *             2 choose one of the cases that can go on, each as likely as another; do it, unlock, done
 *             3 otherwise queue up at every channel, unlock, leave the stack
 *             4 whoever serves one case decides the waiter's word, so no second one can
 *             5 awake: leave the other queues
 * Memory      for up to FEW cases on the stack, for more from the heap, until the call returns.
 */
#include "base/panic.h"
#include "sync/select.h"

#include <errno.h>
#include <stdlib.h>

enum { FEW = 8 };

struct choice {
    struct waiter w; /* first: what a goroutine's after_arg points to */
    struct chan_wait *x;
    mag_chan **order; /* channels to lock, each once */
    size_t n, nlocks;
    struct fd_cases *fds; /* NULL: none */
};

enum { SELECT_WAITS = SELECT_AGAIN - 1 }; /* nothing can go on, and the locks are held */

static inline bool may_go_on(const mag_case *k)
{
    switch (k->kind) {
    case MAG_CASE_SEND:
        return k->chan != NULL && mag__chan_may_send(k->chan);
    case MAG_CASE_RECV:
        return k->chan != NULL && mag__chan_may_recv(k->chan);
    default:
        return k->reserved != FD_NOT_READY;
    }
}

static inline int do_locked(mag_case *k, struct waiter **woken)
{
    switch (k->kind) {
    case MAG_CASE_SEND:
        return mag__chan_send_locked(k->chan, k->elem, woken);
    case MAG_CASE_RECV:
        return mag__chan_recv_locked(k->chan, k->elem, woken);
    default:
        return k->reserved == FD_CLOSED ? -EBADF : 0;
    }
}

static ALWAYS_INLINE size_t sort_channels(mag_chan **order, const mag_case *cases, size_t n)
{
    size_t nlocks = 0;
    for (size_t i = 0; i < n; i++) {
        mag_chan *c = cases[i].chan;
        if (c == NULL || cases[i].kind > MAG_CASE_RECV)
            continue;
        size_t k = nlocks;
        while (k > 0 && order[k - 1] > c)
            k--;
        if (k > 0 && order[k - 1] == c)
            continue;
        for (size_t j = nlocks++; j > k; j--)
            order[j] = order[j - 1];
        order[k] = c;
    }
    return nlocks;
}

static ALWAYS_INLINE void lock_all(mag_chan **order, size_t n)
{
    for (size_t i = 0; i < n; i++)
        mag__spin_take(&order[i]->lock);
}

static ALWAYS_INLINE void unlock_all(mag_chan **order, size_t n)
{
    for (size_t i = n; i-- > 0;)
        mag__spin_give(&order[i]->lock);
}

static uint32_t draw(uint32_t n)
{
    static __thread struct rng rng __attribute__((tls_model("initial-exec")));
    if (unlikely(rng.state == 0))
        rng_init(&rng, mag__os_random());
    return rng_below(&rng, n);
}

/* Does one of the cases that can go on. Its index, or -1. */
static ptrdiff_t do_one_locked(mag_case *cases, size_t n, struct waiter **woken)
{
    for (;;) {
        ptrdiff_t pick = -1;
        uint32_t seen = 0;
        for (size_t i = 0; i < n; i++) {
            if (may_go_on(&cases[i]) && (++seen == 1 || draw(seen) == 0))
                pick = (ptrdiff_t)i;
        }
        if (pick < 0)
            return -1;
        mag_case *k = &cases[pick];
        int r = do_locked(k, woken);
        if (r != CHAN_WOULD_BLOCK) {
            k->result = r;
            return pick;
        }
        /* those who waited at the other end had all lost to their deadlines: they are gone from the queue now */
    }
}

static ALWAYS_INLINE void enqueue_all_locked(struct choice *s, const mag_case *cases)
{
    for (size_t i = 0; i < s->n; i++) {
        struct chan_wait *x = &s->x[i];
        x->c = cases[i].kind <= MAG_CASE_RECV ? cases[i].chan : NULL;
        x->elem = cases[i].elem;
        x->w = &s->w;
        x->index = (uint32_t)i;
        x->send = cases[i].kind == MAG_CASE_SEND;
        if (x->c != NULL)
            mag__chan_enqueue_locked(x);
    }
}

static inline void leave_all(struct choice *s)
{
    for (size_t i = 0; i < s->n; i++)
        if (s->x[i].c != NULL)
            mag__chan_leave(&s->x[i]);
    if (unlikely(s->fds != NULL))
        mag__selectfd_leave(s->fds);
}

static void leave(struct waiter *w)
{
    struct choice *s = container_of(w, struct choice, w);
    for (size_t i = 0; i < s->n; i++)
        if (s->x[i].c != NULL)
            mag__chan_forget(&s->x[i]);
}

static inline int finish(struct choice *s, mag_case *cases)
{
    leave_all(s);
    int error = wait_error(waiter_outcome(&s->w));
    if (error != 0)
        return error;
    if (s->w.result == -ESHUTDOWN)
        return -ESHUTDOWN;
    if (s->w.fired == FIRED_FD)
        return SELECT_AGAIN;
    cases[s->w.fired].result = s->w.result;
    return (int)s->w.fired;
}

/* In the runtime with a P, every lock held. */
static ALWAYS_INLINE int wait_goroutine(struct m *m, struct choice *s, mag_case *cases, mag_time deadline)
{
    waiter_init(&s->w, m_curg(m), true, leave);
    s->w.fired = FIRED_FD; /* unless a channel says otherwise, under its lock */
    enqueue_all_locked(s, cases);
    unlock_all(s->order, s->nlocks);
    int r = unlikely(s->fds != NULL) ? mag__selectfd_join(m, s->fds, &s->w) : 0;
    if (r == 0 && deadline != MAG_FOREVER && !mag__wait_arm(m, &s->w, deadline))
        r = -ENOMEM;
    if (likely(r == 0)) {
        uint64_t io = s->fds != NULL;
        at_64_bump_owner(&m->p->io_waits, io);
        m = mag__wait_park(m, &s->w, WAIT_SELECT);
        at_64_bump_owner(&m->p->io_waits, -io);
        mag__wait_disarm(&s->w);
        r = finish(s, cases);
    } else if (waiter_decide(&s->w, WAIT_LATE) == DECIDED_LOST) {
        r = finish(s, cases);
    } else {
        leave_all(s);
    }
    mag__token_leave(m);
    return r;
}

static NOINLINE int wait_thread(struct choice *s, mag_case *cases, mag_time deadline)
{
    waiter_init_thread(&s->w, leave);
    enqueue_all_locked(s, cases);
    unlock_all(s->order, s->nlocks);
    mag__wait_thread(&s->w, deadline);
    return finish(s, cases);
}

/* Every lock held, and nothing could go on. */
static ALWAYS_INLINE int wait_locked(struct m *m, struct choice *s, mag_case *cases, mag_time deadline)
{
    if (unlikely(m == NULL))
        return wait_thread(s, cases, deadline);
    if (unlikely(mag__token_enter(m) == NULL)) {
        unlock_all(s->order, s->nlocks); /* it lost its P and may have to leave the thread, for good even: not with the locks */
        m = mag__park_regain(m);
        lock_all(s->order, s->nlocks);
        struct waiter *woken = NULL;
        ptrdiff_t i = do_one_locked(cases, s->n, &woken);
        if (i >= 0) {
            unlock_all(s->order, s->nlocks);
            mag__token_leave(m);
            mag__wait_ready_one(mag__m_self(), woken);
            return (int)i;
        }
    }
    return wait_goroutine(m, s, cases, deadline);
}

/* What needs no waiting. SELECT_WAITS: nothing can go on now. */
static ALWAYS_INLINE int try_now(struct m *m, mag_chan **order, size_t *nlocks, mag_case *cases, size_t n, mag_time deadline)
{
    struct waiter *woken = NULL;
    if (m_is_cancelled(m))
        return -ECANCELED;
    bool pinned = mag__wait_pin(m);
    *nlocks = sort_channels(order, cases, n);
    lock_all(order, *nlocks);
    ptrdiff_t i = do_one_locked(cases, n, &woken);
    if (i < 0 && deadline > MAG_TRY) {
        mag__wait_unpin(pinned);
        return SELECT_WAITS;
    }
    unlock_all(order, *nlocks);
    mag__wait_ready_one(m, woken);
    mag__wait_unpin(pinned);
    return i >= 0 ? (int)i : -ETIMEDOUT;
}

/* Few channels and nothing else: the common case, with everything on the stack. */
static int few_wait(struct m *m, void *at, void *unused, int64_t n, int64_t deadline)
{
    (void)unused;
    mag_case *cases = at;
    struct chan_wait x[FEW];
    mag_chan *order[FEW];
    struct choice s;
    s.x = x;
    s.order = order;
    s.n = (size_t)n;
    s.nlocks = sort_channels(order, cases, s.n);
    s.fds = NULL;
    return wait_locked(m, &s, cases, deadline);
}

static ALWAYS_INLINE int few(mag_case *cases, size_t n, mag_time deadline)
{
    struct m *m = mag__m_self();
    mag_chan *order[FEW];
    size_t nlocks;
    int r = try_now(m, order, &nlocks, cases, n, deadline);
    return r != SELECT_WAITS ? r : mag__arch_detour(m, cases, NULL, (int64_t)n, deadline, few_wait);
}

int mag__select(mag_case *cases, size_t n, struct fd_cases *fds, int64_t deadline)
{
    struct m *m = mag__m_self();
    struct chan_wait x[FEW];
    mag_chan *order[FEW];
    struct choice s;
    void *many = NULL;
    s.x = x;
    s.order = order;
    s.n = n;
    s.fds = fds;
    if (n > FEW) {
        many = malloc(n * (sizeof *s.x + sizeof *s.order));
        if (many == NULL)
            return -ENOMEM;
        s.x = many;
        s.order = (mag_chan **)(s.x + n);
    }
    int r = try_now(m, s.order, &s.nlocks, cases, n, deadline);
    if (r == SELECT_WAITS)
        r = wait_locked(m, &s, cases, deadline);
    free(many);
    return r;
}

int mag__chan_never(int64_t deadline) { return mag__select(NULL, 0, NULL, deadline); }

int mag_select(mag_case *cases, size_t n, mag_time deadline)
{
    if (n > INT32_MAX || (n != 0 && cases == NULL))
        return -EINVAL;
    size_t fds = 0;
    for (size_t i = 0; i < n; i++) {
        if (cases[i].kind < MAG_CASE_SEND || cases[i].kind > MAG_CASE_WRITABLE)
            return -EINVAL;
        fds += cases[i].kind >= MAG_CASE_READABLE;
    }
    struct m *m = mag__m_self();
    if (m != NULL && m_in_rt(m))
        return -EPERM;
    if (likely(fds == 0 && n <= FEW))
        return few(cases, n, deadline);
    return fds == 0 ? mag__select(cases, n, NULL, deadline) : mag__selectfd(cases, n, fds, deadline);
}
