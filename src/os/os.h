/* SPDX-License-Identifier: MIT */
/* os.h: what magpie asks of the operating system. A port fulfils this page and nothing else.
 *
 * Time, futexes, threads, memory and randomness come through here and only through here, so that the same code can run
 * on a virtual clock, on virtual threads, in a model checker, and with each call failing in turn.
 * Errors are negative errnos. No function here leaves a trace in errno.
 */
#ifndef MAG_OS_OS_H
#define MAG_OS_OS_H

#include "base/atomic.h"
#include <pthread.h>

#define OS_FOREVER INT64_MAX
#define OS_PAGE 4096u /* the smallest page; mag__os_page_size() is the real one */

/* ---- clock ---- */

int64_t mag__os_now(void); /* monotonic nanoseconds */
void mag__os_nap(int64_t ns);
/* Lets the kernel run another thread here. */
void mag__os_yield(void);

/* ---- futex: process-private, 32 bits ---- */

/* Sleeps while *word == expected. 0: woken or the value differed, spuriously too; -ETIMEDOUT. deadline: os_now's clock. */
int mag__os_futex_wait(a32 *word, uint32_t expected, int64_t deadline);
void mag__os_futex_wake(a32 *word, int n);

/* ---- threads ---- */

struct os_thread {
    pthread_t handle;
};

/* Starts fn(arg) with every asynchronous signal blocked, a small stack and an alternate signal stack. -EAGAIN, -ENOMEM. */
int mag__os_thread_start(struct os_thread *t, const char *name, void *(*fn)(void *), void *arg);
void mag__os_thread_join(struct os_thread *t);
void mag__os_thread_detach(struct os_thread *t);
uint32_t mag__os_thread_id(void); /* of the caller, never 0 */
/* Whether another thread of the process runs (or could, had it a core) or sleeps in the kernel. Costs 1 to 2 us a look. */
enum os_doing { OS_UNKNOWN, OS_RUNNING, OS_BLOCKED };
int mag__os_watch(uint32_t thread_id); /* something to look with, 0: none can be had */
enum os_doing mag__os_look(int watch);
void mag__os_unwatch(int watch);
int64_t mag__os_thread_cpu(uint32_t thread_id); /* ns of processor time it has had, -1: it is gone */
/* How long a thread of the ordinary kind may run before another one has its turn; the caller's own: 0. Who has a shorter one goes first
 * when it wakes up beside one that has a longer one. OS_SLICE_USUAL: as they had it at first. Does nothing where the kernel has no such
 * thing (before 6.12) or forbids it, or where the nice value is below 0. */
#define OS_SLICE_USUAL ((int64_t)0)
void mag__os_thread_slice(uint32_t thread_id, int64_t ns);
int mag__os_thread_count(void); /* of the process; 0 where that cannot be told */

/* ---- memory ---- */

size_t mag__os_page_size(void);
/* Address space, zero-filled on first touch, not counted against overcommit where the system allows. NULL: none. */
void *mag__os_reserve(size_t size, size_t align);
void mag__os_unmap(void *at, size_t size);
#ifdef MAG_ASAN
/* AddressSanitizer forgets what it knows of frames there. */
void mag__os_unpoison(void *at, size_t size);
#endif
/* The contents go, the address space stays. */
void mag__os_discard(void *at, size_t size);
/* Large pages for this range: always (true) or never (false). A hint. */
void mag__os_huge(void *at, size_t size, bool wanted);
/* Makes a range inaccessible, keeping the rest of its mapping whole where the kernel can (no VMA per guard). */
int mag__os_guard(void *at, size_t size);
/* Does mag__os_guard cost a mapping (and so count against the limit of mappings)? */
bool mag__os_guard_costs_mapping(void);
/* How many mappings the process may have. */
size_t mag__os_mapping_limit(void);

/* ---- the machine ---- */

int mag__os_cpus(void); /* that this process may run on, at least 1 */
/* All that are online, if this process may run on all of them, or 0: who runs may run on others. */
uint32_t mag__os_cores(void);
/* Threads that run or want to, of every process, the caller among them; 0 where that cannot be told. *watch: 0 at first, and what it leaves
 * there for the next call is for mag__os_unwatch. */
uint32_t mag__os_running(int *watch);
uint64_t mag__os_random(void);
/* The beginning of a small file, as a string. Its length, or negative. */
int mag__os_read_file(const char *path, char *buf, size_t size);
/* A barrier on every thread of the process that is running now: true, or false where the kernel has none. */
bool mag__os_barrier_all(void);

/* ---- faults, for tests ---- */

/* The nth call from now that takes memory or a thread fails (1: the next one); 0: none. */
void mag__os_fail_nth(unsigned n);
/* True when this call is the one to fail. For system calls that are made elsewhere. */
bool mag__os_fails(void);

#endif
