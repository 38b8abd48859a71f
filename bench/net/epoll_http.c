/* SPDX-License-Identifier: MIT */
/* epoll_http: the floor for examples/httpd: it looks for the end of a request, reads nothing of it, and gives every one the same answer,
 * as many bytes as httpd's. */
#include "epoll.h"

static const char reply[] = "HTTP/1.1 200 OK\r\n"
                            "Date: Thu, 01 Jan 1970 00:00:00 GMT\r\n"
                            "Content-Type: text/plain\r\n"
                            "Content-Length: 13\r\n\r\n"
                            "hello, world\n";

enum { BATCH = 64, FDS = 1 << 16 };

static bool answer(int fd)
{
    static char buf[16 * 1024], out[BATCH * sizeof reply];
    static unsigned char matched[FDS]; /* bytes of "\r\n\r\n" at the end of what each connection has sent */
    ssize_t n = read(fd, buf, sizeof buf);
    if (n <= 0)
        return n < 0 && errno == EAGAIN;
    size_t length = 0;
    int state = matched[fd];
    for (ssize_t i = 0; i < n; i++) {
        state = buf[i] == "\r\n\r\n"[state] ? state + 1 : buf[i] == '\r';
        if (state < 4)
            continue;
        state = 0;
        if (length == BATCH * (sizeof reply - 1))
            return false;
        memcpy(out + length, reply, sizeof reply - 1);
        length += sizeof reply - 1;
    }
    matched[fd] = (unsigned char)state;
    return length == 0 || send(fd, out, length, MSG_NOSIGNAL) == (ssize_t)length;
}

int main(void) { serve_all("epoll_http"); }
