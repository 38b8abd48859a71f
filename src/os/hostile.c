/* SPDX-License-Identifier: MIT */
#include "os/hostile.h"

#ifdef MAG_HOSTILE

#include "base/atomic.h"
#include "base/panic.h"
#include "base/rng.h"
#include "os/os.h"

#include <sched.h>
#include <stdlib.h>

static a64 seed, threads;
static __thread struct rng rng __attribute__((tls_model("initial-exec")));

/* Every thread has its own sequence: the seed's, by order of arrival. */
static NOIPA struct rng *mine(void)
{
    if (rng.state == 0) {
        uint64_t none = 0, s = at_64_load_rlx(&seed);
        if (s == 0) {
            const char *text = getenv("MAGPIE_HOSTILE_SEED");
            s = text != NULL ? strtoull(text, NULL, 0) : mag__os_random() >> 32;
            s = s != 0 ? s : 1;
            if (at_64_cas_rlx(&seed, &none, s))
                mag__panic_say("hostile build, MAGPIE_HOSTILE_SEED=%llu", (unsigned long long)s);
            s = at_64_load_rlx(&seed);
        }
        rng_init(&rng, s + at_64_add_rlx(&threads, 1));
    }
    return &rng;
}

bool mag__hostile_chance(unsigned n) { return rng_below(mine(), n) == 0; }

void mag__hostile_pause(void)
{
    struct rng *r = mine();
    uint32_t x = rng_next(r);
    if ((x & 7) != 0)
        return;
    x >>= 3;
    if ((x & 1023) == 0)
        mag__os_nap(1000 + (x >> 10) % 100000);
    else if ((x & 15) == 0)
        sched_yield();
    else
        for (unsigned n = (x >> 10) % 200; n > 0; n--)
            cpu_relax();
}

#endif
