/* SPDX-License-Identifier: MIT */
#include "core/globq.h"

#include <stdlib.h>
#include <string.h>

enum { SPARES = 64 };

static void count_locked(struct globq *q, uint32_t by) { at_32_store_rlx(&q->length, at_32_load_rlx(&q->length) + by); }

/* ---- crates ---- */

static void spare_locked(struct globq *q, struct crate *c)
{
    if (q->nspare == SPARES) {
        free(c);
        return;
    }
    c->next = q->spare;
    q->spare = c;
    q->nspare++;
}

static struct crate *new_locked(struct globq *q)
{
    struct crate *c = q->spare;
    if (c != NULL) {
        q->spare = c->next;
        q->nspare--;
    } else if ((c = malloc(sizeof *c)) == NULL) {
        return NULL;
    }
    c->from = c->n = 0;
    c->next = NULL;
    return c;
}

static void append_locked(struct globq *q, struct crate *c)
{
    if (q->crates == NULL)
        q->crates = c;
    else
        q->newest->next = c;
    q->newest = c;
}

struct crate *mag__globq_new_crate(struct globq *q)
{
    mag__lock_take(&q->lock);
    struct crate *c = new_locked(q);
    mag__lock_give(&q->lock);
    return c;
}

void mag__globq_return_crate(struct globq *q, struct crate *c)
{
    mag__lock_take(&q->lock);
    spare_locked(q, c);
    mag__lock_give(&q->lock);
}

void mag__globq_put_crate(struct globq *q, struct crate *c)
{
    mag__lock_take(&q->lock);
    append_locked(q, c);
    count_locked(q, c->n);
    mag__lock_give(&q->lock);
}

/* ---- putting ---- */

static void put_locked(struct globq *q, struct g *g)
{
    struct crate *c = q->crates == NULL ? NULL : q->newest;
    if ((c == NULL || c->from + c->n == RUNQ_SPILL) && q->rest.n == 0 && (c = new_locked(q)) != NULL)
        append_locked(q, c);
    if (c != NULL && q->rest.n == 0)
        c->at[c->from + c->n++] = g;
    else
        g_list_put(&q->rest, g); /* no memory for a crate, now or shortly before */
}

void mag__globq_put_list(struct globq *q, struct g_list list)
{
    if (list.n == 0)
        return;
    mag__lock_take(&q->lock);
    for (struct g *g = list.first, *next; g != NULL; g = next) {
        next = g->next;
        put_locked(q, g);
    }
    count_locked(q, list.n);
    mag__lock_give(&q->lock);
}

void mag__globq_put(struct globq *q, struct g *g)
{
    mag__lock_take(&q->lock);
    put_locked(q, g);
    count_locked(q, 1);
    mag__lock_give(&q->lock);
}

void mag__globq_put_front(struct globq *q, struct g_list list)
{
    struct crate *at = NULL, *c;
    mag__lock_take(&q->lock);
    for (struct g *g = list.first, *next; g != NULL; g = next) {
        next = g->next;
        count_locked(q, 1);
        if (at == NULL || at->n == RUNQ_SPILL) {
            if ((c = new_locked(q)) == NULL) {
                put_locked(q, g);
                continue;
            }
            if (at == NULL) { /* the first one goes before all, the others behind it */
                c->next = q->crates;
                q->crates = c;
            } else {
                c->next = at->next;
                at->next = c;
            }
            if (c->next == NULL)
                q->newest = c;
            at = c;
        }
        at->at[at->n++] = g;
    }
    mag__lock_give(&q->lock);
}

/* ---- getting ---- */

static uint32_t get_locked(struct globq *q, struct g **to, uint32_t most)
{
    uint32_t n = 0;
    for (struct crate *c; n < most && (c = q->crates) != NULL;) {
        uint32_t k = c->n < most - n ? c->n : most - n;
        memcpy(to + n, c->at + c->from, k * sizeof *to);
        n += k;
        c->from += k;
        c->n -= k;
        if (c->n != 0)
            break;
        q->crates = c->next;
        spare_locked(q, c);
    }
    for (struct g *g; n < most && (g = q->rest.first) != NULL;) {
        q->rest.first = g->next;
        q->rest.n--;
        to[n++] = g;
    }
    count_locked(q, -n);
    return n;
}

uint32_t mag__globq_get_many(struct globq *q, struct g **to, uint32_t most)
{
    mag__lock_take(&q->lock);
    uint32_t n = get_locked(q, to, most);
    mag__lock_give(&q->lock);
    return n;
}

struct g *mag__globq_get(struct globq *q)
{
    struct g *g;
    return mag__globq_get_many(q, &g, 1) != 0 ? g : NULL;
}

void mag__globq_clear(struct globq *q)
{
    mag__lock_take(&q->lock);
    struct crate *lists[] = {q->crates, q->spare};
    q->rest = (struct g_list){0};
    q->crates = q->newest = q->spare = NULL;
    q->nspare = 0;
    at_32_store_rlx(&q->length, 0);
    mag__lock_give(&q->lock);
    for (int i = 0; i < 2; i++)
        for (struct crate *c = lists[i], *next; c != NULL; c = next) {
            next = c->next;
            free(c);
        }
}
