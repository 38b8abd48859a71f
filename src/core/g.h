/* SPDX-License-Identifier: MIT */
/* g.h: the goroutine's descriptor, and where descriptors come from.
 *
 * What        192 bytes in slabs of 2 MiB. A slab is aligned to its size, so a descriptor finds its slab by masking.
 * Invariants  a descriptor is in exactly one place: running on an M, in a queue, parked, or in a free list
 *             state == G_FREE <=> it is in a free list or has never been used
 *             stack == NULL until the first run: a goroutine that has not started costs 192 bytes and nothing else
 * Who         an owner (the thread that took it off a queue, or runs it) writes plain fields; what mag_dump and schedtrace
 *             read while the program runs is atomic, relaxed.
 * Lists       a magazine is a chain of up to MAGAZINE free descriptors. A P has two, so that a goroutine that ends and
 *             one that starts cost no shared cache line; full ones go to the heap and come back from it whole.
 */
#ifndef MAG_CORE_G_H
#define MAG_CORE_G_H

#include "magpie.h"
#include "arch/switch.h"
#include "base/atomic.h"
#include "os/hostile.h"
#include "os/lock.h"

#define G_ARGS 64 /* bytes of arguments inside the descriptor */
#define G_NAME 32 /* with the terminating zero */

enum g_state { G_FREE, G_RUNNABLE, G_RUNNING, G_WAITING };

enum g_flag {
    G_MAIN = 1u << 0,  /* its end is the end of mag_run */
    G_STARTED = 1u << 1,
    G_LOCKED = 1u << 2, /* runs only on the M whose `locked` it is */
    G_HOG = 1u << 3,    /* lost its P to a slice that was over, and has not waited its turn for it yet */
    G_ODD = 1u << 4,    /* its stack has another size, or came before its first run; or it has a name */
};

/* Why a goroutine waits, for the dump. The index of a word in mag__g_reason_name. */
enum g_reason { WAIT_NONE, WAIT_WG, WAIT_SLEEP, WAIT_SEND, WAIT_RECEIVE, WAIT_SELECT, WAIT_MUTEX, WAIT_RWMUTEX, WAIT_COND,
                WAIT_SEM, WAIT_ONCE, WAIT_GROUP, WAIT_READ, WAIT_WRITE, WAIT_FILE, WAIT_MAX };

struct locals;

/* What every call of a member looks at, and what a group begins with (sync/group.c). */
struct group_base {
    a32 cancelled; /* 0, or the cause as a positive errno */
};

/* Made when it is first needed, freed at the goroutine's end. */
struct g_ext {
    struct group_base *group;   /* of which it is a member; with the next two every call looks at it: they are on one line */
    a32 shield;                 /* > 0: cancellation waits; the goroutine writes */
    a32 spared;                 /* it failed the group itself */
    struct locals *locals;
    struct g_ext *next, **link; /* in the group; its lock */
    struct g_ext *woken;        /* of those that a cancellation has decided and not yet made runnable */
    aptr g;                     /* whose this is, once it is spawned */
};

struct g {
    /* touched at every switch */
    struct context at;   /* where it stopped; the switch knows this to be the first member */
    union {
        struct g *next;  /* in a queue or a free list */
        void *after_arg; /* waiting: what its after-step works on, and what it waits with */
        void *warm;      /* in a ring, after a wait for a descriptor: that, most likely */
    };
    union {
        void *arg;       /* before the first run */
        a64 since;       /* waiting: since when, on rt.clock */
        a64 waited;      /* runnable after a wait: what its after_arg was, for `next` has that place now */
    };
    char *stack;         /* the top of its stack, NULL before the first run */
    struct g_ext *ext;   /* what only some goroutines have; in the heap: the next magazine */
    a32 state;           /* enum g_state | enum g_reason << 8; runnable with a reason: woken, and has not run since */
    uint16_t flags;      /* enum g_flag */
    uint16_t stack_class;
    /* the copy of mag_go_copy */
    _Alignas(16) char args[G_ARGS];
    /* rarely touched */
    aptr fn;             /* a mag_fn */
    aptr created;        /* the caller of mag_go */
    a64 id;
    a64 wait;            /* sched/wait.h */
    a64 name[G_NAME / 8];
#ifdef MAG_TSAN
    void *fiber;
#endif
#ifdef MAG_ASAN
    void *fake_stack;
#endif
};

#if !defined(MAG_TSAN) && !defined(MAG_ASAN)
_Static_assert(sizeof(struct g) <= 192, "a goroutine before its first run is 192 bytes");
#endif
_Static_assert(offsetof(struct g, at) == 0, "arch/switch.h");

static inline mag_fn g_fn(const struct g *g) { return (mag_fn)(uintptr_t)at_ptr_load_rlx(&g->fn); }

static inline enum g_state g_state(const struct g *g) { return at_32_load_rlx(&g->state) & 0xff; }
static inline void g_set_state(struct g *g, enum g_state s) { at_32_store_rlx(&g->state, s); }
static inline void g_set_waiting(struct g *g, enum g_reason why)
{
    at_32_store_rlx(&g->state, G_WAITING | (uint32_t)why << 8);
}

