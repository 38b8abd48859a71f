/* SPDX-License-Identifier: MIT */
/* sched.h: what the files of this room offer each other and the rooms below. */
#ifndef MAG_SCHED_SCHED_H
#define MAG_SCHED_SCHED_H

#include "sched/rt.h"
#include "sched/token.h"

/* ---- p.c: Ps ---- */

int mag__p_init_all(uint32_t procs);
void mag__p_fini_all(void);
/* The old number; -ENOMEM, -ESHUTDOWN. follow: by what the machine allows, -ECANCELED if somebody asked for a number. */
int mag__p_set_procs(uint32_t procs, bool follow);
/* The caller holds p, which is to retire: its goroutines move on, and p is nobody's. False: it is needed again. */
bool mag__p_retire(struct p *p);
/* The caller holds p, the only one so far: from now on there may be thieves. */
void mag__p_admit_company(struct p *p);
/* Retires what is to retire and sits in user code or idle. By sysmon. */
void mag__p_collect_retiring(void);

/* If everything had been idle for so long that sysmon sleeps, it is needed from now on. */
void mag__sysmon_rouse(void);

static inline void p_acquire(struct m *m, struct p *p)
{
    m->p = p;
    at_ptr_store_rel(&p->m, m); /* TOK2 */
    at_fence_seq(); /* SYS1 */
    if (unlikely(at_32_load_rlx(&mag__rt.sysmon_asleep) != 0))
        mag__sysmon_rouse();
}

/* A goroutine that lost its P gets an idle one, if there is one, without leaving its thread. */
bool mag__p_take_idle(struct m *m);

static inline struct p *p_at(uint32_t i) { return mag__rt.ps[i]; }

/* Anyone: goroutines that a thief could take at once; and whether there is none, in runnext neither. */
static inline uint32_t p_length(const struct p *p) { return mag__runq_length(&p->runq) + mag__lifo_length(&p->lifo); }
static inline bool p_is_empty(const struct p *p)
{
    return mag__lifo_length(&p->lifo) == 0 && mag__runq_is_empty(&p->runq);
}
/* Anyone: its runnext waits behind a goroutine that went before it, and nobody was told: it counts as one in the ring does. */
static inline bool p_passed_over(const struct p *p)
{
    return at_32_load_rlx(&p->next_streak) == 1 && mag__runq_next_peek(&p->runq) != NULL;
}
/* Owner: the global queue gets the next turn. */
static inline void p_global_next(struct p *p)
{
    p->global_at = at_32_load_rlx(&p->tick) + 1;
    p->turn_in = 1;
}
/* Owner: all of them. */
struct g_list mag__p_drain(struct p *p);

/* ---- m.c: threads ---- */

/* So long an M that is one too many sleeps before it ends. Tests shorten it. */
extern HIDDEN int64_t mag__m_idle_exit;
/* Gives p to a parked M or a new one. searching: the caller counted it in idle.searching. 0, or no thread can be had: p is
 * still the caller's. */
int mag__m_run(struct p *p, bool searching);
/* Is there a thread for another P, parked or to be made? Warns once when there is none. */
bool mag__m_can_run(void);
/* The M, which holds no P, sleeps until it is given one. False: its thread must end. */
bool mag__m_park(struct m *m);
/* Its runtime has ended or is about to. */
static inline bool mag__m_is_dead(const struct m *m)
{
    return m->epoch != at_32_load_rlx(&mag__rt.epoch);
}
void mag__m_reap(void);
struct arena *mag__arena_new(void);
void mag__arena_free(struct arena *a);
/* Once more, for when a thread of the program ended after the last M had parked. */
void mag__m_check_deadlock(void);

/* The deadlock rule, under m_lock; true: the caller of mag_run must be told, after it. */
bool mag__m_is_deadlock_locked(void);

/* ---- locked.c: goroutines that own their thread ---- */

/* g0 of a thread whose goroutine is off its stack: gives the P away and waits for the goroutine's turn. False: the thread
 * must end. */
bool mag__locked_wait(struct m *m);
/* m has found g, which is another thread's: hands it over together with the P. */
void mag__locked_run(struct m *m, struct g *g);
/* The P goes to whoever needs it. */
void mag__locked_give_away(struct m *m);

