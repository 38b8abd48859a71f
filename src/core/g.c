/* SPDX-License-Identifier: MIT */
/* g.c: descriptors and their heap.
 *
 * Slabs are 2 MiB with large pages asked for: spawning five million goroutines at once is bound by first touches of
 * memory, and one large page costs a tenth of the 512 small ones it replaces. A free descriptor keeps its slab; a slab
 * with only free ones is given back by trim, which sysmon calls: it counts the free ones per slab, so the workers pay
 * nothing for it.
 *
 * Ordering    GH1  slab list release (refill) -> acquire (each): without this a dump could walk into a slab header
 *                  that is not written yet.
 */
#include "core/g.h"
#include "base/panic.h"
#include "os/os.h"

#include <string.h>

struct g_slab {
    struct g_slab *older;    /* never changes once linked */
    struct g_slab *spare;    /* in heap->spare */
    struct g_slab *region;   /* first of its region: the region before */
    size_t region_size;
    uint32_t nfree;          /* counted by trim */
    a32 used;                /* 0: given back, nothing in it may be read */
};

#define REGION_MOST ((size_t)128 << 20)
#define SLAB_FIRST ((sizeof(struct g_slab) + CACHE_LINE - 1) & ~(size_t)(CACHE_LINE - 1))
#define SLAB_COUNT ((G_SLAB - SLAB_FIRST) / sizeof(struct g) / MAGAZINE * MAGAZINE)

const char *const mag__g_reason_name[WAIT_MAX] = {
    [WAIT_NONE] = "waiting",
    [WAIT_WG] = "wait group",
    [WAIT_SLEEP] = "sleep",
    [WAIT_SEND] = "chan send",
    [WAIT_RECEIVE] = "chan receive",
    [WAIT_SELECT] = "select",
    [WAIT_MUTEX] = "mutex",
    [WAIT_RWMUTEX] = "rwmutex",
    [WAIT_COND] = "cond",
    [WAIT_SEM] = "semaphore",
    [WAIT_ONCE] = "once",
    [WAIT_GROUP] = "group",
    [WAIT_READ] = "io read",
    [WAIT_WRITE] = "io write",
    [WAIT_FILE] = "io file",
};

static struct g_slab *slab_of(const struct g *g) { return (struct g_slab *)((uintptr_t)g & ~(uintptr_t)(G_SLAB - 1)); }

void mag__g_set_name(struct g *g, const char *name)
{
    char buf[G_NAME] = {0};
    if (name != NULL)
        memcpy(buf, name, strnlen(name, G_NAME - 1));
    for (size_t i = 0; i < ARRAY_LEN(g->name); i++) {
        uint64_t word;
        memcpy(&word, buf + i * 8, 8);
        at_64_store_rlx(&g->name[i], word);
    }
    g->flags |= G_ODD;
}

void mag__g_get_name(const struct g *g, char out[G_NAME])
{
    for (size_t i = 0; i < ARRAY_LEN(g->name); i++) {
        uint64_t word = at_64_load_rlx(&g->name[i]);
        memcpy(out + i * 8, &word, 8);
    }
    out[G_NAME - 1] = 0;
}

void mag__g_heap_init(struct g_heap *h) { memset(h, 0, sizeof *h); }

void mag__g_heap_fini(struct g_heap *h)
{
    struct g_slab *next;
    for (struct g_slab *s = h->region; s != NULL; s = next) {
        next = s->region;
        mag__os_unmap(s, s->region_size);
    }
    memset(h, 0, sizeof *h);
}

/* A magazine in the heap is always full. */
static void push_magazine_locked(struct g_heap *h, struct g *first)
{
    first->ext = (struct g_ext *)h->full;
    h->full = first;
    h->nfull++;
}

static struct g *pop_magazine_locked(struct g_heap *h)
{
    struct g *first = h->full;
    if (first == NULL)
        return NULL;
    h->full = (struct g *)first->ext;
    first->ext = NULL;
    if (--h->nfull < h->low)
        h->low = h->nfull;
    return first;
}

/* Regions grow fourfold from one slab to REGION_MOST, so that a million goroutines are a handful of mappings. */
static struct g_slab *cut_slab_locked(struct g_heap *h)
{
    if (h->cut == h->cut_end) {
        size_t size = h->region == NULL ? G_SLAB : 4 * h->region->region_size;
        if (size > REGION_MOST)
            size = REGION_MOST;
        char *at = NULL;
        for (; size >= G_SLAB && at == NULL; size /= 2)
            if ((at = mag__os_reserve(size, G_SLAB)) != NULL)
                break;
        if (at == NULL)
            return NULL;
        mag__os_huge(at, size, true);
        struct g_slab *first = (struct g_slab *)at;
        first->region = h->region;
        first->region_size = size;
        h->region = first;
        h->cut = at;
        h->cut_end = at + size;
    }
    struct g_slab *s = (struct g_slab *)h->cut;
    h->cut += G_SLAB;
    return s;
}

/* Starts a slab for bump allocation. */
static bool new_slab_locked(struct g_heap *h)
{
    struct g_slab *s = h->spare;
    if (s != NULL) {
        h->spare = s->spare;
    } else {
        s = cut_slab_locked(h);
        if (s == NULL)
            return false;
        s->older = at_ptr_load_rlx(&h->slabs);
        at_ptr_store_rel(&h->slabs, s); /* GH1 */
    }
    at_32_store_rlx(&s->used, 1);
    h->bump = (char *)s + SLAB_FIRST;
    h->bump_end = h->bump + SLAB_COUNT * sizeof(struct g);
    return true;
}

