/* SPDX-License-Identifier: MIT */
/* msg.c: messages on sockets: recv, send and their kin, as the C library's plus a deadline.
 *
 * Sockets can be asked not to block whatever mode they are in. MSG_DONTWAIT from the caller is MAG_TRY that answers -EAGAIN, as he
 * expects. MSG_WAITALL has no effect: mag_read_full does that.
 */
#include "io/io.h"

struct msg {
    void *buf;
    size_t n;
    int flags;
    struct sockaddr *address;
    socklen_t *room;       /* recvfrom: of address */
    socklen_t size;        /* sendto: of address */
    struct msghdr *header; /* recvmsg, sendmsg */
};

static ssize_t ask_recv(struct io *io, void *arg)
{
    struct msg *a = arg;
    return io_result(recvfrom(io->fd, a->buf, a->n, a->flags, a->address, a->room));
}

static ssize_t ask_send(struct io *io, void *arg)
{
    struct msg *a = arg;
    return io_result(sendto(io->fd, a->buf, a->n, a->flags, a->address, a->size));
}

static ssize_t ask_recvmsg(struct io *io, void *arg)
{
    struct msg *a = arg;
    return io_result(recvmsg(io->fd, a->header, a->flags));
}

static ssize_t ask_sendmsg(struct io *io, void *arg)
{
    struct msg *a = arg;
    return io_result(sendmsg(io->fd, a->header, a->flags));
}

static ssize_t call(int fd, enum poll_dir dir, io_ask ask, struct msg *a, int64_t deadline, const char *function)
{
    bool once = (a->flags & MSG_DONTWAIT) != 0;
    a->flags |= dir == POLL_READ ? MSG_DONTWAIT : MSG_DONTWAIT | MSG_NOSIGNAL;
    ssize_t r = mag__io_call(fd, dir, ask, a, once ? MAG_TRY : deadline, function);
    return once && r == -ETIMEDOUT ? -EAGAIN : r;
}

ssize_t mag_recv(int fd, void *buf, size_t n, int flags, mag_time deadline)
{
    return call(fd, POLL_READ, ask_recv, &(struct msg){.buf = buf, .n = n, .flags = flags}, deadline, "mag_recv");
}

ssize_t mag_send(int fd, const void *buf, size_t n, int flags, mag_time deadline)
{
    return call(fd, POLL_WRITE, ask_send, &(struct msg){.buf = (void *)buf, .n = n, .flags = flags}, deadline,
                "mag_send");
}

ssize_t mag_recvfrom(int fd, void *buf, size_t n, int flags, struct sockaddr *from, socklen_t *size, mag_time deadline)
{
    struct msg a = {.buf = buf, .n = n, .flags = flags, .address = from, .room = size};
    return call(fd, POLL_READ, ask_recv, &a, deadline, "mag_recvfrom");
}

ssize_t mag_sendto(int fd, const void *buf, size_t n, int flags, const struct sockaddr *to, socklen_t size,
                   mag_time deadline)
{
    struct msg a = {.buf = (void *)buf, .n = n, .flags = flags, .address = (struct sockaddr *)to, .size = size};
    return call(fd, POLL_WRITE, ask_send, &a, deadline, "mag_sendto");
}

ssize_t mag_recvmsg(int fd, struct msghdr *msg, int flags, mag_time deadline)
{
    return call(fd, POLL_READ, ask_recvmsg, &(struct msg){.header = msg, .flags = flags}, deadline, "mag_recvmsg");
}

ssize_t mag_sendmsg(int fd, const struct msghdr *msg, int flags, mag_time deadline)
{
    struct msg a = {.header = (struct msghdr *)msg, .flags = flags};
    return call(fd, POLL_WRITE, ask_sendmsg, &a, deadline, "mag_sendmsg");
}
