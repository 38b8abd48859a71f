/* SPDX-License-Identifier: MIT */
/* bugs.c: bugs that other runtimes had in scheduling, preemption and stacks, each under its name, against the whole of ours.
 * Those of queues: bugs_queue.c; of wake-ups: bugs_wake.c; of thread-locals: bug_brpc_1776_3380.c. */
#include "test.h"

#include <magpie.h>
#include <pthread.h>
#include <sched.h>
#include <sys/mman.h>
#include <unistd.h>

static void set(int *flag) { __atomic_store_n(flag, 1, __ATOMIC_RELEASE); }
static int get(const int *flag) { return __atomic_load_n(flag, __ATOMIC_ACQUIRE); }
static void sets(void *flag) { set(flag); }
static void add(long *n) { __atomic_add_fetch(n, 1, __ATOMIC_RELAXED); }
static long read_count(const long *n) { return __atomic_load_n(n, __ATOMIC_RELAXED); }
static void wait_for(mag_wg *wg) { T_EQ(mag_wg_wait(wg, MAG_FOREVER), 0); }
static void done(void *wg) { mag_wg_done(wg); }

static void on(int procs, int64_t slice, mag_fn fn, void *arg)
{
    T_EQ(mag_run_with(&(mag_config){.procs = procs, .slice = slice}, fn, arg), 0);
}

static mag_stats stats(void)
{
    mag_stats total;
    T_GT(mag_stats_read(&total, NULL, 0), 0);
    return total;
}

/* In user code all the while: the P stays where it is. */
static void spin_until(const int *flag, const char *what)
{
    int64_t end = t_now() + 15 * MAG_S * t_state.slow;
    for (int i = 0; !get(flag); i++)
        if (i % 1000 == 999) {
            if (t_now() > end)
                T_FAIL("%s", what);
            sched_yield();
        }
}

static int by_value(const void *a, const void *b)
{
    int64_t x = *(const int64_t *)a, y = *(const int64_t *)b;
    return x < y ? -1 : x > y;
}

static int64_t cpu_time(void)
{
    struct timespec t;
    clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &t);
    return t.tv_sec * MAG_S + t.tv_nsec;
}

/* ---- tokio_5712 ----
 * Two tasks that wake each other through the slot that runs first kept everybody else from running. */

static struct {
    mag_wg ball[2], wg;
    int stop;
    long turns[3];
} game;

static void plays(void *arg)
{
    int me = (int)(intptr_t)arg;
    for (;;) {
        wait_for(&game.ball[me]);
        mag_wg_add(&game.ball[me], 1);
        if (get(&game.stop))
            break;
        add(&game.turns[me]);
        if (read_count(&game.turns[me]) == t_scale(100000))
            set(&game.stop);
        mag_wg_done(&game.ball[!me]);
    }
    mag_wg_done(&game.ball[!me]);
    mag_wg_done(&game.wg);
}

static void looks_on(void *arg)
{
    (void)arg;
    while (!get(&game.stop)) {
        add(&game.turns[2]);
        mag_yield();
    }
    mag_wg_done(&game.wg);
}

static void ping_pong(void *arg)
{
    (void)arg;
    memset(&game, 0, sizeof game);
    mag_wg_add(&game.wg, 3);
    mag_wg_add(&game.ball[1], 1);
    for (intptr_t i = 0; i < 2; i++)
        T_EQ(mag_go(plays, (void *)i), 0);
    T_EQ(mag_go(looks_on, NULL), 0);
    wait_for(&game.wg);
}

static void tokio_5712_a_pair_starves_a_third(void)
{
    on(1, -1, ping_pong, NULL);
    long total = game.turns[0] + game.turns[1] + game.turns[2];
    for (int i = 0; i < 3; i++)
        T_GE(game.turns[i], total / 3 / 20);
}

/* ---- tokio_4941 ----
 * What stands in the slot that runs first could not be stolen: while its worker computed it waited, and other workers slept. */

enum { SAMPLES = 51 };

static struct {
    mag_wg gate, over;
    int64_t at, late[SAMPLES];
    int ran;
} slot;

