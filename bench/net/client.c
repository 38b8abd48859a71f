/* SPDX-License-Identifier: MIT */
/* client.c: measures servers: N connections to each, each with one message under way, from one thread on epoll.
 *
 * Usage: client echo|http CONNECTIONS SECONDS TURNS PORT[,PID ...] ...
 *
 * echo sends 64 bytes and waits for the same 64; http asks for /hello and waits for the whole answer. Every reply is checked.
 * Several servers take turns, in a new order each time, TURNS of SECONDS for each; nothing is under way with the others meanwhile. A fifth
 * of a turn goes by before anything counts. The processes PID are the server: what they use of the processors, user and system,
 * is divided by the messages of the same time. One line for each turn of each:
 *     server=WHICH rate=MSG/S p50=US p99=US p999=US worst=US cpu=US-PER-MESSAGE n=MESSAGES
 */
#include <arpa/inet.h>
#include <errno.h>
#include <fcntl.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/socket.h>
#include <time.h>
#include <unistd.h>

enum { MESSAGE = 64, EVENTS = 1024, FINE = 64, PIDS = 16, LOST_MS = 5000 };

struct connection {
    int fd;
    int got;
    int64_t sent_at;
    char buf[1024];
};

struct server {
    int port, queue, pids;
    clockid_t cpu[PIDS];
    struct connection *all;
};

static bool http;
static char message[256];
static size_t message_length;
static uint64_t histogram[64 * FINE]; /* of ns: powers of two, each in FINE parts */
static uint64_t messages;
static enum { WARMING, COUNTING, ENDING } phase;
static int under_way;

static int64_t now(void)
{
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return t.tv_sec * INT64_C(1000000000) + t.tv_nsec;
}

static void die(const char *what)
{
    fprintf(stderr, "client: %s: %s\n", what, strerror(errno));
    exit(1);
}

/* ---- latencies ---- */

static size_t slot_of(uint64_t ns)
{
    if (ns < FINE)
        return ns;
    int top = 63 - __builtin_clzll(ns);
    return (size_t)(top - 5) * FINE + ((ns >> (top - 6)) & (FINE - 1));
}

static double slot_value(size_t slot)
{
    size_t power = slot / FINE, part = slot % FINE;
    return power == 0 ? (double)slot : (double)((FINE + part) << (power - 1));
}

static double percentile(double p) /* us */
{
    uint64_t wanted = (uint64_t)((double)messages * p), seen = 0;
    for (size_t i = 0; i < sizeof histogram / sizeof *histogram; i++)
        if ((seen += histogram[i]) > wanted)
            return slot_value(i) / 1000;
    return 0;
}

static double worst(void)
{
    for (size_t i = sizeof histogram / sizeof *histogram; i-- > 0;)
        if (histogram[i] != 0)
            return slot_value(i) / 1000;
    return 0;
}

/* ---- the server's processors ---- */

static double cpu_of(const struct server *s) /* seconds */
{
    double sum = 0;
    for (int i = 0; i < s->pids; i++) {
        struct timespec t;
        if (clock_gettime(s->cpu[i], &t) != 0)
            die("the server's clock");
        sum += (double)t.tv_sec + (double)t.tv_nsec / 1e9;
    }
    return sum;
}

/* ---- messages ---- */

static void send_message(struct connection *c)
{
    c->got = 0;
    c->sent_at = now();
    if (send(c->fd, message, message_length, MSG_NOSIGNAL) != (ssize_t)message_length)
        die("send");
}

/* The reply in buf is whole. A wrong one ends it all. */
static bool is_whole(const struct connection *c)
{
    if (!http) {
        if (c->got > MESSAGE || memcmp(c->buf, message, (size_t)c->got) != 0)
            die("wrong reply");
        return c->got == MESSAGE;
    }
    const char *body = memmem(c->buf, (size_t)c->got, "\r\n\r\n", 4);
    if (body == NULL)
        return false;
    const char *length = strcasestr(c->buf, "content-length:");
    if (memcmp(c->buf, "HTTP/1.1 200", 12) != 0 || length == NULL || length > body)
        die("wrong reply");
    return c->buf + c->got == body + 4 + atoi(length + 15);
}

static void receive(struct connection *c)
{
    ssize_t n = recv(c->fd, c->buf + c->got, sizeof c->buf - 1 - (size_t)c->got, 0);
    if (n < 0 && errno == EAGAIN)
        return;
    if (n <= 0)
        die("recv");
    c->got += (int)n;
    c->buf[c->got] = 0;
    if (!is_whole(c))
        return;
    if (phase == COUNTING) {
        histogram[slot_of((uint64_t)(now() - c->sent_at))]++;
        messages++;
    }
    if (phase == ENDING)
        under_way--;
    else
        send_message(c);
}

