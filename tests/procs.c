/* SPDX-License-Identifier: MIT */
/* procs.c: how many Ps a run gets: what the affinity mask and the cgroup's quota allow, on made-up machines and on this one. */
#include "test.h"

#include "run/run.h"

#include <ftw.h>
#include <sched.h>
#include <sys/stat.h>

/* ---- a machine in a directory ---- */

static char root[] = "/tmp/magpie-procs-XXXXXX";

static int removes(const char *path, const struct stat *st, int type, struct FTW *at)
{
    (void)st, (void)type, (void)at;
    return remove(path);
}

static void put(const char *path, const char *text)
{
    char full[8192];
    snprintf(full, sizeof full, "%s%s", root, path);
    for (char *slash = full + strlen(root) + 1; (slash = strchr(slash, '/')) != NULL; *slash++ = '/') {
        *slash = 0;
        if (mkdir(full, 0777) != 0 && errno != EEXIST)
            T_FAIL("mkdir %s: %s", full, strerror(errno));
    }
    FILE *f = fopen(full, "w");
    if (f == NULL || fputs(text, f) < 0 || fclose(f) != 0)
        T_FAIL("cannot write %s: %s", full, strerror(errno));
}

enum { CPUS = 8 };

/* The answer on a machine of CPUS with these files: pairs of a path and a text, NULL. */
static uint32_t allowed(const char *path, ...)
{
    va_list ap;
    strcpy(root + sizeof root - 7, "XXXXXX");
    T_TRUE(mkdtemp(root));
    va_start(ap, path);
    for (; path != NULL; path = va_arg(ap, const char *))
        put(path, va_arg(ap, const char *));
    va_end(ap);
    uint32_t procs = mag__procs_allowed(root, CPUS);
    T_EQ(nftw(root, removes, 16, FTW_DEPTH | FTW_PHYS), 0);
    T_GE(procs, 1);
    return procs;
}

#define CGROUP "/proc/self/cgroup"
#define MOUNTS "/proc/self/mountinfo"
#define V2 "30 23 0:26 / /sys/fs/cgroup rw,nosuid,nodev shared:9 - cgroup2 cgroup2 rw,nsdelegate\n"
#define V1                                                                                                             \
    "31 30 0:27 / /sys/fs/cgroup/cpuset rw shared:10 - cgroup cgroup rw,cpuset\n"                                      \
    "32 30 0:28 / /sys/fs/cgroup/cpuacct rw - cgroup cgroup rw,cpuacct\n"                                              \
    "33 30 0:29 / /sys/fs/cgroup/cpu rw,relatime shared:11 master:2 - cgroup cgroup rw,cpu\n"

static uint32_t v2_with(const char *max)
{
    return allowed(CGROUP, "0::/app\n", MOUNTS, V2, "/sys/fs/cgroup/app/cpu.max", max, NULL);
}

static uint32_t v1_with(const char *quota, const char *period)
{
    return allowed(CGROUP, "5:cpuset:/\n4:cpu:/app\n3:memory:/m\n", MOUNTS, V1,
                   "/sys/fs/cgroup/cpu/app/cpu.cfs_quota_us", quota, "/sys/fs/cgroup/cpu/app/cpu.cfs_period_us", period,
                   NULL);
}

/* ---- version 2 ---- */

static void v2_quotas_round_up(void)
{
    T_EQ(v2_with("50000 100000\n"), 1);
    T_EQ(v2_with("1000 100000\n"), 1);
    T_EQ(v2_with("100000 100000\n"), 1);
    T_EQ(v2_with("100001 100000\n"), 2);
    T_EQ(v2_with("250000 100000\n"), 3);
    T_EQ(v2_with("300000 100000\n"), 3);
    T_EQ(v2_with("25000 10000\n"), 3);
}

static void v2_without_a_quota(void) { T_EQ(v2_with("max 100000\n"), CPUS); }

static void v2_more_than_the_machine(void)
{
    T_EQ(v2_with("1600000 100000\n"), CPUS);
    T_EQ(v2_with("1000000000 1000\n"), CPUS);
}

#define CHAIN CGROUP, "0::/a/b/c\n", MOUNTS, V2

static void v2_every_ancestor_counts(void)
{
    T_EQ(allowed(CHAIN, "/sys/fs/cgroup/a/cpu.max", "200000 100000\n", NULL), 2);
    T_EQ(allowed(CHAIN, "/sys/fs/cgroup/a/b/cpu.max", "200000 100000\n", NULL), 2);
    T_EQ(allowed(CHAIN, "/sys/fs/cgroup/a/b/c/cpu.max", "max 100000\n", "/sys/fs/cgroup/a/b/cpu.max", "max 100000\n",
                 "/sys/fs/cgroup/a/cpu.max", "200000 100000\n", NULL),
         2);
    T_EQ(allowed(CHAIN, "/sys/fs/cgroup/cpu.max", "200000 100000\n", NULL),
         2); /* the mount point of a container is not the root */
}