static void notes_when(void *late)
{
    *(int64_t *)late = t_now() - slot.at;
    set(&slot.ran);
}

static void waits_and_notes(void *late)
{
    wait_for(&slot.gate);
    notes_when(late);
}

/* Makes one runnable and computes until it has run: on another P, whose owner sleeps. */
static void computes_beside_it(void *arg)
{
    bool woken = *(bool *)arg;
    for (int i = 0; i < SAMPLES; i++) {
        slot.ran = 0;
        if (woken) {
            mag_wg_add(&slot.gate, 1);
            uint64_t parks = stats().parks;
            T_EQ(mag_go(waits_and_notes, &slot.late[i]), 0);
            while (stats().parks == parks)
                mag_yield();
        }
        t_sleep_ms(2);
        slot.at = t_now();
        if (woken)
            mag_wg_done(&slot.gate);
        else
            T_EQ(mag_go(notes_when, &slot.late[i]), 0);
        spin_until(&slot.ran, "the next one to run is nobody's while its P computes");
    }
}

static void tokio_4941_the_first_slot_is_stolen(void)
{
    for (int woken = 0; woken < 2; woken++) {
        on(2, -1, computes_beside_it, &(bool){woken});
        qsort(slot.late, SAMPLES, sizeof *slot.late, by_value);
        printf("p50 %lld us  ", (long long)slot.late[SAMPLES / 2] / 1000);
        fflush(stdout);
        T_LT(slot.late[SAMPLES / 2], 50 * MAG_MS * t_state.slow);
    }
}

/* ---- go_43997 ----
 * Threads that found work which they could not take did not sleep and did not stop looking. (Its other half: bugs_queue.c.) */

static void too_few_to_steal(void *arg)
{
    (void)arg;
    mag_wg wg = {0};
    int few = 3;
    mag_wg_add(&wg, few);
    for (int i = 0; i < few; i++)
        T_EQ(mag_go(done, &wg), 0);
    t_sleep_ms(50); /* the others look, and see that it is too little */
    int64_t before = cpu_time();
    t_sleep_ms(500);
    T_LT(cpu_time() - before, 100 * MAG_MS * t_state.slow); /* one that spins takes all of it */
    wait_for(&wg);
}

static void go_43997_spinning_beside_work(void)
{
    mag_config cfg = {.procs = 8, .steal_min = 4, .slice = -1};
    T_EQ(mag_run_with(&cfg, too_few_to_steal, NULL), 0);
}

/* ---- photon_1246, photon_1435 ----
 * A thief that came to a worker from which it may not steal stayed with it for ever: the step to the next one was left out. */

static void among_the_idle(void *arg)
{
    (void)arg;
    mag_wg wg = {0};
    mag_wg_add(&wg, 2000);
    for (int i = 0; i < 2000; i++)
        T_EQ(mag_go(done, &wg), 0);
    wait_for(&wg);
    for (long i = 0; i < t_scale(1000); i++) { /* one victim, and many that are idle */
        int first = 0, second = 0;
        T_EQ(mag_go(sets, &first), 0);
        T_EQ(mag_go(sets, &second), 0);
        spin_until(&first, "no thief has come by all the idle ones");
        while (!get(&second))
            mag_yield();
    }
    t_sleep_ms(50);
    int64_t before = cpu_time();
    t_sleep_ms(500);
    T_LT(cpu_time() - before, 100 * MAG_MS * t_state.slow);
}

static void photon_1246_1435_victims_to_be_passed_by(void) { on(16, -1, among_the_idle, NULL); }

/* ---- go_37741 ----
 * Preempted from many sides at once, a thread did nothing but be preempted. */

static struct {
    mag_wg wg;
    int stop;
} storm;

static void works_in_steps(void *arg)
{
    long steps = t_scale(5000);
    for (long i = 0; i < steps; i++) {
        for (volatile int k = 0; k < 1000; k++)
            ;
        if (i % 2)
            mag_checkpoint();
        else
            mag_yield();
    }
    mag_wg_done(arg);
}

