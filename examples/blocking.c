/* SPDX-License-Identifier: MIT */
/* blocking: getaddrinfo, flock, usleep and read(2), each in goroutines of their own, nothing announced, beside one that is busy;
 * on one proc. None of these calls knows of goroutines, and none holds the others up. */
#include <errno.h>
#include <fcntl.h>
#include <magpie.h>
#include <netdb.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/file.h>
#include <unistd.h>

static mag_wg wg;
static int fd[2];
static char path[] = "/tmp/magpie-example-XXXXXX";

static mag_time start;
static void say(const char *what) { printf("%6.1f ms  %s\n", (double)(mag_now() - start) / 1e6, what); }

static void resolve(void *arg)
{
    struct addrinfo *a = NULL;
    int r = getaddrinfo(arg, "80", NULL, &a);
    say(r == 0 ? "getaddrinfo has an answer" : "getaddrinfo has no answer");
    if (r == 0)
        freeaddrinfo(a);
    mag_wg_done(&wg);
}

static void lock(void *arg)
{
    int file = open(path, O_RDWR | O_CLOEXEC);
    flock(file, LOCK_EX);
    say(arg);
    usleep(30000); /* and holds it so long */
    close(file);
    mag_wg_done(&wg);
}

static void nap(void *arg)
{
    usleep(50000);
    say(arg);
    mag_wg_done(&wg);
}

static void wait_for_byte(void *arg)
{
    char c;
    if (read(fd[0], &c, 1) == 1)
        say(arg);
    mag_wg_done(&wg);
}

static void compute(void *arg)
{
    (void)arg;
    long rounds = 0;
    for (mag_time end = mag_in(120 * MAG_MS); mag_now() < end; rounds++)
        mag_yield();
    printf("%6.1f ms  the busy one had %ld turns\n", (double)(mag_now() - start) / 1e6, rounds);
    if (write(fd[1], "x", 1) != 1)
        perror("write");
    mag_wg_done(&wg);
}

static void app(void *arg)
{
    (void)arg;
    start = mag_now();
    mag_wg_add(&wg, 7);
    mag_go(wait_for_byte, "read(2) got what the busy one wrote");
    mag_go(lock, "flock: the first has it");
    mag_go(lock, "flock: the second has it");
    mag_go(lock, "flock: the third has it");
    mag_go(nap, "usleep(50 ms) is over");
    mag_go(resolve, "localhost");
    mag_go(compute, NULL);
    mag_wg_wait(&wg, MAG_FOREVER);
    mag_stats s;
    mag_stats_read(&s, NULL, 0);
    printf("the one proc was retaken %llu times from a thread that slept in the kernel; %llu threads\n",
           (unsigned long long)s.retakes_blocked, (unsigned long long)s.threads);
}

int main(void)
{
    int file = mkstemp(path);
    if (file < 0 || pipe2(fd, O_CLOEXEC) != 0) {
        perror("blocking");
        return 1;
    }
    int r = mag_run_with(&(mag_config){.procs = 1}, app, NULL);
    unlink(path);
    return r == 0 ? 0 : 1;
}
