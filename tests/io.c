/* SPDX-License-Identifier: MIT */
/* io.c: reading, writing and waiting on descriptors of every kind, blocking or not; deadlines, cancellation and closing end every
 * wait; nothing is lost and nobody is told of what was not for him. */
#include "test.h"

#include <magpie.h>
#include <netinet/in.h>
#include <pthread.h>
#include <sys/eventfd.h>
#include <sys/mman.h>
#include <sys/signalfd.h>
#include <sys/socket.h>
#include <sys/timerfd.h>
#include <sys/uio.h>
#include <sys/un.h>

static void on(int procs, mag_fn fn) { T_EQ(mag_run_with(&(mag_config){.procs = procs}, fn, NULL), 0); }

/* On one, two, four and sixteen Ps, and every descriptor that a run opens is gone with it. */
static void on_some(mag_fn fn)
{
    long fds = t_fds();
    on(1, fn);
    on(2, fn);
    on(4, fn);
    on(16, fn);
    T_EQ(t_fds(), fds);
}

static void add(long *n, long by) { __atomic_add_fetch(n, by, __ATOMIC_RELAXED); }
static long get(long *n) { return __atomic_load_n(n, __ATOMIC_RELAXED); }

enum kind { PIPE, BLOCKING_PIPE, UNIX, BLOCKING_UNIX, DGRAM, KINDS };

/* Two ends, of which [0] can be read and [1] written. */
static void make_pair(enum kind kind, int fd[2])
{
    int r = kind == PIPE            ? pipe2(fd, O_NONBLOCK | O_CLOEXEC)
            : kind == BLOCKING_PIPE ? pipe2(fd, O_CLOEXEC)
            : kind == UNIX          ? socketpair(AF_UNIX, SOCK_STREAM | SOCK_NONBLOCK, 0, fd)
            : kind == BLOCKING_UNIX ? socketpair(AF_UNIX, SOCK_STREAM, 0, fd)
                                    : socketpair(AF_UNIX, SOCK_DGRAM, 0, fd);
    T_EQ(r, 0);
}

static void close_pair(int fd[2])
{
    T_EQ(mag_close(fd[0]), 0);
    T_EQ(mag_close(fd[1]), 0);
}

/* ---- bytes go through ---- */

struct stream {
    int fd;
    size_t total;
    mag_wg *wg;
};

static unsigned char byte_at(size_t i) { return (unsigned char)(i * 31 + (i >> 9)); }

static void writes_stream(void *arg)
{
    struct stream *s = arg;
    char buf[20000];
    uint64_t random = s->total;
    for (size_t at = 0; at < s->total;) {
        size_t n = t_random_r(&random) % sizeof buf + 1;
        n = n < s->total - at ? n : s->total - at;
        for (size_t i = 0; i < n; i++)
            buf[i] = (char)byte_at(at + i);
        ssize_t r = mag_write(s->fd, buf, n, MAG_FOREVER);
        if (r < 1 || r > (ssize_t)n)
            T_FAIL("mag_write: %zd of %zu", r, n);
        at += (size_t)r;
    }
    mag_wg_done(s->wg);
}

static void goes_through(enum kind kind)
{
    int fd[2];
    mag_wg wg = {0};
    make_pair(kind, fd);
    size_t total = (size_t)t_scale(300000), at = 0;
    mag_wg_add(&wg, 1);
    T_EQ(MAG_GO(writes_stream, struct stream, fd[1], total, &wg), 0);
    char buf[30000];
    uint64_t random = 1;
    while (at < total) {
        ssize_t r =
            mag_read(fd[0], buf, kind == DGRAM ? sizeof buf : t_random_r(&random) % sizeof buf + 1, MAG_FOREVER);
        if (r < 1)
            T_FAIL("mag_read: %zd", r);
        for (ssize_t i = 0; i < r; i++, at++)
            if ((unsigned char)buf[i] != byte_at(at))
                T_FAIL("byte %zu differs", at);
    }
    T_EQ(mag_wg_wait(&wg, MAG_FOREVER), 0);
    T_EQ(mag_close(fd[1]), 0);
    if (kind != DGRAM)
        T_EQ(mag_read(fd[0], buf, sizeof buf, MAG_FOREVER), 0);
    T_EQ(mag_close(fd[0]), 0);
}

static void every_kind_goes_through(void *arg)
{
    (void)arg;
    for (int k = 0; k < KINDS; k++)
        goes_through((enum kind)k);
}

static void bytes_go_through(void) { on_some(every_kind_goes_through); }

