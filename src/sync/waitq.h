/* SPDX-License-Identifier: MIT */
/* waitq.h: a word that is a value, or a queue of those who wait for it to change. See waitq.c. */
#ifndef MAG_SYNC_WAITQ_H
#define MAG_SYNC_WAITQ_H

#include "sched/park.h"

/* On the stack of who waits. */
struct waiter {
    struct waiter *next;  /* in order of arrival */
    struct waiter *last;  /* in the first of a queue: its last */
    uint32_t value;       /* in the first of a queue: the object's value */
    int result;
    a64 *word;
    bool (*wait)(uint32_t value);
    struct g *g;          /* NULL: a thread */
    struct parker parker; /* of the thread */
    struct waiter *thread_next, **thread_link;
};

#define WAITQ_QUEUE ((uint64_t)1)
#define WAITQ_LOCKED ((uint64_t)2)

static inline uint32_t waitq_value(uint64_t state) { return (uint32_t)(state >> 32); }
static inline uint64_t waitq_of_value(uint32_t value) { return (uint64_t)value << 32; }

/* A thread outside the runtime waits while wait(value) holds: it is asked once more when it is about to queue up. 0: woken, or
 * there was nothing to wait for; -ETIMEDOUT, -ESHUTDOWN. */
int mag__waitq_wait_thread(a64 *word, bool (*wait)(uint32_t value), int64_t deadline);

void mag__waitq_after(struct m *m, struct g *prev);

/* The same for a goroutine, in the runtime with a P; *m is where it woke up. It waits without a deadline so far. */
static ALWAYS_INLINE int mag__waitq_wait(struct m **m, a64 *word, bool (*wait)(uint32_t value), enum g_reason why)
{
    struct waiter w;
    w.result = 0;
    w.word = word;
    w.wait = wait;
    w.g = m_curg(*m);
    *m = mag__park(*m, why, mag__waitq_after, &w);
    return w.result;
}

/* The first of the queue, locked, with the object's value in it; NULL: the word is a value now. */
struct waiter *mag__waitq_lock(a64 *word);
/* Unlocks with this queue. */
void mag__waitq_unlock(a64 *word, struct waiter *first);
/* Unlocks with nobody waiting and this value, the last touch of the object; then wakes the whole queue. The caller is in user
 * code, a goroutine or any thread, and called mag__waitq_pin before it locked. */
void mag__waitq_release(struct m *m, a64 *word, struct waiter *first, uint32_t value);

/* Between these nobody's stack goes away, and so no waiter. */
bool mag__waitq_pin(struct m *m);
void mag__waitq_unpin(bool pinned);

/* Shutdown, while no goroutine runs: goroutines leave their queues, threads get -ESHUTDOWN. */
void mag__waitq_clear(void);

#endif
