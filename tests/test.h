/* SPDX-License-Identifier: MIT */
/* test.h: what a test file needs, and nothing else.
 *
 *     #include "test.h"
 *
 *     static void counts(void) { T_EQ(1 + 1, 2); }
 *
 *     int main(int argc, char **argv)
 *     {
 *         t_init(argc, argv);
 *         T_RUN(counts);
 *         return t_done();
 *     }
 *
 * Cases       T_RUN(f) prints the name, runs f, prints the time. Arguments of the program select: `runq steal` runs the
 *             cases whose name contains "steal". T_SKIP(why) leaves a case; if all were skipped, the test is (exit 77).
 * Assertions  evaluate each side once, print both values, and end the process with status 1, from any thread and from
 *             any stack of a few KiB. Integers compare as numbers, whatever their types: -1 < 1u.
 * Seed        printed by t_init, set by MAGPIE_TEST_SEED. t_random for one thread; t_random_r with a state of one's own.
 * Slowness    MAGPIE_TEST_SLOW=N says that this machine is N times slower (an emulator, a sanitizer): t_scale(n) is
 *             n / N, for iteration counts. Deadlines are meson's business.
 */
#ifndef MAG_TEST_H
#define MAG_TEST_H

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

/* ---- the build: 0 or 1 ---- */

#if defined(__has_feature)
#define T_HAS_FEATURE(x) __has_feature(x)
#else
#define T_HAS_FEATURE(x) 0
#endif
#if defined(__SANITIZE_THREAD__) || T_HAS_FEATURE(thread_sanitizer)
#define T_TSAN 1 /* knows at most some 8000 threads and goroutines at a time */
#else
#define T_TSAN 0
#endif
#if defined(__SANITIZE_ADDRESS__) || T_HAS_FEATURE(address_sanitizer)
#define T_ASAN 1
#else
#define T_ASAN 0
#endif

/* ---- values of any type ---- */

enum t_kind { T_SIGNED, T_UNSIGNED, T_FLOAT, T_POINTER };

struct t_value {
    enum t_kind kind;
    long long i;
    unsigned long long u;
    double f;
};

static inline struct t_value t_signed(long long x)
{
    return (struct t_value){T_SIGNED, x, (unsigned long long)x, (double)x};
}

static inline struct t_value t_unsigned(unsigned long long x)
{
    return (struct t_value){T_UNSIGNED, (long long)x, x, (double)x};
}

static inline struct t_value t_float(double x) { return (struct t_value){T_FLOAT, 0, 0, x}; }

static inline struct t_value t_pointer(const volatile void *x)
{
    return (struct t_value){T_POINTER, 0, (unsigned long long)(uintptr_t)x, 0};
}

#ifdef __cplusplus
static inline struct t_value t_of(double x) { return t_float(x); }
static inline struct t_value t_of(int x) { return t_signed(x); }
static inline struct t_value t_of(long x) { return t_signed(x); }
static inline struct t_value t_of(long long x) { return t_signed(x); }
static inline struct t_value t_of(unsigned x) { return t_unsigned(x); }
static inline struct t_value t_of(unsigned long x) { return t_unsigned(x); }
static inline struct t_value t_of(unsigned long long x) { return t_unsigned(x); }
static inline struct t_value t_of(const volatile void *x) { return t_pointer(x); }
#else
/* clang-format off */
#define t_of(x)                                                                                                        \
    _Generic((x),                                                                                                      \
        bool: t_unsigned,                                                                                              \
        char: t_signed,                                                                                                \
        signed char: t_signed,                                                                                         \
        short: t_signed,                                                                                               \
        int: t_signed,                                                                                                 \
        long: t_signed,                                                                                                \
        long long: t_signed,                                                                                           \
        unsigned char: t_unsigned,                                                                                     \
        unsigned short: t_unsigned,                                                                                    \
        unsigned: t_unsigned,                                                                                          \
        unsigned long: t_unsigned,                                                                                     \
        unsigned long long: t_unsigned,                                                                                \
        float: t_float,                                                                                                \
        double: t_float,                                                                                               \
        default: t_pointer)(x)
/* clang-format on */
#endif

/* -1, 0, 1 as numbers; 2 if one of them is not a number: then nothing holds but !=. */
static inline int t_compare(struct t_value a, struct t_value b)
{
    if (a.kind == T_FLOAT || b.kind == T_FLOAT)
        return a.f < b.f ? -1 : a.f > b.f ? 1 : a.f == b.f ? 0 : 2;
    bool a_negative = a.kind == T_SIGNED && a.i < 0, b_negative = b.kind == T_SIGNED && b.i < 0;
    if (a_negative != b_negative)
        return a_negative ? -1 : 1;
    return a.u < b.u ? -1 : a.u > b.u; /* two's complement keeps the order of two negative numbers */
}

