/* SPDX-License-Identifier: MIT */
/* fork.c: in a forked child the runtime is off.
 *
 * Only the thread that forked lives on in the child, and what the others held stays held: nothing of the runtime can go on. So
 * the child's thread is no goroutine any more, calls return -EPERM, mag_run too, and the end of the goroutine's function is the
 * end of the process, as it is for the last thread. fork and exec, posix_spawn, system and popen need no more than that.
 * Worker threads block asynchronous signals; the child gets back the mask that mag_run's caller had.
 */
#include "run/run.h"

#include <pthread.h>
#include <signal.h>

static sigset_t callers_mask;
static bool registered;

static void in_child(void)
{
    struct rt *rt = &mag__rt;
    if (at_32_load_rlx(&rt->state) == RT_OFF)
        return;
    at_32_store_rlx(&rt->state, RT_FORKED);
    at_32_store_rlx(&rt->foreign, 0);
    if (mag__m_self() == NULL)
        return;
    mag__m_set_self(NULL);
    pthread_sigmask(SIG_SETMASK, &callers_mask, NULL);
}

/* Under the claim of the runtime: one thread at a time. */
void mag__fork_prepare(void)
{
    pthread_sigmask(SIG_SETMASK, NULL, &callers_mask);
    if (!registered)
        registered = pthread_atfork(NULL, NULL, in_child) == 0;
}
