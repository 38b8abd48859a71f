/* SPDX-License-Identifier: MIT */
/* idle.c: idle Ps and searching Ms: half of "no wake-up is ever lost".
 *
 * Protocol    publisher                            M that gives up
 *             1 make the G visible                 1 set the idle bit; searching -= 1 if it searched
 *             2 fence                              2 fence
 *             3 read searching and the bits        3 look at every source of work again
 *             Two fences have an order. If the publisher's is first, the other sees the G in step 3; if it is second, the
 *             publisher sees the bit and the count, and wakes somebody. A searcher that finds work does the same: it
 *             drops the count, fences, looks whether there is more, and passes the baton if there is.
 *             Giving up looks again whether it had searched or not: a publisher that found no idle P relies on it.
 *             Who moves Gs from one source to another has hidden them for a moment, and publishes them like new ones (mag__find_moved),
 *             unless it counts as searching: then it passes the baton anyhow. So does a searcher that gave up and saw work after all:
 *             it counts no longer, but it did when the work was published.
 *             Left to sysmon: what lies with a P that is about to be through with it (mag__netpoll_is_brisk), if it is not.
 * Ordering    IDL1  bit release (put) -> bit acquire (take): without this the new owner of a P could see its ring, caches
 *                   and counters as they were before its last owner used them.
 *             IDL2  fence (wake_wanted, somebody) <-> fence (put, search_end): without this both sides may read what was true
 *                   before the other's store, and a runnable G waits while every P sleeps.
 * Rejected    a list of idle Ps under a lock, as in Go: its lock is also the global queue's and the hottest of the runtime.
 *             membarrier on the sleeping side and no fence on the publisher's: saves 2 ns of a spawn and costs every
 *             other core an interrupt at each park.
 * See         tests/idle.c, tests/model/idle.c
 */
#include "core/idle.h"
#include "base/panic.h"
#include "os/hostile.h"

static unsigned word_of(unsigned i) { return i / 64; }
static uint64_t bit_of(unsigned i) { return (uint64_t)1 << (i % 64); }

void mag__idle_init(struct idle *s, unsigned procs)
{
    for (unsigned w = 0; w < sizeof s->bits / sizeof s->bits[0]; w++)
        at_64_store_rlx(&s->bits[w], 0);
    at_32_store_rlx(&s->searching, 0);
    at_32_store_rlx(&s->words, (procs + 63) / 64);
}

void mag__idle_grow(struct idle *s, unsigned procs)
{
    if (at_32_load_rlx(&s->words) < (procs + 63) / 64)
        at_32_store_rlx(&s->words, (procs + 63) / 64);
}

static unsigned words_of(const struct idle *s) { return at_32_load_rlx(&s->words); }

bool mag__idle_some(const struct idle *s)
{
    for (unsigned w = 0, n = words_of(s); w < n; w++)
        if (at_64_load_rlx(&s->bits[w]) != 0)
            return true;
    return false;
}

unsigned mag__idle_count(const struct idle *s)
{
    unsigned n = 0;
    for (unsigned w = 0, words = words_of(s); w < words; w++)
        n += (unsigned)__builtin_popcountll(at_64_load_rlx(&s->bits[w]));
    return n;
}

bool mag__idle_wake_wanted(struct idle *s)
{
    hostile_point();
    at_fence_seq(); /* IDL2 */
    return at_32_load_rlx(&s->searching) == 0 && mag__idle_some(s) && mag__idle_search_begin(s);
}

bool mag__idle_somebody(struct idle *s)
{
    hostile_point();
    at_fence_seq(); /* IDL2 */
    return at_32_load_rlx(&s->searching) != 0 || mag__idle_some(s);
}

bool mag__idle_search_begin(struct idle *s)
{
    uint32_t none = 0;
    return at_32_load_rlx(&s->searching) == 0 && at_32_cas_rlx(&s->searching, &none, 1);
}

void mag__idle_search_end(struct idle *s)
{
    uint32_t before = at_32_add_rlx(&s->searching, (uint32_t)-1);
    must(before != 0);
    hostile_point();
    at_fence_seq(); /* IDL2 */
}

void mag__idle_put(struct idle *s, unsigned i, bool searching)
{
    uint64_t before = at_64_or_rel(&s->bits[word_of(i)], bit_of(i)); /* IDL1 */
    must((before & bit_of(i)) == 0);
    hostile_point();
    if (searching)
        mag__idle_search_end(s);
    else
        at_fence_seq(); /* IDL2 */
}

bool mag__idle_take(struct idle *s, unsigned i)
{
    uint64_t before = at_64_and_acq(&s->bits[word_of(i)], ~bit_of(i)); /* IDL1 */
    return (before & bit_of(i)) != 0;
}

int mag__idle_take_any(struct idle *s, unsigned start)
{
    unsigned words = words_of(s);
    for (unsigned k = 0; k <= words; k++) {
        unsigned w = (word_of(start) + k) % words;
        uint64_t bits = at_64_load_rlx(&s->bits[w]);
        if (k == 0)
            bits &= ~(bit_of(start) - 1); /* the rest of this word comes last */
        while (bits != 0) {
            unsigned i = w * 64 + (unsigned)__builtin_ctzll(bits);
            if (mag__idle_take(s, i))
                return (int)i;
            bits &= bits - 1;
        }
    }
    return -1;
}

bool mag__idle_is(const struct idle *s, unsigned i) { return (at_64_load_rlx(&s->bits[word_of(i)]) & bit_of(i)) != 0; }
