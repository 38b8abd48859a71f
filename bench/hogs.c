/* SPDX-License-Identifier: MIT */
/* hogs.c: what goroutines that compute or block do to the others.
 *
 *   ticker.*        how late a 1 ms ticker is, p50 and p99: alone, beside two computing goroutines for each P, and beside such that
 *                   call the runtime every 5 ms. The floor is the same program with a plain thread for each goroutine. Both in turn,
 *                   ROUNDS times, and all ticks together: how many of a hundred the kernel lets wait for its own tick differs
 *                   from run to run, with plain threads too, and often it is just about one.
 *   crowd.*, pool.* long computations, many more than Ps: the whole time for each, over the floor: the same without
 *                   retaking (slice < 0); and how late a ticker is beside them, p99
 *   *.threads       the most threads there were (a count, not ns)
 *   block.announce  mag_block_begin and mag_block_end when nobody takes the P
 *   block.seen      a goroutine sleeps in the kernel unannounced: until its P runs another, p50, while such calls recur
 *   block.quiet     the same after 100 ms without such calls
 */
#include "bench.h"

#include <pthread.h>
#include <string.h>
#include <sys/prctl.h>
#include <time.h>
#include <unistd.h>

enum { TICKS = 1500, ROUNDS = 5 };
#define JOB (100 * MAG_MS)

static double late_by_thread[ROUNDS][TICKS], late_by_goroutine[ROUNDS][TICKS];
static double *late = late_by_goroutine[0];
static int stop, procs;

static int stopped(void) { return __atomic_load_n(&stop, __ATOMIC_RELAXED); }
static void set_stop(int to) { __atomic_store_n(&stop, to, __ATOMIC_RELAXED); }

static void compute_until(mag_time t)
{
    volatile unsigned x = 0;
    while (mag_now() < t)
        for (int i = 0; i < 1000; i++)
            x = x + (unsigned)i;
}

static double part(double *v, int n, double q)
{
    qsort(v, (size_t)n, sizeof *v, bench_by_size);
    return v[(int)((n - 1) * q)];
}

/* ---- the ticker, as a goroutine and as a thread ---- */

static void tick(void)
{
    mag_time next = mag_now();
    for (int i = 0; i < TICKS; i++) {
        next += MAG_MS;
        mag_sleep_until(next);
        late[i] = (double)(mag_now() - next);
        if (late[i] > (double)MAG_MS)
            next = mag_now();
    }
}

static void *tick_thread(void *arg)
{
    (void)arg;
    prctl(PR_SET_TIMERSLACK, 1UL);
    mag_time next = mag_now();
    for (int i = 0; i < TICKS; i++) {
        next += MAG_MS;
        struct timespec t = {next / MAG_S, next % MAG_S};
        clock_nanosleep(CLOCK_MONOTONIC, TIMER_ABSTIME, &t, NULL);
        late[i] = (double)(mag_now() - next);
        if (late[i] > (double)MAG_MS)
            next = mag_now();
    }
    return NULL;
}

/* ---- hogs ---- */

static void computes(void *wg)
{
    while (!stopped())
        compute_until(mag_now() + MAG_MS);
    mag_wg_done(wg);
}

static void computes_and_calls(void *wg)
{
    while (!stopped()) {
        compute_until(mag_now() + 5 * MAG_MS);
        mag_yield();
    }
    mag_wg_done(wg);
}

static void *hog_thread(void *arg)
{
    while (!stopped())
        compute_until(mag_now() + MAG_MS);
    return arg;
}

static void ticks_beside(void *fn)
{
    mag_wg wg = {0};
    set_stop(0);
    mag_wg_add(&wg, 2 * procs);
    for (int i = 0; fn != NULL && i < 2 * procs; i++)
        mag_go((mag_fn)(uintptr_t)fn, &wg);
    tick();
    set_stop(1);
    if (fn != NULL)
        mag_wg_wait(&wg, MAG_FOREVER);
}

static void plain(int hogs)
{
    pthread_t t[64], ticker;
    set_stop(0);
    for (int i = 0; i < hogs; i++)
        pthread_create(&t[i], NULL, hog_thread, NULL);
    pthread_create(&ticker, NULL, tick_thread, NULL);
    pthread_join(ticker, NULL);
    set_stop(1);
    for (int i = 0; i < hogs; i++)
        pthread_join(t[i], NULL);
}

static void row(const char *name, mag_fn fn, int hogs)
{
    char line[64];
    for (int i = 0; i < ROUNDS; i++) {
        late = late_by_thread[i];
        plain(hogs);
        late = late_by_goroutine[i];
        mag_run(ticks_beside, (void *)(uintptr_t)fn);
    }
    const double q[] = {0.5, 0.99};
    const char *const quantile[] = {"p50", "p99"};
    for (int i = 0; i < 2; i++) {
        snprintf(line, sizeof line, "%s_%s", name, quantile[i]);
        bench_print(line, procs, part(late_by_goroutine[0], ROUNDS * TICKS, q[i]), part(late_by_thread[0], ROUNDS * TICKS, q[i]),
                    ROUNDS * TICKS);
    }
}

/* ---- a crowd ---- */

/* BENCH_CROWD=1000: as the figure to reach says; it takes some minutes. */
static long crowd_size(void)
{
    const char *text = getenv("BENCH_CROWD");
    return text != NULL && atol(text) > 0 ? atol(text) : 60;
}

static unsigned most_threads;
static int over;

