/* SPDX-License-Identifier: MIT */
/* group.c: structured concurrency: goroutines that end together, and cancellation.
 *
 * What        a group counts its members and remembers the first failure. Cancelling it wakes every member out of the call it
 *             blocks in, and every later blocking call of a member fails at once, until it has ended: nothing is destroyed,
 *             each cleans up after itself.
 * Invariants  members == number of goroutines that were accepted and have not left; the list holds their g_ext
 *             cancelled is set once, under the lock, and read without it
 * Cancelling  sets `cancelled`, then visits the members' wait words (sched/wait.h, WT2). A word decided here belongs to a
 *             goroutine that stays parked until it is made runnable here, after the lock.
 * Deadline    a timer in some P's heap, deleted before the wait for the members returns: no timer outlives the group.
 * Who         any thread; the group's memory stays until the wait or end for it has returned.
 * Ordering    GRP1  ext.g release (spawn) -> acquire (cancel): without this a cancel could look at the wait word of a descriptor that
 *                   it sees unwritten.
 */
#include "sync/group.h"
#include "base/panic.h"
#include "sync/waitq.h"

#include <stdlib.h>
#include <string.h>

struct group {
    struct group_base base; /* first: what a member points to */
    struct spin lock;
    int failure;            /* the first, negative; lock */
    uint32_t members;       /* lock */
    struct g_ext *first;    /* lock */
    struct joiner *joiners; /* those who wait for the members; lock */
    struct lock deadline;   /* setting and stopping the timer, one at a time; taken before `lock` */
    bool timed;             /* deadline: the timer was added */
    struct timer timer;
};

_Static_assert(sizeof(struct group) <= sizeof(mag_group), "the public struct has room for it");
_Static_assert(_Alignof(struct group) <= _Alignof(mag_group), "and is aligned for it");

struct joiner {
    struct waiter w; /* first: what a goroutine's after_arg points to */
    struct joiner *next;
    struct group *group;
    a32 in;          /* it is among the joiners; lock writes */
};

static struct group *of(mag_group *g) { return (struct group *)g; }
static struct group *of_member(const struct g_ext *x) { return container_of(x->group, struct group, base); }

/* ---- cancelling ---- */

/* Decides the members that wait. Those to be made runnable are chained through `woken`: what a parked one waits with stays where a
 * runtime that stops meanwhile finds it. */
static struct g_ext *decide_members_locked(struct group *g)
{
    struct g_ext *list = NULL;
    for (struct g_ext *x = g->first; x != NULL; x = x->next) {
        struct g *member = at_ptr_load_acq(&x->g); /* GRP1 */
        if (member == NULL || at_32_load_rlx(&x->spared) != 0)
            continue;
        uint64_t seen = at_64_load_rlx(&member->wait);
        while ((seen & WAIT_MAY_CANCEL) != 0 &&
               ((seen & WAIT_STATE) == WAIT_PARKED || (seen & WAIT_STATE) == WAIT_PREPARING)) {
            if (!at_64_cas_acqrel(&member->wait, &seen, (seen & ~WAIT_STATE) | WAIT_CANCELLED)) /* WT1 WT3 */
                continue;
            if ((seen & WAIT_STATE) == WAIT_PARKED) {
                x->woken = list;
                list = x;
            }
            break;
        }
    }
    return list;
}

/* wake: how to make a chain of goroutines runnable from where the caller is. */
static void cancel(struct group *g, int cause, bool failure, void (*wake)(struct g_ext *list))
{
    mag__spin_take(&g->lock);
    if (failure && g->failure == 0)
        g->failure = -cause;
    if (at_32_load_rlx(&g->base.cancelled) == 0)
        at_32_store_rlx(&g->base.cancelled, (uint32_t)cause);
    at_fence_seq(); /* WT2 */
    struct g_ext *list = decide_members_locked(g);
    mag__spin_give(&g->lock); /* the last touch */
    wake(list);
}

static void wake_from_user_code(struct g_ext *list)
{
    struct m *m = mag__m_self();
    if (list == NULL)
        return;
    if (m != NULL)
        mag__token_enter(m);
    bool with_p = m != NULL && m->p != NULL, running = with_p || mag__foreign_enter() == 0;
    for (struct g_ext *x = list, *next; x != NULL && running; x = next) {
        next = x->woken; /* from here on it may be gone */
        if (!m_outlived(m, at_ptr_load_rlx(&x->g)))
            mag__wake_any(m, at_ptr_load_rlx(&x->g));
    }
    if (running && !with_p)
        mag__foreign_leave();
    if (m != NULL)
        mag__token_leave(m);
}

static void wake_from_scheduler(struct g_ext *list)
{
    for (struct g_ext *x = list, *next; x != NULL; x = next) {
        next = x->woken;
        mag__wake_global(at_ptr_load_rlx(&x->g));
    }
}

