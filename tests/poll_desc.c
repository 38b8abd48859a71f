/* SPDX-License-Identifier: MIT */
/* poll_desc.c: descriptors by themselves, with waiters that only count: who is told of an event, in which order, and who is not. */
#include "test.h"

#include "poll/poll.h"

#include <pthread.h>
#include <sys/socket.h>

enum { MOST = 8 };

static struct poll poll_;
static struct poll_wait x[MOST];
static int told[MOST], order, loses;

static enum poll_fired fire(struct poll_wait *w)
{
    long i = w - x;
    if (loses & 1 << i)
        return POLL_LOST;
    told[i] = ++order;
    return POLL_READY;
}

static int lent_told;

static enum poll_fired fire_lent(struct poll_wait *w)
{
    (void)w;
    lent_told++;
    return POLL_READY;
}

static void begin(void)
{
    lent_told = 0;
    memset(&poll_, 0, sizeof poll_);
    memset(told, 0, sizeof told);
    order = loses = 0;
}

static void end(void)
{
    mag__poll_stop(&poll_, false);
    mag__poll_fini(&poll_);
}

static struct desc *get(int fd)
{
    int error = 0;
    struct desc *d = mag__poll_get(&poll_, fd, &error);
    T_EQ(error == 0 || d == NULL, true);
    T_TRUE(d != NULL);
    return d;
}

static int queue(int i, struct desc *d, enum poll_dir dir, bool watch)
{
    x[i] = (struct poll_wait){.fire = fire, .dir = dir, .watch = watch};
    return mag__poll_queue(&poll_, d, &x[i], side_edges(d, dir), false);
}

/* What the backend has now, told to those it concerns; how many. */
static unsigned harvest(void)
{
    struct backend_event e[16];
    struct poll_chain c;
    mag__poll_chain_init(&c);
    unsigned n = mag__backend_wait(&poll_.backend, e, 16, 0);
    mag__poll_deliver(&poll_, e, n, &c);
    return c.n;
}

static void pair_of(int fd[2]) { T_EQ(socketpair(AF_UNIX, SOCK_STREAM | SOCK_NONBLOCK, 0, fd), 0); }

static void close_both(int fd[2])
{
    close(fd[0]);
    close(fd[1]);
}

/* ---- who is told ---- */

static void lookers_and_the_first_taker(bool own)
{
    int fd[2];
    begin();
    pair_of(fd);
    struct desc *d = get(fd[0]);
    if (own)
        mag__poll_adopt(d, DESC_SOCKET);
    loses = 1 << 1;
    T_EQ(queue(0, d, POLL_READ, true), 0);
    T_EQ(queue(1, d, POLL_READ, false), 0); /* its deadline has passed */
    T_EQ(queue(2, d, POLL_READ, false), 0);
    T_EQ(queue(3, d, POLL_READ, false), 0);
    T_EQ(queue(4, d, POLL_READ, true), 0);
    T_EQ(harvest(), 0);
    T_EQ(write(fd[1], "x", 1), 1);
    T_EQ(harvest(), 3);
    T_EQ(told[0], 1);
    T_EQ(told[2], 2);
    T_EQ(told[4], 3);
    T_EQ(told[3], 0);
    struct poll_chain c;
    mag__poll_chain_init(&c);
    mag__poll_pass(d, POLL_READ, &c);
    T_EQ(c.n, 1);
    T_EQ(told[3], 4);
    T_EQ(queue(5, d, POLL_READ, false), 0);
    x[6] = (struct poll_wait){.fire = fire, .dir = POLL_READ};
    T_EQ(mag__poll_queue(&poll_, d, &x[6], side_edges(d, POLL_READ), true), 0); /* it has waited before */
    mag__poll_pass(d, POLL_READ, &c);
    T_EQ(told[6], 5);
    T_EQ(told[5], 0);
    mag__poll_unqueue(&x[5]);
    mag__poll_unqueue(&x[5]);
    end();
    close_both(fd);
}

static void the_right_ones_are_told(void)
{
    lookers_and_the_first_taker(false);
    lookers_and_the_first_taker(true);
}

