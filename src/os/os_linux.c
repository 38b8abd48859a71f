/* SPDX-License-Identifier: MIT */
/* os_linux.c: os.h on Linux.
 *
 * Guards      MADV_GUARD_INSTALL (Linux 6.13) makes a page fault like PROT_NONE without a mapping of its own, so that a
 *             million guarded stacks fit under vm.max_map_count. Emulators accept and ignore advice they do not know:
 *             the probe therefore looks whether the page really went away.
 * Ordering    OSP1  probe result release (guard_kind) -> acquire (guard_kind): without this a second thread could see
 *                   "probed" before the page-size and guard kind it stands for.
 */
#include "os/os.h"
#include "base/panic.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <linux/futex.h>
#include <linux/membarrier.h>
#include <sched.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/random.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

#ifdef MAG_ASAN
#include <sanitizer/asan_interface.h>
#endif

#ifndef MADV_GUARD_INSTALL
#define MADV_GUARD_INSTALL 102
#endif
#ifndef MAP_FIXED_NOREPLACE
#define MAP_FIXED_NOREPLACE 0x100000
#endif

#define SIGNAL_STACK_SIZE (64u << 10)

static struct {
    a32 guard_kind;    /* enum guard_kind */
    a32 fail_in;       /* calls until an injected failure, 0: none */
    a32 barrier_ready; /* 0 unknown, 1 registered, 2 none */
    a64 usual_slice;   /* of the first thread whose was changed, 0: none was */
} os;

enum guard_kind { GUARD_UNKNOWN, GUARD_ADVICE, GUARD_PROTECT };

bool mag__os_fails(void)
{
    uint32_t n = at_32_load_rlx(&os.fail_in);
    while (unlikely(n != 0))
        if (at_32_cas_rlx(&os.fail_in, &n, n - 1))
            return n == 1;
    return false;
}

void mag__os_fail_nth(unsigned n) { at_32_store_rlx(&os.fail_in, n); }

/* ---- clock ---- */

int64_t mag__os_now(void)
{
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (int64_t)t.tv_sec * 1000000000 + t.tv_nsec;
}

void mag__os_yield(void) { sched_yield(); }

void mag__os_nap(int64_t ns)
{
    struct timespec t = {.tv_sec = ns / 1000000000, .tv_nsec = ns % 1000000000};
    int saved = errno;
    while (clock_nanosleep(CLOCK_MONOTONIC, 0, &t, &t) == EINTR)
        continue;
    errno = saved;
}

/* ---- futex ---- */

/* NOIPA: with LTO gcc sees nothing but a leaf system call here, and keeps other threads' variables in registers across it. */
NOIPA int mag__os_futex_wait(a32 *word, uint32_t expected, int64_t deadline)
{
    struct timespec t, *tp = NULL;
    if (deadline != OS_FOREVER) {
        if (deadline < 0)
            deadline = 0;
        t.tv_sec = deadline / 1000000000;
        t.tv_nsec = deadline % 1000000000;
        tp = &t;
    }
    int saved = errno;
    /* the bitset form takes an absolute deadline on the monotonic clock */
    long r = syscall(SYS_futex, &word->raw, FUTEX_WAIT_BITSET | FUTEX_PRIVATE_FLAG, expected, tp, NULL,
                     FUTEX_BITSET_MATCH_ANY);
    int result = r < 0 && errno == ETIMEDOUT ? -ETIMEDOUT : 0;
    errno = saved;
    return result;
}

void mag__os_futex_wake(a32 *word, int n)
{
    int saved = errno;
    syscall(SYS_futex, &word->raw, FUTEX_WAKE | FUTEX_PRIVATE_FLAG, n, NULL, NULL, 0);
    errno = saved;
}

/* ---- threads ---- */

struct start {
    void *(*fn)(void *);
    void *arg;
    char name[16];
};

static void *thread_main(void *arg)
{
    struct start s = *(struct start *)arg;
    free(arg);
    prctl(PR_SET_NAME, s.name);
    prctl(PR_SET_TIMERSLACK, 1UL); /* sleeps end when they should, not up to 50 us later */
    char signal_stack[SIGNAL_STACK_SIZE]; /* in the thread's own stack: no mapping, nothing to fail */
    stack_t alt = {.ss_sp = signal_stack, .ss_size = sizeof signal_stack}, old;
    must(sigaltstack(&alt, &old) == 0);
    void *result = s.fn(s.arg);
    sigaltstack(&old, NULL);
    return result;
}

