/* SPDX-License-Identifier: MIT */
/* entry_aarch64.S: where a fresh goroutine stack begins, and where unwinders end. See switch.h.
 * A jump with a return address laid by hand, not a call: a call that never returns would leave the processor's stack of return
 * addresses one entry ahead for whoever runs after this goroutine. */

        .text
        .globl  mag__arch_entry
        .hidden mag__arch_entry
        .type   mag__arch_entry, %function
        .p2align 4
mag__arch_entry:                        /* x0 prev, x1 self, x2 m, x3 after; [sp] the function */
        .cfi_startproc
        .cfi_undefined x30              /* the outermost frame of a goroutine */
        ldr     x9, [sp]
        adr     x30, 1f
        br      x9
        nop                             /* unwinders look up the address before the return address */
1:      brk     #1                      /* it does not return */
        .cfi_endproc
        .size   mag__arch_entry, . - mag__arch_entry

        .section .note.GNU-stack, "", %progbits
