/* SPDX-License-Identifier: MIT */
/* proxy: a TCP proxy. Two goroutines for each connection, one for each direction, and that is all there is to it:
 *
 *   back-pressure   who cannot write does not read: what a slow receiver does not take waits in the kernel, at the sender
 *   half-close      an end of file goes on as one; the other direction lives until its own end
 *   a reset         of either side cancels both directions and goes on as a reset
 *
 * Usage: proxy address target      port 0 is any free one. SIGINT or SIGTERM ends it. */
#include <magpie.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/socket.h>

#define PATIENCE (10 * MAG_S) /* with a target that does not answer the call */

static mag_group group; /* who accepts, and every connection */
static const char *target;

struct way {
    int from, to;
};

static void carry(void *arg)
{
    struct way *w = arg;
    char buf[64 * 1024];
    ssize_t n;
    while ((n = mag_read(w->from, buf, sizeof buf, MAG_FOREVER)) > 0)
        if (mag_write_full(w->to, buf, (size_t)n, MAG_FOREVER) != n) {
            n = -EPIPE;
            break;
        }
    if (n == 0)
        shutdown(w->to, SHUT_WR);
    else
        mag_fail((int)n); /* the other way is cancelled */
}

/* Of a listening socket its connections inherit both. Without the second, a peer whose machine is switched off is waited for for ever. */
static void tune(int fd)
{
    setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &(int){1}, sizeof(int));
    setsockopt(fd, SOL_SOCKET, SO_KEEPALIVE, &(int){1}, sizeof(int));
}

static void end(int fd, int failure)
{
    if (failure != 0)
        setsockopt(fd, SOL_SOCKET, SO_LINGER, &(struct linger){.l_onoff = 1}, sizeof(struct linger));
    mag_close(fd);
}

static void connection(void *arg)
{
    int client = *(int *)arg, server = mag_dial(target, mag_in(PATIENCE)), r = server;
    if (server >= 0) {
        mag_group both = {0};
        tune(server);
        if ((r = MAG_GROUP_GO(&both, carry, struct way, client, server)) == 0 &&
            (r = MAG_GROUP_GO(&both, carry, struct way, server, client)) == 0)
            r = mag_group_wait(&both, MAG_FOREVER);
        mag_group_end(&both);
        end(server, r);
    }
    end(client, r);
}

static void accept_all(void *arg)
{
    int listener = *(int *)arg, fd;
    while ((fd = mag_accept(listener, NULL, NULL, MAG_FOREVER)) != -ECANCELED) {
        if (fd < 0) /* out of descriptors or memory: those who leave give some back */
            mag_sleep(10 * MAG_MS);
        else if (MAG_GROUP_GO(&group, connection, int, fd) != 0)
            mag_close(fd);
    }
    mag_close(listener);
}

static int listen_at(const char *address)
{
    int fd = mag_listen(address, 0);
    if (fd < 0) {
        fprintf(stderr, "proxy: %s: %s\n", address, strerror(-fd));
        return fd;
    }
    struct sockaddr_in6 at = {0}; /* its port is where IPv4's is */
    getsockname(fd, (struct sockaddr *)&at, &(socklen_t){sizeof at});
    tune(fd);
    printf("proxy: port %d\n", ntohs(at.sin6_port));
    fflush(stdout);
    return fd;
}

static int result = 1;

static void app(void *arg)
{
    sigset_t set;
    sigemptyset(&set);
    sigaddset(&set, SIGINT);
    sigaddset(&set, SIGTERM);
    mag_chan *signals = mag_signal_new(&set, 1);
    int fd = listen_at(arg);
    if (fd >= 0 && MAG_GROUP_GO(&group, accept_all, int, fd) == 0) {
        mag_chan_recv(signals, NULL, MAG_FOREVER);
        mag_group_end(&group);
        result = 0;
    }
    mag_chan_unref(signals);
}

int main(int argc, char **argv)
{
    if (argc != 3) {
        fprintf(stderr, "usage: proxy address target\n");
        return 2;
    }
    target = argv[2];
    int r = mag_run(app, argv[1]);
    return r == 0 ? result : 1;
}
