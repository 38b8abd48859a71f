/* SPDX-License-Identifier: MIT */
/* uring.c: transfers past the page cache, which the kernel does by itself (io_uring).
 *
 * What        a goroutine leaves its request, on its stack, in the inbox and parks. One thread submits what it finds there,
 *             sleeps until the kernel has done something, and makes the goroutines of it runnable. It begins with the first
 *             request and lasts as long as the runtime.
 * The bell    an eventfd that the ring watches: whoever leaves a request while the thread sleeps rings it.
 * When        only when many are under way (file.c): for a few, a thread each is quicker.
 * Never stuck requests say RWF_NOWAIT: the kernel begins them at once, or refuses (-EAGAIN) and the goroutine's own thread does it,
 *             so that a disk whose queue is full holds up nobody else. What can still hold the thread up is a buffer that is
 *             itself a page on a slow disk, mapped or swapped out.
 * Where not   no ring can be had (an old kernel, a seccomp filter, io_uring_disabled, no memory): found out once a run, and
 *             every transfer is a call that blocks.
 * The end     requests in flight write to stacks. The runtime asks the kernel to give them up, waits for it, and keeps every stack
 *             if that takes longer than its deadline: then the thread is one of the arena's last users.
 * Ordering    UR1  inbox cas release (post) -> inbox xchg acquire (collect): without this a request could be seen unmade.
 *             UR2  inbox or stop write, fence, read asleep or phase (post, stop) <-> asleep := 1, fence, read inbox and stop
 *                  (rest): without this the thread could sleep on a request.
 *             UR3  uring, phase release (begin, main) -> acquire (transfer, stop): without this a request could be left in a
 *                  ring that is not there.
 *             UR4  gone release (begin, main) -> gone acquire (end): without this a stack could go while the thread uses it.
 * Rejected    submitting from the goroutine's own thread: the completion interrupts whatever runs there by then, and foreign
 *             code sees its sleeps end early (EINTR).
 *             a thread of the kernel that submits (SQPOLL): it spins after each request for as long as it was told to.
 *             fsync, and reads and writes through the page cache: docs/design.md has the figures.
 */
#include "io/uring.h"
#include "base/panic.h"

#include <liburing.h>
#include <poll.h>
#include <stdlib.h>
#include <sys/eventfd.h>
#include <sys/uio.h>
#include <unistd.h>
#ifdef MAG_VALGRIND
#include <valgrind/valgrind.h>
#endif

enum { ENTRIES = 256, MOST = 0x7ffff000 };
enum { FOR_NOBODY, FOR_BELL }; /* user data that are no address */
enum phase { PHASE_STARTS, PHASE_ON, PHASE_NEVER };

struct request {
    struct waiter w; /* first: what a goroutine's after_arg points to */
    struct request *next;
    struct uring *u;
    const struct piece *piece;
    int fd;
    int result; /* the thread writes */
};

struct uring {
    a32 phase; /* enum phase */
    ON_LINE aptr inbox;
    a32 asleep, stop;
    int bell;
    struct os_thread thread;
    a32 gone;
    struct arena *orphan; /* rt.m_lock: the runtime ended without the thread */
    /* the thread's own */
    ON_LINE struct io_uring ring;
    uint32_t inside; /* requests in the kernel */
    bool armed;      /* the bell is watched */
    bool given_up;
};

/* ---- leaving a request ---- */

static void ring_bell(struct uring *u)
{
    int saved = errno;
    uint64_t one = 1;
    if (at_32_xchg_rlx(&u->asleep, 0) != 0 && write(u->bell, &one, sizeof one) < 0) {
        /* full after 2^64 rings: then one is pending */
    }
    errno = saved;
}

static void post(struct m *m, struct g *prev)
{
    (void)m;
    struct request *r = container_of((struct waiter *)prev->after_arg, struct request, w);
    struct uring *u = r->u;
    void *first = at_ptr_load_rlx(&u->inbox);
    do
        r->next = first;
    while (!at_ptr_cas_rel(&u->inbox, &first, r)); /* UR1: from here on it may be gone */
    at_fence_seq();                                /* UR2 */
    if (at_32_load_rlx(&u->asleep) != 0)
        ring_bell(u);
}

static void *uring_main(void *arg);

