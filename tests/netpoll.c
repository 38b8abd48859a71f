/* SPDX-License-Identifier: MIT */
/* netpoll.c: who asks the kernel for events, and what becomes of the others meanwhile: beside one that computes or blocks, and where threads
 * outside take every core. */
#include "test.h"

#include <magpie.h>
#include <pthread.h>
#include <sys/socket.h>

/* ---- a P whose events never end looks after the others ---- */

enum { BEHIND = 32 };

static int there[2], back[2];
static long ran_behind;

/* Each byte makes another one ready: whenever their P asks the kernel, something has come. */
static void passes_on(void *arg)
{
    bool first = *(int *)arg != 0;
    char byte;
    while (mag_read(first ? there[0] : back[0], &byte, 1, MAG_FOREVER) == 1)
        T_EQ(mag_write(first ? back[1] : there[1], &byte, 1, MAG_FOREVER), 1);
}

static void runs_behind(void *arg)
{
    (void)arg;
    __atomic_add_fetch(&ran_behind, 1, __ATOMIC_RELEASE);
}

static void computes_before_them(void *arg)
{
    (void)arg;
    T_EQ(MAG_GO(passes_on, int, 0), 0);
    T_EQ(MAG_GO(passes_on, int, 1), 0);
    T_EQ(mag_write(there[1], "x", 1, MAG_FOREVER), 1);
    mag_sleep(20 * MAG_MS); /* they are on one P by then, or come to be when this one computes */
    for (int i = 0; i < BEHIND; i++)
        T_EQ(mag_go(runs_behind, NULL), 0);
    for (int64_t end = t_now() + 10 * MAG_S; __atomic_load_n(&ran_behind, __ATOMIC_ACQUIRE) < BEHIND && t_now() < end;)
        ;
    T_EQ(__atomic_load_n(&ran_behind, __ATOMIC_ACQUIRE), BEHIND); /* it never gave up its P, and the other one always had events */
}

static void events_do_not_hide_the_others(void)
{
    ran_behind = 0;
    T_EQ(pipe2(there, O_NONBLOCK | O_CLOEXEC), 0);
    T_EQ(pipe2(back, O_NONBLOCK | O_CLOEXEC), 0);
    T_EQ(mag_run_with(&(mag_config){.procs = 2, .slice = -1}, computes_before_them, NULL), 0);
    for (int i = 0; i < 2; i++) {
        close(there[i]);
        close(back[i]);
    }
}

/* ---- a full machine ---- */

/* Threads outside take every core. A P of messages that does not get on may only have lost its own; one whose goroutine computes must be
 * seen all the same, and the others must not wait for it. */
enum { PAIRS = 24, COMPUTES_MS = 3000 };
static int pairs_over, crowd_over;
static int64_t worst_turn;

static void *takes_a_core(void *arg)
{
    while (!__atomic_load_n(&crowd_over, __ATOMIC_RELAXED))
        ;
    return arg;
}

static void returns_them(void *arg)
{
    int fd = *(int *)arg;
    char byte;
    while (mag_read(fd, &byte, 1, MAG_FOREVER) == 1 && mag_write(fd, &byte, 1, MAG_FOREVER) == 1)
        ;
    mag_close(fd);
}

static void plays(void *arg)
{
    int fd = *(int *)arg;
    char byte = 0;
    while (!__atomic_load_n(&pairs_over, __ATOMIC_RELAXED)) {
        int64_t before = t_now(), worst = __atomic_load_n(&worst_turn, __ATOMIC_RELAXED);
        T_EQ(mag_write(fd, &byte, 1, MAG_FOREVER), 1);
        T_EQ(mag_read(fd, &byte, 1, MAG_FOREVER), 1);
        int64_t turn = t_now() - before;
        while (turn > worst && !__atomic_compare_exchange_n(&worst_turn, &worst, turn, false, __ATOMIC_RELAXED, __ATOMIC_RELAXED))
            ;
    }
    mag_close(fd);
}

