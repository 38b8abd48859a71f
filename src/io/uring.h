/* SPDX-License-Identifier: MIT */
/* uring.h: many file calls at once, through one thread instead of one each. See uring.c. */
#ifndef MAG_IO_URING_H
#define MAG_IO_URING_H

#include "sched/wait.h"

#include <sys/types.h>

/* A transfer to or from a file, at an offset. */
struct piece {
    void *buf;
    size_t n;
    off_t at;
    bool write;
};

#ifdef MAG_URING
/* From user code, inside the descriptor: waits for the transfer whatever happens. Its result, or a refusal (-EAGAIN, -EOPNOTSUPP): it
 * can only be done by a call that blocks. May switch. */
ssize_t mag__uring_transfer(int fd, const struct piece *a, const char *function);

/* Shutdown, when nobody is in the runtime: nothing more is begun, what can be given up is. */
void mag__uring_stop(struct arena *a);
/* Waits until the kernel has let go of every buffer. False: the deadline came first, and the arena has one user more, besides its
 * stragglers if there are any. */
bool mag__uring_end(struct arena *a, int64_t deadline, bool stragglers);
#else
static inline ssize_t mag__uring_transfer(int fd, const struct piece *a, const char *function)
{
    return (void)fd, (void)a, (void)function, -EAGAIN;
}
static inline void mag__uring_stop(struct arena *a) { (void)a; }
static inline bool mag__uring_end(struct arena *a, int64_t deadline, bool stragglers)
{
    return (void)a, (void)deadline, (void)stragglers, true;
}
#endif

#endif
