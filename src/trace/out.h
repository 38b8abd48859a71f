/* SPDX-License-Identifier: MIT */
/* out.h: text to an fd through a buffer on the stack: no lock, no allocation, no stdio. */
#ifndef MAG_TRACE_OUT_H
#define MAG_TRACE_OUT_H

#include "base/compiler.h"

struct out {
    int fd;
    int error; /* the first one, negative */
    size_t n;
    char buf[4096];
};

void mag__out_init(struct out *o, int fd);
void mag__out_print(struct out *o, const char *format, ...) PRINTF(2, 3);
/* "1.5 s", "20 ms" */
void mag__out_duration(struct out *o, int64_t ns);
/* "function+0x12 (module)", or as much of it as is known. */
void mag__out_place(struct out *o, const void *pc);
int mag__out_flush(struct out *o);

#endif
