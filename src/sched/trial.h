/* SPDX-License-Identifier: MIT */
/* trial.h: does one more thread get more done? Found out by trying. See trial.c. */
#ifndef MAG_SCHED_TRIAL_H
#define MAG_SCHED_TRIAL_H

#include "base/compiler.h"

struct trial {
    int64_t until;     /* of this window, or of what was found; 0: neither */
    int64_t begun_at;  /* the window */
    uint32_t begun;    /* slices until then */
    uint64_t done[2];  /* slices without help, and with it */
    int64_t took[2];   /* ns */
    uint8_t window;    /* 0: no trial; odd: without help; even: with */
    uint8_t vain;      /* how often in a row it was no help */
    bool on;           /* help is welcome: during a window, or as was found */
};

/* Is there anything to do? behind: the P has not caught up with what comes for a while, and help would not come by itself. */
static inline bool trial_is_due(const struct trial *t, int64_t now, bool behind)
{
    return behind ? now >= t->until : t->window != 0 || t->on;
}
/* Then: is help welcome from now on? slices: that all Ps have begun so far. */
bool mag__trial_step(struct trial *t, int64_t now, bool behind, uint32_t slices);

#endif
