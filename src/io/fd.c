/* SPDX-License-Identifier: MIT */
/* fd.c: reading and writing any file descriptor, whoever opened it, blocking or not.
 *
 * Own         are O_NONBLOCK: plain read and write.
 * Foreign     may be in blocking mode, which is never changed. Each call is asked not to block instead: sockets by a flag of
 *             send and recv, what the kernel can by RWF_NOWAIT, the rest by looking with poll(2) first. Then another reader may be
 *             faster and the thread blocks; its P is retaken. A pipe that is writable takes PIPE_BUF bytes without blocking, and
 *             no more is written at a time.
 * Drained     a stream socket of ours that gave less than there was room for is empty. Until the next event a read need not ask
 *             again: one system call less for every message. Not after an end, an error or urgent data: what came together with
 *             the last bytes makes no event of its own.
 * SIGPIPE     is blocked in the runtime's threads; a write to a closed pipe leaves one pending, which is taken away.
 */
#include "arch/syscall.h"
#include "io/io.h"

#include <fcntl.h>
#include <limits.h>
#include <poll.h>
#include <signal.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

struct vec {
    const struct iovec *v;
    int n;
};

/* ---- the two calls that a server lives on ---- */

/* The C library's are cancellation points: two locked instructions each in a program with threads. A sanitizer wants to see them. */
static ALWAYS_INLINE ssize_t receive(int fd, void *buf, size_t n)
{
#if defined(MAG_TSAN) || defined(MAG_ASAN)
    return io_result(recv(fd, buf, n, 0));
#else
    return mag__arch_syscall6(SYS_recvfrom, fd, (long)buf, (long)n, 0, 0, 0);
#endif
}

static ALWAYS_INLINE ssize_t send_off(int fd, const void *buf, size_t n)
{
#if defined(MAG_TSAN) || defined(MAG_ASAN)
    return io_result(send(fd, buf, n, MSG_NOSIGNAL));
#else
    return mag__arch_syscall6(SYS_sendto, fd, (long)buf, (long)n, MSG_NOSIGNAL, 0, 0);
#endif
}

/* ---- not to block ---- */

/* Ours, and O_NONBLOCK means something to it. */
static bool is_obedient(const struct desc *d)
{
    return (at_32_load_rlx(&d->flags) & (DESC_OWN | DESC_FILE)) == DESC_OWN;
}

static bool is_refusal(ssize_t r) { return r == -EOPNOTSUPP || r == -ENOSYS || r == -EINVAL; }

/* The wrong end of a pipe never becomes ready. */
static bool is_wrong_end(int fd, short events)
{
    int mode = fcntl(fd, F_GETFL) & O_ACCMODE;
    return mode == (events == POLLIN ? O_WRONLY : O_RDONLY);
}

/* 0: it would not block now, as far as one can tell; -EAGAIN. */
static int look(int fd, short events)
{
    struct pollfd p = {.fd = fd, .events = events};
    int r = poll(&p, 1, 0);
    if (r == 0)
        return is_wrong_end(fd, events) ? -EBADF : -EAGAIN;
    return r < 0 ? -errno : (p.revents & POLLNVAL) != 0 ? -EBADF : 0;
}

static bool is_disk_file(int fd)
{
    struct stat s;
    return fstat(fd, &s) == 0 && (S_ISREG(s.st_mode) || S_ISBLK(s.st_mode) || S_ISDIR(s.st_mode));
}

/* ---- reading ---- */

/* Nothing, or nonsense: the kernel answers at once. */
static bool is_empty(const struct vec *a)
{
    for (int i = 0; i < a->n; i++)
        if (a->v == NULL || a->v[i].iov_len != 0)
            return a->v == NULL;
    return true;
}

