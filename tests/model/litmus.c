/* SPDX-License-Identifier: MIT */
/* litmus.c: the explorer itself. What C11 allows must be found, what it forbids must not, and every kind of failure is
 * one. The names of the shapes (store buffering, message passing, load buffering) are the usual ones. */
#include "explore.h"
#include "base/atomic.h"
#include "base/panic.h"
#include "os/os.h"

#include <errno.h>

static a32 x, y;
static unsigned plain;
static unsigned r[MODEL_THREADS]; /* what the threads saw */

static void zero(void)
{
    at_32_store_rlx(&x, 0);
    at_32_store_rlx(&y, 0);
    plain = 0;
    for (unsigned i = 0; i < MODEL_THREADS; i++)
        r[i] = 9;
    MODEL_NAME(x);
    MODEL_NAME(y);
    MODEL_NAME(plain);
}

/* ---- store buffering ---- */

static void sb_0(void)
{
    at_32_store_rel(&x, 1);
    r[0] = at_32_load_acq(&y);
}

static void sb_1(void)
{
    at_32_store_rel(&y, 1);
    r[1] = at_32_load_acq(&x);
}

static void sb_0_fence(void)
{
    at_32_store_rlx(&x, 1);
    at_fence_seq();
    r[0] = at_32_load_rlx(&y);
}

static void sb_1_fence(void)
{
    at_32_store_rlx(&y, 1);
    at_fence_seq();
    r[1] = at_32_load_rlx(&x);
}

static void not_both_zero(void) { M_TRUE(r[0] != 0 || r[1] != 0); }

/* ---- message passing ---- */

static void send(void)
{
    at_32_store_rlx(&x, 1);
    at_32_store_rel(&y, 1);
}

static void send_relaxed(void)
{
    at_32_store_rlx(&x, 1);
    at_32_store_rlx(&y, 1);
}

static void send_fence(void)
{
    at_32_store_rlx(&x, 1);
    at_fence_seq();
    at_32_store_rlx(&y, 1);
}

static void receive(void)
{
    if (at_32_load_acq(&y) == 1)
        M_TRUE(at_32_load_rlx(&x) == 1);
}

static void receive_relaxed(void)
{
    if (at_32_load_rlx(&y) == 1)
        M_TRUE(at_32_load_rlx(&x) == 1);
}

static void receive_fence(void)
{
    if (at_32_load_rlx(&y) == 1) {
        at_fence_seq();
        M_TRUE(at_32_load_rlx(&x) == 1);
    }
}

static void send_plain(void)
{
    plain = 1;
    at_32_store_rel(&y, 1);
}

static void receive_plain(void)
{
    if (at_32_load_acq(&y) == 1)
        M_TRUE(plain == 1);
}

static void receive_plain_relaxed(void)
{
    if (at_32_load_rlx(&y) == 1)
        plain++;
}

/* A read-modify-write in between hands the message on; a store does not. */
static void relay_rmw(void) { at_32_add_rlx(&y, 1); }
static void relay_store(void)
{
    if (at_32_load_rlx(&y) == 1)
        at_32_store_rlx(&y, 2);
}
static void receive_2(void)
{
    if (at_32_load_acq(&y) == 2)
        M_TRUE(at_32_load_rlx(&x) == 1);
}

/* ---- load buffering ---- */

static void lb_0(void)
{
    r[0] = at_32_load_rlx(&x);
    at_32_store_rlx(&y, 1);
}

static void lb_1(void)
{
    r[1] = at_32_load_rlx(&y);
    at_32_store_rlx(&x, 1);
}

static void lb_0_release(void)
{
    r[0] = at_32_load_rlx(&x);
    at_32_store_rel(&y, 1);
}

static void lb_1_acquire(void)
{
    r[1] = at_32_load_acq(&y);
    at_32_store_rlx(&x, 1);
}

static void lb_0_copies(void)
{
    r[0] = at_32_load_rlx(&x);
    at_32_store_rlx(&y, r[0]);
}

static void lb_1_copies(void)
{
    r[1] = at_32_load_rlx(&y);
    at_32_store_rlx(&x, r[1]);
}

static void not_both_one(void) { M_TRUE(r[0] != 1 || r[1] != 1); }
static void both_zero(void) { M_TRUE(r[0] == 0 && r[1] == 0); }

/* ---- one location ---- */

static void count_up(void)
{
    at_32_store_rlx(&x, 1);
    at_32_store_rlx(&x, 2);
}

static void never_back(void)
{
    uint32_t first = at_32_load_rlx(&x);
    M_TRUE(at_32_load_rlx(&x) >= first);
}

static void always_newest(void)
{
    if (at_32_load_rlx(&x) == 0)
        M_TRUE(at_32_load_rlx(&x) == 0);
}

static void add(void) { at_32_add_rlx(&x, 1); }
static void sum_is_three(void) { M_TRUE(at_32_load_rlx(&x) == 3); }

