/* SPDX-License-Identifier: MIT */
/* sock.c: accepting, connecting, looking, closing. */
#include "io/io.h"

#include <fcntl.h>
#include <netinet/in.h>
#include <poll.h>
#include <unistd.h>

/* accept and connect may set O_NONBLOCK on a foreign socket, and leave it. */
static int set_nonblocking(struct io *io)
{
    if (desc_is(io->d, DESC_OWN))
        return 0;
    int flags = fcntl(io->fd, F_GETFL);
    if (flags < 0 || ((flags & O_NONBLOCK) == 0 && fcntl(io->fd, F_SETFL, flags | O_NONBLOCK) != 0))
        return -errno;
    return 0;
}

/* ---- accept ---- */

struct accepted {
    struct sockaddr *address;
    socklen_t *room;
    struct sockaddr_storage own; /* the caller wants none: its family is looked at */
    bool nonblocking;
};

/* Of bytes and nothing but bytes? Unix sockets stop at the borders of what was sent with them. */
static uint32_t kind_of(const struct io *io, int fd, int family)
{
    int protocol = 0;
    socklen_t n = sizeof protocol;
    if (family != AF_INET && family != AF_INET6)
        return DESC_SOCKET;
    if (desc_is(io->d, DESC_OWN | DESC_STREAM)) /* a listener of ours */
        return DESC_SOCKET | DESC_STREAM;
    bool tcp = getsockopt(fd, SOL_SOCKET, SO_PROTOCOL, &protocol, &n) == 0 && protocol == IPPROTO_TCP;
    return DESC_SOCKET | (tcp ? DESC_STREAM : 0);
}

static ssize_t ask_accept(struct io *io, void *arg)
{
    struct accepted *a = arg;
    if (!a->nonblocking) {
        int r = set_nonblocking(io);
        if (r != 0)
            return r;
        a->nonblocking = true;
    }
    socklen_t own_room = sizeof a->own, room = a->room != NULL ? *a->room : 0;
    bool theirs = a->address != NULL && a->room != NULL && room >= sizeof(sa_family_t);
    struct sockaddr *address = theirs ? a->address : (struct sockaddr *)&a->own;
    int fd = accept4(io->fd, address, theirs ? &room : &own_room, SOCK_NONBLOCK | SOCK_CLOEXEC);
    if (fd < 0)
        return errno == ECONNABORTED ? -EINTR : -errno; /* that one has gone: the next */
    mag__io_adopt(fd, kind_of(io, fd, address->sa_family));
    if (a->address != NULL && a->room != NULL)
        *a->room = theirs ? room : own_room;
    return fd;
}

int mag_accept(int fd, struct sockaddr *address, socklen_t *size, mag_time deadline)
{
    struct accepted a = {.address = address, .room = size};
    a.own.ss_family = AF_UNSPEC;
    return (int)mag__io_call(fd, POLL_READ, ask_accept, &a, deadline, "mag_accept");
}

/* ---- connect ---- */

struct connecting {
    const struct sockaddr *address;
    socklen_t size;
    bool begun;
};

/* Asking again while the handshake goes on says how it stands, and is the only way to a socket that knows it is connected. */
static ssize_t ask_connect(struct io *io, void *arg)
{
    struct connecting *a = arg;
    int r = a->begun ? 0 : set_nonblocking(io);
    if (r != 0)
        return r;
    if (connect(io->fd, a->address, a->size) == 0)
        return 0;
    switch (errno) {
    case EINPROGRESS:
    case EALREADY:
    case EINTR:
        a->begun = true;
        return -EAGAIN;
    case EAGAIN:
        return -EBUSY;
    case EISCONN:
        return a->begun ? 0 : -EISCONN;
    default:
        return -errno;
    }
}

int mag__sock_connect(int fd, const struct sockaddr *address, socklen_t size, int64_t deadline, const char *function)
{
    struct connecting a = {.address = address, .size = size};
    int64_t pause = 100 * MAG_US;
    for (;;) {
        int r = (int)mag__io_call(fd, POLL_WRITE, ask_connect, &a, deadline, function);
        if (r != -EBUSY)
            return r;
        /* a Unix socket whose listener has no room: nothing tells when it has */
        if (deadline <= MAG_TRY || mag__os_now() >= deadline)
            return -ETIMEDOUT;
        if ((r = mag__io_pause(pause, deadline)) != 0)
            return r;
        pause = pause < 10 * MAG_MS ? pause * 2 : pause;
    }
}

int mag_connect(int fd, const struct sockaddr *address, socklen_t size, mag_time deadline)
{
    return mag__sock_connect(fd, address, size, deadline, "mag_connect");
}
