/* SPDX-License-Identifier: MIT */
/* preempt.c: a goroutine that computes, in any code, loses its P to the others after its slice, and nothing else. */
#include "test.h"

#include <magpie.h>
#include <pthread.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <unistd.h>

static void set(int *flag) { __atomic_store_n(flag, 1, __ATOMIC_RELEASE); }
static int get(const int *flag) { return __atomic_load_n(flag, __ATOMIC_ACQUIRE); }
static void add(long *n) { __atomic_add_fetch(n, 1, __ATOMIC_RELAXED); }
static long read_count(const long *n) { return __atomic_load_n(n, __ATOMIC_RELAXED); }
static void sets(void *arg) { set(arg); }
static void done(void *wg) { mag_wg_done(wg); }
static void wait_for(mag_wg *wg) { T_EQ(mag_wg_wait(wg, MAG_FOREVER), 0); }

static void on(int procs, int64_t slice, mag_fn fn, void *arg)
{
    T_EQ(mag_run_with(&(mag_config){.procs = procs, .slice = slice}, fn, arg), 0);
}

static void spin_ns(int64_t ns)
{
    for (int64_t until = t_now() + ns; t_now() < until;)
        ;
}

static mag_stats stats(void)
{
    mag_stats total;
    T_GT(mag_stats_read(&total, NULL, 0), 0);
    return total;
}

/* ---- any code, on one P ---- */

static int stop;

static void loops(void)
{
    while (!get(&stop))
        ;
}

static void loops_in_memset(void)
{
    static char block[1 << 20];
    for (int i = 0; !get(&stop); i++)
        memset(block, i, sizeof block);
}

static int by_value(const void *a, const void *b) { return *(const int *)a - *(const int *)b; }

static void loops_in_qsort(void)
{
    static int numbers[20000];
    uint64_t random = t_state.seed;
    while (!get(&stop)) {
        for (size_t i = 0; i < sizeof numbers / sizeof *numbers; i++)
            numbers[i] = (int)(t_random_r(&random) >> 1);
        qsort(numbers, sizeof numbers / sizeof *numbers, sizeof *numbers, by_value);
    }
}

static void loops_in_malloc(void)
{
    while (!get(&stop))
        for (size_t size = 16; size < 100000; size *= 2) {
            char *volatile p = malloc(size);
            T_TRUE(p);
            p[0] = p[size - 1] = 1;
            free(p);
        }
}

static void loops_in_usleep(void)
{
    while (!get(&stop))
        usleep(100);
}

static void calls(void *arg) { ((void (*)(void))arg)(); }

static void mallocs_and_ticks(void *arg)
{
    for (int i = 0; i < 100; i++) {
        free(malloc(100)); /* the same locks as the hog's */
        mag_yield();
    }
    sets(arg);
}

static void beside(void *hog)
{
    int ticked = 0;
    int64_t start = t_now();
    stop = 0;
    T_EQ(mag_go(mallocs_and_ticks, &ticked), 0);
    T_EQ(mag_go(calls, hog), 0); /* runs first: only losing its P ends its turn */
    while (!get(&ticked))
        mag_yield();
    T_EVENTUALLY(stats().retakes_computing + stats().retakes_blocked >= 1, 10000); /* counted when it is over */
    /* the slice is 10 ms */
    T_LT(t_now() - start, 5 * MAG_S * t_state.slow);
    __atomic_store_n(&stop, 1, __ATOMIC_RELEASE);
}

static void others_run_beside_an_empty_loop(void) { on(1, 0, beside, (void *)loops); }
static void others_run_beside_memset(void) { on(1, 0, beside, (void *)loops_in_memset); }
static void others_run_beside_qsort(void) { on(1, 0, beside, (void *)loops_in_qsort); }
static void others_run_beside_malloc(void) { on(1, 0, beside, (void *)loops_in_malloc); }
static void others_run_beside_usleep(void) { on(1, 0, beside, (void *)loops_in_usleep); }

/* ---- how often ---- */

static void hogs_a_while(void *arg)
{
    int *others = arg;
    int before = get(others);
    spin_ns(100 * MAG_MS);
    T_EQ(get(others), before);
}

