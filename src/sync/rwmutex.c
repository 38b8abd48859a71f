/* SPDX-License-Identifier: MIT */
/* rwmutex.c: many readers or one writer. A word that becomes a queue (waitq.c); its value is the number of readers, or WRITER.
 * Strictly first come, first served once somebody waits: a writer holds up later readers, so it cannot starve; a release
 * lets in the first, and if that is a reader all readers behind it up to the next writer. */
#include "base/panic.h"
#include "sync/waitq.h"

#define WRITER 0x80000000u

enum { READ, WRITE };

static a64 *word_of(mag_rwmutex *m) { return (a64 *)&m->state; }

/* Lets it in if that is possible. */
static bool admit(uint32_t *value, uint32_t kind)
{
    if (kind == WRITE ? *value != 0 : (*value & WRITER) != 0)
        return false;
    *value = kind == WRITE ? WRITER : *value + 1;
    return true;
}

static bool must_wait(uint32_t *value, uint32_t kind) { return !admit(value, kind); }

static void acquire(mag_rwmutex *m, uint32_t kind, const char *function)
{
    a64 *word = word_of(m);
    uint64_t seen = at_64_load_rlx(word);
    while ((seen & WAITQ_QUEUE) == 0) {
        uint32_t value = waitq_value(seen);
        if (!admit(&value, kind))
            break;
        if (at_64_cas_acq(word, &seen, waitq_of_value(value))) /* WQ1 */
            return;
    }
    mag__waitq_wait(word, must_wait, kind, WAIT_RWMUTEX, OS_FOREVER, function);
}

static uint32_t released(uint32_t value, uint32_t kind)
{
    if (kind == WRITE ? value != WRITER : value == 0 || value == WRITER)
        mag__panic_misuse(kind == WRITE ? "mag_rwmutex_unlock: it is not locked" : "mag_rwmutex_runlock: it is not locked");
    return kind == WRITE ? 0 : value - 1;
}

static void release(mag_rwmutex *mutex, uint32_t kind)
{
    a64 *word = word_of(mutex);
    uint64_t seen = at_64_load_rlx(word);
    for (;;) {
        if ((seen & WAITQ_QUEUE) == 0) {
            if (at_64_cas_rel(word, &seen, waitq_of_value(released(waitq_value(seen), kind)))) /* WQ1 */
                return;
            continue;
        }
        struct m *m = mag__m_self();
        bool pinned = mag__wait_pin(m);
        struct queued *first = mag__waitq_lock(word);
        struct waiter *woken = NULL, **end = &woken;
        bool done = first != NULL;
        if (done) {
            uint32_t value = released(first->value, kind), before;
            while (first != NULL && (before = value, admit(&value, first->kind)))
                if (!mag__waitq_take(&first, &end))
                    value = before;
            mag__waitq_unlock(word, first, value);
            mag__wait_ready_all(m, woken);
        }
        mag__wait_unpin(pinned);
        if (done)
            return;
        seen = at_64_load_rlx(word);
    }
}

void mag_rwmutex_rlock(mag_rwmutex *m) { acquire(m, READ, "mag_rwmutex_rlock"); }
void mag_rwmutex_lock(mag_rwmutex *m) { acquire(m, WRITE, "mag_rwmutex_lock"); }
void mag_rwmutex_runlock(mag_rwmutex *m) { release(m, READ); }
void mag_rwmutex_unlock(mag_rwmutex *m) { release(m, WRITE); }
