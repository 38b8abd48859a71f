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

static bool may_go_on(const mag_case *k)
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

static int do_locked(mag_case *k, struct waiter ***woken)
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

static void sort_channels(struct choice *s, const mag_case *cases, size_t n)
{
    s->nlocks = 0;
    for (size_t i = 0; i < n; i++) {
        mag_chan *c = cases[i].chan;
        if (c == NULL || cases[i].kind > MAG_CASE_RECV)
            continue;
        size_t k = s->nlocks;
        while (k > 0 && s->order[k - 1] > c)
            k--;
        if (k > 0 && s->order[k - 1] == c)
            continue;
        for (size_t j = s->nlocks++; j > k; j--)
            s->order[j] = s->order[j - 1];
        s->order[k] = c;
    }
}

static void lock_all(struct choice *s)
{
    for (size_t i = 0; i < s->nlocks; i++)
        mag__spin_take(&s->order[i]->lock);
}

static void unlock_all(struct choice *s)
{
    for (size_t i = s->nlocks; i-- > 0;)
        mag__spin_give(&s->order[i]->lock);
}

static uint32_t draw(uint32_t n)
{
    static __thread struct rng rng __attribute__((tls_model("initial-exec")));
    if (unlikely(rng.state == 0))
        rng_init(&rng, mag__os_random());
    return rng_below(&rng, n);
}

/* Does one of the cases that can go on. Its index, or -1. */
static ptrdiff_t do_one_locked(mag_case *cases, size_t n, struct waiter ***woken)
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

static void enqueue_all_locked(struct choice *s, const mag_case *cases)
{
    for (size_t i = 0; i < s->n; i++) {
        struct chan_wait *x = &s->x[i];
        *x = (struct chan_wait){.c = cases[i].kind <= MAG_CASE_RECV ? cases[i].chan : NULL,
                                .elem = cases[i].elem,
                                .w = &s->w,
                                .index = (uint32_t)i,
                                .send = cases[i].kind == MAG_CASE_SEND};
        if (x->c != NULL)
            mag__chan_enqueue_locked(x);
    }
}

static void leave_all(struct choice *s)
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

static ptrdiff_t finish(struct choice *s, mag_case *cases)
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
    return (ptrdiff_t)s->w.fired;
}

/* In the runtime with a P, every lock held. */
static ptrdiff_t wait_goroutine(struct m *m, struct choice *s, mag_case *cases, mag_time deadline)
{
    waiter_init(&s->w, m_curg(m), true, leave);
    s->w.fired = FIRED_FD; /* unless a channel says otherwise, under its lock */
    enqueue_all_locked(s, cases);
    unlock_all(s);
    ptrdiff_t r = unlikely(s->fds != NULL) ? mag__selectfd_join(m, s->fds, &s->w) : 0;
    if (r == 0 && deadline != MAG_FOREVER && !mag__wait_arm(m, &s->w, deadline))
        r = -ENOMEM;
    if (r == 0) {
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

static ptrdiff_t wait_thread(struct choice *s, mag_case *cases, mag_time deadline)
{
    waiter_init_thread(&s->w, leave);
    enqueue_all_locked(s, cases);
    unlock_all(s);
    mag__wait_thread(&s->w, deadline);
    return finish(s, cases);
}

static ptrdiff_t choose(struct choice *s, mag_case *cases, mag_time deadline)
{
    struct m *m = mag__m_self();
    struct waiter *woken = NULL, **end = &woken;
    if (m_is_cancelled(m))
        return -ECANCELED;
    bool pinned = mag__wait_pin(m), entered = false;
    sort_channels(s, cases, s->n);
    for (;;) {
        lock_all(s);
        ptrdiff_t i = do_one_locked(cases, s->n, &end);
        if (i >= 0 || deadline <= MAG_TRY) {
            unlock_all(s);
            if (entered)
                mag__token_leave(m);
            mag__wait_ready_all(m, woken);
            mag__wait_unpin(pinned);
            return i >= 0 ? i : -ETIMEDOUT;
        }
        if (m == NULL)
            break;
        if (entered || mag__token_enter(m) != NULL)
            break;
        unlock_all(s); /* it lost its P and may have to leave the thread, for good even: not with the locks */
        mag__wait_unpin(pinned);
        pinned = false;
        m = mag__park_regain(m);
        entered = true;
    }
    mag__wait_unpin(pinned);
    return m != NULL ? wait_goroutine(m, s, cases, deadline) : wait_thread(s, cases, deadline);
}

int mag__select(mag_case *cases, size_t n, struct fd_cases *fds, int64_t deadline)
{
    struct chan_wait few[FEW];
    mag_chan *few_order[FEW];
    struct choice s = {.x = few, .order = few_order, .n = n, .fds = fds};
    void *many = NULL;
    if (n > FEW) {
        many = malloc(n * (sizeof *s.x + sizeof *s.order));
        if (many == NULL)
            return -ENOMEM;
        s.x = many;
        s.order = (mag_chan **)(s.x + n);
    }
    ptrdiff_t r = choose(&s, cases, deadline);
    free(many);
    return (int)r;
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
    return likely(fds == 0) ? mag__select(cases, n, NULL, deadline) : mag__selectfd(cases, n, fds, deadline);
}
