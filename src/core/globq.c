/* SPDX-License-Identifier: MIT */
#include "core/globq.h"

void mag__globq_put_list(struct globq *q, struct g_list list)
{
    if (list.n == 0)
        return;
    mag__lock_take(&q->lock);
    if (q->first == NULL)
        q->first = list.first;
    else
        q->last->next = list.first;
    q->last = list.last;
    at_32_store_rlx(&q->length, at_32_load_rlx(&q->length) + list.n);
    mag__lock_give(&q->lock);
}

void mag__globq_put_front(struct globq *q, struct g_list list)
{
    if (list.n == 0)
        return;
    mag__lock_take(&q->lock);
    list.last->next = q->first;
    if (q->first == NULL)
        q->last = list.last;
    q->first = list.first;
    at_32_store_rlx(&q->length, at_32_load_rlx(&q->length) + list.n);
    mag__lock_give(&q->lock);
}

void mag__globq_put(struct globq *q, struct g *g)
{
    g->next = NULL;
    mag__globq_put_list(q, (struct g_list){.first = g, .last = g, .n = 1});
}

struct g_list mag__globq_get(struct globq *q, uint32_t most)
{
    struct g_list list = {0};
    mag__lock_take(&q->lock);
    if (q->first != NULL && most > 0) {
        list.first = list.last = q->first;
        list.n = 1;
        while (list.n < most && list.last->next != NULL) {
            list.last = list.last->next;
            list.n++;
        }
        q->first = list.last->next;
        list.last->next = NULL;
        at_32_store_rlx(&q->length, at_32_load_rlx(&q->length) - list.n);
    }
    mag__lock_give(&q->lock);
    return list;
}
