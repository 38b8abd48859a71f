/* SPDX-License-Identifier: MIT */
/* order.h: in which order a thief visits the others: a random start and a random stride that shares no factor with their
 * number, so that each is visited exactly once a round and no two thieves march in step. */
#ifndef MAG_CORE_ORDER_H
#define MAG_CORE_ORDER_H

#include "base/rng.h"

struct order {
    uint32_t n;
    uint32_t nstrides;
    uint16_t stride[];
};

struct order_walk {
    uint32_t at, stride, n, left;
};

/* NULL: no memory. Free it with free(). */
struct order *mag__order_new(uint32_t n);

static inline struct order_walk mag__order_begin(const struct order *o, struct rng *r)
{
    return (struct order_walk){
        .at = rng_below(r, o->n), .stride = o->stride[rng_below(r, o->nstrides)], .n = o->n, .left = o->n};
}

static inline bool mag__order_next(struct order_walk *w, uint32_t *at)
{
    if (w->left == 0)
        return false;
    w->left--;
    *at = w->at;
    w->at += w->stride;
    if (w->at >= w->n)
        w->at -= w->n;
    return true;
}

#endif
