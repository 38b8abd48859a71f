/* SPDX-License-Identifier: MIT */
/* parker.c: no unpark is lost, whenever it comes; who is woken sees what he was woken for. */
#include "explore.h"
#include "core/parker.h"
#include "os/os.h"

#include <errno.h>

static struct parker k;
static unsigned parcel[2]; /* plain memory: what the thread is woken for */
static a32 sent;
static unsigned slept_for_nothing, tokens;

static void empty(void)
{
    k = (struct parker){0};
    parcel[0] = parcel[1] = 0;
    at_32_store_rlx(&sent, 0);
    slept_for_nothing = tokens = 0;
    MODEL_NAME(k);
    MODEL_NAME(sent);
    MODEL_NAME_ARRAY(parcel);
}

static void waker_0(void)
{
    parcel[0] = 1;
    mag__parker_unpark(&k);
}

static void waker_1(void)
{
    parcel[1] = 1;
    mag__parker_unpark(&k);
}

static void waker_0_twice(void)
{
    mag__parker_unpark(&k);
    parcel[0] = 1;
    at_32_store_rlx(&sent, 1);
    mag__parker_unpark(&k);
}

/* Sleeps until the one parcel is there. */
static void sleeper(void)
{
    M_TRUE(mag__parker_park(&k, OS_FOREVER) == 0);
    M_TRUE(parcel[0] == 1);
}

/* Two unparks are one or two tokens; the last one always leaves one behind the parcel it was for. */
static void sleeper_for_the_second(void)
{
    do
        M_TRUE(mag__parker_park(&k, OS_FOREVER) == 0);
    while (at_32_load_rlx(&sent) == 0);
}

static void sleeper_with_deadline(void)
{
    while (mag__parker_park(&k, 1) == -ETIMEDOUT)
        if (model_tally(&slept_for_nothing) == 2) {
            M_TRUE(mag__parker_park(&k, OS_FOREVER) == 0);
            break;
        }
    M_TRUE(parcel[0] == 1);
}

/* Nobody is lost when the deadline and the token come together: a timeout takes no token with it. */
static void counter(void)
{
    for (unsigned i = 0; i < 2; i++)
        if (mag__parker_park(&k, 1) == 0)
            model_tally(&tokens);
}

static void none_left_behind(void)
{
    if (mag__parker_park(&k, 0) == 0)
        model_tally(&tokens);
    M_TRUE(tokens == 1);
}

static void one_or_two(void)
{
    if (mag__parker_park(&k, 0) == 0)
        model_tally(&tokens);
    M_TRUE(tokens == 1 || tokens == 2);
}

/* Sleeps elsewhere for a moment, and if no token came meanwhile in its bed: wherever it was, it sees the parcel. */
static void goes_away(void)
{
    if (mag__parker_away(&k) && !mag__parker_back(&k))
        M_TRUE(mag__parker_park(&k, OS_FOREVER) == 0);
    M_TRUE(parcel[0] == 1);
}

/* The token finds it away, or asleep, or is found by it; never is it left lying beside a sleeper. */
static void goes_away_twice(void)
{
    for (unsigned i = 0; i < 2; i++)
        if (!mag__parker_away(&k) || mag__parker_back(&k)) {
            M_TRUE(parcel[0] == 1);
            return;
        }
    M_TRUE(mag__parker_park(&k, OS_FOREVER) == 0);
    M_TRUE(parcel[0] == 1);
}

static void no_token(void) { M_TRUE(at_32_load_rlx(&k.word) == 0); }

static const struct model_case cases[] = {
    {"park", empty, {sleeper, waker_0}, no_token},
    {"two unparks", empty, {sleeper_for_the_second, waker_0_twice}, NULL},
    {"deadline", empty, {sleeper_with_deadline, waker_0}, no_token},
    {"away", empty, {goes_away, waker_0}, no_token},
    {"away twice", empty, {goes_away_twice, waker_0}, no_token},
    {"one token", empty, {counter, waker_0}, none_left_behind},
    {"two wakers", empty, {counter, waker_0, waker_1}, one_or_two},
};

int main(int argc, char **argv) { return model_main(argc, argv, cases, ARRAY_LEN(cases)); }