/* In the runtime, so that it has not begun to stop. */
static struct uring *begin(struct arena *a)
{
    struct uring *u;
    if (mag__os_fails() || (u = aligned_alloc(_Alignof(struct uring), sizeof *u)) == NULL)
        return NULL;
    *u = (struct uring){.bell = -1};
    void *none = NULL;
    if (!at_ptr_cas_acqrel(&a->uring, &none, u)) { /* UR3 */
        free(u);
        return at_ptr_load_acq(&a->uring); /* UR3 */
    }
    at_32_add_rlx(&mag__rt.helpers, 1);
    if (mag__os_thread_start(&u->thread, "magpie-files", uring_main, u) != 0) {
        at_32_add_rlx(&mag__rt.helpers, (uint32_t)-1);
        at_32_store_rel(&u->phase, PHASE_NEVER); /* UR3 */
        at_32_store_rel(&u->gone, 2);            /* UR4 */
    }
    return u;
}

ssize_t mag__uring_transfer(int fd, const struct piece *a, const char *function)
{
    struct m *m = mag__park_enter(mag__m_self(), function);
    struct uring *u = at_ptr_load_acq(&m->arena->uring); /* UR3 */
    if (unlikely(u == NULL))
        u = begin(m->arena);
    struct request r = {.u = u, .piece = a, .fd = fd, .result = -EAGAIN};
    if (likely(u != NULL && at_32_load_acq(&u->phase) == PHASE_ON)) { /* UR3 */
        waiter_init(&r.w, m_curg(m), false, NULL);
        m = mag__park(m, WAIT_FILE, post, &r.w);
    }
    mag__token_leave(m);
    return r.result;
}

/* ---- the thread ---- */

static struct io_uring_sqe *next_entry(struct uring *u)
{
    struct io_uring_sqe *e;
    while ((e = io_uring_get_sqe(&u->ring)) == NULL)
        if (io_uring_submit(&u->ring) < 0)
            mag__os_nap(100000); /* no memory in the kernel: it has some again when others are done */
    return e;
}

static void arm_bell(struct uring *u)
{
    struct io_uring_sqe *e = next_entry(u);
    io_uring_prep_poll_multishot(e, u->bell, POLLIN);
    io_uring_sqe_set_data64(e, FOR_BELL);
    u->armed = true;
}

static void collect(struct uring *u)
{
    struct request *r = at_ptr_xchg_acq(&u->inbox, NULL), *first = NULL; /* UR1 */
    for (struct request *next; r != NULL; r = next) {                    /* the last came first */
        next = r->next;
        r->next = first;
        first = r;
    }
    for (r = first; r != NULL; r = r->next) {
        struct io_uring_sqe *e = next_entry(u);
        const struct piece *a = r->piece;
        unsigned n = a->n < MOST ? (unsigned)a->n : MOST;
        if (a->write)
            io_uring_prep_write(e, r->fd, a->buf, n, (uint64_t)a->at);
        else
            io_uring_prep_read(e, r->fd, a->buf, n, (uint64_t)a->at);
        e->rw_flags = RWF_NOWAIT;
        io_uring_sqe_set_data(e, r);
        u->inside++;
    }
}

/* Together, and behind what waits in the global queue. If the runtime stops they are discarded anyway; one that runs after `stop` is
 * another (RUN1, FOR2: then it is seen). */
static void make_runnable(struct uring *u, struct request *first)
{
    struct g_list list = {0};
    if (first == NULL || mag__foreign_enter() != 0)
        return;
    if (at_32_load_rlx(&u->stop) != 0)
        first = NULL;
    for (struct request *r = first, *next; r != NULL; r = next) {
        struct g *g = r->w.g;
        next = r->next;
        must(waiter_decide(&r->w, WAIT_WOKEN) == DECIDED_READY);
        g_set_runnable(g);
        g_list_put(&list, g);
    }
    if (first != NULL)
        mag__wake_global_list(list);
    mag__foreign_leave();
}

static void harvest(struct uring *u)
{
    struct request *first = NULL, **end = &first;
    struct io_uring_cqe *c;
    unsigned head, n = 0;
    io_uring_for_each_cqe(&u->ring, head, c)
    {
        uint64_t whose = c->user_data;
        n++;
        if (whose == FOR_BELL && (c->flags & IORING_CQE_F_MORE) == 0)
            u->armed = false;
        if (whose == FOR_BELL || whose == FOR_NOBODY)
            continue;
        struct request *r = (struct request *)(uintptr_t)whose;
        r->result = c->res;
        r->next = NULL;
        *end = r;
        end = &r->next;
        u->inside--;
    }
    io_uring_cq_advance(&u->ring, n);
    make_runnable(u, first);
}

