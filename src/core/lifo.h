/* SPDX-License-Identifier: MIT */
/* lifo.h: the goroutines of one P that a spawn pushed aside, the newest first. See lifo.c. */
#ifndef MAG_CORE_LIFO_H
#define MAG_CORE_LIFO_H

#include "core/g.h"
#include "os/hostile.h"

#ifndef LIFO_SIZE
#ifdef MAG_HOSTILE
#define LIFO_SIZE 4u
#else
#define LIFO_SIZE 64u
#endif
#endif
_Static_assert((LIFO_SIZE & (LIFO_SIZE - 1)) == 0 && LIFO_SIZE >= 2, "a power of two, so that the indices may wrap");

#define LIFO_MASK (LIFO_SIZE - 1)

struct lifo {
    ON_LINE a32 top;     /* the oldest; grows, by cas of who takes it */
    ON_LINE a32 bottom;  /* one past the newest; written by the owner */
    uint32_t top_seen;   /* owner: a top that was true once; never ahead of it */
    aptr slot[LIFO_SIZE];
};

void mag__lifo_init(struct lifo *l, uint32_t start);

/* Owner: false only if there is none. */
static inline bool lifo_may_have(const struct lifo *l) { return at_32_load_rlx(&l->bottom) != l->top_seen; }

/* Owner: false when it is full. */
static inline bool mag__lifo_push_owner(struct lifo *l, struct g *g)
{
    uint32_t b = at_32_load_rlx(&l->bottom);
    if (unlikely(b - l->top_seen >= LIFO_SIZE)) {
        l->top_seen = at_32_load_acq(&l->top); /* LF2 */
        if (b - l->top_seen >= LIFO_SIZE)
            return false;
    }
    at_ptr_store_rlx(&l->slot[b & LIFO_MASK], g);
    hostile_point();
    at_32_store_rel(&l->bottom, b + 1); /* LF1 */
    return true;
}

/* Owner: the newest, or NULL. alone: there is no thief. */
static inline struct g *mag__lifo_pop_owner(struct lifo *l, bool alone)
{
    uint32_t b = at_32_load_rlx(&l->bottom) - 1;
    if (alone) {
        if (unlikely((int32_t)(b - at_32_load_rlx(&l->top)) < 0)) {
            l->top_seen = b + 1; /* the next ones need not look */
            return NULL;
        }
        at_32_store_rlx(&l->bottom, b);
        return at_ptr_load_rlx(&l->slot[b & LIFO_MASK]);
    }
    at_32_store_rel(&l->bottom, b); /* LF1 */
    at_fence_seq(); /* LF3 */
    hostile_point();
    uint32_t t = at_32_load_rlx(&l->top);
    struct g *g = NULL;
    if (likely((int32_t)(b - t) > 0))
        return at_ptr_load_rlx(&l->slot[b & LIFO_MASK]);
    if (b == t) { /* the last: a thief may want it too */
        g = at_ptr_load_rlx(&l->slot[b & LIFO_MASK]);
        if (!at_32_cas_rlx(&l->top, &t, t + 1))
            g = NULL;
    }
    at_32_store_rlx(&l->bottom, b + 1); /* and that is top */
    l->top_seen = b + 1;
    return g;
}

/* Owner: the n oldest, or as many as there are, to be moved elsewhere. 0: a thief came in between, or there is none. */
uint32_t mag__lifo_take_old_owner(struct lifo *l, struct g **to, uint32_t n);

/* Anyone: the oldest; NULL: there is none, or somebody else was faster. */
struct g *mag__lifo_steal(struct lifo *l);

/* Anyone: how many there are, now or a moment ago. */
static inline uint32_t mag__lifo_length(const struct lifo *l)
{
    uint32_t n = at_32_load_rlx(&l->bottom) - at_32_load_rlx(&l->top);
    return n <= LIFO_SIZE ? n : 0; /* from different moments */
}

#endif
