/* SPDX-License-Identifier: MIT */
/* run.h: what the files of this room offer each other. */
#ifndef MAG_RUN_RUN_H
#define MAG_RUN_RUN_H

#include "sched/sched.h"

/* What a run is to be like, with every default filled in. */
struct settings {
    uint32_t procs, steal_min, max_threads;
    int stack_class;
    int64_t slice, exit_wait, schedtrace;
    bool scheddetail;
    bool procs_fixed; /* asked for by config or environment */
};

/* config.c, env.c: 0, or -EINVAL after one line on stderr that names the culprit. */
int mag__config_read(const mag_config *cfg, struct settings *s);
int mag__env_read(struct settings *s);

/* procs.c: how many Ps this machine allows the process: CPUs by affinity, bounded by the cgroup quota. `root` is where to
 * look for /proc and /sys: "" but in tests. */
uint32_t mag__procs_allowed(const char *root, int cpus);
uint32_t mag__procs_follow(void);

/* signal.c: the report of stack overflows. */
void mag__signal_install(void);
void mag__signal_remove(void);

/* fork.c: what a forked child will need. */
void mag__fork_prepare(void);

/* sigchan.c: every subscription ends. */
void mag__sigchan_stop(void);

/* shutdown.c: 0, or -ETIMEDOUT. */
int mag__shutdown(int64_t deadline);

#endif
