/* SPDX-License-Identifier: MIT */
/* stack.c: goroutine stacks: reserved in chunks, guarded, cached, given back.
 *
 * What        a chunk of address space holds slots of [guard | usable]. Memory appears at first touch, so 256 KiB of
 *             stack cost the one or two pages that are used.
 * Life        never made -> carved from a chunk, guard installed -> in use <-> P's cache <-> dirty <-> clean
 *             A P keeps STACK_CACHE of the default size in a LIFO: the next goroutine gets the hottest one. Half of a full
 *             cache goes to `dirty`, half of that comes back to an empty one. trim, called by sysmon, takes from the
 *             bottom of `dirty` what was not needed since its last call, sorts it by address and gives neighbours back in
 *             one call; a chunk with only clean stacks is unmapped, page tables and all.
 * Growth      chunks grow fourfold from CHUNK_FIRST to CHUNK_MOST slots: a million stacks are 8 mappings. When address
 *             space is short (RLIMIT_AS, strict overcommit) the chunk is halved until it fits.
 * Colours     the tops of stacks are page-aligned, and would meet in a few sets of every cache. sched/park.h moves each down by some
 *             cache lines. And a slot is mostly an odd number of pages, so that the tops use all sets of a TLB: with 68 pages, a quarter
 *             of them. (2,000 goroutines that yield in turn: 18 ns -> 16.3 with 69 pages.)
 * Rejected    one mmap a stack: 65,530 mappings is the kernel's default limit, and each costs 2 us.
 *             Metadata in the slot: it would touch a page of every free stack.
 *             Large pages: one would make a 2 MiB stack out of each touched page.
 */
#include "core/stack.h"
#include "base/panic.h"
#include "os/os.h"

#include <stdlib.h>
#include <string.h>
#ifdef MAG_VALGRIND
#include <valgrind/valgrind.h>
#endif

enum { GUARD_PAGES = 5, CHUNK_FIRST = 64, CHUNK_MOST = 1 << 20, TRIM_KEEP = 16 };

struct stack_chunk {
    struct stack_chunk *next;
    char *base;
    size_t nslots, carved;
    size_t nclean; /* counted by trim */
};

void mag__stack_init(struct stacks *s)
{
    memset(s, 0, sizeof *s);
    size_t page = mag__os_page_size();
    s->guard = page > OS_PAGE ? page : GUARD_PAGES * OS_PAGE; /* see Colours */
    s->limit = SIZE_MAX;
    if (mag__os_guard_costs_mapping()) /* a stack and its guard are two; leave room for the program */
        s->limit = (mag__os_mapping_limit() - 1024) / 2;
    for (int i = 0; i < STACK_CLASSES; i++) {
        s->pool[i].usable = (size_t)STACK_MIN << i;
        s->pool[i].slot = s->pool[i].usable + s->guard;
    }
}

static void list_fini(struct stack_list *l)
{
    mag__os_unmap(l->at, l->room * sizeof *l->at);
    memset(l, 0, sizeof *l);
}

void mag__stack_fini(struct stacks *s)
{
    for (int i = 0; i < STACK_CLASSES; i++) {
        struct stack_pool *p = &s->pool[i];
        struct stack_chunk *next;
        for (struct stack_chunk *c = p->chunk; c != NULL; c = next) {
            next = c->next;
            mag__os_unmap(c->base, c->nslots * p->slot);
            free(c);
        }
        list_fini(&p->dirty);
        list_fini(&p->clean);
    }
    memset(s, 0, sizeof *s);
}

int mag__stack_class(size_t size)
{
    for (int i = 0; i < STACK_CLASSES; i++)
        if (size <= (size_t)STACK_MIN << i)
            return i;
    return -1;
}

size_t mag__stack_usable(int class) { return (size_t)STACK_MIN << class; }

/* ---- lists ---- */

/* Room for every stack of the pool, so that giving one back cannot fail. */
static bool list_reserve(struct stack_list *l, size_t room)
{
    if (room <= l->room)
        return true;
    size_t per_page = OS_PAGE / sizeof *l->at;
    room = (room + per_page - 1) / per_page * per_page;
    char **at = mag__os_reserve(room * sizeof *at, 0);
    if (at == NULL)
        return false;
    if (l->n != 0)
        memcpy(at, l->at, l->n * sizeof *at);
    mag__os_unmap(l->at, l->room * sizeof *l->at);
    l->at = at;
    l->room = room;
    return true;
}