/* Signals that tell of a fault in the code that runs must reach the thread that made it; all others are not for it. */
static void block_asynchronous(sigset_t *old)
{
    sigset_t set;
    sigfillset(&set);
    static const int synchronous[] = {SIGSEGV, SIGBUS, SIGFPE, SIGILL, SIGTRAP, SIGSYS, SIGABRT, SIGPROF};
    for (size_t i = 0; i < ARRAY_LEN(synchronous); i++)
        sigdelset(&set, synchronous[i]);
    pthread_sigmask(SIG_SETMASK, &set, old);
}

int mag__os_thread_start(struct os_thread *t, const char *name, void *(*fn)(void *), void *arg)
{
    if (mag__os_fails())
        return -EAGAIN;
    struct start *s = malloc(sizeof *s);
    if (s == NULL)
        return -ENOMEM;
    *s = (struct start){.fn = fn, .arg = arg};
    snprintf(s->name, sizeof s->name, "%s", name);
    pthread_attr_t attr;
    pthread_attr_init(&attr);
    size_t size = SIGNAL_STACK_SIZE + (256u << 10); /* static TLS of the program's libraries comes out of this too */
    if (size < (size_t)PTHREAD_STACK_MIN)
        size = (size_t)PTHREAD_STACK_MIN;
    pthread_attr_setstacksize(&attr, size);
    sigset_t old;
    block_asynchronous(&old);
    int r = pthread_create(&t->handle, &attr, thread_main, s);
    pthread_sigmask(SIG_SETMASK, &old, NULL);
    pthread_attr_destroy(&attr);
    if (r != 0)
        free(s);
    return -r;
}

void mag__os_thread_join(struct os_thread *t) { pthread_join(t->handle, NULL); }
void mag__os_thread_detach(struct os_thread *t) { pthread_detach(t->handle); }

uint32_t mag__os_thread_id(void) { return (uint32_t)syscall(SYS_gettid); }

/* glibc has no wrapper for these before 2.41. */
struct sched_attr_0 {
    uint32_t size, policy;
    uint64_t flags;
    int32_t nice;
    uint32_t priority;
    uint64_t runtime, deadline, period;
};

#define SCHED_RESET_ON_FORK_0 ((uint64_t)1)

/* Threads and processes begun by such a thread are not meant: the flag gives them the usual slice. It also sets a nice value below 0
 * back to 0 in them, so where there is one nothing is changed. To clear it needs a privilege: without, it stays. */
void mag__os_thread_slice(uint32_t thread_id, int64_t ns)
{
    int saved = errno;
    struct sched_attr_0 a = {.size = sizeof a};
    if (syscall(SYS_sched_getattr, thread_id, &a, sizeof a, 0) == 0 && a.policy == SCHED_OTHER && a.nice >= 0 && a.runtime != 0) {
        uint64_t unknown = 0;
        at_64_cas_rlx(&os.usual_slice, &unknown, a.runtime);
        bool usual = ns == OS_SLICE_USUAL;
        a.size = sizeof a;
        a.runtime = usual ? at_64_load_rlx(&os.usual_slice) : (uint64_t)ns;
        a.flags = usual ? 0 : SCHED_RESET_ON_FORK_0;
        if (syscall(SYS_sched_setattr, thread_id, &a, 0) != 0 && usual) {
            a.flags = SCHED_RESET_ON_FORK_0;
            syscall(SYS_sched_setattr, thread_id, &a, 0);
        }
    }
    errno = saved;
}

int mag__os_watch(uint32_t thread_id)
{
    char path[64];
    snprintf(path, sizeof path, "/proc/self/task/%u/syscall", thread_id);
    int saved = errno, fd = open(path, O_RDONLY | O_CLOEXEC);
    errno = saved;
    return fd > 0 ? fd : 0;
}

/* "running", or the number of the system call it sleeps in, -1 for a page fault. A program that closes descriptors it does not
 * know may have put something else here. */
enum os_doing mag__os_look(int watch)
{
    char text[8] = "";
    int saved = errno;
    ssize_t n = pread(watch, text, sizeof text - 1, 0);
    errno = saved;
    if (n <= 0)
        return OS_UNKNOWN;
    if (strncmp(text, "running", 7) == 0)
        return OS_RUNNING;
    return (text[0] >= '0' && text[0] <= '9') || text[0] == '-' ? OS_BLOCKED : OS_UNKNOWN;
}

void mag__os_unwatch(int watch)
{
    int saved = errno;
    close(watch);
    errno = saved;
}