static void v2_the_smallest_wins(void)
{
    T_EQ(allowed(CHAIN, "/sys/fs/cgroup/a/b/c/cpu.max", "300000 100000\n", "/sys/fs/cgroup/a/cpu.max",
                 "200000 100000\n", NULL),
         2);
    T_EQ(allowed(CHAIN, "/sys/fs/cgroup/a/b/c/cpu.max", "200000 100000\n", "/sys/fs/cgroup/a/cpu.max",
                 "300000 100000\n", NULL),
         2);
    T_EQ(allowed(CHAIN, "/sys/fs/cgroup/a/b/c/cpu.max", "400000 100000\n", "/sys/fs/cgroup/a/b/cpu.max",
                 "100000 100000\n", "/sys/fs/cgroup/a/cpu.max", "300000 100000\n", NULL),
         1);
}

/* What is not an ancestor is none of ours. */
static void v2_siblings_do_not_count(void)
{
    T_EQ(allowed(CHAIN, "/sys/fs/cgroup/a/b/d/cpu.max", "100000 100000\n", "/sys/fs/cgroup/a/b/c/d/cpu.max",
                 "100000 100000\n", "/sys/fs/cpu.max", "100000 100000\n", NULL),
         CPUS);
}

static void v2_at_the_root(void)
{
    T_EQ(allowed(CGROUP, "0::/\n", MOUNTS, V2, "/sys/fs/cgroup/cpu.max", "200000 100000\n", NULL),
         2); /* a namespace's */
    T_EQ(allowed(CGROUP, "0::/\n", MOUNTS, V2, "/sys/fs/cgroup/cgroup.procs", "1\n", NULL),
         CPUS); /* the machine's has none */
}

/* ---- containers: the mount shows a part of the hierarchy ---- */

#define PART "30 23 0:26 /docker/abc /sys/fs/cgroup ro,nosuid - cgroup2 cgroup rw\n"
#define TOP "/sys/fs/cgroup/cpu.max"

static void a_container_sees_its_part(void)
{
    T_EQ(allowed(CGROUP, "0::/docker/abc\n", MOUNTS, PART, TOP, "200000 100000\n", NULL), 2);
    T_EQ(allowed(CGROUP, "0::/docker/abc/sub\n", MOUNTS, PART, "/sys/fs/cgroup/sub/cpu.max", "300000 100000\n", NULL),
         3);
    T_EQ(allowed(CGROUP, "0::/docker/abc/sub\n", MOUNTS, PART, "/sys/fs/cgroup/sub/cpu.max", "300000 100000\n", TOP,
                 "200000 100000\n", NULL),
         2);
}

/* The process was moved out of what the mount shows: what can be seen is its top. */
static void outside_of_the_part(void)
{
    T_EQ(allowed(CGROUP, "0::/kube/xyz\n", MOUNTS, PART, TOP, "200000 100000\n", NULL), 2);
    T_EQ(allowed(CGROUP, "0::/docker\n", MOUNTS, PART, TOP, "200000 100000\n", NULL), 2);
    T_EQ(allowed(CGROUP, "0::/docker/abcdef\n", MOUNTS, PART, TOP, "200000 100000\n", NULL),
         2); /* only begins like it */
    T_EQ(allowed(CGROUP, "0::/../other\n", MOUNTS, V2, TOP, "200000 100000\n", NULL),
         2); /* outside of the namespace's root */
}

/* ---- version 1 ---- */

static void v1_quotas(void)
{
    T_EQ(v1_with("-1\n", "100000\n"), CPUS);
    T_EQ(v1_with("50000\n", "100000\n"), 1);
    T_EQ(v1_with("250000\n", "100000\n"), 3);
    T_EQ(v1_with("1600000\n", "100000\n"), CPUS);
}

#define V1_CHAIN                                                                                                       \
    CGROUP, "4:cpu,cpuacct:/a/b\n", MOUNTS, "33 30 0:29 / /cg/cpu,cpuacct rw - cgroup cgroup rw,cpu,cpuacct\n"
#define V1_LIMIT(dir, quota)                                                                                           \
    "/cg/cpu,cpuacct" dir "/cpu.cfs_quota_us", quota, "/cg/cpu,cpuacct" dir "/cpu.cfs_period_us", "100000\n"

