/* SPDX-License-Identifier: MIT */
/* parker.h: a thread's bed. One token: unpark leaves it, park takes it or sleeps until it is there.
 *
 * Invariants  one thread parks; anyone unparks. An unpark before the park is not lost; two before it are one.
 * Ordering    PK1  token release (unpark) -> token acquire (park): without this the woken thread could miss what it was
 *                  woken for (the P that was handed to it).
 * See         tests/model/parker.c
 */
#ifndef MAG_CORE_PARKER_H
#define MAG_CORE_PARKER_H

#include "base/atomic.h"

struct parker {
    a32 word; /* enum in parker.c */
};

/* 0, or -ETIMEDOUT: no token came before the deadline. */
int mag__parker_park(struct parker *k, int64_t deadline);
/* True when the thread slept, or was about to, and a wake was paid for. */
bool mag__parker_unpark(struct parker *k);

#endif
