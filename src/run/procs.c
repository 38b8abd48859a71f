/* SPDX-License-Identifier: MIT */
/* procs.c: how many Ps: the CPUs of the affinity mask, and no more than the cgroup's quota pays for.
 *
 * Quota       a container with 2.5 CPUs of quota on a machine of 64 must not run 64 Ps: it would spend its share in the first
 *             milliseconds of each period and then stand still. Rounded up, so that the half is not wasted.
 * Chain       every ancestor's quota binds: the smallest in the chain of parents counts.
 * Versions    v2: one hierarchy, cpu.max = "QUOTA|max PERIOD". v1: the cpu controller's own, cpu.cfs_quota_us (-1: none) and
 *             cpu.cfs_period_us. Where both are mounted (hybrid) v1 has the cpu controller, or v2; whichever has the files.
 */
#include "run/run.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>

enum { PATH = 4096 };

/* CPUs that quota per period pays for, rounded up; 0: no limit. */
static uint32_t cpus_of(long long quota, long long period)
{
    if (quota <= 0 || period <= 0)
        return 0;
    long long n = quota / period + (quota % period != 0);
    return n > PROCS_MAX ? PROCS_MAX : (uint32_t)n;
}

static bool read_number(const char *dir, const char *file, long long *value)
{
    char path[PATH + 64], text[64];
    snprintf(path, sizeof path, "%s/%s", dir, file);
    return mag__os_read_file(path, text, sizeof text) > 0 && sscanf(text, "%lld", value) == 1;
}

/* The limit that this one directory sets, 0: none. */
static uint32_t limit_of(const char *dir)
{
    char path[PATH + 64], text[64];
    long long quota, period;
    snprintf(path, sizeof path, "%s/cpu.max", dir);
    if (mag__os_read_file(path, text, sizeof text) > 0)
        return sscanf(text, "%lld %lld", &quota, &period) == 2 ? cpus_of(quota, period) : 0;
    if (read_number(dir, "cpu.cfs_quota_us", &quota) && read_number(dir, "cpu.cfs_period_us", &period))
        return cpus_of(quota, period);
    return 0;
}

/* The smallest limit from dir up to `top` characters of it, the mount point. */
static uint32_t limit_of_chain(char *dir, size_t top)
{
    uint32_t least = 0;
    for (;;) {
        uint32_t n = limit_of(dir);
        if (n != 0 && (least == 0 || n < least))
            least = n;
        char *slash = strrchr(dir, '/');
        if (slash == NULL || (size_t)(slash - dir) < top || strlen(dir) <= top)
            return least;
        *slash = 0;
    }
}

/* Is `word` one of the comma-separated words of the list? */
static bool has_word(const char *list, const char *word)
{
    size_t n = strlen(word);
    for (; *list != 0; list += strcspn(list, ","), list += *list == ',')
        if (strcspn(list, ",") == n && strncmp(list, word, n) == 0)
            return true;
    return false;
}

/* The kernel writes blanks and the like in paths as three octal digits behind a backslash. */
static void unescape(char *path)
{
    char *to = path;
    for (const char *at = path; *at != 0;) {
        if (at[0] == '\\' && at[1] >= '0' && at[1] <= '3' && at[2] >= '0' && at[2] <= '7' && at[3] >= '0' && at[3] <= '7') {
            *to++ = (char)((at[1] - '0') << 6 | (at[2] - '0') << 3 | (at[3] - '0'));
            at += 4;
        } else {
            *to++ = *at++;
        }
    }
    *to = 0;
}

/* Where the hierarchy is mounted and which of its directories stands there. v1: with the cpu controller; v2 otherwise. */
static bool find_mount(const char *mountinfo, bool v1, char *point, char *within)
{
    for (const char *line = mountinfo; *line != 0; line += strcspn(line, "\n"), line += *line == '\n') {
        char type[32], options[512], text[PATH];
        size_t n = strcspn(line, "\n");
        if (n >= sizeof text)
            continue;
        memcpy(text, line, n);
        text[n] = 0;
        char *dash = strstr(text, " - ");
        if (dash == NULL || sscanf(text, "%*s %*s %*s %4095s %4095s", within, point) != 2 ||
            sscanf(dash + 3, "%31s %*s %511s", type, options) != 2)
            continue;
        if (v1 ? strcmp(type, "cgroup") == 0 && has_word(options, "cpu") : strcmp(type, "cgroup2") == 0) {
            unescape(point);
            unescape(within);
            return true;
        }
    }
    return false;
}

