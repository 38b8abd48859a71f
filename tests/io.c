/* SPDX-License-Identifier: MIT */
/* io.c: reading, writing and waiting on descriptors of every kind, blocking or not; deadlines, cancellation and closing end every
 * wait; nothing is lost and nobody is told of what was not for him. */
#include "test.h"

#include <magpie.h>
#include <netinet/in.h>
#include <pthread.h>
#include <sys/eventfd.h>
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
        ssize_t r = mag_read(fd[0], buf, kind == DGRAM ? sizeof buf : t_random_r(&random) % sizeof buf + 1, MAG_FOREVER);
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

int main(int argc, char **argv)
{
    t_init(argc, argv);
    (void)add, (void)get, (void)close_pair;
    T_RUN(bytes_go_through);
    return t_done();
}
