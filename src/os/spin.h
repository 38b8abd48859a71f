/* SPDX-License-Identifier: MIT */
/* spin.h: a lock for a few instructions, whose release is a plain store.
 *
 * Who         threads inside the runtime, or a foreign thread; never held across user code. A holder may lose its core to the
 *             kernel: after a while the others sleep in short naps. They look seldom, and more and more so: a look takes the line
 *             from the holder. (A hundred senders and a receiver on two procs: 72 ns a value with a look after each pause, 41.)
 * Ordering    SPN1  take acquire -> give release: without this what the lock guards could be read before it was taken or
 *                   written after it was given back.
 */
#ifndef MAG_OS_SPIN_H
#define MAG_OS_SPIN_H

#include "base/atomic.h"
#include "os/hostile.h"

struct spin {
    a32 word;
};

void mag__spin_wait(struct spin *s);

static inline bool mag__spin_try(struct spin *s)
{
    uint32_t free = 0;
    return at_32_cas_acq(&s->word, &free, 1); /* SPN1 */
}

static inline void mag__spin_take(struct spin *s)
{
    if (unlikely(!mag__spin_try(s)))
        mag__spin_wait(s);
    hostile_point();
}

static inline void mag__spin_give(struct spin *s) { at_32_store_rel(&s->word, 0); /* SPN1 */ }

#endif
