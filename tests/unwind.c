/* SPDX-License-Identifier: MIT */
/* unwind.c: for unwind.py: a goroutine that has been on several threads stands deep in its own calls. "trap": it stops there for
 * a debugger; "spin": it computes there for a while, for a profiler. */
#include <magpie.h>
#include <signal.h>
#include <string.h>

static int spins;
static mag_wg wg;
static volatile unsigned sink;

__attribute__((noinline)) static void unwind_inner(void)
{
    if (!spins)
        raise(SIGTRAP);
    for (mag_time end = mag_in(300 * MAG_MS); spins && mag_now() < end;)
        for (int i = 0; i < 100000; i++)
            sink += (unsigned)i;
    sink++;
}

__attribute__((noinline)) static void unwind_middle(int n)
{
    mag_yield(); /* a switch has been here */
    if (n > 0)
        unwind_middle(n - 1);
    else
        unwind_inner();
    sink++;
}

__attribute__((noinline)) static void unwind_goroutine(void *arg)
{
    (void)arg;
    volatile int deep = 2; /* -O3 makes a clone for each depth it knows, under a name of its own */
    unwind_middle(deep);
    mag_wg_done(&wg);
}

static void beside(void *arg)
{
    (void)arg;
    for (int i = 0; i < 1000; i++)
        mag_yield();
    mag_wg_done(&wg);
}

static void app(void *arg)
{
    (void)arg;
    mag_wg_add(&wg, 2);
    mag_go(beside, NULL);
    mag_go(unwind_goroutine, NULL);
    mag_wg_wait(&wg, MAG_FOREVER);
}

int main(int argc, char **argv)
{
    spins = argc > 1 && strcmp(argv[1], "spin") == 0;
    return mag_run(app, NULL);
}