static void never_retaken(void *arg)
{
    (void)arg;
    int other = 0;
    for (int i = 0; i < 3; i++) {
        other = 0;
        T_EQ(mag_go(sets, &other), 0);
        hogs_a_while(&other);
        mag_yield();
        T_EQ(other, 1);
    }
    T_EQ(stats().retakes_computing, 0);
    T_EQ(stats().threads, 1);
}

static void a_negative_slice_never_ends(void) { on(1, -1, never_retaken, NULL); }

static void alone_it_keeps_its_p(void *arg)
{
    (void)arg;
    spin_ns(100 * MAG_MS);
    T_EQ(stats().retakes_computing, 0);
    T_EQ(stats().threads, 1);
}

static void nobody_waits_nobody_is_preempted(void) { on(1, MAG_MS, alone_it_keeps_its_p, NULL); }

/* ---- checkpoints ---- */

static struct {
    long turns;
    int stop;
    mag_wg wg;
} other;

static void ticks(void *arg)
{
    (void)arg;
    while (!get(&other.stop)) {
        add(&other.turns);
        mag_yield();
    }
    mag_wg_done(&other.wg);
}

/* At half of the slice a checkpoint yields, so that the P is never taken. */
static void checkpoints(void *arg)
{
    (void)arg;
    memset(&other, 0, sizeof other);
    mag_wg_add(&other.wg, 1);
    T_EQ(mag_go(ticks, NULL), 0);
    while (read_count(&other.turns) < 5)
        mag_checkpoint();
    set(&other.stop);
    wait_for(&other.wg);
    T_EQ(stats().retakes_computing, 0);
}

static void a_checkpoint_yields_when_somebody_waits(void) { on(1, 400 * MAG_MS, checkpoints, NULL); }

static void checkpoints_alone(void *arg)
{
    (void)arg;
    uint64_t before = stats().switches;
    for (int64_t until = t_now() + 50 * MAG_MS; t_now() < until;)
        mag_checkpoint();
    T_EQ(stats().switches, before);
}

static void a_checkpoint_does_nothing_alone(void) { on(1, MAG_MS, checkpoints_alone, NULL); }

/* ---- without a P ---- */

static __thread int mine;

/* On one P: when the other one has run, this one has lost its P. */
static void lose_p(void)
{
    int ran = 0;
    T_EQ(mag_go(sets, &ran), 0);
    while (!get(&ran))
        ;
}

static void done_of(void *wg) { mag_wg_done(*(mag_wg **)wg); }

static void spawns_without(void)
{
    mag_wg wg = {0};
    lose_p();
    mag_wg_add(&wg, 100);
    for (int i = 0; i < 100; i++)
        T_EQ(i % 2 ? mag_go(done, &wg) : MAG_GO(done_of, mag_wg *, &wg), 0);
    wait_for(&wg);
}

struct gate {
    mag_wg gate, passed;
};

static void passes(void *arg)
{
    struct gate *g = arg;
    wait_for(&g->gate);
    mag_wg_done(&g->passed);
}

static void wakes_without(void)
{
    struct gate g = {0};
    mag_wg_add(&g.gate, 1);
    mag_wg_add(&g.passed, 10);
    for (int i = 0; i < 10; i++)
        T_EQ(mag_go(passes, &g), 0);
    lose_p();
    mag_wg_done(&g.gate);
    wait_for(&g.passed);
}

static void yields_without(void)
{
    lose_p();
    mag_yield();
    mag_yield();
}

static void waits_without(void)
{
    mag_wg wg = {0};
    mag_wg_add(&wg, 1);
    T_EQ(mag_go(done, &wg), 0);
    lose_p();
    wait_for(&wg);
}

static void looks_without(void)
{
    lose_p();
    uint64_t id = mag_id();
    T_NE(id, 0);
    T_EQ(mag_procs(), 1);
    mag_set_name("loose");
    T_GE(stats().goroutines, 1);
    int null = open("/dev/null", O_WRONLY | O_CLOEXEC);
    T_EQ(mag_dump(null), 0);
    close(null);
    T_EQ(mag_id(), id);
    mag_checkpoint();
}

static void ends_without(void) { lose_p(); }

