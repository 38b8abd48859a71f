/* SPDX-License-Identifier: MIT */
/* wake: how long a goroutine waits from mag_go to its first step, while its creator computes on and another P is idle.
 * Floor: a futex wake between two threads, from the wake to the sleeper's first step. Medians and 99th percentiles. */
#include "bench.h"

#include <linux/futex.h>
#include <pthread.h>
#include <sys/syscall.h>
#include <unistd.h>

enum { SAMPLES = 1000 };

static double ns[SAMPLES];
static mag_time asked;
static int ran;

static void print(const char *name, int procs, double floor)
{
    qsort(ns, SAMPLES, sizeof *ns, bench_by_size);
    bench_print(name, procs, ns[SAMPLES / 2], floor, SAMPLES);
    printf("  %s: p50 %.1f us, p99 %.1f us, most %.1f us\n", name, ns[SAMPLES / 2] / 1e3, ns[SAMPLES * 99 / 100] / 1e3,
           ns[SAMPLES - 1] / 1e3);
}

static void spin(int64_t for_ns)
{
    for (mag_time end = mag_in(for_ns); mag_now() < end;)
        continue;
}

static void first_step(void *arg)
{
    ns[*(int *)arg] = (double)(mag_now() - asked);
    __atomic_store_n(&ran, 1, __ATOMIC_RELEASE);
}

static double floor_p50;

static void app(void *arg)
{
    (void)arg;
    if (mag_procs() < 2) {
        printf("wake: needs two procs\n");
        return;
    }
    for (int i = 0; i < SAMPLES; i++) {
        spin(200 * MAG_US); /* long enough for the other P's thread to fall asleep */
        ran = 0;
        asked = mag_now();
        mag_go_copy(first_step, &i, sizeof i);
        while (!__atomic_load_n(&ran, __ATOMIC_ACQUIRE) && mag_now() < asked + 100 * MAG_MS)
            continue;
    }
    print("wake", mag_procs(), floor_p50);
}

static unsigned word;

static void *sleeper(void *arg)
{
    (void)arg;
    for (int i = 0; i < SAMPLES; i++) {
        while (__atomic_load_n(&word, __ATOMIC_ACQUIRE) == 0)
            syscall(SYS_futex, &word, FUTEX_WAIT_PRIVATE, 0, NULL, NULL, 0);
        ns[i] = (double)(mag_now() - asked);
        __atomic_store_n(&word, 0, __ATOMIC_RELEASE);
    }
    return NULL;
}

static double futexes(void)
{
    pthread_t thread;
    if (pthread_create(&thread, NULL, sleeper, NULL) != 0)
        return 0;
    for (int i = 0; i < SAMPLES; i++) {
        spin(200 * MAG_US);
        asked = mag_now();
        __atomic_store_n(&word, 1, __ATOMIC_RELEASE);
        syscall(SYS_futex, &word, FUTEX_WAKE_PRIVATE, 1, NULL, NULL, 0);
        while (__atomic_load_n(&word, __ATOMIC_ACQUIRE) != 0)
            continue;
    }
    pthread_join(thread, NULL);
    qsort(ns, SAMPLES, sizeof *ns, bench_by_size);
    return ns[SAMPLES / 2];
}

int main(void)
{
    floor_p50 = futexes();
    return mag_run(app, NULL) == 0 ? 0 : 1;
}
