/* SPDX-License-Identifier: MIT */
/* selectfd.c: descriptors in a select.
 *
 * Each round asks the kernel about all of them at once with poll(2), which does not wait, and marks the cases that are ready; then
 * the channels' select chooses among those and its own. If none can go on it queues up at the channels and, through here, at the
 * descriptors. An event there only ends the round: what it means is for the kernel to say in the next one.
 */
#include "sched/fdwait.h"
#include "sync/select.h"

#include <poll.h>
#include <stdlib.h>

struct fd_case {
    struct poll_wait x;
    struct desc *d; /* NULL: closed, or about to be */
    uint32_t seen;
    bool joined; /* it has been in the queue this round */
    mag_case *of;
};

enum { FEW = 4 };

struct fd_cases {
    size_t n;
    struct fd_case *c;
    struct pollfd *asked;
    void *many; /* where they are if they are more than FEW; a goroutine that is discarded here leaves it behind */
    struct fd_case few[FEW];
    struct pollfd few_asked[FEW];
};

static enum poll_dir dir_of(const mag_case *k) { return k->kind == MAG_CASE_READABLE ? POLL_READ : POLL_WRITE; }

/* ---- asking ---- */

static int ask(struct fd_cases *f)
{
    for (size_t i = 0; i < f->n; i++) {
        struct fd_case *c = &f->c[i];
        bool open = c->d != NULL && !desc_is_closing(c->d);
        f->asked[i] =
            (struct pollfd){.fd = open ? (int)c->of->fd : -1, .events = dir_of(c->of) == POLL_READ ? POLLIN : POLLOUT};
        c->of->reserved = open ? FD_NOT_READY : FD_CLOSED;
        if (open)
            c->seen = side_edges(c->d, dir_of(c->of));
    }
    int r;
    do
        r = poll(f->asked, f->n, 0);
    while (r < 0 && errno == EINTR);
    if (r < 0)
        return -errno;
    for (size_t i = 0; i < f->n; i++)
        if (f->asked[i].revents != 0)
            f->c[i].of->reserved = (f->asked[i].revents & POLLNVAL) != 0 ? FD_CLOSED : FD_IS_READY;
    return 0;
}

/* ---- queueing up ---- */

int mag__selectfd_join(struct m *m, struct fd_cases *f, struct waiter *w)
{
    for (size_t i = 0; i < f->n; i++) {
        struct fd_case *c = &f->c[i];
        mag__fdwait_fill(&c->x, w, dir_of(c->of), true);
        int r = mag__poll_queue(&m->arena->poll, c->d, &c->x, c->seen, false);
        if (r != 0)
            return r == 1 || r == -EBADF ? SELECT_AGAIN : r;
        c->joined = true;
    }
    return 0;
}

void mag__selectfd_leave(struct fd_cases *f)
{
    for (size_t i = 0; i < f->n; i++)
        if (f->c[i].joined) {
            mag__poll_unqueue(&f->c[i].x);
            f->c[i].joined = false;
        }
}

/* ---- the whole ---- */

static void end(struct fd_cases *f)
{
    for (size_t i = 0; i < f->n; i++)
        if (f->c[i].d != NULL)
            mag__poll_leave(&mag__m_self()->arena->poll, f->c[i].d);
    free(f->many);
}

static int begin(struct m *m, struct fd_cases *f, mag_case *cases, size_t n, size_t nfds)
{
    int r;
    f->n = 0;
    f->c = f->few;
    f->asked = f->few_asked;
    f->many = NULL;
    if (nfds > FEW) {
        if ((f->many = malloc(nfds * (sizeof *f->c + sizeof *f->asked))) == NULL)
            return -ENOMEM;
        f->c = f->many;
        f->asked = (struct pollfd *)(f->c + nfds);
    }
    for (size_t i = 0; i < n; i++) {
        if (cases[i].kind < MAG_CASE_READABLE)
            continue;
        struct fd_case *c = &f->c[f->n++];
        c->of = &cases[i];
        c->joined = false;
        r = -EBADF;
        c->d = cases[i].fd > INT32_MAX ? NULL : mag__poll_get(&m->arena->poll, (int)cases[i].fd, &r);
        if (c->d == NULL && r != -EBADF) {
            end(f);
            return r;
        }
        if (c->d != NULL && mag__poll_enter(c->d) != 0)
            c->d = NULL;
    }
    return 0;
}

int mag__selectfd(mag_case *cases, size_t n, size_t nfds, int64_t deadline)
{
    struct m *m = mag__m_self();
    struct fd_cases f;
    if (m == NULL)
        return -EPERM;
    if (m_is_cancelled(m))
        return -ECANCELED;
    if (unlikely(mag__m_is_dead(m)))
        mag__fdwait_end(m, "mag_select");
    int r = begin(m, &f, cases, n, nfds);
    if (r != 0)
        return r;
    do {
        r = ask(&f);
        if (r == 0)
            r = mag__select(cases, n, &f, deadline);
    } while (r == SELECT_AGAIN);
    end(&f);
    return r;
}
