/* SPDX-License-Identifier: MIT */
/* switch_x86_64.h: see switch.h. The registers are those of the calling convention, so that a fresh stack's first
 * function finds them as its arguments. */
#ifndef MAG_ARCH_SWITCH_X86_64_H
#define MAG_ARCH_SWITCH_X86_64_H

static ALWAYS_INLINE struct switched mag__arch_switch(struct g *prev, struct g *next, struct m *m, g_after after)
{
    __asm__ volatile("leaq    1f(%%rip), %%rax\n\t"
                     "movq    %%rsp, 0(%%rdi)\n\t"
                     "movq    %%rbp, 8(%%rdi)\n\t"
                     "movq    %%rax, 16(%%rdi)\n\t"
                     "movq    16(%%rsi), %%rax\n\t"
                     "movq    0(%%rsi), %%rsp\n\t"
                     "movq    8(%%rsi), %%rbp\n\t"
                     "notrack jmp *%%rax\n"
                     "1:\n\t"
                     : "+D"(prev), "+S"(next), "+d"(m), "+c"(after)
                     :
                     : "rax", "rbx", "r8", "r9", "r10", "r11", "r12", "r13", "r14", "r15", "cc", "memory", "xmm0", "xmm1", "xmm2",
                       "xmm3", "xmm4", "xmm5", "xmm6", "xmm7", "xmm8", "xmm9", "xmm10", "xmm11", "xmm12", "xmm13", "xmm14",
                       "xmm15"
#ifdef __AVX512F__
                       ,
                       "xmm16", "xmm17", "xmm18", "xmm19", "xmm20", "xmm21", "xmm22", "xmm23", "xmm24", "xmm25", "xmm26",
                       "xmm27", "xmm28", "xmm29", "xmm30", "xmm31", "k1", "k2", "k3", "k4", "k5", "k6", "k7"
#endif
    );
    return (struct switched){.prev = prev, .m = m, .after = after};
}

static ALWAYS_INLINE NORETURN void mag__arch_leave(struct g *prev, struct g *next, struct m *m, g_after after)
{
    __asm__ volatile("movq    16(%%rsi), %%rax\n\t"
                     "movq    0(%%rsi), %%rsp\n\t"
                     "movq    8(%%rsi), %%rbp\n\t"
                     "notrack jmp *%%rax"
                     :
                     : "D"(prev), "S"(next), "d"(m), "c"(after)
                     : "memory");
    __builtin_unreachable();
}

static ALWAYS_INLINE void mag__arch_prefetch_stack(const struct context *c)
{
    const void *sp;
    __asm__ volatile("movq (%1), %0\n\tprefetcht0 (%0)\n\tprefetcht0 64(%0)" : "=&r"(sp) : "r"(c));
}

static ALWAYS_INLINE const char *mag__arch_peek(const void *at)
{
    const char *p;
    __asm__ volatile("movq (%1), %0" : "=r"(p) : "r"(at));
    return p;
}

/* What the calling convention calls callee-saved of the floating-point state: mxcsr, with status bits that nobody relies on, and
 * the x87 control word. Reading mxcsr is slow (4 ns), and waiting for what was read takes as long again; loading it is quick.
 * So it is stored, never looked at, and loaded without asking whether it differs (measured beside an exchange: stored and
 * compared 8.8 ns, stored and loaded 4.8). */
struct control {
    uint32_t mxcsr;
    uint16_t x87;
};

static const struct control mag__arch_control_default = {0x1f80, 0x037f};

static ALWAYS_INLINE void mag__arch_control_save(struct control *c)
{
    __asm__ volatile("stmxcsr %0\n\tfnstcw %1" : "=m"(c->mxcsr), "=m"(c->x87));
}

static ALWAYS_INLINE void mag__arch_control_load(const struct control *c)
{
    __asm__ volatile("ldmxcsr %0\n\tfldcw %1" : : "m"(c->mxcsr), "m"(c->x87));
}

#endif