static void store_5(void) { at_32_store_rlx(&x, 5); }
static void cas_5(void)
{
    uint32_t five = 5;
    if (!at_32_cas_rlx(&x, &five, 6))
        M_TRUE(five != 5);
    else
        M_TRUE(at_32_load_rlx(&x) == 6);
}

/* The newest value is 1, and yet: a cas that fails is a load, and may see an old value. */
static void cas_1(void)
{
    uint32_t one = 1;
    if (at_32_load_rlx(&y) == 1)
        M_TRUE(at_32_cas_rlx(&x, &one, 2));
}

/* ---- failures ---- */

static void nothing(void) {}

static void sleeps(void) { mag__os_futex_wait(&x, 0, OS_FOREVER); }

/* The flag is not the word that the wait compares. */
static void wakes_carelessly(void)
{
    at_32_store_rlx(&y, 1);
    mag__os_futex_wake(&x, 1);
}
static void sleeps_carelessly(void)
{
    while (at_32_load_rlx(&y) == 0)
        mag__os_futex_wait(&x, 0, OS_FOREVER);
}

static void wakes(void)
{
    at_32_xchg_rel(&x, 1);
    mag__os_futex_wake(&x, 1);
}
static void sleeps_well(void)
{
    while (at_32_load_rlx(&x) == 0)
        mag__os_futex_wait(&x, 0, OS_FOREVER);
}

static void times_out(void) { M_TRUE(mag__os_futex_wait(&x, 0, 1) == -ETIMEDOUT); }

static void spins(void)
{
    while (at_32_load_rlx(&x) == 0)
        ;
}

static void crashes(void)
{
    uint32_t *p = at_32_load_rlx(&x) == 0 ? (uint32_t *)(uintptr_t)at_32_load_rlx(&y) : &r[0];
    *(volatile uint32_t *)p = 1;
}

static void breaks(void) { must(at_32_load_rlx(&x) == 1 && "an invariant"); }

static void writes_plain(void) { plain = 1; }
static void reads_plain(void) { r[1] = plain; }

static const struct model_case cases[] = {
    {"sb: release and acquire", zero, {sb_0, sb_1}, not_both_zero, .fails = "is false"},
    {"sb: one fence", zero, {sb_0_fence, sb_1}, not_both_zero, .fails = "is false"},
    {"sb: two fences", zero, {sb_0_fence, sb_1_fence}, not_both_zero},
    {"mp: relaxed", zero, {send_relaxed, receive_relaxed}, .fails = "is false"},
    {"mp: release, no acquire", zero, {send, receive_relaxed}, .fails = "is false"},
    {"mp: acquire, no release", zero, {send_relaxed, receive}, .fails = "is false"},
    {"mp: one fence", zero, {send_fence, receive_relaxed}, .fails = "is false"},
    {"mp: release and acquire", zero, {send, receive}},
    {"mp: fence and acquire", zero, {send_fence, receive}},
    {"mp: release and fence", zero, {send, receive_fence}},
    {"mp: two fences", zero, {send_fence, receive_fence}},
    {"mp: plain", zero, {send_plain, receive_plain}},
    {"mp: plain, no acquire", zero, {send_plain, receive_plain_relaxed}, .fails = "race: "},
    {"mp: through an add", zero, {send, relay_rmw, receive_2}},
    {"mp: through a store", zero, {send, relay_store, receive_2}, .fails = "is false"},
    {"lb: relaxed", zero, {lb_0, lb_1}, not_both_one, .fails = "is false"},
    {"lb: release, no acquire", zero, {lb_0_release, lb_1}, not_both_one, .fails = "is false"},
    {"lb: acquire, no release", zero, {lb_0, lb_1_acquire}, not_both_one, .fails = "is false"},
    {"lb: release and acquire", zero, {lb_0_release, lb_1_acquire}, not_both_one},
    {"lb: out of thin air", zero, {lb_0_copies, lb_1_copies}, both_zero},
    {"one location: never back", zero, {count_up, never_back}},
    {"one location: not always newest", zero, {count_up, always_newest}, .fails = "is false"},
    {"one location: adds", zero, {add, add, add}, sum_is_three},
    {"one location: cas", zero, {store_5, cas_5}},
    {"one location: cas sees old", zero, {send_relaxed, cas_1}, .fails = "is false"},
    {"fails: nobody wakes", zero, {sleeps, nothing}, .fails = "nobody will wake"},
    {"fails: lost wake-up", zero, {sleeps_carelessly, wakes_carelessly}, .fails = "nobody will wake"},
    {"fails: spurious return", zero, {times_out}, .fails = "is false"},
    {"fails: no end", zero, {spins}, .fails = "no end"},
    {"fails: crash", zero, {crashes}, .fails = "crashed"},
    {"fails: invariant", zero, {breaks}, .fails = "broken"},
    {"fails: race", zero, {writes_plain, reads_plain}, .fails = "race: "},
    {"futex: no lost wake-up", zero, {sleeps_well, wakes}},
};

int main(int argc, char **argv) { return model_main(argc, argv, cases, ARRAY_LEN(cases)); }