static ssize_t read_slow(struct io *io, const struct vec *a)
{
    int r = is_empty(a) ? 0 : look(io->fd, POLLIN);
    if (r != 0)
        return r;
    bool disk = is_disk_file(io->fd);
    if (disk)
        mag_block_begin();
    ssize_t n = io_result(readv(io->fd, a->v, a->n));
    if (disk)
        mag_block_end();
    return n;
}

static ssize_t ask_readv(struct io *io, void *arg)
{
    const struct vec *a = arg;
    if (io->block || is_obedient(io->d))
        return io_result(readv(io->fd, a->v, a->n));
    if (!desc_is(io->d, DESC_SLOW)) {
        ssize_t r = io_result(preadv2(io->fd, a->v, a->n, -1, RWF_NOWAIT));
        if (!is_refusal(r))
            return r;
        at_32_or_rlx(&io->d->flags, DESC_SLOW);
    }
    if (!desc_is(io->d, DESC_NO_SOCKET) && !is_empty(a)) { /* a socket can always be asked, also by kernels and emulators without the above */
        struct msghdr m = {.msg_iov = (struct iovec *)a->v, .msg_iovlen = (size_t)a->n};
        ssize_t r = io_result(recvmsg(io->fd, &m, MSG_DONTWAIT));
        if (r != -ENOTSOCK)
            return r;
        at_32_or_rlx(&io->d->flags, DESC_NO_SOCKET);
    }
    return read_slow(io, a);
}

static bool is_drained(const struct io *io)
{
    const struct desc *d = io->d;
    return (at_32_load_rlx(&d->flags) & (DESC_STREAM | DESC_ODD)) == DESC_STREAM &&
           at_32_load_rlx(&d->drained) == io->seen;
}

static ALWAYS_INLINE ssize_t ask_read(struct io *io, void *arg)
{
    const struct vec *a = arg;
    struct desc *d = io->d;
    if (unlikely(io->block || !is_obedient(d)))
        return ask_readv(io, arg);
    io->guessed = is_drained(io) && io->deadline > MAG_TRY;
    if (io->guessed)
        return -EAGAIN;
    size_t room = a->v->iov_len;
    ssize_t n = desc_is(d, DESC_SOCKET) ? receive(io->fd, a->v->iov_base, room) : io_result(read(io->fd, a->v->iov_base, room));
    if (n > 0 && (size_t)n < room && desc_is(d, DESC_STREAM))
        at_32_store_rlx(&d->drained, io->seen);
    return n;
}

static NOINLINE ssize_t read_some(int fd, void *buf, size_t n, mag_time deadline, const char *function)
{
    struct iovec v = {.iov_base = buf, .iov_len = n};
    struct vec a = {.v = &v, .n = 1};
    return mag__io_run(fd, POLL_READ, ask_read, &a, deadline, function);
}

ssize_t mag_read(int fd, void *buf, size_t n, mag_time deadline) { return read_some(fd, buf, n, deadline, "mag_read"); }

ssize_t mag_readv(int fd, const struct iovec *iov, int count, mag_time deadline)
{
    struct vec a = {.v = iov, .n = count};
    return mag__io_call(fd, POLL_READ, ask_readv, &a, deadline, "mag_readv");
}

/* ---- writing ---- */

/* At most PIPE_BUF bytes, from the first vectors that have any. */
static ssize_t write_piece(int fd, const struct vec *a)
{
    int i = 0;
    while (i < a->n - 1 && a->v[i].iov_len == 0)
        i++;
    size_t n = a->n <= 0 ? 0 : a->v[i].iov_len;
    return io_result(write(fd, a->n <= 0 ? NULL : a->v[i].iov_base, n < PIPE_BUF ? n : PIPE_BUF));
}

static ssize_t write_slow(struct io *io, const struct vec *a)
{
    int r = is_empty(a) ? 0 : look(io->fd, POLLOUT);
    if (r != 0)
        return r;
    if (!is_disk_file(io->fd))
        return write_piece(io->fd, a);
    mag_block_begin();
    ssize_t n = io_result(writev(io->fd, a->v, a->n));
    mag_block_end();
    return n;
}

