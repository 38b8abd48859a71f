/* SPDX-License-Identifier: MIT */
/* faults.c: whatever is refused by the system, once, the first, second, third, … time it is asked: a run ends with a clear
 * error or goes on without, loses no goroutine that it accepted, and leaves nothing behind. */
#include "test.h"

#include "os/os.h"

#include <arpa/inet.h>
#include <magpie.h>
#include <pthread.h>
#include <sys/socket.h>

/* ---- the heap, refused ---- */

/* The C library's allocator with a hole in it. A sanitizer has an allocator of its own. */
#if defined(__GLIBC__) && !T_ASAN && !T_TSAN
#define HEAP 1

extern void *__libc_malloc(size_t size);
extern void *__libc_calloc(size_t n, size_t size);
extern void *__libc_memalign(size_t align, size_t size);

static long heap_in; /* calls until one fails, 0: none */

static bool refused(void)
{
    long n = __atomic_load_n(&heap_in, __ATOMIC_RELAXED);
    while (n != 0)
        if (__atomic_compare_exchange_n(&heap_in, &n, n - 1, false, __ATOMIC_RELAXED, __ATOMIC_RELAXED))
            return n == 1;
    return false;
}

void *malloc(size_t size) { return refused() ? NULL : __libc_malloc(size); }
void *calloc(size_t n, size_t size) { return refused() ? NULL : __libc_calloc(n, size); }
void *aligned_alloc(size_t align, size_t size) { return refused() ? NULL : __libc_memalign(align, size); }

#else
#define HEAP 0
static long heap_in;
#endif

/* ---- the work ---- */

static struct {
    int began, ended;
    long accepted, ran;
    mag_wg wg;
} work;

static void runs(void *arg)
{
    (void)arg;
    __atomic_add_fetch(&work.ran, 1, __ATOMIC_RELAXED);
    mag_yield();
    mag_wg_done(&work.wg);
}

static void spawn(const mag_go_config *cfg)
{
    static const char copy[4096];
    mag_wg_add(&work.wg, 1);
    int r = mag_go_with(cfg, runs, (void *)copy);
    if (r == 0) {
        work.accepted++;
    } else {
        T_EQ(r, -ENOMEM);
        mag_wg_done(&work.wg);
    }
}

static void works(void *arg)
{
    (void)arg;
    work.began = 1;
    for (int i = 0; i < 100; i++) { /* more than one magazine and one chunk hold */
        spawn(&(mag_go_config){0});
        if (i % 10 == 0)
            spawn(&(mag_go_config){.copy = 4096});
        if (i % 25 == 0)
            spawn(&(mag_go_config){.stack_size = 1 << 20});
    }
    T_EQ(mag_wg_wait(&work.wg, MAG_FOREVER), 0);
    work.ended = 1;
}

/* ---- the same for descriptors ---- */

/* One failure costs one call: the next one works. */
#define ONCE_MORE(call)                                                                                                \
    ({                                                                                                                 \
        long t_r = (call);                                                                                             \
        if (t_r == -ENOMEM || t_r == -EAGAIN)                                                                          \
            t_r = (call);                                                                                              \
        t_r;                                                                                                           \
    })

static void talks(int c, int s, mag_chan *quiet)
{
    char b = 0;
    T_EQ(ONCE_MORE(mag_read(s, &b, 1, mag_in(MAG_MS))), -ETIMEDOUT);
    T_EQ(ONCE_MORE(mag_poll(s, POLLIN | POLLOUT, mag_in(MAG_MS))), POLLOUT);
    T_EQ(ONCE_MORE(mag_write(c, "x", 1, MAG_FOREVER)), 1);
    mag_case cases[] = {MAG_RECV(quiet, NULL), MAG_READABLE(s)};
    T_EQ(ONCE_MORE(mag_select(cases, 2, MAG_FOREVER)), 1);
    T_EQ(ONCE_MORE(mag_read(s, &b, 1, MAG_FOREVER)), 1);
    mag_case late[] = {MAG_RECV(quiet, NULL), MAG_READABLE(s), MAG_READABLE(c),
                       MAG_READABLE(s),       MAG_READABLE(c), MAG_READABLE(s)};
    T_EQ(ONCE_MORE(mag_select(late, 6, mag_in(MAG_MS))), -ETIMEDOUT);
}

