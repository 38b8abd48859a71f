/* SPDX-License-Identifier: MIT */
/* local.c: goroutine-local storage. A key is a static object of the user's, its address is its name; a goroutine that uses
 * none pays nothing. Few values are expected: they stand in an array and are searched in order. */
#include "base/panic.h"
#include "sched/sanitize.h"
#include "sched/sched.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

enum { PASSES = 4 }; /* a destructor may set values again: so many times they are destroyed, as with pthreads */

struct local {
    mag_local *key;
    void *value;
};

struct locals {
    size_t n, room;
    struct local at[];
};

static struct g *current(void)
{
    struct m *m = mag__m_self();
    struct g *g = m == NULL || m_in_rt(m) ? NULL : m_curg(m);
    return m != NULL && g == &m->g0 ? NULL : g;
}

static struct locals *locals_of(struct g *g) { return g->ext == NULL ? NULL : g->ext->locals; }

static struct local *find(struct g *g, const mag_local *key)
{
    struct locals *l = locals_of(g);
    for (size_t i = 0; l != NULL && i < l->n; i++)
        if (l->at[i].key == key)
            return &l->at[i];
    return NULL;
}

void *mag_local_get(mag_local *key)
{
    struct g *g = current();
    struct local *v = g == NULL ? NULL : find(g, key);
    return v == NULL ? NULL : v->value;
}

int mag_local_set(mag_local *key, void *value)
{
    struct g *g = current();
    if (key == NULL)
        return -EINVAL;
    if (g == NULL)
        return -EPERM;
    struct local *v = find(g, key);
    if (v != NULL) {
        v->value = value;
        return 0;
    }
    if (g->ext == NULL && (g->ext = calloc(1, sizeof *g->ext)) == NULL)
        return -ENOMEM;
    struct locals *l = g->ext->locals;
    size_t n = l == NULL ? 0 : l->n, room = l == NULL ? 0 : l->room;
    if (n == room) {
        room = room == 0 ? 4 : room * 2;
        l = realloc(l, sizeof *l + room * sizeof l->at[0]);
        if (l == NULL)
            return -ENOMEM;
        l->room = room;
        g->ext->locals = l;
    }
    l->at[n] = (struct local){.key = key, .value = value};
    l->n = n + 1;
    return 0;
}

static void destroy_locals(struct g *g)
{
    for (int pass = 0; pass < PASSES; pass++) {
        bool some = false;
        for (size_t i = 0; i < g->ext->locals->n; i++) { /* a destructor may add: the array moves */
            struct local v = g->ext->locals->at[i];
            if (v.value == NULL)
                continue;
            g->ext->locals->at[i].value = NULL;
            if (v.key->destroy != NULL) {
                v.key->destroy(v.value);
                some = true;
            }
        }
        if (!some)
            break;
    }
    free(g->ext->locals);
    g->ext->locals = NULL;
}

void mag__local_end(struct g *g)
{
    if (g->ext->locals != NULL)
        destroy_locals(g);
    if (g->ext->group != NULL)
        mag__rt.leave_group(g->ext);
    free(g->ext);
    g->ext = NULL;
}

static void forget(struct g *g, void *arg)
{
    (void)arg;
    san_discarded(g);
    if (g->ext != NULL)
        free(g->ext->locals);
    free(g->ext);
    g->ext = NULL;
}

void mag__local_clear(struct g_heap *h) { mag__g_each(h, forget, NULL); }
