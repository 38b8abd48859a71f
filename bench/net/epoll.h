/* SPDX-License-Identifier: MIT */
/* epoll.h: the least a server on epoll can be: one thread, level-triggered, no timeouts, and a peer that does not read is closed.
 * What the peers of this kind share; each says in answer() what becomes of the bytes of a connection. */
#ifndef MAG_BENCH_NET_EPOLL_H
#define MAG_BENCH_NET_EPOLL_H

#include <arpa/inet.h>
#include <errno.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/socket.h>
#include <unistd.h>

/* Something can be read. False: close it. */
static bool answer(int fd);

static int listen_any(const char *name)
{
    struct sockaddr_in at = {.sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    int fd = socket(AF_INET, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0);
    setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &(int){1}, sizeof(int));
    if (fd < 0 || bind(fd, (struct sockaddr *)&at, sizeof at) != 0 || listen(fd, SOMAXCONN) != 0) {
        perror(name);
        exit(1);
    }
    getsockname(fd, (struct sockaddr *)&at, &(socklen_t){sizeof at});
    printf("%s: port %d\n", name, ntohs(at.sin_port));
    fflush(stdout);
    return fd;
}

static void serve_all(const char *name)
{
    enum { EVENTS = 256 };
    int listener = listen_any(name), queue = epoll_create1(EPOLL_CLOEXEC);
    struct epoll_event add = {.events = EPOLLIN, .data.fd = listener}, e[EVENTS];
    epoll_ctl(queue, EPOLL_CTL_ADD, listener, &add);
    for (;;) {
        int n = epoll_wait(queue, e, EVENTS, -1);
        for (int i = 0; i < n; i++) {
            int fd = e[i].data.fd;
            if (fd != listener) {
                if (!answer(fd))
                    close(fd);
                continue;
            }
            while ((fd = accept4(listener, NULL, NULL, SOCK_NONBLOCK | SOCK_CLOEXEC)) >= 0) {
                add.data.fd = fd;
                epoll_ctl(queue, EPOLL_CTL_ADD, fd, &add);
            }
        }
    }
}

#endif