/* The other end of c: a dial that failed may have left one behind. */
static int accept_from(int l, int c)
{
    for (;;) {
        struct sockaddr_in peer, mine;
        unsigned n = sizeof peer, k = sizeof mine;
        int s = (int)ONCE_MORE(mag_accept(l, (struct sockaddr *)&peer, &n, MAG_FOREVER));
        T_GE(s, 0);
        T_EQ(getsockname(c, (struct sockaddr *)&mine, &k), 0);
        if (mine.sin_port == peer.sin_port)
            return s;
        T_EQ(mag_close(s), 0);
    }
}

static void works_with_descriptors(void *arg)
{
    (void)arg;
    char address[64], text[8];
    struct sockaddr_in a;
    socklen_t n = sizeof a;
    int fd[2];
    work.began = 1;
    mag_chan *quiet = mag_chan_new(0, 0);
    if (quiet == NULL)
        quiet = mag_chan_new(0, 0);
    int l = (int)ONCE_MORE(mag_listen("127.0.0.1:0", 0));
    T_GE(l, 0);
    T_EQ(getsockname(l, (struct sockaddr *)&a, &n), 0);
    snprintf(address, sizeof address, "localhost:%d", ntohs(a.sin_port));
    int c = (int)ONCE_MORE(mag_dial(address, MAG_FOREVER));
    if (c == -ENOENT)
        c = mag_dial(address, MAG_FOREVER); /* the C library had no memory, and says it so */
    T_GE(c, 0);
    int s = accept_from(l, c);
    talks(c, s, quiet);
    T_EQ(socketpair(AF_UNIX, SOCK_STREAM, 0, fd), 0);
    talks(fd[0], fd[1], quiet);
    int f = (int)ONCE_MORE(mag_open("/proc/self/comm", O_RDONLY, 0));
    T_GE(f, 0);
    T_GT(ONCE_MORE(mag_pread(f, text, sizeof text, 0, MAG_FOREVER)), 0);
    int all[] = {l, c, s, f, fd[0], fd[1]};
    for (size_t i = 0; i < sizeof all / sizeof *all; i++)
        T_EQ(mag_close(all[i]), 0);
    mag_chan_unref(quiet);
    work.ended = 1;
}

static mag_fn job = works;
static const char *what;
static long nth;

static void hangs(int sig)
{
    (void)sig;
    T_FAIL("hangs when %s %ld fails", what, nth);
}

static void one_run(bool by_start)
{
    memset(&work, 0, sizeof work);
    mag_config cfg = {.procs = 2, .slice = MAG_MS};
    alarm((unsigned)(20 * t_state.slow));
    int r;
    if (by_start) {
        r = mag_start(&cfg);
        if (r == 0) {
            T_TRUE(job == works); /* the other one is a goroutine's */
            works(NULL);
            T_EQ(mag_stop(MAG_FOREVER), 0);
        }
    } else {
        r = mag_run_with(&cfg, job, NULL);
    }
    alarm(0);
    if (r == 0) {
        T_EQ(work.ended, 1);
        T_EQ(work.ran, work.accepted);
        T_TRUE(job != works || work.accepted >= 100); /* one failure costs one goroutine, not all that follow */
    } else {
        if (r != -ENOMEM && r != -EAGAIN)
            T_FAIL("%d when %s %ld fails", r, what, nth);
        T_EQ(work.began, 0);
    }
    T_EQ(mag_procs(), 0);
}

/* Takes the failure that was not used up. True: there was none left. */
static bool os_failed(unsigned n)
{
    for (unsigned i = 0; i <= n; i++) {
        void *at = mag__os_reserve(4096, 0);
        if (at == NULL)
            return false;
        mag__os_unmap(at, 4096);
    }
    return true;
}

static long address_space(void) /* pages */
{
    long size = 0;
    FILE *f = fopen("/proc/self/statm", "re");
    T_TRUE(f);
    T_EQ(fscanf(f, "%ld", &size), 1);
    fclose(f);
    return size;
}

