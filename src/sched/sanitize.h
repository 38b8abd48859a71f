/* SPDX-License-Identifier: MIT */
/* sanitize.h: what AddressSanitizer and ThreadSanitizer must be told about a switch. Nothing in other builds. */
#ifndef MAG_SCHED_SANITIZE_H
#define MAG_SCHED_SANITIZE_H

#include "core/stack.h"
#include "sched/rt.h"

#ifdef MAG_ASAN
#include <sanitizer/common_interface_defs.h>
#endif
#ifdef MAG_TSAN
#include <sanitizer/tsan_interface.h>
#endif

#if defined(MAG_ASAN) || defined(MAG_TSAN)
#define SAN_SWITCHES 1 /* a finished goroutine's stack is then not taken over in place: the tools see every switch */
#else
#define SAN_SWITCHES 0
#endif

/* A fresh stack was bound to g. */
static inline void san_bound(struct g *g)
{
    (void)g;
#ifdef MAG_TSAN
    g->fiber = __tsan_create_fiber(0);
#endif
#ifdef MAG_ASAN
    g->fake_stack = NULL;
#endif
}

/* g ended and is off its stack. */
static inline void san_unbound(struct g *g)
{
    (void)g;
#ifdef MAG_TSAN
    __tsan_destroy_fiber(g->fiber);
    g->fiber = NULL;
#endif
#ifdef MAG_ASAN
    size_t usable = mag__stack_usable(g->stack_class);
    mag__os_unpoison(g->stack - usable, usable);
#endif
}

/* g was discarded on its stack: ThreadSanitizer counts its fibre as a thread, and has room for few. */
static inline void san_discarded(struct g *g)
{
    (void)g;
#ifdef MAG_TSAN
    if (g->fiber != NULL)
        __tsan_destroy_fiber(g->fiber);
    g->fiber = NULL;
#endif
}

/* The thread's own stack becomes a g0. */
static inline void san_thread(struct g *g0)
{
    (void)g0;
#ifdef MAG_TSAN
    g0->fiber = __tsan_get_current_fiber();
#endif
#ifdef MAG_ASAN
    pthread_attr_t attr;
    void *low;
    size_t size;
    pthread_getattr_np(pthread_self(), &attr);
    pthread_attr_getstack(&attr, &low, &size);
    pthread_attr_destroy(&attr);
    g0->stack = (char *)low + size;
    g0->arg = (void *)size; /* g0 has no argument of its own */
#endif
}

/* These two inline for certain: as a function of its own it would be entered in one fibre and left in another. */
static ALWAYS_INLINE void san_before(struct g *prev, struct g *next, bool ends)
{
    (void)prev, (void)next, (void)ends;
#ifdef MAG_ASAN
    bool thread = (next->flags & G_STARTED) == 0; /* only g0 is never started */
    size_t size = thread ? (size_t)next->arg : mag__stack_usable(next->stack_class);
    __sanitizer_start_switch_fiber(ends ? NULL : &prev->fake_stack, next->stack - size, size);
#endif
#ifdef MAG_TSAN
    __tsan_switch_to_fiber(next->fiber, 0);
#endif
}

static ALWAYS_INLINE void san_after(struct g *self)
{
    (void)self;
#ifdef MAG_ASAN
    __sanitizer_finish_switch_fiber(self->fake_stack, NULL, NULL);
#endif
}

#endif
