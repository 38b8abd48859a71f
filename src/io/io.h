/* SPDX-License-Identifier: MIT */
/* io.h: what the calls on file descriptors share. See fd.c. */
#ifndef MAG_IO_IO_H
#define MAG_IO_IO_H

#include "sched/fdwait.h"

#include <sys/socket.h>
#include <sys/types.h>
#include <sys/uio.h>

/* One call on one descriptor. */
struct io {
    struct desc *d;
    int fd;
    enum poll_dir dir;
    uint32_t seen; /* edges before the kernel was last asked */
    bool drained;  /* the kernel's last answer was "would block" */
    bool waited;   /* it has waited before */
    bool guessed;  /* "would block" was what an earlier call had learnt */
    bool block;    /* the file cannot be waited for: ask so that the thread blocks */
    int64_t deadline;
    const char *function;
};

/* Asks the kernel: its answer, errors negative. Must not block unless io->block. */
typedef ssize_t (*io_ask)(struct io *io, void *arg);

/* The whole call: asks until there is an answer. -ECANCELED; -EBADF; -EPERM outside a goroutine; -ENOMEM; -ETIMEDOUT. May switch. */
ssize_t mag__io_call(int fd, enum poll_dir dir, io_ask ask, void *arg, int64_t deadline, const char *function);

/* In parts, for what asks otherwise. After anything but 0 from begin there is nothing to end. end: the result, which it returns. */
static ALWAYS_INLINE int mag__io_begin(struct io *io, int fd, enum poll_dir dir, int64_t deadline, const char *function)
{
    struct m *m = mag__m_self();
    int r;
    if (unlikely(m == NULL || m_in_rt(m)))
        return -EPERM;
    if (unlikely(mag__m_is_dead(m)))
        mag__fdwait_end(m, function);
    if (m_is_cancelled(m))
        return -ECANCELED;
    struct desc *d = mag__poll_get(&m->arena->poll, fd, &r);
    if (unlikely(d == NULL) || unlikely((r = mag__poll_enter(d)) != 0))
        return r;
    *io = (struct io){.d = d, .fd = fd, .dir = dir, .deadline = deadline, .function = function};
    return 0;
}

void mag__io_yield(const struct io *io);
static ALWAYS_INLINE ssize_t mag__io_end(struct io *io, ssize_t result)
{
    struct desc *d = io->d;
    if (unlikely(at_32_load_rlx(&d->waiting[io->dir]) != 0) && !io->drained)
        mag__fdwait_pass(d, io->dir);
    mag__poll_leave(&mag__m_self()->arena->poll, d);
    if (unlikely(at_32_load_rlx((a32 *)&mag_checkpoint_word) != 0) && io->deadline > MAG_TRY) /* it may never have to wait */
        mag__io_yield(io);
    return result;
}

/* The kernel would block. True: ask it again; false: *r is the answer. */
bool mag__io_wait(struct io *io, io_ask ask, void *arg, unsigned *told, ssize_t *r);

/* mag__io_call, into the caller: for what a server does with every message. */
static ALWAYS_INLINE ssize_t mag__io_run(int fd, enum poll_dir dir, io_ask ask, void *arg, int64_t deadline, const char *function)
{
    struct io io;
    unsigned told = 0;
    ssize_t r = mag__io_begin(&io, fd, dir, deadline, function);
    if (unlikely(r != 0))
        return r;
    for (;;) {
        io.seen = side_edges(io.d, dir);
        r = ask(&io, arg);
        if (unlikely(r == -EINTR))
            continue;
        io.drained = r == -EAGAIN;
        if (likely(!io.drained) || !mag__io_wait(&io, ask, arg, &told, &r))
            return mag__io_end(&io, r);
    }
}

/* What the kernel said, as magpie says it: read at once, before anything may switch. */
static inline ssize_t io_result(ssize_t r) { return likely(r >= 0) ? r : -errno; }

/* The descriptor that was just opened is magpie's. If no memory can be had for it, it works as a foreign one. */
void mag__io_adopt(int fd, uint32_t flags);

/* Sleeps so long, at most until the deadline: 0 or -ECANCELED. May switch. */
int mag__io_pause(int64_t ns, int64_t deadline);

/* sock.c. */
int mag__sock_connect(int fd, const struct sockaddr *address, socklen_t size, int64_t deadline, const char *function);

#endif