static void computes_for_long(void *arg)
{
    (void)arg;
    for (int64_t end = t_now() + COMPUTES_MS * MAG_MS; t_now() < end;)
        ;
}

static void computes_among_them(void *arg)
{
    (void)arg;
    mag_group group = {0};
    for (int i = 0; i < PAIRS; i++) {
        int fd[2];
        T_EQ(socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, fd), 0);
        T_EQ(MAG_GROUP_GO(&group, returns_them, int, fd[0]), 0);
        T_EQ(MAG_GROUP_GO(&group, plays, int, fd[1]), 0);
    }
    mag_sleep(300 * MAG_MS); /* their slices are known to be short, and the machine to be full */
    __atomic_store_n(&worst_turn, 0, __ATOMIC_RELAXED);
    for (int i = 1; i < mag_procs(); i++) /* one for each P */
        T_EQ(mag_go(computes_for_long, NULL), 0);
    computes_for_long(NULL);
    __atomic_store_n(&pairs_over, 1, __ATOMIC_RELAXED);
    T_EQ(mag_group_wait(&group, MAG_FOREVER), 0);
    T_LT(worst_turn, COMPUTES_MS / 2 * MAG_MS);
}

static void on_a_full_machine(int procs, mag_fn fn)
{
    enum { MOST = 64 };
    pthread_t threads[MOST];
    long cores = sysconf(_SC_NPROCESSORS_ONLN), n = cores < MOST ? cores : MOST;
    pairs_over = crowd_over = 0;
    for (long i = 0; i < n; i++)
        T_EQ(pthread_create(&threads[i], NULL, takes_a_core, NULL), 0);
    T_EQ(mag_run_with(&(mag_config){.procs = procs}, fn, NULL), 0);
    __atomic_store_n(&crowd_over, 1, __ATOMIC_RELAXED);
    for (long i = 0; i < n; i++)
        pthread_join(threads[i], NULL);
}

static void who_computes_is_seen_on_a_full_machine(void)
{
    on_a_full_machine(1, computes_among_them);
    on_a_full_machine(2, computes_among_them);
}

/* Nor has one a core that sleeps in the kernel: what waits behind it waited to its end, while the other P was idle. */
enum { BLOCKS_MS = 1000 };

static void blocks(void *arg)
{
    (void)arg;
    usleep(BLOCKS_MS * 1000);
}

static void waits_behind_one_that_blocks(void *arg)
{
    (void)arg;
    for (int round = 0; round < 3; round++) {
        int fd[2];
        mag_group group = {0};
        T_EQ(socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, fd), 0);
        __atomic_store_n(&pairs_over, 0, __ATOMIC_RELAXED);
        T_EQ(MAG_GROUP_GO(&group, returns_them, int, fd[0]), 0);
        T_EQ(MAG_GROUP_GO(&group, plays, int, fd[1]), 0);
        for (int64_t end = t_now() + 300 * MAG_MS; t_now() < end;) /* messages on this P, and nobody waits for one afterwards */
            mag_yield();
        __atomic_store_n(&pairs_over, 1, __ATOMIC_RELAXED);
        T_EQ(mag_group_wait(&group, MAG_FOREVER), 0);
        T_EQ(mag_group_go(&group, blocks, NULL), 0);
        int64_t before = t_now();
        mag_yield();
        T_LT(t_now() - before, BLOCKS_MS / 2 * MAG_MS);
        T_EQ(mag_group_wait(&group, MAG_FOREVER), 0);
    }
}

static void who_blocks_is_seen_on_a_full_machine(void) { on_a_full_machine(2, waits_behind_one_that_blocks); }

int main(int argc, char **argv)
{
    t_init(argc, argv);
    T_RUN(events_do_not_hide_the_others);
    T_RUN(who_computes_is_seen_on_a_full_machine);
    T_RUN(who_blocks_is_seen_on_a_full_machine);
    return t_done();
}
