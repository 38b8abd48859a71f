/* SPDX-License-Identifier: MIT */
/* chan.h: the inside of a channel, for chan.c and select.c. See chan.c. */
#ifndef MAG_SYNC_CHAN_H
#define MAG_SYNC_CHAN_H

#include "os/spin.h"
#include "sched/wait.h"

/* One who waits at one channel; on its stack. */
struct chan_wait {
    struct chan_wait *next, *prev;
    mag_chan *c;
    void *elem;       /* where the value is, or goes; NULL: it is dropped */
    struct waiter *w;
    uint32_t index;   /* select: the case */
    bool send;
    a32 queued;       /* enum; c's lock writes */
};

/* TAKEN: by one who may still be at it, under the lock, while its owner is running already. Who was parked when it was taken
 * becomes runnable after that. */
enum { QUEUED_NOT, QUEUED_IN, QUEUED_TAKEN };

struct chan_queue {
    aptr first; /* lock writes; read without it to see that nobody waits */
    struct chan_wait *last;
};

static inline bool chan_some_wait(const struct chan_queue *q) { return at_ptr_load_rlx(&q->first) != NULL; }

struct mag_chan {
    ON_LINE struct spin lock;
    a32 refs;
    size_t elem, cap;          /* never change */
    a64 count;                 /* values in the buffer; lock writes */
    size_t head;               /* of the oldest; lock */
    a32 closed;                /* lock writes */
    struct chan_queue receivers, senders;
    char buf[];
};

enum { CHAN_WOULD_BLOCK = 1 }; /* neither done nor failed */

/* Under c's lock. 0, -EPIPE, CHAN_WOULD_BLOCK. Whoever is to be made runnable comes into *woken. */
int mag__chan_send_locked(mag_chan *c, const void *elem, struct waiter **woken);
int mag__chan_recv_locked(mag_chan *c, void *elem, struct waiter **woken);

static inline void mag__chan_enqueue_locked(struct chan_wait *x)
{
    struct chan_queue *q = x->send ? &x->c->senders : &x->c->receivers;
    x->next = NULL;
    x->prev = q->last;
    if (q->last == NULL)
        at_ptr_store_rlx(&q->first, x);
    else
        q->last->next = x;
    q->last = x;
    at_32_store_rlx(&x->queued, QUEUED_IN);
}
/* Takes it out if it is still in. */
void mag__chan_leave(struct chan_wait *x);
/* The same for one who never comes back: if it is out already, the channel may be gone. */
static inline void mag__chan_forget(struct chan_wait *x)
{
    if (at_32_load_rlx(&x->queued) == QUEUED_IN)
        mag__chan_leave(x);
}

/* A channel that is NULL, a select without cases: waits for the deadline. */
int mag__chan_never(int64_t deadline);

/* Would it succeed, or fail, at once? Without the lock: true is a guess, false was true at one moment. */
static inline bool mag__chan_may_send(const mag_chan *c)
{
    return at_64_load_rlx(&c->count) < c->cap || chan_some_wait(&c->receivers) || at_32_load_rlx(&c->closed) != 0;
}

static inline bool mag__chan_may_recv(const mag_chan *c)
{
    return at_64_load_rlx(&c->count) != 0 || chan_some_wait(&c->senders) || at_32_load_rlx(&c->closed) != 0;
}

#endif
