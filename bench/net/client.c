/* SPDX-License-Identifier: MIT */
/* client.c: measures a server: N connections, each with one message under way at any time, from one thread on epoll.
 *
 * Usage: client PORT echo|http CONNECTIONS SECONDS [PID ...]
 *
 * echo sends 64 bytes and waits for the same 64; http asks for /hello and waits for the whole answer. Every reply is checked. A tenth
 * of the time goes by before anything counts. The processes PID are the server: what they use of the processors, user and system,
 * is divided by the messages of the same time. One line:
 *     rate=MSG/S p50=US p99=US p999=US worst=US cpu=US-PER-MESSAGE n=MESSAGES
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

enum { MESSAGE = 64, EVENTS = 1024, FINE = 64 };

struct connection {
    int fd;
    int got;
    int64_t sent_at;
    char buf[1024];
};

static bool http;
static char message[256];
static size_t message_length;
static uint64_t histogram[64 * FINE]; /* of ns: powers of two, each in FINE parts */
static uint64_t messages;
static bool counting;

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

static double cpu_of(int n, char **pids) /* seconds */
{
    double sum = 0;
    for (int i = 0; i < n; i++) {
        char path[64], text[1024] = "";
        snprintf(path, sizeof path, "/proc/%s/stat", pids[i]);
        int fd = open(path, O_RDONLY | O_CLOEXEC);
        if (fd < 0 || read(fd, text, sizeof text - 1) <= 0)
            die(path);
        close(fd);
        unsigned long user = 0, system = 0;
        char *end = strrchr(text, ')');
        if (end == NULL || sscanf(end + 1, " %*c %*d %*d %*d %*d %*d %*u %*u %*u %*u %*u %lu %lu", &user, &system) != 2)
            die(path);
        sum += (double)(user + system) / (double)sysconf(_SC_CLK_TCK);
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
    if (counting) {
        histogram[slot_of((uint64_t)(now() - c->sent_at))]++;
        messages++;
    }
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

int main(int argc, char **argv)
{
    if (argc < 5) {
        fprintf(stderr, "usage: client PORT echo|http CONNECTIONS SECONDS [PID ...]\n");
        return 2;
    }
    int n = atoi(argv[3]), queue = epoll_create1(EPOLL_CLOEXEC);
    http = strcmp(argv[2], "http") == 0;
    if (http) {
        message_length =
            (size_t)snprintf(message, sizeof message, "GET /hello HTTP/1.1\r\nHost: 127.0.0.1:%s\r\n\r\n", argv[1]);
    } else {
        message_length = MESSAGE;
        memset(message, 'm', MESSAGE);
    }
    struct connection *all = calloc((size_t)n, sizeof *all);
    if (all == NULL || queue < 0)
        die("start");
    for (int i = 0; i < n; i++)
        open_connection(&all[i], atoi(argv[1]), queue);
    for (int i = 0; i < n; i++)
        send_message(&all[i]);
    int64_t length = (int64_t)(atof(argv[4]) * 1e9), begin = now() + length / 10, end = begin + length;
    double cpu = 0;
    for (int64_t t; (t = now()) < end;) {
        struct epoll_event e[EVENTS];
        if (!counting && t >= begin) {
            counting = true;
            begin = t;
            cpu = cpu_of(argc - 5, argv + 5);
        }
        int k = epoll_wait(queue, e, EVENTS, 100);
        for (int i = 0; i < k; i++)
            receive(e[i].data.ptr);
    }
    cpu = cpu_of(argc - 5, argv + 5) - cpu;
    double seconds = (double)(now() - begin) / 1e9;
    printf("rate=%.0f p50=%.1f p99=%.1f p999=%.1f worst=%.1f cpu=%.3f n=%llu\n", (double)messages / seconds,
           percentile(.5), percentile(.99), percentile(.999), worst(),
           cpu * 1e6 / (double)(messages != 0 ? messages : 1), (unsigned long long)messages);
    return messages != 0 ? 0 : 1;
}
