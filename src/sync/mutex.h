/* SPDX-License-Identifier: MIT */
/* mutex.h: what cond.c needs of a mutex. */
#ifndef MAG_SYNC_MUTEX_H
#define MAG_SYNC_MUTEX_H

#include "sync/waitq.h"

/* Releases it. Who is to be made runnable, or NULL. */
struct waiter *mag__mutex_release(mag_mutex *mutex);

#endif
