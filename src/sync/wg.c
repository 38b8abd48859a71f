/* SPDX-License-Identifier: MIT */
/* wg.c: the wait group: a count, in a word that becomes a queue while somebody waits (waitq.c).
 *
 * Invariants  a queue means a count above zero; the change to zero makes it a value again and wakes everybody
 * Ordering    WG1  count cas release (add) -> count acquire (add, wait): without this whoever waited for the others could
 *                  miss what they wrote.
 */
#include "base/panic.h"
#include "sync/waitq.h"

#include <errno.h>

_Static_assert(sizeof(mag_wg) == sizeof(a64), "the public struct is the atomic word");

static a64 *word_of(mag_wg *wg) { return (a64 *)&wg->state; }

static uint32_t added(uint32_t count, int n)
{
    int64_t sum = (int64_t)count + n;
    if (unlikely(sum < 0))
        mag__panic_misuse("mag_wg_add: the count falls below zero");
    if (unlikely(sum > INT32_MAX))
        mag__panic_misuse("mag_wg_add: the count exceeds %d", INT32_MAX);
    return (uint32_t)sum;
}

/* The word is locked, and the count has fallen to zero: everybody who waits goes on. */
static bool wake_all_locked(struct m *m, a64 *word, struct queued *first)
{
    bool pinned = mag__wait_pin(m);
    if (likely(first->next == NULL && first->waiter.single)) { /* one goroutine, for as long as it takes */
        at_32_store_rlx(&first->in, 0);
        mag__waitq_unlock(word, NULL, 0);
        mag__wait_ready_one(m, &first->waiter);
    } else {
        struct waiter *woken = NULL, **end = &woken;
        while (first != NULL)
            mag__waitq_take(&first, &end);
        mag__waitq_unlock(word, NULL, 0);
        mag__wait_ready_all(m, woken);
    }
    mag__wait_unpin(pinned);
    return true;
}

static NOINLINE bool add_outside(a64 *word, int n)
{
    bool pinned = mag__wait_pin(mag__m_self());
    struct queued *first = mag__waitq_lock(word);
    uint32_t count;
    if (first != NULL) {
        if ((count = added(first->value, n)) != 0)
            mag__waitq_unlock(word, first, count);
        else
            wake_all_locked(mag__m_self(), word, first);
    }
    mag__wait_unpin(pinned);
    return first != NULL;
}

/* Somebody waits. False: nobody does any more. */
static bool add_queued(a64 *word, uint64_t state, int n)
{
    struct m *m = mag__m_self();
    if (unlikely(m == NULL || mag__m_is_dead(m) || (state & WAITQ_LOCKED) != 0 ||
                 !at_64_cas_acq(word, &state, state | WAITQ_LOCKED))) /* WQ1 */
        return add_outside(word, n);
    struct queued *first = waitq_first(state);
    uint32_t count = added(first->value, n);
    if (count == 0)
        return wake_all_locked(m, word, first);
    mag__waitq_unlock(word, first, count);
    return true;
}

static inline void add(a64 *word, int n)
{
    uint64_t state = at_64_load_rlx(word);
    for (;;) {
        if ((state & WAITQ_QUEUE) != 0) {
            if (add_queued(word, state, n))
                return;
            state = at_64_load_rlx(word);
            continue;
        }
        uint32_t count = added(waitq_value(state), n);
        if (likely(at_64_cas_acqrel(word, &state, waitq_of_value(count)))) /* WG1 */
            return;
    }
}

void mag_wg_add(mag_wg *wg, int n) { add(word_of(wg), n); }
void mag_wg_done(mag_wg *wg) { add(word_of(wg), -1); }

static bool above_zero(uint32_t *count, uint32_t kind) { return (void)kind, *count != 0; }

int mag_wg_wait(mag_wg *wg, mag_time deadline)
{
    a64 *word = word_of(wg);
    if (m_is_cancelled(mag__m_self()))
        return -ECANCELED;
    if (at_64_load_acq(word) == 0) /* WG1 */
        return 0;
    if (deadline <= MAG_TRY)
        return -ETIMEDOUT;
    return mag__waitq_wait_cancel(word, above_zero, 0, WAIT_WG, deadline, "mag_wg_wait");
}
