/* SPDX-License-Identifier: MIT */
/* select_fd.c: descriptors and channels in one select: the first that can go on, and nothing is taken from a descriptor. */
#include "test.h"

#include <magpie.h>
#include <pthread.h>
#include <sys/socket.h>

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

/* ---- what is ready goes first ---- */

static void ready_at_once(void *arg)
{
    (void)arg;
    int fd[2];
    long v = 5, got[3] = {0};
    mag_chan *c = mag_chan_new(sizeof v, 1);
    T_EQ(socketpair(AF_UNIX, SOCK_STREAM, 0, fd), 0);
    mag_case none[] = {MAG_RECV(c, &v), MAG_READABLE(fd[0])};
    T_EQ(mag_select(none, 2, MAG_TRY), -ETIMEDOUT);
    T_EQ(mag_select(none, 2, mag_in(MAG_MS)), -ETIMEDOUT);
    T_EQ(write(fd[1], "x", 1), 1);
    T_EQ(mag_select(none, 2, MAG_TRY), 1);
    T_EQ(none[1].result, 0);
    T_EQ(mag_select(none, 2, MAG_FOREVER), 1); /* it is still there */
    T_EQ(mag_chan_send(c, &v, MAG_TRY), 0);
    for (int i = 0; i < 3000; i++) {
        mag_case all[] = {MAG_RECV(c, &v), MAG_READABLE(fd[0]), MAG_WRITABLE(fd[0])};
        int r = mag_select(all, 3, MAG_FOREVER);
        T_GE(r, 0);
        got[r]++;
        if (r == 0)
            T_EQ(mag_chan_send(c, &v, MAG_TRY), 0);
    }
    for (int i = 0; i < 3; i++)
        T_GT(got[i], 700); /* each as likely as another */
    mag_case bad[] = {MAG_READABLE(-1), MAG_READABLE(1000000)};
    T_GE(mag_select(bad, 1, MAG_FOREVER), 0);
    T_EQ(bad[0].result, -EBADF);
    T_EQ(mag_select(bad + 1, 1, MAG_FOREVER), 0);
    T_EQ(bad[1].result, -EBADF);
    mag_chan_unref(c);
    T_EQ(mag_close(fd[0]), 0);
    T_EQ(mag_close(fd[1]), 0);
}

static void what_is_ready(void) { on_some(ready_at_once); }

/* ---- the first that becomes ready ---- */

struct later {
    int fd;
    mag_chan *c;
    int what;
};

static void acts_later(void *arg)
{
    struct later *l = arg;
    long v = 7;
    mag_yield();
    if (l->what % 8 == 0)
        T_EQ(mag_sleep(200 * MAG_US), 0);
    if (l->what % 2 == 0)
        T_EQ(mag_write(l->fd, "y", 1, MAG_FOREVER), 1);
    else
        T_EQ(mag_chan_send(l->c, &v, MAG_FOREVER), 0);
}

static void the_first(void *arg)
{
    (void)arg;
    int fd[2], other[2];
    long v;
    mag_chan *c = mag_chan_new(sizeof v, 0);
    T_EQ(pipe(fd), 0);
    T_EQ(pipe(other), 0);
    for (int i = 0; i < t_scale(2000); i++) {
        T_EQ(MAG_GO(acts_later, struct later, fd[1], c, i), 0);
        mag_case cases[] = {MAG_READABLE(other[0]), MAG_RECV(c, &v), MAG_READABLE(fd[0]), MAG_RECV(NULL, &v)};
        int r = mag_select(cases, 4, MAG_FOREVER);
        T_EQ(r, i % 2 == 0 ? 2 : 1);
        T_EQ(cases[r].result, 0);
        if (r == 2) {
            char b;
            T_EQ(mag_read(fd[0], &b, 1, MAG_TRY), 1);
            T_EQ(b, 'y');
        } else {
            T_EQ(v, 7);
        }
    }
    mag_chan_unref(c);
    for (int i = 0; i < 2; i++) {
        T_EQ(mag_close(fd[i]), 0);
        T_EQ(mag_close(other[i]), 0);
    }
}

