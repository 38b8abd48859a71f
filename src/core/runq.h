/* SPDX-License-Identifier: MIT */
/* runq.h: the run queue of one P. See runq.c. */
#ifndef MAG_CORE_RUNQ_H
#define MAG_CORE_RUNQ_H

#include "core/g.h"
#include "os/hostile.h"

#ifndef RUNQ_SIZE
#ifdef MAG_HOSTILE
#define RUNQ_SIZE 4u
#else
#define RUNQ_SIZE 256u
#endif
#endif
_Static_assert((RUNQ_SIZE & (RUNQ_SIZE - 1)) == 0 && RUNQ_SIZE >= 2, "a power of two, so that the indices may wrap");

#define RUNQ_MASK (RUNQ_SIZE - 1)
#define RUNQ_SPILL (RUNQ_SIZE / 2 + 1) /* what leaves a full ring: the older half and the one that found no room */

struct runq {
    ON_LINE a32 head;    /* next to take; cas by the owner and by thieves */
    ON_LINE a32 tail;    /* next to fill; written by the owner */
    uint32_t head_seen;  /* owner: a head that was true once; never ahead of it */
    aptr next;           /* runnext: set by the owner, taken by anyone */
    a32 alone;           /* there is no thief: the owner needs no locked instruction; the owner clears it */
    ON_LINE aptr slot[RUNQ_SIZE];
};

/* A chain of Gs through g->next. */
struct g_list {
    struct g *first, *last;
    uint32_t n;
};

static inline void g_list_put(struct g_list *l, struct g *g)
{
    g->next = NULL;
    if (l->n++ == 0)
        l->first = g;
    else
        l->last->next = g;
    l->last = g;
}

void mag__runq_init(struct runq *q, uint32_t start);

/* Owner: false when the ring is full. */
static inline bool mag__runq_put_owner(struct runq *q, struct g *g)
{
    uint32_t t = at_32_load_rlx(&q->tail);
    if (unlikely(t - q->head_seen >= RUNQ_SIZE)) { /* a steal may have moved tail by many */
        q->head_seen = at_32_load_acq(&q->head); /* RQ2 */
        if (t - q->head_seen == RUNQ_SIZE)
            return false;
    }
    at_ptr_store_rlx(&q->slot[t & RUNQ_MASK], g);
    hostile_point();
    at_32_store_rel(&q->tail, t + 1); /* RQ1 RQ4 */
    return true;
}

/* Owner: all of them, oldest first. There is room for n. */
void mag__runq_put_many_owner(struct runq *q, struct g *const *from, uint32_t n);

/* Who has waited for a descriptor goes on through several calls, and then asks whether it is cancelled. */
static inline void runq_warm_deep(const struct g *g)
{
    uintptr_t sp = (uintptr_t)mag__arch_peek(&g->at), waited_for = (uintptr_t)mag__arch_peek(&g->warm);
    __builtin_prefetch((void *)waited_for, 1);
    __builtin_prefetch(mag__arch_peek(&g->ext));
    __builtin_prefetch(&g->wait, 1);
    for (int line = -2; line < 12; line++)
        __builtin_prefetch((void *)(sp + (uintptr_t)(64 * line)), 1);
}

/* While one runs, the next ones come into the cache: the stack of the one after it, whose descriptor is there by now, and the
 * descriptor of the one after that. */
static ALWAYS_INLINE void runq_warm(const struct runq *q, uint32_t h, uint32_t t)
{
#ifdef MAG_MODEL
    t = h; /* it has no cache */
#endif
    if (t - h <= 2)
        return;
    __builtin_prefetch(at_ptr_load_rlx(&q->slot[(h + 2) & RUNQ_MASK]), 1);
    const struct g *near = at_ptr_load_rlx(&q->slot[(h + 1) & RUNQ_MASK]);
    if (mag__arch_peek(&near->stack) == NULL) { /* it has not run yet */
        __builtin_prefetch(&near->fn, 1);
        return;
    }
    mag__arch_prefetch_stack(&near->at);
    if (at_32_load_rlx(&near->state) >> 8 == WAIT_READ)
        runq_warm_deep(near);
}

