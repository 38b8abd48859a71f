/* SPDX-License-Identifier: MIT */
/* echo: a TCP server that sends back what it gets: a goroutine for each connection, and each reads as if it blocked.
 * Usage: echo [address]      127.0.0.1:7777 if none is given; port 0 is any free one. SIGINT or SIGTERM ends it. */
#include <magpie.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <signal.h>
#include <stdbool.h>
#include <stdio.h>
#include <string.h>
#include <sys/socket.h>

#define PATIENCE (30 * MAG_S) /* with a client that does not read */

static mag_group group; /* who accepts, and every connection */

/* What the kernel takes at once needs no deadline, and no look at the clock for one. */
static bool answer(int fd, const char *buf, ssize_t n)
{
    ssize_t sent = mag_write(fd, buf, (size_t)n, MAG_TRY);
    if (sent == n)
        return true;
    if (sent < 0 && sent != -ETIMEDOUT)
        return false;
    sent = sent < 0 ? 0 : sent;
    return mag_write_full(fd, buf + sent, (size_t)(n - sent), mag_in(PATIENCE)) == n - sent;
}

static void connection(void *arg)
{
    int fd = *(int *)arg;
    char buf[16 * 1024];
    ssize_t n;
    while ((n = mag_read(fd, buf, sizeof buf, MAG_FOREVER)) > 0 && answer(fd, buf, n))
        ;
    mag_close(fd);
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
        fprintf(stderr, "echo: %s: %s\n", address, strerror(-fd));
        return fd;
    }
    struct sockaddr_in6 at = {0}; /* its port is where IPv4's is */
    getsockname(fd, (struct sockaddr *)&at, &(socklen_t){sizeof at});
    setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &(int){1}, sizeof(int)); /* its connections inherit it */
    printf("echo: port %d\n", ntohs(at.sin6_port));
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
        mag_group_end(&group); /* whatever they wait for returns -ECANCELED */
        result = 0;
    }
    mag_chan_unref(signals);
}

int main(int argc, char **argv)
{
    int r = mag_run(app, argc > 1 ? argv[1] : "127.0.0.1:7777");
    return r == 0 ? result : 1;
}
