/* SPDX-License-Identifier: MIT */
/* net.c: sockets by address: listening, dialling, accepting, thousands at once; peers that vanish, dawdle or never read; numbers that
 * come back. */
#include "test.h"

#include <arpa/inet.h>
#include <linux/net_tstamp.h>
#include <magpie.h>
#include <netinet/in.h>
#include <pthread.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <sys/wait.h>
#include <unistd.h>

static void on(int procs, mag_fn fn) { T_EQ(mag_run_with(&(mag_config){.procs = procs}, fn, NULL), 0); }

static void on_some(mag_fn fn)
{
    long fds = t_fds();
    on(1, fn);
    on(2, fn);
    on(4, fn);
    on(16, fn);
    T_EQ(t_fds(), fds);
}

static void sets(long *n, long v) { __atomic_store_n(n, v, __ATOMIC_RELAXED); }
static void add(long *n, long by) { __atomic_add_fetch(n, by, __ATOMIC_RELAXED); }
static long get(long *n) { return __atomic_load_n(n, __ATOMIC_RELAXED); }

/* A listener on some port of this machine; the address to dial. */
static int listen_local(char address[64])
{
    struct sockaddr_in a;
    socklen_t n = sizeof a;
    int fd = mag_listen("127.0.0.1:0", 0);
    T_GE(fd, 0);
    T_EQ(getsockname(fd, (struct sockaddr *)&a, &n), 0);
    snprintf(address, 64, "127.0.0.1:%d", ntohs(a.sin_port));
    return fd;
}

/* ---- an echo server for the tests ---- */

static struct {
    int fd;
    char address[64];
    long open, served;
    mag_wg wg;
} server;

static void echoes(void *arg)
{
    int fd = (int)(intptr_t)arg;
    char buf[2000];
    ssize_t n;
    while ((n = mag_read(fd, buf, sizeof buf, MAG_FOREVER)) > 0)
        if (mag_write_full(fd, buf, (size_t)n, MAG_FOREVER) != n)
            break;
    T_EQ(mag_close(fd), 0);
    add(&server.open, -1);
    mag_wg_done(&server.wg);
}

static void accepts(void *arg)
{
    (void)arg;
    for (;;) {
        int fd = mag_accept(server.fd, NULL, NULL, MAG_FOREVER);
        if (fd == -EBADF)
            break;
        if (fd == -EMFILE || fd == -ENFILE) { /* the server goes on */
            T_EQ(mag_sleep(MAG_MS), 0);
            continue;
        }
        T_GE(fd, 0);
        add(&server.open, 1);
        add(&server.served, 1);
        mag_wg_add(&server.wg, 1);
        T_EQ(mag_go(echoes, (void *)(intptr_t)fd), 0);
    }
    mag_wg_done(&server.wg);
}

static void start_server(void)
{
    memset(&server, 0, sizeof server);
    server.fd = listen_local(server.address);
    mag_wg_add(&server.wg, 1);
    T_EQ(mag_go(accepts, NULL), 0);
}

static void stop_server(void)
{
    T_EQ(mag_close(server.fd), 0);
    T_EQ(mag_wg_wait(&server.wg, MAG_FOREVER), 0);
}

static int dial_server(void)
{
    int fd = mag_dial(server.address, MAG_FOREVER);
    T_GE(fd, 0);
    return fd;
}

static void asks(int fd, const char *text)
{
    char back[64];
    size_t n = strlen(text);
    T_EQ(mag_write_full(fd, text, n, MAG_FOREVER), n);
    T_EQ(mag_read_full(fd, back, n, MAG_FOREVER), n);
    T_EQ(memcmp(back, text, n), 0);
}

/* ---- addresses ---- */

static void talks_at(const char *listen_to, const char *dial_to)
{
    char text[128], c;
    int l = mag_listen(listen_to, 10);
    if (l == -EAFNOSUPPORT || l == -EADDRNOTAVAIL)
        return; /* no such family here */
    T_GE(l, 0);
    T_EQ(fcntl(l, F_GETFL) & O_NONBLOCK, O_NONBLOCK);
    T_EQ(fcntl(l, F_GETFD) & FD_CLOEXEC, FD_CLOEXEC);
    if (dial_to == NULL) {
        struct sockaddr_in6 a;
        socklen_t n = sizeof a;
        T_EQ(getsockname(l, (struct sockaddr *)&a, &n), 0);
        snprintf(text, sizeof text, "%.*s%d", (int)(strrchr(listen_to, ':') - listen_to + 1), listen_to,
                 ntohs(a.sin6_port));
        if (text[0] == ':')
            memmove(text + 9, text, strlen(text) + 1), memcpy(text, "127.0.0.1", 9);
        dial_to = text;
    }
    int c1 = mag_dial(dial_to, MAG_FOREVER);
    T_GE(c1, 0);
    struct sockaddr_storage peer;
    unsigned size = sizeof peer;
    int c2 = mag_accept(l, (struct sockaddr *)&peer, &size, MAG_FOREVER);
    T_GE(c2, 0);
    T_EQ(fcntl(c2, F_GETFL) & O_NONBLOCK, O_NONBLOCK);
    T_EQ(fcntl(c2, F_GETFD) & FD_CLOEXEC, FD_CLOEXEC);
    T_EQ(mag_write(c1, "1", 1, MAG_FOREVER), 1);
    T_EQ(mag_read(c2, &c, 1, MAG_FOREVER), 1);
    T_EQ(mag_write(c2, "2", 1, MAG_FOREVER), 1);
    T_EQ(mag_read(c1, &c, 1, MAG_FOREVER), 1);
    T_EQ(c, '2');
    T_EQ(mag_close(c1), 0);
    T_EQ(mag_close(c2), 0);
    T_EQ(mag_listen(dial_to, 0), -EADDRINUSE);
    T_EQ(mag_close(l), 0);
}