static void exits_without(void)
{
    lose_p();
    mag_exit();
}

static void with_its_own_errno(void)
{
    int here = (int)mag_id();
    mag_wg wg = {0};
    mine = here;
    errno = here;
    pthread_t thread = pthread_self();
    lose_p();
    T_EQ(errno, here);
    T_EQ(mine, here);
    mag_wg_add(&wg, 1); /* these never switch */
    T_EQ(mag_go(done, &wg), 0);
    mag_wg_add(&wg, 1);
    mag_wg_done(&wg);
    mag_id();
    stats();
    mag_wg_wait(&wg, MAG_TRY);
    spin_ns(MAG_MS);
    T_EQ(errno, here);
    T_EQ(mine, here);
    T_TRUE(pthread_equal(thread, pthread_self()));
    wait_for(&wg);
}

struct loose {
    void (*fn)(void);
    mag_wg *wg;
};

static void runs_loose(void *arg)
{
    struct loose *l = arg;
    mag_wg_done(l->wg); /* some do not come back from fn */
    l->fn();
}

static void loose_ones(void *arg)
{
    static void (*const fns[])(void) = {spawns_without, wakes_without, yields_without, waits_without,
                                        looks_without,  ends_without,  exits_without,  with_its_own_errno};
    bool busy = arg != NULL; /* somebody else always wants the P */
    memset(&other, 0, sizeof other);
    if (busy) {
        mag_wg_add(&other.wg, 1);
        T_EQ(mag_go(ticks, NULL), 0);
    }
    for (size_t i = 0; i < sizeof fns / sizeof *fns; i++)
        for (long k = 0; k < t_scale(8); k++) {
            mag_wg wg = {0};
            uint64_t before = stats().finished;
            mag_wg_add(&wg, 1);
            T_EQ(MAG_GO(runs_loose, struct loose, fns[i], &wg), 0);
            wait_for(&wg);
            while (stats().goroutines > (busy ? 2 : 1) || stats().finished == before)
                mag_yield();
        }
    set(&other.stop);
    wait_for(&other.wg);
    T_EVENTUALLY(stats().retakes_computing > 0, 10000);
}

static void without_a_p_everything_works(void) { on(1, MAG_MS, loose_ones, NULL); }
static void without_a_p_while_it_is_busy(void) { on(1, MAG_MS, loose_ones, &other); }

/* ---- many ---- */

enum { HOGS = 8 };

static struct {
    long progress[HOGS];
    mag_wg wg;
} hogs;

static void hog(void *arg)
{
    long *n = arg;
    while (!get(&stop))
        add(n);
    mag_wg_done(&hogs.wg);
}

static void eight_hogs(void *arg)
{
    (void)arg;
    int late = 0;
    memset(&hogs, 0, sizeof hogs);
    stop = 0;
    mag_wg_add(&hogs.wg, HOGS);
    for (int i = 0; i < HOGS; i++)
        T_EQ(mag_go(hog, &hogs.progress[i]), 0);
    for (int i = 0; i < HOGS; i++) /* all of them, though they are four times as many as the Ps */
        while (read_count(&hogs.progress[i]) == 0)
            mag_yield();
    for (int i = 0; i < 20; i++) { /* and others find a P now and then */
        late = 0;
        T_EQ(mag_go(sets, &late), 0);
        while (!get(&late))
            mag_yield();
    }
    __atomic_store_n(&stop, 1, __ATOMIC_RELEASE);
    wait_for(&hogs.wg);
}

static void eight_hogs_on_two_ps(void) { on(2, 0, eight_hogs, NULL); }

static struct {
    int stop;
    long most;
} watch;

/* ---- in the kernel's eyes ---- */

/* The kernel's slice of a thread; 0: this kernel has none. */
static uint64_t kernel_slice(int tid)
{
    struct {
        uint32_t size, policy;
        uint64_t flags;
        int32_t nice;
        uint32_t priority;
        uint64_t runtime, deadline, period;
    } a = {0};
    return syscall(SYS_sched_getattr, tid, &a, sizeof a, 0) == 0 && a.policy == 0 ? a.runtime : 0;
}

static int hog_tid;
static uint64_t childs_slice;