static void v1_every_ancestor_counts(void)
{
    T_EQ(allowed(V1_CHAIN, V1_LIMIT("/a", "200000\n"), NULL), 2);
    T_EQ(allowed(V1_CHAIN, V1_LIMIT("/a", "200000\n"), V1_LIMIT("/a/b", "-1\n"), V1_LIMIT("", "-1\n"), NULL), 2);
    T_EQ(allowed(V1_CHAIN, V1_LIMIT("/a", "200000\n"), V1_LIMIT("/a/b", "300000\n"), NULL), 2);
    T_EQ(allowed(V1_CHAIN, V1_LIMIT("/a", "300000\n"), V1_LIMIT("/a/b", "200000\n"), NULL), 2);
}

/* Names that begin like cpu are other controllers. */
static void v1_only_the_cpu_controller(void)
{
    T_EQ(allowed(CGROUP, "5:cpuset:/app\n4:cpuacct:/app\n", MOUNTS, V1, "/sys/fs/cgroup/cpu/app/cpu.cfs_quota_us",
                 "50000\n", "/sys/fs/cgroup/cpu/app/cpu.cfs_period_us", "100000\n",
                 "/sys/fs/cgroup/cpuset/app/cpu.cfs_quota_us", "50000\n", "/sys/fs/cgroup/cpuset/app/cpu.cfs_period_us",
                 "100000\n", NULL),
         CPUS);
}

static void v1_in_a_container(void)
{
    T_EQ(allowed(CGROUP, "4:cpu:/docker/abc\n", MOUNTS, "33 30 0:29 /docker/abc /cg ro - cgroup cgroup rw,cpu\n",
                 "/cg/cpu.cfs_quota_us", "150000\n", "/cg/cpu.cfs_period_us", "100000\n", NULL),
         2);
}

/* ---- both ---- */

#define HYBRID V1 "40 30 0:36 / /sys/fs/cgroup/unified rw - cgroup2 cgroup2 rw\n"
#define HYBRID_V1                                                                                                      \
    "/sys/fs/cgroup/cpu/app/cpu.cfs_quota_us", "300000\n", "/sys/fs/cgroup/cpu/app/cpu.cfs_period_us", "100000\n"

static void hybrid_whichever_has_it(void)
{
    T_EQ(allowed(CGROUP, "4:cpu:/app\n1:name=systemd:/app\n0::/app\n", MOUNTS, HYBRID, HYBRID_V1, NULL), 3);
    T_EQ(allowed(CGROUP, "1:name=systemd:/app\n0::/app\n", MOUNTS, HYBRID, "/sys/fs/cgroup/unified/app/cpu.max",
                 "200000 100000\n", NULL),
         2);
    T_EQ(allowed(CGROUP, "4:cpu:/app\n0::/app\n", MOUNTS, HYBRID, HYBRID_V1, "/sys/fs/cgroup/unified/app/cpu.max",
                 "200000 100000\n", NULL),
         2);
    T_EQ(allowed(CGROUP, "4:cpu:/app\n0::/app\n", MOUNTS, HYBRID, HYBRID_V1, "/sys/fs/cgroup/unified/app/cpu.max",
                 "max 100000\n", NULL),
         3);
}

/* ---- what is missing ---- */

static void missing_files(void)
{
    T_EQ(allowed(NULL), CPUS);
    T_EQ(allowed(CGROUP, "0::/app\n", NULL), CPUS);
    T_EQ(allowed(MOUNTS, V2, "/sys/fs/cgroup/cpu.max", "100000 100000\n", NULL), CPUS);
    T_EQ(allowed(CGROUP, "", MOUNTS, "", NULL), CPUS);
    T_EQ(allowed(CGROUP, "0::/app\n", MOUNTS, V2, NULL), CPUS);
    T_EQ(allowed(CGROUP, "4:cpu:/app\n", MOUNTS, V1, "/sys/fs/cgroup/cpu/app/cpu.cfs_quota_us", "50000\n", NULL), CPUS);
    T_EQ(allowed(CGROUP, "4:cpu:/app\n", MOUNTS, V1, "/sys/fs/cgroup/cpu/app/cpu.cfs_period_us", "100000\n", NULL),
         CPUS);
    T_EQ(allowed(CGROUP, "4:cpu:/app\n", MOUNTS, V2, "/sys/fs/cgroup/app/cpu.max", "100000 100000\n", NULL), CPUS);
}

/* ---- what makes no sense ---- */