/* ---- other kinds ---- */

static void sleeps_and_posts(void *arg)
{
    uint64_t one = 1;
    T_EQ(mag_sleep(2 * MAG_MS), 0);
    T_EQ(mag_write(*(int *)arg, &one, sizeof one, MAG_FOREVER), sizeof one);
}

static void special_files(void *arg)
{
    (void)arg;
    uint64_t value = 0;
    for (int nonblock = 0; nonblock < 2; nonblock++) {
        int e = eventfd(0, nonblock ? EFD_NONBLOCK : 0);
        T_EQ(mag_read(e, &value, sizeof value, MAG_TRY), -ETIMEDOUT);
        T_EQ(mag_go_copy(sleeps_and_posts, &e, sizeof e), 0);
        T_EQ(mag_read(e, &value, sizeof value, MAG_FOREVER), 8);
        T_EQ(value, 1);
        T_EQ(mag_close(e), 0);

        int t = timerfd_create(CLOCK_MONOTONIC, nonblock ? TFD_NONBLOCK : 0);
        T_EQ(timerfd_settime(t, 0, &(struct itimerspec){.it_value.tv_nsec = 3000000}, NULL), 0);
        T_EQ(mag_read(t, &value, sizeof value, MAG_FOREVER), 8);
        T_EQ(mag_close(t), 0);
    }
    char buf[64] = "x";
    int null = open("/dev/null", O_RDWR), zero = open("/dev/zero", O_RDWR), proc = open("/proc/self/status", O_RDONLY);
    T_EQ(mag_read(null, buf, sizeof buf, MAG_FOREVER), 0);
    T_EQ(mag_write(null, buf, sizeof buf, MAG_FOREVER), sizeof buf);
    T_EQ(mag_read(zero, buf, sizeof buf, MAG_FOREVER), sizeof buf);
    T_GT(mag_read(proc, buf, sizeof buf, MAG_FOREVER), 0);
    T_EQ(mag_poll(null, POLLIN | POLLOUT, MAG_FOREVER), POLLIN | POLLOUT);
    T_EQ(mag_close(null), 0);
    T_EQ(mag_close(zero), 0);
    T_EQ(mag_close(proc), 0);
}

static void files_are_read_and_written(void *arg)
{
    (void)arg;
    char name[] = "/tmp/magpie-io-XXXXXX", buf[100000], back[100000];
    int fd = mkstemp(name);
    unlink(name);
    memset(buf, 'a', sizeof buf);
    T_EQ(mag_write_full(fd, buf, sizeof buf, MAG_FOREVER), sizeof buf);
    T_EQ(lseek(fd, 0, SEEK_SET), 0);
    T_EQ(mag_read_full(fd, back, sizeof back, MAG_FOREVER), sizeof back);
    T_EQ(memcmp(buf, back, sizeof buf), 0);
    T_EQ(mag_read(fd, back, sizeof back, MAG_FOREVER), 0);
    T_EQ(mag_poll(fd, POLLIN, MAG_FOREVER), POLLIN);
    T_EQ(mag_close(fd), 0);
    int dir = open("/tmp", O_RDONLY);
    T_EQ(mag_read(dir, back, 1, MAG_FOREVER), -EISDIR);
    T_EQ(mag_close(dir), 0);
}

/* A terminal in blocking mode: what is written at one end is a line at the other. */
static void talks_to_a_terminal(void *arg)
{
    (void)arg;
    char name[64], buf[64];
    int master = posix_openpt(O_RDWR | O_NOCTTY);
    if (master < 0 || grantpt(master) != 0 || unlockpt(master) != 0 || ptsname_r(master, name, sizeof name) != 0)
        return; /* no terminals here */
    int slave = open(name, O_RDWR | O_NOCTTY);
    T_EQ(mag_read(slave, buf, sizeof buf, MAG_TRY), -ETIMEDOUT);
    T_EQ(mag_read(slave, buf, sizeof buf, mag_in(MAG_MS)), -ETIMEDOUT);
    T_EQ(mag_write(master, "hello\n", 6, MAG_FOREVER), 6);
    T_EQ(mag_read(slave, buf, sizeof buf, MAG_FOREVER), 6);
    T_EQ(memcmp(buf, "hello\n", 6), 0);
    T_EQ(fcntl(slave, F_GETFL) & O_NONBLOCK, 0);
    T_EQ(mag_close(slave), 0);
    T_EQ(mag_close(master), 0);
}

