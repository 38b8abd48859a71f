/* SPDX-License-Identifier: MIT */
#ifndef MAG_TRACE_DUMP_H
#define MAG_TRACE_DUMP_H

#include "sched/sched.h"

struct out;

/* One goroutine, one line. */
void mag__dump_g(struct out *o, const struct g *g, int64_t now);
/* Every goroutine of the runtime, which must not go away meanwhile. */
int mag__dump_all(int fd);

#endif
