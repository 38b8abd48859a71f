/* SPDX-License-Identifier: MIT */
/* race.c: plain accesses. Two of them, one a write, of which neither happens before the other, are a race: a failure.
 *
 * The code under test is compiled with -fsanitize=thread, which makes the compiler call these hooks; libtsan, which
 * knows nothing of coroutines and weak memory, is not linked.
 */
#include "inner.h"

#include <string.h>

enum { CELLS = 1024 };

/* The last access of each thread to four bytes of memory. */
static struct cell {
    uintptr_t at;
    uint64_t execution;
    uint16_t wrote[MODEL_THREADS], read[MODEL_THREADS];
} cells[CELLS];

static struct cell *cell_of(uintptr_t word)
{
    unsigned i = (unsigned)(mix(7, word) % CELLS), left = CELLS;
    for (; cells[i].execution == run.number && cells[i].at != word; i = (i + 1) % CELLS)
        if (--left == 0)
            model_fail("more plain memory than the explorer can hold");
    if (cells[i].execution != run.number)
        cells[i] = (struct cell){.at = word, .execution = run.number};
    return &cells[i];
}

static void touch(const void *at, size_t size, bool write)
{
    if (now == NULL)
        return;
    const uint16_t *view = now->know.view.at;
    for (uintptr_t word = (uintptr_t)at & ~(uintptr_t)3; word < (uintptr_t)at + size; word += 4) {
        struct cell *c = cell_of(word);
        (write ? c->wrote : c->read)[now->self] = (uint16_t)(view[now->self] + 1); /* the next release covers it */
        for (unsigned t = 0; t < run.nthreads; t++) {
            char text[64];
            if (t != now->self && (c->wrote[t] > view[t] || (write && c->read[t] > view[t])))
                model_fail("race: thread %u %s %s, in no order with what thread %u did there", now->self,
                           write ? "writes" : "reads", explore_show(word, text), t);
        }
    }
}

#pragma GCC diagnostic ignored "-Wmissing-prototypes"
#define HOOKS(n)                                                                                                       \
    void __tsan_read##n(void *at) { touch(at, n, false); }                                                             \
    void __tsan_write##n(void *at) { touch(at, n, true); }                                                             \
    void __tsan_unaligned_read##n(void *at) { touch(at, n, false); }                                                   \
    void __tsan_unaligned_write##n(void *at) { touch(at, n, true); }
HOOKS(1)
HOOKS(2)
HOOKS(4)
HOOKS(8)
HOOKS(16)

void __tsan_read_range(void *at, size_t size) { touch(at, size, false); }
void __tsan_write_range(void *at, size_t size) { touch(at, size, true); }

void *__tsan_memset(void *at, int byte, size_t size)
{
    touch(at, size, true);
    return memset(at, byte, size);
}

void *__tsan_memcpy(void *to, const void *from, size_t size)
{
    touch(from, size, false);
    touch(to, size, true);
    return memcpy(to, from, size);
}

void __tsan_init(void) {}
void __tsan_func_entry(void *pc) { (void)pc; }
void __tsan_func_exit(void) {}