/* Owner: the oldest, or NULL. */
static ALWAYS_INLINE struct g *mag__runq_get_owner(struct runq *q)
{
    uint32_t t = at_32_load_rlx(&q->tail);
    uint32_t h = at_32_load_rlx(&q->head);
    while (t != h) {
        struct g *g = at_ptr_load_rlx(&q->slot[h & RUNQ_MASK]);
        hostile_point();
        if (at_32_load_rlx(&q->alone) != 0) {
            at_32_store_rel(&q->head, h + 1); /* RQ2 */
            runq_warm(q, h, t);
            return g;
        }
        if (likely(at_32_cas_rel(&q->head, &h, h + 1))) { /* RQ2 */
            runq_warm(q, h, t);
            return g;
        }
    }
    return NULL;
}

/* Owner: the oldest stays where it is; or NULL. */
static ALWAYS_INLINE struct g *mag__runq_oldest_owner(const struct runq *q)
{
    uint32_t h = at_32_load_rlx(&q->head);
    return h == at_32_load_rlx(&q->tail) ? NULL : at_ptr_load_rlx(&q->slot[h & RUNQ_MASK]);
}
/* Owner, alone: the oldest is taken, and g is the newest. head_seen stays behind; a put must come before it is 2^32 behind. */
static ALWAYS_INLINE void mag__runq_turn_owner(struct runq *q, struct g *g)
{
    uint32_t t = at_32_load_rlx(&q->tail);
    uint32_t h = at_32_load_rlx(&q->head);
    at_32_store_rel(&q->head, h + 1); /* RQ2 */
    at_ptr_store_rlx(&q->slot[t & RUNQ_MASK], g);
    at_32_store_rlx(&q->tail, t + 1); /* for thieves to come it is published with alone */
    runq_warm(q, h, t);
}

/* Owner, ring full: the older half and then g, to be moved elsewhere. Empty when thieves made room meanwhile. */
struct g_list mag__runq_spill_owner(struct runq *q, struct g *g);
/* The same into an array of RUNQ_SPILL, with no look at them: how many. */
uint32_t mag__runq_spill_into_owner(struct runq *q, struct g *g, struct g **to);
/* Owner: the older half into an array of RUNQ_SIZE / 2: how many. 0: a thief came in between. */
uint32_t mag__runq_half_into_owner(struct runq *q, struct g **to);
/* Owner: the whole ring and runnext, oldest first. */
struct g_list mag__runq_drain_owner(struct runq *q);

/* Owner: g becomes runnext; returns the one it displaces, or NULL. */
static inline struct g *mag__runq_next_swap_owner(struct runq *q, struct g *g)
{
    if (at_32_load_rlx(&q->alone) != 0) {
        struct g *old = at_ptr_load_rlx(&q->next);
        at_ptr_store_rlx(&q->next, g); /* nobody steals: the probe has tail */
        return old;
    }
    return at_ptr_xchg_rel(&q->next, g); /* RQ3 RQ4 */
}
/* Owner: takes runnext, or NULL. */
static inline struct g *mag__runq_next_take_owner(struct runq *q)
{
    struct g *g = at_ptr_load_rlx(&q->next);
    if (g == NULL)
        return NULL;
    if (at_32_load_rlx(&q->alone) != 0) {
        at_ptr_store_rel(&q->next, NULL); /* RQ4 */
        return g;
    }
    return at_ptr_xchg_rel(&q->next, NULL); /* RQ4 */
}
/* Anyone: takes runnext if it is g. */
bool mag__runq_next_steal(struct runq *q, struct g *g);
static inline struct g *mag__runq_next_peek(const struct runq *q) { return at_ptr_load_rlx(&q->next); }

/* The owner of `to`, which is empty: moves half of `from`, rounded up, oldest first. Returns the newest of them, to be run
 * at once, and their number in *n; the others are in `to`. NULL: fewer than `least` there. */
struct g *mag__runq_steal(struct runq *to, struct runq *from, uint32_t least, uint32_t *n);

/* Anyone: how many are in the ring, now or a moment ago. */
uint32_t mag__runq_length(const struct runq *q);
/* Anyone: true only if at one moment neither ring nor runnext held a G. */
bool mag__runq_is_empty(const struct runq *q);

/* Owner: is the ring? */
static inline bool runq_ring_is_empty(const struct runq *q) { return at_32_load_rlx(&q->head) == at_32_load_rlx(&q->tail); }

/* The same where only thieves touch it meanwhile: the caller's P is a token, and nobody puts. */
static inline bool runq_is_drained(const struct runq *q)
{
    return runq_ring_is_empty(q) && at_ptr_load_rlx(&q->next) == NULL;
}

#endif
