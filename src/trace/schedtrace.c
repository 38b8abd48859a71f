/* SPDX-License-Identifier: MIT */
/* schedtrace.c: MAGPIE_DEBUG=schedtrace=MS[,scheddetail=1]. Go's SCHED line, so that what reads one reads the other, with
 * steals=, stolen=, spills= and retakes= behind it. Reads what is there, stops nobody, takes no lock. It is sysmon that prints, so
 * nobody stops it either: lines that stderr has no room for are dropped, and the next SCHED line says how many (dropped=). */
#include "trace/schedtrace.h"
#include "trace/dump.h"
#include "trace/out.h"

#include <unistd.h>

static void summary(struct out *o, int64_t now)
{
    struct rt *rt = &mag__rt;
    mag_stats total;
    if (mag_stats_read(&total, NULL, 0) == 0)
        return;
    uint32_t procs = rt_procs();
    uint32_t searching = at_32_load_rlx(&rt->idle.searching);
    bool need = searching == 0 && mag__idle_some(&rt->idle) && mag__find_any_work();
    mag__out_print(o,
                   "SCHED %lldms: gomaxprocs=%u idleprocs=%u threads=%llu spinningthreads=%u needspinning=%d "
                   "idlethreads=%llu runqueue=%u [",
                   (long long)((now - rt->started) / 1000000), procs, mag__idle_count(&rt->idle),
                   (unsigned long long)total.threads, searching, need, (unsigned long long)total.idle_threads,
                   mag__globq_length(&rt->globq));
    for (uint32_t i = 0; i < procs; i++)
        mag__out_print(o, " %u", p_length(p_at(i)));
    mag__out_print(o, " ] schedticks=[");
    for (uint32_t i = 0; i < procs; i++)
        mag__out_print(o, " %u", at_32_load_rlx(&p_at(i)->tick));
    mag__out_print(o, " ] steals=%llu stolen=%llu spills=%llu retakes=%llu", (unsigned long long)total.steals,
                   (unsigned long long)total.stolen, (unsigned long long)total.spills,
                   (unsigned long long)(total.retakes_blocked + total.retakes_computing));
    if (o->dropped != 0)
        mag__out_print(o, " dropped=%u", o->dropped);
    mag__out_print(o, "\n");
}

static void detail_p(struct out *o, struct p *p)
{
    struct m *m = at_ptr_load_acq(&p->m); /* TOK2 */
    struct counters *c = &p->count;
    bool idle = mag__idle_is(&mag__rt.idle, p->index);
    mag__out_print(o, "  P%u: status=%s schedtick=%u m=%d runqsize=%u runnext=%d steals=%llu stolen=%llu attempts=%llu spills=%llu\n",
                   p->index, idle ? "idle" : "running", at_32_load_rlx(&p->tick), idle || m == NULL ? -1 : (int)m->id,
                   p_length(p), mag__runq_next_peek(&p->runq) != NULL,
                   (unsigned long long)at_64_load_rlx(&c->steals), (unsigned long long)at_64_load_rlx(&c->stolen),
                   (unsigned long long)(at_64_load_rlx(&c->steals) + at_64_load_rlx(&c->failed_steals)),
                   (unsigned long long)at_64_load_rlx(&c->spills));
}

static void detail_m(struct out *o, struct m *m)
{
    if (at_32_load_rlx(&m->live) == 0)
        return;
    struct p *p = mag__token_peek(m); /* the P while user code runs; in the runtime it is the M's own business */
    struct g *g = m_curg(m);
    bool user = p != NULL;
    mag__out_print(o, "  M%u: p=%d curg=%llu in=%s\n", m->id, user ? (int)p->index : -1,
                   (unsigned long long)(g == NULL || g == &m->g0 ? 0 : at_64_load_rlx(&g->id)), user ? "user" : "runtime");
}

struct detail {
    struct out *out;
    int64_t now;
};

static void detail_g(struct g *g, void *arg)
{
    struct detail *d = arg;
    if (d->out->full) { /* there may be a million of them */
        d->out->dropped++;
        return;
    }
    mag__out_print(d->out, "  G: ");
    mag__dump_g(d->out, g, d->now);
}

void mag__schedtrace_line(int64_t now)
{
    static struct out o; /* sysmon's own */
    mag__out_init_dropping(&o, STDERR_FILENO);
    uint32_t told = o.dropped;
    summary(&o, now);
    mag__out_flush(&o);
    if (!o.full)
        o.dropped -= told;
    if (mag__rt.scheddetail) {
        for (uint32_t i = 0; i < rt_procs(); i++)
            detail_p(&o, p_at(i));
        for (struct m *m = at_ptr_load_acq(&mag__rt.ms); m != NULL; m = m->next_all) /* MS1 */
            detail_m(&o, m);
        mag__g_each(&mag__rt.arena->gs, detail_g, &(struct detail){.out = &o, .now = now});
    }
    mag__out_flush(&o);
}