static ssize_t ask_foreign_writev(struct io *io, const struct vec *a)
{
    if (!desc_is(io->d, DESC_NO_SOCKET)) {
        struct msghdr m = {.msg_iov = (struct iovec *)a->v, .msg_iovlen = (size_t)a->n};
        ssize_t r = io_result(sendmsg(io->fd, &m, MSG_DONTWAIT | MSG_NOSIGNAL));
        if (r != -ENOTSOCK)
            return r;
        at_32_or_rlx(&io->d->flags, DESC_NO_SOCKET);
    }
    if (!desc_is(io->d, DESC_SLOW)) {
        ssize_t r = io_result(pwritev2(io->fd, a->v, a->n, -1, RWF_NOWAIT));
        if (!is_refusal(r))
            return r;
        at_32_or_rlx(&io->d->flags, DESC_SLOW);
    }
    return write_slow(io, a);
}

static void take_pending_sigpipe(void)
{
    sigset_t set;
    sigemptyset(&set);
    sigaddset(&set, SIGPIPE);
    sigtimedwait(&set, NULL, &(struct timespec){0});
}

static ssize_t ask_writev(struct io *io, void *arg)
{
    const struct vec *a = arg;
    if (unlikely(a->n < 0))
        return -EINVAL;
    ssize_t r;
    if (io->block) {
        r = io_result(writev(io->fd, a->v, a->n));
    } else if (desc_is(io->d, DESC_OWN | DESC_SOCKET)) {
        struct msghdr m = {.msg_iov = (struct iovec *)a->v, .msg_iovlen = (size_t)a->n};
        return io_result(sendmsg(io->fd, &m, MSG_NOSIGNAL));
    } else if (is_obedient(io->d)) {
        r = io_result(writev(io->fd, a->v, a->n));
    } else {
        r = ask_foreign_writev(io, a);
    }
    if (unlikely(r == -EPIPE))
        take_pending_sigpipe();
    return r;
}

static ALWAYS_INLINE ssize_t ask_write(struct io *io, void *arg)
{
    const struct vec *a = arg;
    if (likely(desc_is(io->d, DESC_OWN | DESC_SOCKET)))
        return send_off(io->fd, a->v->iov_base, a->v->iov_len);
    return ask_writev(io, arg);
}

static NOINLINE ssize_t write_some(int fd, const void *buf, size_t n, mag_time deadline, const char *function)
{
    struct iovec v = {.iov_base = (void *)buf, .iov_len = n};
    struct vec a = {.v = &v, .n = 1};
    return mag__io_run(fd, POLL_WRITE, ask_write, &a, deadline, function);
}

ssize_t mag_write(int fd, const void *buf, size_t n, mag_time deadline) { return write_some(fd, buf, n, deadline, "mag_write"); }

ssize_t mag_writev(int fd, const struct iovec *iov, int count, mag_time deadline)
{
    struct vec a = {.v = iov, .n = count};
    return mag__io_call(fd, POLL_WRITE, ask_writev, &a, deadline, "mag_writev");
}

/* ---- all of it ---- */

ssize_t mag_read_full(int fd, void *buf, size_t n, mag_time deadline)
{
    size_t done = 0;
    do {
        ssize_t r = read_some(fd, (char *)buf + done, n - done, deadline, "mag_read_full");
        if (r <= 0)
            return done != 0 ? (ssize_t)done : r;
        done += (size_t)r;
    } while (done < n);
    return (ssize_t)done;
}

ssize_t mag_write_full(int fd, const void *buf, size_t n, mag_time deadline)
{
    size_t done = 0;
    do {
        ssize_t r = write_some(fd, (const char *)buf + done, n - done, deadline, "mag_write_full");
        if (r <= 0)
            return done != 0 ? (ssize_t)done : r;
        done += (size_t)r;
    } while (done < n);
    return (ssize_t)done;
}
