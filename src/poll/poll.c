/* SPDX-License-Identifier: MIT */
/* poll.c: descriptors: a table by number, two queues each, and the events that end the waiting.
 *
 * What        an event counter and a FIFO of waiters for each direction. A call notes the counter, asks the kernel, and if that
 *             would block joins the queue unless the counter has moved: no event between the asking and the joining is lost.
 * Own         files that magpie opened are registered with the backend once, at the first wait, edge-triggered: a wait costs no
 *             system call.
 * Foreign     everybody else's are armed anew for each wait, for one event: whoever closes one with close(2) and opens another
 *             under the same number gets neither the old one's events nor misses the new one's. When arming shows that the
 *             file has changed, the tag changes, and those who wait for the old file are told of nothing but mag_close.
 * Who is told everybody who only looks, and the first who takes. Who has taken something tells the next (pass): with a datagram
 *             or a connection each, one event may stand for many. Who finds nothing comes back to the front of the queue.
 * Tags        travel with every event: one that was on its way when its file was closed is dropped.
 * Closing     calls are counted in and out. mag_close lets nobody in any more and tells those who wait; the last who leaves gives
 *             the number back. Descriptors are never freed while the runtime runs.
 * Invariants  own: registered holds every direction in which somebody waits
 *             foreign: armed for every direction in which somebody waits for the present file, or one who was told of an event
 *             of that direction has not passed it on yet
 * Ordering    PL1  edges release (event) -> edges acquire (side_edges): without this a call could count an event whose data its
 *                  system call does not see.
 *             PL2  on, chunk release (start, add_chunk) -> acquire (is_on, peek): without this a descriptor could be seen unmade.
 *             PL3  calls add release (leave), cas acquire (enter, close): without this the number could be closed before a call's
 *                  last use of it.
 *             PL4  lent release (return) -> acquire (queue_begin): without this the next one to wait could write to what the last
 *                  still reads.
 */
#include "poll/poll.h"
#include "arch/switch.h"
#include "base/panic.h"
#include "os/os.h"

#include <errno.h>
#include <stdlib.h>
#include <unistd.h>

enum { CHUNKS = 1 << 19, DESC_AHEAD = 8, WAIT_AHEAD = 4, REGISTERED_BOTH = BACKEND_READ | BACKEND_WRITE };

#define CHUNK_SIZE (POLL_CHUNK * sizeof(struct desc))
#define TABLE_SIZE (CHUNKS * sizeof(aptr))

/* ---- the table ---- */

static int start(struct poll *p)
{
    int r = 0;
    mag__lock_take(&p->lock);
    if (at_32_load_rlx(&p->on) == 0) {
        aptr *chunks = mag__os_reserve(TABLE_SIZE, 0);
        r = chunks == NULL ? -ENOMEM : mag__backend_init(&p->backend);
        if (r == 0) {
            mag__os_huge(chunks, TABLE_SIZE, false);
            p->chunks = chunks;
            at_32_store_rel(&p->on, 1); /* PL2 */
        } else if (chunks != NULL) {
            mag__os_unmap(chunks, TABLE_SIZE);
        }
    }
    mag__lock_give(&p->lock);
    return r;
}

static struct desc *add_chunk(struct poll *p, unsigned i)
{
    mag__lock_take(&p->lock);
    struct desc *chunk = at_ptr_load_rlx(&p->chunks[i]);
    if (chunk == NULL && (chunk = mag__os_reserve(CHUNK_SIZE, 0)) != NULL) {
        mag__os_huge(chunk, CHUNK_SIZE, false);
        at_ptr_store_rel(&p->chunks[i], chunk); /* PL2 */
        p->top = i < p->top ? p->top : i + 1;
    }
    mag__lock_give(&p->lock);
    return chunk;
}

static int number(const struct desc *d) { return (int)at_32_load_rlx(&d->fd); }
static unsigned registered(const struct desc *d) { return at_32_load_rlx(&d->flags) / DESC_REGISTERED; }

struct desc *mag__poll_make(struct poll *p, int fd, int *error)
{
    struct desc *d = mag__poll_peek(p, fd);
    if (d == NULL) {
        int r = fd < 0 ? -EBADF : mag__poll_is_on(p) ? 0 : start(p);
        struct desc *chunk = r == 0 ? add_chunk(p, (unsigned)fd / POLL_CHUNK) : NULL;
        if (chunk == NULL) {
            *error = r != 0 ? r : -ENOMEM;
            return NULL;
        }
        d = &chunk[(unsigned)fd % POLL_CHUNK];
    }
    if (number(d) != fd)
        at_32_store_rlx(&d->fd, (uint32_t)fd);
    return d;
}

