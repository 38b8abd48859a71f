/* SPDX-License-Identifier: MIT */
/* file.c: many transfers past the page cache at once, with the kernel's ring and without one; and runtimes that end among them. */
#include "test.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <linux/filter.h>
#include <linux/seccomp.h>
#include <linux/userfaultfd.h>
#include <magpie.h>
#include <stddef.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <unistd.h>

enum { BLOCK = 4096, MANY = 80, ROUNDS = 20, ENDS = 100 };

static char name[64];
static mag_wg wg;
static int direct; /* O_DIRECT where the file system has it */

static int make_file(void)
{
    snprintf(name, sizeof name, "./magpie-file-%d", getpid());
    int fd = open(name, O_RDWR | O_CREAT | O_TRUNC | O_DIRECT, 0600);
    direct = fd >= 0 ? O_DIRECT : 0;
    if (fd < 0)
        fd = open(name, O_RDWR | O_CREAT | O_TRUNC, 0600);
    T_GE(fd, 0);
    char *zero = aligned_alloc(BLOCK, BLOCK);
    memset(zero, 0, BLOCK);
    for (int i = 0; i < MANY * 4; i++)
        T_EQ(pwrite(fd, zero, BLOCK, (off_t)i * BLOCK), BLOCK);
    free(zero);
    return fd;
}

static void end_file(int fd)
{
    close(fd);
    unlink(name);
}

static void fill(char *block, long who, int round)
{
    for (size_t i = 0; i < BLOCK / sizeof(long); i++)
        ((long *)block)[i] = who * 1000003 + round * 101 + (long)i;
}

/* A thread of that name's voluntary sleeps so far; -1: there is none. */
static long sleeps_of(const char *thread)
{
    long n = -1;
    DIR *d = opendir("/proc/self/task");
    T_TRUE(d != NULL);
    for (struct dirent *e; (e = readdir(d)) != NULL;) {
        char path[300], line[128] = "";
        snprintf(path, sizeof path, "/proc/self/task/%s/status", e->d_name);
        FILE *f = fopen(path, "r");
        bool is = false;
        while (f != NULL && fgets(line, sizeof line, f) != NULL) {
            if (strncmp(line, "Name:", 5) == 0)
                is = strstr(line, thread) != NULL;
            if (is && strncmp(line, "voluntary", 9) == 0)
                n = atol(strchr(line, ':') + 1);
        }
        if (f != NULL)
            fclose(f);
    }
    closedir(d);
    return n;
}

/* Whether this process can have a ring. */
static bool has_ring(void)
{
#if defined(MAG_URING) && defined(SYS_io_uring_setup)
    char params[256] = {0};
    int fd = (int)syscall(SYS_io_uring_setup, 4, params);
    if (fd >= 0)
        close(fd);
    return fd >= 0 && direct != 0;
#else
    return false;
#endif
}

/* ---- what is written is read ---- */

static void writes_and_reads(void *arg)
{
    long who = (long)arg;
    int fd = mag_open(name, O_RDWR | direct, 0);
    T_GE(fd, 0);
    char *out = aligned_alloc(BLOCK, BLOCK), *in = aligned_alloc(BLOCK, BLOCK);
    for (int i = 0; i < ROUNDS; i++) {
        off_t at = (off_t)(who * 4 + i % 4) * BLOCK;
        fill(out, who, i);
        T_EQ(mag_pwrite(fd, out, BLOCK, at, MAG_FOREVER), BLOCK);
        memset(in, 0, BLOCK);
        T_EQ(mag_pread(fd, in, BLOCK, at, MAG_FOREVER), BLOCK);
        T_EQ(memcmp(in, out, BLOCK), 0);
        if (who % 16 == 0 && i % 8 == 0)
            T_EQ(mag_fsync(fd, MAG_FOREVER), 0);
    }
    T_EQ(mag_pread(fd, in, BLOCK, (off_t)MANY * 8 * BLOCK, MAG_FOREVER), 0); /* behind the end */
    T_EQ(mag_close(fd), 0);
    free(out);
    free(in);
    mag_wg_done(&wg);
}

static void all_write_and_read(void *arg)
{
    (void)arg;
    mag_wg_add(&wg, MANY);
    for (long i = 0; i < MANY; i++)
        T_EQ(mag_go(writes_and_reads, (void *)i), 0);
    mag_wg_wait(&wg, MAG_FOREVER);
}

static void on(int procs, mag_fn fn) { T_EQ(mag_run_with(&(mag_config){.procs = procs}, fn, NULL), 0); }

