/* SPDX-License-Identifier: MIT */
/* config.c: mag_config with its defaults. What is out of range is refused by name, never bent into range. */
#include "run/run.h"
#include "base/panic.h"

#include <errno.h>

#define DEFAULT_THREADS 10000
#define DEFAULT_SLICE (10 * MAG_MS)
#define DEFAULT_EXIT_WAIT (1 * MAG_S)

static int refuse(const char *field, long long value, const char *range)
{
    mag__panic_say("mag_config.%s is %lld: must be %s", field, value, range);
    return -EINVAL;
}

static int refuse_size(const char *field, size_t value, const char *range)
{
    mag__panic_say("mag_config.%s is %zu: must be %s", field, value, range);
    return -EINVAL;
}

int mag__config_read(const mag_config *cfg, struct settings *s)
{
    static const mag_config defaults;
    if (cfg == NULL)
        cfg = &defaults;
    if (cfg->procs < 0 || cfg->procs > PROCS_MAX)
        return refuse("procs", cfg->procs, "0 to 1024");
    if (cfg->max_threads < 0)
        return refuse("max_threads", cfg->max_threads, "0 or more");
    if (cfg->steal_min < 0 || cfg->steal_min > (int)RUNQ_SIZE)
        return refuse("steal_min", cfg->steal_min, "0 to 256");
    if (cfg->stack_size > STACK_MAX)
        return refuse_size("stack_size", cfg->stack_size, "at most 1 GiB");
    if (cfg->exit_wait < 0)
        return refuse("exit_wait", cfg->exit_wait, "0 or more");
    for (size_t i = 0; i < ARRAY_LEN(cfg->reserved); i++)
        if (cfg->reserved[i] != 0)
            return refuse_size("reserved", cfg->reserved[i], "0: is the struct uninitialised?");

    *s = (struct settings){
        .procs = cfg->procs != 0 ? (uint32_t)cfg->procs : mag__procs_follow(),
        .procs_fixed = cfg->procs != 0,
        .steal_min = (uint32_t)(cfg->steal_min != 0 ? cfg->steal_min : 1),
        .max_threads = (uint32_t)(cfg->max_threads != 0 ? cfg->max_threads : DEFAULT_THREADS),
        .stack_class = mag__stack_class(cfg->stack_size != 0 ? cfg->stack_size : STACK_DEFAULT),
        .slice = cfg->slice != 0 ? cfg->slice : DEFAULT_SLICE,
        .exit_wait = cfg->exit_wait != 0 ? cfg->exit_wait : DEFAULT_EXIT_WAIT,
    };
    return 0;
}
