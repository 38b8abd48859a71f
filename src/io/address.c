/* SPDX-License-Identifier: MIT */
/* address.c: what an address means.
 *
 * Numbers are read at once. Names go through getaddrinfo, which may take long and cannot be interrupted: it runs on a goroutine of its
 * own, with the P free. Whoever waits for it may give up before it ends; the last of the two frees what was found.
 * Ordering    ADR1  refs add release, acquire (unref, both ends): without this what was found could be freed while it is written.
 */
#include "io/address.h"
#include "magpie.h"
#include "os/os.h"

#include <stdlib.h>
#include <string.h>

enum { LOOKUP_STACK = 256 << 10 }; /* resolvers put packets on the stack */

/* ---- reading ---- */

static int parse_unix(const char *path, struct address *a)
{
    size_t n = strlen(path);
    if (n == 0)
        return -EINVAL;
    if (n >= sizeof a->path.sun_path)
        return -ENAMETOOLONG;
    a->is_unix = true;
    a->path.sun_family = AF_UNIX;
    memcpy(a->path.sun_path, path, n);
    bool abstract = path[0] == '@'; /* a name without a file: a zero in the place of the @ */
    if (abstract)
        a->path.sun_path[0] = 0;
    a->path_size = (socklen_t)(offsetof(struct sockaddr_un, sun_path) + n + !abstract);
    return 0;
}

/* A number up to 65535, or the name of a service. */
static bool is_port(const char *port)
{
    char *end;
    if (port[0] < '0' || port[0] > '9')
        return port[0] != 0 && port[0] != '-' && port[0] != '+' && port[0] != ' ';
    unsigned long n = strtoul(port, &end, 10);
    return *end == 0 && end - port <= 5 && n <= 65535;
}

int mag__address_parse(const char *text, struct address *a)
{
    memset(a, 0, sizeof *a);
    if (text == NULL)
        return -EINVAL;
    if (strncmp(text, "unix:", 5) == 0)
        return parse_unix(text + 5, a);
    const char *host = text, *end, *port;
    if (text[0] == '[') {
        host = text + 1;
        end = strchr(host, ']');
        if (end == NULL || end[1] != ':' || end == host)
            return -EINVAL;
        port = end + 2;
    } else {
        end = strchr(text, ':');
        if (end == NULL || strchr(end + 1, ':') != NULL) /* which of several colons is the port's? */
            return -EINVAL;
        port = end + 1;
    }
    size_t n = (size_t)(end - host);
    if (n >= sizeof a->host || strlen(port) >= sizeof a->port || !is_port(port))
        return -EINVAL;
    memcpy(a->host, host, n);
    strcpy(a->port, port);
    return 0;
}

/* ---- looking up ---- */

/* The C library's errors. What no server could be asked about is not known either. */
static int error_of(int r)
{
    switch (r) {
    case 0:
        return 0;
    case EAI_SERVICE:
        return -EINVAL;
    case EAI_MEMORY:
        return -ENOMEM;
    case EAI_SYSTEM:
        return errno != 0 ? -errno : -EIO;
    case EAI_FAIL:
        return -EIO;
    default:
        return -ENOENT;
    }
}

static int look_up(const struct address *a, int flags, struct addrinfo **out)
{
    struct addrinfo hints = {
        .ai_family = AF_UNSPEC, .ai_socktype = SOCK_STREAM, .ai_protocol = IPPROTO_TCP, .ai_flags = flags};
    return error_of(getaddrinfo(a->host[0] != 0 ? a->host : NULL, a->port, &hints, out));
}

struct lookup {
    a32 refs;
    struct address a;
    int flags, result;
    struct addrinfo *found;
    mag_chan *done;
};

static void unref(struct lookup *l)
{
    if (l == NULL || at_32_add_acqrel(&l->refs, (uint32_t)-1) != 1) /* ADR1 */
        return;
    if (l->found != NULL)
        freeaddrinfo(l->found);
    mag_chan_unref(l->done);
    free(l);
}

static void looks_up(void *arg)
{
    struct lookup *l = arg;
    mag_block_begin();
    l->result = look_up(&l->a, l->flags, &l->found);
    mag_block_end();
    mag_chan_close(l->done);
    unref(l);
}

static struct lookup *begin(const struct address *a, int flags)
{
    struct lookup *l = calloc(1, sizeof *l);
    if (l == NULL)
        return NULL;
    at_32_store_rlx(&l->refs, 1);
    l->a = *a;
    l->flags = flags;
    l->done = mag_chan_new(0, 0);
    at_32_store_rlx(&l->refs, 2);
    if (l->done != NULL &&
        mag_go_with(&(mag_go_config){.name = "lookup", .stack_size = LOOKUP_STACK}, looks_up, l) == 0)
        return l;
    at_32_store_rlx(&l->refs, 1);
    unref(l);
    return NULL;
}

int mag__address_resolve(const struct address *a, bool passive, int64_t deadline, struct addrinfo **out)
{
    int flags = passive ? AI_PASSIVE : 0;
    int r = look_up(a, flags | AI_NUMERICHOST, out);
    if (r != -ENOENT || a->host[0] == 0)
        return r;
    if (deadline <= MAG_TRY)
        return -ETIMEDOUT;
    struct lookup *l = begin(a, flags);
    if (l == NULL)
        return -ENOMEM;
    r = mag_chan_recv(l->done, NULL, deadline);
    if (r == -EPIPE && (r = l->result) == 0) {
        *out = l->found;
        l->found = NULL;
    }
    unref(l);
    return r;
}
