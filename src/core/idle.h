/* SPDX-License-Identifier: MIT */
/* idle.h: which Ps nobody holds, and how many Ms search for work. See idle.c. */
#ifndef MAG_CORE_IDLE_H
#define MAG_CORE_IDLE_H

#include "base/atomic.h"

#ifndef PROCS_MAX
#define PROCS_MAX 1024
#endif

struct idle {
    ON_LINE a64 bits[(PROCS_MAX + 63) / 64]; /* bit i: P i is idle and whoever clears the bit owns it */
    ON_LINE a32 searching;                   /* Ms that look for work, or were woken to */
    a32 words;                               /* of bits that may be in use; only grows */
};

void mag__idle_init(struct idle *s, unsigned procs);
/* There will be this many Ps. */
void mag__idle_grow(struct idle *s, unsigned procs);

/* Publisher: work was made visible. True: nobody will find it by himself, wake somebody; the caller is then counted as
 * searching on his behalf and must pass that on or call mag__idle_search_end. */
bool mag__idle_wake_wanted(struct idle *s);

/* Publisher of what is left to whoever looks: true: somebody searches or a P is idle, tell them; false: whoever is about to give up
 * sees it. */
bool mag__idle_somebody(struct idle *s);

/* Searcher: may this M search? At most one does at a time. */
bool mag__idle_search_begin(struct idle *s);
/* Afterwards the caller looks for work once more, and wakes somebody if there is some: others relied on its search. */
void mag__idle_search_end(struct idle *s);

/* The owner of P i gives it up, having found no work, and looks at every source of work once more afterwards. */
void mag__idle_put(struct idle *s, unsigned i, bool searching);

/* Anyone: an idle P becomes the caller's, from `start` on; -1: none. */
int mag__idle_take_any(struct idle *s, unsigned start);
bool mag__idle_take(struct idle *s, unsigned i);
bool mag__idle_is(const struct idle *s, unsigned i);
bool mag__idle_some(const struct idle *s);
unsigned mag__idle_count(const struct idle *s);

#endif