static void contents(void)
{
    int fd = make_file();
    on(1, all_write_and_read);
    on(2, all_write_and_read);
    on(4, all_write_and_read);
    end_file(fd);
}

/* ---- the thread that does it ---- */

static void uses_the_ring(void *arg)
{
    bool expected = *(bool *)arg;
    for (int i = 0; i < 50 && sleeps_of("magpie-files") < 0; i++) {
        all_write_and_read(NULL);
        if (!expected)
            break;
    }
    T_EQ(sleeps_of("magpie-files") >= 0, expected);
    if (!expected)
        return;
    mag_sleep(50 * MAG_MS);
    long before = sleeps_of("magpie-files");
    mag_sleep(300 * MAG_MS);
    T_EQ(sleeps_of("magpie-files"), before); /* with nothing to do it does nothing */
}

static void ring_is_used(void)
{
    int fd = make_file();
    bool expected = has_ring();
    T_EQ(mag_run(uses_the_ring, &expected), 0);
    T_EQ(sleeps_of("magpie-files"), -1);
    end_file(fd);
}

static void without_a_ring(void *arg)
{
    (void)arg;
#ifdef SYS_io_uring_setup
    struct sock_filter code[] = {
        BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(struct seccomp_data, nr)),
        BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, SYS_io_uring_setup, 0, 1),
        BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ERRNO | EPERM),
        BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW),
    };
    struct sock_fprog program = {.len = sizeof code / sizeof *code, .filter = code};
    if (prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) == 0 && prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, &program) == 0)
        T_EQ(has_ring(), false);
#endif
    int fd = make_file();
    bool no = false;
    if (!has_ring())
        T_EQ(mag_run(uses_the_ring, &no), 0);
    on(1, all_write_and_read);
    on(2, all_write_and_read);
    end_file(fd);
}

static void no_ring_to_be_had(void)
{
    static struct t_child c;
    t_fork(&c, without_a_ring, NULL);
    T_STR_EQ(c.err, "");
    T_EQ(c.code, 0);
}

/* ---- waiting ---- */

static void reads_to_the_end(void *arg)
{
    int fd = *(int *)arg;
    char *in = aligned_alloc(BLOCK, BLOCK);
    int r, n = 0;
    while ((r = (int)mag_pread(fd, in, BLOCK, (off_t)(n++ % MANY) * BLOCK, MAG_FOREVER)) == BLOCK)
        ;
    T_EQ(r, -ECANCELED); /* and nothing else: what has begun is waited for */
    free(in);
}

static void reads_late(void *arg)
{
    int fd = *(int *)arg;
    char *in = aligned_alloc(BLOCK, BLOCK);
    for (int i = 0; i < ROUNDS; i++) {
        int r = (int)mag_pread(fd, in, BLOCK, (off_t)i * BLOCK, mag_in(5 * MAG_US));
        T_TRUE(r == BLOCK || r == -ETIMEDOUT);
        T_EQ(mag_pread(fd, in, BLOCK, (off_t)i * BLOCK, mag_in(10 * MAG_S)), BLOCK);
        r = (int)mag_pread(fd, in, BLOCK, 0, MAG_TRY);
        T_TRUE(r == -ETIMEDOUT || (direct == 0 && r == BLOCK));
    }
    free(in);
    mag_wg_done(&wg);
}

static void waits(void *arg)
{
    (void)arg;
    int fd = mag_open(name, O_RDWR | direct, 0);
    mag_wg_add(&wg, MANY);
    for (int i = 0; i < MANY; i++)
        T_EQ(mag_go(reads_late, &fd), 0);
    mag_wg_wait(&wg, MAG_FOREVER);
    mag_group group = {0};
    for (int i = 0; i < MANY; i++)
        T_EQ(mag_group_go(&group, reads_to_the_end, &fd), 0);
    mag_sleep(20 * MAG_MS);
    mag_group_cancel(&group);
    mag_group_wait(&group, MAG_FOREVER);
    mag_group_end(&group);
    T_EQ(mag_close(fd), 0);
}

static void deadlines_and_cancellation(void)
{
    int fd = make_file();
    on(1, waits);
    on(2, waits);
    end_file(fd);
}

/* ---- ends ---- */

static void reads_for_ever(void *arg)
{
    _Alignas(BLOCK) char in[BLOCK]; /* on the stack: the kernel must have done with it before that goes */
    for (int i = 0;; i++)
        mag_pread(*(int *)arg, in, BLOCK, (off_t)(i % MANY) * BLOCK, MAG_FOREVER);
}

static int shared;