/* A magazine: one that was freed, or never-used descriptors. */
static struct g *take_magazine_locked(struct g_heap *h)
{
    struct g *first = pop_magazine_locked(h);
    if (first != NULL)
        return first;
    if (h->bump == h->bump_end && !new_slab_locked(h))
        return NULL;
    first = (struct g *)h->bump;
    for (uint32_t i = 0; i < MAGAZINE - 1; i++)
        first[i].next = &first[i + 1];
    first[MAGAZINE - 1].next = NULL;
    h->bump = (char *)(first + MAGAZINE);
    return first;
}

struct g *mag__g_refill(struct g_heap *h, struct g_cache *c)
{
    struct g *first = c->two;
    if (first == NULL) {
        mag__lock_take(&h->lock);
        first = take_magazine_locked(h);
        mag__lock_give(&h->lock);
        if (first == NULL)
            return NULL;
    }
    c->two = NULL;
    c->one = first->next;
    c->none = MAGAZINE - 1;
    return first;
}

/* `one` is full: it becomes `two`, and what was there goes to the heap. */
void mag__g_flush(struct g_heap *h, struct g_cache *c)
{
    if (c->two != NULL) {
        mag__lock_take(&h->lock);
        push_magazine_locked(h, c->two);
        mag__lock_give(&h->lock);
    }
    c->two = c->one;
    c->one = NULL;
    c->none = 0;
}

void mag__g_cache_drain(struct g_heap *h, struct g_cache *c)
{
    struct g *chains[] = {c->one, c->two};
    for (size_t i = 0; i < ARRAY_LEN(chains); i++)
        for (struct g *g = chains[i], *next; g != NULL; g = next) {
            next = g->next;
            mag__g_free_any(h, g);
        }
    *c = (struct g_cache){0};
}

struct g *mag__g_new_any(struct g_heap *h)
{
    mag__lock_take(&h->lock);
    if (h->part == NULL) {
        h->part = take_magazine_locked(h);
        h->npart = MAGAZINE;
    }
    struct g *g = h->part;
    if (g != NULL) {
        h->part = g->next;
        h->npart--;
    }
    mag__lock_give(&h->lock);
    return g;
}

void mag__g_free_any(struct g_heap *h, struct g *g)
{
    g_set_state(g, G_FREE);
    g_poison(g);
    mag__lock_take(&h->lock);
    if (h->part == NULL)
        h->npart = 0;
    g->next = h->part;
    h->part = g;
    if (++h->npart == MAGAZINE) {
        push_magazine_locked(h, g);
        h->part = NULL;
    }
    mag__lock_give(&h->lock);
}

/* ---- trim ---- */

/* The magazines nobody needed since the last call. */
static struct g *take_surplus(struct g_heap *h)
{
    mag__lock_take(&h->lock);
    struct g *list = NULL;
    for (uint32_t n = h->low; n > 0 && h->full != NULL; n--) {
        struct g *first = pop_magazine_locked(h);
        first->ext = (struct g_ext *)list;
        list = first;
    }
    h->low = h->nfull;
    mag__lock_give(&h->lock);
    return list;
}

static void give_back(struct g_heap *h, struct g_slab *s)
{
    mag__os_discard((char *)s + OS_PAGE, G_SLAB - OS_PAGE);
    memset((char *)s + SLAB_FIRST, 0, OS_PAGE - SLAB_FIRST);
    s->nfree = 0;
    mag__lock_take(&h->lock);
    s->spare = h->spare;
    h->spare = s;
    mag__lock_give(&h->lock);
}

unsigned mag__g_heap_trim(struct g_heap *h)
{
    struct g *list = take_surplus(h);
    if (list == NULL)
        return 0;
    for (struct g *first = list; first != NULL; first = (struct g *)first->ext)
        for (struct g *g = first; g != NULL; g = g->next)
            slab_of(g)->nfree++;

    /* a slab with all of its descriptors in the list goes; the others' descriptors are chained up again */
    struct g_slab *gone = NULL;
    struct g *next_first;
    for (struct g *first = list; first != NULL; first = next_first) {
        next_first = (struct g *)first->ext;
        for (struct g *g = first, *next; g != NULL; g = next) {
            next = g->next;
            g->ext = NULL; /* the memory of a slab that goes may stay as it is: locked memory does */
            struct g_slab *s = slab_of(g);
            if (s->nfree == SLAB_COUNT) {
                if (at_32_load_rlx(&s->used) != 0) {
                    at_32_store_rlx(&s->used, 0);
                    s->spare = gone;
                    gone = s;
                }
                continue;
            }
            mag__g_free_any(h, g);
        }
    }
    for (struct g_slab *s = at_ptr_load_rlx(&h->slabs); s != NULL; s = s->older)
        if (at_32_load_rlx(&s->used) != 0)
            s->nfree = 0;
    unsigned n = 0;
    for (struct g_slab *s = gone, *next; s != NULL; s = next, n++) {
        next = s->spare;
        give_back(h, s);
    }
    return n;
}

NO_SANITIZE void mag__g_each(struct g_heap *h, void (*fn)(struct g *g, void *arg), void *arg)
{
    for (struct g_slab *s = at_ptr_load_acq(&h->slabs); s != NULL; s = s->older) { /* GH1 */
        struct g *g = (struct g *)((char *)s + SLAB_FIRST);
        for (size_t i = 0; i < SLAB_COUNT && at_32_load_rlx(&s->used) != 0; i++)
            if (g_state(&g[i]) != G_FREE)
                fn(&g[i], arg);
    }
}

bool mag__g_is_of(const struct g_heap *h, const struct g *g)
{
    for (struct g_slab *s = at_ptr_load_acq(&h->slabs); s != NULL; s = s->older) /* GH1 */
        if (s == slab_of(g))
            return true;
    return false;
}
