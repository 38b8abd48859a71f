/* SPDX-License-Identifier: MIT */
/* hook.h: counters, and later trace points: a leaf that every room may include.
 *
 * A P's counters are written by the M that holds it, without locked instructions and on no shared cache line; anyone may
 * read them. What happens without a P goes to one set of shared counters, off every hot path.
 */
#ifndef MAG_TRACE_HOOK_H
#define MAG_TRACE_HOOK_H

#include "base/atomic.h"

#define COUNTERS(X)                                                                                                       \
    X(spawned) X(finished) X(switches) X(steals) X(stolen) X(failed_steals) X(spills) X(global_gets) X(parks) X(wakes)    \
    X(retakes_blocked) X(retakes_computing) X(polls) X(timers)

struct counters {
#define X(name) a64 name;
    COUNTERS(X)
#undef X
};

/* By the owner of the P these belong to. */
#define COUNT_OWNER(counters, name) at_64_bump_owner(&(counters)->name, 1)
#define COUNT_OWNER_N(counters, name, n) at_64_bump_owner(&(counters)->name, n)
/* By anyone. */
#define COUNT_ANY(counters, name) at_64_add_rlx(&(counters)->name, 1)

#endif
