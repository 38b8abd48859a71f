/* SPDX-License-Identifier: MIT */
/* entry_aarch64.S: where a fresh goroutine stack begins, and where unwinders end; and a way back. See switch.h.
 * A jump with a return address laid by hand, not a call: a call that never returns would leave the processor's stack of return
 * addresses one entry ahead for whoever runs after this goroutine. */

        .text
        .globl  mag__arch_entry
        .hidden mag__arch_entry
        .type   mag__arch_entry, %function
        .p2align 4
mag__arch_entry:                        /* x0 prev, x1 self, x2 m, x3 after; x29 the function */
        .cfi_startproc
        .cfi_undefined x30              /* the outermost frame of a goroutine */
        mov     x9, x29
        mov     x29, xzr                /* the end for frame-pointer unwinders */
        adr     x30, 1f
        br      x9
        nop                             /* unwinders look up the address before the return address */
1:      brk     #1                      /* it does not return */
        .cfi_endproc
        .size   mag__arch_entry, . - mag__arch_entry

/* See switch.h. */
        .globl  mag__arch_detour
        .hidden mag__arch_detour
        .type   mag__arch_detour, %function
        .p2align 4
mag__arch_detour:                       /* x0 to x4: for the function in x5 */
        .cfi_startproc
        stp     x29, x30, [sp, -16]!
        .cfi_adjust_cfa_offset 16
        .cfi_offset x29, -16
        .cfi_offset x30, -8
        mov     x29, sp
        blr     x5
        ldp     x29, x30, [sp], 16
        .cfi_adjust_cfa_offset -16
        .cfi_restore x29
        .cfi_restore x30
        ret                             /* a jump would need a landing pad in programs with branch protection */
        .cfi_endproc
        .size   mag__arch_detour, . - mag__arch_detour

        .section .note.GNU-stack, "", %progbits