/* ---- local.c: goroutine-local storage ---- */

/* The goroutine ends: destructors run, as user code; it leaves its group. */
void mag__local_end(struct g *g);
/* Discarded goroutines are forgotten, and their values. */
void mag__local_clear(struct g_heap *h);

/* ---- clock.c: timers ---- */

/* When the first timer of all Ps is due. */
int64_t mag__clock_next(void);
/* Runs what is due: of p's own, or of everybody's. p NULL: the caller holds none. True: something became runnable. */
bool mag__clock_run_own(struct p *p);
bool mag__clock_run_all(struct p *p);
/* For timers that belong to no wait, from user code or any thread. False: no memory, or no runtime. */
bool mag__clock_add(struct timer *t, int64_t when, int64_t period);
/* True: it was pending. Also when the runtime it was added in is gone: then it is not. */
bool mag__clock_delete(struct timer *t);
/* An M is about to sleep: until when, so that timers are run; TIMER_NEVER: another one sees to them. */
int64_t mag__clock_keep(void);
void mag__clock_kept(int64_t until);
/* When to wake up for a timer that is due then: later if many are due shortly one after the other. */
int64_t mag__clock_coalesce(int64_t until);

/* ---- wake.c: who is told of new work ---- */

/* With a P: g becomes runnable and runs next, or at the tail. */
void mag__wake_next(struct p *p, struct g *g);
/* The same for a new one: whoever was to run next comes after it, and before the others. */
void mag__wake_spawned(struct p *p, struct g *g);
/* The same two where nobody else was to run next, which is the rule. False: it is in no queue. */
static ALWAYS_INLINE bool wake_is_plain(const struct p *p)
{
    return mag__runq_next_peek(&p->runq) == NULL && likely(at_32_load_rlx(&p->rescued) == 0) && !hostile_chance(2);
}
static ALWAYS_INLINE bool mag__wake_woken_quick(struct p *p, struct g *g) /* that waits */
{
    if (!wake_is_plain(p))
        return false;
    g_set_woken(g);
    mag__runq_next_swap_owner(&p->runq, g);
    return true;
}
static ALWAYS_INLINE bool mag__wake_spawned_quick(struct p *p, struct g *g)
{
    if (p->flat != 0) { /* one of many: into the ring, where nobody has to be told of it */
        g_set_state(g, G_RUNNABLE);
        if (at_32_load_rlx(&p->runq.alone) == 0 || unlikely(!mag__runq_put_owner(&p->runq, g)))
            return false;
        p->flat--;
        mag__g_fetch_cached(&p->gs);
        return true;
    }
    if (!wake_is_plain(p))
        return false;
    g_set_state(g, G_RUNNABLE);
    mag__runq_next_swap_owner(&p->runq, g);
    return true;
}
/* The holder of p: those that were pushed aside long ago come into the ring. */
void mag__wake_old(struct p *p);
void mag__wake_tail(struct p *p, struct g *g);
/* The ring is full: half of it and g go to the global queue. */
void mag__wake_spill(struct p *p, struct g *g);
/* The same as the last, and nobody is told: the caller has several. */
void mag__wake_quietly(struct p *p, struct g *g);
/* Without a P. */
void mag__wake_global(struct g *g);
void mag__wake_global_list(struct g_list list);
/* The same for those that must not wait behind long computations: first of all, and soon. They are runnable. */
void mag__wake_urgent(struct g_list list);
/* With a P: n were put into its ring, quietly, and are not expected to compute for long. */
void mag__wake_batch(struct p *p, uint32_t n);
/* From either. */
void mag__wake_any(struct m *m, struct g *g);
/* Work is visible: wake a searcher if nobody will find it. */
void mag__wake_searcher(struct counters *count);

/* ---- find.c: the search ---- */

/* find.h has its first steps, inline. */
/* The full search, on g0. With the result the M holds a P. NULL: the thread must end. */
struct g *mag__find_next(struct m *m);
/* Is there work that a searcher would find? */
bool mag__find_any_work(void);
/* p's owner has moved several from one queue to another, and was not counted as searching: whoever gave up while they were in neither is
 * told of them. */
