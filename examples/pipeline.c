/* SPDX-License-Identifier: MIT */
/* pipeline: stages connected by small channels. The slow stage in the middle holds up the fast one before it: that is
 * back-pressure, and it is all there is to it. */
#include <magpie.h>
#include <stdio.h>

enum { ITEMS = 200, WORKERS = 3 };

struct item {
    int number;
    long value;
};

MAG_CHAN_TYPE(items, struct item);

static items *raw, *cooked;
static mag_wg cooks;

static void produce(void *arg)
{
    size_t most = 0;
    (void)arg;
    for (int i = 0; i < ITEMS; i++) {
        items_send(raw, (struct item){i, 0}, MAG_FOREVER); /* waits while four are under way */
        size_t n = mag_chan_len((mag_chan *)raw);
        most = n > most ? n : most;
    }
    items_close(raw);
    printf("the producer is done; at most %zu items waited behind it\n", most);
}

static void cook(void *arg)
{
    struct item it;
    (void)arg;
    while (items_recv(raw, &it, MAG_FOREVER) == 0) {
        mag_sleep(MAG_MS); /* the slow stage */
        it.value = (long)it.number * it.number;
        items_send(cooked, it, MAG_FOREVER);
    }
    mag_wg_done(&cooks);
}

static void close_when_done(void *arg)
{
    (void)arg;
    mag_wg_wait(&cooks, MAG_FOREVER);
    items_close(cooked);
}

static void app(void *arg)
{
    (void)arg;
    struct item it;
    long sum = 0;
    int n = 0;
    raw = items_new(4);
    cooked = items_new(4);
    mag_time start = mag_now();
    mag_go(produce, NULL);
    mag_wg_add(&cooks, WORKERS);
    for (int i = 0; i < WORKERS; i++)
        mag_go(cook, NULL);
    mag_go(close_when_done, NULL);
    for (; items_recv(cooked, &it, MAG_FOREVER) == 0; n++)
        sum += it.value;
    printf("%d items, sum %ld, in %.0f ms: %d workers of 1 ms each\n", n, sum, (double)(mag_now() - start) / 1e6, WORKERS);
    items_unref(raw);
    items_unref(cooked);
}

int main(void) { return mag_run(app, NULL) == 0 ? 0 : 1; }
