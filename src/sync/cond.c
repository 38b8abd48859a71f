/* SPDX-License-Identifier: MIT */
/* cond.c: the condition variable: nothing but a queue (waitq.c), in order of arrival. A waiter is in the queue before it lets go
 * of the mutex, so no signal that comes after can miss it. */
#include "base/panic.h"
#include "sync/mutex.h"

#include <errno.h>

static a64 *word_of(mag_cond *c) { return (a64 *)&c->state; }

static bool always(uint32_t *value, uint32_t kind) { return (void)value, (void)kind, true; }

/* Runs when the waiter is queued: lets go of the mutex. m: in the runtime, or NULL. */
static void let_go(struct m *m, void *arg)
{
    bool pinned = m == NULL && mag__wait_pin(NULL);
    struct waiter *w = mag__mutex_release(arg);
    if (w != NULL && m != NULL)
        waiter_ready(m, w);
    else
        mag__wait_ready_all(NULL, w);
    mag__wait_unpin(pinned);
}

int mag_cond_wait(mag_cond *c, mag_mutex *mutex, mag_time deadline)
{
    if (m_is_cancelled(mag__m_self()))
        return -ECANCELED;
    if (deadline <= MAG_TRY)
        return -ETIMEDOUT;
    int r = mag__waitq_wait_with(word_of(c), always, 0, WAIT_COND, deadline, "mag_cond_wait", let_go, mutex);
    if (r != -ENOMEM) /* with that it never let go */
        mag_mutex_lock(mutex);
    return r;
}

static void wake(mag_cond *c, bool all)
{
    a64 *word = word_of(c);
    if (at_64_load_acq(word) == 0) /* WQ1 */
        return;
    struct m *m = mag__m_self();
    bool pinned = mag__wait_pin(m);
    struct queued *first = mag__waitq_lock(word);
    struct waiter *woken = NULL, **end = &woken;
    if (first != NULL) {
        while (first != NULL && (!mag__waitq_take(&first, &end) || all))
            continue;
        mag__waitq_unlock(word, first, 0);
        mag__wait_ready_all(m, woken);
    }
    mag__wait_unpin(pinned);
}

void mag_cond_signal(mag_cond *c) { wake(c, false); }
void mag_cond_broadcast(mag_cond *c) { wake(c, true); }
