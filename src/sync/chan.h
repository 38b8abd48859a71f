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
    a32 queued;       /* c's lock writes */
};

struct chan_queue {
    struct chan_wait *first, *last;
    a32 n; /* read without the lock to see that nobody waits */
};

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

/* Under c's lock. 0, -EPIPE, CHAN_WOULD_BLOCK. Whoever is to be made runnable comes to the end of *woken. */
int mag__chan_send_locked(mag_chan *c, const void *elem, struct waiter ***woken);
int mag__chan_recv_locked(mag_chan *c, void *elem, struct waiter ***woken);

void mag__chan_enqueue_locked(struct chan_wait *x);
/* Takes it out if it is still in. */
void mag__chan_leave(struct chan_wait *x);
/* The same for one who never comes back: if it is out already, the channel may be gone. */
static inline void mag__chan_forget(struct chan_wait *x)
{
    if (at_32_load_rlx(&x->queued) != 0)
        mag__chan_leave(x);
}

/* A channel that is NULL, a select without cases: waits for the deadline. */
int mag__chan_never(int64_t deadline);

/* Would it succeed, or fail, at once? Without the lock: true is a guess, false was true at one moment. */
static inline bool mag__chan_may_send(const mag_chan *c)
{
    return at_64_load_rlx(&c->count) < c->cap || at_32_load_rlx(&c->receivers.n) != 0 || at_32_load_rlx(&c->closed) != 0;
}

static inline bool mag__chan_may_recv(const mag_chan *c)
{
    return at_64_load_rlx(&c->count) != 0 || at_32_load_rlx(&c->senders.n) != 0 || at_32_load_rlx(&c->closed) != 0;
}

#endif
