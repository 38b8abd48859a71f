/* SPDX-License-Identifier: MIT */
/* cores.c: how many cores there are for Ps: as many as there are, less those that the threads of others take.
 *
 * Who         sysmon counts: a P's owner would look when it has much to do, and that is when its clients sleep.
 * Average     a thread that sleeps for a moment now and then still needs its core, so an average of many looks decides, and less than a
 *             quarter of a thread is none.
 * Cost        one pread of a file that stays open: opening and closing it, and asking which cores are ours, at every look was 1.4 % of an
 *             echo server's processor time.
 */
#include "sched/cores.h"
#include "os/os.h"

#define LOOK_NS ((int64_t)5000 * 1000)
#define OLD_NS ((int64_t)1000 * 1000 * 1000) /* then what was seen is forgotten */
enum { LOOKS = 32, ONE = 1 << 16 };

static void forget(struct cores *c)
{
    at_32_store_rlx(&c->free, 0);
    if (c->watch != 0 && mag__os_running(&c->watch) != 0) /* it is still ours */
        mag__os_unwatch(c->watch);
    c->watch = 0;
}

void mag__cores_look(int64_t now, uint32_t ours, bool wanted)
{
    struct cores *c = &mag__rt.cores;
    if (now - c->at < (wanted ? LOOK_NS : OLD_NS))
        return;
    if (now - c->all_at >= OLD_NS) {
        c->all_at = now;
        c->all = mag__os_cores();
    }
    c->at = now;
    uint32_t running = wanted && c->all != 0 ? mag__os_running(&c->watch) : 0, most = 2 * c->all;
    if (running == 0) { /* nobody asks, or it cannot be told here: it may be in a while */
        c->all = wanted ? 0 : c->all;
        forget(c);
        return;
    }
    int others = running > ours ? (int)(running - ours < most ? running - ours : most) * ONE : 0;
    c->others = mag__cores_are_known() ? c->others + (others - c->others) / LOOKS : others;
    uint32_t taken = (uint32_t)(c->others + ONE * 3 / 4) / ONE;
    at_32_store_rlx(&c->contested, (uint32_t)c->others >= c->all * ONE - ONE / 4);
    at_32_store_rlx(&c->free, taken < c->all ? c->all - taken : 1);
}

void mag__cores_stop(void) { forget(&mag__rt.cores); }