static void what_becomes_ready(void) { on_some(the_first); }

/* ---- other ends of the wait ---- */

static int target;
static mag_chan *quiet;

static void closes_target(void *arg)
{
    (void)arg;
    T_EQ(mag_sleep(MAG_MS), 0);
    T_EQ(mag_close(target), 0);
}

static void closed_meanwhile(void *arg)
{
    (void)arg;
    int fd[2];
    long v;
    quiet = mag_chan_new(sizeof v, 0);
    T_EQ(pipe(fd), 0);
    target = fd[0];
    T_EQ(mag_go(closes_target, NULL), 0);
    mag_case cases[] = {MAG_RECV(quiet, &v), MAG_READABLE(fd[0])};
    T_EQ(mag_select(cases, 2, MAG_FOREVER), 1);
    T_EQ(cases[1].result, -EBADF);
    mag_chan_unref(quiet);
    T_EQ(mag_close(fd[1]), 0);
}

static void cancelled_select(void *arg)
{
    int *fd = *(int **)arg;
    long v;
    mag_case cases[] = {MAG_RECV(quiet, &v), MAG_READABLE(fd[0]), MAG_READABLE(fd[0])};
    T_EQ(mag_select(cases, 3, MAG_FOREVER), -ECANCELED);
    T_EQ(mag_select(cases, 3, MAG_TRY), -ECANCELED);
}

static void cancelled_meanwhile(void *arg)
{
    (void)arg;
    int fd[2], *p = fd;
    long v;
    mag_group group = {0};
    quiet = mag_chan_new(sizeof v, 0);
    T_EQ(pipe(fd), 0);
    for (int i = 0; i < 3; i++)
        T_EQ(mag_group_go_copy(&group, cancelled_select, &p, sizeof p), 0);
    T_EQ(mag_sleep(MAG_MS), 0);
    T_EQ(mag_group_end(&group), 0);
    mag_chan_unref(quiet);
    T_EQ(mag_close(fd[0]), 0);
    T_EQ(mag_close(fd[1]), 0);
}

static void how_a_wait_ends(void)
{
    on_some(closed_meanwhile);
    on_some(cancelled_meanwhile);
}

static void *as_thread(void *arg)
{
    mag_case cases[] = {MAG_READABLE(0)};
    T_EQ(mag_select(cases, 1, MAG_TRY), -EPERM);
    return arg;
}

static void asks_a_thread(void *arg)
{
    (void)arg;
    pthread_t t;
    T_EQ(pthread_create(&t, NULL, as_thread, NULL), 0);
    T_EQ(pthread_join(t, NULL), 0);
    mag_case bad = {.kind = 5};
    T_EQ(mag_select(&bad, 1, MAG_TRY), -EINVAL);
}

static void not_for_threads(void)
{
    as_thread(NULL);
    on(1, asks_a_thread);
}

/* ---- left waiting at the end: the channel outlives the run ---- */

static int left[2];

static void selects_forever(void *arg)
{
    (void)arg;
    long v;
    mag_case cases[] = {MAG_RECV(quiet, &v), MAG_READABLE(left[0])};
    mag_select(cases, 2, MAG_FOREVER);
}

static void leaves_selects(void *arg)
{
    (void)arg;
    for (int i = 0; i < 5; i++)
        T_EQ(mag_go(selects_forever, NULL), 0);
    T_EQ(mag_sleep(MAG_MS), 0);
}

static void left_at_the_end(void)
{
    long v = 1;
    quiet = mag_chan_new(sizeof v, 0);
    T_EQ(pipe(left), 0);
    for (int i = 0; i < 10; i++)
        on(i % 3 + 1, leaves_selects);
    T_EQ(mag_chan_send(quiet, &v, MAG_TRY), -ETIMEDOUT);
    mag_chan_unref(quiet);
    close(left[0]);
    close(left[1]);
}

int main(int argc, char **argv)
{
    t_init(argc, argv);
    T_RUN(what_is_ready);
    T_RUN(what_becomes_ready);
    T_RUN(how_a_wait_ends);
    T_RUN(not_for_threads);
    T_RUN(left_at_the_end);
    return t_done();
}
