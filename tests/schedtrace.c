/* SPDX-License-Identifier: MIT */
/* schedtrace.c: MAGPIE_DEBUG=schedtrace=MS,scheddetail=1: what it prints, and that it stops nobody. */
#include "test.h"

#include <dlfcn.h>
#include <magpie.h>
#include <sys/socket.h>

static char text[1 << 20];

static void set(int *flag) { __atomic_store_n(flag, 1, __ATOMIC_RELEASE); }
static int get(const int *flag) { return __atomic_load_n(flag, __ATOMIC_ACQUIRE); }
static void nothing(void *arg) { (void)arg; }
static void done(void *wg) { mag_wg_done(wg); }
static void parks(void *arg) { mag_wg_wait(arg, MAG_FOREVER); }

static void burst(int n)
{
    mag_wg wg = {0};
    mag_wg_add(&wg, n);
    for (int i = 0; i < n; i++)
        T_EQ(mag_go(done, &wg), 0);
    T_EQ(mag_wg_wait(&wg, MAG_FOREVER), 0);
}

static char *line_with(const char *part) { return t_line_with(text, part); }

/* ---- what it prints ---- */

static void works_a_while(void *arg)
{
    (void)arg;
    mag_wg gate = {0};
    mag_wg_add(&gate, 1);
    T_EQ(mag_go_with(&(mag_go_config){.name = "parked"}, parks, &gate), 0);
    for (int64_t until = t_now() + 250 * MAG_MS; t_now() < until;)
        burst(3); /* few, so that the whole trace fits a child's words */
    mag_wg_done(&gate);
}

static void run_traced(void *debug)
{
    t_setenv("MAGPIE_DEBUG", debug);
    T_EQ(mag_run_with(&(mag_config){.procs = 2}, works_a_while, NULL), 0);
}

static void traced(const char *debug)
{
    static struct t_child c;
    t_fork(&c, run_traced, (void *)debug);
    if (c.code != 0)
        T_FAIL("code %d, signal %d\n%s", c.code, c.signal, c.err);
    strcpy(text, c.err);
    if (strlen(text) == sizeof c.err - 1)
        strrchr(text, '\n')[1] = 0; /* it was cut in the middle of a line */
}

static void sched_lines_have_the_right_form(void)
{
    long n = 0;
    int last = -1;
    for (const char *at = text; (at = strstr(at, "SCHED ")) != NULL; at++, n++) {
        int ms, procs, idle, threads, spinning, need, idle_threads, global, q[2], tick[2], end = -1;
        unsigned long long steals, stolen, spills, retakes;
        T_TRUE(at == text || at[-1] == '\n');
        int got = sscanf(at,
                         "SCHED %dms: gomaxprocs=%d idleprocs=%d threads=%d spinningthreads=%d needspinning=%d "
                         "idlethreads=%d runqueue=%d [ %d %d ] schedticks=[ %d %d ] steals=%llu stolen=%llu "
                         "spills=%llu retakes=%llu%n",
                         &ms, &procs, &idle, &threads, &spinning, &need, &idle_threads, &global, &q[0], &q[1], &tick[0],
                         &tick[1], &steals, &stolen, &spills, &retakes, &end);
        if (got != 16 || end < 0 || at[end] != '\n')
            T_FAIL("not a SCHED line (%d): %.200s", got, at);
        T_GT(ms, last);
        T_EQ(procs, 2);
        T_GE(idle, 0);
        T_LE(idle, 2);
        T_GE(threads, 1);
        T_LE(spinning, 1);
        T_LE(idle_threads, threads);
        last = ms;
    }
    T_GE(n, 3);
}

static void schedtrace_prints_one_line_each_time(void)
{
    traced("schedtrace=20");
    sched_lines_have_the_right_form();
    T_FALSE(strstr(text, "  P0:"));
    T_FALSE(strstr(text, "  G: "));
}

static void scheddetail_adds_ps_ms_and_gs(void)
{
    traced("schedtrace=20,scheddetail=1");
    sched_lines_have_the_right_form();
    int tick, m, size, next;
    char status[16];
    T_EQ(sscanf(line_with("  P0: "), "  P0: status=%15s schedtick=%d m=%d runqsize=%d runnext=%d", status, &tick, &m,
                &size, &next),
         5);
    T_TRUE(strcmp(status, "running") == 0 || strcmp(status, "idle") == 0);
    T_STR_HAS(text, "\n  P1: status=");
    int p;
    unsigned long long g;
    T_EQ(sscanf(line_with("  M0: "), "  M0: p=%d curg=%llu in=%15s", &p, &g, status), 3);
    T_TRUE(strcmp(status, "user") == 0 || strcmp(status, "runtime") == 0);
    T_STR_HAS(text, "\n  G: goroutine ");
    /* the first lines may have seen it before it waited */
    T_STR_HAS(line_with("\"parked\" [wait group, "), "] in schedtrace+0x");
}

/* ---- nobody is stopped ---- */

