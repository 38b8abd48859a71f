/* SPDX-License-Identifier: MIT */
/* fdwait.c: a goroutine waits for one or both directions of a descriptor, a deadline, and its group's end.
 *
 * It joins the queues with its word at PREPARING (wait.h), so an event may come before it is off its stack. Who told it took it out
 * of that queue first and touches it no more: woken by an event, it need not lock anything.
 * A wait that ends by itself at the moment of an event has no event: the one who decides the word has won, and it tells the next
 * in the queue when it lost. But a goroutine that was told and does not ask the kernel must pass that on (mag__fdwait_pass).
 */
#include "sched/fdwait.h"
#include "base/panic.h"

struct fd_waiter {
    struct waiter w; /* first: what a goroutine's after_arg points to */
    unsigned n;      /* directions */
    struct poll_wait *x[2], own[2];
};

enum poll_fired mag__fdwait_fire(struct poll_wait *x)
{
    __builtin_prefetch(mag__fdwait_who(x), 1); /* it is about to be put into a queue */
    enum decided d = word_decide(x->word, x->ticket, WAIT_WOKEN);
    return d == DECIDED_READY ? POLL_READY : d == DECIDED_LATER ? POLL_SERVED : POLL_LOST;
}

static void leave(struct waiter *w)
{
    struct fd_waiter *q = container_of(w, struct fd_waiter, w);
    for (unsigned i = 0; i < q->n; i++)
        mag__poll_unqueue(q->x[i]);
}

/* It is in no queue any more, and whoever told it has let go of it. */
static void give_back(struct desc *d, struct fd_waiter *q)
{
    for (unsigned i = 0; i < q->n; i++)
        if (q->x[i] == &d->wait[POLL_READ])
            mag__poll_return(d, POLL_READ);
        else if (q->x[i] == &d->wait[POLL_WRITE])
            mag__poll_return(d, POLL_WRITE);
}

static int join(struct poll *p, struct desc *d, struct fd_waiter *q, const struct fd_want *want)
{
    q->n = 0;
    for (int dir = 0; dir < 2; dir++) {
        if (!want->dir[dir])
            continue;
        struct poll_wait *x = mag__poll_queue_begin(d, (enum poll_dir)dir, &q->own[q->n]);
        mag__fdwait_fill(x, &q->w, (enum poll_dir)dir, want->watch);
        int r = mag__poll_queue_end(p, d, x, want->seen[dir], want->again);
        q->x[q->n] = x;
        if (r != 0)
            return r;
        q->n++;
    }
    return 0;
}

/* It will not park after all. If it was told of something meanwhile, it asks again. */
static int give_up(struct desc *d, struct fd_waiter *q, int r)
{
    bool told = waiter_decide(&q->w, WAIT_LATE) == DECIDED_LOST && waiter_outcome(&q->w) == WAIT_WOKEN;
    leave(&q->w);
    give_back(d, q);
    return told ? 1 : r;
}

int mag__fdwait(struct desc *d, const struct fd_want *want, int64_t deadline, const char *function)
{
    struct fd_waiter q;
    struct m *m = mag__park_enter(mag__m_self(), function);
    waiter_init(&q.w, m_curg(m), true, leave);
    int r = join(&m->arena->poll, d, &q, want);
    if (r == 0 && deadline != OS_FOREVER && unlikely(!mag__wait_arm(m, &q.w, deadline)))
        r = -ENOMEM;
    if (unlikely(r != 0)) {
        r = give_up(d, &q, r);
    } else {
        check(q.n != 0);
        at_64_bump_owner(&m->p->io_waits, 1);
        m = mag__wait_park_locked_since(m, &q.w, want->dir[POLL_READ] ? WAIT_READ : WAIT_WRITE);
        at_64_bump_owner(&m->p->io_waits, (uint64_t)-1);
        __builtin_prefetch(q.x[0], 1); /* for the next wait */
        mag__wait_disarm(&q.w);
        enum wait_state how = waiter_outcome(&q.w);
        if (how != WAIT_WOKEN || q.n > 1)
            leave(&q.w);
        give_back(d, &q);
        r = how != WAIT_WOKEN ? wait_error(how) : desc_is_closing(d) ? -EBADF : 0;
    }
    mag__token_leave(m);
    return r == 1 ? 0 : r;
}

COLD void mag__fdwait_end(struct m *m, const char *function)
{
    mag__token_leave(mag__park_yield(mag__park_enter(m, function)));
}

/* ---- telling others ---- */

static void ready_all(struct poll_chain *c)
{
    struct waiter *first = NULL, **end = &first;
    for (struct poll_wait *x = c->first; x != NULL; x = x->next) {
        x->w->next = NULL;
        *end = x->w;
        end = &x->w->next;
    }
    mag__wait_ready_all(mag__m_self(), first);
}

void mag__fdwait_pass(struct desc *d, enum poll_dir dir)
{
    struct poll_chain c;
    mag__poll_chain_init(&c);
    mag__poll_pass(d, dir, &c);
    ready_all(&c);
}

int mag__fdwait_close(struct poll *p, struct desc *d)
{
    struct poll_chain c;
    mag__poll_chain_init(&c);
    int r = mag__poll_close(p, d, &c);
    ready_all(&c);
    return r;
}
