/* SPDX-License-Identifier: MIT */
/* token.c: the border between the runtime and user code (sched/token.h): a P is never lost and never anybody's twice, whoever
 * takes it whenever. Threads play the Ms, others take tokens as sysmon, shutdown and set_procs do. 3 seconds; 30 with
 * MAGPIE_TEST_LONG=1. */
#include "test.h"

#include "sched/sched.h"

#include <pthread.h>

enum { PS = 2, MS = 4, TAKERS = 2 };

static struct p *ps[PS];
static struct m *ms[MS];
static a32 holder[PS]; /* who believes to own it, 0: nobody: it lies idle or is a token */
static struct idle idle;
static a32 over;
static a64 kept, lost, taken;

static void own(struct p *p, uint32_t me)
{
    uint32_t nobody = 0;
    T_TRUE(at_32_cas_rlx(&holder[p->index], &nobody, me));
    p->id++; /* plain: ThreadSanitizer sees whether the order carries */
}

static void disown(struct p *p, uint32_t me)
{
    p->id++;
    T_TRUE(at_32_cas_rlx(&holder[p->index], &me, 0));
}

static void *plays_m(void *arg)
{
    struct m *m = arg;
    uint32_t me = m->id + 1;
    uint64_t random = t_state.random + me;
    at_32_store_rlx(&m->in_rt, 1);
    while (at_32_load_rlx(&over) == 0) {
        if (m->p == NULL) {
            int i = mag__idle_take_any(&idle, 0);
            if (i < 0) {
                cpu_relax();
                continue;
            }
            m->p = ps[i];
            at_ptr_store_rel(&m->p->m, m); /* TOK2 */
            own(m->p, me);
        }
        disown(m->p, me); /* from here on it is a token */
        mag__token_leave(m);
        for (unsigned n = t_random_r(&random) % 64; n > 0; n--)
            cpu_relax();
        struct p *p = mag__token_enter(m);
        T_EQ(m->p == NULL, p == NULL);
        if (p != NULL)
            own(p, me);
        at_64_add_rlx(p != NULL ? &kept : &lost, 1);
        mag__token_settle(m);
        if (p != NULL && t_random_r(&random) % 16 == 0) {
            m->p = NULL;
            disown(p, me);
            mag__idle_put(&idle, p->index, false);
        }
    }
    if (m->p != NULL) {
        disown(m->p, me);
        mag__idle_put(&idle, m->p->index, false);
    }
    return NULL;
}

static void *takes(void *arg)
{
    uint32_t me = 100 + (uint32_t)(uintptr_t)arg;
    uint64_t random = t_state.random + me;
    while (at_32_load_rlx(&over) == 0) {
        struct p *p = ps[t_random_r(&random) % PS];
        struct m *m = at_ptr_load_acq(&p->m); /* TOK2 */
        if (m == NULL || !mag__token_take(m, p, t_random_r(&random) % 2 ? LOST_SLICE : LOST_OTHER))
            continue;
        own(p, me);
        at_64_add_rlx(&taken, 1);
        disown(p, me);
        mag__idle_put(&idle, p->index, false);
    }
    return NULL;
}

static void a_p_is_never_lost_nor_doubled(void)
{
    pthread_t t[MS + TAKERS];
    mag__idle_init(&idle, PS);
    for (uint32_t i = 0; i < PS; i++) {
        ps[i] = aligned_alloc(CACHE_LINE, (sizeof(struct p) + CACHE_LINE - 1) / CACHE_LINE * CACHE_LINE);
        memset(ps[i], 0, sizeof *ps[i]);
        ps[i]->index = i;
        mag__idle_put(&idle, i, false);
    }
    for (uint32_t i = 0; i < MS; i++) {
        ms[i] = aligned_alloc(CACHE_LINE, (sizeof(struct m) + CACHE_LINE - 1) / CACHE_LINE * CACHE_LINE);
        memset(ms[i], 0, sizeof *ms[i]);
        ms[i]->id = i;
        at_ptr_store_rlx(&ms[i]->curg, &ms[i]->g0);
        pthread_create(&t[i], NULL, plays_m, ms[i]);
    }
    for (uintptr_t i = 0; i < TAKERS; i++)
        pthread_create(&t[MS + i], NULL, takes, (void *)i);
    int seconds = getenv("MAGPIE_TEST_LONG") != NULL ? 30 : 3;
    for (int i = 0; i < 10 * seconds; i++)
        mag__os_nap(100000000);
    at_32_store_rlx(&over, 1);
    for (int i = 0; i < MS + TAKERS; i++)
        pthread_join(t[i], NULL);
    T_EQ(mag__idle_count(&idle), PS);              /* every P is back */
    T_EQ(at_32_load_rlx(&mag__rt.loose), 0);       /* and nobody is counted as loose any more */
    T_GT(at_64_load_rlx(&kept), 1000);
    T_GT(at_64_load_rlx(&taken), 100);
    T_GE(at_64_load_rlx(&lost), at_64_load_rlx(&taken) - MS); /* whoever lost one has found out, but for the last */
    printf("%llu kept, %llu taken  ", (unsigned long long)at_64_load_rlx(&kept), (unsigned long long)at_64_load_rlx(&taken));
    for (int i = 0; i < MS; i++)
        free(ms[i]);
    for (int i = 0; i < PS; i++)
        free(ps[i]);
}

int main(int argc, char **argv)
{
    t_init(argc, argv);
    T_RUN(a_p_is_never_lost_nor_doubled);
    return t_done();
}