static void signals_are_read(void *arg)
{
    (void)arg;
    sigset_t set;
    struct signalfd_siginfo info;
    sigemptyset(&set);
    sigaddset(&set, SIGUSR1);
    int fd = signalfd(-1, &set, 0);
    T_EQ(mag_read(fd, &info, sizeof info, mag_in(MAG_MS)), -ETIMEDOUT);
    mag_lock_thread(); /* the signal is for this thread, which blocks it */
    T_EQ(pthread_kill(pthread_self(), SIGUSR1), 0);
    T_EQ(mag_read(fd, &info, sizeof info, MAG_TRY), sizeof info);
    mag_unlock_thread();
    T_EQ(info.ssi_signo, SIGUSR1);
    T_EQ(mag_close(fd), 0);
}

static void every_kind_of_file(void)
{
    on_some(special_files);
    on_some(files_are_read_and_written);
    on_some(talks_to_a_terminal);
    on_some(signals_are_read);
}

static void mode_is_kept(void *arg)
{
    (void)arg;
    for (int k = 0; k < KINDS; k++) {
        int fd[2];
        char c = 'x';
        make_pair((enum kind)k, fd);
        int before[2] = {fcntl(fd[0], F_GETFL), fcntl(fd[1], F_GETFL)};
        T_EQ(mag_read(fd[0], &c, 1, mag_in(MAG_MS)), -ETIMEDOUT);
        T_EQ(mag_write(fd[1], &c, 1, MAG_FOREVER), 1);
        T_EQ(mag_poll(fd[0], POLLIN, MAG_FOREVER), POLLIN);
        T_EQ(mag_read(fd[0], &c, 1, MAG_FOREVER), 1);
        T_EQ(fcntl(fd[0], F_GETFL), before[0]);
        T_EQ(fcntl(fd[1], F_GETFL), before[1]);
        close_pair(fd);
    }
}

static void nonblock_is_left_alone(void) { on_some(mode_is_kept); }

/* ---- how a wait ends ---- */

struct waits {
    int fd;
    int how; /* which call */
    mag_time deadline;
    long *result;
    mag_wg *wg;
};

enum { HOW_READ, HOW_READV, HOW_RECV, HOW_RECVFROM, HOW_RECVMSG, HOW_POLL, HOW_READ_FULL, HOWS };

static long read_somehow(int fd, int how, mag_time deadline)
{
    char c[4];
    struct iovec v = {c, 1};
    struct msghdr h = {.msg_iov = &v, .msg_iovlen = 1};
    switch (how) {
    case HOW_READ:
        return mag_read(fd, c, 1, deadline);
    case HOW_READV:
        return mag_readv(fd, &v, 1, deadline);
    case HOW_RECV:
        return mag_recv(fd, c, 1, 0, deadline);
    case HOW_RECVFROM:
        return mag_recvfrom(fd, c, 1, 0, NULL, NULL, deadline);
    case HOW_RECVMSG:
        return mag_recvmsg(fd, &h, 0, deadline);
    case HOW_POLL:
        return mag_poll(fd, POLLIN, deadline);
    default:
        return mag_read_full(fd, c, 2, deadline);
    }
}

static void waits(void *arg)
{
    struct waits *w = arg;
    *w->result = read_somehow(w->fd, w->how, w->deadline);
    mag_wg_done(w->wg);
}

static void deadlines_pass(void *arg)
{
    (void)arg;
    int fd[2];
    make_pair(BLOCKING_UNIX, fd);
    for (int how = 0; how < HOWS; how++) {
        T_EQ(read_somehow(fd[0], how, MAG_TRY), -ETIMEDOUT);
        T_EQ(read_somehow(fd[0], how, mag_now()), -ETIMEDOUT);
        T_EQ(read_somehow(fd[0], how, mag_in(-MAG_MS)), -ETIMEDOUT);
        mag_time end = mag_in(3 * MAG_MS);
        T_EQ(read_somehow(fd[0], how, end), -ETIMEDOUT);
        T_GE(mag_now(), end);
    }
    char big[1 << 16] = {0};
    while (mag_write(fd[1], big, sizeof big, MAG_TRY) > 0)
        ;
    T_EQ(mag_write(fd[1], big, sizeof big, mag_in(MAG_MS)), -ETIMEDOUT);
    T_EQ(mag_send(fd[1], big, sizeof big, 0, mag_in(MAG_MS)), -ETIMEDOUT);
    T_EQ(mag_poll(fd[1], POLLOUT, mag_in(MAG_MS)), -ETIMEDOUT);
    T_EQ(mag_poll(fd[0], POLLIN | POLLOUT, mag_in(MAG_MS)), POLLIN | POLLOUT);
    close_pair(fd);
}

