/* SPDX-License-Identifier: MIT */
/* out.h: text to an fd through a buffer on the stack: no lock, no allocation, no stdio. */
#ifndef MAG_TRACE_OUT_H
#define MAG_TRACE_OUT_H

#include "base/compiler.h"

struct out {
    int fd;
    int error; /* the first one, negative */
    size_t n;
    char buf[4096]; /* PIPE_BUF: a pipe takes as many at once, or none */
    /* For sysmon, whom nothing may hold up: what finds no room is dropped, and the loader's lock is not taken. */
    bool may_drop;
    bool full;        /* a line was dropped, and so is what follows it */
    bool cut;         /* the last line that got through has no end */
    uint32_t dropped; /* lines */
};

/* Once, before any other: where the program lies. */
void mag__out_loaded(void);
/* Everything is written, however long that takes. */
void mag__out_init(struct out *o, int fd);
/* Never waits. o is all-zero the first time, and keeps what it has dropped. */
void mag__out_init_dropping(struct out *o, int fd);
void mag__out_print(struct out *o, const char *format, ...) PRINTF(2, 3);
/* "1.5 s", "20 ms" */
void mag__out_duration(struct out *o, int64_t ns);
/* "function+0x12 (module)", or as much of it as is known. Where lines may be dropped: "program+0x12", or a bare address. */
void mag__out_place(struct out *o, const void *pc);
int mag__out_flush(struct out *o);

#endif
