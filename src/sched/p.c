/* SPDX-License-Identifier: MIT */
/* p.c: making and unmaking Ps. */
#include "base/panic.h"
#include "sched/sched.h"

#include <errno.h>
#include <string.h>

static struct p *new_p(uint32_t index)
{
    struct p *p = mag__os_reserve(sizeof *p, 0); /* zero-filled, page-aligned: no two Ps share a page */
    if (p == NULL)
        return NULL;
    p->index = index;
    mag__runq_init(&p->runq, 0);
    rng_init(&p->rng, mag__os_random());
    p->global_in = GLOBAL_EVERY;
    at_32_store_rlx(&p->rescued, 1); /* the first spawn of a run wakes a helper: nothing is known about its owner yet */
    return p;
}

int mag__p_init_all(uint32_t procs)
{
    struct rt *rt = &mag__rt;
    rt->procs = procs;
    mag__order_init(&rt->order, procs);
    mag__idle_init(&rt->idle, procs);
    for (uint32_t i = 0; i < procs; i++) {
        rt->ps[i] = new_p(i);
        if (rt->ps[i] == NULL) {
            mag__p_fini_all();
            return -ENOMEM;
        }
    }
    for (uint32_t i = 0; i < procs; i++)
        mag__idle_put(&rt->idle, i, false);
    return 0;
}

void mag__p_fini_all(void)
{
    struct rt *rt = &mag__rt;
    for (uint32_t i = 0; i < rt->procs; i++) {
        mag__os_unmap(rt->ps[i], sizeof *rt->ps[i]);
        rt->ps[i] = NULL;
    }
    rt->procs = 0;
}

bool mag__p_take_idle(struct m *m)
{
    int i = mag__m_is_dead(m) ? -1 : mag__idle_take_any(&mag__rt.idle, 0);
    if (i < 0)
        return false;
    p_acquire(m, p_at((uint32_t)i));
    mag__token_settle(m);
    return true;
}