static void job(void *wg)
{
    struct timespec t;
    clock_gettime(CLOCK_THREAD_CPUTIME_ID, &t);
    int64_t end = t.tv_sec * MAG_S + t.tv_nsec + JOB;
    do {
        compute_until(mag_now() + MAG_MS / 10);
        clock_gettime(CLOCK_THREAD_CPUTIME_ID, &t);
    } while (t.tv_sec * MAG_S + t.tv_nsec < end);
    mag_wg_done(wg);
}

static int nlate;

static void ticks_meanwhile(void *arg)
{
    (void)arg;
    mag_time next = mag_now();
    nlate = 0;
    while (!__atomic_load_n(&over, __ATOMIC_RELAXED) && nlate < TICKS) {
        next += MAG_MS;
        mag_sleep_until(next);
        late[nlate] = (double)(mag_now() - next);
        if (late[nlate++] > (double)MAG_MS)
            next = mag_now();
        mag_stats s;
        mag_stats_read(&s, NULL, 0);
        if (s.threads > most_threads)
            most_threads = (unsigned)s.threads;
    }
}

static void crowd(void *took)
{
    mag_wg wg = {0};
    __atomic_store_n(&over, 0, __ATOMIC_RELAXED);
    mag_wg_add(&wg, (int)crowd_size());
    mag_go(ticks_meanwhile, NULL);
    mag_yield();
    mag_time start = mag_now();
    for (long i = 0; i < crowd_size(); i++)
        mag_go(job, &wg);
    mag_wg_wait(&wg, MAG_FOREVER);
    *(double *)took = (double)(mag_now() - start) / (double)crowd_size();
    __atomic_store_n(&over, 1, __ATOMIC_RELAXED);
    mag_yield();
}

/* The same by a pool that waits at a channel for such jobs. */
static void worker(void *c)
{
    mag_wg *wg;
    while (mag_chan_recv(c, &wg, MAG_FOREVER) == 0)
        job(wg);
}

static void pool(void *took)
{
    mag_wg wg = {0};
    mag_chan *c = mag_chan_new(sizeof(mag_wg *), 0);
    __atomic_store_n(&over, 0, __ATOMIC_RELAXED);
    for (long i = 0; i < crowd_size(); i++)
        mag_go(worker, c);
    mag_go(ticks_meanwhile, NULL);
    mag_sleep(10 * MAG_MS);
    mag_wg_add(&wg, (int)crowd_size());
    mag_time start = mag_now();
    for (long i = 0; i < crowd_size(); i++)
        mag_chan_send(c, &(mag_wg *){&wg}, MAG_FOREVER);
    mag_wg_wait(&wg, MAG_FOREVER);
    *(double *)took = (double)(mag_now() - start) / (double)crowd_size();
    __atomic_store_n(&over, 1, __ATOMIC_RELAXED);
    mag_chan_close(c);
    for (mag_stats s = {.goroutines = 2}; s.goroutines > 1; mag_stats_read(&s, NULL, 0))
        mag_yield();
    mag_chan_unref(c);
}

static void crowds(const char *name, mag_fn fn)
{
    double with, without;
    char line[64];
    mag_run_with(&(mag_config){.slice = -1}, fn, &without);
    most_threads = 0;
    mag_run(fn, &with);
    snprintf(line, sizeof line, "%s.time", name);
    bench_print(line, procs, with, without, crowd_size());
    snprintf(line, sizeof line, "%s.ticker_p99", name);
    bench_print(line, procs, part(late, nlate, 0.99), 0, nlate);
    snprintf(line, sizeof line, "%s.threads", name);
    bench_print(line, procs, most_threads, 0, crowd_size());
}

/* ---- blocking ---- */

static double announce(void *arg)
{
    (void)arg;
    enum { N = 2000000 };
    mag_time start = mag_now();
    for (int i = 0; i < N; i++) {
        mag_block_begin();
        mag_block_end();
    }
    return (double)(mag_now() - start) / N;
}

static void announces(void *ns) { *(double *)ns = bench_median(announce, NULL); }

static mag_time made_ready;
static double waited;

static void notes(void *sem)
{
    waited = (double)(mag_now() - made_ready);
    mag_sem_post(sem, 1);
}

/* Every other P computes, so that only this one's can run what is made ready here. */
static void blocks(void *pause)
{
    enum { N = 60 };
    static double v[N];
    mag_wg wg = {0};
    mag_sem sem;
    mag_sem_init(&sem, 0);
    set_stop(0);
    mag_wg_add(&wg, procs - 1);
    for (int i = 0; i < procs - 1; i++)
        mag_go(computes, &wg);
    mag_sleep(20 * MAG_MS);
    for (int i = 0; i < N; i++) {
        mag_sleep(*(int64_t *)pause);
        made_ready = mag_now();
        mag_go(notes, &sem);
        usleep(3000);
        mag_sem_wait(&sem, MAG_FOREVER);
        v[i] = waited;
    }
    set_stop(1);
    mag_wg_wait(&wg, MAG_FOREVER);
    bench_print(*(int64_t *)pause == 0 ? "block.seen" : "block.quiet", procs, part(v, N, 0.5), 0, N);
}

static void count(void *arg) { *(int *)arg = mag_procs(); }

int main(void)
{
    double ns;
    int64_t none = 0, quiet = 100 * MAG_MS;
    mag_run(count, &procs);
    row("ticker.alone", NULL, 0);
    row("ticker.hogs", computes, 2 * procs);
    row("ticker.calls", computes_and_calls, 2 * procs);
    crowds("crowd", crowd);
    crowds("pool", pool);
    mag_run(announces, &ns);
    bench_print("block.announce", procs, ns, 0, 2000000);
    mag_run(blocks, &none);
    mag_run(blocks, &quiet);
    return 0;
}
