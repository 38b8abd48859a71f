/* SPDX-License-Identifier: MIT */
/* lock.h: the runtime's own lock, for what is rare or short. Goroutines never hold one while user code runs.
 *
 * What        one word: 0 free, 1 held, 2 held and somebody may sleep.
 * Who         any thread. The thread that took it gives it back; the goroutine may be another by then (after-steps).
 * Ordering    LK1  lock acquire -> unlock release: without this what the lock guards could be read before it was taken
 *                  or written after it was given back.
 */
#ifndef MAG_OS_LOCK_H
#define MAG_OS_LOCK_H

#include "base/atomic.h"

struct lock {
    a32 word;
};

void mag__lock_wait(struct lock *l);
void mag__lock_wake(struct lock *l);

static inline bool mag__lock_try(struct lock *l)
{
    uint32_t free = 0;
    return at_32_cas_acq(&l->word, &free, 1); /* LK1 */
}

static inline void mag__lock_take(struct lock *l)
{
    if (unlikely(!mag__lock_try(l)))
        mag__lock_wait(l);
}

static inline void mag__lock_give(struct lock *l)
{
    if (unlikely(at_32_xchg_rel(&l->word, 0) == 2)) /* LK1 */
        mag__lock_wake(l);
}

#endif