static void push(struct stack_list *l, char *top)
{
    check(l->n < l->room);
    l->at[l->n++] = top;
}

static char *pop(struct stack_list *l) { return l->n == 0 ? NULL : l->at[--l->n]; }

/* ---- carving ---- */

static bool new_chunk_locked(struct stack_pool *p)
{
    size_t nslots = p->chunk == NULL ? CHUNK_FIRST : p->chunk->nslots * 4;
    if (nslots > CHUNK_MOST)
        nslots = CHUNK_MOST;
    while (nslots > 1 && nslots * p->slot > (size_t)1 << 40)
        nslots /= 2;
    struct stack_chunk *c = malloc(sizeof *c);
    if (c == NULL)
        return false;
    char *base = NULL;
    size_t made = (size_t)at_64_load_rlx(&p->made);
    for (; nslots > 0; nslots /= 2)
        if (list_reserve(&p->dirty, made + nslots) && list_reserve(&p->clean, made + nslots) &&
            (base = mag__os_reserve(nslots * p->slot, 0)) != NULL)
            break;
    if (base == NULL) {
        free(c);
        return false;
    }
    mag__os_huge(base, nslots * p->slot, false);
    *c = (struct stack_chunk){.next = p->chunk, .base = base, .nslots = nslots};
    p->chunk = c;
    return true;
}

static char *carve_locked(struct stacks *s, struct stack_pool *p)
{
    if (at_64_load_rlx(&s->made) >= s->limit)
        return NULL;
    if ((p->chunk == NULL || p->chunk->carved == p->chunk->nslots) && !new_chunk_locked(p))
        return NULL;
    struct stack_chunk *c = p->chunk;
    char *slot = c->base + c->carved * p->slot;
    if (mag__os_guard(slot, s->guard) != 0)
        return NULL;
    c->carved++;
#ifdef MAG_VALGRIND
    /* memcheck would take a switch for a huge push; nothing to undo: the range is never anything but stacks */
    (void)VALGRIND_STACK_REGISTER(slot + s->guard, slot + p->slot);
#endif
    at_64_add_rlx(&p->made, 1);
    at_64_add_rlx(&s->made, 1);
    return slot + p->slot;
}

static char *get_locked(struct stacks *s, struct stack_pool *p)
{
    char *top = pop(&p->dirty);
    if (p->dirty.n < p->low)
        p->low = p->dirty.n;
    if (top == NULL)
        top = pop(&p->clean);
    return top != NULL ? top : carve_locked(s, p);
}

/* ---- get and put ---- */

char *mag__stack_get_slow(struct stacks *s, int class, struct stack_cache *c, int cached_class)
{
    bool cached = c != NULL && class == cached_class;
    struct stack_pool *p = &s->pool[class];
    mag__lock_take(&p->lock);
    char *top = get_locked(s, p);
    if (cached && top != NULL) /* the free ones come in batches; new ones are made one by one, as they are needed */
        while (c->n < STACK_CACHE / 2 && p->dirty.n + p->clean.n != 0)
            c->top[c->n++] = get_locked(s, p);
    mag__lock_give(&p->lock);
    return top;
}

void mag__stack_put_slow(struct stacks *s, int class, struct stack_cache *c, int cached_class, char *top)
{
    bool cached = c != NULL && class == cached_class;
    struct stack_pool *p = &s->pool[class];
    mag__lock_take(&p->lock);
    if (cached) { /* the colder half goes */
        for (uint32_t i = 0; i < STACK_CACHE / 2; i++)
            push(&p->dirty, c->top[i]);
        c->n -= STACK_CACHE / 2;
        memmove(c->top, c->top + STACK_CACHE / 2, c->n * sizeof *c->top);
        c->top[c->n++] = top;
    } else {
        push(&p->dirty, top);
    }
    mag__lock_give(&p->lock);
}

void mag__stack_cache_drain(struct stacks *s, int class, struct stack_cache *c)
{
    struct stack_pool *p = &s->pool[class];
    mag__lock_take(&p->lock);
    while (c->n != 0)
        push(&p->dirty, c->top[--c->n]);
    mag__lock_give(&p->lock);
}

/* ---- trim ---- */

static int by_address(const void *a, const void *b)
{
    const char *x = *(char *const *)a, *y = *(char *const *)b;
    return x < y ? 1 : x > y ? -1 : 0; /* descending: the lowest is popped first */
}

