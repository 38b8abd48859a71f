/* SPDX-License-Identifier: MIT */
/* sleep.c: mag_sleep: a wait with a deadline and nothing else. */
#include "sched/wait.h"

#include <errno.h>

static ALWAYS_INLINE int sleep_from(int64_t now, mag_time t)
{
    struct m *m = mag__m_self();
    if (m_is_cancelled(m))
        return -ECANCELED;
    if (t <= now)
        return 0;
    if (m == NULL) {
        mag__os_nap(t - now);
        return 0;
    }
    struct waiter w;
    m = mag__park_enter(m, "mag_sleep");
    waiter_init(&w, m_curg(m), true, NULL);
    if (mag__wait_arm(m, &w, t)) {
        m = mag__wait_park(m, &w, WAIT_SLEEP);
        mag__wait_disarm(&w);
        mag__token_leave(m);
        return waiter_outcome(&w) == WAIT_CANCELLED ? -ECANCELED : 0;
    } else { /* no memory for another timer: the thread sleeps instead, and anyone may take the P */
        mag__token_leave(m);
        mag__os_nap(t - now);
    }
    return 0;
}

int mag_sleep_until(mag_time t) { return sleep_from(mag__os_now(), t); }

int mag_sleep(int64_t ns)
{
    int64_t now = mag__os_now(), t;
    return sleep_from(now, __builtin_add_overflow(now, ns, &t) ? (ns < 0 ? 0 : MAG_FOREVER) : t);
}