/* The library's calls come here: sysmon must not wait for the loader's lock. */
static int lookups;
int dladdr(const void *at, Dl_info *info)
{
    static int (*real)(const void *, Dl_info *);
    __atomic_add_fetch(&lookups, 1, __ATOMIC_RELAXED);
    if (real == NULL)
        *(void **)&real = dlsym(RTLD_NEXT, "dladdr");
    return real(at, info);
}

static struct {
    int fd;   /* becomes stderr */
    int back; /* where what is written there can be read, without waiting */
    int kept; /* stderr before */
} way;

static void begin(void)
{
    way.kept = dup(STDERR_FILENO);
    T_EQ(dup2(way.fd, STDERR_FILENO), STDERR_FILENO);
}

static void end(void) { dup2(way.kept, STDERR_FILENO); } /* from here on assertions are heard */

static void make_pipe(void)
{
    int fd[2];
    T_EQ(pipe(fd), 0);
    way.fd = fd[1];
    way.back = fd[0];
}

static void make_socket(void)
{
    int fd[2];
    T_EQ(socketpair(AF_UNIX, SOCK_STREAM, 0, fd), 0);
    way.fd = fd[1];
    way.back = fd[0];
}

static void make_terminal(void)
{
    way.back = posix_openpt(O_RDWR | O_NOCTTY);
    T_GE(way.back, 0);
    T_EQ(grantpt(way.back), 0);
    T_EQ(unlockpt(way.back), 0);
    way.fd = open(ptsname(way.back), O_RDWR | O_NOCTTY);
    T_GE(way.fd, 0);
}

static void nonblocking(int fd, bool on)
{
    int flags = fcntl(fd, F_GETFL);
    T_EQ(fcntl(fd, F_SETFL, on ? flags | O_NONBLOCK : flags & ~O_NONBLOCK), 0);
}

/* Full, or nearly: a terminal that has room for a part of a line says that it is ready. */
static void fill(void)
{
    memset(text, '\n', 4096);
    nonblocking(way.fd, true);
    while (write(way.fd, text, 4096) > 0 || write(way.fd, text, 1) > 0)
        ;
    nonblocking(way.fd, false);
    for (ssize_t n = 0, r; n < 300; n += r) { /* what is on its way through a terminal comes a bit at a time */
        r = read(way.back, text, (size_t)(300 - n));
        T_GT(r, 0);
    }
}

static size_t read_back(size_t n)
{
    ssize_t r;
    while (n < sizeof text - 1 && (r = read(way.back, text + n, sizeof text - 1 - n)) > 0)
        n += (size_t)r;
    text[n] = 0;
    return n;
}

static int other_ran;
static void runs(void *arg)
{
    (void)arg;
    set(&other_ran);
}

/* Beside one that computes on the only P, nobody runs without sysmon. */
static void hogs(void *arg)
{
    (void)arg;
    mag_wg gate = {0};
    mag_wg_add(&gate, 1);
    for (int i = 0; i < 100; i++)
        T_EQ(mag_go(parks, &gate), 0);
    mag_yield();
    t_sleep_ms(50); /* some lines find no room */
    T_EQ(mag_go(runs, NULL), 0);
    for (int64_t until = t_now() + 10 * MAG_S; !get(&other_ran) && t_now() < until;)
        ;
    if (!get(&other_ran))
        _exit(3);
    size_t n = 0;
    for (int64_t until = t_now() + 10 * MAG_S; t_now() < until; t_sleep_ms(1)) {
        n = read_back(n);
        const char *told = strstr(text, " dropped=");
        if (told != NULL && strchr(told, '\n') != NULL && strstr(told, "SCHED") != NULL)
            return;
    }
    _exit(4);
}

static void run_with_full_stderr(void *make)
{
    void (*f)(void);
    *(void **)&f = make;
    f();
    T_EQ(mag_run(nothing, NULL), 0); /* a hostile build says its seed, once and however long that takes */
    fill();
    nonblocking(way.back, true);
    begin();
    t_setenv("MAGPIE_DEBUG", "schedtrace=1,scheddetail=1");
    lookups = 0;
    int r = mag_run_with(&(mag_config){.procs = 1}, hogs, NULL);
    end();
    T_EQ(r, 0);
    T_EQ(lookups, 0);
    unsigned dropped = 0;
    T_EQ(sscanf(strstr(text, " dropped="), " dropped=%u", &dropped), 1);
    T_GE(dropped, 20); /* SCHED, P, M and G lines */
    for (const char *at = text; (at = strstr(at, "SCHED ")) != NULL; at++)
        if (at != text && at[-1] != '\n')
            T_FAIL("a line behind the rest of another: %.200s", at - text > 100 ? at - 100 : text);
}

static void goes_on(void (*make)(void), const char *what)
{
    static struct t_child c;
    void *arg;
    *(void (**)(void))&arg = make;
    t_fork(&c, run_with_full_stderr, arg);
    if (c.code != 0)
        T_FAIL("a full %s: code %d, signal %d%s\n%s", what, c.code, c.signal, c.timed_out ? ", timed out" : "", c.err);
}

