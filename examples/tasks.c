/* SPDX-License-Identifier: MIT */
/* tasks: three named goroutines that print and sleep, on two procs. Run it with MAGPIE_DEBUG=schedtrace=200,scheddetail=1 to
 * see them by name. */
#include <magpie.h>
#include <stdio.h>

static mag_group all;

struct task {
    const char *name;
    int every_ms, times;
};

static void run(void *arg)
{
    struct task *t = arg;
    for (int i = 1; i <= t->times; i++) {
        printf("%-6s %d of %d\n", t->name, i, t->times);
        mag_sleep(t->every_ms * MAG_MS);
    }
}

static void app(void *arg)
{
    (void)arg;
    struct task tasks[] = {{"fast", 50, 8}, {"medium", 100, 4}, {"slow", 200, 2}};
    for (int i = 0; i < 3; i++) {
        mag_go_config cfg = {.name = tasks[i].name, .group = &all, .copy = sizeof tasks[i]};
        mag_go_with(&cfg, run, &tasks[i]);
    }
    mag_group_wait(&all, MAG_FOREVER);
    mag_group_end(&all);
}

int main(void)
{
    mag_config cfg = {.procs = 2};
    return mag_run_with(&cfg, app, NULL) == 0 ? 0 : 1;
}
