/* SPDX-License-Identifier: MIT */
#include "os/spin.h"
#include "os/os.h"

enum { PATIENCE = 500 };

void mag__spin_wait(struct spin *s)
{
    for (unsigned n = 0;; n++) {
        if (at_32_load_rlx(&s->word) == 0 && mag__spin_try(s))
            return;
        if (n < PATIENCE)
            cpu_relax();
        else
            mag__os_nap(20000); /* its holder has no core */
    }
}
