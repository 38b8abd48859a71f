/* SPDX-License-Identifier: MIT */
/* inner.h: what explore.c (threads, choices, the search), memory.c (what a load may see) and race.c (plain accesses)
 * share. */
#ifndef MAG_TESTS_MODEL_INNER_H
#define MAG_TESTS_MODEL_INNER_H

#include "explore.h"

enum {
    STEPS = 4000, /* an execution that is longer does not end */
    VIEW = 64,    /* entries of a view: the clocks of the threads, then the locations */
};

struct view {
    uint16_t at[VIEW];
};

/* What a thread knows of memory. */
struct knowledge {
    struct view view;              /* the oldest message it may still read, and what happened before now */
    struct view acquired;          /* what a fence would add to it */
    struct view released;          /* as it was at the last fence: what its relaxed stores hand on */
    uint16_t cause[MODEL_THREADS]; /* clocks of what its past depends on, synchronised or not */
    uint64_t history;              /* a hash of everything it has read and done */
    struct {
        uint64_t id; /* 0: none */
        uint16_t stamp;
    } last_load[VIEW]; /* relaxed ones that might have been late */
};

struct thread {
    unsigned self;
    enum { READY, ASLEEP, DONE } state;
    bool timed, woken;
    const void *bed; /* the futex it sleeps on */
    struct knowledge know;
};

/* What a late load may read: a store of that thread. */
struct future {
    uint64_t value;
    unsigned thread;
};

struct budget {
    uint8_t preempt, stale, late;
};

enum outcome { ENDED = 1, KNOWN, DISCARDED, FAILED };

/* One execution. */
struct run {
    const struct model_case *what;
    unsigned nthreads, steps;
    uint64_t number; /* of the execution, from 1 */
    struct budget left;
    struct {
        bool made, kept;
        unsigned reader, writer, loc;
        uint16_t stamp;
        uint64_t value;
    } promise; /* of the late load */
    bool tracing, failed;
    char why[512];
};

extern struct run run;
extern struct thread threads[MODEL_THREADS];
extern struct thread *now; /* NULL: setup, verify and the search itself */

/* explore.c */
void explore_step(void); /* before each step of a thread: others may come in between */
void explore_schedule(void);
/* Less than options; or, for the load of this id (0: no load), options and more: *late. */
unsigned explore_choose(unsigned options, uint64_t load, struct future *late);
void explore_offer(uint64_t load, struct future late);
NORETURN void explore_leave(enum outcome o);
const char *explore_show(uint64_t value, char text[64]);
void explore_trace(const char *what, int order, const void *at, uint64_t value, const char *note);

/* memory.c */
void memory_reset(void);
uint64_t memory_state(void); /* a hash of what the threads' histories do not tell */

/* x is scrambled first: a thread that reads its own last message mixes its history with itself. */
static inline uint64_t mix(uint64_t h, uint64_t x)
{
    x *= 0xff51afd7ed558ccdu;
    h = (h ^ x ^ x >> 33) * 0x9e3779b97f4a7c15u;
    return h ^ h >> 29;
}

#endif