void mag__poll_stop(struct poll *p, bool late)
{
    if (!mag__poll_is_on(p))
        return;
    for (struct desc *d = late ? NULL : p->closing; d != NULL; d = d->next_closing)
        close(number(d));
    mag__backend_fini(&p->backend);
}

void mag__poll_fini(struct poll *p)
{
    if (!mag__poll_is_on(p))
        return;
    for (unsigned i = 0; i < p->top; i++)
        if (at_ptr_load_rlx(&p->chunks[i]) != NULL)
            mag__os_unmap(at_ptr_load_rlx(&p->chunks[i]), CHUNK_SIZE);
    mag__os_unmap(p->chunks, TABLE_SIZE);
    at_32_store_rlx(&p->on, 0);
}

/* ---- calls ---- */

int mag__poll_enter_late(struct desc *d)
{
    uint32_t seen = at_32_load_rlx(&d->calls);
    for (;;) {
        if ((seen & DESC_ENDING) != 0) { /* on its way back to the kernel, which will know what the number is then */
            mag__os_nap(1000);
            seen = at_32_load_rlx(&d->calls);
        } else if ((seen & DESC_CLOSING) != 0) {
            return -EBADF;
        } else if (at_32_cas_acq(&d->calls, &seen, seen + 1)) { /* PL3 */
            return 0;
        }
    }
}

static void forget(struct poll *p, struct desc *d)
{
    mag__lock_take(&p->lock);
    for (struct desc **at = &p->closing; *at != NULL; at = &(*at)->next_closing)
        if (*at == d) {
            *at = d->next_closing;
            break;
        }
    mag__lock_give(&p->lock);
}

/* Nobody is inside, nobody can come in: the number goes back. */
static int end(struct poll *p, struct desc *d)
{
    mag__spin_take(&d->lock);
    if (registered(d) != 0) /* a duplicate, or a forked child, may keep the file: it must not speak to us any more */
        mag__backend_remove(&p->backend, number(d));
    d->tag++;
    at_32_store_rlx(&d->flags, 0);
    mag__spin_give(&d->lock);
    int r = close(number(d)) == 0 || errno == EINTR ? 0 : -errno; /* interrupted or not, the number is free */
    at_32_store_rel(&d->calls, 0);                                /* PL3 */
    return r;
}

void mag__poll_leave_last(struct poll *p, struct desc *d)
{
    uint32_t seen = DESC_CLOSING;
    must(at_32_cas_acq(&d->calls, &seen, DESC_CLOSING | DESC_ENDING)); /* PL3 */
    int saved = errno;
    forget(p, d);
    end(p, d);
    errno = saved;
}

/* ---- whose it is ---- */

void mag__poll_adopt(struct desc *d, uint32_t flags)
{
    while ((at_32_load_acq(&d->calls) & DESC_ENDING) != 0) /* PL3 */
        mag__os_nap(
            1000); /* the number's last life: its close(2) has returned it to us before the closer could say so */
    mag__spin_take(&d->lock);
    d->tag++;
    at_32_store_rlx(&d->flags, DESC_OWN | flags);
    at_32_store_rlx(&d->drained, at_32_load_rlx(&d->edges[POLL_READ]) - 1);
    mag__spin_give(&d->lock);
}

int mag__poll_release(struct poll *p, struct desc *d)
{
    mag__spin_take(&d->lock);
    uint32_t calls = at_32_load_rlx(&d->calls);
    int r = !desc_is(d, DESC_OWN) || (calls & DESC_CLOSING) != 0 ? -EBADF : calls != 0 ? -EBUSY : 0;
    if (r == 0) {
        if (registered(d) != 0)
            mag__backend_remove(&p->backend, number(d));
        d->tag++;
        at_32_store_rlx(&d->flags, 0);
    }
    mag__spin_give(&d->lock);
    return r;
}

/* ---- queues ---- */

static void link_locked(struct desc *d, struct poll_wait *x, bool front)
{
    struct poll_queue *q = &d->queue[x->dir];
    x->next = front ? q->first : NULL;
    x->prev = front ? NULL : q->last;
    *(x->prev != NULL ? &x->prev->next : &q->first) = x;
    *(x->next != NULL ? &x->next->prev : &q->last) = x;
    x->queued = true;
    at_32_bump_owner(&d->waiting[x->dir], 1);
}

