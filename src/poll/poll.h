/* SPDX-License-Identifier: MIT */
/* poll.h: descriptors: who waits on which file descriptor, and what came meanwhile. See poll.c. */
#ifndef MAG_POLL_POLL_H
#define MAG_POLL_POLL_H

#include "os/lock.h"
#include "os/spin.h"
#include "poll/backend.h"

enum poll_dir { POLL_READ, POLL_WRITE };

/* What became of one who was told: another decided first; it will see to itself; the caller makes it runnable. */
enum poll_fired { POLL_LOST, POLL_SERVED, POLL_READY };

struct waiter;

/* One who waits for one direction of one descriptor; on its stack, or lent to it by the descriptor. */
struct poll_wait {
    struct poll_wait *next, *prev; /* in the queue; next: also in a chain of READY ones */
    struct desc *d;
    enum poll_fired (*fire)(struct poll_wait *x); /* under d's lock */
    struct waiter *w;                             /* who waits, the business of the room below: where it is, on its stack */
    a64 *word;                                    /* and what of it an event needs */
    uint64_t ticket;
    uint32_t tag; /* of the file it waits for */
    uint8_t dir;  /* enum poll_dir */
    bool watch;   /* it only looks: what it is told of is the others' as well */
    bool queued;  /* d's lock */
};

struct poll_chain {
    struct poll_wait *first, **end;
    unsigned n;
};

enum desc_flag {
    DESC_OWN = 1,        /* magpie opened it: O_NONBLOCK, registered at most once, closed by mag_close */
    DESC_SOCKET = 2,     /* known to be one; own ones only */
    DESC_STREAM = 4,     /* of bytes and nothing but bytes: a short read leaves nothing behind; own ones only */
    DESC_ODD = 8,        /* something beside plain data came: a short read no longer says anything */
    DESC_NO_SOCKET = 16, /* a guess, of foreign ones */
    DESC_SLOW = 32,      /* a guess, of foreign ones: it cannot be asked not to block */
    DESC_FILE = 64,      /* on a disk: it can block whatever its mode; own ones only */
    DESC_DIRECT = 128,   /* and past the page cache */
    DESC_REGISTERED = 256, /* times BACKEND_READ, BACKEND_WRITE: with the backend; lock */
};

#define DESC_CLOSING ((uint32_t)1 << 30) /* no call comes in any more */
#define DESC_ENDING ((uint32_t)1 << 31)  /* and the last has left: the number is about to be given back */

struct poll_queue {
    struct poll_wait *first, *last;
};

/* By direction where there are two. A message that is awaited, read and answered touches the first line, and wait[POLL_READ]. */
struct desc {
    ON_LINE a32 calls; /* those inside | DESC_CLOSING | DESC_ENDING */
    a32 flags;         /* enum desc_flag */
    struct spin lock;
    a32 fd;                     /* its number: whoever gets it writes it, and always the same */
    uint32_t tag;               /* changes with the file behind the number; lock */
    a32 drained;                /* edges[POLL_READ] when a read last left nothing behind; a hint, of own stream sockets */
    a32 edges[2];               /* events so far; lock writes */
    a32 waiting[2];             /* length of the queue; lock writes */
    a32 lent[2];                /* `wait` is somebody's; lock sets it */
    struct poll_queue queue[2]; /* lock */
    struct desc *next_closing;  /* struct poll's lock */
    ON_LINE struct poll_wait wait[2]; /* for the first who waits */
};
_Static_assert(offsetof(struct desc, queue[POLL_WRITE]) == CACHE_LINE, "what a message touches is on one line");

struct poll {
    a32 on; /* everything below is there; set once */
    struct lock lock;
    aptr *chunks;         /* of descriptors, by number */
    unsigned top;         /* no chunk at or above it; lock */
    struct desc *closing; /* waiting for their last call to leave; lock */
    struct backend backend;
};

static inline bool mag__poll_is_on(const struct poll *p) { return at_32_load_acq(&p->on) != 0; /* PL2 */ }

/* The runtime's I/O is over: the backend goes, the table stays for fini. Numbers that wait for calls that were discarded are closed;
 * late: a call may still be under way, and its end will do that. */
void mag__poll_stop(struct poll *p, bool late);
void mag__poll_fini(struct poll *p);

enum { POLL_CHUNK = 1 << 12 }; /* descriptors */

