/* SPDX-License-Identifier: MIT */
/* ticker.c: mag_timer: timers and tickers that send the time on a channel of one.
 *
 * A tick that finds the channel full is dropped. Stopping or resetting takes the timer out of its heap first, which waits for a
 * firing under way, and then empties the channel: no stale value is left, and the result says exactly whether it was pending.
 */
#include "sync/chan.h"

#include <stdlib.h>

struct mag_timer {
    struct timer timer;
    a32 refs;
    struct lock lock; /* stop and reset, one at a time */
    mag_chan *chan;
};

/* Under the heap's lock; the channel's lock is below it. */
static struct g *fire(struct timer *t, int64_t now)
{
    mag_timer *ticker = container_of(t, mag_timer, timer);
    mag_chan *c = ticker->chan;
    struct waiter *woken = NULL;
    mag__spin_take(&c->lock);
    now = mag__os_now(); /* who runs the timers may have looked at the clock long ago: no value is older than the one before */
    mag__chan_send_locked(c, &now, &woken);
    mag__spin_give(&c->lock);
    if (woken == NULL)
        return NULL;
    struct g *g = woken->g;
    if (g == NULL)
        mag__parker_unpark(&woken->parker); /* its last touch */
    return g;
}

static int start(mag_timer *t, mag_time first, int64_t period)
{
    if (first == MAG_FOREVER)
        return 0;
    t->timer.fire = fire;
    return mag__clock_add(&t->timer, first < 0 ? 0 : first, period) ? 0 : -ENOMEM;
}

static int stop(mag_timer *t)
{
    int pending = mag__clock_delete(&t->timer);
    mag_chan *c = t->chan;
    mag__spin_take(&c->lock);
    at_64_store_rlx(&c->count, 0);
    mag__spin_give(&c->lock);
    return pending;
}

mag_timer *mag_timer_new(mag_time first, int64_t period)
{
    if (period < 0)
        return NULL;
    mag_timer *t = calloc(1, sizeof *t);
    if (t == NULL)
        return NULL;
    at_32_store_rlx(&t->refs, 1);
    t->chan = mag_chan_new(sizeof(mag_time), 1);
    if (t->chan == NULL || start(t, first, period) != 0) {
        mag_chan_unref(t->chan);
        free(t);
        return NULL;
    }
    return t;
}

mag_chan *mag_timer_chan(mag_timer *t) { return t->chan; }

int mag_timer_reset(mag_timer *t, mag_time first, int64_t period)
{
    if (period < 0)
        return -EINVAL;
    mag__lock_take(&t->lock);
    int pending = stop(t), r = start(t, first, period);
    mag__lock_give(&t->lock);
    return r != 0 ? r : pending;
}

int mag_timer_stop(mag_timer *t)
{
    mag__lock_take(&t->lock);
    int pending = stop(t);
    mag__lock_give(&t->lock);
    return pending;
}

mag_timer *mag_timer_ref(mag_timer *t)
{
    if (t != NULL)
        at_32_add_rlx(&t->refs, 1);
    return t;
}

void mag_timer_unref(mag_timer *t)
{
    if (t == NULL || at_32_add_acqrel(&t->refs, (uint32_t)-1) != 1) /* CH1 */
        return;
    mag__clock_delete(&t->timer);
    mag_chan_unref(t->chan);
    free(t);
}