static void *looks_at_its_slice(void *arg)
{
    childs_slice = kernel_slice(0);
    return arg;
}

static void computes_and_is_known(void *arg)
{
    __atomic_store_n(&hog_tid, (int)syscall(SYS_gettid), __ATOMIC_RELEASE);
    while (!get(&stop))
        ;
    pthread_t t;
    T_EQ(pthread_create(&t, NULL, looks_at_its_slice, NULL), 0);
    T_EQ(pthread_join(t, NULL), 0);
    mag_wg_done(arg);
}

static void looks_at_slices(void *arg)
{
    (void)arg;
    uint64_t usual = kernel_slice(0);
    if (usual == 0)
        T_SKIP("this kernel has no slices of its own for a thread");
    mag_wg wg = {0};
    mag_wg_add(&wg, 1);
    stop = hog_tid = 0;
    T_EQ(mag_go(computes_and_is_known, &wg), 0);
    do
        T_EQ(mag_sleep(MAG_MS), 0); /* it has this thread's P, which is wanted each time */
    while (!get(&hog_tid) || stats().retakes_computing == 0);
    int tid = get(&hog_tid);
    T_EVENTUALLY(kernel_slice(tid) > usual, 2000);
    T_EQ(mag_sleep(MAG_MS), 0);
    T_EQ(mag_sleep(MAG_MS), 0);
    T_LT(kernel_slice(0), usual);
    set(&stop);
    wait_for(&wg);
    T_EQ(childs_slice, usual); /* what such a thread begins has nothing to do with it */
    for (int i = 0; i < 1000 && kernel_slice(0) != usual; i++)
        T_EQ(mag_sleep(MAG_MS), 0);
    T_EQ(kernel_slice(0), usual);
    T_EVENTUALLY(kernel_slice(tid) <= usual, 2000);
}

/* One that computes without a P lets those go first that wake up beside it, and afterwards all is as it was. */
static void a_hog_lets_others_first(void) { on(1, 0, looks_at_slices, NULL); }

static void *watches_threads(void *arg)
{
    (void)arg;
    while (!get(&watch.stop)) {
        long n = (long)stats().threads;
        watch.most = n > watch.most ? n : watch.most;
        usleep(200);
    }
    return NULL;
}

static void hogs_long(void *wg)
{
    spin_ns(50 * MAG_MS);
    mag_wg_done(wg);
}

static void two_hundred_hogs(void *arg)
{
    int *result = arg;
    mag_wg wg = {0};
    pthread_t t;
    memset(&watch, 0, sizeof watch);
    T_EQ(pthread_create(&t, NULL, watches_threads, NULL), 0);
    mag_wg_add(&wg, 200);
    for (int i = 0; i < 200; i++)
        T_EQ(mag_go(hogs_long, &wg), 0);
    wait_for(&wg);
    set(&watch.stop);
    T_EQ(pthread_join(t, NULL), 0);
    *result = (int)stats().retakes_computing;
}

static void two_hundred_hogs_need_few_threads(void)
{
    int retakes = 0;
    on(2, MAG_MS, two_hundred_hogs, &retakes);
    printf("%ld threads, %d retakes  ", watch.most, retakes);
    fflush(stdout);
    T_GT(retakes, 50); /* most of them: whoever comes back makes room for another */
    T_LE(watch.most, 4 * 2 + 2 + 2);
}

/* ---- too few threads ---- */

static void hogs_and_done(void *wg)
{
    spin_ns(30 * MAG_MS);
    mag_wg_done(wg);
}

static void more_hogs_than_threads(void *arg)
{
    (void)arg;
    mag_wg wg = {0};
    for (int i = 0; i < 6; i++) {
        mag_wg_add(&wg, 2);
        T_EQ(mag_go(hogs_and_done, &wg), 0);
        T_EQ(mag_go(done, &wg), 0);
    }
    wait_for(&wg);
    T_LE(stats().threads, 2);
}

static void few_threads(void *arg)
{
    int *threads = arg;
    mag_config cfg = {.procs = 2, .max_threads = *threads, .slice = MAG_MS};
    T_EQ(mag_run_with(&cfg, more_hogs_than_threads, NULL), 0);
}