static void *takes_ps_away(void *arg)
{
    uint64_t random = (uintptr_t)arg;
    while (!get(&storm.stop))
        T_GE(mag_set_procs(1 + (int)(t_random_r(&random) % 3)), 1);
    return NULL;
}

static void works_in_a_storm(void *arg)
{
    (void)arg;
    enum { N = 8, THREADS = 3 };
    pthread_t t[THREADS];
    memset(&storm, 0, sizeof storm);
    for (uintptr_t i = 0; i < THREADS; i++)
        T_EQ(pthread_create(&t[i], NULL, takes_ps_away, (void *)(t_state.seed + i)), 0);
    mag_wg_add(&storm.wg, N);
    for (int i = 0; i < N; i++)
        T_EQ(mag_go(works_in_steps, &storm.wg), 0);
    wait_for(&storm.wg);
    set(&storm.stop);
    for (int i = 0; i < THREADS; i++)
        T_EQ(pthread_join(t[i], NULL), 0);
}

static void go_37741_preempted_from_all_sides(void)
{
    on(3, 1, works_in_a_storm, NULL);
} /* every slice is over at once */

/* ---- crystal_8138 ----
 * The stack of a task that ended was given to a new one on another thread, while the old one still stood on it. */

static mag_wg marks;

static __attribute__((noinline)) void marks_its_stack(void *arg)
{
    volatile uint64_t mark[150];
    uint64_t mine = (uintptr_t)arg * UINT64_C(0x9e3779b97f4a7c15);
    for (int i = 0; i < 150; i++)
        mark[i] = mine + (uint64_t)i;
    if ((uintptr_t)arg % 4 == 0)
        mag_yield();
    for (int i = 0; i < 150; i++)
        T_EQ(mark[i], mine + (uint64_t)i);
    mag_wg_done(&marks);
}

static void comes_and_goes(void *arg)
{
    for (long i = 0; i < t_scale(100000); i++) {
        mag_wg_add(&marks, 1);
        T_EQ(mag_go(marks_its_stack, (void *)((uintptr_t)i << 8 | (uintptr_t)arg)), 0);
        if (i % 50 == 0)
            mag_yield();
    }
    mag_wg_done(&marks);
}

static void four_spawn(void *arg)
{
    (void)arg;
    mag_wg_add(&marks, 4);
    for (uintptr_t i = 0; i < 4; i++)
        T_EQ(mag_go(comes_and_goes, (void *)i), 0);
    wait_for(&marks);
}

static void crystal_8138_a_stack_used_too_soon(void)
{
    if (T_TSAN)
        T_SKIP("too many at a time for the thread sanitizer");
    on(4, 0, four_spawn, NULL);
}

/* ---- libdill_130 ----
 * After 32,700 coroutines there was no mapping left for the guard of the next stack. And those before may not pay for it either. */

