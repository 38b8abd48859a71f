/* SPDX-License-Identifier: MIT */
/* compiler.h: the few words this code adds to the language. */
#ifndef MAG_BASE_COMPILER_H
#define MAG_BASE_COMPILER_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define likely(x) __builtin_expect(!!(x), 1)
#define unlikely(x) __builtin_expect(!!(x), 0)

#define NOINLINE __attribute__((noinline))
#define COLD __attribute__((noinline, cold))
#define HOT __attribute__((hot))
#define NORETURN __attribute__((noreturn))
#define HIDDEN __attribute__((visibility("hidden"))) /* on what is declared extern: -fvisibility speaks of definitions alone */
#define PRINTF(f, a) __attribute__((format(printf, f, a)))
#define ALWAYS_INLINE inline __attribute__((always_inline))

/* gcc forgets what it knew about a function's result only if it may not look into it at all; clang has no noipa, but
 * noinline with a barrier inside is enough for it. */
#if defined(__clang__)
#define NOIPA __attribute__((noinline))
#define NO_SANITIZE __attribute__((no_sanitize("address", "thread", "undefined")))
#else
#define NOIPA __attribute__((noinline, noipa))
#define NO_SANITIZE __attribute__((no_sanitize("address"), no_sanitize("thread"), no_sanitize("undefined")))
#endif

#define CACHE_LINE 64
#define ON_LINE __attribute__((aligned(CACHE_LINE)))

#define container_of(ptr, type, member) ((type *)((char *)(ptr)-offsetof(type, member)))
#define ARRAY_LEN(a) (sizeof(a) / sizeof *(a))

#if defined(__SANITIZE_ADDRESS__)
#define MAG_ASAN 1
#elif defined(__has_feature)
#if __has_feature(address_sanitizer)
#define MAG_ASAN 1
#endif
#endif
#if defined(__SANITIZE_THREAD__)
#define MAG_TSAN 1
#elif defined(__has_feature)
#if __has_feature(thread_sanitizer)
#define MAG_TSAN 1
#endif
#endif

/* What a spinning thread says to its core. */
static inline void cpu_relax(void)
{
#if defined(__x86_64__)
    __builtin_ia32_pause();
#elif defined(__aarch64__)
    __asm__ volatile("isb" ::: "memory"); /* yield is a nop on most cores; isb waits about as long as pause */
#else
#error "magpie knows x86-64 and aarch64"
#endif
}

static inline void compiler_barrier(void) { __asm__ volatile("" ::: "memory"); }

#endif
