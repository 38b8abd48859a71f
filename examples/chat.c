/* SPDX-License-Identifier: MIT */
/* chat: whatever one says, line by line, the others hear. Try it with: nc 127.0.0.1 7778
 *
 * A member is one goroutine that waits for three things at once: its socket has something to read, its inbox has a line from
 * somebody else, its socket takes more of what is to be written. Nobody ever waits for a slow reader: a line that finds his inbox
 * full is lost for him, and he is told how many were; if he takes nothing at all for STALL, he is out.
 * Usage: chat [address]      127.0.0.1:7778 if none is given; port 0 is any free one. SIGINT or SIGTERM ends it. */
#include <magpie.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <signal.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>

enum { INBOX = 256, LINE = 1024 };
#define STALL (5 * MAG_S)

struct line { /* shared by all the inboxes it is in */
    int holders;
    int length;
    char text[];
};

struct member {
    struct member *next; /* guarded by room */
    mag_chan *inbox;     /* of struct line * */
    int fd;
    int lost; /* lines that found the inbox full */
    int in_length;
    struct line *out; /* being written, NULL: none */
    int out_done;
    mag_time out_by; /* or he is out */
    char name[32];
    char in[LINE]; /* the beginning of a line */
};

static mag_group group; /* who accepts, and every member */
static mag_mutex room;
static struct member *members; /* guarded by room */

/* ---- lines ---- */

__attribute__((format(printf, 1, 2))) static struct line *line_new(const char *format, ...)
{
    va_list args, again;
    va_start(args, format);
    va_copy(again, args);
    int n = vsnprintf(NULL, 0, format, args);
    struct line *l = malloc(sizeof *l + (size_t)n + 1);
    if (l != NULL) {
        *l = (struct line){.holders = 1, .length = n};
        vsnprintf(l->text, (size_t)n + 1, format, again);
    }
    va_end(again);
    va_end(args);
    return l;
}

static void line_drop(struct line *l)
{
    if (l != NULL && __atomic_sub_fetch(&l->holders, 1, __ATOMIC_ACQ_REL) == 0)
        free(l);
}

/* To everybody but him. The line is used up. */
static void tell(struct member *but, struct line *l)
{
    if (l == NULL)
        return;
    mag_mutex_lock(&room);
    for (struct member *m = members; m != NULL; m = m->next) {
        if (m == but)
            continue;
        __atomic_add_fetch(&l->holders, 1, __ATOMIC_RELAXED);
        if (mag_chan_send(m->inbox, &l, MAG_TRY) != 0) {
            __atomic_add_fetch(&m->lost, 1, __ATOMIC_RELAXED);
            line_drop(l);
        }
    }
    mag_mutex_unlock(&room);
    line_drop(l);
}

/* ---- a member ---- */

static void say(struct member *m, const char *text, int n)
{
    n -= n > 0 && text[n - 1] == '\r';
    if (n >= 6 && memcmp(text, "/name ", 6) == 0) {
        char old[sizeof m->name];
        strcpy(old, m->name);
        snprintf(m->name, sizeof m->name, "%.*s", n - 6, text + 6);
        tell(NULL, line_new("* %s is now %s\n", old, m->name));
    } else if (n > 0) {
        tell(m, line_new("%s: %.*s\n", m->name, n, text));
    }
}

/* Says every line that is complete; one that is too long goes out in pieces. 0, or negative: he has gone. */
static int hear(struct member *m)
{
    ssize_t n = mag_read(m->fd, m->in + m->in_length, (size_t)(LINE - m->in_length), MAG_TRY);
    if (n <= 0)
        return n == -ETIMEDOUT ? 0 : -1; /* somebody cried wolf */
    int end = m->in_length + (int)n, begin = 0;
    for (char *nl; (nl = memchr(m->in + begin, '\n', (size_t)(end - begin))) != NULL; begin = (int)(nl - m->in) + 1)
        say(m, m->in + begin, (int)(nl - m->in) - begin);
    if (begin == 0 && end == LINE) {
        say(m, m->in, LINE);
        begin = end;
    }
    m->in_length = end - begin;
    memmove(m->in, m->in + begin, (size_t)m->in_length);
    return 0;
}