/* True if the failure came. */
static bool run_with_failure(bool by_start, bool heap)
{
    if (heap)
        __atomic_store_n(&heap_in, nth, __ATOMIC_RELAXED);
    else
        mag__os_fail_nth((unsigned)nth);
    one_run(by_start);
    bool failed = heap ? __atomic_load_n(&heap_in, __ATOMIC_RELAXED) == 0 : os_failed((unsigned)nth);
    __atomic_store_n(&heap_in, 0, __ATOMIC_RELAXED);
    mag__os_fail_nth(0);
    return failed;
}

static void sweep(bool by_start, bool heap)
{
    signal(SIGALRM, hangs);
    what = heap ? "allocation" : "system call";
    for (int i = 0; i < 5; i++)
        one_run(by_start);
    long threads = t_threads(), fds = t_fds(), maps = t_maps(), untouched = 0;
    for (nth = 1; untouched < 3; nth++) {
        T_LT(nth, 5000);
        untouched = run_with_failure(by_start, heap) ? 0 : untouched + 1; /* how often it asks varies a little */
        T_EVENTUALLY(t_threads() <= threads, 2000);
        int grew = 0;
        for (long size = address_space(), now; grew < 4; size = now, grew++) { /* a leak is one every time */
            run_with_failure(by_start, heap);
            now = address_space();
            if (now <= size)
                break;
        }
        if (grew == 4 && t_state.slow == 1)
            T_FAIL("leaks when %s %ld fails", what, nth);
    }
    printf("%ld places  ", nth - 1 - untouched);
    T_GT(nth, untouched + (heap ? 3 : 10));
    T_EQ(t_fds(), fds);
    if (!T_ASAN && !T_TSAN) /* their own grow */
        T_LE(t_maps(), maps + 16);
}

static void each_system_call_may_fail(void) { sweep(false, false); }
static void each_system_call_may_fail_beside(void) { sweep(true, false); }

static void each_allocation_may_fail(void)
{
    if (!HEAP)
        T_SKIP("not with this allocator");
    sweep(false, true);
    sweep(true, true);
}

static void descriptors_may_fail(void)
{
    job = works_with_descriptors;
    sweep(false, false);
    if (HEAP)
        sweep(false, true);
    job = works;
}

static void done(void *wg) { mag_wg_done(wg); }

/* Nobody else is there whose end could remind the runtime of it. */
static void a_lone_goroutine_runs(void)
{
    what = "system call";
    for (nth = 1; nth <= 12; nth++) {
        mag_wg wg = {0};
        T_EQ(mag_start(&(mag_config){.procs = 2}), 0);
        mag__os_fail_nth((unsigned)nth);
        mag_wg_add(&wg, 1);
        int r = mag_go(done, &wg);
        if (r != 0)
            T_EQ(r, -ENOMEM);
        else if (mag_wg_wait(&wg, mag_in(5 * MAG_S * t_state.slow)) != 0)
            T_FAIL("accepted, but it does not run when %s %ld fails", what, nth);
        mag__os_fail_nth(0);
        T_EQ(mag_stop(MAG_FOREVER), 0);
    }
}

/* ---- no more threads, for good ---- */

static void *ends(void *arg) { return arg; }

static void no_threads(void *arg)
{
    (void)arg;
    pthread_t t;
    work.began = 0;
    if (geteuid() == 0 && setresuid(65534, 65534, 65534) != 0) /* root may have any number */
        _exit(77);
    if (setrlimit(RLIMIT_NPROC, &(struct rlimit){0, 0}) != 0 || pthread_create(&t, NULL, ends, NULL) == 0)
        _exit(77);
    T_EQ(mag_run(works, NULL), -EAGAIN);
    T_EQ(mag_start(NULL), -EAGAIN);
    T_EQ(work.began, 0);
}

static void no_threads_at_all(void)
{
    static struct t_child c;
    t_fork(&c, no_threads, NULL);
    if (c.code == 77)
        T_SKIP("threads are not limited here");
    if (c.code != 0)
        T_FAIL("code %d, signal %d\n%s", c.code, c.signal, c.err);
}

int main(int argc, char **argv)
{
    t_init(argc, argv);
    T_RUN(each_system_call_may_fail);
    T_RUN(each_system_call_may_fail_beside);
    T_RUN(each_allocation_may_fail);
    T_RUN(descriptors_may_fail);
    T_RUN(a_lone_goroutine_runs);
    T_RUN(no_threads_at_all);
    return t_done();
}
