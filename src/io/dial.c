/* SPDX-License-Identifier: MIT */
/* dial.c: mag_listen and mag_dial: sockets by address. */
#include "io/address.h"
#include "io/io.h"

#include <netinet/in.h>
#include <unistd.h>

#define LEAST_SHARE (2 * MAG_S) /* of the time that is left, for one of several addresses */

/* A socket of ours, or a negative errno. */
static int open_socket(int family, uint32_t flags)
{
    int fd = socket(family, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0);
    if (fd < 0)
        return -errno;
    mag__io_adopt(fd, flags);
    return fd;
}

static int give_back(int fd, int error)
{
    mag_close(fd);
    return error;
}

static int may_call(void)
{
    struct m *m = mag__m_self();
    if (m == NULL || m_in_rt(m))
        return -EPERM;
    return m_is_cancelled(m) ? -ECANCELED : 0;
}

/* ---- listening ---- */

static int listen_at(const struct sockaddr *address, socklen_t size, int backlog, bool both)
{
    bool tcp = address->sa_family != AF_UNIX;
    int fd = open_socket(address->sa_family, DESC_SOCKET | (tcp ? DESC_STREAM : 0)), one = 1, zero = 0;
    if (fd < 0)
        return fd;
    if (tcp && setsockopt(fd, SOL_SOCKET, SO_REUSEADDR, &one, sizeof one) != 0)
        return give_back(fd, -errno);
    if (both && address->sa_family == AF_INET6)
        setsockopt(fd, IPPROTO_IPV6, IPV6_V6ONLY, &zero, sizeof zero); /* where it cannot be had, one is enough */
    if (bind(fd, address, size) != 0 || listen(fd, backlog > 0 ? backlog : SOMAXCONN) != 0)
        return give_back(fd, -errno);
    return fd;
}

/* "Any host" is the family that serves both, if there is one. */
static int listen_any(const struct addrinfo *list, int backlog, bool any)
{
    int fd = -EADDRNOTAVAIL;
    for (int pass = any ? 0 : 1; pass < 2; pass++)
        for (const struct addrinfo *i = list; i != NULL; i = i->ai_next) {
            if (any && (i->ai_family == AF_INET6) != (pass == 0))
                continue;
            fd = listen_at(i->ai_addr, i->ai_addrlen, backlog, any);
            if (fd >= 0 || fd == -EADDRINUSE || fd == -EACCES || fd == -EMFILE || fd == -ENFILE)
                return fd;
        }
    return fd;
}

int mag_listen(const char *address, int backlog)
{
    struct address a;
    struct addrinfo *list;
    int r = may_call();
    if (r != 0 || (r = mag__address_parse(address, &a)) != 0)
        return r;
    if (a.is_unix)
        return listen_at((struct sockaddr *)&a.path, a.path_size, backlog, false);
    if ((r = mag__address_resolve(&a, true, MAG_FOREVER, &list)) != 0)
        return r;
    r = listen_any(list, backlog, a.host[0] == 0);
    freeaddrinfo(list);
    return r;
}

/* ---- dialling ---- */

static int dial_at(const struct sockaddr *address, socklen_t size, int64_t deadline)
{
    bool tcp = address->sa_family != AF_UNIX;
    int fd = open_socket(address->sa_family, DESC_SOCKET | (tcp ? DESC_STREAM : 0));
    if (fd < 0)
        return fd;
    int r = mag__sock_connect(fd, address, size, deadline, "mag_dial");
    return r == 0 ? fd : give_back(fd, r);
}

/* One that does not answer must not take the time of those behind it. */
static int64_t share_of(int64_t deadline, const struct addrinfo *rest)
{
    int64_t now = mag__os_now(), n = 0;
    for (; rest != NULL; rest = rest->ai_next)
        n++;
    if (deadline == MAG_FOREVER || deadline <= now || n == 1)
        return deadline;
    int64_t share = (deadline - now) / n;
    share = share < LEAST_SHARE ? LEAST_SHARE : share;
    return share < deadline - now ? now + share : deadline;
}

static int dial_each(const struct addrinfo *list, int64_t deadline)
{
    int first = 0;
    for (const struct addrinfo *i = list; i != NULL; i = i->ai_next) {
        int fd = dial_at(i->ai_addr, i->ai_addrlen, share_of(deadline, i));
        if (fd >= 0 || fd == -ECANCELED || fd == -EMFILE || fd == -ENFILE || fd == -ENOMEM)
            return fd;
        first = first == 0 ? fd : first;
        if (deadline <= MAG_TRY || (deadline != MAG_FOREVER && mag__os_now() >= deadline))
            return fd == -ETIMEDOUT ? fd : first;
    }
    return first;
}

int mag_dial(const char *address, mag_time deadline)
{
    struct address a;
    struct addrinfo *list;
    int r = may_call();
    if (r != 0 || (r = mag__address_parse(address, &a)) != 0)
        return r;
    if (a.is_unix)
        return dial_at((struct sockaddr *)&a.path, a.path_size, deadline);
    if ((r = mag__address_resolve(&a, false, deadline, &list)) != 0)
        return r;
    r = dial_each(list, deadline);
    freeaddrinfo(list);
    return r;
}