/* Neighbours go in one call; the guards between them stay: discarding keeps guard markers and protections. */
static void discard_sorted(const struct stacks *s, const struct stack_pool *p, char **top, size_t n)
{
    for (size_t i = 0; i < n;) {
        size_t k = i + 1;
        while (k < n && top[k] == top[k - 1] - p->slot)
            k++;
        char *low = top[k - 1] - p->slot + s->guard;
        mag__os_discard(low, (size_t)(top[i] - low));
        i = k;
    }
}

/* ---- whole chunks ----
 * Page tables stay when memory is given back, 540 bytes a stack: only unmapping frees them. */

static bool is_in(const struct stack_pool *p, const struct stack_chunk *c, const char *top)
{
    return c != NULL && top > c->base && top <= c->base + c->nslots * p->slot;
}

/* Neighbours in the list are mostly neighbours in memory: the last answer is tried first. */
static struct stack_chunk *chunk_of_locked(struct stack_pool *p, const char *top, struct stack_chunk *last)
{
    if (is_in(p, last, top))
        return last;
    struct stack_chunk *c = p->chunk;
    while (!is_in(p, c, top))
        c = c->next;
    return c;
}

/* Unlinks the chunks of which every stack is clean; their stacks leave the list. */
static struct stack_chunk *take_whole_chunks_locked(struct stacks *s, struct stack_pool *p)
{
    struct stack_chunk *gone = NULL, *last = NULL;
    for (struct stack_chunk *c = p->chunk; c != NULL; c = c->next)
        c->nclean = 0;
    for (size_t i = 0; i < p->clean.n; i++)
        (last = chunk_of_locked(p, p->clean.at[i], last))->nclean++;
    size_t keep = 0;
    for (size_t i = 0; i < p->clean.n; i++) {
        struct stack_chunk *c = last = chunk_of_locked(p, p->clean.at[i], last);
        if (c->nclean != c->carved || c->nslots == CHUNK_FIRST)
            p->clean.at[keep++] = p->clean.at[i];
    }
    p->clean.n = keep;
    for (struct stack_chunk **at = &p->chunk, *c; (c = *at) != NULL;) {
        if (c->nclean != c->carved || c->nslots == CHUNK_FIRST) {
            at = &c->next;
            continue;
        }
        *at = c->next;
        c->next = gone;
        gone = c;
        at_64_add_rlx(&p->made, -(uint64_t)c->carved);
        at_64_add_rlx(&s->made, -(uint64_t)c->carved);
    }
    return gone;
}

static void unmap_whole_chunks(struct stacks *s, struct stack_pool *p)
{
    mag__lock_take(&p->lock);
    struct stack_chunk *gone = take_whole_chunks_locked(s, p);
    mag__lock_give(&p->lock);
    for (struct stack_chunk *c = gone, *next; c != NULL; c = next) {
        next = c->next;
        mag__os_unmap(c->base, c->nslots * p->slot);
        free(c);
    }
}

static size_t trim_pool(struct stacks *s, struct stack_pool *p)
{
    mag__lock_take(&p->lock);
    size_t n = p->low > TRIM_KEEP ? p->low - TRIM_KEEP : 0;
    char **surplus = n == 0 ? NULL : mag__os_reserve(n * sizeof *surplus, 0);
    if (surplus != NULL) {
        memcpy(surplus, p->dirty.at, n * sizeof *surplus);
        p->dirty.n -= n;
        memmove(p->dirty.at, p->dirty.at + n, p->dirty.n * sizeof *p->dirty.at);
    }
    p->low = p->dirty.n;
    mag__lock_give(&p->lock);
    if (surplus == NULL)
        return 0;
    qsort(surplus, n, sizeof *surplus, by_address);
    discard_sorted(s, p, surplus, n);
    mag__lock_take(&p->lock);
    for (size_t i = 0; i < n; i++)
        push(&p->clean, surplus[i]);
    mag__lock_give(&p->lock);
    mag__os_unmap(surplus, n * sizeof *surplus);
    unmap_whole_chunks(s, p);
    return n;
}

size_t mag__stack_trim(struct stacks *s)
{
    size_t n = 0;
    for (int i = 0; i < STACK_CLASSES; i++)
        if (at_64_load_rlx(&s->pool[i].made) != 0)
            n += trim_pool(s, &s->pool[i]);
    return n;
}

bool mag__stack_in_guard(const struct stacks *s, int class, const char *top, const void *address)
{
    const char *low = top - s->pool[class].slot;
    return (const char *)address >= low && (const char *)address < low + s->guard;
}