static void ends_among_readers(void *arg)
{
    for (int i = 0; i < MANY; i++)
        T_EQ(mag_go(reads_for_ever, &shared), 0);
    mag_sleep(*(int *)arg % 40 * 50 * MAG_US);
}

static void ends(void)
{
    shared = make_file();
    long fds = t_fds();
    for (int i = 0; i < ENDS; i++) {
        T_EQ(mag_run(ends_among_readers, &i), 0);
        T_EQ(t_fds(), fds);
        T_EQ(sleeps_of("magpie-files"), -1);
    }
    end_file(shared);
}

/* Pages that are not there until `faults` is closed: whoever touches them meanwhile, the kernel included, waits. */
static char *pages_to_come(size_t size, int *faults)
{
    *faults = (int)syscall(SYS_userfaultfd, O_CLOEXEC);
    struct uffdio_api api = {.api = UFFD_API};
    char *at = mmap(NULL, size, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    struct uffdio_register range = {.range = {.start = (uintptr_t)at, .len = size},
                                    .mode = UFFDIO_REGISTER_MODE_MISSING};
    if (*faults < 0 || ioctl(*faults, UFFDIO_API, &api) != 0 || ioctl(*faults, UFFDIO_REGISTER, &range) != 0)
        return NULL;
    return at;
}

static char *to_come;

static void gets_stuck(void *arg)
{
    for (;;) /* a thread that is held up ends at its next call */
        mag_pread(shared, arg, BLOCK, 0, MAG_FOREVER);
}

static void leaves_it_to_the_kernel(void *arg)
{
    bool ring = *(bool *)arg;
    while (ring && sleeps_of("magpie-files") < 0)
        all_write_and_read(NULL);
    for (int i = 0; i < MANY / 2; i++, to_come += BLOCK)
        T_EQ(mag_go(gets_stuck, to_come), 0);
    mag_sleep(50 * MAG_MS);
}

static int threads(void)
{
    int n = 0;
    DIR *d = opendir("/proc/self/task");
    for (struct dirent *e; (e = readdir(d)) != NULL;)
        n += e->d_name[0] != '.';
    closedir(d);
    return n;
}

/* What others' goroutines waited for comes while this runtime runs: it is none of its business. */
static void lets_them_go(void *arg)
{
    all_write_and_read(NULL);
    close(*(int *)arg);
    all_write_and_read(NULL);
    mag_sleep(20 * MAG_MS);
}

static void outlived(void *arg)
{
    (void)arg;
    int faults, before = threads();
    shared = make_file();
    bool ring = has_ring();
    if ((to_come = pages_to_come((size_t)MANY * BLOCK, &faults)) == NULL || !ring)
        _exit(77);
    for (int again = 0; again < 2; again++) { /* the second while the first's are still there */
        T_EQ(mag_run_with(&(mag_config){.procs = 2, .exit_wait = 100 * MAG_MS}, leaves_it_to_the_kernel, &ring),
             -ETIMEDOUT);
        T_GE(sleeps_of("magpie-files"), 0);
    }
    T_EQ(mag_run(lets_them_go, &faults), 0);
    T_EVENTUALLY(threads() == before, 5000);
    on(2, all_write_and_read);
    end_file(shared);
}

static void kernel_takes_longer_than_the_runtime(void)
{
    static struct t_child c;
    t_fork(&c, outlived, NULL);
    if (c.code == 77)
        T_SKIP("no userfaultfd, or no ring");
    T_EQ(c.signal, 0);
    T_EQ(c.code, 0);
    T_STR_HAS(c.err, "a file call is still under way");
}

static void then_waits_for_nothing(void *arg)
{
    (void)arg;
    all_write_and_read(NULL);
    mag_wg_add(&wg, 1);
    mag_wg_wait(&wg, MAG_FOREVER);
}

static void deadlocks(void *arg)
{
    (void)arg;
    _exit(mag_run(then_waits_for_nothing, NULL) == -EDEADLK ? 7 : 1);
}

static void deadlock_is_seen(void)
{
    int fd = make_file();
    static struct t_child c;
    t_fork(&c, deadlocks, NULL);
    T_EQ(c.code, 7);
    end_file(fd);
}

int main(int argc, char **argv)
{
    t_init(argc, argv);
    T_RUN(contents);
    T_RUN(ring_is_used);
    T_RUN(no_ring_to_be_had);
    T_RUN(deadlines_and_cancellation);
    T_RUN(ends);
    T_RUN(kernel_takes_longer_than_the_runtime);
    T_RUN(deadlock_is_seen);
    return t_done();
}
