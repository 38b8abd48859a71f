/* SPDX-License-Identifier: MIT */
/* epoll_echo: the floor for examples/echo. */
#include "epoll.h"

static bool answer(int fd)
{
    static char buf[16 * 1024];
    ssize_t n = read(fd, buf, sizeof buf);
    return n > 0 ? send(fd, buf, (size_t)n, MSG_NOSIGNAL) == n : n < 0 && errno == EAGAIN;
}

int main(void) { serve_all("epoll_echo"); }
