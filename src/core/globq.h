/* SPDX-License-Identifier: MIT */
/* globq.h: the global queue. Gs that belong to no P: spilled halves, spawns from foreign threads, goroutines that came
 * back without a P. One lock of its own, held for a handful of instructions however long the batch.
 *
 * Invariants  length == number of Gs in the chain, once the lock is free
 * Who         anyone. The length may be read without the lock, to decide whether to take it.
 */
#ifndef MAG_CORE_GLOBQ_H
#define MAG_CORE_GLOBQ_H

#include "core/runq.h"

struct globq {
    ON_LINE a32 length;
    struct lock lock;
    struct g *first, *last;
};

void mag__globq_put(struct globq *q, struct g *g);
void mag__globq_put_list(struct globq *q, struct g_list list);
/* Before all others, in their order: for those that must not wait behind long computations. */
void mag__globq_put_front(struct globq *q, struct g_list list);
/* At most `most` of the oldest. */
struct g_list mag__globq_get(struct globq *q, uint32_t most);

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
