/* SPDX-License-Identifier: MIT */
/* memory.c: what a load may see, and futexes.
 *
 * Views       a location has a history of messages; a thread has a view: for each location the oldest message it may
 *             still read. A release store attaches the writer's view to its message, an acquire load joins the view of
 *             the message it reads. A relaxed store attaches the view of its thread's last fence. Read-modify-writes
 *             read the newest message and hand its view on (release sequences). A fence exchanges views with one global
 *             view. A cas that fails is a relaxed load, and may read an old message.
 *             The clocks of the threads are entries of the views, so a view also tells what happened before now.
 * Late loads  so far no load reads a store that runs after it. But compilers and machines may delay a relaxed load
 *             behind later stores of its thread. When a store follows from what another thread did after its load of
 *             this location, and the load does not happen before the store, then the load gets one more option: to have
 *             read that store. Such an execution counts only if the store really comes. One late load an execution.
 * Futexes     compare and sleep in one step, on the newest value, and order nothing. A wait with a deadline may time
 *             out at any moment, and any wait may return for no reason.
 * Not seen    modification orders that differ from the order in which the stores run; acquire loads and
 *             read-modify-writes that are late. A value that only its own late load could have brought about is not
 *             offered (it was stored in an execution where the load read something else), but may slip through when the
 *             store's value also depends on the load.
 */
#include "inner.h"
#include "base/atomic.h"
#include "os/os.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>

struct msg {
    struct msg *older;
    uint64_t value, id; /* id: the writer's history up to here */
    uint16_t ts;        /* its place in the modification order */
    uint16_t cause[MODEL_THREADS];
    struct view view;
};

struct loc {
    const void *at;
    unsigned size, index; /* index: in the views */
    struct msg *newest;
};

static struct {
    struct loc loc[VIEW];
    struct msg msg[STEPS + VIEW];
    unsigned nlocs, nmsgs;
    struct view sc; /* of all fences */
    uint64_t sc_history;
} memory;

void memory_reset(void)
{
    memory.nlocs = memory.nmsgs = 0;
    memory.sc = (struct view){{0}};
    memory.sc_history = 0;
}

uint64_t memory_state(void)
{
    uint64_t h = memory.sc_history;
    if (run.promise.made)
        h = mix(mix(h, run.promise.value), run.promise.kept + 2u * run.promise.loc);
    return h;
}

static bool acquires(int order) { return order == __ATOMIC_ACQUIRE || order == __ATOMIC_ACQ_REL; }
static bool releases(int order) { return order == __ATOMIC_RELEASE || order == __ATOMIC_ACQ_REL; }

static uint64_t peek(const void *at, unsigned size)
{
    uint64_t value = 0;
    memcpy(&value, at, size);
    return value;
}

static void join(struct view *to, const struct view *from)
{
    for (unsigned i = 0; i < VIEW; i++)
        to->at[i] = to->at[i] > from->at[i] ? to->at[i] : from->at[i];
}

/* A step of the running thread, at this location. Memory itself always holds the newest value, so what setup wrote
 * becomes the first message. */
static struct loc *arrive(const void *at, unsigned size)
{
    explore_step();
    unsigned i = 0;
    while (i < memory.nlocs && memory.loc[i].at != at)
        i++;
    struct loc *l = &memory.loc[i];
    if (i == memory.nlocs) {
        if (MODEL_THREADS + i == VIEW)
            model_fail("more atomics than the explorer can hold");
        struct msg *first = &memory.msg[memory.nmsgs++];
        *first = (struct msg){.value = peek(at, size), .id = mix(1, (uintptr_t)at)};
        *l = (struct loc){.at = at, .size = size, .index = MODEL_THREADS + i, .newest = first};
        memory.nlocs++;
    }
    /* who has read a late value may not look again before its store has come: he would see something older */
    if (run.promise.made && !run.promise.kept && run.promise.reader == now->self && run.promise.loc == l->index)
        explore_leave(DISCARDED);
    now->know.last_load[l->index].id = 0;
    return l;
}

static void observe(const struct loc *l, const struct msg *m, int order)
{
    struct knowledge *k = &now->know;
    if (k->view.at[l->index] < m->ts)
        k->view.at[l->index] = m->ts;
    join(&k->acquired, &m->view);
    if (acquires(order))
        join(&k->view, &m->view);
    for (unsigned t = 0; t < MODEL_THREADS; t++)
        if (k->cause[t] < m->cause[t])
            k->cause[t] = m->cause[t];
    k->history = mix(k->history, m->id);
}

