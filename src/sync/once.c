/* SPDX-License-Identifier: MIT */
/* once.c: a function that runs once; everybody else waits for its end. A word that becomes a queue (waitq.c), whose value is
 * NEW, RUNNING or DONE. If the function ends its goroutine, it has run: a goroutine-local value stands for every once that a
 * goroutine is inside of, and its destructor is the end. */
#include "sync/waitq.h"

enum { NEW, RUNNING, DONE };

static a64 *word_of(mag_once *o) { return (a64 *)&o->state; }

static bool must_wait(uint32_t *value, uint32_t kind) { return (void)kind, *value == RUNNING; }

static void done(a64 *word)
{
    uint64_t seen = waitq_of_value(RUNNING);
    if (at_64_cas_rel(word, &seen, waitq_of_value(DONE))) /* WQ1 */
        return;
    struct m *m = mag__m_self();
    bool pinned = mag__wait_pin(m);
    struct queued *first;
    struct waiter *woken = NULL, **end = &woken;
    while ((first = mag__waitq_lock(word)) == NULL) {
        seen = waitq_of_value(RUNNING); /* whoever waited has given up: only a runtime that stops does that */
        if (at_64_cas_rel(word, &seen, waitq_of_value(DONE))) { /* WQ1 */
            mag__wait_unpin(pinned);
            return;
        }
    }
    while (first != NULL)
        mag__waitq_take(&first, &end);
    mag__waitq_unlock(word, NULL, DONE);
    mag__wait_ready_all(m, woken);
    mag__wait_unpin(pinned);
}

struct inside {
    a64 *word;
    struct inside *outer;
};

static void end_all(void *value)
{
    for (struct inside *i = value; i != NULL; i = i->outer)
        done(i->word);
}

static mag_local inside_key = {.destroy = end_all};

static NOINLINE void run(a64 *word, mag_fn fn, void *arg)
{
    struct inside here = {.word = word, .outer = mag_local_get(&inside_key)};
    int listed = mag_local_set(&inside_key, &here); /* a thread outside has none, and cannot end its goroutine either */
    fn(arg);
    if (listed == 0)
        mag_local_set(&inside_key, here.outer);
    done(word);
}

void mag_once_do(mag_once *o, mag_fn fn, void *arg)
{
    a64 *word = word_of(o);
    uint64_t seen = at_64_load_acq(word); /* WQ1 */
    if (likely(seen == waitq_of_value(DONE)))
        return;
    uint64_t fresh = waitq_of_value(NEW);
    if (at_64_cas_acq(word, &fresh, waitq_of_value(RUNNING))) /* WQ1 */
        run(word, fn, arg);
    else
        mag__waitq_wait(word, must_wait, 0, WAIT_ONCE, OS_FOREVER, "mag_once_do");
}
