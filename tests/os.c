/* SPDX-License-Identifier: MIT */
/* os.c: what the system tells of threads and cores. */
#include "test.h"

#include "os/os.h"

#include <pthread.h>

static int over;
static uint32_t tid;

static void *computes(void *arg)
{
    __atomic_store_n(&tid, mag__os_thread_id(), __ATOMIC_RELEASE);
    while (!__atomic_load_n(&over, __ATOMIC_RELAXED))
        ;
    return arg;
}

static void *sleeps(void *arg)
{
    __atomic_store_n(&tid, mag__os_thread_id(), __ATOMIC_RELEASE);
    while (!__atomic_load_n(&over, __ATOMIC_RELAXED))
        t_sleep_ms(50);
    return arg;
}

static pthread_t start(void *(*fn)(void *))
{
    pthread_t t;
    over = 0;
    tid = 0;
    T_EQ(pthread_create(&t, NULL, fn, NULL), 0);
    T_EVENTUALLY(__atomic_load_n(&tid, __ATOMIC_ACQUIRE) != 0, 5000);
    return t;
}

static void end(pthread_t t)
{
    __atomic_store_n(&over, 1, __ATOMIC_RELAXED);
    pthread_join(t, NULL);
}

/* What another thread has had of the processors, while it computes and while it sleeps. */
static void processor_time(void)
{
    pthread_t t = start(computes);
    int64_t before = mag__os_thread_cpu(tid);
    T_GE(before, 0);
    T_EVENTUALLY(mag__os_thread_cpu(tid) - before > 20000000, 10000);
    end(t);
    t = start(sleeps);
    t_sleep_ms(20);
    before = mag__os_thread_cpu(tid);
    t_sleep_ms(200);
    T_LT(mag__os_thread_cpu(tid) - before, 50000000);
    end(t);
    T_EVENTUALLY(mag__os_thread_cpu(tid) == -1, 5000); /* joined, but the kernel may take a moment */
}

/* Who runs is counted, on whatever core. */
static void running_threads(void)
{
    uint32_t cores = 0, alone = mag__os_running(&cores);
    T_GE(cores, 1);
    if (alone == 0)
        T_SKIP("/proc/loadavg cannot be read here");
    pthread_t t = start(computes);
    for (int i = 0; i < 100; i++)
        T_GE(mag__os_running(&cores), 2);
    end(t);
}

int main(int argc, char **argv)
{
    t_init(argc, argv);
    T_RUN(processor_time);
    T_RUN(running_threads);
    return t_done();
}
