/* SPDX-License-Identifier: MIT */
/* ready.c: mag_poll: waiting for a descriptor without taking anything from it; and closing, giving away. */
#include "io/io.h"

#include <poll.h>
#include <unistd.h>

/* ---- looking ---- */

static int look(int fd, int events)
{
    struct pollfd p = {.fd = fd, .events = (short)events};
    int r = poll(&p, 1, 0);
    if (r <= 0)
        return r == 0 || errno == EINTR ? 0 : -errno;
    return (p.revents & POLLNVAL) != 0 ? -EBADF : p.revents;
}

int mag_poll(int fd, int events, mag_time deadline)
{
    struct io io;
    struct fd_want want = {.dir = {(events & (POLLIN | POLLRDHUP)) != 0, (events & POLLOUT) != 0}, .watch = true};
    if ((events & ~(POLLIN | POLLOUT | POLLRDHUP)) != 0 || (!want.dir[0] && !want.dir[1]))
        return -EINVAL;
    int r = mag__io_begin(&io, fd, want.dir[0] ? POLL_READ : POLL_WRITE, deadline, "mag_poll");
    if (r != 0)
        return r;
    do {
        for (int dir = 0; dir < 2; dir++)
            want.seen[dir] = side_edges(io.d, (enum poll_dir)dir);
        r = look(fd, events);
        if (r == 0)
            r = deadline <= MAG_TRY ? -ETIMEDOUT : mag__fdwait(io.d, &want, deadline, "mag_poll");
        want.again = true;
    } while (r == 0);
    io.drained = true; /* it took nothing: there is nothing to pass on */
    return (int)mag__io_end(&io, r);
}

/* ---- closing ---- */

static int close_now(int fd) { return close(fd) == 0 || errno == EINTR ? 0 : -errno; }

static int close_in(struct poll *p, int fd)
{
    int error;
    struct desc *d = mag__poll_is_on(p) ? mag__poll_get(p, fd, &error) : NULL;
    return d != NULL ? mag__fdwait_close(p, d) : close_now(fd);
}

int mag_close(int fd)
{
    struct m *m = mag__m_self();
    if (m != NULL)
        return m_in_rt(m) ? -EPERM : close_in(&m->arena->poll, fd);
    if (mag__foreign_enter() != 0)
        return close_now(fd); /* no runtime: nobody can wait for it */
    int r = close_in(&mag__rt.arena->poll, fd);
    mag__foreign_leave();
    return r;
}

int mag_fd_release(int fd)
{
    struct m *m = mag__m_self();
    if (m == NULL || m_in_rt(m))
        return -EPERM;
    struct desc *d = mag__poll_peek(&m->arena->poll, fd);
    return d == NULL ? -EBADF : mag__poll_release(&m->arena->poll, d);
}
