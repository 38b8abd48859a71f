/* SPDX-License-Identifier: MIT */
/* entry_x86_64.S: where a fresh goroutine stack begins, and where unwinders end; and a way back. See switch.h.
 * A jump with a return address laid by hand, not a call: a call that never returns would leave the processor's stack of return
 * addresses one entry ahead for whoever runs after this goroutine. */

        .text
        .globl  mag__arch_entry
        .hidden mag__arch_entry
        .type   mag__arch_entry, @function
        .p2align 4
mag__arch_entry:                        /* rdi prev, rsi self, rdx m, rcx after; rbp the function */
        .cfi_startproc
        .cfi_undefined %rip             /* the outermost frame of a goroutine */
        leaq    1f(%rip), %rax
        movq    %rbp, %r9
        pushq   %rax
        xorl    %ebp, %ebp              /* the end for frame-pointer unwinders */
        notrack jmp *%r9
        nop                             /* unwinders look up the address before the return address */
1:      ud2                             /* it does not return */
        .cfi_endproc
        .size   mag__arch_entry, . - mag__arch_entry

/* See switch.h. */
        .globl  mag__arch_detour
        .hidden mag__arch_detour
        .type   mag__arch_detour, @function
        .p2align 4
mag__arch_detour:                       /* rdi, rsi, rdx, rcx, r8: for the function in r9 */
        .cfi_startproc
        subq    $8, %rsp
        .cfi_adjust_cfa_offset 8
        call    *%r9
        addq    $8, %rsp
        .cfi_adjust_cfa_offset -8
        popq    %rcx
        .cfi_adjust_cfa_offset -8
        .cfi_register %rip, %rcx
        notrack jmp *%rcx
        .cfi_endproc
        .size   mag__arch_detour, . - mag__arch_detour

        .section .note.GNU-stack, "", @progbits