static void rest(struct uring *u)
{
    hostile_point();
    at_32_store_rlx(&u->asleep, 1);
    at_fence_seq(); /* UR2 */
    bool news = !u->given_up && (at_ptr_load_rlx(&u->inbox) != NULL || at_32_load_rlx(&u->stop) != 0);
    int r = io_uring_submit_and_wait(&u->ring, !news);
    at_32_store_rlx(&u->asleep, 0);
    if (r < 0 && r != -EINTR && r != -ETIME)
        mag__os_nap(100000);
}

static void give_up(struct uring *u)
{
    struct io_uring_sqe *e = next_entry(u);
    io_uring_prep_cancel64(e, 0, IORING_ASYNC_CANCEL_ANY | IORING_ASYNC_CANCEL_ALL);
    io_uring_sqe_set_data64(e, FOR_NOBODY);
    u->given_up = true;
}

static void serve(struct uring *u)
{
    for (;;) {
        bool stops = at_32_load_rlx(&u->stop) != 0;
        if (!stops)
            collect(u); /* otherwise its goroutines are discarded */
        else if (u->inside == 0)
            return;
        else if (!u->given_up)
            give_up(u);
        if (!u->armed && !stops)
            arm_bell(u);
        rest(u);
        harvest(u);
    }
}

static bool make_ring(struct uring *u)
{
#ifdef MAG_VALGRIND
    if (RUNNING_ON_VALGRIND)
        return false; /* it does not see what the kernel writes */
#endif
    if (mag__os_fails() || (u->bell = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK)) < 0 || mag__os_fails())
        return false;
    if (io_uring_queue_init(ENTRIES, &u->ring, IORING_SETUP_SINGLE_ISSUER | IORING_SETUP_DEFER_TASKRUN) != 0 &&
        io_uring_queue_init(ENTRIES, &u->ring, 0) != 0) /* before 6.1 */
        return false;
    bool good = (u->ring.features & IORING_FEAT_RSRC_TAGS) != 0; /* 5.13, which has the bell's multishot poll */
    if (!good)
        io_uring_queue_exit(&u->ring);
    return good;
}

static void *uring_main(void *arg)
{
    struct uring *u = arg;
    bool on = make_ring(u);
    at_32_store_rel(&u->phase, on ? PHASE_ON : PHASE_NEVER); /* UR3 */
    if (on) {
        serve(u);
        io_uring_queue_exit(&u->ring);
    }
    struct arena *last = NULL;
    mag__lock_take(&mag__rt.m_lock);
    bool orphan = u->orphan != NULL;
    if (orphan && --u->orphan->users == 0)
        last = u->orphan;
    if (!orphan) {
        at_32_add_rlx(&mag__rt.helpers, (uint32_t)-1);
        at_32_store_rel(&u->gone, 1); /* UR4 */
    }
    mag__lock_give(&mag__rt.m_lock);
    if (!orphan) {
        mag__os_futex_wake(&u->gone, 1);
        return NULL;
    }
    if (last != NULL)
        mag__arena_free(last);
    if (u->bell >= 0)
        close(u->bell);
    free(u);
    return NULL;
}

/* ---- the end ---- */

void mag__uring_stop(struct arena *a)
{
    struct uring *u = at_ptr_load_acq(&a->uring); /* UR3 */
    if (u == NULL)
        return;
    at_32_store_rlx(&u->stop, 1);
    at_fence_seq();                            /* UR2 */
    if (at_32_load_acq(&u->phase) == PHASE_ON) /* UR3 */
        ring_bell(u);
}

bool mag__uring_end(struct arena *a, int64_t deadline, bool stragglers)
{
    struct uring *u = at_ptr_load_acq(&a->uring); /* UR3 */
    if (u == NULL)
        return true;
    while (at_32_load_acq(&u->gone) == 0 && mag__os_now() < deadline) /* UR4 */
        mag__os_futex_wait(&u->gone, 0, deadline);
    mag__lock_take(&mag__rt.m_lock);
    uint32_t gone = at_32_load_acq(&u->gone); /* UR4 */
    if (gone == 0) {
        a->users = stragglers ? a->users + 1 : 2; /* the caller is one */
        at_32_add_rlx(&mag__rt.helpers, (uint32_t)-1);
        mag__os_thread_detach(&u->thread);
        u->orphan = a;
    }
    mag__lock_give(&mag__rt.m_lock);
    if (gone == 0) {
        mag__panic_say("a file call is still under way: its goroutine's stack stays until the kernel has done");
        return false;
    }
    if (gone == 1)
        mag__os_thread_join(&u->thread);
    if (u->bell >= 0)
        close(u->bell);
    free(u);
    at_ptr_store_rlx(&a->uring, NULL);
    return true;
}
