/* SPDX-License-Identifier: MIT */
/* wg.c: the wait group. One word: the count in the upper half, bit 0: somebody waits.
 *
 * Invariants  bit 0 set <=> waiters are queued in the bucket of this address, or about to be under its lock
 *             the change to zero clears the bit in the same step, and is made under the bucket's lock when the bit was set:
 *             so a waiter that sees zero, returns and frees the memory cannot be overtaken by a wake-up for it
 * Ordering    WG1  count cas release (add) -> count acquire (wait, add): without this whoever waited for the others could
 *                  miss what they wrote.
 */
#include "base/panic.h"
#include "sync/waitq.h"

#include <errno.h>

#define WAITING ((uint64_t)1)

_Static_assert(sizeof(mag_wg) == sizeof(a64), "the public struct is the atomic word");

static a64 *word_of(mag_wg *wg) { return (a64 *)&wg->state; }
static int32_t count_of(uint64_t state) { return (int32_t)(state >> 32); }

/* The state with n more; a count of zero has no waiters. */
static uint64_t added(uint64_t state, int n)
{
    int64_t count = (int64_t)count_of(state) + n;
    if (unlikely(count < 0))
        mag__panic_misuse("mag_wg_add: the count falls below zero");
    if (unlikely(count > INT32_MAX))
        mag__panic_misuse("mag_wg_add: the count exceeds %d", INT32_MAX);
    return count == 0 ? 0 : (uint64_t)count << 32 | (state & WAITING);
}

struct change {
    a64 *word;
    int n;
};

static bool change_locked(void *arg)
{
    struct change *c = arg;
    uint64_t state = at_64_load_rlx(c->word), next;
    do
        next = added(state, c->n);
    while (!at_64_cas_acqrel(c->word, &state, next)); /* WG1 */
    return next == 0 && (state & WAITING) != 0;
}

static inline void add(mag_wg *wg, int n)
{
    a64 *word = word_of(wg);
    uint64_t state = at_64_load_rlx(word), next;
    do {
        next = added(state, n);
        if (unlikely(next == 0 && (state & WAITING) != 0)) {
            mag__waitq_wake_all(wg, change_locked, &(struct change){.word = word, .n = n});
            return;
        }
    } while (!at_64_cas_acqrel(word, &state, next)); /* WG1 */
}

void mag_wg_add(mag_wg *wg, int n) { add(wg, n); }
void mag_wg_done(mag_wg *wg) { add(wg, -1); }

/* Under the bucket's lock: announces the waiter. */
static bool still(void *arg)
{
    a64 *word = arg;
    for (;;) {
        uint64_t state = at_64_load_acq(word); /* WG1 */
        if (count_of(state) == 0)
            return false;
        if ((state & WAITING) != 0 || at_64_cas_rlx(word, &state, state | WAITING))
            return true;
    }
}

int mag_wg_wait(mag_wg *wg, mag_time deadline)
{
    a64 *word = word_of(wg);
    if (count_of(at_64_load_acq(word)) == 0) /* WG1 */
        return 0;
    if (deadline == MAG_TRY)
        return -ETIMEDOUT;
    if (mag__m_self() == NULL)
        return mag__waitq_wait(NULL, wg, still, word, WAIT_WG, deadline);
    if (deadline != MAG_FOREVER)
        return -ENOSYS;
    struct m *m = mag__park_enter("mag_wg_wait");
    int r = mag__waitq_wait(&m, wg, still, word, WAIT_WG, OS_FOREVER);
    mag__token_leave(m);
    return r;
}
