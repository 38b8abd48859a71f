/* SPDX-License-Identifier: MIT */
/* chan: what talking costs: a ping-pong's round trip, a buffered channel, a fan-in of a hundred, a select over two, and skynet,
 * a tree of a million goroutines that add up their numbers over channels. Floor: a call through a pointer. */
#include "bench.h"

static mag_wg wg;
static mag_chan *there, *back;

static void need(int result)
{
    if (result != 0)
        abort();
}

static void echo(void *arg)
{
    long v;
    for (long i = *(long *)arg; i > 0; i--) {
        need(mag_chan_recv(there, &v, MAG_FOREVER));
        need(mag_chan_send(back, &v, MAG_FOREVER));
    }
    mag_wg_done(&wg);
}

static double ping_pong(void *arg)
{
    long n = *(long *)arg, v;
    there = mag_chan_new(sizeof v, 0);
    back = mag_chan_new(sizeof v, 0);
    mag_wg_add(&wg, 1);
    mag_go(echo, arg);
    mag_time start = mag_now();
    for (long i = 0; i < n; i++) {
        need(mag_chan_send(there, &i, MAG_FOREVER));
        need(mag_chan_recv(back, &v, MAG_FOREVER));
    }
    double ns = (double)(mag_now() - start) / (double)n;
    mag_wg_wait(&wg, MAG_FOREVER);
    mag_chan_unref(there);
    mag_chan_unref(back);
    return ns;
}

struct stream {
    long each;
    int senders;
    size_t capacity;
};

static void sender(void *arg)
{
    for (long i = *(long *)arg; i > 0; i--)
        need(mag_chan_send(there, &i, MAG_FOREVER));
    mag_wg_done(&wg);
}

static double stream(void *arg)
{
    struct stream *s = arg;
    long n = s->each * s->senders, v;
    there = mag_chan_new(sizeof v, s->capacity);
    mag_wg_add(&wg, s->senders);
    mag_time start = mag_now();
    for (int i = 0; i < s->senders; i++)
        mag_go(sender, &s->each);
    for (long i = 0; i < n; i++)
        need(mag_chan_recv(there, &v, MAG_FOREVER));
    double ns = (double)(mag_now() - start) / (double)n;
    mag_wg_wait(&wg, MAG_FOREVER);
    mag_chan_unref(there);
    return ns;
}

static double choose(void *arg)
{
    long n = *(long *)arg, v, w;
    there = mag_chan_new(sizeof v, 0);
    back = mag_chan_new(sizeof v, 0);
    mag_wg_add(&wg, 1);
    mag_go(sender, arg);
    mag_time start = mag_now();
    for (long i = 0; i < n; i++) {
        mag_case cases[] = {MAG_RECV(there, &v), MAG_RECV(back, &w)};
        need(mag_select(cases, 2, MAG_FOREVER));
    }
    double ns = (double)(mag_now() - start) / (double)n;
    mag_wg_wait(&wg, MAG_FOREVER);
    mag_chan_unref(there);
    mag_chan_unref(back);
    return ns;
}

struct node {
    mag_chan *up;
    long number, size;
};

static void skynet_node(void *arg)
{
    struct node *s = arg;
    long sum = s->number, v;
    if (s->size > 1) {
        mag_chan *c = mag_chan_new(sizeof v, 0);
        long part = s->size / 10;
        sum = 0;
        for (int i = 0; i < 10; i++)
            need(MAG_GO(skynet_node, struct node, c, s->number + i * part, part));
        for (int i = 0; i < 10; i++) {
            need(mag_chan_recv(c, &v, MAG_FOREVER));
            sum += v;
        }
        mag_chan_unref(c);
    }
    need(mag_chan_send(s->up, &sum, MAG_FOREVER));
}

static double skynet(void *arg)
{
    (void)arg;
    long sum;
    mag_chan *c = mag_chan_new(sizeof sum, 0);
    mag_time start = mag_now();
    need(MAG_GO(skynet_node, struct node, c, 0, 1000000));
    need(mag_chan_recv(c, &sum, MAG_FOREVER));
    double ns = (double)(mag_now() - start) / 1111111;
    if (sum != 499999500000)
        abort();
    mag_chan_unref(c);
    return ns;
}

static void (*volatile target)(void *);
static void empty(void *arg) { (void)arg; }

static double calls(void *arg)
{
    long n = *(long *)arg;
    target = empty;
    mag_time start = mag_now();
    for (long i = 0; i < n; i++)
        target(NULL);
    return (double)(mag_now() - start) / (double)n;
}

/* MAG_TRY on an empty channel: nothing is taken that another would have to wait for. */
enum { TRIES = 200000 };

static void tries(void *arg)
{
    (void)arg;
    long v;
    for (int i = 0; i < TRIES; i++)
        need(mag_chan_recv(there, &v, MAG_TRY) == -ETIMEDOUT ? 0 : -1);
    mag_wg_done(&wg);
}

/* Per try and P: with as many goroutines as are given. */
static double try_by(void *arg)
{
    int n = *(int *)arg, ps = n < mag_procs() ? n : mag_procs();
    there = mag_chan_new(sizeof(long), 1);
    mag_wg_add(&wg, n);
    mag_time start = mag_now();
    for (int i = 0; i < n; i++)
        mag_go(tries, NULL);
    need(mag_wg_wait(&wg, MAG_FOREVER));
    double ns = (double)(mag_now() - start) * ps / (double)(n * TRIES);
    mag_chan_unref(there);
    return ns;
}

static void app(void *arg)
{
    (void)arg;
    long n = 1000000;
    double floor = bench_median(calls, &n);
    struct stream one = {5000000, 1, 128}, hundred = {10000, 100, 0};
    int procs = mag_procs();
    bench_print("pingpong", procs, bench_median(ping_pong, &n), floor, n);
    bench_print("buffered", procs, bench_median(stream, &one), floor, one.each);
    bench_print("fanin", procs, bench_median(stream, &hundred), floor, n);
    bench_print("select", procs, bench_median(choose, &n), floor, n);
    int eight = 8, alone = 1;
    double by_one = bench_median(try_by, &alone);
    bench_print("try8", procs, bench_median(try_by, &eight), by_one, 8 * TRIES); /* the floor: one goroutine alone */
    bench_print("skynet", procs, bench_median(skynet, NULL), floor, 1111111);
}

int main(void) { return mag_run(app, NULL) == 0 ? 0 : 1; }
