/* SPDX-License-Identifier: MIT */
/* httpd: an HTTP/1.1 server: keep-alive, pipelining, timeouts, limits, and an end in good order.
 *
 * A connection is a goroutine, and all it needs is on its stack: two buffers and the parser of libhttp_parser, which knows nothing of
 * goroutines. The parser calls back in the middle of its work, and a handler that sleeps or computes there holds up nobody but its own
 * connection: others go on on this core, and an idle core takes them.
 *
 *   speed      a read brings all requests that have come, and one write takes all their answers. Nothing is allocated.
 *   timeouts   a request that has begun must be complete within the timeout (408), an idle connection is closed after it, and a client
 *              that does not take its answer is given up
 *   limits     431 and 414 for what comes before a body, 413 for a body: all answered, with what was sent too much read and dropped,
 *              so that the answer is not lost in a reset
 *   SIGTERM    cancels the group: who waits for a next request leaves at once; a request that has begun is shielded, answered with
 *              "Connection: close", and waited for
 *
 * Usage: httpd [-t timeout_ms] [address]      127.0.0.1:8080 if none is given; port 0 is any free one
 *   /hello   /slow?ms=100   /work?n=100000   /bytes?n=1000000   POST /length */
#include <http_parser.h>
#include <magpie.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <signal.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>
#include <sys/socket.h>
#include <time.h>
#include <unistd.h>

enum { MAX_URL = 1024, MAX_HEAD = 8 * 1024, MAX_BODY = 1024 * 1024 };
#define GRACE (15 * MAG_S) /* for the requests under way when SIGTERM comes */

static mag_group group; /* who accepts, and every connection */
static int64_t timeout = 10 * MAG_S;

struct text { /* the beginning of something: as much as has room */
    size_t length, room;
    char *at;
};

struct connection {
    int fd;
    bool begun; /* a request has, and is not complete */
    bool last;  /* nothing after this answer */
    bool gone;  /* the client does not take answers */
    int status; /* of an answer that is not the handler's, 0: none */
    mag_time now, by; /* about now; and when the request must be complete */
    http_parser parser;

    /* of the request */
    int hosts;
    bool expects, in_value;
    uint64_t body;
    struct text url, name, value;
    char url_room[MAX_URL], name_room[8], value_room[16];

    time_t date_at;
    size_t date_length, out_length;
    char date[96], in[16 * 1024], out[16 * 1024]; /* what every request touches lies together */
};

/* ---- answers ---- */

static void flush(struct connection *c)
{
    ssize_t n = (ssize_t)c->out_length;
    if (n > 0 && !c->gone && mag_write_full(c->fd, c->out, c->out_length, c->now + timeout) != n)
        c->gone = true;
    c->out_length = 0;
}

static void put(struct connection *c, const char *text, size_t n)
{
    while (n > 0 && !c->gone) {
        size_t room = sizeof c->out - c->out_length, some = n < room ? n : room;
        memcpy(c->out + c->out_length, text, some);
        c->out_length += some;
        text += some;
        n -= some;
        if (c->out_length == sizeof c->out) {
            c->now = mag_now();
            flush(c);
        }
    }
}

#define PUT(c, literal) put(c, literal, sizeof(literal) - 1)

static void put_number(struct connection *c, uint64_t x)
{
    char digits[20], *at = digits + sizeof digits;
    do
        *--at = (char)('0' + x % 10);
    while ((x /= 10) != 0);
    put(c, at, (size_t)(digits + sizeof digits - at));
}

static void put_date(struct connection *c)
{
    time_t now = time(NULL);
    if (now != c->date_at) {
        struct tm t;
        c->date_at = now;
        c->date_length = strftime(c->date, sizeof c->date, "Date: %a, %d %b %Y %H:%M:%S GMT\r\n", gmtime_r(&now, &t));
    }
    put(c, c->date, c->date_length);
}