/* ---- late loads ---- */

static void offer_late(const struct loc *l, const struct msg *m)
{
    for (unsigned t = 0; t < run.nthreads && run.left.late != 0; t++) {
        uint64_t load = threads[t].know.last_load[l->index].id;
        uint16_t stamp = threads[t].know.last_load[l->index].stamp;
        if (load != 0 && t != now->self && now->know.view.at[t] < stamp && now->know.cause[t] >= stamp)
            explore_offer(load, (struct future){m->value, now->self});
    }
}

static uint64_t read_late(const struct loc *l, struct future f)
{
    run.promise.made = true;
    run.promise.reader = now->self;
    run.promise.writer = f.thread;
    run.promise.loc = l->index;
    run.promise.stamp = now->know.view.at[now->self];
    run.promise.value = f.value;
    run.left.late = 0;
    now->know.history = mix(mix(now->know.history, f.value), f.thread + 1);
    explore_trace("load", __ATOMIC_RELAXED, l->at, f.value, "(late: not stored yet)");
    return f.value;
}

static void keep_promise(const struct loc *l, const struct msg *m)
{
    if (!run.promise.made || run.promise.kept || run.promise.loc != l->index || run.promise.writer != now->self ||
        run.promise.value != m->value || now->know.view.at[run.promise.reader] >= run.promise.stamp)
        return;
    run.promise.kept = true;
    struct knowledge *reader = &threads[run.promise.reader].know;
    reader->view.at[l->index] = m->ts;
    join(&reader->acquired, &m->view);
    explore_trace("", -1, NULL, 0, "(this is what the late load read)");
}

/* ---- accesses ---- */

/* read: the message that a read-modify-write has read. */
static void append(struct loc *l, uint64_t value, int order, const struct msg *read)
{
    struct knowledge *k = &now->know;
    struct msg *m = &memory.msg[memory.nmsgs++];
    m->older = l->newest;
    m->ts = (uint16_t)(l->newest->ts + 1);
    m->value = value;
    k->view.at[l->index] = m->ts;
    m->view = releases(order) ? k->view : k->released;
    m->view.at[l->index] = m->ts;
    if (read != NULL)
        join(&m->view, &read->view);
    memcpy(m->cause, k->cause, sizeof m->cause);
    m->id = k->history = mix(mix(k->history, (uintptr_t)l->at), m->ts);
    l->newest = m;
    memcpy((void *)(uintptr_t)l->at, &value, l->size);
    keep_promise(l, m);
    offer_late(l, m);
}

uint64_t model_load(const void *at, unsigned size, int order)
{
    if (now == NULL)
        return peek(at, size);
    const struct loc *l = arrive(at, size);
    const struct msg *m = l->newest;
    unsigned n = run.left.stale != 0 ? m->ts - now->know.view.at[l->index] + 1u : 1;
    uint64_t id = order == __ATOMIC_RELAXED && run.left.late != 0 ? mix(now->know.history, (uintptr_t)at) | 1 : 0;
    now->know.last_load[l->index].id = id;
    now->know.last_load[l->index].stamp = now->know.view.at[now->self];
    struct future late;
    unsigned k = n > 1 || id != 0 ? explore_choose(n, id, &late) : 0;
    if (k >= n)
        return read_late(l, late);
    run.left.stale -= k > 0;
    for (unsigned i = 0; i < k; i++)
        m = m->older;
    observe(l, m, order);
    explore_trace("load", order, at, m->value, k > 0 ? "(old)" : "");
    return m->value;
}

void model_store(void *at, unsigned size, uint64_t value, int order)
{
    if (now == NULL) {
        memcpy(at, &value, size);
        return;
    }
    struct loc *l = arrive(at, size);
    explore_trace("store", order, at, value, "");
    append(l, value, order, NULL);
}

static uint64_t apply(int what, uint64_t old, uint64_t value)
{
    return what == MODEL_ADD   ? old + value
           : what == MODEL_AND ? (old & value)
           : what == MODEL_OR  ? (old | value)
                               : value;
}

