/* SPDX-License-Identifier: MIT */
/* cores.h: how many cores there are for Ps. See cores.c. */
#ifndef MAG_SCHED_CORES_H
#define MAG_SCHED_CORES_H

#include "sched/rt.h"

/* sysmon: looks if it is time to. ours: threads of this runtime that want a core, the caller among them. wanted: somebody will ask. */
void mag__cores_look(int64_t now, uint32_t ours, bool wanted);
/* sysmon has ended. */
void mag__cores_stop(void);

static inline bool mag__cores_are_known(void) { return at_32_load_rlx(&mag__rt.cores.free) != 0; }

/* Those of others want them all: a P that has none of its own has a share, and another P one more. */
static inline bool mag__cores_are_contested(void) { return at_32_load_rlx(&mag__rt.cores.contested) != 0; }

/* Would n Ps have a core each, as far as is known? */
static inline bool mag__cores_have(uint32_t n)
{
    uint32_t free = at_32_load_rlx(&mag__rt.cores.free);
    return free == 0 || n <= free;
}

#endif
