/* SPDX-License-Identifier: MIT */
/* switch_aarch64.S: see switch.h for the contract and the frame. */

        .text
        .globl  mag__arch_switch
        .hidden mag__arch_switch
        .type   mag__arch_switch, %function
        .p2align 6
mag__arch_switch:                       /* x0 prev, x1 next, x2 m */
        .cfi_startproc
        sub     sp, sp, #176
        .cfi_def_cfa_offset 176
        stp     x19, x20, [sp, #0]
        stp     x21, x22, [sp, #16]
        stp     x23, x24, [sp, #32]
        stp     x25, x26, [sp, #48]
        stp     x27, x28, [sp, #64]
        stp     x29, x30, [sp, #80]
        .cfi_offset x19, -176
        .cfi_offset x20, -168
        .cfi_offset x21, -160
        .cfi_offset x22, -152
        .cfi_offset x23, -144
        .cfi_offset x24, -136
        .cfi_offset x25, -128
        .cfi_offset x26, -120
        .cfi_offset x27, -112
        .cfi_offset x28, -104
        .cfi_offset x29, -96
        .cfi_offset x30, -88
        stp     d8, d9, [sp, #96]
        stp     d10, d11, [sp, #112]
        stp     d12, d13, [sp, #128]
        stp     d14, d15, [sp, #144]
        .cfi_offset 72, -80             /* d8 ... d15 */
        .cfi_offset 73, -72
        .cfi_offset 74, -64
        .cfi_offset 75, -56
        .cfi_offset 76, -48
        .cfi_offset 77, -40
        .cfi_offset 78, -32
        .cfi_offset 79, -24
        mrs     x9, fpcr
        str     x9, [sp, #160]

        mov     x10, sp                 /* from here on the stack is next's; the CFI is the same */
        str     x10, [x0]
        ldr     x10, [x1]
        mov     sp, x10

        ldr     x10, [sp, #160]         /* writing fpcr drains the pipeline: only when it differs */
        cmp     x9, x10
        b.ne    1f
2:      ldp     x19, x20, [sp, #0]
        ldp     x21, x22, [sp, #16]
        ldp     x23, x24, [sp, #32]
        ldp     x25, x26, [sp, #48]
        ldp     x27, x28, [sp, #64]
        ldp     x29, x30, [sp, #80]
        ldp     d8, d9, [sp, #96]
        ldp     d10, d11, [sp, #112]
        ldp     d12, d13, [sp, #128]
        ldp     d14, d15, [sp, #144]
        mov     x1, x2
        add     sp, sp, #176
        .cfi_remember_state
        .cfi_def_cfa_offset 0
        br      x30
        .cfi_restore_state
1:      msr     fpcr, x10
        b       2b
        .cfi_endproc
        .size   mag__arch_switch, . - mag__arch_switch

        .globl  mag__arch_entry
        .hidden mag__arch_entry
        .type   mag__arch_entry, %function
        .p2align 4
mag__arch_entry:                        /* x0 prev, x1 m, x19 the function */
        .cfi_startproc
        .cfi_undefined x30              /* the outermost frame of a goroutine */
        mov     x29, xzr
        mov     x30, xzr
        blr     x19
        brk     #1                      /* entry does not return */
        .cfi_endproc
        .size   mag__arch_entry, . - mag__arch_entry

        .section .note.GNU-stack, "", %progbits