static inline const char *t_show(struct t_value v, char buf[64])
{
    if (v.kind == T_FLOAT)
        snprintf(buf, 64, "%.17g", v.f);
    else if (v.kind == T_POINTER)
        snprintf(buf, 64, "%#llx", v.u);
    else if (v.kind == T_SIGNED && v.i < 0)
        snprintf(buf, 64, "%lld", v.i);
    else
        snprintf(buf, 64, v.u < 10 ? "%llu" : "%llu (%#llx)", v.u, v.u);
    return buf;
}

/* ---- assertions ---- */

static struct {
    int argc;
    char **argv;
    const char *now; /* name of the running case */
    int ran, skipped;
    bool skip;
    uint64_t seed, random;
    long slow;
} t_state __attribute__((unused)); /* a test program is one file */

__attribute__((format(printf, 3, 4), noreturn)) static inline void t_fail(const char *file, int line,
                                                                          const char *format, ...)
{
    char text[2048];
    int n = snprintf(text, sizeof text, "\n%s:%d: %s: ", file, line, t_state.now ? t_state.now : "(outside a case)");
    va_list ap;
    va_start(ap, format);
    n += vsnprintf(text + n, sizeof text - (size_t)n, format, ap);
    va_end(ap);
    if (n > (int)sizeof text - 1)
        n = sizeof text - 1;
    char seed[64];
    int m = snprintf(seed, sizeof seed, "\n    seed   %llu\n", (unsigned long long)t_state.seed);
    bool told = write(STDERR_FILENO, text, (size_t)n) == n && write(STDERR_FILENO, seed, (size_t)m) == m;
    _exit(told ? 1 : 2);
}

static inline void t_check(const char *file, int line, const char *what, bool holds, struct t_value a, struct t_value b)
{
    char left[64], right[64];
    if (!holds)
        t_fail(file, line, "%s\n    left   %s\n    right  %s", what, t_show(a, left), t_show(b, right));
}

