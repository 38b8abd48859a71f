/* SPDX-License-Identifier: MIT */
#include "os/lock.h"
#include "os/os.h"

/* Critical sections are tens of nanoseconds: spin about as long as a few of them before paying for a sleep. */
#ifndef LOCK_SPINS
#define LOCK_SPINS 100
#endif

void mag__lock_wait(struct lock *l)
{
    for (int i = 0; i < LOCK_SPINS; i++) {
        cpu_relax();
        if (at_32_load_rlx(&l->word) == 0 && mag__lock_try(l))
            return;
    }
    while (at_32_xchg_acq(&l->word, 2) != 0) /* LK1 */
        mag__os_futex_wait(&l->word, 2, OS_FOREVER);
}

void mag__lock_wake(struct lock *l) { mag__os_futex_wake(&l->word, 1); }