/* The head of an answer whose body has so many bytes. */
static void put_head(struct connection *c, int status, uint64_t length)
{
    if (status == 200) {
        PUT(c, "HTTP/1.1 200 OK\r\n");
    } else {
        const char *reason = http_status_str((enum http_status)status);
        PUT(c, "HTTP/1.1 ");
        put_number(c, (uint64_t)status);
        PUT(c, " ");
        put(c, reason, strlen(reason));
        PUT(c, "\r\n");
    }
    put_date(c);
    PUT(c, "Content-Type: text/plain\r\nContent-Length: ");
    put_number(c, length);
    if (c->last)
        PUT(c, "\r\nConnection: close");
    else if (c->parser.http_minor == 0)
        PUT(c, "\r\nConnection: keep-alive");
    PUT(c, "\r\n\r\n");
}

static void answer(struct connection *c, int status, const char *body, size_t n)
{
    put_head(c, status, n);
    if (c->parser.method != HTTP_HEAD)
        put(c, body, n);
}

static void answer_number(struct connection *c, uint64_t x)
{
    char body[32];
    answer(c, 200, body, (size_t)snprintf(body, sizeof body, "%llu\n", (unsigned long long)x));
}

static void answer_status(struct connection *c, int status)
{
    const char *reason = http_status_str((enum http_status)status);
    answer(c, status, reason, strlen(reason));
}

/* ---- handlers ---- */

static void slow(struct connection *c, uint64_t ms)
{
    flush(c); /* who waits keeps nobody's answer back */
    mag_sleep((int64_t)ms * MAG_MS);
    c->now = mag_now();
    answer_number(c, ms);
}

static bool is_prime(uint64_t x)
{
    for (uint64_t d = 2; d * d <= x; d++)
        if (x % d == 0)
            return false;
    return x >= 2;
}

static void work(struct connection *c, uint64_t n)
{
    uint64_t primes = 0;
    flush(c);
    for (uint64_t x = 0; x < n; x++) {
        primes += is_prime(x);
        mag_checkpoint();
    }
    c->now = mag_now();
    answer_number(c, primes);
}

static void bytes(struct connection *c, uint64_t n)
{
    static const char x[1024] = {[0 ... 1023] = 'x'};
    put_head(c, 200, n);
    if (c->parser.method == HTTP_HEAD)
        return;
    for (; n > 0 && !c->gone; n -= n < sizeof x ? n : sizeof x)
        put(c, x, n < sizeof x ? n : sizeof x);
}

static bool is_path(const struct connection *c, const struct http_parser_url *u, const char *path)
{
    size_t n = strlen(path);
    return u->field_data[UF_PATH].len == n && memcmp(c->url.at + u->field_data[UF_PATH].off, path, n) == 0;
}

/* A query "name=number", at most max. */
static bool query(const struct connection *c, const struct http_parser_url *u, const char *name, uint64_t max,
                  uint64_t *x)
{
    const char *at = c->url.at + u->field_data[UF_QUERY].off, *end = at + u->field_data[UF_QUERY].len;
    size_t n = strlen(name);
    if ((size_t)(end - at) < n + 2 || memcmp(at, name, n) != 0 || at[n] != '=')
        return false;
    for (*x = 0, at += n + 1; at < end && *at >= '0' && *at <= '9' && *x <= max; at++)
        *x = *x * 10 + (uint64_t)(*at - '0');
    return at == end && *x <= max;
}

