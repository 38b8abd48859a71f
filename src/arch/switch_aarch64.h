/* SPDX-License-Identifier: MIT */
/* switch_aarch64.h: see switch.h. The registers are those of the calling convention, so that a fresh stack's first
 * function finds them as its arguments. x18 is an ordinary scratch register on Linux, and compilers use it as one. */
#ifndef MAG_ARCH_SWITCH_AARCH64_H
#define MAG_ARCH_SWITCH_AARCH64_H

static ALWAYS_INLINE struct switched mag__arch_switch(struct g *prev, struct g *next, struct m *m, g_after after)
{
    register struct g *x0 __asm__("x0") = prev;
    register struct g *x1 __asm__("x1") = next;
    register struct m *x2 __asm__("x2") = m;
    register g_after x3 __asm__("x3") = after;
    __asm__ volatile("adr     x9, 1f\n\t"
                     "mov     x10, sp\n\t"
                     "stp     x10, x29, [x0]\n\t"
                     "str     x9, [x0, #16]\n\t"
                     "ldr     x9, [x1, #16]\n\t"
                     "ldp     x10, x29, [x1]\n\t"
                     "mov     sp, x10\n\t"
                     "br      x9\n"
                     "1:\n\t"
                     : "+r"(x0), "+r"(x1), "+r"(x2), "+r"(x3)
                     :
                     : "x4", "x5", "x6", "x7", "x8", "x9", "x10", "x11", "x12", "x13", "x14", "x15", "x16", "x17", "x18", "x19", "x20",
                       "x21", "x22", "x23", "x24", "x25", "x26", "x27", "x28", "x30", "cc", "memory", "v0", "v1", "v2", "v3",
                       "v4", "v5", "v6", "v7", "v8", "v9", "v10", "v11", "v12", "v13", "v14", "v15", "v16", "v17", "v18",
                       "v19", "v20", "v21", "v22", "v23", "v24", "v25", "v26", "v27", "v28", "v29", "v30", "v31");
    return (struct switched){.prev = x0, .m = x2, .after = x3};
}

static ALWAYS_INLINE NORETURN void mag__arch_leave(struct g *prev, struct g *next, struct m *m, g_after after)
{
    register struct g *x0 __asm__("x0") = prev;
    register struct g *x1 __asm__("x1") = next;
    register struct m *x2 __asm__("x2") = m;
    register g_after x3 __asm__("x3") = after;
    __asm__ volatile("ldr     x9, [x1, #16]\n\t"
                     "ldp     x10, x29, [x1]\n\t"
                     "mov     sp, x10\n\t"
                     "br      x9"
                     :
                     : "r"(x0), "r"(x1), "r"(x2), "r"(x3)
                     : "memory");
    __builtin_unreachable();
}

static ALWAYS_INLINE void mag__arch_prefetch_stack(const struct context *c)
{
    const void *sp;
    __asm__ volatile("ldr %0, [%1]\n\tprfm pldl1keep, [%0]\n\tprfm pldl1keep, [%0, #64]" : "=&r"(sp) : "r"(c));
}

static ALWAYS_INLINE const char *mag__arch_peek(const void *at)
{
    const char *p;
    __asm__ volatile("ldr %0, [%1]" : "=r"(p) : "r"(at));
    return p;
}

/* Rounding mode, flushing and traps. Writing fpcr drains the pipeline: only when it differs. */
struct control {
    uint64_t fpcr;
};

static const struct control mag__arch_control_default = {0};

static ALWAYS_INLINE void mag__arch_control_save(struct control *c) { __asm__ volatile("mrs %0, fpcr" : "=r"(c->fpcr)); }

static ALWAYS_INLINE void mag__arch_control_load(const struct control *c)
{
    struct control now;
    mag__arch_control_save(&now);
    if (unlikely(now.fpcr != c->fpcr))
        __asm__ volatile("msr fpcr, %0" : : "r"(c->fpcr));
}

#endif
