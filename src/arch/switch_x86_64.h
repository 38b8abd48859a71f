/* SPDX-License-Identifier: MIT */
/* switch_x86_64.h: see switch.h. The registers are those of the calling convention, so that a fresh stack's first
 * function finds them as its arguments. */
#ifndef MAG_ARCH_SWITCH_X86_64_H
#define MAG_ARCH_SWITCH_X86_64_H

static ALWAYS_INLINE struct switched mag__arch_switch(struct g *prev, struct g *next, struct m *m, g_after after,
                                                      uint64_t control)
{
    register uint64_t r8 __asm__("r8") = control;
    __asm__ volatile("leaq    1f(%%rip), %%rax\n\t"
                     "movq    %%rsp, 0(%%rdi)\n\t"
                     "movq    %%rbp, 8(%%rdi)\n\t"
                     "movq    %%rax, 16(%%rdi)\n\t"
                     "movq    16(%%rsi), %%rax\n\t"
                     "movq    0(%%rsi), %%rsp\n\t"
                     "movq    8(%%rsi), %%rbp\n\t"
                     "notrack jmp *%%rax\n"
                     "1:\n\t"
                     : "+D"(prev), "+S"(next), "+d"(m), "+c"(after), "+r"(r8)
                     :
                     : "rax", "rbx", "r9", "r10", "r11", "r12", "r13", "r14", "r15", "cc", "memory", "xmm0", "xmm1", "xmm2",
                       "xmm3", "xmm4", "xmm5", "xmm6", "xmm7", "xmm8", "xmm9", "xmm10", "xmm11", "xmm12", "xmm13", "xmm14",
                       "xmm15"
#ifdef __AVX512F__
                       ,
                       "xmm16", "xmm17", "xmm18", "xmm19", "xmm20", "xmm21", "xmm22", "xmm23", "xmm24", "xmm25", "xmm26",
                       "xmm27", "xmm28", "xmm29", "xmm30", "xmm31", "k1", "k2", "k3", "k4", "k5", "k6", "k7"
#endif
    );
    return (struct switched){.prev = prev, .m = m, .after = after, .control = r8};
}

/* mxcsr without its status bits, and the x87 control word: what the calling convention calls callee-saved. */
#define ARCH_CONTROL_DEFAULT (0x1f80u | (uint64_t)0x037f << 32)

static ALWAYS_INLINE uint64_t mag__arch_control(void)
{
    uint32_t mxcsr;
    uint16_t x87;
    __asm__ volatile("stmxcsr %0\n\tfnstcw %1" : "=m"(mxcsr), "=m"(x87));
    return (mxcsr & 0xffc0u) | (uint64_t)x87 << 32;
}

/* Writing them costs more than all the rest of a switch: the caller has seen that they differ. */
static inline void mag__arch_set_control(uint64_t control)
{
    uint32_t mxcsr = (uint32_t)control;
    uint16_t x87 = (uint16_t)(control >> 32);
    __asm__ volatile("ldmxcsr %0\n\tfldcw %1" : : "m"(mxcsr), "m"(x87));
}

#endif
