/* SPDX-License-Identifier: MIT */
/* stack.h: goroutine stacks. See stack.c. A stack is named by its top, the first address above it. */
#ifndef MAG_CORE_STACK_H
#define MAG_CORE_STACK_H

#include "base/atomic.h"
#include "os/lock.h"

#define STACK_MIN (16u << 10)
#define STACK_DEFAULT (256u << 10)
#define STACK_MAX ((size_t)1 << 30)
#define STACK_CLASSES 17 /* powers of two from STACK_MIN to STACK_MAX */
#define STACK_CACHE 64

struct stack_chunk;

/* An array of stacks, grown in place of address space: no allocation on the way to freeing memory. */
struct stack_list {
    char **at;
    size_t n, room;
};

/* All stacks of one size. */
struct stack_pool {
    struct lock lock;
    size_t usable;             /* bytes a goroutine may use */
    size_t slot;               /* usable + guard */
    struct stack_chunk *chunk; /* newest first; lock */
    struct stack_list dirty;   /* free, memory still there; lock */
    struct stack_list clean;   /* free, memory given back, guarded; lock */
    size_t low;                /* fewest dirty ones since the last trim; lock */
    a64 made;                  /* stacks that exist */
};

/* One per runtime. */
struct stacks {
    struct stack_pool pool[STACK_CLASSES];
    size_t guard;
    size_t limit; /* stacks the kernel's limit of mappings allows, SIZE_MAX where guards cost none */
    a64 made;
};

/* One per P, owner only: stacks of the default class, the hottest last. */
struct stack_cache {
    uint32_t n;
    char *top[STACK_CACHE];
};

void mag__stack_init(struct stacks *s);
void mag__stack_fini(struct stacks *s);
/* The class whose stacks hold at least `size`, or -1. */
int mag__stack_class(size_t size);
size_t mag__stack_usable(int class);
char *mag__stack_get_slow(struct stacks *s, int class, struct stack_cache *c, int cached_class);
void mag__stack_put_slow(struct stacks *s, int class, struct stack_cache *c, int cached_class, char *top);
/* A stack, or NULL: no memory, no address space, no mappings left. */
static inline char *mag__stack_get(struct stacks *s, int class, struct stack_cache *c, int cached_class)
{
    if (likely(c != NULL && class == cached_class && c->n != 0))
        return c->top[--c->n];
    return mag__stack_get_slow(s, class, c, cached_class);
}
static inline void mag__stack_put(struct stacks *s, int class, struct stack_cache *c, int cached_class, char *top)
{
    if (likely(c != NULL && class == cached_class && c->n < STACK_CACHE))
        c->top[c->n++] = top;
    else
        mag__stack_put_slow(s, class, c, cached_class, top);
}
void mag__stack_cache_drain(struct stacks *s, int class, struct stack_cache *c);
/* Gives the memory of stacks that nobody needed since the last call back to the system. Returns how many. */
size_t mag__stack_trim(struct stacks *s);
/* Does the address lie in the guard below the stack with this top? */
bool mag__stack_in_guard(const struct stacks *s, int class, const char *top, const void *address);

#endif