static void unlink_locked(struct desc *d, struct poll_wait *x)
{
    struct poll_queue *q = &d->queue[x->dir];
    *(x->prev != NULL ? &x->prev->next : &q->first) = x->next;
    *(x->next != NULL ? &x->next->prev : &q->last) = x->prev;
    x->queued = false;
    at_32_bump_owner(&d->waiting[x->dir], (uint32_t)-1);
}

void mag__poll_unqueue(struct poll_wait *x)
{
    struct desc *d = x->d;
    mag__spin_take(&d->lock);
    if (x->queued)
        unlink_locked(d, x);
    mag__spin_give(&d->lock);
}

/* Directions in which somebody waits for the present file. */
static unsigned wanted_locked(const struct desc *d)
{
    unsigned wanted = 0;
    for (enum poll_dir dir = POLL_READ; dir <= POLL_WRITE; dir++)
        for (struct poll_wait *x = d->queue[dir].first; x != NULL; x = x->next)
            if (x->tag == d->tag) {
                wanted |= 1u << dir;
                break;
            }
    return wanted;
}

static void set_registered_locked(struct desc *d, unsigned more)
{
    if ((registered(d) & more) != more)
        at_32_or_rlx(&d->flags, more * DESC_REGISTERED);
}

static uint64_t tag_of(const struct desc *d) { return (uint64_t)d->tag << 32 | (uint32_t)number(d); }

static ALWAYS_INLINE int arm_own_locked(struct poll *p, struct desc *d, unsigned more)
{
    unsigned so_far = registered(d);
    if (likely((so_far & more) == more))
        return 0;
    int r = mag__backend_set(&p->backend, number(d), tag_of(d), so_far | more, BACKEND_EDGE, so_far != 0);
    if (r >= 0)
        set_registered_locked(d, more);
    return r < 0 ? r : 0;
}

static int arm_foreign_locked(struct poll *p, struct desc *d, unsigned more)
{
    unsigned all = wanted_locked(d) | more;
    int r = mag__backend_set(&p->backend, number(d), tag_of(d), all, BACKEND_ONCE, registered(d) != 0);
    if (r ==
        1) { /* another file than before: who waits for that one waits for nothing, and must not be told of this one's */
        d->tag++;
        at_32_and_rlx(&d->flags, (uint32_t)REGISTERED_BOTH * DESC_REGISTERED);
        r = mag__backend_set(&p->backend, number(d), tag_of(d), more, BACKEND_ONCE, true);
    }
    if (r >= 0)
        set_registered_locked(d, REGISTERED_BOTH);
    return r < 0 ? r : 0;
}

int mag__poll_queue_end(struct poll *p, struct desc *d, struct poll_wait *x, uint32_t seen, bool front)
{
    int r;
    x->d = d;
    x->queued = false;
    if ((at_32_load_rlx(&d->calls) & DESC_CLOSING) != 0)
        r = -EBADF;
    else if (at_32_load_rlx(&d->edges[x->dir]) != seen)
        r = 1;
    else
        r = desc_is(d, DESC_OWN) ? arm_own_locked(p, d, 1u << x->dir) : arm_foreign_locked(p, d, 1u << x->dir);
    if (r == 0) {
        x->tag = d->tag;
        link_locked(d, x, front);
    } else if (x == &d->wait[x->dir]) {
        mag__poll_return(d, x->dir);
    }
    mag__spin_give(&d->lock);
    return r;
}

int mag__poll_queue(struct poll *p, struct desc *d, struct poll_wait *x, uint32_t seen, bool front)
{
    mag__spin_take(&d->lock);
    return mag__poll_queue_end(p, d, x, seen, front);
}

/* ---- telling ---- */

static bool fire_locked(struct desc *d, struct poll_wait *x, struct poll_chain *woken)
{
    unlink_locked(d, x);
    enum poll_fired f = x->fire(x);
    if (f == POLL_READY) { /* it stays where it is until the caller makes it runnable */
        x->next = NULL;
        *woken->end = x;
        woken->end = &x->next;
        woken->n++;
    }
    return f != POLL_LOST;
}

