/* SPDX-License-Identifier: MIT */
#include "core/parker.h"
#include "os/hostile.h"
#include "os/os.h"

#include <errno.h>

enum { EMPTY, TOKEN, ASLEEP, AWAY };

/* Takes the token if it is there; otherwise says that the thread is about to sleep. */
static bool take_or_announce(struct parker *k)
{
    uint32_t seen = EMPTY;
    if (at_32_cas_rlx(&k->word, &seen, ASLEEP))
        return false;
    at_32_xchg_acq(&k->word, EMPTY); /* PK1 */
    return true;
}

int mag__parker_park(struct parker *k, int64_t deadline)
{
    if (take_or_announce(k))
        return 0;
    hostile_point();
    for (;;) {
        int r = mag__os_futex_wait(&k->word, ASLEEP, deadline);
        uint32_t seen = TOKEN;
        if (at_32_cas_acq(&k->word, &seen, EMPTY)) /* PK1 */
            return 0;
        if (r == -ETIMEDOUT) {
            seen = ASLEEP; /* the token may come right now: then it is ours */
            if (at_32_cas_rlx(&k->word, &seen, EMPTY))
                return -ETIMEDOUT;
            at_32_xchg_acq(&k->word, EMPTY); /* PK1 */
            return 0;
        }
    }
}

enum parker_was mag__parker_unpark(struct parker *k)
{
    uint32_t before = at_32_xchg_rel(&k->word, TOKEN); /* PK1 */
    if (before == AWAY)
        return PARKER_AWAY;
    if (before != ASLEEP)
        return PARKER_AWAKE;
    hostile_point();
    mag__os_futex_wake(&k->word, 1);
    return PARKER_ASLEEP;
}

bool mag__parker_away(struct parker *k)
{
    uint32_t seen = EMPTY;
    if (at_32_cas_rlx(&k->word, &seen, AWAY))
        return true;
    at_32_xchg_acq(&k->word, EMPTY); /* PK1 */
    return false;
}

bool mag__parker_back(struct parker *k) { return at_32_xchg_acq(&k->word, EMPTY) == TOKEN; /* PK1 */ }
