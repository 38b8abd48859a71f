/* SPDX-License-Identifier: MIT */
/* timer_heap.c: the heap of deadlines, from inside: whatever is added, deleted and run in whatever order, each timer fires
 * once, when it is due, in order, and deleted ones never do; the dead are swept, and the heap grows. */
#include "test.h"

#include "time/timer.h"

static struct timers heap;

enum { MOST = 3000 };

struct probe {
    struct timer timer;
    bool pending;
    long fired;
};

static struct probe probes[MOST];
static bool seen[2 * MOST]; /* slots */
static int64_t fire_now, last_due;
static long fires;

static struct g *fire(struct timer *t, int64_t now)
{
    struct probe *p = (struct probe *)t;
    T_EQ(now, fire_now);
    p->fired++;
    fires++;
    if (t->period == 0) {
        T_TRUE(p->pending);
        T_LE(t->when, now);
        T_GE(t->when, last_due); /* in order */
        last_due = t->when;
        p->pending = false;
    } else {
        T_GT(t->when, now); /* already set for its next tick */
    }
    return (uintptr_t)p % 3 ? NULL : (struct g *)(void *)p; /* some make a goroutine runnable, or so they say */
}

static int64_t least(int n, long *pending)
{
    int64_t first = TIMER_NEVER;
    *pending = 0;
    for (int i = 0; i < n; i++)
        if (probes[i].pending) {
            ++*pending;
            if (probes[i].timer.when < first)
                first = probes[i].timer.when;
        }
    return first;
}

static void check(int n)
{
    long pending, live = 0, dead = 0;
    int64_t first = least(n, &pending);
    T_EQ(mag__timer_first(&heap), first); /* the dead never stay on top */
    memset(seen, 0, sizeof seen);
    for (uint32_t i = 0; i < heap.n; i++) {
        if (i > 0)
            T_LE(heap.heap[(i - 1) / 4].when, heap.heap[i].when);
        uint32_t slot = heap.heap[i].slot;
        T_LT(slot, heap.used);
        T_FALSE(seen[slot]);
        seen[slot] = true;
        struct timer *t = heap.who[slot];
        if (t == NULL) {
            dead++;
            continue;
        }
        live++;
        T_EQ(t->slot, slot);
        T_EQ(t->when, heap.heap[i].when);
        T_TRUE(t->home == &heap);
    }
    T_EQ(live, pending);
    T_EQ(dead, heap.dead);
    T_LE(heap.n, heap.room);
    uint32_t slots = heap.n;
    for (uint32_t next = heap.free; next != 0; next = (uint32_t)(uintptr_t)heap.who[next - 1], slots++) {
        T_FALSE(seen[next - 1]); /* in an entry or free, not both, and once */
        seen[next - 1] = true;
    }
    T_EQ(slots, heap.used);
    T_LE(heap.used, heap.room);
    if (heap.heap != NULL)
        T_EQ((uintptr_t)&heap.heap[1] % 64, 0); /* the children of one share a line */
}

static void begin(void)
{
    memset(&heap, 0, sizeof heap);
    memset(probes, 0, sizeof probes);
    for (int i = 0; i < MOST; i++) {
        probes[i].timer.fire = fire;
        probes[i].timer.slot = TIMER_OUT;
    }
    mag__timer_init(&heap);
    T_EQ(mag__timer_first(&heap), TIMER_NEVER);
}

static void add_one(int i, int64_t when, int64_t period)
{
    T_TRUE(mag__timer_add(&heap, &probes[i].timer, when, period));
    probes[i].pending = true;
}

static void delete_one(int i)
{
    T_EQ(mag__timer_delete(&probes[i].timer), probes[i].pending);
    probes[i].pending = false;
    T_FALSE(mag__timer_delete(&probes[i].timer)); /* once */
}

/* Everything that is due at now, in as many portions as it takes. */
static void run_until(int64_t now, uint32_t most)
{
    struct g *ready[64];
    uint32_t n;
    bool more = true;
    fire_now = now;
    last_due = INT64_MIN;
    while (more) {
        more = mag__timer_run(&heap, now, ready, most, &n);
        T_LE(n, most);
        for (uint32_t i = 0; i < n; i++)
            T_TRUE(ready[i] != NULL);
    }
    T_GT(mag__timer_first(&heap), now);
}

