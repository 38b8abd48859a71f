/* SPDX-License-Identifier: MIT */
/* address.h: "host:port", "[::1]:port", ":port", "unix:/path" as socket addresses. See address.c. */
#ifndef MAG_IO_ADDRESS_H
#define MAG_IO_ADDRESS_H

#include "base/compiler.h"

#include <netdb.h>
#include <sys/un.h>

enum { HOST_MAX = 256, PORT_MAX = 32 };

/* An address as it was written. */
struct address {
    bool is_unix;
    struct sockaddr_un path;
    socklen_t path_size;
    char host[HOST_MAX], port[PORT_MAX]; /* host empty: any */
};

/* 0, -EINVAL, -ENAMETOOLONG. */
int mag__address_parse(const char *text, struct address *a);

/* Where it leads: a list in *out, to be given back with freeaddrinfo. Names are looked up on a goroutine of their own: 0; -ENOENT: no
 * such name; -EINVAL: no such service; -ETIMEDOUT; -ECANCELED; -ENOMEM. May switch. */
int mag__address_resolve(const struct address *a, bool passive, int64_t deadline, struct addrinfo **out);

#endif