static void the_thread_limit_is_no_deadlock(void)
{
    static struct t_child c;
    for (int threads = 1; threads <= 2; threads++) {
        t_fork(&c, few_threads, &threads);
        if (c.code != 0)
            T_FAIL("max_threads %d: code %d, signal %d%s\n%s", threads, c.code, c.signal,
                   c.timed_out ? ", timed out" : "", c.err);
        T_STR_HAS(c.err, "max_threads");
        T_EQ(strchr(c.err, '\n') - c.err, strlen(c.err) - 1); /* said once */
    }
}

/* ---- a crowd, and messages that came quickly before it ---- */

static int crowd_over;

static void *answers(void *fd)
{
    char c;
    while (read(*(int *)fd, &c, 1) == 1) {
        if (c == 's')
            t_sleep_ms(200);
        if (write(*(int *)fd, &c, 1) != 1)
            break;
    }
    return NULL;
}

static void joins_the_crowd(void *wg)
{
    while (!__atomic_load_n(&crowd_over, __ATOMIC_RELAXED))
        ;
    mag_wg_done(wg);
}

static void ask_once(int fd, char c)
{
    T_EQ(mag_write(fd, &c, 1, MAG_FOREVER), 1);
    T_EQ(mag_read(fd, &c, 1, MAG_FOREVER), 1);
}

static uint64_t polls(void)
{
    mag_stats s;
    T_GT(mag_stats_read(&s, NULL, 0), 0);
    return s.polls;
}

static void asks_in_a_crowd(void *arg)
{
    (void)arg;
    enum { CROWD = 5 };
    int fds[2];
    pthread_t t;
    mag_wg wg = {0};
    T_EQ(socketpair(AF_UNIX, SOCK_STREAM, 0, fds), 0);
    T_EQ(pthread_create(&t, NULL, answers, &fds[1]), 0);
    __atomic_store_n(&crowd_over, 0, __ATOMIC_RELAXED);
    mag_wg_add(&wg, CROWD);
    for (int i = 0; i < CROWD; i++)
        T_EQ(mag_go(joins_the_crowd, &wg), 0);
    T_EQ(mag_sleep(200 * MAG_MS), 0); /* each has lost its P */
    for (int i = 0; i < 500; i++)
        ask_once(fds[0], 'q');
    uint64_t before = polls();
    ask_once(fds[0], 's'); /* now it takes long: the poller sleeps */
    uint64_t meanwhile = polls() - before;
    __atomic_store_n(&crowd_over, 1, __ATOMIC_RELAXED);
    T_EQ(mag_wg_wait(&wg, MAG_FOREVER), 0);
    shutdown(fds[0], SHUT_RDWR);
    T_EQ(pthread_join(t, NULL), 0);
    close(fds[0]);
    close(fds[1]);
    printf("%llu polls  ", (unsigned long long)meanwhile);
    T_LT(meanwhile, 2000); /* for 60 us at most, a look every other microsecond, and then it sleeps */
}

static void bug_in_a_crowd_the_poller_never_slept(void) { T_EQ(mag_run_with(&(mag_config){.procs = 1}, asks_in_a_crowd, NULL), 0); }

int main(int argc, char **argv)
{
    t_init(argc, argv);
    T_RUN(others_run_beside_an_empty_loop);
    T_RUN(others_run_beside_memset);
    T_RUN(others_run_beside_qsort);
    T_RUN(others_run_beside_malloc);
    T_RUN(others_run_beside_usleep);
    T_RUN(a_negative_slice_never_ends);
    T_RUN(nobody_waits_nobody_is_preempted);
    T_RUN(a_checkpoint_yields_when_somebody_waits);
    T_RUN(a_checkpoint_does_nothing_alone);
    T_RUN(without_a_p_everything_works);
    T_RUN(without_a_p_while_it_is_busy);
    T_RUN(a_hog_lets_others_first);
    T_RUN(eight_hogs_on_two_ps);
    T_RUN(two_hundred_hogs_need_few_threads);
    T_RUN(the_thread_limit_is_no_deadlock);
    T_RUN(bug_in_a_crowd_the_poller_never_slept);
    return t_done();
}