/* What a descriptor lends to the first who waits. */
static struct poll_wait *lent(int i, struct desc *d, uint32_t seen, int result)
{
    struct poll_wait *w = mag__poll_queue_begin(d, POLL_READ, &x[i]);
    *w = (struct poll_wait){.fire = w == &x[i] ? fire : fire_lent, .dir = POLL_READ};
    T_EQ(mag__poll_queue_end(&poll_, d, w, seen, false), result);
    return w;
}

static void a_record_is_lent_once(void)
{
    int fd[2];
    begin();
    pair_of(fd);
    struct desc *d = get(fd[0]);
    mag__poll_adopt(d, DESC_SOCKET);
    uint32_t seen = side_edges(d, POLL_READ);
    struct poll_wait *first = lent(0, d, seen, 0);
    T_TRUE(first == &d->wait[POLL_READ]);
    T_TRUE(lent(1, d, seen, 0) == &x[1]);
    T_TRUE(mag__poll_queue_begin(d, POLL_WRITE, &x[2]) == &d->wait[POLL_WRITE]); /* each direction has its own */
    d->wait[POLL_WRITE].dir = POLL_WRITE;
    T_EQ(mag__poll_queue_end(&poll_, d, &d->wait[POLL_WRITE], side_edges(d, POLL_WRITE) + 1, false), 1);
    T_TRUE(mag__poll_queue_begin(d, POLL_WRITE, &x[2]) == &d->wait[POLL_WRITE]); /* it was not queued: it is to be had again */
    T_EQ(mag__poll_queue_end(&poll_, d, &d->wait[POLL_WRITE], side_edges(d, POLL_WRITE) + 1, false), 1);
    T_EQ(write(fd[1], "x", 1), 1);
    T_EQ(harvest(), 1);
    T_EQ(lent_told, 1);
    T_TRUE(lent(2, d, side_edges(d, POLL_READ), 0) == &x[2]); /* told, but the goroutine has not come for it yet */
    mag__poll_return(d, POLL_READ);
    T_TRUE(lent(3, d, side_edges(d, POLL_READ), 0) == first);
    struct poll_chain c;
    mag__poll_chain_init(&c);
    T_EQ(mag__poll_close(&poll_, d, &c), 0);
    T_EQ(c.n, 3);
    T_EQ(lent_told, 2);
    end();
    close(fd[1]);
}

/* Two threads have it by turns: each must see its own in it until it returns it (PL4: ThreadSanitizer sees it where the machine does not). */
static struct desc *shared;
static long had[2];

static void *has_it_by_turns(void *arg)
{
    long me = (long)arg;
    for (long n = t_scale(20000); n > 0 || had[me] == 0; n--) { /* the other may lose its core with it in its hands */
        struct poll_wait own, *w = mag__poll_queue_begin(shared, POLL_READ, &own);
        *w = (struct poll_wait){.fire = fire_lent, .dir = POLL_READ, .ticket = (uint64_t)me};
        T_EQ(mag__poll_queue_end(&poll_, shared, w, side_edges(shared, POLL_READ), false), 0);
        mag__poll_unqueue(w);
        if (w == &own)
            continue;
        T_EQ(w->ticket, me);
        had[me]++;
        mag__poll_return(shared, POLL_READ);
    }
    return NULL;
}

static void a_record_goes_round(void)
{
    int fd[2];
    pthread_t t;
    begin();
    pair_of(fd);
    shared = get(fd[0]);
    mag__poll_adopt(shared, DESC_SOCKET);
    had[0] = had[1] = 0;
    T_EQ(pthread_create(&t, NULL, has_it_by_turns, (void *)1), 0);
    has_it_by_turns((void *)0);
    pthread_join(t, NULL);
    end();
    close_both(fd);
}

/* An event between the asking and the queueing is not lost. */
static void an_event_in_between(void)
{
    int fd[2];
    begin();
    pair_of(fd);
    struct desc *d = get(fd[0]);
    mag__poll_adopt(d, DESC_SOCKET);
    T_EQ(queue(0, d, POLL_READ, false), 0);
    uint32_t seen = side_edges(d, POLL_READ);
    T_EQ(write(fd[1], "x", 1), 1);
    T_EQ(harvest(), 1);
    x[1] = (struct poll_wait){.fire = fire, .dir = POLL_READ};
    T_EQ(mag__poll_queue(&poll_, d, &x[1], seen, false), 1);
    T_FALSE(x[1].queued);
    end();
    close_both(fd);
}