/* The descriptor of a number if it is there already. */
static inline struct desc *mag__poll_peek(struct poll *p, int fd)
{
    if (unlikely(fd < 0 || !mag__poll_is_on(p)))
        return NULL;
    struct desc *chunk = at_ptr_load_acq(&p->chunks[(unsigned)fd / POLL_CHUNK]); /* PL2 */
    return unlikely(chunk == NULL) ? NULL : &chunk[(unsigned)fd % POLL_CHUNK];
}

/* In any case. *error: -EBADF, -ENOMEM or what the system said when it refused an event queue. */
struct desc *mag__poll_make(struct poll *p, int fd, int *error);
static inline struct desc *mag__poll_get(struct poll *p, int fd, int *error)
{
    struct desc *d = mag__poll_peek(p, fd);
    return likely(d != NULL && at_32_load_rlx(&d->fd) == (uint32_t)fd) ? d : mag__poll_make(p, fd, error);
}

/* A call comes in, and leaves: 0 or -EBADF. Between them the number is not closed by mag_close. */
int mag__poll_enter_late(struct desc *d);
static inline int mag__poll_enter(struct desc *d)
{
    uint32_t seen = at_32_load_rlx(&d->calls);
    if (likely((seen & (DESC_CLOSING | DESC_ENDING)) == 0) && likely(at_32_cas_acq(&d->calls, &seen, seen + 1))) /* PL3 */
        return 0;
    return mag__poll_enter_late(d);
}
void mag__poll_leave_last(struct poll *p, struct desc *d);
static inline void mag__poll_leave(struct poll *p, struct desc *d)
{
    if (unlikely(at_32_add_rel(&d->calls, (uint32_t)-1) == (DESC_CLOSING | 1))) /* PL3 */
        mag__poll_leave_last(p, d);
}

/* The file that was just opened is ours. */
void mag__poll_adopt(struct desc *d, uint32_t flags);
/* It no longer is. -EBUSY: somebody is inside. */
int mag__poll_release(struct poll *p, struct desc *d);

/* Joins the queue of x->dir unless an event has come since edges was `seen`. 0: queued; 1: an event came; -EBADF: closing;
 * -EPERM: always ready; or what the backend says. front: it has waited before, in the same call. */
int mag__poll_queue(struct poll *p, struct desc *d, struct poll_wait *x, uint32_t seen, bool front);
/* The same in two steps, between which the caller fills the record in and d is locked. It is the descriptor's own, if that is to be had, to
 * be returned when the wait is over and it is in no queue or chain; otherwise `own`. An event then needs nothing of the waiter's stack,
 * which has left every cache since. */
static inline struct poll_wait *mag__poll_queue_begin(struct desc *d, enum poll_dir dir, struct poll_wait *own)
{
    mag__spin_take(&d->lock);
    if (unlikely(at_32_load_acq(&d->lent[dir]) != 0)) /* PL4 */
        return own;
    at_32_store_rlx(&d->lent[dir], 1);
    return &d->wait[dir];
}
int mag__poll_queue_end(struct poll *p, struct desc *d, struct poll_wait *x, uint32_t seen, bool front);
static inline void mag__poll_return(struct desc *d, enum poll_dir dir) { at_32_store_rel(&d->lent[dir], 0); /* PL4 */ }
/* Takes it out if it is still in. */
void mag__poll_unqueue(struct poll_wait *x);
/* What came may be more than the caller took: tells the next one. */
void mag__poll_pass(struct desc *d, enum poll_dir dir, struct poll_chain *woken);
/* No call comes in any more, all who wait are told. -EBADF: it is closing already. When the last call has left, the number is
 * closed: now, or by that call. Own ones: what close(2) said, if it was now. */
int mag__poll_close(struct poll *p, struct desc *d, struct poll_chain *woken);

/* Tells of what the backend found. */
void mag__poll_deliver(struct poll *p, const struct backend_event *events, unsigned n, struct poll_chain *woken);

static inline void mag__poll_chain_init(struct poll_chain *c)
{
    c->first = NULL;
    c->end = &c->first;
    c->n = 0;
}

static inline uint32_t side_edges(const struct desc *d, enum poll_dir dir)
{
    return at_32_load_acq(&d->edges[dir]); /* PL1 */
}
static inline bool desc_is_closing(const struct desc *d) { return (at_32_load_rlx(&d->calls) & DESC_CLOSING) != 0; }
static inline bool desc_is(const struct desc *d, uint32_t flags)
{
    return (at_32_load_rlx(&d->flags) & flags) == flags;
}

#endif
