/* SPDX-License-Identifier: MIT */
/* block.c: mag_block_begin and mag_block_end: a call that is known to block gives its P up at once, not when sysmon sees it.
 *
 * If somebody waits, the P is handed over here. Otherwise it stays where it is, as a token that anyone may take (token.h) and
 * marked as one to take first: whoever has work and finds no idle P looks for it (wake.c). When nobody came, the end costs a
 * store, and the goroutine has never been without its P.
 */
#include "sched/sched.h"

static bool somebody_waits(const struct p *p)
{
    return !runq_is_drained(&p->runq) || mag__lifo_length(&p->lifo) != 0 || mag__globq_length(&mag__rt.globq) != 0;
}

/* In the runtime while it looks: what it looks at stays. */
void mag_block_begin(void)
{
    struct m *m = mag__m_self();
    if (m == NULL || m_in_rt(m))
        return;
    at_32_store_rlx(&m->in_rt, 1);
    if (unlikely(at_32_load_rlx(&mag__rt.announced) == 0))
        at_32_store_rlx(&mag__rt.announced, 1);
    at_32_store_fence(&m->announced, 1); /* BLK1 CLK3 */
    struct p *p = mag__token_peek(m);
    if (likely(!mag__m_is_dead(m)) && p != NULL && unlikely(somebody_waits(p)))
        mag__retake_announced();
    compiler_barrier();
    at_32_store_rel(&m->in_rt, 0); /* TOK3 */
}

void mag_block_end(void)
{
    struct m *m = mag__m_self();
    if (m != NULL && !m_in_rt(m))
        at_32_store_rlx(&m->announced, 0);
}
