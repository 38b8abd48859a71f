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
/* Where the thread was when the token was left: ASLEEP: a wake was paid for; AWAY: the caller must fetch it. */
enum parker_was { PARKER_AWAKE, PARKER_ASLEEP, PARKER_AWAY };
enum parker_was mag__parker_unpark(struct parker *k);

/* To sleep elsewhere, where a token does not wake. False: there is one already, and it is taken. */
bool mag__parker_away(struct parker *k);
/* And back from there. True: a token came, and is taken. */
bool mag__parker_back(struct parker *k);

#endif
