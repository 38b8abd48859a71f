/* SPDX-License-Identifier: MIT */
/* wg.c: the wait group: a count, in a word that becomes a queue while somebody waits (waitq.c).
 *
 * Invariants  a queue means a count above zero; the change to zero makes it a value again and wakes everybody
 * Ordering    WG1  count cas release (add) -> count acquire (add, wait): without this whoever waited for the others could
 *                  miss what they wrote.
 */
#include "base/panic.h"
#include "sched/park.h"
#include "sync/waitq.h"

#include <errno.h>

_Static_assert(sizeof(mag_wg) == sizeof(a64), "the public struct is the atomic word");

static a64 *word_of(mag_wg *wg) { return (a64 *)&wg->state; }

static COLD NORETURN void wrong_count(int64_t count)
{
    if (count < 0)
        mag__panic_misuse("mag_wg_add, mag_wg_done: the count falls below zero");
    mag__panic_misuse("mag_wg_add: the count exceeds %d", INT32_MAX);
}

static ALWAYS_INLINE uint32_t added(uint32_t count, int n)
{
    int64_t sum = (int64_t)count + n;
    if (unlikely((uint64_t)sum > INT32_MAX))
        wrong_count(sum);
    return (uint32_t)sum;
}

/* The word is locked, and the count has fallen to zero: everybody who waits goes on. */
static NOINLINE void wake_all_locked(struct m *m, a64 *word, struct queued *first)
{
    bool pinned = mag__wait_pin(m);
    struct waiter *woken = NULL, **end = &woken;
    while (first != NULL)
        mag__waitq_take(&first, &end);
    mag__waitq_unlock(word, NULL, 0);
    mag__wait_ready_all(m, woken);
    mag__wait_unpin(pinned);
}

static void add(a64 *word, int n);

/* Somebody waits, or did: by the long way. */
static NOINLINE void add_anyhow(a64 *word, int n)
{
    bool pinned = mag__wait_pin(mag__m_self());
    struct queued *first = mag__waitq_lock(word);
    uint32_t count;
    if (first == NULL)
        add(word, n);
    else if ((count = added(first->value, n)) != 0)
        mag__waitq_unlock(word, first, count);
    else
        wake_all_locked(mag__m_self(), word, first);
    mag__wait_unpin(pinned);
}

/* Somebody waits: most likely one goroutine, for as long as it takes. */
static ALWAYS_INLINE void add_queued(a64 *word, uint64_t state, int n)
{
    struct m *m = mag__m_self();
    if (unlikely(m == NULL || mag__m_is_dead(m) || m_in_rt(m) || (state & WAITQ_LOCKED) != 0 ||
                 !at_64_cas_acq(word, &state, state | WAITQ_LOCKED))) { /* WQ1 */
        add_anyhow(word, n);
        return;
    }
    struct queued *first = waitq_first(state);
    uint32_t count = added(first->value, n);
    if (count != 0) {
        first->value = count;
        at_64_store_rel(word, state & ~WAITQ_LOCKED); /* WQ1 */
    } else if (likely(first->next == NULL && first->waiter.single)) {
        struct g *g = first->waiter.g;
        at_32_store_rlx(&first->in, 0);
        mag__waitq_unlock(word, NULL, 0);
        mag__wait_ready_g(m, g);
    } else {
        wake_all_locked(m, word, first);
    }
}

static ALWAYS_INLINE void add(a64 *word, int n)
{
    uint64_t state = at_64_load_rlx(word);
    do {
        if ((state & WAITQ_QUEUE) != 0) {
            add_queued(word, state, n);
            return;
        }
    } while (unlikely(!at_64_cas_acqrel(word, &state, waitq_of_value(added(waitq_value(state), n))))); /* WG1 */
}

void mag_wg_add(mag_wg *wg, int n) { add(word_of(wg), n); }
void mag_wg_done(mag_wg *wg) { add(word_of(wg), -1); }

static bool above_zero(uint32_t *count, uint32_t kind) { return (void)kind, *count != 0; }

/* Not by the shortest way: others wait, or nothing is left to wait for. */
static NOINLINE void begin_anyhow(struct m *m, struct g *g, struct queued *q)
{
    uint64_t state;
    do {
        state = at_64_load_acq(q->word); /* WQ1 WG1 */
        at_32_store_rlx(&q->in, 0); /* for a runtime that stops before it has run again: mag__waitq_forget */
        if ((state & WAITQ_QUEUE) != 0) {
            if (mag__waitq_join(q))
                return;
        } else if (state == 0) {
            mag__wake_next(m->p, g);
            return;
        }
    } while ((state & WAITQ_QUEUE) != 0 || !waitq_begin(q, state, waitq_value(state)));
}

static ALWAYS_INLINE void after_wait(struct m *m, struct g *prev)
{
    struct queued *q = prev->after_arg;
    uint64_t state = at_64_load_acq(q->word); /* WQ1 WG1 */
    hostile_point();
    if (unlikely((state & WAITQ_QUEUE) != 0 || state == 0 || !waitq_begin(q, state, waitq_value(state))))
        begin_anyhow(m, prev, q);
}

/* What mag__waitq_wait_cancel does, for a goroutine that nothing else can wake. */
static NOINLINE int wait_simply(struct m *m, a64 *word)
{
    struct queued q;
    m = mag__park_enter_g(m);
    q.word = word;
    waiter_init(&q.waiter, m_curg(m), false, mag__waitq_forget);
    mag__token_leave(mag__park(m, WAIT_WG, after_wait, &q));
    return 0;
}

static NOINLINE int wait_anyhow(a64 *word, int64_t deadline)
{
    if (m_is_cancelled(mag__m_self()))
        return -ECANCELED;
    if (at_64_load_acq(word) == 0) /* WG1 */
        return 0;
    if (deadline <= MAG_TRY)
        return -ETIMEDOUT;
    return mag__waitq_wait_cancel(word, above_zero, 0, WAIT_WG, deadline, "mag_wg_wait");
}

int mag_wg_wait(mag_wg *wg, mag_time deadline)
{
    a64 *word = word_of(wg);
    struct m *m = mag__m_self();
    if (unlikely(deadline != OS_FOREVER || m == NULL || m_in_rt(m) || m_curg(m)->ext != NULL))
        return wait_anyhow(word, deadline);
    return at_64_load_acq(word) == 0 ? 0 : wait_simply(m, word); /* WG1 */
}