/* From user code, by any thread: nobody's stack goes away meanwhile. */
static void cancel_pinned(struct group *g, int cause, bool failure)
{
    bool pinned = mag__wait_pin(mag__m_self());
    cancel(g, cause, failure, wake_from_user_code);
    mag__wait_unpin(pinned);
}

/* ---- members ---- */

static void leave_group(struct g_ext *x)
{
    struct group *g = of_member(x);
    struct m *m = mag__m_self();
    struct waiter *woken = NULL, **end = &woken;
    if (m != NULL && m_in_rt(m))
        m = NULL; /* a straggler is discarded: as from outside */
    bool pinned = mag__wait_pin(m);
    mag__spin_take(&g->lock);
    *x->link = x->next;
    if (x->next != NULL)
        x->next->link = x->link;
    if (--g->members == 0)
        for (struct joiner *j = g->joiners, *next; j != NULL; j = next) {
            next = j->next; /* decided, it waits only for the lock */
            if (waiter_decide(&j->w, WAIT_WOKEN) == DECIDED_READY) {
                j->w.next = NULL;
                *end = &j->w;
                end = &j->w.next;
            }
            at_32_store_rlx(&j->in, 0);
        }
    if (g->members == 0)
        g->joiners = NULL;
    mag__spin_give(&g->lock); /* the last touch */
    x->group = NULL;
    mag__wait_ready_all(m, woken);
    mag__wait_unpin(pinned);
}

static int join(struct group *g, struct g_ext *x)
{
    mag__spin_take(&g->lock);
    int r = at_32_load_rlx(&g->base.cancelled) != 0 ? -ECANCELED : 0;
    if (r == 0) {
        x->group = &g->base;
        x->next = g->first;
        x->link = &g->first;
        if (g->first != NULL)
            g->first->link = &x->next;
        g->first = x;
        g->members++;
    }
    mag__spin_give(&g->lock);
    return r;
}

static int group_spawn(mag_group *group, struct spawn *s)
{
    struct g_ext *x = calloc(1, sizeof *x);
    if (x == NULL)
        return -ENOMEM;
    int r = join(of(group), x);
    if (r == 0) {
        s->ext = x;
        r = mag__spawn(s);
        if (r != 0)
            leave_group(x);
    }
    if (r != 0)
        free(x);
    return r;
}

int mag_group_go(mag_group *group, mag_fn fn, void *arg)
{
    if (fn == NULL || group == NULL)
        return -EINVAL;
    struct spawn s = {.fn = fn, .arg = arg, .stack_class = SPAWN_DEFAULT, .created = __builtin_return_address(0)};
    return group_spawn(group, &s);
}

int mag_group_go_copy(mag_group *group, mag_fn fn, const void *arg, size_t size)
{
    if (fn == NULL || group == NULL || (arg == NULL && size != 0))
        return -EINVAL;
    struct spawn s = {.fn = fn,
                      .copy = arg,
                      .copy_size = size,
                      .stack_class = SPAWN_DEFAULT,
                      .created = __builtin_return_address(0)};
    return group_spawn(group, &s);
}

/* ---- joining ---- */

static void leave_joiners(struct joiner *j)
{
    mag__spin_take(&j->group->lock);
    for (struct joiner **at = &j->group->joiners; *at != NULL; at = &(*at)->next)
        if (*at == j) {
            *at = j->next;
            break;
        }
    at_32_store_rlx(&j->in, 0);
    mag__spin_give(&j->group->lock);
}

/* For one who never comes back: if it is out already, the group may be gone. */
static void forget(struct waiter *w)
{
    struct joiner *j = container_of(w, struct joiner, w);
    if (at_32_load_rlx(&j->in) != 0)
        leave_joiners(j);
}

/* Waits until there are no members. 0, -ETIMEDOUT, -ECANCELED, -ESHUTDOWN. */
static int wait_members(struct group *g, mag_time deadline, bool may_cancel, const char *function)
{
    struct m *m = mag__m_self();
    struct joiner j;
    j.group = g;
    if (m != NULL)
        m = mag__park_enter(m, function);
    mag__spin_take(&g->lock);
    if (g->members == 0 || deadline <= MAG_TRY) {
        int r = g->members == 0 ? 0 : -ETIMEDOUT;
        mag__spin_give(&g->lock);
        if (m != NULL)
            mag__token_leave(m);
        return r;
    }
    if (m == NULL)
        waiter_init_thread(&j.w, forget);
    else {
        struct g_ext *x = m_curg(m)->ext;
        if (!may_cancel && x != NULL)
            at_32_bump_owner(&x->shield, 1);
        waiter_init(&j.w, m_curg(m), true, forget);
        if (!may_cancel && x != NULL)
            at_32_bump_owner(&x->shield, (uint32_t)-1);
    }
    j.next = g->joiners;
    at_32_store_rlx(&j.in, 1);
    g->joiners = &j;
    mag__spin_give(&g->lock);
    if (m == NULL) {
        mag__wait_thread(&j.w, deadline);
    } else {
        if (deadline == MAG_FOREVER || mag__wait_arm(m, &j.w, deadline)) {
            m = mag__wait_park(m, &j.w, WAIT_GROUP);
            mag__wait_disarm(&j.w);
        } else {
            waiter_decide(&j.w, WAIT_LATE);
        }
        mag__token_leave(m);
    }
    int error = wait_error(waiter_outcome(&j.w));
    if (j.w.result != -ESHUTDOWN) /* then it has left, and the group may have gone with the stacks */
        leave_joiners(&j); /* woken or not: the last member's last touch is to unlock */
    return error != 0 ? error : j.w.result;
}

