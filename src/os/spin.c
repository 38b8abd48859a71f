/* SPDX-License-Identifier: MIT */
#include "os/spin.h"
#include "os/os.h"

enum { PATIENCE = 500, FIRST = 16, LAST = 64 };

void mag__spin_wait(struct spin *s)
{
    unsigned pause = FIRST;
    for (unsigned n = 0;; n += pause) {
        for (unsigned i = 0; i < pause; i++)
            cpu_relax();
        if (at_32_load_rlx(&s->word) == 0 && mag__spin_try(s))
            return;
        if (n > PATIENCE)
            mag__os_nap(20000); /* its holder has no core */
        else if (pause < LAST)
            pause *= 2;
    }
}