static void against_a_model(void)
{
    static const int sizes[] = {1, 2, 5, 64, 65, 300, MOST};
    for (size_t s = 0; s < sizeof sizes / sizeof *sizes; s++) {
        int n = sizes[s];
        int64_t now = 1000;
        long expected = 0;
        begin();
        fires = 0;
        for (long step = 0; step < t_scale(30000); step++) {
            int i = (int)(t_random() % (uint32_t)n);
            uint32_t what = t_random() % 100;
            if (what < 55) {
                if (!probes[i].pending)
                    add_one(i, now + 1 + (int64_t)(t_random() % (what < 5 ? 3 : 5000)), 0); /* and many at the same time */
            } else if (what < 90) {
                delete_one(i);
            } else if (what < 93) {
                now += (int64_t)(t_random() % 300);
                long due = 0;
                for (int k = 0; k < n; k++)
                    due += probes[k].pending && probes[k].timer.when <= now;
                expected += due;
                run_until(now, 1 + t_random() % 64);
                T_EQ(fires, expected);
            }
            if (step % 64 == 0 || n < 10)
                check(n);
        }
        long pending;
        least(n, &pending);
        expected += pending;
        run_until(TIMER_NEVER - 1, 64); /* the rest */
        T_EQ(fires, expected);
        T_EQ(heap.n, 0);
        T_EQ(heap.dead, 0);
        T_EQ(mag__timer_first(&heap), TIMER_NEVER);
        mag__timer_fini(&heap);
        T_TRUE(heap.heap == NULL);
    }
}

static void the_dead_are_swept(void)
{
    begin();
    for (int i = 0; i < MOST; i++)
        add_one(i, 1000 + i, 0);
    uint32_t room = heap.room;
    for (int i = MOST - 1; i > 0; i--) { /* never the top */
        delete_one(i);
        T_LE(heap.dead, heap.n <= 64 ? 64 : heap.n / 4 + 1);
        T_EQ(heap.n - heap.dead, i);
    }
    T_LE(heap.n, 65);
    for (long round = 0; round < t_scale(200000); round++) { /* deadlines that never arrive take no room */
        int i = 1 + (int)(round % 50);
        add_one(i, 5000 + round, 0);
        delete_one(i);
        T_LE(heap.n, 128);
    }
    T_EQ(heap.room, room);
    check(MOST);
    delete_one(0); /* the top: nothing is left, not even the dead */
    T_EQ(heap.n, 0);
    T_EQ(heap.dead, 0);
    mag__timer_fini(&heap);
}

static void it_grows(void)
{
    begin();
    uint32_t room = 0, grew = 0;
    for (int i = 0; i < MOST; i++) {
        add_one(i, MOST - i, 0); /* each one before all others: the longest way up */
        grew += heap.room != room;
        room = heap.room;
        T_EQ(mag__timer_first(&heap), MOST - i);
    }
    T_GE(grew, 2);
    check(MOST);
    fires = 0;
    for (int64_t now = 1; now <= MOST; now++) {
        run_until(now, 1);
        T_EQ(fires, now);
        T_FALSE(probes[MOST - now].pending);
    }
    mag__timer_fini(&heap);
}

static void periods(void)
{
    static const struct {
        int64_t when, period, now, next;
    } table[] = {
        {100, 10, 100, 110},
        {100, 10, 109, 110},
        {100, 10, 110, 120},
        {100, 10, 1234567, 1234570}, /* missed ones are dropped, the step is kept */
        {100, 1, 5000, 5001},
        {100, INT64_MAX, 100, TIMER_NEVER},
        {100, INT64_MAX / 2, 100, 100 + INT64_MAX / 2},
        {0, 7, INT64_MAX - 1, TIMER_NEVER}, /* never is no time */
    };
    for (size_t i = 0; i < sizeof table / sizeof *table; i++) {
        struct g *ready[1];
        uint32_t n;
        begin();
        add_one(0, table[i].when, table[i].period);
        fire_now = table[i].now;
        fires = 0;
        mag__timer_run(&heap, table[i].now, ready, 1, &n);
        T_EQ(fires, 1);
        T_EQ(mag__timer_first(&heap), table[i].next);
        T_TRUE(mag__timer_delete(&probes[0].timer)); /* it stays pending */
        mag__timer_fini(&heap);
    }
}

static void never_added(void)
{
    struct timer t = {0};
    T_FALSE(mag__timer_delete(&t));
}

int main(int argc, char **argv)
{
    t_init(argc, argv);
    T_RUN(against_a_model);
    T_RUN(the_dead_are_swept);
    T_RUN(it_grows);
    T_RUN(periods);
    T_RUN(never_added);
    return t_done();
}
