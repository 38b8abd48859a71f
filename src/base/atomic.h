/* SPDX-License-Identifier: MIT */
/* atomic.h: atomics with the memory order in the name. Nothing else in the tree touches __atomic_*.
 *
 * What        a32, a64, aptr: distinct types, so that a plain access to shared memory does not compile.
 * Names       at_<type>_<operation>_<order>: rlx, acq, rel, acqrel; a fence is always seq_cst and has a name at its use.
 * Ids         every acq, rel, acqrel and fence carries an ordering id in a comment, at both of its ends;
 *             tools/check-ordering pairs them and writes docs/ordering.md.
 * Model       with MAG_MODEL the same names call the explorer of tests/model, which decides what a load may see.
 */
#ifndef MAG_BASE_ATOMIC_H
#define MAG_BASE_ATOMIC_H

#include "base/compiler.h"

typedef struct { uint32_t raw; } a32;
typedef struct { uint64_t raw; } a64;
typedef struct { void *raw; } aptr;

#ifndef MAG_MODEL

#define AT_LOAD(p, o) __atomic_load_n(p, o)
#define AT_STORE(p, v, o) __atomic_store_n(p, v, o)
#define AT_XCHG(p, v, o) __atomic_exchange_n(p, v, o)
#define AT_ADD(p, v, o) __atomic_fetch_add(p, v, o)
#define AT_AND(p, v, o) __atomic_fetch_and(p, v, o)
#define AT_OR(p, v, o) __atomic_fetch_or(p, v, o)
#define AT_CAS(p, e, d, o) __atomic_compare_exchange_n(p, e, d, 0, o, __ATOMIC_RELAXED)

/* Orders every earlier store before every later load, for everybody: the StoreLoad that no acquire or release gives. */
static inline void at_fence_seq(void)
{
#if defined(__x86_64__) && !defined(MAG_TSAN)
    __asm__ volatile("lock orl $0, -4(%%rsp)" ::: "memory", "cc"); /* 2 ns; mfence also drains what we do not use */
#else
    __atomic_thread_fence(__ATOMIC_SEQ_CST);
#endif
}

#else /* MAG_MODEL: the explorer supplies these */

enum { MODEL_ADD, MODEL_AND, MODEL_OR, MODEL_XCHG };
uint64_t model_load(const void *at, unsigned size, int order);
void model_store(void *at, unsigned size, uint64_t value, int order);
uint64_t model_rmw(void *at, unsigned size, int what, uint64_t value, int order);
bool model_cas(void *at, unsigned size, void *expected, uint64_t desired, int order, int fail_order);
void model_fence(void);

#define AT_LOAD(p, o) ((__typeof__(*(p) + 0))model_load(p, sizeof *(p), o))
#define AT_STORE(p, v, o) model_store(p, sizeof *(p), (uint64_t)(v), o)
#define AT_XCHG(p, v, o) ((__typeof__(*(p) + 0))model_rmw(p, sizeof *(p), MODEL_XCHG, (uint64_t)(v), o))
#define AT_ADD(p, v, o) ((__typeof__(*(p) + 0))model_rmw(p, sizeof *(p), MODEL_ADD, (uint64_t)(v), o))
#define AT_AND(p, v, o) ((__typeof__(*(p) + 0))model_rmw(p, sizeof *(p), MODEL_AND, (uint64_t)(v), o))
#define AT_OR(p, v, o) ((__typeof__(*(p) + 0))model_rmw(p, sizeof *(p), MODEL_OR, (uint64_t)(v), o))
#define AT_CAS(p, e, d, o) model_cas(p, sizeof *(p), e, (uint64_t)(d), o, __ATOMIC_RELAXED)
static inline void at_fence_seq(void) { model_fence(); }

#endif

#define AT_DEFINE(T, N, V)                                                                                                \
    static inline V at_##N##_load_rlx(const T *a) { return AT_LOAD(&a->raw, __ATOMIC_RELAXED); }                          \
    static inline V at_##N##_load_acq(const T *a) { return AT_LOAD(&a->raw, __ATOMIC_ACQUIRE); }                          \
    static inline void at_##N##_store_rlx(T *a, V v) { AT_STORE(&a->raw, v, __ATOMIC_RELAXED); }                          \
    static inline void at_##N##_store_rel(T *a, V v) { AT_STORE(&a->raw, v, __ATOMIC_RELEASE); }                          \
    static inline V at_##N##_xchg_acq(T *a, V v) { return AT_XCHG(&a->raw, v, __ATOMIC_ACQUIRE); }                        \
    static inline V at_##N##_xchg_rel(T *a, V v) { return AT_XCHG(&a->raw, v, __ATOMIC_RELEASE); }                        \
    static inline V at_##N##_xchg_acqrel(T *a, V v) { return AT_XCHG(&a->raw, v, __ATOMIC_ACQ_REL); }                     \
    static inline V at_##N##_xchg_rlx(T *a, V v) { return AT_XCHG(&a->raw, v, __ATOMIC_RELAXED); }                        \
    /* cas: strong; on failure *e is what was there, read relaxed */                                                      \
    static inline bool at_##N##_cas_rlx(T *a, V *e, V d) { return AT_CAS(&a->raw, e, d, __ATOMIC_RELAXED); }              \
    static inline bool at_##N##_cas_acq(T *a, V *e, V d) { return AT_CAS(&a->raw, e, d, __ATOMIC_ACQUIRE); }              \
    static inline bool at_##N##_cas_rel(T *a, V *e, V d) { return AT_CAS(&a->raw, e, d, __ATOMIC_RELEASE); }              \
    static inline bool at_##N##_cas_acqrel(T *a, V *e, V d) { return AT_CAS(&a->raw, e, d, __ATOMIC_ACQ_REL); }