static void route(struct connection *c)
{
    static const char hello[] = "hello, world\n";
    struct http_parser_url u;
    uint64_t x;
    if (c->url.length == 6 && memcmp(c->url.at, "/hello", 6) == 0 && c->parser.method == HTTP_GET) { /* most are */
        answer(c, 200, hello, sizeof hello - 1);
        return;
    }
    http_parser_url_init(&u);
    if (c->parser.method != HTTP_GET && c->parser.method != HTTP_HEAD && c->parser.method != HTTP_POST)
        answer_status(c, 405);
    else if (http_parser_parse_url(c->url.at, c->url.length, false, &u) != 0)
        answer_status(c, 400);
    else if (is_path(c, &u, "/hello"))
        answer(c, 200, hello, sizeof hello - 1);
    else if (is_path(c, &u, "/length"))
        answer_number(c, c->body);
    else if (is_path(c, &u, "/slow") && query(c, &u, "ms", 10000, &x))
        slow(c, x);
    else if (is_path(c, &u, "/work") && query(c, &u, "n", 10000000, &x))
        work(c, x);
    else if (is_path(c, &u, "/bytes") && query(c, &u, "n", 1 << 30, &x))
        bytes(c, x);
    else
        answer_status(c, 404);
}

/* ---- what the parser finds; it may come in pieces ---- */

static struct connection *of(http_parser *p) { return p->data; }

static bool append(struct text *t, const char *at, size_t n)
{
    size_t room = t->room - t->length, some = n < room ? n : room;
    memcpy(t->at + t->length, at, some);
    t->length += some;
    return some == n;
}

static bool is(const struct text *t, const char *word)
{
    return t->length == strlen(word) && strncasecmp(t->at, word, t->length) == 0;
}

static int refuse(struct connection *c, int status)
{
    c->status = status;
    return -1;
}

static int on_begin(http_parser *p)
{
    struct connection *c = of(p);
    c->begun = true;
    c->by = c->now + timeout;
    c->hosts = 0;
    c->expects = c->in_value = false;
    c->body = 0;
    c->url.length = c->name.length = c->value.length = 0;
    return 0;
}

static int on_url(http_parser *p, const char *at, size_t n)
{
    return append(&of(p)->url, at, n) ? 0 : refuse(of(p), 414);
}

static void end_header(struct connection *c)
{
    c->hosts += is(&c->name, "host");
    c->expects |= is(&c->name, "expect") && is(&c->value, "100-continue");
    c->name.length = c->value.length = 0;
    c->in_value = false;
}

static int on_name(http_parser *p, const char *at, size_t n)
{
    struct connection *c = of(p);
    if (c->in_value)
        end_header(c);
    append(&c->name, at, n);
    return memchr(at, ' ', n) == NULL ? 0 : refuse(c, 400); /* the parser is lenient here, and others are not */
}

static int on_value(http_parser *p, const char *at, size_t n)
{
    of(p)->in_value = true;
    append(&of(p)->value, at, n);
    return 0;
}

static int on_head(http_parser *p)
{
    struct connection *c = of(p);
    end_header(c);
    if (p->http_major != 1)
        return refuse(c, 505);
    if (c->hosts != 1 && (c->hosts > 1 || p->http_minor >= 1))
        return refuse(c, 400);
    bool sized = (p->flags & F_CONTENTLENGTH) != 0;
    if (sized && p->content_length > MAX_BODY)
        return refuse(c, 413);
    if (c->expects && (sized || (p->flags & F_CHUNKED) != 0)) {
        PUT(c, "HTTP/1.1 100 Continue\r\n\r\n");
        flush(c);
    }
    return 0;
}

static int on_body(http_parser *p, const char *at, size_t n)
{
    (void)at;
    of(p)->body += n;
    return of(p)->body <= MAX_BODY ? 0 : refuse(of(p), 413);
}

static int on_complete(http_parser *p)
{
    struct connection *c = of(p);
    c->last = p->upgrade || !http_should_keep_alive(p) || mag_cancelled() != 0;
    route(c);
    c->begun = false;
    if (c->last || c->gone)
        http_parser_pause(p, 1);
    return 0;
}

static const http_parser_settings settings = {
    .on_message_begin = on_begin,
    .on_url = on_url,
    .on_header_field = on_name,
    .on_header_value = on_value,
    .on_headers_complete = on_head,
    .on_body = on_body,
    .on_message_complete = on_complete,
};

