/* SPDX-License-Identifier: MIT */
/* entry_x86_64.S: where a fresh goroutine stack begins, and where unwinders end. See switch.h.
 * A jump with a return address laid by hand, not a call: a call that never returns would leave the processor's stack of return
 * addresses one entry ahead for whoever runs after this goroutine. */

        .text
        .globl  mag__arch_entry
        .hidden mag__arch_entry
        .type   mag__arch_entry, @function
        .p2align 4
mag__arch_entry:                        /* rdi prev, rsi self, rdx m, rcx after; (rsp) the function */
        .cfi_startproc
        .cfi_undefined %rip             /* the outermost frame of a goroutine */
        leaq    1f(%rip), %rax
        movq    (%rsp), %r9
        pushq   %rax
        notrack jmp *%r9
        nop                             /* unwinders look up the address before the return address */
1:      ud2                             /* it does not return */
        .cfi_endproc
        .size   mag__arch_entry, . - mag__arch_entry

        .section .note.GNU-stack, "", @progbits