/* This process's directory in the hierarchy, from /proc/self/cgroup. */
static bool find_own(const char *cgroup, bool v1, char *own)
{
    for (const char *line = cgroup; *line != 0; line += strcspn(line, "\n"), line += *line == '\n') {
        char controllers[512] = "", text[PATH];
        size_t n = strcspn(line, "\n");
        if (n >= sizeof text)
            continue;
        memcpy(text, line, n);
        text[n] = 0;
        char *first = strchr(text, ':'), *second = first == NULL ? NULL : strchr(first + 1, ':');
        if (second == NULL)
            continue;
        size_t len = (size_t)(second - first - 1);
        if (len >= sizeof controllers)
            continue;
        memcpy(controllers, first + 1, len);
        if (v1 ? has_word(controllers, "cpu") : strncmp(text, "0::", 3) == 0) {
            snprintf(own, PATH, "%s", second + 1);
            return true;
        }
    }
    return false;
}

/* Not on the stack, which is small in sysmon's case; and not from malloc, which would give that thread an arena. */
struct scratch {
    char cgroup[1 << 14], mountinfo[1 << 20], own[PATH], point[PATH], within[PATH], dir[3 * PATH];
};

static uint32_t limit_of_hierarchy(struct scratch *s, const char *root, bool v1)
{
    if (!find_own(s->cgroup, v1, s->own) || !find_mount(s->mountinfo, v1, s->point, s->within))
        return 0;
    /* inside a container the mount shows a part of the hierarchy: what is above it cannot be seen */
    const char *below = s->own;
    size_t n = strlen(s->within);
    if (strcmp(s->within, "/") != 0 && strncmp(s->own, s->within, n) == 0 && (s->own[n] == '/' || s->own[n] == 0))
        below = s->own + n;
    else if (strcmp(s->within, "/") != 0)
        below = "";
    int len = snprintf(s->dir, sizeof s->dir, "%s%s%s", root, s->point, strcmp(below, "/") == 0 ? "" : below);
    if (len < 0 || (size_t)len >= sizeof s->dir)
        return 0;
    return limit_of_chain(s->dir, strlen(root) + strlen(s->point));
}

uint32_t mag__procs_allowed(const char *root, int cpus)
{
    uint32_t procs = cpus < 1 ? 1 : cpus > PROCS_MAX ? PROCS_MAX : (uint32_t)cpus;
    struct scratch *s = mag__os_reserve(sizeof *s, 0);
    if (s == NULL)
        return procs;
    snprintf(s->dir, sizeof s->dir, "%s/proc/self/cgroup", root);
    if (mag__os_read_file(s->dir, s->cgroup, sizeof s->cgroup) > 0) {
        snprintf(s->dir, sizeof s->dir, "%s/proc/self/mountinfo", root);
        if (mag__os_read_file(s->dir, s->mountinfo, sizeof s->mountinfo) > 0)
            for (int v1 = 0; v1 <= 1; v1++) {
                uint32_t n = limit_of_hierarchy(s, root, v1);
                if (n != 0 && n < procs)
                    procs = n;
            }
    }
    mag__os_unmap(s, sizeof *s);
    return procs;
}

uint32_t mag__procs_follow(void) { return mag__procs_allowed("", mag__os_cpus()); }

int mag_set_procs(int n)
{
    if (n < 1 || n > PROCS_MAX)
        return -EINVAL;
    int r = mag__foreign_enter();
    if (r != 0)
        return r;
    at_32_store_rlx(&mag__rt.procs_fixed, 1);
    r = mag__p_set_procs((uint32_t)n, false);
    mag__foreign_leave();
    return r;
}