static void every_deadline_passes(void) { on_some(deadlines_pass); }

static void closing_wakes(void *arg)
{
    (void)arg;
    for (int how = 0; how < HOWS * 2; how++) {
        int fd[2];
        long result[3] = {1, 1, 1};
        mag_wg wg = {0};
        make_pair(how % 2 ? UNIX : BLOCKING_UNIX, fd);
        mag_wg_add(&wg, 3);
        for (int i = 0; i < 3; i++)
            T_EQ(MAG_GO(waits, struct waits, fd[0], how / 2, MAG_FOREVER, &result[i], &wg), 0);
        T_EQ(mag_sleep(MAG_MS), 0);
        T_EQ(mag_close(fd[0]), 0);
        T_EQ(mag_wg_wait(&wg, MAG_FOREVER), 0);
        for (int i = 0; i < 3; i++)
            T_EQ(result[i], -EBADF);
        T_EQ(mag_close(fd[0]), -EBADF);
        T_EQ(mag_read(fd[0], &result, 1, MAG_FOREVER), -EBADF);
        T_EQ(mag_close(fd[1]), 0);
    }
}

static void closing_wakes_all(void) { on_some(closing_wakes); }

static void *closes(void *arg)
{
    t_sleep_ms(5 * (int)t_state.slow); /* it is in the call by now: else the number may be another's when it comes */
    T_EQ(mag_close(*(int *)arg), 0);
    return NULL;
}

static void a_thread_closes(void *arg)
{
    (void)arg;
    int fd[2];
    char c;
    pthread_t t;
    make_pair(BLOCKING_PIPE, fd);
    T_EQ(pthread_create(&t, NULL, closes, &fd[0]), 0);
    T_EQ(mag_read(fd[0], &c, 1, MAG_FOREVER), -EBADF);
    T_EQ(pthread_join(t, NULL), 0);
    T_EQ(mag_close(fd[1]), 0);
}

static void threads_may_close(void)
{
    on_some(a_thread_closes);
    int fd[2];
    T_EQ(pipe(fd), 0);
    close_pair(fd); /* without a runtime */
    T_EQ(mag_close(fd[0]), -EBADF);
    T_EQ(mag_read(0, fd, 1, MAG_TRY), -EPERM);
    T_EQ(mag_poll(0, POLLIN, MAG_TRY), -EPERM);
    T_EQ(mag_accept(0, NULL, NULL, MAG_TRY), -EPERM);
}

static void cancelling_wakes(void *arg)
{
    (void)arg;
    for (int how = 0; how < HOWS; how++) {
        int fd[2];
        long result[2] = {1, 1};
        mag_wg wg = {0};
        mag_group group = {0};
        make_pair(how % 2 ? UNIX : BLOCKING_UNIX, fd);
        mag_wg_add(&wg, 2);
        for (int i = 0; i < 2; i++)
            T_EQ(MAG_GROUP_GO(&group, waits, struct waits, fd[0], how, MAG_FOREVER, &result[i], &wg), 0);
        T_EQ(mag_sleep(MAG_MS), 0);
        if (how % 2) {
            mag_group_cancel(&group);
        } else {
            mag_group_set_deadline(&group, mag_in(MAG_S)); /* moved while they wait */
            mag_group_set_deadline(&group, mag_in(MAG_MS));
        }
        T_EQ(mag_wg_wait(&wg, MAG_FOREVER), 0);
        T_EQ(mag_group_wait(&group, MAG_FOREVER), how % 2 ? -ECANCELED : -ETIMEDOUT);
        T_EQ(result[0], -ECANCELED);
        T_EQ(result[1], -ECANCELED);
        close_pair(fd);
    }
}

static void cancelling_wakes_all(void) { on_some(cancelling_wakes); }

/* ---- first come, first served ---- */

enum { QUEUE = 20 };

static struct {
    int fd[2];
    long order[QUEUE], served;
    mag_wg wg;
} line;

static void stands_in_line(void *arg)
{
    char c;
    T_EQ(mag_read(line.fd[0], &c, 1, MAG_FOREVER), 1);
    line.order[__atomic_fetch_add(&line.served, 1, __ATOMIC_RELAXED)] = (long)(intptr_t)arg;
    mag_wg_done(&line.wg);
}