static void stop_timer_locked(struct group *g)
{
    if (g->timed)
        mag__clock_delete(&g->timer);
    g->timed = false;
}

/* No members: the deadline has nobody left to strike. */
static void stop_timer(struct group *g)
{
    mag__lock_take(&g->deadline);
    stop_timer_locked(g);
    mag__lock_give(&g->deadline);
}

static int failure_of(struct group *g)
{
    mag__spin_take(&g->lock);
    int r = g->failure;
    mag__spin_give(&g->lock);
    return r;
}

int mag_group_wait(mag_group *group, mag_time deadline)
{
    struct group *g = of(group);
    bool cancelled = m_is_cancelled(mag__m_self());
    int r = cancelled ? -ECANCELED : wait_members(g, deadline, true, "mag_group_wait");
    if (r == -ECANCELED) { /* a group on the stack is never left behind */
        cancel_pinned(g, ECANCELED, true);
        int done = wait_members(g, MAG_FOREVER, false, "mag_group_wait");
        if (done != 0)
            return done;
        stop_timer(g);
        return -ECANCELED;
    }
    if (r != 0)
        return r;
    stop_timer(g);
    return failure_of(g);
}

int mag_group_end(mag_group *group)
{
    struct group *g = of(group);
    cancel_pinned(g, ECANCELED, false);
    int r = wait_members(g, MAG_FOREVER, false, "mag_group_end");
    if (r != 0)
        return r; /* the runtime stopped */
    stop_timer(g);
    r = failure_of(g);
    memset(group, 0, sizeof *group);
    return r;
}

void mag_group_cancel(mag_group *group) { cancel_pinned(of(group), ECANCELED, true); }

/* ---- the deadline ---- */

static struct g *fire(struct timer *t, int64_t now)
{
    (void)now;
    struct group *g = container_of(t, struct group, timer);
    cancel(g, ETIMEDOUT, true, wake_from_scheduler);
    return NULL;
}

void mag_group_set_deadline(mag_group *group, mag_time when)
{
    struct group *g = of(group);
    bool later = when != MAG_FOREVER && when > mag__os_now();
    mag__lock_take(&g->deadline);
    stop_timer_locked(g);
    g->timer.fire = fire;
    if (later)
        g->timed = mag__clock_add(&g->timer, when, 0);
    bool now = when != MAG_FOREVER && !g->timed;
    mag__lock_give(&g->deadline);
    if (now)
        cancel_pinned(g, ETIMEDOUT, true); /* with no memory to wait for it: better too early than never */
}

/* ---- in a member ---- */

static struct g_ext *member(const char *function, bool must_be)
{
    struct m *m = mag__m_self();
    struct g *g = m == NULL || m_in_rt(m) ? NULL : m_curg(m);
    if (g == NULL && must_be)
        mag__park_misused(function);
    return g == NULL || g->ext == NULL || g->ext->group == NULL ? NULL : g->ext;
}

void mag_fail(int err)
{
    struct g_ext *x = member("mag_fail", true);
    if (x == NULL)
        mag__panic_misuse("mag_fail called in a goroutine that is no member of a group");
    int cause = err < 0 ? -err : err;
    at_32_store_rlx(&x->spared, 1);
    cancel_pinned(of_member(x), cause != 0 ? cause : ECANCELED, true);
}

int mag_cancelled(void)
{
    struct g_ext *x = member("mag_cancelled", false);
    return x == NULL || at_32_load_rlx(&x->spared) != 0 ? 0 : -(int)at_32_load_rlx(&x->group->cancelled);
}

void mag_shield_begin(void)
{
    struct g_ext *x = member("mag_shield_begin", true);
    if (x != NULL)
        at_32_bump_owner(&x->shield, 1);
}

void mag_shield_end(void)
{
    struct g_ext *x = member("mag_shield_end", true);
    if (x == NULL)
        return;
    if (at_32_load_rlx(&x->shield) == 0)
        mag__panic_misuse("mag_shield_end without mag_shield_begin");
    at_32_bump_owner(&x->shield, (uint32_t)-1);
}

/* ---- what the rooms above call ---- */

void mag__group_init(void)
{
    mag__rt.leave_group = leave_group;
    mag__rt.group_spawn = group_spawn;
}
