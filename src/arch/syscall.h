/* SPDX-License-Identifier: MIT */
/* syscall.h: a system call without a function around it: what the kernel says, errors negative; errno stays as it is.
 *
 * For the calls that a server makes for every message. The kernel's own calls have used up what the processor remembers of ours, so
 * each return on the way back is mispredicted: the C library's function is one of them. (An echo server on two cores: 25 ns a message.)
 * No cancellation point, and nothing that a sanitizer sees.
 */
#ifndef MAG_ARCH_SYSCALL_H
#define MAG_ARCH_SYSCALL_H

#include "base/compiler.h"

static ALWAYS_INLINE long mag__arch_syscall6(long number, long a, long b, long c, long d, long e, long f)
{
#if defined(__x86_64__)
    register long r10 __asm__("r10") = d;
    register long r8 __asm__("r8") = e;
    register long r9 __asm__("r9") = f;
    long result;
    __asm__ volatile("syscall" : "=a"(result) : "0"(number), "D"(a), "S"(b), "d"(c), "r"(r10), "r"(r8), "r"(r9) : "rcx", "r11", "memory", "cc");
    return result;
#elif defined(__aarch64__)
    register long x8 __asm__("x8") = number;
    register long x0 __asm__("x0") = a;
    register long x1 __asm__("x1") = b;
    register long x2 __asm__("x2") = c;
    register long x3 __asm__("x3") = d;
    register long x4 __asm__("x4") = e;
    register long x5 __asm__("x5") = f;
    __asm__ volatile("svc #0" : "+r"(x0) : "r"(x8), "r"(x1), "r"(x2), "r"(x3), "r"(x4), "r"(x5) : "memory", "cc");
    return x0;
#else
#error "magpie knows x86-64 and aarch64"
#endif
}

#endif