/* As much of the line as the socket takes. 0, or negative: he has gone. */
static int pass_on(struct member *m)
{
    ssize_t n = mag_write(m->fd, m->out->text + m->out_done, (size_t)(m->out->length - m->out_done), MAG_TRY);
    if (n < 0)
        return n == -ETIMEDOUT ? 0 : -1;
    m->out_by = mag_in(STALL);
    m->out_done += (int)n;
    if (m->out_done < m->out->length)
        return 0;
    line_drop(m->out);
    int lost = __atomic_exchange_n(&m->lost, 0, __ATOMIC_RELAXED);
    m->out = lost != 0 ? line_new("* you missed %d lines\n", lost) : NULL;
    m->out_done = 0;
    return 0;
}

static void converse(struct member *m)
{
    enum { HEAR, RECEIVE, WRITE };
    for (int r = 0; r == 0;) {
        /* While a line is under way the inbox waits (a NULL channel never fires), and only then the socket's room is of interest. */
        mag_case cases[] = {
            [HEAR] = MAG_READABLE(m->fd),
            [RECEIVE] = MAG_RECV(m->out == NULL ? m->inbox : NULL, &m->out),
            [WRITE] = MAG_WRITABLE(m->fd),
        };
        switch (mag_select(cases, m->out == NULL ? 2 : 3, m->out == NULL ? MAG_FOREVER : m->out_by)) {
        case HEAR:
            r = hear(m);
            break;
        case RECEIVE:
            m->out_by = mag_in(STALL);
            /* fall through */
        case WRITE:
            r = pass_on(m);
            break;
        default: /* stalled, or the end of it all */
            r = -1;
        }
    }
}

static void member(void *arg)
{
    struct member *m = arg;
    snprintf(m->name, sizeof m->name, "guest %d", m->fd);
    mag_mutex_lock(&room);
    m->next = members;
    members = m;
    mag_mutex_unlock(&room);
    tell(m, line_new("* %s is here\n", m->name));
    m->out = line_new("* welcome, %s; change it by /name\n", m->name);
    m->out_by = mag_in(STALL);

    converse(m);

    mag_shield_begin(); /* cancelled or not, it cleans up in full */
    mag_mutex_lock(&room);
    struct member **at = &members;
    while (*at != m)
        at = &(*at)->next;
    *at = m->next;
    mag_mutex_unlock(&room);
    tell(m, line_new("* %s has left\n", m->name));
    for (struct line *l; mag_chan_recv(m->inbox, &l, MAG_TRY) == 0;)
        line_drop(l);
    mag_shield_end();
    line_drop(m->out);
    mag_chan_unref(m->inbox);
    mag_close(m->fd);
    free(m);
}

/* ---- the server ---- */

static void admit(int fd)
{
    struct member *m = calloc(1, sizeof *m);
    mag_chan *inbox = mag_chan_new(sizeof(struct line *), INBOX);
    if (m != NULL && inbox != NULL) {
        m->fd = fd;
        m->inbox = inbox;
        if (mag_group_go(&group, member, m) == 0)
            return;
    }
    mag_chan_unref(inbox);
    free(m);
    mag_close(fd);
}

static void accept_all(void *arg)
{
    int listener = *(int *)arg, fd;
    while ((fd = mag_accept(listener, NULL, NULL, MAG_FOREVER)) != -ECANCELED) {
        if (fd < 0) /* out of descriptors or memory: those who leave give some back */
            mag_sleep(10 * MAG_MS);
        else
            admit(fd);
    }
    mag_close(listener);
}

static int listen_at(const char *address)
{
    int fd = mag_listen(address, 0);
    if (fd < 0) {
        fprintf(stderr, "chat: %s: %s\n", address, strerror(-fd));
        return fd;
    }
    struct sockaddr_in6 at = {0}; /* its port is where IPv4's is */
    getsockname(fd, (struct sockaddr *)&at, &(socklen_t){sizeof at});
    setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &(int){1}, sizeof(int)); /* its connections inherit both */
    setsockopt(fd, SOL_SOCKET, SO_SNDBUF, &(int){32 * 1024}, sizeof(int));
    printf("chat: port %d\n", ntohs(at.sin6_port));
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
    int r = mag_run(app, argc > 1 ? argv[1] : "127.0.0.1:7778");
    return r == 0 ? result : 1;
}