/* Until so many wait in a read. */
static void until_they_wait(int n)
{
    static char text[1 << 16];
    int dump = memfd_create("dump", MFD_CLOEXEC), seen = 0;
    while (seen < n) {
        T_EQ(mag_sleep(50 * MAG_US), 0);
        T_EQ(ftruncate(dump, 0), 0);
        T_EQ(lseek(dump, 0, SEEK_SET), 0);
        T_EQ(mag_dump(dump), 0);
        ssize_t size = pread(dump, text, sizeof text - 1, 0);
        text[size > 0 ? size : 0] = 0;
        seen = 0;
        for (char *at = text; (at = strstr(at, "[io read")) != NULL; at++)
            seen++;
    }
    close(dump);
}

static void queue_is_fair(void *arg)
{
    (void)arg;
    for (int k = 0; k < KINDS; k++) {
        make_pair((enum kind)k, line.fd);
        line.served = 0;
        mag_wg_add(&line.wg, QUEUE);
        for (int i = 0; i < QUEUE; i++) {
            T_EQ(mag_go(stands_in_line, (void *)(intptr_t)i), 0);
            until_they_wait(i + 1);
        }
        for (long i = 0; i < QUEUE; i++) {
            T_EQ(mag_write(line.fd[1], "x", 1, MAG_FOREVER), 1);
            while (get(&line.served) == i)
                mag_yield();
        }
        T_EQ(mag_wg_wait(&line.wg, MAG_FOREVER), 0);
        for (long i = 0; i < QUEUE; i++)
            T_EQ(line.order[i], i);
        close_pair(line.fd);
    }
}

/* One event for all of them: each leaves something for the next. */
static void one_event_for_many(void *arg)
{
    (void)arg;
    for (int k = 0; k < KINDS; k++) {
        make_pair((enum kind)k, line.fd);
        line.served = 0;
        mag_wg_add(&line.wg, QUEUE);
        for (int i = 0; i < QUEUE; i++)
            T_EQ(mag_go(stands_in_line, NULL), 0);
        T_EQ(mag_sleep(MAG_MS), 0);
        if (k == DGRAM)
            for (int i = 0; i < QUEUE; i++)
                T_EQ(mag_write(line.fd[1], "x", 1, MAG_FOREVER), 1);
        else
            T_EQ(mag_write(line.fd[1], "xxxxxxxxxxxxxxxxxxxx", QUEUE, MAG_FOREVER), QUEUE);
        T_EQ(mag_wg_wait(&line.wg, mag_in(5 * MAG_S)), 0);
        close_pair(line.fd);
    }
}

static void many_wait_on_one(void)
{
    on(1, queue_is_fair);
    on(2, queue_is_fair);
    on_some(one_event_for_many);
}

/* ---- both directions, watchers ---- */

struct watch {
    int fd, events;
    mag_wg *wg;
    long result;
};

static void watches(void *arg)
{
    struct watch *w = *(struct watch **)arg;
    add(&w->result, mag_poll(w->fd, w->events, MAG_FOREVER));
    mag_wg_done(w->wg);
}

static void directions_are_apart(void *arg)
{
    (void)arg;
    int fd[2];
    char big[1 << 16] = {0}, c;
    mag_wg wg = {0};
    make_pair(BLOCKING_UNIX, fd);
    while (mag_write(fd[0], big, sizeof big, MAG_TRY) > 0)
        ;
    struct watch in = {fd[0], POLLIN, &wg, 0}, out = {fd[0], POLLOUT, &wg, 0}, both = {fd[0], POLLIN | POLLOUT, &wg, 0},
                 *p;
    mag_wg_add(&wg, 3);
    T_EQ(mag_go_copy(watches, &(struct watch *){&in}, sizeof p), 0);
    T_EQ(mag_go_copy(watches, &(struct watch *){&out}, sizeof p), 0);
    T_EQ(mag_go_copy(watches, &(struct watch *){&both}, sizeof p), 0);
    T_EQ(mag_sleep(MAG_MS), 0);
    T_EQ(mag_write(fd[1], "x", 1, MAG_FOREVER), 1);
    while (get(&in.result) == 0 || get(&both.result) == 0)
        T_EQ(mag_sleep(MAG_MS), 0);
    T_EQ(get(&in.result), POLLIN);
    T_EQ(get(&both.result), POLLIN);
    T_EQ(get(&out.result), 0);
    T_EQ(mag_read(fd[0], &c, 1, MAG_FOREVER), 1);
    while (mag_read(fd[1], big, sizeof big, MAG_TRY) > 0)
        ;
    T_EQ(mag_wg_wait(&wg, MAG_FOREVER), 0);
    T_EQ(get(&out.result), POLLOUT);
    T_EQ(mag_poll(fd[0], 0, MAG_TRY), -EINVAL);
    T_EQ(mag_poll(fd[0], POLLHUP, MAG_TRY), -EINVAL);
    T_EQ(mag_close(fd[1]), 0);
    T_EQ(mag_poll(fd[0], POLLIN, MAG_FOREVER) & (POLLIN | POLLHUP), POLLIN | POLLHUP);
    T_EQ(mag_close(fd[0]), 0);
}