static char *filled(char *buf, size_t size, int c)
{
    memset(buf, c, size - 1);
    buf[size - 1] = 0;
    return buf;
}

static void garbage_in_the_limit(void)
{
    static const char *const texts[] = {
        "",
        "\n",
        " ",
        "abc",
        "abc def",
        "max",
        "max max",
        "50000",
        "50000\n",
        "50000 max\n",
        "50000 0\n",
        "0 100000\n",
        "-1 100000\n",
        "-50000 100000\n",
        "50000 -100000\n",
        "1e5 100000\n",
        "0x1 1\n",
        "\377\376\001",
        "100000,100000\n",
    };
    for (size_t i = 0; i < sizeof texts / sizeof *texts; i++) {
        uint32_t v2 = v2_with(texts[i]), v1 = v1_with(texts[i], "100000\n"), period = v1_with("100000\n", texts[i]);
        T_EQ(v2, CPUS);
        if (strtoll(texts[i], NULL, 10) <= 0) { /* v1 has one number in a file: what follows it is not looked at */
            T_EQ(v1, CPUS);
            T_EQ(period, CPUS);
        }
    }
    static char lots[5000];
    T_EQ(v2_with(filled(lots, sizeof lots, ' ')), CPUS);
    T_EQ(v2_with(filled(lots, sizeof lots, 'x')), CPUS);
}

static void numbers_without_measure(void)
{
    static const char *const much[] = {
        "9223372036854775807 100000\n",        "9223372036854775807 1\n",      "9223372036854775807 9223372036854775\n",
        "99999999999999999999999999 100000\n", "9223372036854675809 100000\n",
    };
    for (size_t i = 0; i < sizeof much / sizeof *much; i++)
        T_EQ(v2_with(much[i]), CPUS);
    T_EQ(v2_with("9223372036854775807 9223372036854775807\n"), 1);
    T_EQ(v2_with("100000 9223372036854775807\n"), 1);
    T_EQ(v1_with("9223372036854775807\n", "100000\n"), CPUS);
    static char digits[5000];
    T_EQ(v2_with(filled(digits, sizeof digits, '9')), CPUS);
}

#define TWO "/sys/fs/cgroup/app/cpu.max", "200000 100000\n"

static void garbage_around_the_line(void)
{
    static char line[6000], text[20000];
    T_EQ(allowed(CGROUP, "\n\n:\n::\n:::\nx\n0:\n0::/app", MOUNTS, "\n \nx\n - \n1 2 3\n - cgroup2\n" V2, TWO, NULL),
         2);
    filled(line, sizeof line, 'x');
    snprintf(text, sizeof text, "%s\n0::/app\n", line); /* a path too long to be one, before what is looked for */
    T_EQ(allowed(CGROUP, text, MOUNTS, V2, TWO, NULL), 2);
    snprintf(text, sizeof text, "29 23 0:25 / /x rw - overlay overlay rw,lowerdir=%s\n%s", line,
             V2); /* layers upon layers */
    T_EQ(allowed(CGROUP, "0::/app\n", MOUNTS, text, TWO, NULL), 2);
    snprintf(text, sizeof text, "0::/%s\n", line);
    T_EQ(allowed(CGROUP, text, MOUNTS, V2, TWO, NULL), CPUS);
    snprintf(text, sizeof text, "4:%s:/app\n", line);
    T_EQ(allowed(CGROUP, text, MOUNTS, V1, TWO, NULL), CPUS);
}

static void odd_names(void)
{
    T_EQ(allowed(CGROUP, "0::/a:b\n", MOUNTS, V2, "/sys/fs/cgroup/a:b/cpu.max", "200000 100000\n", NULL), 2);
    T_EQ(allowed(CGROUP, "0::/a b\n", MOUNTS, V2, "/sys/fs/cgroup/a b/cpu.max", "200000 100000\n", NULL), 2);
    T_EQ(allowed(CGROUP, "0::/app/\n", MOUNTS, V2, TWO, NULL), 2);
}

/* The kernel writes a blank in a mount point as \040. */
static void a_mount_point_with_a_blank(void)
{
    T_EQ(allowed(CGROUP, "0::/app\n", MOUNTS, "30 23 0:26 / /my\\040groups rw - cgroup2 cgroup2 rw\n",
                 "/my groups/app/cpu.max", "200000 100000\n", NULL),
         2);
}