int64_t mag__os_thread_cpu(uint32_t thread_id)
{
    struct timespec t;
    int saved = errno, r = clock_gettime((clockid_t)(~thread_id << 3 | 6), &t); /* the kernel's name for that clock */
    errno = saved;
    return r == 0 ? t.tv_sec * INT64_C(1000000000) + t.tv_nsec : -1;
}

int mag__os_thread_count(void)
{
    struct stat st; /* a directory's link count is two more than its subdirectories: one per thread */
    int saved = errno;
    int n = stat("/proc/self/task", &st) == 0 && st.st_nlink > 2 ? (int)st.st_nlink - 2 : 0;
    errno = saved;
#ifdef MAG_TSAN
    n -= n > 0; /* ThreadSanitizer's own, which wakes nobody */
#endif
    return n;
}

/* ---- memory ---- */

size_t mag__os_page_size(void)
{
    return (size_t)sysconf(_SC_PAGESIZE);
}

void *mag__os_reserve(size_t size, size_t align)
{
    if (mag__os_fails())
        return NULL;
    int saved = errno;
    size_t slack = align > OS_PAGE ? align : 0;
    if (size + slack < size)
        return NULL;
    char *at = mmap(NULL, size + slack, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    errno = saved;
    if (at == MAP_FAILED)
        return NULL;
    if (slack != 0) {
        size_t before = (size_t)(-(uintptr_t)at & (align - 1));
        if (before != 0)
            munmap(at, before);
        if (slack - before != 0)
            munmap(at + before + size, slack - before);
        at += before;
    }
    return at;
}

#ifdef MAG_ASAN
/* The sanitizer would write an eighth of it, and a region of stacks is large: zero pages say the same. */
void mag__os_unpoison(void *at, size_t size)
{
    size_t scale, offset, whole;
    __asan_get_shadow_mapping(&scale, &offset);
    whole = OS_PAGE << scale;
    uintptr_t from = ((uintptr_t)at + whole - 1) & ~(whole - 1), to = ((uintptr_t)at + size) & ~(whole - 1);
    if (size < 32 * whole || madvise((void *)((from >> scale) + offset), (to - from) >> scale, MADV_DONTNEED) != 0)
        from = to = (uintptr_t)at;
    __asan_unpoison_memory_region(at, from - (uintptr_t)at);
    __asan_unpoison_memory_region((void *)to, (uintptr_t)at + size - to);
}
#endif

void mag__os_unmap(void *at, size_t size)
{
    if (at == NULL)
        return;
#ifdef MAG_ASAN
    mag__os_unpoison(at, size); /* frames of discarded goroutines: the next mapping here is not theirs */
#endif
    must(munmap(at, size) == 0);
}

void mag__os_discard(void *at, size_t size)
{
    int saved = errno;
    madvise(at, size, MADV_DONTNEED);
    errno = saved;
}

void mag__os_huge(void *at, size_t size, bool wanted)
{
    int saved = errno;
    madvise(at, size, wanted ? MADV_HUGEPAGE : MADV_NOHUGEPAGE);
    errno = saved;
}

/* Is the page at `at` really inaccessible? A system call that reads it says EFAULT instead of raising a signal. */
static bool page_is_gone(const void *at)
{
    int fds[2];
    if (pipe(fds) != 0)
        return false;
    bool gone = write(fds[1], at, 1) < 0 && errno == EFAULT;
    close(fds[0]);
    close(fds[1]);
    return gone;
}

static enum guard_kind guard_kind(void)
{
    uint32_t kind = at_32_load_acq(&os.guard_kind); /* OSP1 */
    if (likely(kind != GUARD_UNKNOWN))
        return kind;
    int saved = errno;
    size_t page = mag__os_page_size();
    void *at = mmap(NULL, page, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    kind = GUARD_PROTECT;
    if (at != MAP_FAILED) {
        if (madvise(at, page, MADV_GUARD_INSTALL) == 0 && page_is_gone(at))
            kind = GUARD_ADVICE;
        munmap(at, page);
    }
    const char *forced = getenv("MAGPIE_GUARD"); /* for tests on new kernels: what old ones do */
    if (forced != NULL && strcmp(forced, "mprotect") == 0)
        kind = GUARD_PROTECT;
    at_32_store_rel(&os.guard_kind, kind); /* OSP1 */
    errno = saved;
    return kind;
}

int mag__os_guard(void *at, size_t size)
{
    if (mag__os_fails())
        return -ENOMEM;
    int saved = errno, r;
    if (guard_kind() == GUARD_ADVICE && madvise(at, size, MADV_GUARD_INSTALL) == 0)
        r = 0;
    else /* advice is refused for locked memory (mlockall) */
        r = mprotect(at, size, PROT_NONE) == 0 ? 0 : -errno;
    errno = saved;
    return r;
}

bool mag__os_guard_costs_mapping(void) { return guard_kind() == GUARD_PROTECT; }

size_t mag__os_mapping_limit(void)
{
    size_t limit = 65530;
    int saved = errno;
    FILE *f = fopen("/proc/sys/vm/max_map_count", "re");
    if (f != NULL) {
        if (fscanf(f, "%zu", &limit) != 1)
            limit = 65530;
        fclose(f);
    }
    errno = saved;
    return limit;
}

/* ---- the machine ---- */

static int affinity(void)
{
    /* the kernel says how large its masks are by refusing smaller ones */
    for (int n = 1024; n <= 1 << 20; n *= 2) {
        cpu_set_t *set = CPU_ALLOC((size_t)n);
        if (set == NULL)
            break;
        size_t size = CPU_ALLOC_SIZE((size_t)n);
        int r = sched_getaffinity(0, size, set), count = r == 0 ? CPU_COUNT_S(size, set) : 0, why = errno;
        CPU_FREE(set);
        if (r == 0)
            return count > 0 ? count : 1;
        if (why != EINVAL)
            break;
    }
    long n = sysconf(_SC_NPROCESSORS_ONLN);
    return n > 0 ? (int)n : 1;
}

int mag__os_cpus(void)
{
    int saved = errno, n = affinity();
    errno = saved;
    return n;
}

uint32_t mag__os_cores(void)
{
    int saved = errno;
    long online = sysconf(_SC_NPROCESSORS_ONLN);
    errno = saved;
    return online > 0 && mag__os_cpus() >= online ? (uint32_t)online : 0;
}

/* "0.42 0.31 0.20 2/345 6789": the fourth is what runs or wants to, on all cores, of all that there is. 0: it says something else. */
static uint32_t running_of(const char *text)
{
    uint32_t running = 0;
    for (int i = 0; i < 3; i++)
        if ((text = strchr(text, ' ')) == NULL || *++text < '0' || *text > '9')
            return 0;
    for (; *text >= '0' && *text <= '9' && running < 1u << 20; text++)
        running = running * 10 + (uint32_t)(*text - '0');
    return *text == '/' ? running : 0;
}

static uint32_t read_running(int fd)
{
    char text[64] = "";
    return pread(fd, text, sizeof text - 1, 0) > 0 ? running_of(text) : 0;
}

/* A program that closes descriptors it does not know may have put something else there: that is not ours to close. Nor is what says nothing
 * kept: some systems that pass for Linux count nobody. */
uint32_t mag__os_running(int *watch)
{
    int saved = errno, fd = *watch != 0 ? *watch : open("/proc/loadavg", O_RDONLY | O_CLOEXEC);
    uint32_t running = fd > 0 ? read_running(fd) : 0;
    if (running == 0 && *watch == 0 && fd >= 0)
        close(fd);
    *watch = running != 0 ? fd : 0;
    errno = saved;
    return running;
}

int mag__os_read_file(const char *path, char *buf, size_t size)
{
    int saved = errno, result;
    int fd = open(path, O_RDONLY | O_CLOEXEC);
    if (fd < 0) {
        result = -errno;
    } else {
        size_t n = 0;
        ssize_t r;
        while (n < size - 1 && (r = read(fd, buf + n, size - 1 - n)) > 0)
            n += (size_t)r;
        buf[n] = 0;
        close(fd);
        result = (int)n;
    }
    errno = saved;
    return result;
}

uint64_t mag__os_random(void)
{
    uint64_t x;
    int saved = errno;
    if (getrandom(&x, sizeof x, GRND_NONBLOCK) != sizeof x)
        x = (uint64_t)mag__os_now() ^ (uint64_t)(uintptr_t)&x;
    errno = saved;
    return x;
}

bool mag__os_barrier_all(void)
{
    uint32_t ready = at_32_load_rlx(&os.barrier_ready);
    int saved = errno;
    if (ready == 0) {
        ready = syscall(SYS_membarrier, MEMBARRIER_CMD_REGISTER_PRIVATE_EXPEDITED, 0, 0) == 0 ? 1 : 2;
        at_32_store_rlx(&os.barrier_ready, ready);
    }
    bool done = ready == 1 && syscall(SYS_membarrier, MEMBARRIER_CMD_PRIVATE_EXPEDITED, 0, 0) == 0;
    errno = saved;
    return done;
}