static void both_directions(void) { on_some(directions_are_apart); }

/* ---- errors ---- */

static void meets_errors(void *arg)
{
    (void)arg;
    int fd[2];
    char c = 'x';
    T_EQ(mag_read(-1, &c, 1, MAG_FOREVER), -EBADF);
    T_EQ(mag_read(INT32_MAX, &c, 1, MAG_FOREVER), -EBADF);
    T_EQ(mag_read(1000000, &c, 1, MAG_FOREVER), -EBADF);
    T_EQ(mag_write(1000000, &c, 1, MAG_FOREVER), -EBADF);
    T_EQ(mag_poll(1000000, POLLIN, MAG_FOREVER), -EBADF);
    T_EQ(mag_close(1000000), -EBADF);
    T_EQ(mag_close(-1), -EBADF);
    T_EQ(mag_fd_release(-1), -EBADF);
    T_EQ(mag_accept(1000000, NULL, NULL, MAG_FOREVER), -EBADF);
    for (int k = 0; k < KINDS; k++) {
        make_pair((enum kind)k, fd);
        T_EQ(mag_close(fd[0]), 0);
        ssize_t r = mag_write(fd[1], &c, 1, MAG_FOREVER);
        T_EQ(r, k == DGRAM ? -ECONNREFUSED : -EPIPE);
        struct iovec v = {&c, 1};
        r = mag_writev(fd[1], &v, 1, MAG_FOREVER);
        T_TRUE(r == -EPIPE || r == -ENOTCONN);
        sigset_t pending;
        T_EQ(sigpending(&pending), 0);
        T_EQ(sigismember(&pending, SIGPIPE), 0);
        T_EQ(mag_fd_release(fd[1]), -EBADF);
        T_EQ(mag_close(fd[1]), 0);
    }
    make_pair(BLOCKING_PIPE, fd);
    T_EQ(mag_recv(fd[0], &c, 1, 0, MAG_FOREVER), -ENOTSOCK);
    T_EQ(mag_accept(fd[0], NULL, NULL, MAG_FOREVER), -ENOTSOCK);
    T_EQ(mag_read(fd[1], &c, 1, MAG_FOREVER), -EBADF); /* the wrong end */
    T_EQ(mag_write(fd[0], &c, 1, MAG_FOREVER), -EBADF);
    T_EQ(mag_read(fd[0], NULL, 0, MAG_TRY), 0);
    T_EQ(mag_write(fd[1], &c, 1, MAG_FOREVER), 1);
    T_EQ(mag_read(fd[0], NULL, 1, MAG_FOREVER), -EFAULT);
    T_EQ(mag_readv(fd[0], NULL, -1, MAG_TRY), -EINVAL);
    T_EQ(mag_writev(fd[1], NULL, -1, MAG_TRY), -EINVAL);
    close_pair(fd);
    make_pair(UNIX, fd);
    T_EQ(mag_recv(fd[0], &c, 1, MSG_DONTWAIT, MAG_FOREVER), -EAGAIN);
    T_EQ(mag_accept(fd[0], NULL, NULL, MAG_FOREVER), -EINVAL);
    close_pair(fd);
}

static void errors_are_told(void) { on_some(meets_errors); }

/* ---- all of it, one byte at a time ---- */

static void sends_bytes(void *arg)
{
    int fd = (int)(intptr_t)arg;
    for (int i = 0; i < 1000; i++)
        T_EQ(mag_write_full(fd, "x", 1, MAG_FOREVER), 1);
    T_EQ(mag_close(fd), 0);
}

static void reads_in_full(void *arg)
{
    (void)arg;
    int fd[2];
    char buf[600];
    make_pair(BLOCKING_UNIX, fd);
    T_EQ(mag_go(sends_bytes, (void *)(intptr_t)fd[1]), 0);
    T_EQ(mag_read_full(fd[0], buf, sizeof buf, MAG_FOREVER), sizeof buf);
    T_EQ(mag_read_full(fd[0], buf, sizeof buf, MAG_FOREVER), 400);
    T_EQ(mag_read_full(fd[0], buf, sizeof buf, MAG_FOREVER), 0);
    T_EQ(mag_read_full(fd[0], buf, 0, MAG_FOREVER), 0);
    T_EQ(mag_close(fd[0]), 0);
}