static void far_down_in_the_tree(void)
{
    static char own[4000], file[4100];
    strcpy(own, "0::");
    for (int i = 0; i < 200; i++)
        strcat(own, "/level");
    snprintf(file, sizeof file, "/sys/fs/cgroup%s/cpu.max", own + 3);
    T_EQ(allowed(CGROUP, own, MOUNTS, V2, file, "300000 100000\n", "/sys/fs/cgroup/level/level/cpu.max",
                 "200000 100000\n", NULL),
         2);
}

/* A machine with hundreds of containers: the hierarchy's line may come late. */
static void behind_many_mounts(void)
{
    enum { MOUNTED = 4000 };
    static char text[MOUNTED * 100 + sizeof V2];
    size_t n = 0;
    for (int i = 0; i < MOUNTED; i++)
        n += (size_t)snprintf(text + n, sizeof text - n,
                              "%d 23 0:%d / /var/lib/containers/overlay/%d/merged rw - overlay none rw\n", i + 100,
                              i + 100, i);
    strcpy(text + n, V2);
    T_GT(n, 200000);
    T_EQ(allowed(CGROUP, "0::/app\n", MOUNTS, text, TWO, NULL), 2);
}

/* ---- CPUs ---- */

static void cpus_out_of_range(void)
{
    T_EQ(mag__procs_allowed("/nowhere", 0), 1);
    T_EQ(mag__procs_allowed("/nowhere", -3), 1);
    T_EQ(mag__procs_allowed("/nowhere", 1), 1);
    T_EQ(mag__procs_allowed("/nowhere", PROCS_MAX), PROCS_MAX);
    T_EQ(mag__procs_allowed("/nowhere", 5000), PROCS_MAX);
}

static void this_machine(void)
{
    long maps = t_maps();
    for (int i = 0; i < 100; i++) {
        T_GE(mag__procs_follow(), 1);
        T_LE(mag__procs_follow(), mag__os_cpus());
    }
    if (t_state.slow == 1)
        T_LE(t_maps(), maps + 2); /* nothing is left behind */
}

static void on_one_cpu(void)
{
    cpu_set_t set, one;
    T_EQ(sched_getaffinity(0, sizeof set, &set), 0);
    CPU_ZERO(&one);
    for (int i = 0; i < CPU_SETSIZE && CPU_COUNT(&one) == 0; i++)
        if (CPU_ISSET(i, &set))
            CPU_SET(i, &one);
    T_EQ(sched_setaffinity(0, sizeof one, &one), 0);
}

static void has_procs(void *want) { T_EQ(mag_procs(), *(int *)want); }

static void with_one_cpu(void *arg)
{
    (void)arg;
    on_one_cpu();
    t_setenv("MAGPIE_PROCS", NULL);
    T_EQ(mag_procs(), 0);
    T_EQ(mag_run(has_procs, &(int){1}), 0);
    T_EQ(mag_run_with(&(mag_config){.procs = 2}, has_procs, &(int){2}), 0);
    t_setenv("MAGPIE_PROCS", "3");
    T_EQ(mag_run(has_procs, &(int){3}), 0);
    T_EQ(mag_run_with(&(mag_config){.procs = 2}, has_procs, &(int){3}), 0);
    T_EQ(mag_procs(), 0);
}

static void affinity_counts_and_the_user_overrides(void)
{
    static struct t_child c;
    t_fork(&c, with_one_cpu, NULL);
    if (c.code != 0)
        T_FAIL("code %d, signal %d\n%s", c.code, c.signal, c.err);
}

int main(int argc, char **argv)
{
    t_init(argc, argv);
    T_RUN(v2_quotas_round_up);
    T_RUN(v2_without_a_quota);
    T_RUN(v2_more_than_the_machine);
    T_RUN(v2_every_ancestor_counts);
    T_RUN(v2_the_smallest_wins);
    T_RUN(v2_siblings_do_not_count);
    T_RUN(v2_at_the_root);
    T_RUN(a_container_sees_its_part);
    T_RUN(outside_of_the_part);
    T_RUN(v1_quotas);
    T_RUN(v1_every_ancestor_counts);
    T_RUN(v1_only_the_cpu_controller);
    T_RUN(v1_in_a_container);
    T_RUN(hybrid_whichever_has_it);
    T_RUN(missing_files);
    T_RUN(garbage_in_the_limit);
    T_RUN(numbers_without_measure);
    T_RUN(garbage_around_the_line);
    T_RUN(odd_names);
    T_RUN(a_mount_point_with_a_blank);
    T_RUN(far_down_in_the_tree);
    T_RUN(behind_many_mounts);
    T_RUN(cpus_out_of_range);
    T_RUN(this_machine);
    T_RUN(affinity_counts_and_the_user_overrides);
    return t_done();
}
