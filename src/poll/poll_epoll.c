/* SPDX-License-Identifier: MIT */
/* poll_epoll.c: backend.h on Linux's epoll.
 *
 * Timeouts    epoll_pwait2 takes nanoseconds (Linux 5.11); where it is missing, milliseconds, rounded up: a deadline is never
 *             early, and up to a millisecond late.
 * The bell    an eventfd, edge-triggered: ringing it needs no reader, and a ring between two waits ends the second.
 * Numbers     epoll knows a file by its number and its inner identity. A number that was closed and reused is unknown
 *             (ENOENT) even if a duplicate keeps the old file, and its old registration, alive: that one speaks with an old
 *             tag, and at most once.
 */
#include "poll/backend.h"
#include "os/os.h"

#include <errno.h>
#include <sys/epoll.h>
#include <sys/eventfd.h>
#include <time.h>
#include <unistd.h>

#define BELL UINT64_MAX
enum { HARVEST = 128 };

int mag__backend_init(struct backend *b)
{
    int saved = errno;
    struct epoll_event e = {.events = EPOLLIN | EPOLLET, .data.u64 = BELL};
    b->queue = b->bell = -1;
    errno = ENOMEM; /* what an injected failure looks like */
    if (!mag__os_fails() && (b->queue = epoll_create1(EPOLL_CLOEXEC)) >= 0 && !mag__os_fails() &&
        (b->bell = eventfd(0, EFD_NONBLOCK | EFD_CLOEXEC)) >= 0 && !mag__os_fails() &&
        epoll_ctl(b->queue, EPOLL_CTL_ADD, b->bell, &e) == 0) {
        errno = saved;
        return 0;
    }
    int r = -errno;
    mag__backend_fini(b);
    errno = saved;
    return r;
}

void mag__backend_fini(struct backend *b)
{
    if (b->bell >= 0)
        close(b->bell);
    if (b->queue >= 0)
        close(b->queue);
    b->bell = b->queue = -1;
}

int mag__backend_set(struct backend *b, int fd, uint64_t tag, unsigned interest, enum backend_mode mode, bool known)
{
    struct epoll_event e = {.data.u64 = tag};
    e.events = (interest & BACKEND_READ ? EPOLLIN | EPOLLRDHUP : 0u) | (interest & BACKEND_WRITE ? EPOLLOUT : 0u);
    if (mode == BACKEND_EDGE) /* urgent data stays urgent until it is read: armed for one event, that would never end */
        e.events |= EPOLLET | EPOLLPRI;
    else
        e.events |= EPOLLONESHOT;
    int saved = errno, r = 0;
    if (mag__os_fails())
        return -ENOMEM;
    if (epoll_ctl(b->queue, known ? EPOLL_CTL_MOD : EPOLL_CTL_ADD, fd, &e) != 0) {
        bool other = known && errno == ENOENT, met = !known && errno == EEXIST;
        if (!other && !met)
            r = -errno;
        else if (epoll_ctl(b->queue, other ? EPOLL_CTL_ADD : EPOLL_CTL_MOD, fd, &e) != 0)
            r = -errno;
        else
            r = other;
    }
    errno = saved;
    return r;
}

void mag__backend_remove(struct backend *b, int fd)
{
    int saved = errno;
    struct epoll_event none = {0};
    epoll_ctl(b->queue, EPOLL_CTL_DEL, fd, &none); /* gone already: as well */
    errno = saved;
}

static a32 no_pwait2; /* the kernel has none: found out once */

static int wait(struct backend *b, struct epoll_event *found, int n, int64_t deadline)
{
    if (deadline == 0)
        return epoll_wait(b->queue, found, n, 0);
    if (deadline == OS_FOREVER)
        return epoll_wait(b->queue, found, n, -1);
    int64_t left = deadline - mag__os_now();
    left = left < 0 ? 0 : left;
    if (likely(at_32_load_rlx(&no_pwait2) == 0)) {
        struct timespec t = {.tv_sec = left / 1000000000, .tv_nsec = left % 1000000000};
        int r = epoll_pwait2(b->queue, found, n, &t, NULL);
        if (r >= 0 || errno != ENOSYS)
            return r;
        at_32_store_rlx(&no_pwait2, 1);
    }
    int64_t ms = (left + 999999) / 1000000;
    return epoll_wait(b->queue, found, n, ms > INT32_MAX ? INT32_MAX : (int)ms);
}

unsigned mag__backend_wait(struct backend *b, struct backend_event *events, unsigned n, int64_t deadline)
{
    struct epoll_event found[HARVEST];
    int saved = errno, got = wait(b, found, n < HARVEST ? (int)n : HARVEST, deadline);
    errno = saved;
    unsigned real = 0;
    for (int i = 0; i < got; i++) {
        uint32_t e = found[i].events;
        if (found[i].data.u64 == BELL)
            continue;
        bool both = (e & (EPOLLERR | EPOLLHUP)) != 0;
        events[real++] = (struct backend_event){
            .tag = found[i].data.u64,
            .read = both || (e & (EPOLLIN | EPOLLRDHUP | EPOLLPRI)) != 0,
            .write = both || (e & EPOLLOUT) != 0,
            .odd = both || (e & (EPOLLRDHUP | EPOLLPRI)) != 0,
        };
    }
    return real;
}

void mag__backend_ring(struct backend *b)
{
    int saved = errno;
    uint64_t one = 1;
    if (write(b->bell, &one, sizeof one) < 0) {
        /* full after 2^64 rings: then one is pending */
    }
    errno = saved;
}
