/* SPDX-License-Identifier: MIT */
/* hostile.h: the hostile build (-Dhostile=true): rare interleavings made common, to give bugs a chance.
 *
 * The ring has 4 slots (core/runq.h); freed descriptors and emptied slots are poisoned; and wherever a protocol could be
 * interrupted stands a hostile_point, where this build now and then pauses, gives the core away or sleeps. Choices that the
 * scheduler may make either way are made at random. The seed is printed, and set by MAGPIE_HOSTILE_SEED; with threads a
 * seed repeats the choices, not the interleaving.
 */
#ifndef MAG_OS_HOSTILE_H
#define MAG_OS_HOSTILE_H

#include "base/compiler.h"

#if defined(MAG_HOSTILE) && !defined(MAG_MODEL)
void mag__hostile_pause(void);
/* True once in n, at random. */
bool mag__hostile_chance(unsigned n);
#define hostile_point() mag__hostile_pause()
#define hostile_chance(n) mag__hostile_chance(n)
#else
#define hostile_point() ((void)0)
#define hostile_chance(n) false
#endif

#define HOSTILE_POISON ((uintptr_t)0xdeadbeefdeadbee0u)

#endif