static void full_reads(void) { on_some(reads_in_full); }

/* ---- numbers are used again ---- */

static long stolen;

/* It may begin late, when the number is another pipe's already, and take that one's byte; or be asking when the last writer goes. */
static void waits_briefly(void *arg)
{
    char c;
    int fd = *(int *)arg;
    ssize_t r = mag_read(fd, &c, 1, mag_in(50 * MAG_US));
    if (r == 1)
        add(&stolen, 1);
    else if (r != 0 && r != -EBADF)
        T_EQ(r, -ETIMEDOUT);
}

/* A pipe whose ends have these numbers: the runtime's own are lower. */
static void pipe_at(int fd[2], int at)
{
    int made[2];
    T_EQ(pipe(made), 0);
    for (int i = 0; i < 2; i++) {
        fd[i] = at + i;
        T_EQ(dup2(made[i], fd[i]), fd[i]);
        close(made[i]);
    }
}

/* One file goes by close(2), sometimes with an event on its way and a duplicate that keeps it alive; the next one under its number
 * is told of its own bytes and of nothing else. */
static void reuses_foreign(void *arg)
{
    (void)arg;
    long n = t_scale(100000), forgiven = get(&stolen);
    int spare = -1;
    for (long i = 0; i < n; i++) {
        int fd[2];
        char c = 0;
        pipe_at(fd, 300);
        uint32_t dice = t_random();
        if (dice % 4 == 0) { /* armed, and left so */
            T_EQ(mag_read(fd[0], &c, 1, mag_in(1)), -ETIMEDOUT);
            if (dice % 8 == 0)
                T_EQ(write(fd[1], "a", 1), 1); /* an event for nobody */
        } else {
            T_EQ(mag_read(fd[0], &c, 1, MAG_TRY), -ETIMEDOUT);
            if (dice % 32 == 1 && !T_TSAN) /* which rightly says that a number is closed behind somebody's back */
                T_EQ(mag_go_copy(waits_briefly, fd, sizeof fd), 0);
            if (dice % 4 == 2) {
                T_EQ(mag_write(fd[1], "b", 1, MAG_FOREVER), 1);
                ssize_t r = mag_read(fd[0], &c, 1, mag_in(10 * MAG_S));
                if (r == -ETIMEDOUT && get(&stolen) > forgiven) {
                    forgiven = get(&stolen);
                } else {
                    T_EQ(r, 1);
                    T_EQ(c, 'b');
                }
            }
        }
        if (dice % 16 == 0) { /* the old file lives on under another number, out of the way */
            if (spare >= 0)
                close(spare);
            spare = fcntl(fd[0], F_DUPFD_CLOEXEC, 500);
        }
        close(fd[0]);
        close(fd[1]);
        if (dice % 32 == 1) /* its goroutine may sleep on the number until its time is over */
            T_EQ(mag_sleep(dice % 128 ? 100 * MAG_US : 1), 0);
    }
    if (spare >= 0)
        close(spare);
}

struct next {
    int fd;
    mag_wg *wg;
};

static void takes_its_own(void *arg)
{
    struct next *n = arg;
    char c = 0;
    T_EQ(mag_read(n->fd, &c, 1, mag_in(20 * MAG_S)), 1);
    T_EQ(c, 'n');
    mag_wg_done(n->wg);
}

/* The new file's event must come, whatever the old one left behind; and what came for the old one must wake nobody. */
static void finds_the_next(void *arg)
{
    (void)arg;
    long n = t_scale(20000);
    int spare = -1;
    for (long i = 0; i < n; i++) {
        int old[2], next[2];
        char c;
        mag_wg wg = {0};
        pipe_at(old, 300);
        T_EQ(mag_read(old[0], &c, 1, mag_in(1)), -ETIMEDOUT); /* armed */
        if (i % 3 == 0) {
            if (spare >= 0)
                close(spare);
            spare = fcntl(old[0], F_DUPFD_CLOEXEC, 500);
        }
        int keep = fcntl(old[1], F_DUPFD_CLOEXEC, 400);
        close(old[0]);
        close(old[1]);
        pipe_at(next, 300);
        mag_wg_add(&wg, 1);
        T_EQ(MAG_GO(takes_its_own, struct next, next[0], &wg), 0);
        mag_yield();
        if (i % 3 == 0)
            T_EQ(write(keep, "o", 1), 1); /* an event of the old file, which lives on in a duplicate */
        close(keep);
        T_EQ(mag_write(next[1], "n", 1, MAG_FOREVER), 1);
        T_EQ(mag_wg_wait(&wg, MAG_FOREVER), 0);
        close(next[0]);
        close(next[1]);
    }
    if (spare >= 0)
        close(spare);
}

