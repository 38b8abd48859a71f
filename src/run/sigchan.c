/* SPDX-License-Identifier: MIT */
/* sigchan.c: mag_signal_new: signals of the process on a channel.
 *
 * A handler, on whatever thread the kernel chose, counts the signal and wakes a thread of ours; that thread sends. Nothing else
 * can be done in a handler. A signal that finds the channel full is dropped: give it room for those that matter. Closing the
 * channel ends the subscription; with the last one for a signal the program's own disposition comes back. They all end with
 * the runtime.
 * Ordering    SGN1  word add release (handler) -> word acquire (thread): without this the thread could look at the counts before
 *                   the handler's is there, and sleep.
 */
#include "run/run.h"
#include "base/panic.h"

#include <errno.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>

struct subscription {
    struct subscription *next;
    sigset_t set;
    mag_chan *chan;
};

/* Not part of struct rt: the handler may run at any time, and must find this and nothing else. */
static struct {
    a32 word;         /* futex: something came, or the thread is to end */
    a32 came[NSIG];
    a32 ends;
    struct lock lock; /* the rest */
    bool running;
    struct os_thread thread;
    struct subscription *first;
    struct sigaction before[NSIG];
    unsigned wanted[NSIG];
} sig;

static void on_signal(int n)
{
    int saved = errno;
    at_32_add_rlx(&sig.came[n], 1);
    at_32_add_rel(&sig.word, 1); /* SGN1 */
    mag__os_futex_wake(&sig.word, 1);
    errno = saved;
}

static void want_locked(int n, bool more)
{
    if (more && sig.wanted[n]++ == 0) {
        struct sigaction sa;
        memset(&sa, 0, sizeof sa);
        sa.sa_handler = on_signal;
        sa.sa_flags = SA_RESTART | SA_ONSTACK;
        sigfillset(&sa.sa_mask);
        sigaction(n, &sa, &sig.before[n]);
    } else if (!more && --sig.wanted[n] == 0) {
        sigaction(n, &sig.before[n], NULL);
    }
}

static void want_set_locked(const sigset_t *set, bool more)
{
    for (int n = 1; n < NSIG; n++)
        if (sigismember(set, n) == 1)
            want_locked(n, more);
}

static void end_locked(struct subscription **at)
{
    struct subscription *s = *at;
    *at = s->next;
    want_set_locked(&s->set, false);
    mag_chan_unref(s->chan);
    free(s);
}

static void deliver(int n)
{
    mag__lock_take(&sig.lock);
    for (struct subscription **at = &sig.first; *at != NULL;) {
        if (sigismember(&(*at)->set, n) == 1 && mag_chan_send((*at)->chan, &n, MAG_TRY) == -EPIPE)
            end_locked(at);
        else
            at = &(*at)->next;
    }
    mag__lock_give(&sig.lock);
}

static void *signal_main(void *arg)
{
    (void)arg;
    while (at_32_load_rlx(&sig.ends) == 0) {
        uint32_t word = at_32_load_acq(&sig.word); /* SGN1 */
        for (int n = 1; n < NSIG; n++)
            for (uint32_t k = at_32_xchg_rlx(&sig.came[n], 0); k > 0; k--)
                deliver(n);
        if (at_32_load_rlx(&sig.ends) == 0)
            mag__os_futex_wait(&sig.word, word, OS_FOREVER);
    }
    return NULL;
}

/* Only what a handler can catch and ends nothing by itself. */
static bool can_be_had(const sigset_t *set)
{
    static const int never[] = {SIGKILL, SIGSTOP, SIGSEGV, SIGBUS, SIGFPE, SIGILL, SIGTRAP, SIGSYS, SIGABRT};
    for (size_t i = 0; i < ARRAY_LEN(never); i++)
        if (sigismember(set, never[i]) == 1)
            return false;
    return true;
}

mag_chan *mag_signal_new(const sigset_t *set, size_t capacity)
{
    if (set == NULL || !can_be_had(set) || mag__foreign_enter() != 0)
        return NULL;
    struct subscription *s = calloc(1, sizeof *s);
    mag_chan *c = mag_chan_new(sizeof(int), capacity);
    mag__lock_take(&sig.lock);
    /* under the lock: a runtime that stops has passed it, or will */
    bool fine = s != NULL && c != NULL && at_32_load_rlx(&mag__rt.state) == RT_RUNNING;
    if (fine && !sig.running) {
        at_32_store_rlx(&sig.ends, 0);
        fine = sig.running = mag__os_thread_start(&sig.thread, "magpie-signal", signal_main, NULL) == 0;
    }
    if (fine) {
        s->set = *set;
        s->chan = mag_chan_ref(c);
        s->next = sig.first;
        sig.first = s;
        want_set_locked(set, true);
    }
    mag__lock_give(&sig.lock);
    mag__foreign_leave();
    if (!fine) {
        mag_chan_unref(c);
        free(s);
        return NULL;
    }
    return c;
}

void mag__sigchan_stop(void)
{
    mag__lock_take(&sig.lock);
    bool running = sig.running;
    sig.running = false;
    while (sig.first != NULL)
        end_locked(&sig.first);
    mag__lock_give(&sig.lock);
    if (!running)
        return;
    at_32_store_rlx(&sig.ends, 1);
    at_32_add_rel(&sig.word, 1); /* SGN1 */
    mag__os_futex_wake(&sig.word, 1);
    mag__os_thread_join(&sig.thread);
}
