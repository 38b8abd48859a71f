/* SPDX-License-Identifier: MIT */
/* prepare.c: the first frame of a fresh stack, as the switch wants to find it (switch.h). */
#include "arch/switch.h"

#include <string.h>

NO_SANITIZE void *mag__arch_prepare(char *top, arch_entry entry)
{
#if defined(__x86_64__)
    /* above the frame 8 bytes stay free, so that mag__arch_entry starts with an aligned stack */
    uint64_t *frame = (uint64_t *)(top - 16) - 8;
    frame[0] = 0x1f80u | (uint64_t)0x037f << 32; /* the ABI's mxcsr and x87 control word */
    frame[1] = frame[2] = frame[3] = 0;
    frame[4] = (uint64_t)(uintptr_t)entry; /* r12 */
    frame[5] = 0;
    frame[6] = 0; /* rbp: the end for frame-pointer unwinders */
    frame[7] = (uint64_t)(uintptr_t)mag__arch_entry;
#elif defined(__aarch64__)
    uint64_t *frame = (uint64_t *)(top - 176);
    memset(frame, 0, 176);
    frame[0] = (uint64_t)(uintptr_t)entry;           /* x19 */
    frame[11] = (uint64_t)(uintptr_t)mag__arch_entry; /* x30 */
#endif
    return frame;
}
