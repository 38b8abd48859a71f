/* SPDX-License-Identifier: MIT */
/* cores.c: how many cores the others leave, and who is called to help then. */
#include "test.h"

#include "os/os.h"
#include "sched/cores.h"

#include <magpie.h>
#include <pthread.h>
#include <sys/socket.h>

#define LOOK_NS ((int64_t)5 * 1000 * 1000)
#define LONG_NS ((int64_t)2000 * 1000 * 1000)

/* ---- counting ---- */

static int over;

static void *takes_a_core(void *arg)
{
    while (!__atomic_load_n(&over, __ATOMIC_RELAXED))
        ;
    return arg;
}

static int64_t now_ = 1; /* only looks pass */

static void look(int times)
{
    for (int i = 0; i < times; i++) {
        now_ += LOOK_NS;
        mag__cores_look(now_, 1, true);
        t_sleep_ms(1);
    }
}

static uint32_t free_cores(void) { return at_32_load_rlx(&mag__rt.cores.free); }

static void others_are_counted(void)
{
    enum { MOST = 64 };
    pthread_t t[2 * MOST];
    uint32_t all = mag__os_cores();
    now_ += LONG_NS;
    look(1);
    if (all == 0 || all > MOST || !mag__cores_are_known())
        T_SKIP("who else runs cannot be told here");
    over = 0;
    for (uint32_t i = 0; i < 2 * all; i++)
        T_EQ(pthread_create(&t[i], NULL, takes_a_core, NULL), 0);
    look(200);
    T_TRUE(mag__cores_are_contested());
    T_EQ(free_cores(), 1); /* never none: somebody must do it */
    T_TRUE(mag__cores_have(1));
    T_TRUE(!mag__cores_have(2));
    __atomic_store_n(&over, 1, __ATOMIC_RELAXED);
    for (uint32_t i = 0; i < 2 * all; i++)
        pthread_join(t[i], NULL);
    T_EVENTUALLY((look(20), !mag__cores_are_contested()), 20000);
    int watch = mag__rt.cores.watch;
    T_GE(watch, 1);
    now_ += LONG_NS;
    mag__cores_look(now_, 1, false); /* nobody wants to know */
    T_TRUE(!mag__cores_are_known());
    T_TRUE(mag__cores_have(1000));
    T_EQ(fcntl(watch, F_GETFD), -1);
    mag__cores_stop();
}

/* ---- helpers ---- */

enum { PAIRS = 240, ROUNDS = 200 };
static int theirs[PAIRS];

enum { FULL, CONTESTED, FREE, CASES };
static uint64_t called[CASES];

/* So that all of them are much, and each is over before a helper would be awake. */
static void think(void)
{
    for (int64_t end = t_now() + 4000; t_now() < end;)
        ;
}

static void returns_them(void *arg)
{
    int fd = *(int *)arg;
    char byte;
    while (mag_read(fd, &byte, 1, MAG_FOREVER) == 1) {
        think();
        if (mag_write(fd, &byte, 1, MAG_FOREVER) != 1)
            break;
    }
    mag_close(fd);
}

/* What sysmon would find out, once and for all. */
static void say(int what)
{
    mag__rt.cores.at = INT64_MAX / 2;
    t_sleep_ms(20);
    at_32_store_rlx(&mag__rt.cores.contested, what == CONTESTED);
    at_32_store_rlx(&mag__rt.cores.free, what == FREE ? 2 : 1);
}

static void send_and_wait(int rounds)
{
    char byte = 'x';
    for (int r = 0; r < rounds; r++) {
        for (int i = 0; i < PAIRS; i++)
            T_EQ(write(theirs[i], &byte, 1), 1);
        for (int i = 0; i < PAIRS; i++)
            T_EQ(read(theirs[i], &byte, 1), 1);
    }
}

static void *is_the_client(void *arg)
{
    for (int i = 0; i < CASES; i++) {
        mag_stats before, after;
        say(i);
        send_and_wait(ROUNDS / 10);
        mag_stats_read(&before, NULL, 0);
        send_and_wait(ROUNDS);
        mag_stats_read(&after, NULL, 0);
        called[i] = after.wakes - before.wakes;
    }
    mag__rt.cores.at = 0;
    for (int i = 0; i < PAIRS; i++)
        close(theirs[i]);
    return arg;
}

static void serves(void *arg)
{
    pthread_t t;
    (void)arg;
    for (int i = 0; i < PAIRS; i++) {
        int fds[2];
        T_EQ(socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, fds), 0);
        theirs[i] = fds[1];
        T_EQ(MAG_GO(returns_them, int, fds[0]), 0);
    }
    T_EQ(pthread_create(&t, NULL, is_the_client, NULL), 0);
    mag_block_begin();
    pthread_join(t, NULL);
    mag_block_end();
}

/* A client sends many at once to goroutines that answer soon, while another P is idle. */
static void nobody_is_called_where_the_machine_is_full(void)
{
#ifdef MAG_HOSTILE
    T_SKIP("its ring is tiny, and others are woken for what spills");
#endif
    if (t_state.slow > 1)
        T_SKIP("its slices are not short here");
    for (int tries = 0; tries < 12 && (tries == 0 || called[FULL] >= ROUNDS / 10); tries++) /* a thread that lost its core had a long slice */
        T_EQ(mag_run_with(&(mag_config){.procs = 2}, serves, NULL), 0);
    printf("%llu times; %llu; %llu: ", (unsigned long long)called[FULL], (unsigned long long)called[CONTESTED], (unsigned long long)called[FREE]);
    T_LT(called[FULL], ROUNDS / 10);
    T_GT(called[CONTESTED], ROUNDS / 5);
    T_GT(called[FREE], ROUNDS / 5);
}

int main(int argc, char **argv)
{
    t_init(argc, argv);
    T_RUN(others_are_counted);
    T_RUN(nobody_is_called_where_the_machine_is_full);
    return t_done();
}