static void a_full_pipe_stops_nobody(void) { goes_on(make_pipe, "pipe"); }
static void a_full_socket_stops_nobody(void) { goes_on(make_socket, "socket"); }

static void a_stopped_terminal_stops_nobody(void)
{
    int fd = posix_openpt(O_RDWR | O_NOCTTY);
    if (fd < 0)
        T_SKIP("no terminals here");
    close(fd);
    goes_on(make_terminal, "terminal");
}

/* ---- it says what mag_stats_read says ---- */

enum { PROCS = 3 };

struct fields {
    unsigned long long steals, stolen, attempts, spills;
};

static long count_of(const char *part)
{
    long n = 0;
    for (const char *at = text; (at = strstr(at, part)) != NULL; at++)
        n++;
    return n;
}

/* From the first SCHED line to the second. */
static void traced_fields(struct fields f[PROCS])
{
    const char *first = strstr(text, "SCHED "), *second = strstr(first + 1, "SCHED ");
    for (int i = 0; i < PROCS; i++) {
        char start[16];
        snprintf(start, sizeof start, "\n  P%d: ", i);
        const char *at = strstr(first, start);
        if (at == NULL || at > second)
            T_FAIL("no P%d in %s", i, first);
        if (sscanf(at + strlen(start),
                   "status=%*s schedtick=%*u m=%*d runqsize=%*u runnext=%*d steals=%llu stolen=%llu attempts=%llu "
                   "spills=%llu",
                   &f[i].steals, &f[i].stolen, &f[i].attempts, &f[i].spills) != 4)
            T_FAIL("not a P line: %.200s", at + 1);
    }
}

static void stats_fields(struct fields f[PROCS])
{
    mag_stats per[PROCS];
    T_EQ(mag_stats_read(NULL, per, PROCS), PROCS);
    for (int i = 0; i < PROCS; i++)
        f[i] = (struct fields){per[i].steals, per[i].stolen, per[i].steals + per[i].failed_steals, per[i].spills};
}

static void spins(void *wg)
{
    for (int64_t until = t_now() + 20 * MAG_US; t_now() < until;)
        ;
    mag_wg_done(wg);
}

/* Counters only grow: what was printed between two readings is between them. */
static void in_between(const struct fields *before, const struct fields *traced, const struct fields *after)
{
#define BETWEEN(name)                                                                                                  \
    T_LE(before->name, traced->name);                                                                                  \
    T_LE(traced->name, after->name)
    BETWEEN(steals);
    BETWEEN(stolen);
    BETWEEN(attempts);
    BETWEEN(spills);
    T_GE(traced->stolen, traced->steals);
    T_GE(traced->attempts, traced->steals);
}

static void compares(void *arg)
{
    (void)arg;
    struct fields before[PROCS], traced[PROCS], after[PROCS];
    unsigned long long steals = 0, spills = 0;
    for (int round = 0; round < 5; round++) {
        mag_wg wg = {0};
        mag_wg_add(&wg, 1000);
        for (int i = 0; i < 1000; i++)
            T_EQ(mag_go(spins, &wg), 0);
        T_EQ(mag_wg_wait(&wg, MAG_FOREVER), 0);
        stats_fields(before);
        begin();
        size_t n = 0;
        for (text[0] = 0; count_of("SCHED ") < 2; t_sleep_ms(1))
            n = read_back(n);
        stats_fields(after);
        end();
        traced_fields(traced);
        for (int i = 0; i < PROCS; i++) {
            in_between(&before[i], &traced[i], &after[i]);
            steals += traced[i].steals;
            spills += traced[i].spills;
        }
    }
    T_GT(steals, 0);
    T_GT(spills, 0);
}

static void run_compared(void *arg)
{
    (void)arg;
    make_pipe();
    nonblocking(way.back, true);
    t_setenv("MAGPIE_DEBUG", "schedtrace=5,scheddetail=1");
    T_EQ(mag_run_with(&(mag_config){.procs = PROCS}, compares, NULL), 0);
}

static void scheddetail_says_what_the_counters_say(void)
{
    static struct t_child c;
    t_fork(&c, run_compared, NULL);
    if (c.code != 0)
        T_FAIL("code %d, signal %d%s\n%s", c.code, c.signal, c.timed_out ? ", timed out" : "", c.err);
}

int main(int argc, char **argv)
{
    t_init(argc, argv);
    T_RUN(schedtrace_prints_one_line_each_time);
    T_RUN(scheddetail_adds_ps_ms_and_gs);
    T_RUN(a_full_pipe_stops_nobody);
    T_RUN(a_full_socket_stops_nobody);
    T_RUN(a_stopped_terminal_stops_nobody);
    T_RUN(scheddetail_says_what_the_counters_say);
    return t_done();
}