/* Of a foreign file, each direction stays armed while somebody waits for it. */
static void directions_stay_armed(void)
{
    int fd[2];
    char big[1 << 16] = {0};
    begin();
    pair_of(fd);
    while (write(fd[0], big, sizeof big) > 0)
        ;
    struct desc *d = get(fd[0]);
    T_EQ(queue(0, d, POLL_READ, false), 0);
    T_EQ(queue(1, d, POLL_WRITE, false), 0);
    T_EQ(harvest(), 0);
    T_EQ(write(fd[1], "x", 1), 1);
    T_EQ(harvest(), 1);
    T_EQ(told[0], 1);
    while (read(fd[1], big, sizeof big) > 0)
        ;
    T_EQ(harvest(), 1);
    T_EQ(told[1], 2);
    end();
    close_both(fd);
}

/* ---- other files under the same number ---- */

static void an_old_event_tells_nobody(void)
{
    int fd[2];
    struct poll_chain c;
    begin();
    pair_of(fd);
    struct desc *d = get(fd[0]);
    mag__poll_adopt(d, 0);
    T_EQ(queue(0, d, POLL_READ, false), 0);
    struct backend_event e = {.tag = (uint64_t)(d->tag - 1) << 32 | (uint32_t)fd[0], .read = true};
    uint32_t edges = side_edges(d, POLL_READ);
    mag__poll_chain_init(&c);
    mag__poll_deliver(&poll_, &e, 1, &c);
    T_EQ(c.n, 0);
    T_EQ(side_edges(d, POLL_READ), edges);
    e.tag = (uint64_t)d->tag << 32 | 100000; /* a number that nobody has used */
    mag__poll_deliver(&poll_, &e, 1, &c);
    T_EQ(c.n, 0);
    e.tag = (uint64_t)d->tag << 32 | (uint32_t)fd[0];
    mag__poll_deliver(&poll_, &e, 1, &c);
    T_EQ(c.n, 1);
    end();
    close_both(fd);
}

/* One waits for a file that was closed by close(2); another, for the next one under its number, is told of that one's events, and the
 * first is not, whether a duplicate keeps the old file alive or not. */
static void the_next_file(bool duplicate)
{
    int old[2], next[2], spare = -1;
    begin();
    pair_of(old);
    pair_of(next);
    struct desc *d = get(old[0]);
    T_EQ(queue(0, d, POLL_READ, false), 0);
    if (duplicate)
        spare = dup(old[0]);
    T_EQ(dup2(next[0], old[0]), old[0]); /* closes the one, and is the other */
    T_EQ(queue(1, d, POLL_READ, false), 0);
    T_EQ(write(old[1], "o", 1), duplicate ? 1 : -1);
    T_EQ(harvest(), 0);
    T_EQ(write(next[1], "n", 1), 1);
    T_EQ(harvest(), 1);
    T_EQ(told[1], 1);
    T_EQ(told[0], 0);
    struct poll_chain c;
    mag__poll_chain_init(&c);
    T_EQ(mag__poll_close(&poll_, d, &c), 0); /* this tells everybody */
    T_EQ(c.n, 1);
    T_EQ(told[0], 2);
    end();
    close(spare);
    close(old[1]);
    close_both(next);
}

static void files_change_under_a_number(void)
{
    signal(SIGPIPE, SIG_IGN);
    the_next_file(false);
    the_next_file(true);
    signal(SIGPIPE, SIG_DFL);
}

/* ---- closing ---- */

static bool is_open(int fd) { return fcntl(fd, F_GETFD) >= 0; }

