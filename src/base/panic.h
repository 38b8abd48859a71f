/* SPDX-License-Identifier: MIT */
/* panic.h: the last words. Everything here writes with write(2) from a stack buffer: no lock, no allocation, usable in
 * signal handlers and when the heap is broken. */
#ifndef MAG_BASE_PANIC_H
#define MAG_BASE_PANIC_H

#include "base/compiler.h"
#include <stdarg.h>

/* One line on stderr, "magpie: " before it and a newline behind. */
void mag__panic_say(const char *format, ...) PRINTF(1, 2);
/* The same, then abort: the caller broke the contract. */
NORETURN void mag__panic_misuse(const char *format, ...) PRINTF(1, 2);
/* magpie itself is broken: the invariant in words, then abort. */
NORETURN void mag__panic_broken(const char *file, int line, const char *invariant);

/* Assertions in two tiers: must holds in every build, check only with -Dchecks (debug, hostile, sanitizers). */
#define must(cond)                                                                                                        \
    do {                                                                                                                  \
        if (unlikely(!(cond)))                                                                                            \
            mag__panic_broken(__FILE__, __LINE__, #cond);                                                                 \
    } while (0)
#ifdef MAG_CHECKS
#define check(cond) must(cond)
#else
#define check(cond) ((void)sizeof(cond))
#endif

#endif
