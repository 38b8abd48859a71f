/* SPDX-License-Identifier: MIT */
/* magpie.h: goroutines for C. The whole public API, one header.
 *
 * Five rules hold everywhere:
 * 1. Errors are returned, never left in errno: 0 or a non-negative result is success, a negative errno is failure.
 * 2. Every call that can block takes an absolute deadline as its last argument, in nanoseconds on the monotonic clock.
 *    MAG_FOREVER never arrives; MAG_TRY has always passed: try once. A deadline that passes gives -ETIMEDOUT.
 * 3. A negative result means that nothing happened.
 * 4. Synchronisation objects are caller-allocated and all-zero is valid. Once a wait has returned, no waker touches
 *    the object again: its memory may go at once.
 * 5. Each function has a Context line: from where it may be called, and whether it may switch. After a call that may
 *    switch, errno and thread-locals are whatever the thread it woke up on has. Nothing here is for signal handlers.
 */
#ifndef MAGPIE_H
#define MAGPIE_H

#include <errno.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/select.h> /* sigset_t, whatever standard the program asks for */
#include <sys/types.h>

#ifdef __cplusplus
extern "C" {
#endif

#define MAG_VERSION_MAJOR 0
#define MAG_VERSION_MINOR 1
#define MAG_VERSION_PATCH 0

#if defined(__GNUC__)
#define MAG_DATA __attribute__((visibility("default")))
#if defined(__has_attribute)
#if __has_attribute(noplt)
#define MAG_API MAG_DATA __attribute__((noplt)) /* one jump less on the way into the shared library */
#endif
#endif
#ifndef MAG_API
#define MAG_API MAG_DATA
#endif
#define MAG_NORETURN __attribute__((noreturn))
#define MAG_UNLIKELY(x) __builtin_expect(!!(x), 0)
#else
#error "magpie needs gcc or clang"
#endif

/* errno, safe in goroutines. glibc declares the address of errno const, so a compiler may keep it across a call that
 * moves the goroutine to another thread. Define MAG_KEEP_ERRNO to leave errno alone.
 * Context: anywhere. Never switches. */
MAG_API int *mag_errno(void);
#ifndef MAG_KEEP_ERRNO
#undef errno
#define errno (*mag_errno())
#endif

/* ---- Time ---- */

typedef int64_t mag_time; /* nanoseconds on the monotonic clock */

#define MAG_FOREVER INT64_MAX
#define MAG_TRY 0
#define MAG_US 1000LL
#define MAG_MS 1000000LL
#define MAG_S 1000000000LL

/* The monotonic clock. Context: anywhere. Never switches. */
MAG_API mag_time mag_now(void);
/* now + ns, saturating at MAG_FOREVER and at 1. Context: anywhere. Never switches. */
MAG_API mag_time mag_in(int64_t ns);
/* Sleeps for so long, or until then; 0. Context: goroutine; a thread outside blocks. May switch. */
MAG_API int mag_sleep(int64_t ns);
MAG_API int mag_sleep_until(mag_time t);

/* ---- Run ---- */

typedef void (*mag_fn)(void *arg);

typedef struct mag_config {
    int procs;         /* 0: as many as the affinity mask and the cgroup quota allow */
    int max_threads;   /* 0: 10000 */
    size_t stack_size; /* 0: 256 KiB usable */
    int steal_min;     /* 0: 1. Smallest queue worth stealing from */
    int64_t slice;     /* 0: 10 ms. Time after which a computing goroutine's P may be retaken; < 0: never */
    int64_t exit_wait; /* 0: 1 s. How long mag_run waits for goroutines stuck in foreign code */
    uintptr_t reserved[10];
} mag_config; /* all-zero: the defaults */

/* Starts the runtime, runs main(arg) as the first goroutine, stops the runtime when it returns. Goroutines that have
 * not finished are discarded; locks they hold stay held.
 * Returns 0; -EBUSY: a runtime is running; -EPERM: the caller is a goroutine that outlived its runtime, or a forked child of one
 * that runs; -EINVAL: a NULL main, a bad config or environment; -ENOMEM, -EAGAIN: no memory or threads; -EDEADLK: every
 * goroutine waited for something that could never come (a dump is on stderr); -ETIMEDOUT: a goroutine was still in foreign code
 * exit_wait later and keeps its thread and stack until its next magpie call. In every case but -EBUSY the runtime is off afterwards.
 * Context: a thread outside the runtime. Blocks the thread. */
MAG_API int mag_run(mag_fn main, void *arg);
MAG_API int mag_run_with(const mag_config *cfg, mag_fn main, void *arg);

/* The runtime beside the program's own threads. Returns as mag_run; when it returns 0, mag_go works.
 * Context: a thread outside the runtime. */
MAG_API int mag_start(const mag_config *cfg);
/* Stops what mag_start started: goroutines that have not finished are discarded. Goroutines still in foreign code at the
 * deadline give -ETIMEDOUT, as with mag_run; -EPERM: not started by mag_start, or called from a goroutine.
 * Context: a thread outside the runtime. Blocks the thread. */
MAG_API int mag_stop(mag_time deadline);

/* The number of Ps, 0 while no runtime runs. Context: anywhere. Never switches. */
MAG_API int mag_procs(void);
/* Changes the number of Ps, 1 to 1024, while the program runs; from then on the machine's limits are not followed. The old
 * number; -EINVAL; -EPERM: no runtime; -ESHUTDOWN; -ENOMEM. Context: goroutine or any thread. Never switches. */
MAG_API int mag_set_procs(int n);

/* ---- Goroutines ---- */

/* Starts fn(arg) as a goroutine. On any error fn never runs and arg stays the caller's: -EINVAL: fn is NULL; -ENOMEM;
 * -EPERM: no runtime; -ESHUTDOWN: it is stopping.
 * Context: goroutine or any thread. Never switches. */
MAG_API int mag_go(mag_fn fn, void *arg);
/* The same, and fn gets its own copy of size bytes, 16-aligned: up to 64 without any allocation; more than a quarter of
 * the stack: -E2BIG. Context: goroutine or any thread. Never switches. */
MAG_API int mag_go_copy(mag_fn fn, const void *arg, size_t size);

/* A group: see Groups below. All-zero is a valid start. */
typedef struct mag_group {
    uintptr_t state[16];
} mag_group;

typedef struct mag_go_config {
    const char *name;  /* NULL: none. Copied, at most 31 bytes of it */
    size_t stack_size; /* 0: the runtime's. Rounded up to a power of two, at least 16 KiB */
    mag_group *group;  /* NULL: none */
    size_t copy;       /* size of *arg to copy, 0: pass the pointer */
    uintptr_t reserved[4];
} mag_go_config;

/* mag_go with a name, a stack size, a copy. Context: goroutine or any thread. Never switches. */
MAG_API int mag_go_with(const mag_go_config *cfg, mag_fn fn, void *arg);

/* MAG_GO(fn, type, ...): mag_go_copy of a type initialised with the rest. */
#ifdef __cplusplus
} /* extern "C" */
template <typename T>
static inline int mag_go_copy_of(mag_fn fn, const T &value)
{
    return mag_go_copy(fn, &value, sizeof value);
}
template <class T> struct mag_type { typedef T is; }; /* "struct x", "unsigned long", "char *": all are one word here */
#define MAG_GO(fn, type, ...) mag_go_copy_of<type>((fn), typename mag_type<type>::is{__VA_ARGS__})
extern "C" {
#else
#define MAG_GO(fn, type, ...) mag_go_copy((fn), &(type){__VA_ARGS__}, sizeof(type))
#endif

/* Lets the others run. Context: goroutine. May switch. */
MAG_API void mag_yield(void);
/* Ends the goroutine. In the first one of mag_run it is a return. Context: goroutine. Does not return. */
MAG_API MAG_NORETURN void mag_exit(void);
/* Unique in the process, 0 outside a goroutine. Context: anywhere. Never switches. */
MAG_API uint64_t mag_id(void);
/* Names the goroutine for dumps and traces; copied, at most 31 bytes; NULL removes it.
 * Context: goroutine. Never switches. */
MAG_API void mag_set_name(const char *name);

/* From here to mag_unlock_thread the goroutine stays on this thread, and the thread runs nobody else. They nest. A goroutine
 * that ends locked takes its thread with it. Context: goroutine. Never switches. */
MAG_API void mag_lock_thread(void);
MAG_API void mag_unlock_thread(void);

/* Around a call that is known to block (a foreign library, a slow device): others get the P at once, instead of when the
 * runtime sees that the thread sleeps. Any call may block without this; it only takes longer to be seen. No magpie call that
 * may switch between them. Context: goroutine; elsewhere they do nothing. Never switches. */
MAG_API void mag_block_begin(void);
MAG_API void mag_block_end(void);

/* Goroutine-local storage. A key is a static mag_local; destroy, if any, gets every value that is not NULL when its goroutine
 * ends (not when it is discarded with the runtime), as user code of that goroutine. */
typedef struct mag_local {
    void (*destroy)(void *value);
    uintptr_t reserved;
} mag_local;

/* The value, NULL: none was set, or outside a goroutine. Context: anywhere. Never switches. */
MAG_API void *mag_local_get(mag_local *key);
/* 0, -EPERM outside a goroutine, -ENOMEM. Context: goroutine. Never switches. */
MAG_API int mag_local_set(mag_local *key, void *value);

/* Yields if somebody wants the P: for loops that compute for long. A load and a branch otherwise.
 * Context: goroutine; elsewhere it does nothing. May switch. */
MAG_DATA extern uint32_t mag_checkpoint_word; /* read by mag_checkpoint only */
MAG_API void mag_checkpoint_slow(void);
static inline void mag_checkpoint(void)
{
    if (MAG_UNLIKELY(__atomic_load_n(&mag_checkpoint_word, __ATOMIC_RELAXED) != 0))
        mag_checkpoint_slow();
}

/* ---- Channels and select ---- */

/* A channel of values of one size: first in, first out, any number of senders and receivers, goroutines or threads. Counted
 * references; a new one has one. */
typedef struct mag_chan mag_chan;

/* Values of elem_size bytes, zero included; capacity 0: a send waits for its receiver. NULL: no memory, or the size overflows.
 * Context: anywhere. Never switches. */
MAG_API mag_chan *mag_chan_new(size_t elem_size, size_t capacity);
/* NULL is fine. The last unref frees it; with somebody waiting on it that aborts. Context: anywhere. Never switches. */
MAG_API mag_chan *mag_chan_ref(mag_chan *c);
MAG_API void mag_chan_unref(mag_chan *c);
/* 0; -EPIPE: closed; -ETIMEDOUT: elem is still the sender's; -ESHUTDOWN: a thread, and the runtime stopped. A NULL channel
 * blocks until the deadline. Context: goroutine or any thread. May switch; with MAG_TRY it never does. */
MAG_API int mag_chan_send(mag_chan *c, const void *elem, mag_time deadline);
/* The same; -EPIPE: closed and drained. elem NULL drops the value, otherwise it is untouched on failure. */
MAG_API int mag_chan_recv(mag_chan *c, void *elem, mag_time deadline);
/* Wakes all who wait; values in the buffer can still be received. -EPIPE: it was closed already.
 * Context: goroutine or any thread. Never switches. */
MAG_API int mag_chan_close(mag_chan *c);
/* Values in the buffer, a moment ago; and the capacity. Context: anywhere. Never switches. */
MAG_API size_t mag_chan_len(const mag_chan *c);
MAG_API size_t mag_chan_cap(const mag_chan *c);

/* MAG_CHAN_TYPE(jobs, struct job) makes a type `jobs` with jobs_new(capacity), jobs_send(jobs *, struct job, deadline),
 * jobs_recv(jobs *, struct job *, deadline), jobs_close, jobs_ref, jobs_unref. */
#define MAG_CHAN_TYPE(name, T)                                                                                            \
    typedef struct name name;                                                                                             \
    static inline __attribute__((unused)) name *name##_new(size_t capacity)                                               \
    {                                                                                                                     \
        return (name *)mag_chan_new(sizeof(T), capacity);                                                                 \
    }                                                                                                                     \
    static inline __attribute__((unused)) int name##_send(name *c, T value, mag_time deadline)                            \
    {                                                                                                                     \
        return mag_chan_send((mag_chan *)c, &value, deadline);                                                            \
    }                                                                                                                     \
    static inline __attribute__((unused)) int name##_recv(name *c, T *value, mag_time deadline)                           \
    {                                                                                                                     \
        return mag_chan_recv((mag_chan *)c, value, deadline);                                                             \
    }                                                                                                                     \
    static inline __attribute__((unused)) int name##_close(name *c) { return mag_chan_close((mag_chan *)c); }             \
    static inline __attribute__((unused)) name *name##_ref(name *c) { return (name *)mag_chan_ref((mag_chan *)c); }       \
    static inline __attribute__((unused)) void name##_unref(name *c) { mag_chan_unref((mag_chan *)c); }                   \
    struct name /* wants a semicolon */

enum { MAG_CASE_SEND = 1, MAG_CASE_RECV = 2, MAG_CASE_READABLE = 3, MAG_CASE_WRITABLE = 4 };

typedef struct mag_case {
    int kind;
    int result; /* of the case that fired: 0; -EPIPE: the channel is closed; -EBADF: the descriptor is */
    mag_chan *chan;
    void *elem;
    intptr_t fd;
    uintptr_t reserved;
} mag_case;

/* Expressions of type mag_case, for initialisers too. */
#ifdef __cplusplus
#define MAG_SEND(c, e) mag_case{MAG_CASE_SEND, 0, (c), const_cast<void *>(static_cast<const void *>(e)), -1, 0}
#define MAG_RECV(c, e) mag_case{MAG_CASE_RECV, 0, (c), (e), -1, 0}
#define MAG_READABLE(fd) mag_case{MAG_CASE_READABLE, 0, nullptr, nullptr, (fd), 0}
#define MAG_WRITABLE(fd) mag_case{MAG_CASE_WRITABLE, 0, nullptr, nullptr, (fd), 0}
#else
#define MAG_SEND(c, e) ((mag_case){MAG_CASE_SEND, 0, (c), (void *)(e), -1, 0})
#define MAG_RECV(c, e) ((mag_case){MAG_CASE_RECV, 0, (c), (e), -1, 0})
#define MAG_READABLE(fd) ((mag_case){MAG_CASE_READABLE, 0, NULL, NULL, (fd), 0})
#define MAG_WRITABLE(fd) ((mag_case){MAG_CASE_WRITABLE, 0, NULL, NULL, (fd), 0})
#endif

/* Waits for the first of n cases and does it, and only it. Its index, its result in cases[index].result; -ETIMEDOUT; -EINVAL;
 * -ENOMEM; -ESHUTDOWN. Of several that can go on each is as likely. A NULL channel never fires; n = 0 waits for the deadline.
 * A descriptor is only looked at, as by mag_poll. Context: goroutine; without descriptors any thread, with them -EPERM. May switch;
 * with MAG_TRY it never does. */
MAG_API int mag_select(mag_case *cases, size_t n, mag_time deadline);

/* ---- Timers and signals on channels ---- */

typedef struct mag_timer mag_timer;

/* Sends the time at `first`, and then every period ns (0: once); a tick that finds the last one unread is dropped. MAG_FOREVER as
 * first: not before a reset. NULL: no memory, no runtime, a negative period. Context: goroutine or any thread. Never switches. */
MAG_API mag_timer *mag_timer_new(mag_time first, int64_t period);
/* Of mag_time, capacity 1, borrowed. Context: anywhere. Never switches. */
MAG_API mag_chan *mag_timer_chan(mag_timer *t);
/* 1: it was pending, 0: it was not; no value from before is left. Context: goroutine or any thread. Never switches. */
MAG_API int mag_timer_reset(mag_timer *t, mag_time first, int64_t period);
MAG_API int mag_timer_stop(mag_timer *t);
/* NULL is fine; the last unref stops it. Context: anywhere. Never switches. */
MAG_API mag_timer *mag_timer_ref(mag_timer *t);
MAG_API void mag_timer_unref(mag_timer *t);

/* A channel of int: the signals of the set as they come to the process, dropped while it is full. Close it to end that. NULL: no
 * memory, no runtime, or a signal that cannot be caught this way. Context: goroutine or any thread. Never switches. */
MAG_API mag_chan *mag_signal_new(const sigset_t *set, size_t capacity);

/* ---- Synchronisation ---- */

/* All of these are caller-allocated, and all-zero is a valid start. */
typedef struct mag_mutex {
    uint64_t state;
} mag_mutex;
typedef struct mag_rwmutex {
    uint64_t state;
} mag_rwmutex;
typedef struct mag_cond {
    uint64_t state;
} mag_cond;
typedef struct mag_once {
    uint64_t state;
} mag_once;
typedef struct mag_sem {
    uint64_t state;
} mag_sem;

/* A mutex has no owner: any goroutine may unlock it. Unlocking an unlocked one aborts.
 * Context: goroutine or any thread. May switch. */
MAG_API void mag_mutex_lock(mag_mutex *m);
/* 0 or -EBUSY. Context: goroutine or any thread. Never switches. */
MAG_API int mag_mutex_trylock(mag_mutex *m);
/* Context: goroutine or any thread. Never switches. */
MAG_API void mag_mutex_unlock(mag_mutex *m);

/* Many readers or one writer, first come, first served: a writer that waits holds up later readers.
 * Context: goroutine or any thread. The locks may switch, the unlocks never do. */
MAG_API void mag_rwmutex_rlock(mag_rwmutex *m);
MAG_API void mag_rwmutex_runlock(mag_rwmutex *m);
MAG_API void mag_rwmutex_lock(mag_rwmutex *m);
MAG_API void mag_rwmutex_unlock(mag_rwmutex *m);

/* Lets go of the mutex, waits to be woken, holds the mutex again on every return: 0; -ETIMEDOUT; -ESHUTDOWN in a thread outside
 * the runtime. Context: goroutine or any thread. May switch. */
MAG_API int mag_cond_wait(mag_cond *c, mag_mutex *m, mag_time deadline);
/* Wakes the one that waits longest; all. Context: goroutine or any thread. Never switches. */
MAG_API void mag_cond_signal(mag_cond *c);
MAG_API void mag_cond_broadcast(mag_cond *c);

/* Runs fn(arg) if nobody has before; returns when it has run, by whomever, even if it ended its goroutine.
 * Context: goroutine or any thread. May switch. */
MAG_API void mag_once_do(mag_once *o, mag_fn fn, void *arg);

/* A semaphore of n units. Context: anywhere. Never switches. */
MAG_API void mag_sem_init(mag_sem *s, unsigned n);
/* Takes a unit, first come, first served: 0; -ETIMEDOUT; -ESHUTDOWN. Context: goroutine or any thread. May switch; with MAG_TRY
 * it never does. */
MAG_API int mag_sem_wait(mag_sem *s, mag_time deadline);
/* Gives n units. Context: goroutine or any thread. Never switches. */
MAG_API void mag_sem_post(mag_sem *s, unsigned n);

/* A wait group: a count that goroutines wait for to become zero. Reusable. */
typedef struct mag_wg {
    uint64_t state;
} mag_wg;

/* Adds n, which may be negative. Below zero aborts. Context: goroutine or any thread. Never switches. */
MAG_API void mag_wg_add(mag_wg *wg, int n);
/* mag_wg_add(wg, -1). Context: goroutine or any thread. Never switches. */
MAG_API void mag_wg_done(mag_wg *wg);
/* Waits until the count is zero: 0; -ETIMEDOUT; -ESHUTDOWN in a thread outside the runtime when it stops meanwhile.
 * Context: goroutine or any thread. May switch; with MAG_TRY it never does. */
MAG_API int mag_wg_wait(mag_wg *wg, mag_time deadline);

/* ---- Groups: structured concurrency and cancellation ---- */

/* A member of a cancelled group gets -ECANCELED from every call that blocks, at once and from then on; not from mutex and rwmutex
 * locks, once, yield, and what never blocks. Nothing else happens to it: it runs on and cleans up. */

/* mag_go as a member: -ECANCELED if the group is cancelled. A plain mag_go inside a member starts a non-member.
 * Context: goroutine or any thread. Never switches. */
MAG_API int mag_group_go(mag_group *g, mag_fn fn, void *arg);
MAG_API int mag_group_go_copy(mag_group *g, mag_fn fn, const void *arg, size_t size);
#ifdef __cplusplus
} /* extern "C" */
template <typename T>
static inline int mag_group_go_copy_of(mag_group *g, mag_fn fn, const T &value)
{
    return mag_group_go_copy(g, fn, &value, sizeof value);
}
#define MAG_GROUP_GO(group, fn, type, ...) mag_group_go_copy_of<type>((group), (fn), typename mag_type<type>::is{__VA_ARGS__})
extern "C" {
#else
#define MAG_GROUP_GO(group, fn, type, ...) mag_group_go_copy((group), (fn), &(type){__VA_ARGS__}, sizeof(type))
#endif
/* Waits until every member has ended: the first failure, or 0; -ETIMEDOUT: the group goes on. In a cancelled goroutine it cancels
 * this group, still waits for its members, then returns -ECANCELED. Context: goroutine or any thread. May switch. */
MAG_API int mag_group_wait(mag_group *g, mag_time deadline);
/* Cancels, waits for every member, whatever happens to the caller; the first failure, or 0. The group is all-zero again.
 * Context: goroutine or any thread. May switch. */
MAG_API int mag_group_end(mag_group *g);
/* Cancels; counts as failure -ECANCELED unless one came earlier. Context: goroutine or any thread. Never switches. */
MAG_API void mag_group_cancel(mag_group *g);
/* Cancels with -ETIMEDOUT at t; may be moved while members wait. Context: goroutine or any thread. Never switches. */
MAG_API void mag_group_set_deadline(mag_group *g, mag_time t);
/* In a member: records err, a negative errno, as the first failure, cancels the siblings, spares the caller.
 * Context: a member. Never switches. */
MAG_API void mag_fail(int err);
/* 0, or why the caller is cancelled, negative; shields ignored. Context: anywhere. Never switches. */
MAG_API int mag_cancelled(void);
/* Between these a cancelled member may block again. They nest. Context: goroutine. Never switches. */
MAG_API void mag_shield_begin(void);
MAG_API void mag_shield_end(void);

/* ---- Input and output ---- */

struct iovec;
struct msghdr;
struct sockaddr; /* and socklen_t is unsigned: sys/socket.h would bring its short names along */

/* Any file descriptor works, whoever opened it, blocking or not, and any number of goroutines may wait on one, first come, first
 * served. One that magpie opened (mag_accept, mag_listen, mag_dial, mag_open) is O_NONBLOCK and O_CLOEXEC, and is closed by mag_close
 * alone; all others may also be closed by close(2) and their numbers used again, though close(2) wakes nobody who waits. O_NONBLOCK of
 * those is never changed, except by mag_accept and mag_connect, which set it and leave it. Writing to a closed peer gives -EPIPE and
 * no signal. All return -EPERM outside a goroutine, -ECANCELED in a cancelled one, -EBADF once mag_close was called, -ENOMEM. */

/* As read(2) and write(2): may be short. Context: goroutine. May switch; with MAG_TRY it never does. */
MAG_API ssize_t mag_read(int fd, void *buf, size_t n, mag_time deadline);
MAG_API ssize_t mag_write(int fd, const void *buf, size_t n, mag_time deadline);
/* All n bytes; fewer at the end of the file, or when an error or the deadline came after some.
 * Context: goroutine. May switch; with MAG_TRY it never does. */
MAG_API ssize_t mag_read_full(int fd, void *buf, size_t n, mag_time deadline);
MAG_API ssize_t mag_write_full(int fd, const void *buf, size_t n, mag_time deadline);
/* As the C library's. MSG_DONTWAIT gives -EAGAIN instead of waiting; MSG_WAITALL has no effect.
 * Context: goroutine. May switch; with MAG_TRY it never does. */
MAG_API ssize_t mag_readv(int fd, const struct iovec *iov, int count, mag_time deadline);
MAG_API ssize_t mag_writev(int fd, const struct iovec *iov, int count, mag_time deadline);
MAG_API ssize_t mag_recv(int fd, void *buf, size_t n, int flags, mag_time deadline);
MAG_API ssize_t mag_send(int fd, const void *buf, size_t n, int flags, mag_time deadline);
MAG_API ssize_t mag_recvfrom(int fd, void *buf, size_t n, int flags, struct sockaddr *from, unsigned *size, mag_time deadline);
MAG_API ssize_t mag_sendto(int fd, const void *buf, size_t n, int flags, const struct sockaddr *to, unsigned size,
                           mag_time deadline);
MAG_API ssize_t mag_recvmsg(int fd, struct msghdr *msg, int flags, mag_time deadline);
MAG_API ssize_t mag_sendmsg(int fd, const struct msghdr *msg, int flags, mag_time deadline);
/* The new descriptor, as accept(2). Context: goroutine. May switch; with MAG_TRY it never does. */
MAG_API int mag_accept(int fd, struct sockaddr *address, unsigned *size, mag_time deadline);
/* As connect(2). After -ETIMEDOUT or -ECANCELED the attempt goes on in the kernel: close the socket.
 * Context: goroutine. May switch; with MAG_TRY it never does. */
MAG_API int mag_connect(int fd, const struct sockaddr *address, unsigned size, mag_time deadline);
/* Waits for POLLIN, POLLOUT or both, and takes nothing: those that are ready, and POLLERR and POLLHUP as poll(2) says.
 * Context: goroutine. May switch; with MAG_TRY it never does. */
MAG_API int mag_poll(int fd, int events, mag_time deadline);
/* A listening socket: "127.0.0.1:80", "[::]:80", ":80" (every address), "unix:/path", "unix:@name" (no file). backlog <= 0: the
 * system's most. -EINVAL: no address; -EADDRINUSE and what else bind(2) says. Context: goroutine. May switch, to look a name up. */
MAG_API int mag_listen(const char *address, int backlog);
/* A connected socket: "host:port", "[::1]:port", "unix:/path": every address of the host in turn. -EINVAL: no address; -ENOENT: no such
 * name; otherwise what became of the first address. Context: goroutine. May switch. */
MAG_API int mag_dial(const char *address, mag_time deadline);
/* As open(2): 0 or more, or a negative errno. Context: goroutine. The thread may block, with its P free. */
MAG_API int mag_open(const char *path, int flags, mode_t mode);
/* As pread(2), pwrite(2), fsync(2). What the page cache cannot serve blocks the thread, with its P free; once begun it is waited for.
 * Context: goroutine. May switch; with MAG_TRY it never does. */
MAG_API ssize_t mag_pread(int fd, void *buf, size_t n, off_t at, mag_time deadline);
MAG_API ssize_t mag_pwrite(int fd, const void *buf, size_t n, off_t at, mag_time deadline);
MAG_API int mag_fsync(int fd, mag_time deadline);
/* Wakes whoever waits on it with -EBADF; closes once the last call on it has left. -EBADF: it is closed or about to be.
 * Context: goroutine or any thread. Never switches. */
MAG_API int mag_close(int fd);
/* Gives a descriptor that magpie opened away: from now on it is treated as any other. -EBADF: magpie did not open it; -EBUSY: a
 * call on it is under way. Context: goroutine. Never switches. */
MAG_API int mag_fd_release(int fd);

/* ---- Look ---- */

typedef struct mag_stats {
    /* counters */
    uint64_t spawned, finished, switches, steals, stolen, failed_steals, spills, global_gets, parks, wakes;
    uint64_t retakes_blocked, retakes_computing, polls, timers;
    /* gauges */
    uint64_t goroutines, runnable, threads, idle_threads, queue;
    uint64_t reserved[13];
} mag_stats;

/* Fills *total and the first n of per_p (either may be NULL); returns the number of Ps, 0 while no runtime runs.
 * Counters are read while the program runs: each is exact, together they are not a snapshot.
 * Context: anywhere. Never switches. */
MAG_API int mag_stats_read(mag_stats *total, mag_stats *per_p, size_t n);
/* Writes every goroutine to fd: id, name, state, wait reason, how long, where created. 0 or a negative errno.
 * Context: anywhere. Never switches. */
MAG_API int mag_dump(int fd);

#ifdef __cplusplus
}
#endif
#endif
