/* SPDX-License-Identifier: MIT */
/* switch.h: the context switch. One header per architecture, inline assembly; this is the contract.
 *
 * mag__arch_switch(prev, next, m, after) leaves prev and goes on with next. What a context keeps, at the start of
 * struct g: the stack pointer, the frame pointer, and where to go on. All other registers are declared clobbered, so the
 * compiler saves those that hold something, and only those, in the frame of the function that switches.
 * The arguments travel to the other side in registers: what returns there is who was left (prev), the thread (m), and what
 * is still to be done for prev now that it is off its stack (after).
 * The floating-point control words are the caller's: mag__arch_control_save before, mag__arch_control_load after.
 *
 * Inline, and a jump instead of a return: processors predict a return from a stack of calls that a switch leaves behind.
 * A function that is called and ends in a jump leaves one entry too many there, one that ends in `ret` is predicted to
 * return to prev's caller; either costs a misprediction for each frame on the way back to user code. (Measured, two
 * goroutines that yield to each other: out of line with a jump 28 ns, inline 14.5.)
 *
 * A fresh stack starts in mag__arch_entry, which calls the function left there by mag__arch_prepare with the same four
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

/* Runs on the next stack, when `prev` is off its own: the only place where prev may be made visible to others. */
typedef void (*g_after)(struct m *m, struct g *prev);

struct switched {
    struct g *prev;   /* who was running before */
    struct m *m;      /* the thread it was, and so is, running on */
    g_after after;    /* what prev left to be done */
};

typedef void (*arch_entry)(struct g *prev, struct g *self, struct m *m, g_after after);

void mag__arch_entry(void);

/* Makes a context that starts entry on a fresh stack. `top` is 16-aligned. */
static inline void mag__arch_prepare(struct context *c, char *top, arch_entry entry)
{
    void **frame = (void **)(top - 16);
    frame[0] = (void *)(uintptr_t)entry;
    frame[1] = NULL;
    c->sp = frame;
    c->fp = NULL; /* the end for frame-pointer unwinders */
    c->pc = (void *)(uintptr_t)mag__arch_entry;
}

/* mag__arch_prefetch_stack(c): the line a context stopped on, into the cache. The context may be in use meanwhile, so it is read
 * by assembly: a wrong guess costs nothing. */
#if defined(__x86_64__)
#include "arch/switch_x86_64.h"
#elif defined(__aarch64__)
#include "arch/switch_aarch64.h"
#endif

#endif
