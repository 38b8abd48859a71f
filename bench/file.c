/* SPDX-License-Identifier: MIT */
/* file: blocks of 4 KiB read past the page cache by 1, 8, 64 and 1,000 goroutines, and fsync after a write by 1, 8 and 64. A build with
 * -During=disabled has a thread for each. Floor: one plain thread, one block after the other. */
#include "bench.h"

#include <fcntl.h>
#include <stdbool.h>
#include <string.h>
#include <unistd.h>

enum { BLOCK = 4096, BLOCKS = 16384, READS = 20000, SYNCS = 2000 };

struct load {
    int goroutines, each;
    bool sync;
};

static const char name[] = "./bench-file";
static mag_wg wg;

static void check(bool good)
{
    if (good)
        return;
    perror("file");
    unlink(name);
    exit(1);
}

static off_t somewhere(unsigned *seed)
{
    *seed = *seed * 1103515245u + 12345u;
    return (off_t)(*seed >> 8) % BLOCKS * BLOCK;
}

static void reader(void *arg)
{
    const struct load *l = arg;
    int fd = mag_open(name, O_RDONLY | O_DIRECT, 0);
    unsigned seed = (unsigned)mag_id();
    char *buf = aligned_alloc(BLOCK, BLOCK);
    check(fd >= 0);
    for (int i = 0; i < l->each; i++)
        check(mag_pread(fd, buf, BLOCK, somewhere(&seed), MAG_FOREVER) == BLOCK);
    mag_close(fd);
    free(buf);
    mag_wg_done(&wg);
}

static void syncer(void *arg)
{
    const struct load *l = arg;
    char own[64], block[BLOCK] = "";
    snprintf(own, sizeof own, "%s-%llu", name, (unsigned long long)mag_id());
    int fd = mag_open(own, O_RDWR | O_CREAT, 0600);
    check(fd >= 0);
    for (int i = 0; i < l->each; i++) {
        check(mag_pwrite(fd, block, BLOCK, 0, MAG_FOREVER) == BLOCK);
        check(mag_fsync(fd, MAG_FOREVER) == 0);
    }
    mag_close(fd);
    unlink(own);
    mag_wg_done(&wg);
}

static double run(void *arg)
{
    struct load *l = arg;
    mag_time start = mag_now();
    mag_wg_add(&wg, l->goroutines);
    for (int i = 0; i < l->goroutines; i++)
        mag_go(l->sync ? syncer : reader, l);
    mag_wg_wait(&wg, MAG_FOREVER);
    return (double)(mag_now() - start) / ((double)l->goroutines * l->each);
}

static double alone(void *arg)
{
    (void)arg;
    int fd = open(name, O_RDONLY | O_DIRECT);
    unsigned seed = 1;
    char *buf = aligned_alloc(BLOCK, BLOCK);
    mag_time start = mag_now();
    for (int i = 0; i < READS / 10; i++)
        check(pread(fd, buf, BLOCK, somewhere(&seed)) == BLOCK);
    free(buf);
    close(fd);
    return (double)(mag_now() - start) / (READS / 10);
}

static double floor_read;

static void measure(const char *what, int goroutines, int n, bool sync)
{
    char title[32];
    struct load l = {.goroutines = goroutines, .each = n / goroutines, .sync = sync};
    snprintf(title, sizeof title, "%s%d", what, goroutines);
    bench_print(title, mag_procs(), bench_median(run, &l), sync ? 0 : floor_read, (long)l.each * goroutines);
}

static void app(void *arg)
{
    (void)arg;
    measure("pread", 1, READS / 10, false);
    measure("pread", 8, READS, false);
    measure("pread", 64, READS, false);
    measure("pread", 1000, READS, false);
    measure("fsync", 1, SYNCS / 10, true);
    measure("fsync", 8, SYNCS, true);
    measure("fsync", 64, SYNCS, true);
}

int main(void)
{
    static char block[BLOCK];
    int fd = open(name, O_RDWR | O_CREAT | O_TRUNC, 0600);
    check(fd >= 0);
    for (int i = 0; i < BLOCKS; i++)
        check(pwrite(fd, block, BLOCK, (off_t)i * BLOCK) == BLOCK);
    check(fsync(fd) == 0);
    close(fd);
    fd = open(name, O_RDONLY | O_DIRECT);
    if (fd < 0) {
        unlink(name);
        return 77; /* the file system has no way past the page cache */
    }
    close(fd);
    floor_read = bench_median(alone, NULL);
    int r = mag_run(app, NULL);
    unlink(name);
    return r == 0 ? 0 : 1;
}