/* What it waits with may hang in queues until it has run: a runtime that stops must find it. */
static inline void g_set_runnable(struct g *g)
{
    uint32_t word = at_32_load_rlx(&g->state);
    if ((word & 0xff) == G_RUNNABLE)
        return; /* it only changes queues, and is still woken */
    if ((word & 0xff) != G_WAITING) {
        g_set_state(g, G_RUNNABLE);
        return;
    }
    at_64_store_rlx(&g->waited, (uintptr_t)g->after_arg);
    at_32_store_rlx(&g->state, (word & ~(uint32_t)0xff) | G_RUNNABLE);
}
/* The same for one that is known to wait. */
static inline void g_set_woken(struct g *g)
{
    at_64_store_rlx(&g->waited, (uintptr_t)g->after_arg);
    at_32_bump_owner(&g->state, (uint32_t)G_RUNNABLE - (uint32_t)G_WAITING);
}
/* What it waits with, or did until it was woken; NULL: nothing. While nobody moves it. */
static inline void *g_waiter(const struct g *g)
{
    uint32_t word = at_32_load_rlx(&g->state);
    if ((word & 0xff) == G_WAITING)
        return g->after_arg;
    return (word & 0xff) == G_RUNNABLE && word >> 8 != 0 ? (void *)(uintptr_t)at_64_load_rlx(&g->waited) : NULL;
}

extern const char *const mag__g_reason_name[WAIT_MAX];

void mag__g_set_name(struct g *g, const char *name);
void mag__g_get_name(const struct g *g, char out[G_NAME]);

/* ---- descriptors ---- */

#define MAGAZINE 64
#define G_SLAB (2u << 20)

struct g_slab;

/* One per runtime. */
struct g_heap {
    struct lock lock;
    struct g *full;         /* magazines, chained through `ext` of their first descriptor; lock */
    uint32_t nfull;         /* lock */
    uint32_t low;           /* fewest magazines since the last trim; lock */
    struct g *part;         /* single ones, fewer than MAGAZINE; lock */
    uint32_t npart;         /* lock */
    char *bump, *bump_end;  /* never-used descriptors of the newest slab; lock */
    aptr slabs;             /* struct g_slab, newest first; grows at the front, read by anyone */
    struct g_slab *spare;   /* slabs whose memory was given back; lock */
    struct g_slab *region;  /* regions that slabs are cut from, newest first, by their first slab; lock */
    char *cut, *cut_end;    /* the newest region's rest; lock */
};

/* One per P, owner only. */
struct g_cache {
    struct g *one, *two;    /* two is empty or full */
    uint32_t none;          /* length of one */
};

void mag__g_heap_init(struct g_heap *h);
void mag__g_heap_fini(struct g_heap *h);
/* A free descriptor: id, state, name, flags, stack and ext are clear. NULL: out of memory. */
struct g *mag__g_refill(struct g_heap *h, struct g_cache *c);
void mag__g_flush(struct g_heap *h, struct g_cache *c);
void mag__g_cache_drain(struct g_heap *h, struct g_cache *c);
/* For threads without a P. */
struct g *mag__g_new_any(struct g_heap *h);
void mag__g_free_any(struct g_heap *h, struct g *g);
/* Gives the memory of wholly free slabs back to the system. Returns how many slabs. */
unsigned mag__g_heap_trim(struct g_heap *h);
/* Calls fn for every descriptor that is not free. Stops nobody: what fn sees may change while it looks. */
void mag__g_each(struct g_heap *h, void (*fn)(struct g *g, void *arg), void *arg);

/* Is it one of this heap's? */
bool mag__g_is_of(const struct g_heap *h, const struct g *g);

/* NULL: the cache is empty. */
static inline struct g *mag__g_new_cached(struct g_cache *c)
{
    struct g *g = c->one;
    if (unlikely(g == NULL))
        return NULL;
    c->one = g->next;
    c->none--;
    return g;
}

/* One that is needed soon comes into the cache. Not with several Ps: where it comes from another core, asking early costs more. */
static inline void mag__g_fetch_cached(const struct g_cache *c)
{
    __builtin_prefetch(c->one, 1);
    __builtin_prefetch((void *)((uintptr_t)c->one + offsetof(struct g, fn)), 1);
}

static inline struct g *mag__g_new_owner(struct g_heap *h, struct g_cache *c)
{
    struct g *g = mag__g_new_cached(c);
    return likely(g != NULL) ? g : mag__g_refill(h, c);
}

/* What a freed descriptor looks like in the hostile build: whoever runs it falls at once. */
static inline void g_poison(struct g *g)
{
    (void)g;
#ifdef MAG_HOSTILE
    g->at = (struct context){(void *)HOSTILE_POISON, (void *)HOSTILE_POISON, (void *)HOSTILE_POISON};
    at_ptr_store_rlx(&g->fn, (void *)HOSTILE_POISON);
    g->arg = (void *)HOSTILE_POISON;
#endif
}

/* There is room: none < MAGAZINE. */
static inline void mag__g_free_cached(struct g_cache *c, struct g *g)
{
    g_set_state(g, G_FREE);
    g_poison(g);
    g->next = c->one;
    c->one = g;
    c->none++;
}

static inline void mag__g_free_owner(struct g_heap *h, struct g_cache *c, struct g *g)
{
    if (unlikely(c->none == MAGAZINE))
        mag__g_flush(h, c);
    mag__g_free_cached(c, g);
}

#endif