/* Those who look, all of them (unless only those who take are asked for); of those who take, the first. */
static void tell_locked(struct desc *d, enum poll_dir dir, bool looking, struct poll_chain *woken)
{
    bool taken = false;
    for (struct poll_wait *x = d->queue[dir].first, *next; x != NULL; x = next) {
        next = x->next;
        if (x->tag != d->tag || (x->watch ? !looking : taken))
            continue;
        bool watch = x->watch;
        if (fire_locked(d, x, woken) && !watch)
            taken = true;
    }
}

void mag__poll_pass(struct desc *d, enum poll_dir dir, struct poll_chain *woken)
{
    mag__spin_take(&d->lock);
    tell_locked(d, dir, false, woken);
    mag__spin_give(&d->lock);
}

/* Lets nobody in any more. The number of calls inside, or -1: it is closing already. */
static int64_t shut(struct desc *d)
{
    uint32_t seen = at_32_load_rlx(&d->calls);
    do {
        if ((seen & DESC_CLOSING) != 0)
            return -1;
    } while (!at_32_cas_acq(&d->calls, &seen, seen | DESC_CLOSING | (seen == 0 ? DESC_ENDING : 0))); /* PL3 */
    return (int64_t)seen;
}

int mag__poll_close(struct poll *p, struct desc *d, struct poll_chain *woken)
{
    mag__lock_take(&p->lock); /* the last call out finds it in the list */
    int64_t inside = shut(d);
    if (inside > 0) {
        d->next_closing = p->closing;
        p->closing = d;
    }
    mag__lock_give(&p->lock);
    if (inside < 0)
        return -EBADF;
    mag__spin_take(&d->lock);
    for (enum poll_dir dir = POLL_READ; dir <= POLL_WRITE; dir++)
        while (d->queue[dir].first != NULL)
            fire_locked(d, d->queue[dir].first, woken);
    mag__spin_give(&d->lock);
    return inside == 0 ? end(p, d) : 0;
}

/* ---- events ---- */

static void deliver(struct poll *p, const struct backend_event *e, struct poll_chain *woken)
{
    struct desc *d = mag__poll_peek(p, (int)(uint32_t)e->tag);
    if (d == NULL)
        return;
    mag__spin_take(&d->lock);
    if (d->tag == (uint32_t)(e->tag >> 32)) {
        bool came[2] = {e->read, e->write};
        if (e->odd)
            at_32_or_rlx(&d->flags, DESC_ODD);
        for (enum poll_dir dir = POLL_READ; dir <= POLL_WRITE; dir++)
            if (came[dir]) {
                at_32_store_rel(&d->edges[dir], at_32_load_rlx(&d->edges[dir]) + 1); /* PL1 */
                tell_locked(d, dir, true, woken);
            }
        unsigned rest = desc_is(d, DESC_OWN) ? 0 : wanted_locked(d) & ~((unsigned)e->read | (unsigned)e->write << 1);
        if (rest != 0 && arm_foreign_locked(p, d, rest) < 0)
            for (enum poll_dir dir = POLL_READ; dir <= POLL_WRITE; dir++) /* they meet the error themselves */
                tell_locked(d, dir, true, woken);
    }
    mag__spin_give(&d->lock);
}

/* What a thousand wait with has left the cache since: that would be a thousand misses, one after the other. A goroutine that is gone
 * meanwhile is fetched in vain, and not looked at. */
static void warm(struct poll *p, const struct backend_event *events, unsigned n, unsigned i)
{
    struct desc *d;
    if (i + DESC_AHEAD < n && (d = mag__poll_peek(p, (int)(uint32_t)events[i + DESC_AHEAD].tag)) != NULL) {
        __builtin_prefetch(d, 1);
        __builtin_prefetch(&d->wait[events[i + DESC_AHEAD].read ? POLL_READ : POLL_WRITE], 1);
    }
    if (i + WAIT_AHEAD < n && (d = mag__poll_peek(p, (int)(uint32_t)events[i + WAIT_AHEAD].tag)) != NULL)
        __builtin_prefetch(mag__arch_peek(&d->wait[events[i + WAIT_AHEAD].read ? POLL_READ : POLL_WRITE].word), 1);
}

void mag__poll_deliver(struct poll *p, const struct backend_event *events, unsigned n, struct poll_chain *woken)
{
    for (unsigned i = 0; i < n; i++) {
        warm(p, events, n, i);
        deliver(p, &events[i], woken);
    }
}