#define T_COMPARE(a, op, b)                                                                                            \
    do {                                                                                                               \
        struct t_value t_a = t_of(a), t_b = t_of(b);                                                                   \
        int t_c = t_compare(t_a, t_b);                                                                                 \
        bool t_holds = t_c == 2 ? #op[0] == '!' : t_c op 0;                                                            \
        t_check(__FILE__, __LINE__, #a " " #op " " #b, t_holds, t_a, t_b);                                             \
    } while (0)
#define T_EQ(a, b) T_COMPARE(a, ==, b)
#define T_NE(a, b) T_COMPARE(a, !=, b)
#define T_LT(a, b) T_COMPARE(a, <, b)
#define T_LE(a, b) T_COMPARE(a, <=, b)
#define T_GT(a, b) T_COMPARE(a, >, b)
#define T_GE(a, b) T_COMPARE(a, >=, b)

#define T_TRUE(x)                                                                                                      \
    do {                                                                                                               \
        if (!(x))                                                                                                      \
            t_fail(__FILE__, __LINE__, "%s is false", #x);                                                             \
    } while (0)
#define T_FALSE(x)                                                                                                     \
    do {                                                                                                               \
        if (x)                                                                                                         \
            t_fail(__FILE__, __LINE__, "%s is true", #x);                                                              \
    } while (0)
#define T_FAIL(...) t_fail(__FILE__, __LINE__, __VA_ARGS__)

#define T_STR_EQ(a, b)                                                                                                 \
    do {                                                                                                               \
        const char *t_a = (a), *t_b = (b);                                                                             \
        if (strcmp(t_a, t_b) != 0)                                                                                     \
            t_fail(__FILE__, __LINE__, "%s == %s\n    left   \"%s\"\n    right  \"%s\"", #a, #b, t_a, t_b);            \
    } while (0)
#define T_STR_HAS(text, part)                                                                                          \
    do {                                                                                                               \
        const char *t_a = (text), *t_b = (part);                                                                       \
        if (!strstr(t_a, t_b))                                                                                         \
            t_fail(__FILE__, __LINE__, "%s has %s\n    text   \"%s\"\n    part   \"%s\"", #text, #part, t_a, t_b);     \
    } while (0)

/* The first line of the text that has this part, until the next call. */
static inline char *t_line_with(const char *text, const char *part)
{
    static char line[512];
    const char *at = strstr(text, part), *start = at;
    if (at == NULL)
        T_FAIL("no line has %s:\n%.1500s", part, text);
    while (start > text && start[-1] != '\n')
        start--;
    size_t n = strcspn(start, "\n");
    T_LT(n, sizeof line);
    memcpy(line, start, n);
    line[n] = 0;
    return line;
}

/* For what becomes true a little later, such as the end of a thread. Looks every millisecond. */
#define T_EVENTUALLY(x, ms)                                                                                            \
    do {                                                                                                               \
        int64_t t_end = t_now() + (int64_t)(ms)*1000000 * t_state.slow;                                                \
        while (!(x)) {                                                                                                 \
            if (t_now() > t_end)                                                                                       \
                t_fail(__FILE__, __LINE__, "%s is still false after %lld ms", #x, (long long)(ms)*t_state.slow);       \
            t_sleep_ms(1);                                                                                             \
        }                                                                                                              \
    } while (0)

/* ---- time, environment, randomness ---- */

static inline int64_t t_now(void)
{
    struct timespec ts;
    clock_gettime(CLOCK_MONOTONIC, &ts);
    return ts.tv_sec * INT64_C(1000000000) + ts.tv_nsec;
}

static inline void t_sleep_ms(int64_t ms)
{
    struct timespec left = {(time_t)(ms / 1000), (long)(ms % 1000) * 1000000};
    while (nanosleep(&left, &left) != 0 && errno == EINTR)
        ;
}

static inline void t_setenv(const char *name, const char *value_or_null)
{
    if ((value_or_null ? setenv(name, value_or_null, 1) : unsetenv(name)) != 0)
        T_FAIL("cannot set %s", name);
}

static inline uint32_t t_random_r(uint64_t *state) /* splitmix64, the high half: any start will do */
{
    uint64_t x = *state += UINT64_C(0x9e3779b97f4a7c15);
    x = (x ^ (x >> 30)) * UINT64_C(0xbf58476d1ce4e5b9);
    x = (x ^ (x >> 27)) * UINT64_C(0x94d049bb133111eb);
    return (uint32_t)((x ^ (x >> 31)) >> 32);
}

static inline uint32_t t_random(void) { return t_random_r(&t_state.random); }

static inline long t_scale(long n) { return n / t_state.slow > 1 ? n / t_state.slow : 1; }

/* ---- the process ---- */

/* How often the runtime's threads have gone to sleep so far. */
static inline long t_wake_ups(void)
{
    long sum = 0;
    DIR *dir = opendir("/proc/self/task");
    for (struct dirent *e; (e = readdir(dir)) != NULL;) {
        char path[300], text[4096];
        if (e->d_name[0] == '.')
            continue;
        snprintf(path, sizeof path, "/proc/self/task/%s/status", e->d_name);
        FILE *f = fopen(path, "re");
        size_t n = f ? fread(text, 1, sizeof text - 1, f) : 0;
        if (f)
            fclose(f);
        text[n] = 0;
        char *at = strstr(text, "voluntary_ctxt_switches:");
        sum += at && strstr(text, "magpie-") ? atol(at + 24) : 0; /* a sanitizer has threads of its own */
    }
    closedir(dir);
    return sum;
}

/* ---- cases ---- */

static inline void t_init(int argc, char **argv)
{
    const char *seed = getenv("MAGPIE_TEST_SEED"), *slow = getenv("MAGPIE_TEST_SLOW");
    t_state.argc = argc;
    t_state.argv = argv;
    t_state.seed = seed ? strtoull(seed, NULL, 0) : ((uint64_t)t_now() << 16 ^ (uint64_t)getpid()) & 0xffffffff;
    t_state.random = t_state.seed;
    t_state.slow = slow && atol(slow) > 1 ? atol(slow) : 1;
    setvbuf(stdout, NULL, _IOLBF, 0);
    printf("seed %llu (MAGPIE_TEST_SEED)\n", (unsigned long long)t_state.seed);
}

static inline bool t_wanted(const char *name)
{
    bool wanted = t_state.argc < 2;
    for (int i = 1; i < t_state.argc; i++)
        wanted |= strstr(name, t_state.argv[i]) != NULL;
    return wanted;
}

static inline void t_run(const char *name, void (*fn)(void))
{
    if (!t_wanted(name))
        return;
    printf("%-40s ", name);
    fflush(stdout); /* so that the log of a hanging test names the case */
    t_state.now = name;
    t_state.skip = false;
    int64_t start = t_now();
    fn();
    t_state.now = NULL;
    t_state.skipped += t_state.skip;
    t_state.ran += !t_state.skip;
    if (!t_state.skip)
        printf("ok %9.1f ms\n", (double)(t_now() - start) / 1e6);
}

#define T_RUN(fn) t_run(#fn, fn)

#define T_SKIP(why)                                                                                                    \
    do {                                                                                                               \
        printf("skipped: %s\n", why);                                                                                  \
        t_state.skip = true;                                                                                           \
        return;                                                                                                        \
    } while (0)

/* The exit status of the program. */
static inline int t_done(void)
{
    if (t_state.ran > 0)
        return 0;
    printf("%s\n", t_state.skipped ? "everything was skipped" : "no such case");
    return t_state.skipped ? 77 : 1;
}

/* ---- a function in a child process ---- */

struct t_child {
    int code;       /* exit status, -1: died by a signal */
    int signal;     /* 0: exited */
    bool timed_out; /* it was killed */
    char err[16384];
};

enum { T_CHILD_MS = 20000 };

/* What a build or an emulator says of itself is not what the case is about. */
static inline void t_drop_line(char *text, const char *start)
{
    char *at = strstr(text, start), *end = at ? strchr(at, '\n') : NULL;
    if (end && (at == text || at[-1] == '\n'))
        memmove(at, end + 1, strlen(end + 1) + 1);
}

/* Runs fn(arg) in a forked child and collects what it writes to stderr (the first 16 KiB). If fn returns, the child
 * exits with 0, without the exit handlers of the parent. */
static inline void t_fork(struct t_child *c, void (*fn)(void *), void *arg)
{
    int fd[2];
    fflush(NULL);
    if (pipe(fd) != 0)
        T_FAIL("pipe: %s", strerror(errno));
    pid_t pid = fork();
    if (pid < 0)
        T_FAIL("fork: %s", strerror(errno));
    if (pid == 0) {
        struct rlimit none = {0, 0};
        setrlimit(RLIMIT_CORE, &none);
        dup2(fd[1], STDERR_FILENO);
        close(fd[0]);
        close(fd[1]);
        fn(arg);
        fflush(NULL);
        _exit(0);
    }
    close(fd[1]);
    memset(c, 0, sizeof *c);
    size_t len = 0;
    int64_t end = t_now() + (int64_t)T_CHILD_MS * 1000000 * t_state.slow;
    for (;;) {
        char rest[512];
        bool full = len >= sizeof c->err - 1;
        struct pollfd p = {fd[0], POLLIN, 0};
        int64_t left = (end - t_now()) / 1000000;
        if (left <= 0) {
            c->timed_out = true;
            kill(pid, SIGKILL);
            break;
        }
        if (poll(&p, 1, (int)left) <= 0)
            continue;
        ssize_t n = read(fd[0], full ? rest : c->err + len, full ? sizeof rest : sizeof c->err - 1 - len);
        if (n <= 0)
            break;
        len += full ? 0 : (size_t)n;
    }
    close(fd[0]);
    t_drop_line(c->err, "magpie: hostile build");
    t_drop_line(c->err, "qemu: uncaught target signal");
    int status = 0;
    while (waitpid(pid, &status, 0) < 0 && errno == EINTR)
        ;
    c->code = WIFEXITED(status) ? WEXITSTATUS(status) : -1;
    c->signal = WIFSIGNALED(status) ? WTERMSIG(status) : 0;
}

/* fn(arg) must abort and say so in these words. */
#define T_ABORTS(fn, arg, words)                                                                                       \
    do {                                                                                                               \
        static struct t_child t_c;                                                                                     \
        t_fork(&t_c, fn, arg);                                                                                         \
        if (t_c.signal != SIGABRT || !strstr(t_c.err, words))                                                          \
            t_fail(__FILE__, __LINE__, "%s does not abort with \"%s\"\n    code %d, signal %d%s\n    stderr \"%s\"",   \
                   #fn, words, t_c.code, t_c.signal, t_c.timed_out ? ", timed out" : "", t_c.err);                     \
    } while (0)

/* ---- what the process holds ---- */

static inline long t_count_entries(const char *path)
{
    long n = 0;
    DIR *dir = opendir(path);
    if (!dir)
        T_FAIL("cannot open %s", path);
    for (struct dirent *e; (e = readdir(dir)) != NULL;)
        n += e->d_name[0] != '.';
    closedir(dir);
    return n;
}

static inline long t_threads(void) { return t_count_entries("/proc/self/task"); } /* an emulator's own included */
static inline long t_fds(void) { return t_count_entries("/proc/self/fd") - 1; }   /* without the one that looks */

static inline long t_maps(void)
{
    char buf[4096];
    long lines = 0;
    int fd = open("/proc/self/maps", O_RDONLY | O_CLOEXEC);
    if (fd < 0)
        T_FAIL("cannot open /proc/self/maps");
    for (ssize_t n; (n = read(fd, buf, sizeof buf)) > 0;)
        for (ssize_t i = 0; i < n; i++)
            lines += buf[i] == '\n';
    close(fd);
    return lines;
}

static inline long t_rss(void) /* bytes */
{
    char buf[128] = "";
    int fd = open("/proc/self/statm", O_RDONLY | O_CLOEXEC);
    if (fd < 0 || read(fd, buf, sizeof buf - 1) <= 0)
        T_FAIL("cannot read /proc/self/statm");
    close(fd);
    long size = 0, resident = 0;
    sscanf(buf, "%ld %ld", &size, &resident);
    return resident * sysconf(_SC_PAGESIZE);
}

#endif
