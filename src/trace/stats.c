/* SPDX-License-Identifier: MIT */
/* stats.c: mag_stats_read. Sums what the Ps counted for themselves; stops and locks nobody. */
#include "sched/sched.h"

#include <string.h>

static void add_counters(mag_stats *to, const struct counters *c)
{
#define X(name) to->name += at_64_load_rlx(&c->name);
    COUNTERS(X)
#undef X
}

static void read_p(struct p *p, mag_stats *s)
{
    memset(s, 0, sizeof *s);
    add_counters(s, &p->count);
    s->queue = p_length(p) + (mag__runq_next_peek(&p->runq) != NULL);
    s->runnable = s->queue;
}

int mag_stats_read(mag_stats *total, mag_stats *per_p, size_t n)
{
    struct rt *rt = &mag__rt;
    if (total != NULL)
        memset(total, 0, sizeof *total);
    if (mag__foreign_enter() != 0)
        return 0;
    mag_stats sum = {0}, one;
    uint32_t procs = rt_procs();
    for (uint32_t i = 0; i < rt_made(); i++) { /* what retired Ps have counted counts */
        read_p(p_at(i), &one);
        add_counters(&sum, &p_at(i)->count);
        sum.queue += one.queue;
        if (per_p != NULL && i < n && i < procs)
            per_p[i] = one;
    }
    add_counters(&sum, &rt->count);
    /* finished is read before spawned could grow: never negative, at most a moment too many */
    sum.goroutines = sum.spawned > sum.finished ? sum.spawned - sum.finished : 0;
    sum.runnable = sum.queue + mag__globq_length(&rt->globq) + mag__globq_length(&rt->held);
    sum.threads = at_32_load_rlx(&rt->nms);
    sum.idle_threads = at_32_load_rlx(&rt->nidle_ms);
    if (total != NULL)
        *total = sum;
    mag__foreign_leave();
    return (int)procs;
}

int mag_procs(void)
{
    if (mag__foreign_enter() != 0)
        return 0;
    int procs = (int)rt_procs();
    mag__foreign_leave();
    return procs;
}
