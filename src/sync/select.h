/* SPDX-License-Identifier: MIT */
/* select.h: what select.c and selectfd.c know of each other. */
#ifndef MAG_SYNC_SELECT_H
#define MAG_SYNC_SELECT_H

#include "sync/chan.h"

/* A descriptor's case, in `reserved`, when the kernel was last asked. */
enum { FD_NOT_READY, FD_IS_READY, FD_CLOSED };

enum { SELECT_AGAIN = -4096 }; /* a descriptor had an event: look at everything once more */
#define FIRED_FD UINT32_MAX    /* not the index of a case */

struct fd_cases;

/* One round; fds: what to do besides, NULL: nothing. */
int mag__select(mag_case *cases, size_t n, struct fd_cases *fds, int64_t deadline);

/* n cases, of which nfds are descriptors'. */
int mag__selectfd(mag_case *cases, size_t n, size_t nfds, int64_t deadline);
/* In the runtime: queues up at every descriptor. 0; SELECT_AGAIN; -ENOMEM and the like. */
int mag__selectfd_join(struct m *m, struct fd_cases *fds, struct waiter *w);
void mag__selectfd_leave(struct fd_cases *fds);

#endif
