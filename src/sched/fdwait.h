/* SPDX-License-Identifier: MIT */
/* fdwait.h: a goroutine waits for a descriptor. See fdwait.c. */
#ifndef MAG_SCHED_FDWAIT_H
#define MAG_SCHED_FDWAIT_H

#include "poll/poll.h"
#include "sched/wait.h"

/* What a call waits for. `seen` is of before it last asked the kernel. */
struct fd_want {
    bool dir[2];
    uint32_t seen[2];
    bool watch; /* it takes nothing */
    bool again; /* it has waited before: it goes to the front */
};

/* From user code, inside the descriptor. 0: ask the kernel again; -EBADF: closed; -ETIMEDOUT; -ECANCELED; -EPERM: such a file is
 * always ready; -ENOMEM or what the backend says. May switch. */
int mag__fdwait(struct desc *d, const struct fd_want *want, int64_t deadline, const char *function);

/* The record of a goroutine's wait, in whatever queue it is to be. */
enum poll_fired mag__fdwait_fire(struct poll_wait *x);
static inline void mag__fdwait_fill(struct poll_wait *x, struct waiter *w, enum poll_dir dir, bool watch)
{
    x->fire = mag__fdwait_fire;
    x->w = w;
    x->word = w->word;
    x->ticket = w->ticket;
    x->dir = (uint8_t)dir;
    x->watch = watch;
}
static inline struct g *mag__fdwait_who(const struct poll_wait *x) { return container_of(x->word, struct g, wait); }

/* From user code: the runtime stops, and this goroutine with it. It does not come back, with its P or without. */
void mag__fdwait_end(struct m *m, const char *function);

/* From user code: the next who waits for this direction is told, as the caller may have left something, or has taken nothing. */
void mag__fdwait_pass(struct desc *d, enum poll_dir dir);
/* From user code, by any thread for which the runtime stays. */
int mag__fdwait_close(struct poll *p, struct desc *d);

#endif