void mag__find_moved(struct p *p);

/* ---- park.c: leaving and coming back ---- */

/* park.h has the waiting itself, inline. */
/* A goroutine that waits for a stack tries again. */
void mag__park_retry(void);
/* Lets the others run; the M it is on afterwards, in the runtime. */
struct m *mag__park_yield(struct m *m);
/* g0's loop. */
void mag__park_loop(struct m *m);
/* For a goroutine that lost its P and must not go on without one. Returns the M it is on then, with a P. */
struct m *mag__park_regain(struct m *m);

/* Aborts by name: the call was made outside a goroutine. */
NORETURN void mag__park_misused(const char *function);

/* Entering a call that may switch, in a goroutine: m with a P. */
static ALWAYS_INLINE struct m *mag__park_enter_g(struct m *m)
{
    if (unlikely(mag__token_enter(m) == NULL))
        m = mag__park_regain(m);
    if (hostile_chance(8))
        m = mag__park_yield(m);
    return m;
}
/* The same anywhere. Aborts by name outside a goroutine. */
static ALWAYS_INLINE struct m *mag__park_enter(struct m *m, const char *function)
{
    if (unlikely(m == NULL || m_in_rt(m)))
        mag__park_misused(function);
    return mag__park_enter_g(m);
}

/* ---- spawn.c ---- */

enum { SPAWN_DEFAULT = -1 }; /* the runtime's, once there is known to be one */

struct spawn {
    mag_fn fn;
    void *arg;
    const void *copy;
    size_t copy_size;
    const char *name;
    int stack_class; /* or SPAWN_DEFAULT */
    uint16_t flags;
    void *created;
    struct g_ext *ext; /* what it starts with, NULL: nothing; stays the caller's on failure */
};
int mag__spawn(const struct spawn *s);

/* ---- foreign threads ---- */

/* Between these the runtime does not go away. -EPERM: none; -ESHUTDOWN: stopping. */
int mag__foreign_enter(void);
void mag__foreign_leave(void);

/* ---- retake.c: Ps whose goroutine computes or blocks for long ---- */

struct retake_look {
    int64_t again;  /* look again after at most so long */
    bool wanted;    /* somebody waits behind a slice that is half over */
    bool hogged;    /* no P is idle, and one's slice lasts already long */
    bool blocked;   /* a P was retaken from a thread that sleeps in the kernel */
};
/* By sysmon. */
void mag__retake_look(struct retake_look *l, int64_t now);
void mag__retake_stop(void);
/* sysmon, of a slice that has lasted long: does its goroutine compute or block, or may it? False: it gets on, or lost its core for a
 * while. May sleep for a moment. */
bool mag__retake_is_stuck(struct p *p, const struct m *m);
/* Should this goroutine, which is about to run, be expected to compute for long? */
bool mag__retake_expects_hog(const struct g *g);
/* One that lost its P the last time it ran has got this one, as if it were a slice of its own. The holder of p. */
void mag__retake_mark(struct p *p, struct g *g);
/* No P is idle, and self has something urgent: a P that such a goroutine has, which is the caller's now; or NULL. */
struct p *mag__retake_from_hog(const struct m *self);
/* The caller holds p and has no use for it. */
void mag__retake_pass_on(struct p *p);
/* m is about to sleep, and may be the one who wakes up for a timer or an event. */
void mag__retake_before_sleep(struct m *m);
/* No P is idle: takes one whose goroutine announced that it blocks, and has it run. */
void mag__retake_announced(void);

/* ---- sysmon.c ---- */

int mag__sysmon_start(void);
void mag__sysmon_stop(void);
void mag__sysmon_wake(void);
/* A P's first G alone in runnext since sysmon has looked seldom. What p.rescued says otherwise. */
uint32_t mag__sysmon_asked(struct p *p);

/* The caller of mag_run is told how it ended. */
enum rt_done { DONE_NOT, DONE_MAIN, DONE_DEADLOCK };
void mag__rt_done(enum rt_done how);

#endif
