/* SPDX-License-Identifier: MIT */
/* globq.h: the global queue. Gs that belong to no P: spilled halves, spawns from foreign threads, goroutines that came
 * back without a P. One lock of its own, held for a handful of instructions, or for copying a crate.
 *
 * Crates      it is a list of arrays: a spilled half of a ring comes back into a ring without a look at its goroutines, which are
 *             cold by then. (Chained through the goroutines, walking them was a quarter of the time of a million: skynet
 *             240 -> 145 ns each.)
 * Invariants  length == number of Gs in it, once the lock is free
 *             what was put first comes first, but for those that were put to the front, and for `rest` when memory was short
 * Who         anyone. The length may be read without the lock, to decide whether to take it.
 */
#ifndef MAG_CORE_GLOBQ_H
#define MAG_CORE_GLOBQ_H

#include "core/runq.h"

struct crate {
    struct crate *next;
    uint32_t from, n;              /* what is left: at[from .. from + n) */
    struct g *at[RUNQ_SPILL];
};

struct globq {
    ON_LINE a32 length;
    struct lock lock;
    struct crate *crates, *newest; /* oldest first; lock */
    struct g_list rest;            /* those for which there was no crate; lock */
    struct crate *spare;           /* empty ones; lock */
    uint32_t nspare;               /* lock */
};

void mag__globq_put(struct globq *q, struct g *g);
void mag__globq_put_list(struct globq *q, struct g_list list);
/* Before all others, in their order: for those that must not wait behind long computations. */
void mag__globq_put_front(struct globq *q, struct g_list list);
/* The oldest, or NULL. */
struct g *mag__globq_get(struct globq *q);
/* At most `most` of the oldest; how many. */
uint32_t mag__globq_get_many(struct globq *q, struct g **to, uint32_t most);

/* An empty crate to be filled and put, NULL: no memory. */
struct crate *mag__globq_new_crate(struct globq *q);
void mag__globq_put_crate(struct globq *q, struct crate *c);
/* The caller did not need it. */
void mag__globq_return_crate(struct globq *q, struct crate *c);

/* Forgets what is in it and frees its memory; it may be used again. */
void mag__globq_clear(struct globq *q);

static inline uint32_t mag__globq_length(const struct globq *q) { return at_32_load_rlx(&q->length); }
/* What one of `procs` Ps should take: its share, and no more than half a ring. */
static inline uint32_t mag__globq_share(uint32_t length, uint32_t procs)
{
    uint32_t n = length / procs + 1;
    if (n > length)
        n = length;
    return n > RUNQ_SIZE / 2 ? RUNQ_SIZE / 2 : n;
}

#endif
