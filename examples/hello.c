/* SPDX-License-Identifier: MIT */
/* hello: ten goroutines say hello, main waits for them. */
#include <magpie.h>
#include <stdio.h>

static mag_wg wg;

struct greeting {
    const char *what;
    int n;
};

static void greet(void *arg)
{
    struct greeting *g = arg; /* our own copy */
    printf("%s from goroutine %llu, number %d\n", g->what, (unsigned long long)mag_id(), g->n);
    mag_wg_done(&wg);
}

static void app(void *arg)
{
    (void)arg;
    for (int i = 0; i < 10; i++) {
        mag_wg_add(&wg, 1);
        MAG_GO(greet, struct greeting, "hello", i);
    }
    mag_wg_wait(&wg, MAG_FOREVER);
}

int main(void) { return mag_run(app, NULL) == 0 ? 0 : 1; }
