/* SPDX-License-Identifier: MIT */
/* trial.c: does one more thread get more done? Found out by trying.
 *
 * Why         where other programs leave a P its core and no more, they may be the clients that wait for its answers, from whom a helper would
 *             take the core that it needs, or strangers, with whom it had better share. Counting threads does not tell. What gets done does.
 * How         a P that does not catch up for a while tries: a window without help, one with it, and both again, as load changes by itself.
 *             Help is welcome if that got an eighth more done in the same time; after a while it must show so again. If not, the next trial is put
 *             off, each time for twice as long: messages that wait for a client without a core are late, and these must be less than one in a hundred.
 *             A window that lasted much longer says nothing: the P's owner did something else.
 */
#include "sched/trial.h"

#include <string.h>

#define WINDOW_NS ((int64_t)100 * 1000 * 1000)
#define FOUND_NS ((int64_t)8 * 1000 * 1000 * 1000)
#define VAIN_NS ((int64_t)4 * 1000 * 1000 * 1000)
#define OLD_NS ((int64_t)60 * 1000 * 1000 * 1000) /* what was in vain so long ago counts no more */
enum { WINDOWS = 4, VAIN_MOST = 4 };

static bool helped(const struct trial *t)
{
    return (double)t->done[1] * (double)t->took[0] * 8 > (double)t->done[0] * (double)t->took[1] * 9;
}

static void find(struct trial *t, int64_t now)
{
    t->window = 0;
    t->on = helped(t);
    t->until = now + (t->on ? FOUND_NS : VAIN_NS << t->vain);
    t->vain = t->on ? 0 : t->vain < VAIN_MOST ? t->vain + 1 : VAIN_MOST;
}

static void begin(struct trial *t, int64_t now)
{
    if (now - t->until >= OLD_NS)
        t->vain = 0;
    memset(t->done, 0, sizeof t->done);
    memset(t->took, 0, sizeof t->took);
    t->window = 0;
}

bool mag__trial_step(struct trial *t, int64_t now, bool behind, uint32_t slices)
{
    if (!behind) { /* help may be why: if it falls behind again, that is tried at once */
        t->until = 0;
        t->window = 0;
        return t->on = false;
    }
    if (t->window == 0 || now - t->begun_at >= 2 * WINDOW_NS) {
        begin(t, now);
    } else {
        t->done[t->window % 2 == 0] += slices - t->begun;
        t->took[t->window % 2 == 0] += now - t->begun_at;
    }
    if (t->window == WINDOWS) {
        find(t, now);
        return t->on;
    }
    t->window++;
    t->begun = slices;
    t->begun_at = now;
    t->until = now + WINDOW_NS;
    return t->on = t->window % 2 == 0;
}
