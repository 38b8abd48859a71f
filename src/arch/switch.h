/* SPDX-License-Identifier: MIT */
/* switch.h: the context switch. One per architecture, in assembly; this is the contract.
 *
 * mag__arch_switch(prev, next, m) saves the callee-saved registers and the floating-point control words on the current
 * stack, stores the stack pointer in prev->sp, takes next->sp, restores the same from there and goes on where next
 * stopped, with prev and m as the result. It ends in an indirect jump: `ret` would be predicted to return to prev's
 * caller and be wrong every time.
 *
 * The frame, from prev->sp upwards:
 *
 *   x86-64                                  aarch64
 *     0  mxcsr, x87 control word              0  x19 x20 ... x28 x29 x30
 *     8  r15 r14 r13 r12 rbx rbp             96  d8 ... d15
 *    56  where to go on                     160  fpcr
 *    64  the caller's frame                 176  the caller's frame
 *
 * Status flags of the floating-point unit (mxcsr bits 0-5, fpsr) are not kept: the C standard lets no one rely on them
 * across a call into a library. The vector registers are caller-saved in the part that matters.
 * Unwinders: the CFI of the switch holds on either stack; that of mag__arch_entry says "outermost frame".
 */
#ifndef MAG_ARCH_SWITCH_H
#define MAG_ARCH_SWITCH_H

#include "base/compiler.h"

struct g;
struct m;

struct switched {
    struct g *prev; /* who was running before */
    struct m *m;    /* the thread it was, and so is, running on */
};

struct switched mag__arch_switch(struct g *prev, struct g *next, struct m *m);

/* Where a fresh stack starts: calls entry(prev, m), which does not return. */
void mag__arch_entry(void);

typedef void (*arch_entry)(struct g *prev, struct m *m);

/* Lays the first frame on a stack; the result is the sp to switch to. `top` is 16-aligned. */
void *mag__arch_prepare(char *top, arch_entry entry);

#endif
