/* SPDX-License-Identifier: MIT */
/* backend.h: what the descriptors ask of the system's event queue. A port fulfils this page.
 *
 * Edge        a file is registered once; an event comes for each change towards ready that follows the last one harvested.
 * Once        a file is armed for one event, which comes at once if it is ready already, and is then silent until it is armed
 *             again. Nothing here outlives a file for long: what is left of one that was closed elsewhere has an old tag.
 */
#ifndef MAG_POLL_BACKEND_H
#define MAG_POLL_BACKEND_H

#include "base/compiler.h"

#include <stdint.h>

struct backend {
    int queue, bell; /* file descriptors, close-on-exec */
};

struct backend_event {
    uint64_t tag;
    bool read, write;
    bool odd; /* an end, an error, something urgent: what was read so far says nothing about what follows */
};

enum backend_mode { BACKEND_EDGE, BACKEND_ONCE };
enum { BACKEND_READ = 1, BACKEND_WRITE = 2 };

/* 0 or a negative errno; nothing is left behind then. */
int mag__backend_init(struct backend *b);
void mag__backend_fini(struct backend *b);
/* known: the number is believed to be registered. 0; 1: it was, but for another file than the one behind the number now;
 * -EPERM: such files are always ready; other negative errnos. In every case but the first two nothing is registered. */
int mag__backend_set(struct backend *b, int fd, uint64_t tag, unsigned interest, enum backend_mode mode, bool known);
void mag__backend_remove(struct backend *b, int fd);
/* Up to n events, waiting until the deadline (0: not at all). Their number; a bell is none. */
unsigned mag__backend_wait(struct backend *b, struct backend_event *events, unsigned n, int64_t deadline);
/* Ends a wait, the one under way or the next. Any thread. */
void mag__backend_ring(struct backend *b);

#endif