static void talks(void *arg)
{
    (void)arg;
    char path[64], at[80], unlinked[64];
    snprintf(path, sizeof path, "/tmp/magpie-net-%d", getpid());
    snprintf(at, sizeof at, "unix:%s", path);
    snprintf(unlinked, sizeof unlinked, "unix:@magpie-net-%d", getpid());
    unlink(path);
    talks_at("127.0.0.1:0", NULL);
    talks_at("localhost:0", NULL);
    talks_at("[::1]:0", NULL);
    talks_at(":0", NULL);
    talks_at(at, at);
    talks_at(unlinked, unlinked);
    T_EQ(mag_dial(at, MAG_FOREVER), -ECONNREFUSED); /* the file is there, nobody listens */
    unlink(path);
    T_EQ(mag_dial(at, MAG_FOREVER), -ENOENT);
}

static void addresses_work(void) { on_some(talks); }

static void meets_bad_addresses(void *arg)
{
    (void)arg;
    static const char *const bad[] = {"",
                                      ":",
                                      "80",
                                      "127.0.0.1",
                                      "127.0.0.1:",
                                      "127.0.0.1:65536",
                                      "127.0.0.1:99999999999",
                                      "127.0.0.1:-1",
                                      "127.0.0.1:+1",
                                      "127.0.0.1: 1",
                                      "127.0.0.1:80x",
                                      "::1:80",
                                      "[::1]80",
                                      "[::1",
                                      "[]:80",
                                      "[::1]:",
                                      "unix:",
                                      "127.0.0.1:80:80"};
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
        int r = mag_dial(bad[i], MAG_FOREVER), s = mag_listen(bad[i], 0);
        if (r != -EINVAL || s != -EINVAL)
            T_FAIL("\"%s\": dial %d, listen %d", bad[i], r, s);
    }
    T_EQ(mag_dial(NULL, MAG_FOREVER), -EINVAL);
    T_EQ(mag_listen(NULL, 0), -EINVAL);
    char text[600] = "unix:";
    memset(text + 5, 'x', 500);
    T_EQ(mag_dial(text, MAG_FOREVER), -ENAMETOOLONG);
    memset(text, 'x', 500);
    strcpy(text + 500, ":80");
    T_EQ(mag_dial(text, MAG_FOREVER), -EINVAL);
    T_EQ(mag_dial("127.0.0.1:nosuchservice", MAG_FOREVER), -EINVAL);
    T_EQ(mag_dial("127.0.0.1:1", MAG_FOREVER), -ECONNREFUSED);
    T_EQ(mag_dial("nosuchname.invalid:80", MAG_FOREVER), -ENOENT);
    T_EQ(mag_dial("nosuchname.invalid:80", MAG_TRY), -ETIMEDOUT);
    int r = mag_dial("nosuchname.invalid:80", mag_in(1));
    T_TRUE(r == -ETIMEDOUT || r == -ENOENT);
    T_EQ(mag_sleep(20 * MAG_MS), 0); /* the lookup ends by itself */
    r = mag_listen("127.0.0.1:1", 0);
    if (r >= 0)
        T_EQ(mag_close(r), 0); /* root may */
    else
        T_EQ(r, -EACCES);
    T_EQ(mag_listen("192.0.2.1:0", 0), -EADDRNOTAVAIL);
}

static void bad_addresses(void)
{
    on_some(meets_bad_addresses);
    T_EQ(mag_dial("127.0.0.1:1", MAG_FOREVER), -EPERM);
    T_EQ(mag_listen("127.0.0.1:0", 0), -EPERM);
    T_EQ(mag_open("/dev/null", O_RDONLY, 0), -EPERM);
}

/* ---- connecting ---- */

