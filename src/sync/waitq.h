/* SPDX-License-Identifier: MIT */
/* waitq.h: who waits for what, in a table hashed by address. See waitq.c. */
#ifndef MAG_SYNC_WAITQ_H
#define MAG_SYNC_WAITQ_H

#include "sched/sched.h"

struct waitq_bucket;

/* Waits on key. still(arg) is asked under the bucket's lock: false means that there is nothing to wait for. Returns 0 when
 * woken or not needed; -ETIMEDOUT; -ESHUTDOWN: a thread outside the runtime, and it stopped.
 * A goroutine (in the runtime, *m with a P; *m is where it woke up) waits without a deadline so far. m == NULL: a thread. */
int mag__waitq_wait(struct m **m, const void *key, bool (*still)(void *arg), void *arg, enum g_reason why,
                    int64_t deadline);

/* change(arg) is asked under the bucket's lock; true: everybody who waits on key is woken, in order. key itself is not
 * touched after change has returned. For goroutines and threads, in user code. */
void mag__waitq_wake_all(const void *key, bool (*change)(void *arg), void *arg);

/* Shutdown: goroutines are forgotten, threads get -ESHUTDOWN. */
void mag__waitq_clear(void);

#endif