static void foreign_numbers_return(void)
{
    signal(SIGPIPE, SIG_IGN);
    on(1, reuses_foreign);
    on(2, reuses_foreign);
    on(1, finds_the_next);
    on(2, finds_the_next);
    on(4, finds_the_next);
    signal(SIGPIPE, SIG_DFL);
}

/* ---- at the end of a run ---- */

static void waits_forever(void *arg)
{
    char c;
    T_EQ(mag_read(*(int *)arg, &c, 1, MAG_FOREVER), 1); /* at most one of them, just before the end */
}

static int left[2];

static void leaves_waiters(void *arg)
{
    (void)arg;
    make_pair(BLOCKING_UNIX, left);
    for (int i = 0; i < 10; i++)
        T_EQ(mag_go_copy(waits_forever, left, sizeof left), 0);
    T_EQ(mag_sleep(MAG_MS), 0);
    if (t_random() % 2)
        T_EQ(write(left[1], "x", 1), 1);
}

static void waiters_are_discarded(void)
{
    for (int i = 0; i < 20; i++) {
        on(i % 4 + 1, leaves_waiters);
        close_pair(left);
    }
}

/* ---- an idle program ---- */

static int idle_fd[2];

static void only_waits(void *arg)
{
    (void)arg;
    char c;
    T_EQ(mag_read(idle_fd[0], &c, 1, MAG_FOREVER), 1);
}

static void *looks_on(void *arg)
{
    (void)arg;
    t_sleep_ms(1600); /* sysmon sleeps after a second */
    long before = t_wake_ups();
    t_sleep_ms(1000);
    long n = t_wake_ups() - before;
    if (n > 2)
        T_FAIL("%ld wake-ups in a second", n);
    T_EQ(write(idle_fd[1], "x", 1), 1);
    return NULL;
}

static void waiting_costs_nothing(void)
{
    if (T_TSAN)
        T_SKIP("ThreadSanitizer's own thread wakes up");
    for (int procs = 1; procs <= 2; procs++) {
        pthread_t t;
        make_pair(BLOCKING_PIPE, idle_fd);
        T_EQ(pthread_create(&t, NULL, looks_on, NULL), 0);
        on(procs, only_waits);
        T_EQ(pthread_join(t, NULL), 0);
        close_pair(idle_fd);
    }
}

/* No other thread is there: the network alone can still wake it. */
static void waits_with_nobody_else(void *arg)
{
    (void)arg;
    char c;
    T_EQ(mag_read(idle_fd[0], &c, 1, mag_in(20 * MAG_S)), 1);
    T_EQ(mag_read(idle_fd[0], &c, 1, MAG_FOREVER), 0);
}

static void no_deadlock(void)
{
    make_pair(BLOCKING_PIPE, idle_fd);
    pid_t pid = fork();
    T_GE(pid, 0);
    if (pid == 0) {
        close(idle_fd[0]);
        t_sleep_ms(1300);
        _exit(write(idle_fd[1], "x", 1) == 1 ? 0 : 1);
    }
    close(idle_fd[1]);
    on(2, waits_with_nobody_else);
    T_EQ(mag_close(idle_fd[0]), 0);
    T_EQ(waitpid(pid, NULL, 0), pid);
}

int main(int argc, char **argv)
{
    t_init(argc, argv);
    T_RUN(bytes_go_through);
    T_RUN(every_kind_of_file);
    T_RUN(nonblock_is_left_alone);
    T_RUN(every_deadline_passes);
    T_RUN(closing_wakes_all);
    T_RUN(threads_may_close);
    T_RUN(cancelling_wakes_all);
    T_RUN(many_wait_on_one);
    T_RUN(both_directions);
    T_RUN(errors_are_told);
    T_RUN(full_reads);
    T_RUN(foreign_numbers_return);
    T_RUN(waiters_are_discarded);
    T_RUN(waiting_costs_nothing);
    T_RUN(no_deadlock);
    return t_done();
}
