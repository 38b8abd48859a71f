/* SPDX-License-Identifier: MIT */
/* waitq.h: a word that is a value, or a queue of those who wait for it to change. See waitq.c. */
#ifndef MAG_SYNC_WAITQ_H
#define MAG_SYNC_WAITQ_H

#include "sched/wait.h"

/* On the stack of who waits. */
struct queued {
    struct waiter waiter;
    struct queued *next, *prev; /* in order of arrival */
    struct queued *last;  /* in the first of a queue: its last */
    a32 in;               /* it is in the queue; the lock writes */
    uint32_t value;       /* in the first of a queue: the object's value */
    uint32_t kind;        /* what it wants, for objects that offer several things */
    a64 *word;
    bool (*wait)(uint32_t *value, uint32_t kind);
};

#define WAITQ_QUEUE ((uint64_t)1)
#define WAITQ_LOCKED ((uint64_t)2)

static inline uint32_t waitq_value(uint64_t state) { return (uint32_t)(state >> 32); }
static inline uint64_t waitq_of_value(uint32_t value) { return (uint64_t)value << 32; }

/* Waits while wait(&value) holds: it is asked once more, and may change the value, when the waiter is about to queue up. In user
 * code, goroutine or thread. 0: woken, or there was nothing to wait for; -ETIMEDOUT; -ESHUTDOWN: a thread, and the runtime
 * stopped. */
int mag__waitq_wait(a64 *word, bool (*wait)(uint32_t *value, uint32_t kind), uint32_t kind, enum g_reason why,
                    int64_t deadline, const char *function);
/* The same, and a goroutine that is cancelled meanwhile gets -ECANCELED. */
int mag__waitq_wait_cancel(a64 *word, bool (*wait)(uint32_t *value, uint32_t kind), uint32_t kind, enum g_reason why,
                           int64_t deadline, const char *function);

/* The same with a step in between: before(m, arg) runs when the waiter is in the queue; m in the runtime, NULL for a thread. */
int mag__waitq_wait_with(a64 *word, bool (*wait)(uint32_t *value, uint32_t kind), uint32_t kind, enum g_reason why,
                         int64_t deadline, const char *function, void (*before)(struct m *m, void *arg), void *arg);

static inline struct queued *waitq_first(uint64_t state)
{
    return (struct queued *)(uintptr_t)(state & ~(WAITQ_QUEUE | WAITQ_LOCKED));
}

struct queued *mag__waitq_lock_wait(a64 *word);
/* The first of the queue, locked, with the object's value in it; NULL: the word is a value now. */
static inline struct queued *mag__waitq_lock(a64 *word)
{
    uint64_t state = at_64_load_acq(word); /* WQ1 */
    if (likely((state & WAITQ_LOCKED) == 0 && (state & WAITQ_QUEUE) != 0 && at_64_cas_acq(word, &state, state | WAITQ_LOCKED))) { /* WQ1 */
        hostile_point();
        return waitq_first(state);
    }
    return mag__waitq_lock_wait(word);
}

/* The word is a value still, as it was in state: it becomes a queue of q alone, with this one. False: it has changed. */
static ALWAYS_INLINE bool waitq_begin(struct queued *q, uint64_t state, uint32_t value)
{
    q->value = value;
    q->next = q->prev = NULL;
    q->last = q;
    at_32_store_rlx(&q->in, 1);
    hostile_point();
    return at_64_cas_rel(q->word, &state, (uint64_t)(uintptr_t)q | WAITQ_QUEUE); /* WQ1 */
}
/* Joins those who wait. False: nobody does any more. */
bool mag__waitq_join(struct queued *q);
/* A waiter's `leave`. For one who never comes back: if it is out already, the object may be gone. */
void mag__waitq_forget(struct waiter *w);

/* Unlocks with this queue; NULL: nobody waits, and this value, which is then the last touch of the object. */
static inline void mag__waitq_unlock(a64 *word, struct queued *first, uint32_t value)
{
    if (first != NULL)
        first->value = value;
    at_64_store_rel(word, first != NULL ? (uint64_t)(uintptr_t)first | WAITQ_QUEUE : waitq_of_value(value)); /* WQ1 */
}

/* Under the lock: takes the first out of the queue, *first, and decides it. True: it was still waiting; it is at the front of
 * *woken. */
bool mag__waitq_take(struct queued **first, struct waiter ***woken_end);

#endif
