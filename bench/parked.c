/* SPDX-License-Identifier: MIT */
/* parked: a million goroutines to where they wait on a channel, and what each takes. Floor: in the same run, the first touch of a
 * page and the guard of a stack. */
#include "bench.h"

#include <string.h>
#include <sys/mman.h>

#ifndef MADV_GUARD_INSTALL
#define MADV_GUARD_INSTALL 102
#endif

enum { PARKED = 1000000, SLOT = 272 << 10 };

static mag_wg parked, done;
static mag_chan *gate;

static void waiter(void *arg)
{
    (void)arg;
    mag_wg_done(&parked);
    mag_chan_recv(gate, NULL, MAG_FOREVER);
    mag_wg_done(&done);
}

static long status(const char *name)
{
    char line[256];
    long value = 0;
    FILE *f = fopen("/proc/self/status", "r");
    while (f != NULL && fgets(line, sizeof line, f) != NULL)
        if (strncmp(line, name, strlen(name)) == 0)
            value = atol(line + strlen(name));
    if (f != NULL)
        fclose(f);
    return value * 1024;
}

static double bytes;

static double park(void *arg)
{
    (void)arg;
    long before = status("VmRSS:") + status("VmPTE:");
    gate = mag_chan_new(0, 0);
    mag_time start = mag_now();
    mag_wg_add(&parked, PARKED);
    mag_wg_add(&done, PARKED);
    for (int i = 0; i < PARKED; i++)
        if (mag_go(waiter, NULL) != 0)
            abort();
    mag_wg_wait(&parked, MAG_FOREVER);
    double ns = (double)(mag_now() - start) / PARKED;
    bytes = (double)(status("VmRSS:") + status("VmPTE:") - before) / PARKED;
    mag_chan_close(gate);
    mag_wg_wait(&done, MAG_FOREVER);
    mag_chan_unref(gate);
    mag_sleep(MAG_S); /* the memory goes back, so that every round begins alike */
    return ns;
}

/* What the kernel takes for as many stacks, as spread out: a guard, and a page at the top. As many, because in a virtual machine
 * memory that was not in use for long is dearer than memory that was. */
static double floor_of_stack(void *arg)
{
    (void)arg;
    char *at = mmap(NULL, (size_t)SLOT * PARKED, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (at == MAP_FAILED)
        return 0;
    madvise(at, (size_t)SLOT * PARKED, MADV_NOHUGEPAGE);
    mag_time start = mag_now();
    for (size_t i = 0; i < PARKED; i++) {
        madvise(at + i * SLOT, 16 << 10, MADV_GUARD_INSTALL);
        at[(i + 1) * SLOT - 64] = 1;
    }
    double ns = (double)(mag_now() - start) / PARKED;
    munmap(at, (size_t)SLOT * PARKED);
    return ns;
}

static void app(void *arg)
{
    (void)arg;
    double floor = bench_median(floor_of_stack, NULL);
    bench_print("parked1M", mag_procs(), bench_median(park, NULL), floor, PARKED);
    printf("  parked1M: %.0f bytes each, page tables included\n", bytes);
}

int main(void) { return mag_run(app, NULL) == 0 ? 0 : 1; }
