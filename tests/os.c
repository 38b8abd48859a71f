/* SPDX-License-Identifier: MIT */
/* os.c: what the system tells of threads and cores. */
#include "test.h"

#include "os/os.h"

#include <fcntl.h>
#include <pthread.h>
#include <stdio.h>
#include <unistd.h>

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
    int watch = 0;
    if (mag__os_running(&watch) == 0)
        T_SKIP("/proc/loadavg cannot be read here");
    T_GE(watch, 1);
    int first = watch;
    pthread_t t = start(computes);
    for (int i = 0; i < 100; i++)
        T_GE(mag__os_running(&watch), 2);
    T_EQ(watch, first);
    end(t);
    mag__os_unwatch(watch);
}

/* What is watched was closed by somebody, and the number is another file's: nothing is taken from that, and it stays open. */
static void another_file_in_its_place(void)
{
    static const char *const texts[] = {"", "0.10 0.20 0.30", "0.10 0.20 0.30 4", "0.10 0.20 0.30 x/5 6", "0.10 0.20 0.30 99999999999999/5 6"};
    int watch = 0, fds[2];
    if (mag__os_running(&watch) == 0)
        T_SKIP("/proc/loadavg cannot be read here");
    for (size_t i = 0; i < sizeof texts / sizeof *texts; i++) {
        FILE *file = tmpfile();
        fputs(texts[i], file);
        fflush(file);
        int number = watch;
        T_EQ(dup2(fileno(file), number), number);
        T_EQ(mag__os_running(&watch), 0);
        T_EQ(watch, 0);
        T_EQ(fcntl(number, F_GETFD), 0);
        T_GE(mag__os_running(&watch), 1); /* under another number */
        T_TRUE(watch != number);
        close(number);
        fclose(file);
    }
    T_EQ(pipe(fds), 0);
    int number = watch;
    T_EQ(dup2(fds[0], number), number);
    T_EQ(mag__os_running(&watch), 0); /* and it does not wait for one to write */
    close(fds[0]);
    close(fds[1]);
    close(number);
}

int main(int argc, char **argv)
{
    t_init(argc, argv);
    T_RUN(processor_time);
    T_RUN(running_threads);
    T_RUN(another_file_in_its_place);
    return t_done();
}
