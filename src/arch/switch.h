/* SPDX-License-Identifier: MIT */
/* switch.h: the context switch. One header per architecture, inline assembly; this is the contract.
 *
 * mag__arch_switch(prev, next, m, after) leaves prev and goes on with next. What a context keeps, at the start of
 * struct g: the stack pointer, the frame pointer, and where to go on. All other registers are declared clobbered, so the
 * compiler saves those that hold something, and only those, in the frame of the function that switches.
 * The arguments travel to the other side in registers: what returns there is who was left (prev), the thread (m), and what
 * is still to be done for prev now that it is off its stack (after; NULL: nothing).
 * mag__arch_leave is the same for who never comes back: nothing of prev is read or written.
 * The floating-point control words are the caller's: mag__arch_control_save before, mag__arch_control_load after.
 *
 * Inline, and a jump instead of a return: processors predict a return from a stack of calls that a switch leaves behind.
 * A function that is called and ends in a jump leaves one entry too many there, one that ends in `ret` is predicted to
 * return to prev's caller; either costs a misprediction for each frame on the way back to user code. (Measured, two
 * goroutines that yield to each other: out of line with a jump 28 ns, inline 14.5.)
 *
 * What remains is the return to the caller after a switch: predicted is the call of whoever was left. Where goroutines that meet
 * call from different places, as those at a channel do, that is wrong each time, 10 ns. mag__arch_detour calls a function and
 * goes back to its own caller by a jump, which is predicted by where the program came from. The function's return is predicted too,
 * as everybody who waits there has called it from the same place. (A round trip of a channel: 66 ns with returns, 44 with jumps; on
 * x86-64. On aarch64 it returns: a jump into user code may be forbidden there.)
 * Rejected: jumping back from every wait. What lies on the processor's stack is one entry too many then, and the next returns
 * further out miss: not for calls that are mostly wrapped in others, or mostly made from one place.
 *
 * A fresh stack starts in mag__arch_entry, which goes on with the function named to mag__arch_prepare with the same four
 * values. Unwinders find the outermost frame there.
 */
#ifndef MAG_ARCH_SWITCH_H
#define MAG_ARCH_SWITCH_H

#include "base/compiler.h"

struct g;
struct m;

/* The first member of struct g. */
struct context {
    void *sp, *fp, *pc;
};

/* Runs on the next stack, when `prev` is off its own: only then may prev be made visible to those who could resume it. */
typedef void (*g_after)(struct m *m, struct g *prev);

struct switched {
    struct g *prev;   /* who was running before */
    struct m *m;      /* the thread it was, and so is, running on */
    g_after after;    /* what prev left to be done */
};

typedef void (*arch_entry)(struct g *prev, struct g *self, struct m *m, g_after after);

void mag__arch_entry(void);

/* fn(m, a, b, c, d), for functions that switch. */
typedef int (*arch_detour)(struct m *m, void *a, void *b, int64_t c, int64_t d);
int mag__arch_detour(struct m *m, void *a, void *b, int64_t c, int64_t d, arch_detour fn);

/* Makes a context that starts entry on a fresh stack. `top` is 16-aligned. The function is where the frame pointer comes from: it
 * is known without a look at the stack. */
static inline void mag__arch_prepare(struct context *c, char *top, arch_entry entry)
{
    c->sp = top;
    c->fp = (void *)(uintptr_t)entry;
    c->pc = (void *)(uintptr_t)mag__arch_entry;
}

/* mag__arch_prefetch_stack(c): the line a context stopped on, into the cache. The context may be in use meanwhile, so it is read
 * by assembly: a wrong guess costs nothing. */
/* mag__arch_peek(at): the pointer at `at`, which may change meanwhile, read by assembly too: good for fetching ahead and for nothing
 * else. */
#if defined(__x86_64__)
#include "arch/switch_x86_64.h"
#elif defined(__aarch64__)
#include "arch/switch_aarch64.h"
#endif

#endif