static void the_last_call_closes(void)
{
    int fd[2];
    struct poll_chain c;
    begin();
    pair_of(fd);
    struct desc *d = get(fd[0]);
    mag__poll_adopt(d, DESC_SOCKET);
    T_EQ(mag__poll_enter(d), 0);
    T_EQ(mag__poll_enter(d), 0);
    T_EQ(mag__poll_release(&poll_, d), -EBUSY);
    T_EQ(queue(0, d, POLL_READ, false), 0);
    mag__poll_chain_init(&c);
    T_EQ(mag__poll_close(&poll_, d, &c), 0);
    T_EQ(c.n, 1);
    T_TRUE(is_open(fd[0]));
    T_EQ(mag__poll_enter(d), -EBADF);
    T_EQ(mag__poll_close(&poll_, d, &c), -EBADF);
    T_EQ(queue(1, d, POLL_READ, false), -EBADF);
    mag__poll_leave(&poll_, d);
    T_TRUE(is_open(fd[0]));
    mag__poll_leave(&poll_, d);
    T_FALSE(is_open(fd[0]));
    T_EQ(poll_.closing == NULL, true);
    T_EQ(mag__poll_enter(d), 0); /* whatever the number is now */
    mag__poll_leave(&poll_, d);
    T_EQ(mag__poll_release(&poll_, d), -EBADF);
    end();
    close(fd[1]);
}

/* The runtime ends with a call inside that will never leave. */
static void stopping_closes_the_rest(void)
{
    int fd[2];
    struct poll_chain c;
    begin();
    pair_of(fd);
    struct desc *d = get(fd[0]);
    T_EQ(mag__poll_enter(d), 0);
    mag__poll_chain_init(&c);
    T_EQ(mag__poll_close(&poll_, d, &c), 0);
    T_TRUE(is_open(fd[0]));
    end();
    T_FALSE(is_open(fd[0]));
    close(fd[1]);
}

static void given_away(void)
{
    int fd[2];
    begin();
    pair_of(fd);
    struct desc *d = get(fd[0]);
    mag__poll_adopt(d, DESC_SOCKET | DESC_STREAM);
    T_EQ(queue(0, d, POLL_READ, false), 0);
    mag__poll_unqueue(&x[0]);
    T_EQ(mag__poll_release(&poll_, d), 0);
    T_EQ(at_32_load_rlx(&d->flags), 0);
    T_EQ(write(fd[1], "x", 1), 1);
    T_EQ(harvest(), 0); /* no longer registered */
    T_EQ(queue(1, d, POLL_READ, false), 0);
    T_EQ(harvest(), 1);
    end();
    close_both(fd);
}

/* ---- the table and the bell ---- */

static void numbers(void)
{
    int error = 0;
    long fds = t_fds();
    begin();
    T_TRUE(mag__poll_peek(&poll_, 3) == NULL);
    T_TRUE(mag__poll_get(&poll_, -1, &error) == NULL);
    T_EQ(error, -EBADF);
    static const int some[] = {0, 1, 4095, 4096, 4097, 1 << 20, 1 << 30, INT32_MAX};
    for (size_t i = 0; i < sizeof some / sizeof *some; i++) {
        struct desc *d = get(some[i]);
        T_EQ((int)at_32_load_rlx(&d->fd), some[i]);
        T_TRUE(mag__poll_peek(&poll_, some[i]) == d);
    }
    T_EQ(t_fds(), fds + 2);
    int64_t start = t_now();
    struct backend_event e[1];
    mag__backend_ring(&poll_.backend);
    T_EQ(mag__backend_wait(&poll_.backend, e, 1, start + INT64_C(10000000000)), 0);
    T_LT(t_now() - start, INT64_C(5000000000));
    start = t_now();
    T_EQ(mag__backend_wait(&poll_.backend, e, 1, start + 3000000), 0); /* one ring ends one wait */
    T_GE(t_now() - start, 3000000);
    end();
    T_EQ(t_fds(), fds);
    int file = open("/proc/self/exe", O_RDONLY);
    begin();
    T_EQ(queue(0, get(file), POLL_READ, false), -EPERM);
    T_EQ(queue(0, get(1000), POLL_READ, false), -EBADF);
    end();
    close(file);
}

int main(int argc, char **argv)
{
    t_init(argc, argv);
    T_RUN(the_right_ones_are_told);
    T_RUN(a_record_is_lent_once);
    T_RUN(a_record_goes_round);
    T_RUN(an_event_in_between);
    T_RUN(directions_stay_armed);
    T_RUN(an_old_event_tells_nobody);
    T_RUN(files_change_under_a_number);
    T_RUN(the_last_call_closes);
    T_RUN(stopping_closes_the_rest);
    T_RUN(given_away);
    T_RUN(numbers);
    return t_done();
}