static void open_connection(struct connection *c, int port, int queue)
{
    struct sockaddr_in to = {
        .sin_family = AF_INET, .sin_port = htons((uint16_t)port), .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    c->fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    if (c->fd < 0 || connect(c->fd, (struct sockaddr *)&to, sizeof to) != 0)
        die("connect");
    setsockopt(c->fd, IPPROTO_TCP, TCP_NODELAY, &(int){1}, sizeof(int));
    fcntl(c->fd, F_SETFL, O_NONBLOCK);
    struct epoll_event e = {.events = EPOLLIN, .data.ptr = c};
    if (epoll_ctl(queue, EPOLL_CTL_ADD, c->fd, &e) != 0)
        die("epoll_ctl");
}

static struct server open_server(char *arg, int n)
{
    struct server s = {.queue = epoll_create1(EPOLL_CLOEXEC), .all = calloc((size_t)n, sizeof *s.all)};
    if (s.all == NULL || s.queue < 0)
        die("start");
    s.port = atoi(strtok(arg, ","));
    for (char *pid; (pid = strtok(NULL, ",")) != NULL; s.pids++)
        if ((errno = s.pids == PIDS ? E2BIG : clock_getcpuclockid(atoi(pid), &s.cpu[s.pids])) != 0)
            die(pid);
    for (int i = 0; i < n; i++)
        open_connection(&s.all[i], s.port, s.queue);
    return s;
}

/* ---- turns ---- */

static void exchange(const struct server *s)
{
    struct epoll_event e[EVENTS];
    int k = epoll_wait(s->queue, e, EVENTS, LOST_MS);
    if (k == 0) {
        errno = ETIMEDOUT;
        die("no reply");
    }
    for (int i = 0; i < k; i++)
        receive(e[i].data.ptr);
}

static void turn(const struct server *s, int which, int n, int64_t length)
{
    memset(histogram, 0, sizeof histogram);
    messages = 0;
    if (http)
        message_length = (size_t)snprintf(message, sizeof message, "GET /hello HTTP/1.1\r\nHost: 127.0.0.1:%d\r\n\r\n", s->port);
    phase = WARMING;
    for (under_way = 0; under_way < n; under_way++)
        send_message(&s->all[under_way]);
    for (int64_t begin = now(); now() - begin < length / 5;)
        exchange(s);
    phase = COUNTING;
    int64_t begin = now();
    double cpu = cpu_of(s);
    while (now() - begin < length)
        exchange(s);
    cpu = cpu_of(s) - cpu;
    double seconds = (double)(now() - begin) / 1e9;
    phase = ENDING;
    while (under_way > 0)
        exchange(s);
    if (messages == 0)
        die("no messages");
    printf("server=%d rate=%.0f p50=%.1f p99=%.1f p999=%.1f worst=%.1f cpu=%.3f n=%llu\n", which, (double)messages / seconds, percentile(.5),
           percentile(.99), percentile(.999), worst(), cpu * 1e6 / (double)messages, (unsigned long long)messages);
}

int main(int argc, char **argv)
{
    if (argc < 6) {
        fprintf(stderr, "usage: client echo|http CONNECTIONS SECONDS TURNS PORT[,PID ...] ...\n");
        return 2;
    }
    int n = atoi(argv[2]), turns = atoi(argv[4]), k = argc - 5;
    int64_t length = (int64_t)(atof(argv[3]) * 1e9);
    http = strcmp(argv[1], "http") == 0;
    message_length = MESSAGE;
    memset(message, 'm', MESSAGE);
    struct server *servers = calloc((size_t)k, sizeof *servers);
    int *order = calloc((size_t)k, sizeof *order);
    if (servers == NULL || order == NULL)
        die("start");
    for (int i = 0; i < k; i++) {
        servers[i] = open_server(argv[5 + i], n);
        order[i] = i;
    }
    srandom((unsigned)now());
    for (int t = 0; t < turns; t++) {
        for (int i = k - 1; i > 0; i--) {
            int j = (int)(random() % (i + 1)), at = order[i];
            order[i] = order[j];
            order[j] = at;
        }
        for (int i = 0; i < k; i++)
            turn(&servers[order[i]], order[i], n, length);
    }
    return 0;
}