static void fills_a_backlog(void *arg)
{
    (void)arg;
    char address[64];
    snprintf(address, sizeof address, "unix:@magpie-full-%d", getpid());
    int l = mag_listen(address, 1), fds[64], n = 0;
    T_GE(l, 0);
    while (n < 64 && (fds[n] = mag_dial(address, mag_in(5 * MAG_MS))) >= 0)
        n++;
    T_LT(n, 64);
    T_EQ(fds[n], -ETIMEDOUT);
    T_EQ(mag_dial(address, MAG_TRY), -ETIMEDOUT);
    int c = mag_accept(l, NULL, NULL, MAG_FOREVER);
    int late = mag_dial(address, MAG_FOREVER);
    T_GE(late, 0);
    T_EQ(mag_close(late), 0);
    T_EQ(mag_close(c), 0);
    while (n > 0)
        T_EQ(mag_close(fds[--n]), 0);
    T_EQ(mag_close(l), 0);
}

/* A foreign socket in blocking mode: connect and accept set O_NONBLOCK, and leave it. */
static void connects_foreign(void *arg)
{
    (void)arg;
    int l = socket(AF_INET, SOCK_STREAM, 0), c = socket(AF_INET, SOCK_STREAM, 0);
    struct sockaddr_in a = {.sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    socklen_t n = sizeof a;
    T_EQ(bind(l, (struct sockaddr *)&a, sizeof a), 0);
    T_EQ(listen(l, 10), 0);
    T_EQ(getsockname(l, (struct sockaddr *)&a, &n), 0);
    T_EQ(mag_accept(l, NULL, NULL, mag_in(MAG_MS)), -ETIMEDOUT);
    T_EQ(fcntl(l, F_GETFL) & O_NONBLOCK, O_NONBLOCK);
    T_EQ(mag_connect(c, (struct sockaddr *)&a, sizeof a, MAG_FOREVER), 0);
    T_EQ(fcntl(c, F_GETFL) & O_NONBLOCK, O_NONBLOCK);
    T_EQ(mag_connect(c, (struct sockaddr *)&a, sizeof a, MAG_FOREVER), -EISCONN);
    int s = mag_accept(l, NULL, NULL, MAG_FOREVER);
    T_GE(s, 0);
    T_EQ(mag_fd_release(s), 0);
    T_EQ(mag_fd_release(s), -EBADF);
    T_EQ(mag_write(s, "x", 1, MAG_FOREVER), 1); /* still works */
    char b;
    T_EQ(mag_read(c, &b, 1, MAG_FOREVER), 1);
    T_EQ(mag_read(s, &b, 1, mag_in(MAG_MS)), -ETIMEDOUT);
    T_EQ(close(s), 0);
    T_EQ(mag_read(c, &b, 1, MAG_FOREVER), 0);
    T_EQ(close(c), 0);
    T_EQ(close(l), 0);
    T_EQ(mag_connect(l, (struct sockaddr *)&a, sizeof a, MAG_FOREVER), -EBADF);
}

/* Nobody answers: the time passes, or the caller is cancelled. */
static void dials_nowhere(void *arg)
{
    long *result = *(long **)arg;
    *result = mag_dial("192.0.2.1:80", MAG_FOREVER);
}

static void no_answer(void *arg)
{
    (void)arg;
    int r = mag_dial("192.0.2.1:80", mag_in(20 * MAG_MS));
    if (r != -ETIMEDOUT)
        return; /* there is no way there at all */
    long result = 1, *p = &result;
    mag_group group = {0};
    T_EQ(mag_group_go_copy(&group, dials_nowhere, &p, sizeof p), 0);
    T_EQ(mag_sleep(5 * MAG_MS), 0);
    mag_group_cancel(&group);
    T_EQ(mag_group_wait(&group, MAG_FOREVER), -ECANCELED);
    if (result != -ECONNREFUSED && result != -EHOSTUNREACH && result != -ENETUNREACH) /* an answer came after all */
        T_EQ(result, -ECANCELED);
}

static void connecting(void)
{
    on_some(fills_a_backlog);
    on_some(connects_foreign);
    on_some(no_answer);
}

/* ---- waits on own sockets ---- */

enum { END_CLOSE, END_CANCEL, END_LATE, END_GROUP_LATE, ENDS };

struct waits {
    int fd, listener, what;
    mag_time deadline;
    long *result;
    mag_wg *wg;
};

static void waits_somehow(void *arg)
{
    struct waits *w = arg;
    static char big[1 << 22];
    char c;
    long r = w->what == 0   ? mag_accept(w->listener, NULL, NULL, w->deadline)
             : w->what == 1 ? mag_read(w->fd, &c, 1, w->deadline)
             : w->what == 2 ? mag_poll(w->fd, POLLIN, w->deadline)
                            : mag_write_full(w->fd, big, sizeof big, w->deadline);
    if (w->what == 3 && r > 0) /* what went out before */
        r = mag_write(w->fd, big, sizeof big, w->deadline);
    *w->result = r;
    mag_wg_done(w->wg);
}

static void ends_waits(void *arg)
{
    (void)arg;
    for (int what = 0; what < 4; what++)
        for (int how = 0; how < ENDS; how++) {
            char address[64];
            int l = listen_local(address), c = mag_dial(address, MAG_FOREVER),
                s = mag_accept(l, NULL, NULL, MAG_FOREVER);
            long result[3] = {1, 1, 1};
            mag_wg wg = {0};
            mag_group group = {0};
            mag_wg_add(&wg, 3);
            mag_time deadline = how == END_LATE ? mag_in(3 * MAG_MS) : MAG_FOREVER;
            for (int i = 0; i < 3; i++)
                T_EQ(MAG_GROUP_GO(&group, waits_somehow, struct waits, s, l, what, deadline, &result[i], &wg), 0);
            T_EQ(mag_sleep(MAG_MS), 0);
            if (how == END_CLOSE)
                T_EQ(mag_close(what == 0 ? l : s), 0);
            else if (how == END_CANCEL)
                mag_group_cancel(&group);
            else if (how == END_GROUP_LATE)
                mag_group_set_deadline(&group, mag_in(MAG_MS));
            T_EQ(mag_wg_wait(&wg, MAG_FOREVER), 0);
            for (int i = 0; i < 3; i++)
                T_EQ(result[i], how == END_CLOSE ? -EBADF : how == END_LATE ? -ETIMEDOUT : -ECANCELED);
            mag_group_end(&group);
            if (how != END_CLOSE || what != 0)
                T_EQ(mag_close(l), 0);
            if (how != END_CLOSE || what == 0)
                T_EQ(mag_close(s), 0);
            T_EQ(mag_close(c), 0);
        }
}

static void every_wait_ends(void) { on_some(ends_waits); }

/* ---- peers ---- */

static void meets_peers(void *arg)
{
    (void)arg;
    char address[64], buf[100];
    int l = listen_local(address), c, s;
    /* half closed: it can still be written */
    c = mag_dial(address, MAG_FOREVER), s = mag_accept(l, NULL, NULL, MAG_FOREVER);
    T_EQ(mag_write(c, "last", 4, MAG_FOREVER), 4);
    T_EQ(shutdown(c, SHUT_WR), 0);
    T_EQ(mag_read(s, buf, sizeof buf, MAG_FOREVER), 4);
    T_EQ(mag_read(s, buf, sizeof buf, MAG_FOREVER), 0);
    T_EQ(mag_read(s, buf, sizeof buf, MAG_FOREVER), 0);
    T_EQ(mag_write(s, "answer", 6, MAG_FOREVER), 6);
    T_EQ(mag_read(c, buf, sizeof buf, MAG_FOREVER), 6);
    T_EQ(mag_close(s), 0);
    T_EQ(mag_read(c, buf, sizeof buf, MAG_FOREVER), 0);
    T_EQ(mag_close(c), 0);
    /* what has come is there at once, though no event has told of it yet */
    c = mag_dial(address, MAG_FOREVER), s = mag_accept(l, NULL, NULL, MAG_FOREVER);
    for (int i = 0; i < 3; i++) {
        T_EQ(mag_write(c, "new", 3, MAG_FOREVER), 3);
        T_EQ(mag_read(s, buf, sizeof buf, i == 0 ? MAG_FOREVER : i == 1 ? MAG_TRY : mag_now()), 3);
    }
    T_EQ(mag_close(c), 0);
    T_EQ(mag_close(s), 0);
    /* reset */
    c = mag_dial(address, MAG_FOREVER), s = mag_accept(l, NULL, NULL, MAG_FOREVER);
    T_EQ(setsockopt(c, SOL_SOCKET, SO_LINGER, &(struct linger){1, 0}, sizeof(struct linger)), 0);
    T_EQ(mag_close(c), 0);
    T_EQ(mag_read(s, buf, sizeof buf, MAG_FOREVER), -ECONNRESET);
    T_EQ(mag_write(s, "x", 1, MAG_FOREVER), -EPIPE);
    T_EQ(mag_send(s, "x", 1, 0, MAG_FOREVER), -EPIPE);
    T_EQ(mag_writev(s, &(struct iovec){"x", 1}, 1, MAG_FOREVER), -EPIPE);
    T_EQ(mag_close(s), 0);
    /* urgent data in the middle: what is behind it is read too */
    c = mag_dial(address, MAG_FOREVER), s = mag_accept(l, NULL, NULL, MAG_FOREVER);
    T_EQ(mag_write(c, "abc", 3, MAG_FOREVER), 3);
    T_EQ(mag_send(c, "U", 1, MSG_OOB, MAG_FOREVER), 1);
    T_EQ(mag_write(c, "def", 3, MAG_FOREVER), 3);
    T_EQ(mag_sleep(2 * MAG_MS), 0);
    T_EQ(mag_read_full(s, buf, 6, mag_in(5 * MAG_S)), 6);
    T_EQ(memcmp(buf, "abcdef", 6), 0);
    T_EQ(mag_close(c), 0);
    T_EQ(mag_close(s), 0);
    T_EQ(mag_close(l), 0);
}

/* What stays with a foreign socket though there is nothing to read keeps no core busy. */
static void meets_what_stays(void *arg)
{
    (void)arg;
    char address[64], buf[100];
    int l = listen_local(address);
    int c = mag_dial(address, MAG_FOREVER), s = mag_accept(l, NULL, NULL, MAG_FOREVER);
    T_EQ(mag_fd_release(s), 0);
    T_EQ(mag_send(c, "U", 1, MSG_OOB, MAG_FOREVER), 1);
    mag_stats before, after;
    mag_stats_read(&before, NULL, 0);
    T_EQ(mag_read(s, buf, sizeof buf, mag_in(50 * MAG_MS)), -ETIMEDOUT);
    mag_stats_read(&after, NULL, 0);
    T_LT(after.parks - before.parks, 1000);
    T_EQ(close(s), 0);
    T_EQ(mag_close(c), 0);
    T_EQ(mag_close(l), 0);
    /* a message in the error queue: the time at which a datagram left */
    struct sockaddr_in a = {.sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    socklen_t n = sizeof a;
    int u = socket(AF_INET, SOCK_DGRAM, 0), stamps = SOF_TIMESTAMPING_TX_SOFTWARE | SOF_TIMESTAMPING_SOFTWARE;
    int to = socket(AF_INET, SOCK_DGRAM, 0);
    T_EQ(bind(to, (struct sockaddr *)&a, sizeof a), 0);
    T_EQ(getsockname(to, (struct sockaddr *)&a, &n), 0);
    if (setsockopt(u, SOL_SOCKET, SO_TIMESTAMPING, &stamps, sizeof stamps) == 0) { /* an emulator may not know it */
        T_EQ(mag_sendto(u, "x", 1, 0, (struct sockaddr *)&a, sizeof a, MAG_FOREVER), 1);
        T_EQ(mag_recvfrom(to, buf, sizeof buf, 0, NULL, NULL, MAG_FOREVER), 1);
        mag_stats_read(&before, NULL, 0);
        T_EQ(mag_recv(u, buf, sizeof buf, 0, mag_in(50 * MAG_MS)), -ETIMEDOUT);
        mag_stats_read(&after, NULL, 0);
        T_LT(after.parks - before.parks, 1000);
    }
    T_EQ(close(u), 0);
    T_EQ(close(to), 0);
}

/* The end of the stream comes at every moment around the last bytes: after, together with them, before they are read. */
static void closes_after(void *arg)
{
    int fd = (int)(intptr_t)arg;
    T_EQ(mag_write(fd, "bye", 3, MAG_FOREVER), 3);
    switch (t_random() % 4) {
    case 0:
        mag_yield();
        break;
    case 1:
        T_EQ(mag_sleep(20 * MAG_US), 0);
        break;
    default:
        break;
    }
    T_EQ(mag_close(fd), 0);
}

static void ends_are_seen(void *arg)
{
    (void)arg;
    char address[64], buf[100];
    int l = listen_local(address);
    for (long i = 0; i < t_scale(3000); i++) {
        int c = mag_dial(address, MAG_FOREVER), s = mag_accept(l, NULL, NULL, MAG_FOREVER);
        T_EQ(mag_go(closes_after, (void *)(intptr_t)c), 0);
        T_EQ(mag_read_full(s, buf, sizeof buf, mag_in(10 * MAG_S)), 3);
        T_EQ(mag_close(s), 0);
    }
    T_EQ(mag_close(l), 0);
}

static void peers(void)
{
    on_some(meets_peers);
    on_some(meets_what_stays);
    on(1, ends_are_seen);
    on(2, ends_are_seen);
    on(4, ends_are_seen);
}

/* ---- one byte at a time; one who never reads ---- */

static void drips(void *arg)
{
    (void)arg;
    int fd = dial_server();
    char c;
    for (int i = 0; i < 200; i++) {
        T_EQ(mag_write(fd, "z", 1, MAG_FOREVER), 1);
        T_EQ(mag_read(fd, &c, 1, MAG_FOREVER), 1);
    }
    T_EQ(mag_close(fd), 0);
    mag_wg_done(&server.wg);
}

static void bad_company(void *arg)
{
    (void)arg;
    start_server();
    int deaf = dial_server();
    static char big[1 << 16];
    while (mag_write(deaf, big, sizeof big, mag_in(20 * MAG_MS)) >
           0) /* until the server's answers have no room any more */
        ;
    mag_wg_add(&server.wg, 20);
    for (int i = 0; i < 20; i++)
        T_EQ(mag_go(drips, NULL), 0);
    int fd = dial_server();
    asks(fd, "still there?");
    T_EQ(mag_close(fd), 0);
    while (get(&server.open) > 1)
        T_EQ(mag_sleep(MAG_MS), 0);
    T_EQ(setsockopt(deaf, SOL_SOCKET, SO_LINGER, &(struct linger){1, 0}, sizeof(struct linger)), 0);
    T_EQ(mag_close(deaf), 0); /* gone in the middle */
    stop_server();
}

static void slow_and_deaf(void) { on_some(bad_company); }

/* ---- no more numbers ---- */

static void runs_out(void *arg)
{
    (void)arg;
    struct rlimit old, few;
    static int fds[300];
    int n = 0;
    start_server();
    int spare[3];
    for (int i = 0; i < 3; i++)
        spare[i] = dial_server();
    T_EQ(mag_sleep(MAG_MS), 0);
    T_EQ(getrlimit(RLIMIT_NOFILE, &old), 0);
    few = (struct rlimit){60, old.rlim_max};
    T_EQ(setrlimit(RLIMIT_NOFILE, &few), 0);
    while (n < 300 && (fds[n] = mag_dial(server.address, mag_in(5 * MAG_S))) >= 0)
        n++;
    T_LT(n, 300);
    T_EQ(fds[n], -EMFILE);
    T_EQ(mag_listen("127.0.0.1:0", 0), -EMFILE);
    T_EQ(mag_open("/dev/null", O_RDONLY, 0), -EMFILE);
    T_EQ(mag_sleep(5 * MAG_MS), 0);
    asks(spare[0], "those who are in");
    T_EQ(setrlimit(RLIMIT_NOFILE, &old), 0);
    for (int i = 0; i < n; i++)
        asks(fds[i], "and those who waited");
    for (int i = 0; i < n; i++)
        T_EQ(mag_close(fds[i]), 0);
    for (int i = 0; i < 3; i++)
        T_EQ(mag_close(spare[i]), 0);
    T_EVENTUALLY(get(&server.open) == 0 || (mag_sleep(MAG_MS), false), 5000);
    stop_server();
}

static void no_more_numbers(void) { on_some(runs_out); }

/* ---- thousands ---- */

/* The other ends are a process of their own: ten thousand numbers here, ten thousand there. */
static long many;
static int to_them[2], to_us[2];
static struct {
    mag_wg wg;
    mag_sem dialling;
    long ready;
    mag_chan *go;
} crowd;

static void one_of_many(void *arg)
{
    uint64_t random = (uint64_t)(intptr_t)arg;
    T_EQ(mag_sem_wait(&crowd.dialling, MAG_FOREVER), 0);
    int fd = dial_server();
    mag_sem_post(&crowd.dialling, 1);
    asks(fd, "hello");
    add(&crowd.ready, 1);
    T_EQ(mag_chan_recv(crowd.go, NULL, MAG_FOREVER), -EPIPE); /* until all are there */
    if (t_random_r(&random) % 2)
        T_EQ(mag_sleep(t_random_r(&random) % (50 * MAG_MS)), 0);
    asks(fd, "good bye");
    T_EQ(mag_close(fd), 0);
    mag_wg_done(&crowd.wg);
}

static void a_crowd(void *arg)
{
    (void)arg;
    char word;
    memset(&crowd, 0, sizeof crowd);
    crowd.go = mag_chan_new(0, 0);
    mag_sem_init(&crowd.dialling, 100);
    T_EQ(mag_read_full(to_them[0], server.address, sizeof server.address, MAG_FOREVER), (ssize_t)sizeof server.address);
    mag_wg_add(&crowd.wg, (int)many);
    for (long i = 0; i < many; i++)
        T_EQ(mag_go(one_of_many, (void *)(intptr_t)i), 0);
    while (get(&crowd.ready) < many)
        T_EQ(mag_sleep(MAG_MS), 0);
    T_EQ(mag_write_full(to_us[1], "!", 1, MAG_FOREVER), 1);
    T_EQ(mag_read_full(to_them[0], &word, 1, MAG_FOREVER), 1);
    T_EQ(mag_chan_close(crowd.go), 0);
    T_EQ(mag_wg_wait(&crowd.wg, MAG_FOREVER), 0);
    mag_chan_unref(crowd.go);
}

static void serves_a_crowd(void *arg)
{
    (void)arg;
    char word;
    start_server();
    T_EQ(mag_write_full(to_them[1], server.address, sizeof server.address, MAG_FOREVER), (ssize_t)sizeof server.address);
    T_EQ(mag_read_full(to_us[0], &word, 1, MAG_FOREVER), 1);
    T_EQ(get(&server.open), many);
    T_EQ(mag_write_full(to_them[1], "!", 1, MAG_FOREVER), 1);
    while (get(&server.open) > 0)
        T_EQ(mag_sleep(MAG_MS), 0);
    T_EQ(get(&server.served), many);
    stop_server();
}

static void thousands_on(int procs)
{
    T_EQ(pipe(to_them), 0);
    T_EQ(pipe(to_us), 0);
    fflush(NULL);
    pid_t them = fork();
    T_GE(them, 0);
    if (them == 0) {
        on(procs, a_crowd);
        _exit(0); /* a failure has ended it by now */
    }
    on(procs, serves_a_crowd);
    int status;
    T_EQ(waitpid(them, &status, 0), them);
    T_EQ(status, 0);
    for (int i = 0; i < 2; i++) {
        close(to_them[i]);
        close(to_us[i]);
    }
}

static void thousands(void)
{
    struct rlimit old, more;
    T_EQ(getrlimit(RLIMIT_NOFILE, &old), 0);
    more = (struct rlimit){10200, old.rlim_max < 10200 ? 10200 : old.rlim_max};
    if (setrlimit(RLIMIT_NOFILE, &more) != 0) {
        more = (struct rlimit){old.rlim_max, old.rlim_max};
        T_EQ(setrlimit(RLIMIT_NOFILE, &more), 0);
    }
    many = (long)more.rlim_cur - 200;
    if (T_TSAN && many > 3000)
        many = 3000;
    many = t_scale(many) < 500 ? 500 : t_scale(many);
    printf("%ld  ", many);
    thousands_on(1);
    thousands_on(2);
    thousands_on(16);
    T_EQ(setrlimit(RLIMIT_NOFILE, &old), 0);
}

/* ---- own numbers come back ---- */

static struct {
    char address[64];
    mag_chan *fds, *who;
    bool tcp;
} again;

/* Connections are closed by one goroutine while another waits on them; the numbers come back at once with other connections behind
 * them. Whoever waits gets -EBADF or its own connection's end, never another's bytes. */
static void waits_on_its_own(void *arg)
{
    (void)arg;
    for (;;) {
        int pair[2];
        char c = 0;
        if (mag_chan_recv(again.fds, pair, MAG_FOREVER) != 0)
            return;
        uint64_t me = mag_id();
        T_EQ(mag_chan_send(again.who, &me, MAG_FOREVER), 0);
        ssize_t r = mag_read(pair[0], &c, 1, MAG_FOREVER);
        if (r != -EBADF && !(r == 1 && c == (char)pair[1]))
            T_FAIL("read %zd, '%c' instead of '%c'", r, c, pair[1]);
        if (r == 1)
            T_EQ(mag_close(pair[0]), 0);
    }
}

/* Until somebody is inside: a number that is closed before the call on it begins is anybody's. */
static void until_it_waits(int dump, uint64_t id)
{
    static char text[8192];
    char line[64];
    snprintf(line, sizeof line, "goroutine %llu [io read", (unsigned long long)id);
    for (;;) {
        T_EQ(ftruncate(dump, 0), 0);
        T_EQ(lseek(dump, 0, SEEK_SET), 0);
        T_EQ(mag_dump(dump), 0);
        ssize_t n = pread(dump, text, sizeof text - 1, 0);
        text[n > 0 ? n : 0] = 0;
        if (strstr(text, line) != NULL)
            return;
        mag_yield();
    }
}

static void reuses_own(void *arg)
{
    (void)arg;
    long n = t_scale(again.tcp ? 2000 : 50000);
    int dump = memfd_create("dump", MFD_CLOEXEC), l;
    snprintf(again.address, sizeof again.address, "unix:@magpie-again-%d", getpid());
    l = again.tcp ? listen_local(again.address) : mag_listen(again.address, 0);
    again.fds = mag_chan_new(2 * sizeof(int), 0);
    again.who = mag_chan_new(sizeof(uint64_t), 0);
    for (int i = 0; i < 4; i++)
        T_EQ(mag_go(waits_on_its_own, NULL), 0);
    for (long i = 0; i < n; i++) {
        int c = mag_dial(again.address, MAG_FOREVER), s = mag_accept(l, NULL, NULL, MAG_FOREVER);
        T_GE(c, 0);
        T_GE(s, 0);
        char mine = (char)('a' + i % 26);
        T_EQ(setsockopt(c, SOL_SOCKET, SO_LINGER, &(struct linger){1, 0}, sizeof(struct linger)),
             0); /* no port is kept back */
        int pair[2] = {s, mine};
        uint64_t id;
        T_EQ(mag_chan_send(again.fds, pair, MAG_FOREVER), 0);
        T_EQ(mag_chan_recv(again.who, &id, MAG_FOREVER), 0);
        if (i % 2) {
            T_EQ(mag_write(c, &mine, 1, MAG_FOREVER), 1); /* it closes s */
            while (mag_poll(c, POLLIN, MAG_FOREVER) < 0)
                ;
        } else {
            until_it_waits(dump, id);
            T_EQ(mag_close(s), 0);
        }
        T_EQ(mag_close(c), 0);
    }
    T_EQ(mag_chan_close(again.fds), 0);
    T_EQ(mag_close(l), 0);
    T_EQ(mag_sleep(MAG_MS), 0);
    close(dump);
    mag_chan_unref(again.fds);
    mag_chan_unref(again.who);
}

static void own_numbers_return(void)
{
    for (int tcp = 0; tcp < 2; tcp++) {
        again.tcp = tcp;
        on(1, reuses_own);
        on(2, reuses_own);
    }
}

/* ---- a busy program still hears ---- */

static long stop_hogs;

static void hogs(void *arg)
{
    (void)arg;
    while (get(&stop_hogs) == 0)
        ;
}

static void yields(void *arg)
{
    (void)arg;
    while (get(&stop_hogs) == 0)
        mag_yield();
}

static void hears(mag_fn busy, int n, int procs_slow)
{
    sets(&stop_hogs, 0);
    start_server();
    int fd = dial_server();
    for (int i = 0; i < n; i++)
        T_EQ(mag_go(busy, NULL), 0);
    int64_t worst = 0;
    for (int i = 0; i < 50; i++) {
        int64_t start = mag_now();
        asks(fd, "ping");
        int64_t took = mag_now() - start;
        worst = took > worst ? took : worst;
    }
    sets(&stop_hogs, 1);
    if (worst > 500 * MAG_MS * procs_slow * t_state.slow)
        T_FAIL("an answer took %lld ms", (long long)(worst / MAG_MS));
    T_EQ(mag_close(fd), 0);
    stop_server();
}

static void hears_among_hogs(void *arg)
{
    (void)arg;
    hears(hogs, mag_procs(), 2);
}

static void hears_among_yielders(void *arg)
{
    (void)arg;
    hears(yields, 1000, 1);
    hears(yields, 1, 1);
}

static void busy_programs(void)
{
    on(1, hears_among_yielders);
    on(2, hears_among_yielders);
    on(1, hears_among_hogs);
    on(2, hears_among_hogs);
}

/* ---- files ---- */

static void uses_files(void *arg)
{
    (void)arg;
    char name[64], buf[5000], back[5000];
    snprintf(name, sizeof name, "/tmp/magpie-file-%d", getpid());
    memset(buf, 'q', sizeof buf);
    int fd = mag_open(name, O_RDWR | O_CREAT | O_TRUNC, 0600);
    T_GE(fd, 0);
    T_EQ(fcntl(fd, F_GETFD) & FD_CLOEXEC, FD_CLOEXEC);
    T_EQ(mag_pwrite(fd, buf, sizeof buf, 1000, MAG_FOREVER), sizeof buf);
    T_EQ(mag_fsync(fd, MAG_FOREVER), 0);
    T_EQ(mag_fsync(fd, MAG_TRY), -ETIMEDOUT);
    T_EQ(mag_pread(fd, back, sizeof back, 1000, MAG_FOREVER), sizeof back);
    T_EQ(memcmp(buf, back, sizeof buf), 0);
    T_EQ(mag_pread(fd, back, sizeof back, 5000, MAG_FOREVER), 1000);
    T_EQ(mag_pread(fd, back, sizeof back, 6000, MAG_FOREVER), 0);
    T_EQ(mag_pread(fd, back, 1, -1, MAG_FOREVER), -EINVAL);
    T_EQ(mag_write_full(fd, "start", 5, MAG_FOREVER), 5); /* pwrite has not moved it */
    T_EQ(lseek(fd, 0, SEEK_SET), 0);
    T_EQ(mag_read(fd, back, 5, MAG_FOREVER), 5);
    T_EQ(memcmp(back, "start", 5), 0);
    T_EQ(posix_fadvise(fd, 0, 0, POSIX_FADV_DONTNEED), 0);
    T_EQ(mag_pread(fd, back, 5, 0, MAG_FOREVER), 5);
    T_EQ(mag_close(fd), 0);
    T_EQ(mag_pread(fd, back, 5, 0, MAG_FOREVER), -EBADF);
    T_EQ(mag_open(name, O_RDWR | O_CREAT | O_EXCL, 0600), -EEXIST);
    unlink(name);
    T_EQ(mag_open(name, O_RDONLY, 0), -ENOENT);
    int pair[2];
    T_EQ(pipe(pair), 0);
    T_EQ(mag_pread(pair[0], back, 1, 0, MAG_FOREVER), -ESPIPE);
    T_EQ(mag_fsync(pair[0], MAG_FOREVER), -EINVAL);
    T_EQ(mag_close(pair[0]), 0);
    T_EQ(mag_close(pair[1]), 0);
    fd = mag_open("/dev/null", O_RDWR, 0);
    T_EQ(mag_write(fd, "x", 1, MAG_FOREVER), 1);
    T_EQ(mag_read(fd, back, 1, MAG_FOREVER), 0);
    T_EQ(mag_close(fd), 0);
}

static void files(void) { on_some(uses_files); }

int main(int argc, char **argv)
{
    t_init(argc, argv);
    T_RUN(addresses_work);
    T_RUN(bad_addresses);
    T_RUN(connecting);
    T_RUN(every_wait_ends);
    T_RUN(peers);
    T_RUN(slow_and_deaf);
    T_RUN(no_more_numbers);
    T_RUN(thousands);
    T_RUN(own_numbers_return);
    T_RUN(busy_programs);
    T_RUN(files);
    return t_done();
}
