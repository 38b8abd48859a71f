/* SPDX-License-Identifier: MIT */
/* g_heap.c: where descriptors come from and go to, and what a free one looks like: spawn writes only what it must. */
#include "test.h"

#include "core/g.h"
#include <sys/mman.h>

enum { SOME = 3 * G_SLAB / (int)sizeof(struct g) }; /* three slabs' worth, about */

static struct g_heap heap;
static struct g *taken[SOME];

static void take_all(void)
{
    for (int i = 0; i < SOME; i++) {
        struct g *g = taken[i] = mag__g_new_any(&heap);
        T_TRUE(g != NULL);
        T_EQ(g->flags, 0);
        T_EQ(g->stack, NULL);
        T_EQ(g->ext, NULL);
        T_EQ(at_64_load_rlx(&g->name[0]), 0);
        g_set_state(g, G_RUNNABLE);
    }
}

static void free_all(void)
{
    for (int i = 0; i < SOME; i++)
        mag__g_free_any(&heap, taken[i]);
}

static void a_round(bool locked)
{
    mag__g_heap_init(&heap);
    take_all();
    for (int i = 0; locked && i < SOME; i++)
        if (i == 0 || (uintptr_t)taken[i] / G_SLAB != (uintptr_t)taken[i - 1] / G_SLAB)
            (void)!mlock((void *)((uintptr_t)taken[i] / G_SLAB * G_SLAB), G_SLAB); /* where it is allowed */
    free_all();
    mag__g_heap_trim(&heap); /* looks which are not needed, from now on */
    T_TRUE(mag__g_heap_trim(&heap) > 0);
    take_all();
    free_all();
    mag__g_heap_fini(&heap);
}

static void free_descriptors_are_clear(void) { a_round(false); }

/* Locked memory cannot be given back: what is trimmed comes again as it was. */
static void locked_memory_is_trimmed(void) { a_round(true); }

static void caches_hand_on_clear_ones(void)
{
    struct g_cache c = {0};
    mag__g_heap_init(&heap);
    for (int round = 0; round < 3; round++) {
        for (int i = 0; i < SOME; i++) {
            struct g *g = taken[i] = mag__g_new_owner(&heap, &c);
            T_TRUE(g != NULL);
            T_EQ(g->flags, 0);
            T_EQ(g->stack, NULL);
            T_EQ(g->ext, NULL);
        }
        for (int i = 0; i < SOME; i++)
            mag__g_free_owner(&heap, &c, taken[i]);
    }
    mag__g_cache_drain(&heap, &c);
    mag__g_heap_fini(&heap);
}

int main(int argc, char **argv)
{
    t_init(argc, argv);
    T_RUN(free_descriptors_are_clear);
    T_RUN(locked_memory_is_trimmed);
    T_RUN(caches_hand_on_clear_ones);
    return t_done();
}
