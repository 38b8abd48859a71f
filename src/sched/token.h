/* SPDX-License-Identifier: MIT */
/* token.h: the border between the runtime and user code: the P is a token.
 *
 * What        a goroutine outside the runtime, computing or blocked in any C function, does not own its P for good.
 *             Leaving the runtime stores the P into the M's token word; entering takes it back; anyone may take it in
 *             between: sysmon, shutdown, set_procs. Whoever gets it owns the P. A goroutine that finds NULL has lost it
 *             and runs on, on its own thread, where the kernel time-slices it: that is preemption of any C code, with
 *             neither signals nor instrumentation, and with locks and thread-locals intact.
 * Invariants  a P is in exactly one place: an idle bit, one M's `p` while that M is in the runtime, one M's `tok`, or in the
 *             hands of a thread that is about to pass it on
 *             tok is a P => the M is in user code. In the runtime tok is NULL and m->p says what it holds; a small number
 *             tells the M, when it comes, why its P is gone
 * Who         enter, leave: the M's own thread. take: anyone.
 * Ordering    TOK1  tok store release (leave) -> tok xchg / cas acquire (enter, take): without this the new holder could
 *                   see the P's ring, caches and counters as they were before its last holder used them.
 *             TOK2  p->m store release (p_acquire) -> acquire (who looks for a P's token): without this it could compare the
 *                   token word of an M that it sees unwritten.
 *             TOK3  in_rt := 0 release (leave, block) -> acquire (shutdown): without this what a goroutine did last in the
 *                   runtime could come after it was taken apart.
 * Nesting     in_rt tells a signal handler that interrupted the runtime from a goroutine that lost its P.
 * Rejected    an in_rt flag against a retake flag with membarrier: loses Ps unless it grows a third state, and a take
 *             costs 10 to 15 us instead of 0.1 to 0.3.
 * See         tests/token.c
 */
#ifndef MAG_SCHED_TOKEN_H
#define MAG_SCHED_TOKEN_H

#include "os/hostile.h"
#include "sched/rt.h"

/* Why a goroutine lost its P. These stand in the token's place, so that the taking and its reason are one step. */
enum lost { LOST_BEFORE, LOST_SLICE, LOST_BLOCKED, LOST_OTHER, LOST_MAX };

/* The owner has found out. */
void mag__token_lost(struct m *m, enum lost why);

/* The P, or in its place why it is lost: then the caller goes on with mag__token_lost. For those who do that out of the way, so that
 * nothing lives in registers over a call that is hardly ever made. */
static ALWAYS_INLINE struct p *token_try(struct m *m)
{
    hostile_point();
    at_32_store_rlx(&m->in_rt, 1);
    compiler_barrier();
    return at_ptr_xchg_acq(&m->tok, NULL); /* TOK1 */
}
static inline bool token_is_lost(const struct p *p) { return unlikely((uintptr_t)p < LOST_MAX); }

/* The P, or NULL: lost. */
static inline struct p *mag__token_enter(struct m *m)
{
    struct p *p = token_try(m);
    if (!token_is_lost(p))
        return p;
    mag__token_lost(m, (enum lost)(uintptr_t)p);
    return NULL;
}

static inline void mag__token_leave(struct m *m)
{
    at_ptr_store_rel(&m->tok, m->p); /* TOK1 */
    hostile_point();
    compiler_barrier();
    at_32_store_rel(&m->in_rt, 0); /* TOK3 */
}

/* The P that m's goroutine has in user code, NULL: none, or m is in the runtime. It may be gone by now. */
static inline struct p *mag__token_peek(const struct m *m)
{
    struct p *p = at_ptr_load_rlx(&m->tok);
    return (uintptr_t)p >= LOST_MAX ? p : NULL;
}

/* True: the P is the caller's now, and m goes on without one until its next call. */
static inline bool mag__token_take(struct m *m, struct p *p, enum lost why)
{
    void *seen = p;
    if (why == LOST_SLICE)
        at_32_add_rlx(&mag__rt.loose, 1); /* before its owner can take it off again */
    if (at_ptr_cas_acq(&m->tok, &seen, (void *)(uintptr_t)why)) /* TOK1 */
        return true;
    if (why == LOST_SLICE)
        at_32_add_rlx(&mag__rt.loose, (uint32_t)-1);
    return false;
}

/* The M no longer runs a goroutine without a P. */
void mag__token_settled(struct m *m);
static inline void mag__token_settle(struct m *m)
{
    if (unlikely(at_32_load_rlx(&m->loose) != 0))
        mag__token_settled(m);
}

#endif
