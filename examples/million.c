/* SPDX-License-Identifier: MIT */
/* million: a million goroutines, each parked on its own guarded stack, and what they cost. Usage: million [goroutines] */
#include <magpie.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static long n = 1000000;
static mag_wg gate, parked, done;

static long field(const char *file, const char *name)
{
    char line[256];
    long value = 0;
    FILE *f = fopen(file, "r");
    while (f != NULL && fgets(line, sizeof line, f) != NULL)
        if (strncmp(line, name, strlen(name)) == 0)
            value = atol(line + strlen(name));
    if (f != NULL)
        fclose(f);
    return value;
}

/* What the process takes from the system: memory, and the tables that map it. */
static double bytes(void) { return 1024.0 * (double)(field("/proc/self/status", "VmRSS:") + field("/proc/self/status", "VmPTE:")); }

static long mappings(void)
{
    long lines = 0;
    FILE *f = fopen("/proc/self/maps", "r");
    for (int c; f != NULL && (c = getc(f)) != EOF;)
        lines += c == '\n';
    if (f != NULL)
        fclose(f);
    return lines;
}

static void sleeper(void *arg)
{
    (void)arg;
    mag_wg_done(&parked);
    mag_wg_wait(&gate, MAG_FOREVER);
    mag_wg_done(&done);
}

static void bar(const char *what, long have)
{
    if (isatty(STDOUT_FILENO)) {
        int len = (int)(have * 50 / n);
        printf("\r%-8s [%.*s%*s] %ld", what, len, "==================================================", 50 - len, "", have);
        fflush(stdout);
    }
}

static void app(void *arg)
{
    (void)arg;
    double before = bytes();
    long maps = mappings();
    mag_time start = mag_now();
    mag_wg_add(&gate, 1);
    for (long i = 0; i < n;) {
        long batch = n - i < 10000 ? n - i : 10000;
        mag_wg_add(&parked, (int)batch);
        mag_wg_add(&done, (int)batch);
        for (long k = 0; k < batch; k++)
            if (mag_go(sleeper, NULL) != 0) {
                mag_wg_done(&parked);
                mag_wg_done(&done);
            }
        mag_wg_wait(&parked, MAG_FOREVER);
        bar("parked", i += batch);
    }
    double took = (double)(mag_now() - start), each = (bytes() - before) / (double)n;
    printf("\n%ld goroutines parked in %.2f s: %.0f ns and %.0f bytes each, %ld more mappings\n", n, took / 1e9, took / (double)n,
           each, mappings() - maps);

    start = mag_now();
    mag_wg_done(&gate);
    mag_wg_wait(&done, MAG_FOREVER);
    printf("all ended in %.2f s", (double)(mag_now() - start) / 1e9);
    start = mag_now();
    while (bytes() - before > 0.1 * each * (double)n && mag_now() < start + 5 * MAG_S)
        usleep(10000); /* a blocking call: the runtime looks after the rest */
    printf("; %.2f s later %.0f MB of %.0f were back with the system\n", (double)(mag_now() - start) / 1e9,
           (each * (double)n - (bytes() - before)) / 1e6, each * (double)n / 1e6);
}

int main(int argc, char **argv)
{
    if (argc > 1 && (n = atol(argv[1])) < 1) {
        fprintf(stderr, "usage: million [goroutines]\n");
        return 2;
    }
    return mag_run(app, NULL) == 0 ? 0 : 1;
}
