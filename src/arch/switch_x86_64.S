/* SPDX-License-Identifier: MIT */
/* switch_x86_64.S: see switch.h for the contract and the frame. */

        .text
        .globl  mag__arch_switch
        .hidden mag__arch_switch
        .type   mag__arch_switch, @function
        .p2align 6
mag__arch_switch:                       /* rdi prev, rsi next, rdx m */
        .cfi_startproc
        pushq   %rbp
        .cfi_adjust_cfa_offset 8
        .cfi_rel_offset %rbp, 0
        pushq   %rbx
        .cfi_adjust_cfa_offset 8
        .cfi_rel_offset %rbx, 0
        pushq   %r12
        .cfi_adjust_cfa_offset 8
        .cfi_rel_offset %r12, 0
        pushq   %r13
        .cfi_adjust_cfa_offset 8
        .cfi_rel_offset %r13, 0
        pushq   %r14
        .cfi_adjust_cfa_offset 8
        .cfi_rel_offset %r14, 0
        pushq   %r15
        .cfi_adjust_cfa_offset 8
        .cfi_rel_offset %r15, 0
        subq    $8, %rsp
        .cfi_adjust_cfa_offset 8
        stmxcsr (%rsp)
        fnstcw  4(%rsp)
        movl    (%rsp), %r8d
        movzwl  4(%rsp), %r9d

        movq    %rsp, (%rdi)            /* from here on the stack is next's; the CFI is the same */
        movq    (%rsi), %rsp

        /* writing a control word costs more than all the rest: only when it differs. Status bits do not count. */
        xorl    (%rsp), %r8d
        testl   $0xffc0, %r8d
        jne     1f
2:      cmpw    %r9w, 4(%rsp)
        jne     3f
4:      addq    $8, %rsp
        .cfi_adjust_cfa_offset -8
        popq    %r15
        .cfi_adjust_cfa_offset -8
        .cfi_restore %r15
        popq    %r14
        .cfi_adjust_cfa_offset -8
        .cfi_restore %r14
        popq    %r13
        .cfi_adjust_cfa_offset -8
        .cfi_restore %r13
        popq    %r12
        .cfi_adjust_cfa_offset -8
        .cfi_restore %r12
        popq    %rbx
        .cfi_adjust_cfa_offset -8
        .cfi_restore %rbx
        popq    %rbp
        .cfi_adjust_cfa_offset -8
        .cfi_restore %rbp
        popq    %rcx
        .cfi_adjust_cfa_offset -8
        .cfi_register %rip, %rcx
        movq    %rdi, %rax
        notrack jmp *%rcx

        .cfi_adjust_cfa_offset 64       /* back to the full frame for the two rare paths */
        .cfi_offset %rip, -8
        .cfi_offset %rbp, -16
        .cfi_offset %rbx, -24
        .cfi_offset %r12, -32
        .cfi_offset %r13, -40
        .cfi_offset %r14, -48
        .cfi_offset %r15, -56
1:      ldmxcsr (%rsp)
        jmp     2b
3:      fldcw   4(%rsp)
        jmp     4b
        .cfi_endproc
        .size   mag__arch_switch, . - mag__arch_switch

        .globl  mag__arch_entry
        .hidden mag__arch_entry
        .type   mag__arch_entry, @function
        .p2align 4
mag__arch_entry:                        /* rax prev, rdx m, r12 the function */
        .cfi_startproc
        .cfi_undefined %rip             /* the outermost frame of a goroutine */
        movq    %rax, %rdi
        movq    %rdx, %rsi
        callq   *%r12
        ud2                             /* entry does not return */
        .cfi_endproc
        .size   mag__arch_entry, . - mag__arch_entry

        .section .note.GNU-stack, "", @progbits
