/* SPDX-License-Identifier: MIT */
/* sem.c: the semaphore: a count, in a word that becomes a queue while somebody waits (waitq.c). A post serves who waits, first
 * come, first served, before it adds to the count: a queue means a count of zero. */
#include "base/panic.h"
#include "sync/waitq.h"

#include <errno.h>

static a64 *word_of(mag_sem *s) { return (a64 *)&s->state; }

void mag_sem_init(mag_sem *s, unsigned n) { at_64_store_rlx(word_of(s), waitq_of_value(n)); }

static bool must_wait(uint32_t *count, uint32_t kind)
{
    (void)kind;
    if (*count == 0)
        return true;
    --*count;
    return false;
}

int mag_sem_wait(mag_sem *s, mag_time deadline)
{
    a64 *word = word_of(s);
    uint64_t seen = at_64_load_rlx(word);
    if (m_is_cancelled(mag__m_self()))
        return -ECANCELED;
    while ((seen & WAITQ_QUEUE) == 0 && waitq_value(seen) != 0)
        if (at_64_cas_acq(word, &seen, waitq_of_value(waitq_value(seen) - 1))) /* WQ1 */
            return 0;
    if (deadline <= MAG_TRY)
        return -ETIMEDOUT;
    return mag__waitq_wait_cancel(word, must_wait, 0, WAIT_SEM, deadline, "mag_sem_wait");
}

static uint32_t added(uint32_t count, unsigned n)
{
    uint32_t sum;
    if (__builtin_add_overflow(count, n, &sum))
        mag__panic_misuse("mag_sem_post: the count exceeds %u", UINT32_MAX);
    return sum;
}

void mag_sem_post(mag_sem *s, unsigned n)
{
    a64 *word = word_of(s);
    uint64_t seen = at_64_load_rlx(word);
    for (;;) {
        if ((seen & WAITQ_QUEUE) == 0) {
            if (at_64_cas_rel(word, &seen, waitq_of_value(added(waitq_value(seen), n)))) /* WQ1 */
                return;
            continue;
        }
        struct m *m = mag__m_self();
        bool pinned = mag__wait_pin(m);
        struct queued *first = mag__waitq_lock(word);
        struct waiter *woken = NULL, **end = &woken;
        bool done = first != NULL;
        if (done) {
            while (n != 0 && first != NULL)
                n -= mag__waitq_take(&first, &end);
            mag__waitq_unlock(word, first, n); /* what is left over has nobody to go to */
            mag__wait_ready_all(m, woken);
        }
        mag__wait_unpin(pinned);
        if (done)
            return;
        seen = at_64_load_rlx(word);
    }
}