uint64_t model_rmw(void *at, unsigned size, int what, uint64_t value, int order)
{
    static const char *const verbs[] = {
        [MODEL_ADD] = "add", [MODEL_AND] = "and", [MODEL_OR] = "or", [MODEL_XCHG] = "xchg"};
    if (now == NULL) {
        uint64_t old = peek(at, size);
        value = apply(what, old, value);
        memcpy(at, &value, size);
        return old;
    }
    struct loc *l = arrive(at, size);
    const struct msg *m = l->newest;
    value = apply(what, m->value, value) & (UINT64_MAX >> (64 - 8 * size));
    char text[64], note[80];
    if (run.tracing)
        snprintf(note, sizeof note, "(was %s)", explore_show(m->value, text));
    explore_trace(verbs[what], order, at, value, note);
    observe(l, m, order);
    append(l, value, order, m);
    return m->value;
}

bool model_cas(void *at, unsigned size, void *expected, uint64_t desired, int order, int fail_order)
{
    uint64_t want = peek(expected, size);
    if (now == NULL) {
        bool same = peek(at, size) == want;
        memcpy(same ? at : expected, same ? &desired : at, size);
        return same;
    }
    struct loc *l = arrive(at, size);
    const struct msg *m = l->newest;
    unsigned n = 1;
    for (const struct msg *o = m; run.left.stale != 0 && o->ts > now->know.view.at[l->index]; o = o->older)
        n += o->older->value != want;
    unsigned k = n > 1 ? explore_choose(n, 0, NULL) : 0;
    run.left.stale -= k > 0;
    while (k > 0) {
        m = m->older;
        k -= m->value != want;
    }
    bool same = m->value == want;
    observe(l, m, same ? order : fail_order);
    explore_trace(same ? "cas" : "cas failed", same ? order : fail_order, at, same ? desired : m->value,
                  m != l->newest ? "(old)" : "");
    if (same)
        append(l, desired, order, m);
    else
        memcpy(expected, &m->value, size);
    return same;
}

void model_fence(void)
{
    if (now == NULL)
        return;
    explore_step();
    explore_trace("fence", -1, NULL, 0, "");
    struct knowledge *k = &now->know;
    join(&k->view, &k->acquired);
    join(&k->view, &memory.sc);
    memory.sc = k->released = k->view;
    k->history = mix(k->history, memory.sc_history);
    memory.sc_history = mix(memory.sc_history, k->history);
}

/* ---- the operating system ---- */

int mag__os_futex_wait(a32 *word, uint32_t expected, int64_t deadline)
{
    bool timed = deadline != OS_FOREVER;
    if (now == NULL)
        return peek(word, 4) == expected && timed ? -ETIMEDOUT : 0;
    explore_step();
    bool differs = peek(word, 4) != expected;
    bool spurious = !differs && run.left.stale != 0 && explore_choose(2, 0, NULL) == 1;
    run.left.stale -= spurious;
    now->know.history = mix(now->know.history, 2u + differs + 2u * spurious);
    explore_trace("futex wait", -1, word, expected, differs ? "(differs)" : spurious ? "(returns for no reason)" : "");
    if (differs || spurious)
        return 0;
    now->state = ASLEEP;
    now->bed = word;
    now->timed = timed;
    now->woken = false;
    explore_schedule();
    now->state = READY;
    now->know.history = mix(now->know.history, 6u + now->woken);
    explore_trace(now->woken ? "woken" : "timed out", -1, word, expected, "");
    return now->woken ? 0 : -ETIMEDOUT;
}

void mag__os_futex_wake(a32 *word, int n)
{
    if (now == NULL)
        return;
    explore_step();
    now->know.history = mix(now->know.history, 8);
    for (; n > 0; n--) {
        unsigned option[MODEL_THREADS], count = 0;
        for (unsigned t = 0; t < run.nthreads; t++)
            if (threads[t].state == ASLEEP && threads[t].bed == word)
                option[count++] = t;
        explore_trace("futex wake", -1, word, count, "(asleep)");
        if (count == 0)
            return;
        struct thread *t = &threads[option[count > 1 ? explore_choose(count, 0, NULL) : 0]];
        t->state = READY;
        t->woken = true;
    }
}

int64_t mag__os_now(void) { return 0; } /* deadlines pass when the search says so */