#define AT_DEFINE_NUMBER(T, N, V)                                                                                         \
    AT_DEFINE(T, N, V)                                                                                                    \
    static inline V at_##N##_add_rlx(T *a, V v) { return AT_ADD(&a->raw, v, __ATOMIC_RELAXED); }                          \
    static inline V at_##N##_add_acq(T *a, V v) { return AT_ADD(&a->raw, v, __ATOMIC_ACQUIRE); }                          \
    static inline V at_##N##_add_rel(T *a, V v) { return AT_ADD(&a->raw, v, __ATOMIC_RELEASE); }                          \
    static inline V at_##N##_add_acqrel(T *a, V v) { return AT_ADD(&a->raw, v, __ATOMIC_ACQ_REL); }                       \
    static inline V at_##N##_and_rlx(T *a, V v) { return AT_AND(&a->raw, v, __ATOMIC_RELAXED); }                          \
    static inline V at_##N##_and_acq(T *a, V v) { return AT_AND(&a->raw, v, __ATOMIC_ACQUIRE); }                          \
    static inline V at_##N##_or_rlx(T *a, V v) { return AT_OR(&a->raw, v, __ATOMIC_RELAXED); }                            \
    static inline V at_##N##_or_acq(T *a, V v) { return AT_OR(&a->raw, v, __ATOMIC_ACQUIRE); }                            \
    static inline V at_##N##_or_rel(T *a, V v) { return AT_OR(&a->raw, v, __ATOMIC_RELEASE); }

AT_DEFINE_NUMBER(a32, 32, uint32_t)
AT_DEFINE_NUMBER(a64, 64, uint64_t)

#ifndef MAG_MODEL
AT_DEFINE(aptr, ptr, void *)
#else
static inline void *at_ptr_load_rlx(const aptr *a) { return (void *)(uintptr_t)model_load(&a->raw, 8, __ATOMIC_RELAXED); }
static inline void *at_ptr_load_acq(const aptr *a) { return (void *)(uintptr_t)model_load(&a->raw, 8, __ATOMIC_ACQUIRE); }
static inline void at_ptr_store_rlx(aptr *a, void *v) { model_store(&a->raw, 8, (uintptr_t)v, __ATOMIC_RELAXED); }
static inline void at_ptr_store_rel(aptr *a, void *v) { model_store(&a->raw, 8, (uintptr_t)v, __ATOMIC_RELEASE); }
#define MODEL_PTR_RMW(name, order)                                                                                        \
    static inline void *at_ptr_xchg_##name(aptr *a, void *v)                                                              \
    {                                                                                                                     \
        return (void *)(uintptr_t)model_rmw(&a->raw, 8, MODEL_XCHG, (uintptr_t)v, order);                                 \
    }                                                                                                                     \
    static inline bool at_ptr_cas_##name(aptr *a, void **e, void *d)                                                      \
    {                                                                                                                     \
        return model_cas(&a->raw, 8, e, (uintptr_t)d, order, __ATOMIC_RELAXED);                                           \
    }
MODEL_PTR_RMW(rlx, __ATOMIC_RELAXED)
MODEL_PTR_RMW(acq, __ATOMIC_ACQUIRE)
MODEL_PTR_RMW(rel, __ATOMIC_RELEASE)
MODEL_PTR_RMW(acqrel, __ATOMIC_ACQ_REL)
#undef MODEL_PTR_RMW
#endif

#undef AT_DEFINE
#undef AT_DEFINE_NUMBER

/* The fence, where a read-modify-write lies between that store and here: on x86 it was one. */
static inline void at_fence_seq_after_rmw(void)
{
#if defined(__x86_64__) && !defined(MAG_MODEL) && !defined(MAG_TSAN)
    compiler_barrier();
#else
    at_fence_seq();
#endif
}

/* A store and a full fence after it: one instruction where an exchange is both. */
static inline void at_32_store_fence(a32 *a, uint32_t v)
{
#if defined(__x86_64__) && !defined(MAG_MODEL)
    (void)at_32_xchg_acqrel(a, v);
    compiler_barrier();
#else
    at_32_store_rlx(a, v);
    at_fence_seq();
#endif
}

/* A counter with one writer: no locked instruction, and readers see no torn value. Compilers make three instructions of it where
 * x86 has one. */
#if defined(__x86_64__) && !defined(MAG_MODEL) && !defined(MAG_TSAN)
static inline void at_64_bump_owner(a64 *a, uint64_t n) { __asm__("addq %1, %0" : "+m"(a->raw) : "er"(n) : "cc"); }
static inline void at_32_bump_owner(a32 *a, uint32_t n) { __asm__("addl %1, %0" : "+m"(a->raw) : "ir"(n) : "cc"); }
#else
static inline void at_64_bump_owner(a64 *a, uint64_t n) { at_64_store_rlx(a, at_64_load_rlx(a) + n); }
static inline void at_32_bump_owner(a32 *a, uint32_t n) { at_32_store_rlx(a, at_32_load_rlx(a) + n); }
#endif

#endif