/* ---- a connection ---- */

/* Waiting for a request it may be cancelled, in the middle of one it may not. */
static ssize_t read_more(struct connection *c)
{
    if (c->begun)
        return mag_read(c->fd, c->in, sizeof c->in, c->by);
    mag_shield_end();
    ssize_t n = mag_read(c->fd, c->in, sizeof c->in, c->now + timeout);
    mag_shield_begin();
    return n;
}

static int status_of(const struct connection *c)
{
    switch (HTTP_PARSER_ERRNO(&c->parser)) {
    case HPE_OK:
    case HPE_PAUSED:
        return 0;
    case HPE_HEADER_OVERFLOW:
        return 431;
    case HPE_INVALID_VERSION:
        return 505;
    default:
        return c->status != 0 ? c->status : 400;
    }
}

/* Reads what has come and answers what is complete. False: that was all. */
static bool serve(struct connection *c)
{
    ssize_t n = read_more(c);
    if (n == -ETIMEDOUT && c->begun)
        c->status = 408;
    else if (n <= 0)
        return false;
    c->now = mag_now();
    if (n > 0) {
        http_parser_execute(&c->parser, &settings, c->in, (size_t)n);
        c->status = status_of(c);
    }
    if (c->status != 0) {
        c->last = true;
        c->parser.method = HTTP_GET;
        answer_status(c, c->status);
    }
    flush(c);
    return !c->last && !c->gone;
}

/* Closing while the client still sends would be a reset, and might take the answer with it. */
static void linger(struct connection *c)
{
    mag_time by = mag_in(timeout < MAG_S ? timeout : MAG_S);
    shutdown(c->fd, SHUT_WR);
    while (mag_read(c->fd, c->in, sizeof c->in, by) > 0)
        continue;
}

static void connection(void *arg)
{
    struct connection c; /* not zeroed: most of it is buffers */
    memset(&c, 0, offsetof(struct connection, url_room));
    c.fd = *(int *)arg;
    c.url = (struct text){.at = c.url_room, .room = sizeof c.url_room};
    c.name = (struct text){.at = c.name_room, .room = sizeof c.name_room};
    c.value = (struct text){.at = c.value_room, .room = sizeof c.value_room};
    c.date_at = 0;
    c.out_length = 0;
    c.now = mag_now();
    http_parser_init(&c.parser, HTTP_REQUEST);
    c.parser.data = &c;
    mag_shield_begin();
    while (serve(&c))
        continue;
    if (c.last && !c.gone)
        linger(&c);
    mag_shield_end();
    mag_close(c.fd);
}

/* ---- the server ---- */

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
        fprintf(stderr, "httpd: %s: %s\n", address, strerror(-fd));
        return fd;
    }
    struct sockaddr_in6 at = {0}; /* its port is where IPv4's is */
    getsockname(fd, (struct sockaddr *)&at, &(socklen_t){sizeof at});
    setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &(int){1}, sizeof(int)); /* its connections inherit it */
    printf("httpd: port %d\n", ntohs(at.sin6_port));
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
        mag_group_cancel(&group);
        result = mag_group_wait(&group, mag_in(GRACE)) ==
                 -ETIMEDOUT; /* whom it does not wait for is dropped with the runtime */
    }
    mag_chan_unref(signals);
}

int main(int argc, char **argv)
{
    for (int o; (o = getopt(argc, argv, "t:")) != -1;) {
        timeout = o == 't' ? atoll(optarg) * MAG_MS : 0;
        if (timeout <= 0) {
            fprintf(stderr, "usage: httpd [-t timeout_ms] [address]\n");
            return 2;
        }
    }
    http_parser_set_max_header_size(MAX_HEAD);
    int r = mag_run(app, optind < argc ? argv[optind] : "127.0.0.1:8080");
    return r == 0 ? result : 1;
}
