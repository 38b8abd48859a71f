/* SPDX-License-Identifier: MIT */
/* netpoll.h: waiting for file descriptors, and who asks the kernel. See netpoll.c. */
#ifndef MAG_SCHED_NETPOLL_H
#define MAG_SCHED_NETPOLL_H

#include "poll/poll.h"
#include "sched/sched.h"

enum { HARVEST = 128 };

/* What the backend said and nobody has been told of yet. */
struct harvest {
    unsigned n;
    struct backend_event events[HARVEST];
};

/* ---- in the search ---- */

/* With a P, where it is wanted: takes what has come, into the ring. True: something became runnable. */
bool mag__netpoll_try(struct p *p);
/* With a P, now and then while there is other work: the same if it has not been done for a while. */
void mag__netpoll_glance(struct p *p);
/* The owner of p has nothing to do and is about to sleep. True: it should look once more. */
bool mag__netpoll_linger(struct p *p);

/* Its owner is about to be through with what is in the ring: nobody need help. Who asks: one with no P, or for one with none; one who has a
 * P, and a core; one who was woken to help, because there was much: where the machine is full he takes some, once, and goes. The first two
 * must agree: who has given its P up sees what it would take if it had it. */
enum brisk_for { BRISK_IDLE, BRISK_BUSY, BRISK_CALLED };
bool mag__netpoll_is_brisk(struct p *p, enum brisk_for who);
/* Its slices were short, and with so many more busy Ps there are more than cores for them: a slice that lasts may only have lost its core. */
bool mag__netpoll_is_squeezed(const struct p *p, uint32_t more);

/* ---- instead of sleeping ---- */

enum slept { SLEPT_TOKEN, SLEPT_LATE, SLEPT_HARVEST, SLEPT_AGAIN };

/* Without a P: sleeps, in the poller if somebody must sit there. With SLEPT_TOKEN too there may be a harvest. */
enum slept mag__netpoll_sleep(struct m *m, int64_t until, int64_t exit_at, struct harvest *h);
/* Tells of it: with a P, or p NULL: with none. */
void mag__netpoll_bring_in(struct p *p, const struct harvest *h);
/* By who took a P for them: they come before all others. */
void mag__netpoll_bring_first(const struct harvest *h);
/* The M's token, wherever it sleeps. */
void mag__netpoll_unpark(struct m *m);

/* ---- looking after it ---- */

/* Does any goroutine wait for a descriptor? */
bool mag__netpoll_is_wanted(void);
/* sysmon: if nobody asks the kernel, it does, and finds somebody who will. */
void mag__netpoll_look(int64_t now, int64_t *pause);
/* sysmon may sleep: nobody waits, or an M sits in the poller. */
bool mag__netpoll_is_kept(void);

#endif
