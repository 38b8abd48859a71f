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
int mag__io_begin(struct io *io, int fd, enum poll_dir dir, int64_t deadline, const char *function);
ssize_t mag__io_end(struct io *io, ssize_t result);

/* What the kernel said, as magpie says it: read at once, before anything may switch. */
static inline ssize_t io_result(ssize_t r) { return likely(r >= 0) ? r : -errno; }

/* The descriptor that was just opened is magpie's. If no memory can be had for it, it works as a foreign one. */
void mag__io_adopt(int fd, uint32_t flags);

/* Sleeps so long, at most until the deadline: 0 or -ECANCELED. May switch. */
int mag__io_pause(int64_t ns, int64_t deadline);

/* sock.c. */
int mag__sock_connect(int fd, const struct sockaddr *address, socklen_t size, int64_t deadline, const char *function);

#endif