static bool guards_are_cheap(void)
{
    int fd[2];
    bool cheap = false;
    void *at = mmap(NULL, 4096, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    T_TRUE(at != MAP_FAILED && pipe(fd) == 0);
    if (madvise(at, 4096, 102 /* MADV_GUARD_INSTALL */) == 0)
        cheap = write(fd[1], at, 1) < 0;
    close(fd[0]);
    close(fd[1]);
    munmap(at, 4096);
    return cheap;
}

static mag_wg gate;
static void waits(void *arg)
{
    (void)arg;
    wait_for(&gate);
}

struct parked {
    long n;
    int64_t each;
};

static void spawns_and_wakes(void *arg)
{
    struct parked *p = arg;
    uint64_t before = stats().parks;
    int64_t start = t_now();
    mag_wg_add(&gate, 1);
    for (long i = 0; i < p->n; i++) {
        T_EQ(mag_go(waits, NULL), 0);
        if (i % 128 == 0)
            mag_yield();
    }
    while (stats().parks < before + (uint64_t)p->n) { /* all have a stack */
        if (t_now() > start + 30 * MAG_S * t_state.slow)
            T_FAIL("%llu of %ld have a stack", (unsigned long long)(stats().parks - before), p->n);
        mag_yield();
    }
    mag_wg_done(&gate);
    while (stats().goroutines > 1)
        mag_yield();
    p->each = (t_now() - start) / p->n;
}

static int64_t best_of_three(long n)
{
    struct parked p = {.n = n};
    int64_t best = INT64_MAX;
    for (int i = 0; i < 3; i++) {
        on(2, 0, spawns_and_wakes, &p);
        best = p.each < best ? p.each : best;
    }
    return best;
}

static void libdill_130_beyond_32k_stacks(void)
{
    if (T_TSAN)
        T_SKIP("too many at a time for the thread sanitizer");
    if (!guards_are_cheap())
        T_SKIP("a guard costs a mapping here");
    long more = t_state.slow > 2 ? 40000 : 65536;
    int64_t few = best_of_three(more / 4), many = best_of_three(more);
    printf("%lld ns each of %ld, %lld of %ld  ", (long long)few, more / 4, (long long)many, more);
    fflush(stdout);
    T_LE(many, 4 * few);
}

/* ---- go_60782 ----
 * The number of those who waited for one lock was kept in too few bits. Ours are chained, not counted: more than 16 bits hold
 * wait for a mutex, a rwmutex and a semaphore at once, and each gets its turn. */

static struct {
    mag_mutex mutex;
    mag_rwmutex rw;
    mag_sem sem;
    mag_wg wg;
    long turns;
} crowd;

static void waits_for_all(void *arg)
{
    (void)arg;
    mag_mutex_lock(&crowd.mutex);
    crowd.turns++; /* plain: the mutex guards it */
    mag_mutex_unlock(&crowd.mutex);
    mag_rwmutex_rlock(&crowd.rw);
    mag_rwmutex_runlock(&crowd.rw);
    T_EQ(mag_sem_wait(&crowd.sem, MAG_FOREVER), 0);
    mag_wg_done(&crowd.wg);
}

static void more_than_16_bits(void *arg)
{
    long n = *(long *)arg;
    memset(&crowd, 0, sizeof crowd);
    mag_sem_init(&crowd.sem, 0);
    mag_wg_add(&crowd.wg, (int)n);
    mag_mutex_lock(&crowd.mutex);
    mag_rwmutex_lock(&crowd.rw);
    for (long i = 0; i < n; i++)
        T_EQ(mag_go_with(&(mag_go_config){.stack_size = 16 << 10}, waits_for_all, NULL), 0);
    while (stats().runnable > 0)
        mag_yield();
    mag_mutex_unlock(&crowd.mutex);
    while (stats().runnable > 0)
        mag_yield();
    mag_rwmutex_unlock(&crowd.rw);
    mag_sem_post(&crowd.sem, (unsigned)n);
    wait_for(&crowd.wg);
    T_EQ(crowd.turns, n);
}

static void go_60782_more_waiters_than_16_bits(void)
{
    if (!T_TSAN && !guards_are_cheap())
        T_SKIP("a guard costs a mapping here");
    long n = T_TSAN ? 2000 : 70000;
    on(2, 0, more_than_16_bits, &n);
}

/* ---- go_38860 ----
 * A timer of a P that was busy, without being idle for a moment, fired late by tens of milliseconds. */

static int tired;

static void works_in_pieces(void *wg)
{
    while (!get(&tired)) {
        for (int64_t end = t_now() + 500000; t_now() < end;)
            ;
        mag_yield();
    }
    mag_wg_done(wg);
}

static void sleeps_beside_work(void *arg)
{
    enum { N = 101 };
    static int64_t late[N];
    mag_wg wg = {0};
    int n = 3 * mag_procs();
    (void)arg;
    tired = 0;
    mag_wg_add(&wg, n);
    for (int i = 0; i < n; i++)
        T_EQ(mag_go(works_in_pieces, &wg), 0);
    for (int i = 0; i < N; i++) {
        mag_time due = mag_in(MAG_MS);
        T_EQ(mag_sleep_until(due), 0);
        late[i] = mag_now() - due;
    }
    set(&tired);
    wait_for(&wg);
    qsort(late, N, sizeof *late, by_value);
    printf("%.2f ms late at the median  ", (double)late[N / 2] / 1e6);
    T_LT(late[N / 2], 10 * MAG_MS * t_state.slow);
}

static void go_38860_timers_of_busy_ps(void)
{
    on(1, 0, sleeps_beside_work, NULL);
    on(2, 0, sleeps_beside_work, NULL);
}

/* ---- go_63555 ----
 * What the poller found was put into the queue of a P just as it went idle, and lay there. A thread outside answers through
 * a pipe at moments when the Ps are about to sleep. */

static struct {
    int to[2], from[2];
} pipes;

static void *answers(void *arg)
{
    char c;
    uint64_t random = 1;
    (void)arg;
    while (read(pipes.to[0], &c, 1) == 1) {
        for (uint32_t n = t_random_r(&random) % 20000; n > 0; n--)
            __asm__ volatile("");
        if (write(pipes.from[1], &c, 1) != 1)
            break;
    }
    return NULL;
}

static void asks(void *arg)
{
    char c = 'x';
    (void)arg;
    for (long i = 0; i < t_scale(20000); i++) {
        T_EQ(mag_write(pipes.to[1], &c, 1, MAG_FOREVER), 1);
        T_EQ(mag_read(pipes.from[0], &c, 1, mag_in(10 * MAG_S)), 1);
    }
}

static void go_63555_events_for_a_p_that_goes_idle(void)
{
    for (int procs = 1; procs <= 4; procs *= 2) {
        pthread_t t;
        T_EQ(pipe(pipes.to), 0);
        T_EQ(pipe(pipes.from), 0);
        T_EQ(pthread_create(&t, NULL, answers, NULL), 0);
        on(procs, 0, asks, NULL);
        close(pipes.to[1]);
        pthread_join(t, NULL);
        close(pipes.to[0]);
        close(pipes.from[0]);
        close(pipes.from[1]);
    }
}

/* ---- zio_574 ----
 * A contended mutex cost nine times as much with two workers as with one: each release woke a thread. */

enum { CONTENDERS = 8 };
static mag_mutex contended;
static long guarded;

static void contends(void *wg)
{
    for (long i = t_scale(100000); i > 0; i--) {
        mag_mutex_lock(&contended);
        guarded++;
        mag_mutex_unlock(&contended);
    }
    mag_wg_done(wg);
}

static void contention(void *took)
{
    mag_wg wg = {0};
    int64_t start = t_now();
    mag_wg_add(&wg, CONTENDERS);
    for (int i = 0; i < CONTENDERS; i++)
        T_EQ(mag_go(contends, &wg), 0);
    wait_for(&wg);
    int64_t ns = t_now() - start;
    if (ns < *(int64_t *)took)
        *(int64_t *)took = ns;
}

static void zio_574_a_mutex_with_two_workers(void)
{
    int64_t one = INT64_MAX, two = INT64_MAX;
    guarded = 0;
    for (int i = 0; i < 5; i++) {
        on(1, 0, contention, &one);
        on(2, 0, contention, &two);
    }
    T_EQ(guarded, 10 * CONTENDERS * t_scale(100000));
    printf("%.1f times as much  ", (double)two / (double)one);
    T_LT(two, 9 * one); /* bench/mutex says how much exactly */
}

int main(int argc, char **argv)
{
    t_init(argc, argv);
    T_RUN(tokio_5712_a_pair_starves_a_third);
    T_RUN(tokio_4941_the_first_slot_is_stolen);
    T_RUN(go_43997_spinning_beside_work);
    T_RUN(photon_1246_1435_victims_to_be_passed_by);
    T_RUN(go_37741_preempted_from_all_sides);
    T_RUN(crystal_8138_a_stack_used_too_soon);
    T_RUN(libdill_130_beyond_32k_stacks);
    T_RUN(go_60782_more_waiters_than_16_bits);
    T_RUN(go_38860_timers_of_busy_ps);
    T_RUN(go_63555_events_for_a_p_that_goes_idle);
    T_RUN(zio_574_a_mutex_with_two_workers);
    return t_done();
}
