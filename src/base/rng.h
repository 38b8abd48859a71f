/* SPDX-License-Identifier: MIT */
/* rng.h: a small, fast random generator (xorshift64*, the high half), one per owner. Not for secrets. */
#ifndef MAG_BASE_RNG_H
#define MAG_BASE_RNG_H

#include "base/compiler.h"

struct rng {
    uint64_t state; /* never 0 */
};

static inline void rng_init(struct rng *r, uint64_t seed)
{
    /* splitmix64: neighbouring seeds give unrelated states */
    seed += 0x9e3779b97f4a7c15u;
    seed = (seed ^ (seed >> 30)) * 0xbf58476d1ce4e5b9u;
    seed = (seed ^ (seed >> 27)) * 0x94d049bb133111ebu;
    seed ^= seed >> 31;
    r->state = seed ? seed : 1;
}

static inline uint32_t rng_next(struct rng *r)
{
    uint64_t x = r->state;
    x ^= x >> 12;
    x ^= x << 25;
    x ^= x >> 27;
    r->state = x;
    return (uint32_t)((x * 0x2545f4914f6cdd1du) >> 32);
}

/* Uniform in [0, n), n > 0. The bias of a multiply-shift is below n / 2^32. */
static inline uint32_t rng_below(struct rng *r, uint32_t n) { return (uint32_t)(((uint64_t)rng_next(r) * n) >> 32); }

#endif
