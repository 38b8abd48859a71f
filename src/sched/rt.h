/* SPDX-License-Identifier: MIT */
/* rt.h: P, M and the one mutable global. Every struct is composed of what the modules own.
 *
 * P   the right to run Gs, and all that a worker touches without locks.
 * M   a thread that runs Gs. Its g0 is the thread's own stack, where it searches when no next G is known.
 * rt  the runtime. Read-mostly configuration first, then one cache line or more for each thing that is written.
 */
#ifndef MAG_SCHED_RT_H
#define MAG_SCHED_RT_H

#include "base/rng.h"
#include "core/g.h"
#include "core/globq.h"
#include "core/idle.h"
#include "core/lifo.h"
#include "core/order.h"
#include "core/parker.h"
#include "core/runq.h"
#include "core/stack.h"
#include "os/lock.h"
#include "os/os.h"
#include "poll/poll.h"
#include "sched/trial.h"
#include "time/timer.h"
#include "trace/hook.h"

enum {
    NEXT_STREAK = 3,  /* runnexts in a row before the ring gets a turn: else a ping-pong pair starves the rest */
    LIFO_STREAK = 16, /* likewise of the newest that were pushed aside */
    TIMERS_EVERY = 16, /* slices between two looks at the timers */
    ROTATE_EVERY = 4,  /* turns of the global queue between two rotations: about one round of the ring */
    GLOBAL_EVERY = 61, /* slices between two looks at the global queue while there is local work */
    ID_BATCH = 1024,
    HOG_FNS = 16,
};

/* Reasons why the holder of a P must go through the full search before it runs another G. */
enum attention { ATTEND_STOP = 1, ATTEND_RETIRE = 2, ATTEND_COMPANY = 4, ATTEND_CROWD = 8, ATTEND_GLOBAL = 16, ATTEND_OLD = 32 };
#define ATTEND_AT_ONCE (ATTEND_STOP | ATTEND_RETIRE | ATTEND_COMPANY) /* the holder does these before it runs anybody */

/* In p.rescued, by sysmon when it looks seldom: the next G alone in runnext tells it. */
#define RESCUE_ASK 0x80000000u

/* LIVE -> RETIRING (mag_set_procs) -> DRAINING (who holds the P) -> RETIRED -> LIVE; or back from RETIRING to LIVE. */
enum p_life { P_LIVE, P_RETIRING, P_DRAINING, P_RETIRED };

/* How far a P was at some time. */
struct progress {
    int64_t at;
    uint32_t index, tick;
};

struct p {
    uint32_t index;
    struct runq runq;
    struct lifo lifo;
    /* owner only */
    ON_LINE a32 tick;         /* time slices begun; sysmon reads it */
    a32 next_streak;          /* runnexts run in a row, twice; odd after one was passed over: p_passed_over; others read it */
    uint32_t lifo_streak;     /* and of lifo */
    uint32_t flat;            /* the next so many spawned go to the ring: there were too many for lifo */
    uint32_t turn_in;         /* slices until one of the next two comes */
    uint32_t global_at;       /* the slice, by tick, in which the global queue gets a turn */
    uint32_t timers_at;       /* and in which the owner looks at its timers */
    uint32_t rotate_in;       /* turns of the global queue since the ring was rotated */
    uint32_t stole_tick;      /* tick when something was stolen last */
    uint32_t vain;            /* how far the others were when this P last searched in vain, 0: it found something */
    uint32_t held_in;         /* turns in a crowd since a held goroutine was let in */
    struct progress other;      /* one that this P looks after */
    uint64_t id, id_end;      /* goroutine ids not yet given out */
    struct rng rng;
    struct g_cache gs;
    struct counters count;
    struct stack_cache stacks;
    struct timers timers;
    int64_t dry_at;           /* when it last had nothing to do and found few events */
    struct trial trial;
    a32 helped;               /* help is welcome, by that; others read it */
    a64 io_at;                /* when the kernel was last asked for events, 0: the P has been idle since; others read it */
    uint32_t io_tick;         /* and tick then */
    a32 io_slice;             /* ns that a slice took lately, by that; others read it */
    a64 io_waits;             /* waits for descriptors that began here, less those that ended here; others read it */
    /* written by others */
    ON_LINE aptr m;           /* the M that took this P last: a hint for sysmon */
    a32 attention;            /* enum attention */
    a32 life;                 /* enum p_life */
    a32 rescued;              /* > 0: a G in runnext had to be rescued lately, wake somebody for the next ones; RESCUE_ASK: or sysmon */
    a32 hog_tick;             /* tick of a slice whose goroutine lost its P the last time it ran; the owner writes */
    a64 urgent_at;            /* when a goroutine whose timer fired or whose fd became ready was last queued here */
    /* sysmon only */
    ON_LINE uint32_t seen_tick;
    int64_t seen_at;
    uint32_t seen_top;        /* of lifo */
    int64_t seen_top_at;
    int watch;                /* what its M's thread does: mag__os_watch, of watched; 0: none */
    uint32_t watched;
};

struct arena;

struct m {
    ON_LINE aptr tok;         /* the P while user code runs: anyone may take it (token.h) */
    struct p *p;              /* owner: the P while the M is in the runtime, NULL: none */
    aptr curg;                /* the G that runs here; its owner writes, dumps read */
    a32 in_rt;                /* in the runtime; the owner writes, its signal handlers and shutdown read */
    bool searching;           /* owner: counted in idle.searching */
    a32 loose;                /* counted in rt.loose; the owner writes */
    a32 announced;            /* between mag_block_begin and mag_block_end: its P is anybody's */
    a32 tid;                  /* the kernel's name for the thread */
    a32 brisk;                /* its kernel slice is short, as there are threads that compute beside it */
    a64 lost_at;              /* when the P was taken for a slice that was over; who took it writes */
    struct g g0;
    struct parker parker;
    struct p *handed;         /* the P given by the waker; parker's token publishes it */
    bool handed_search;       /* the waker counted this M as searching */
    bool handed_exit;
    aptr locked;              /* the only goroutine that may run here; the owner writes */
    a32 sits;                 /* it sleeps in the poller; the owner writes */
    bool keeper;              /* owner: it slept until a timer was due */
    uint32_t lock_depth;      /* owner */
    bool ends;                /* owner: the goroutine ended locked, the thread must too */
    bool locked_parked;       /* rt.m_lock: parked, waiting for that goroutine to be its turn */
    struct g *deferred;       /* owner: found on the way off a stack, but it is another M's */
    struct m *next_idle;      /* rt.m_lock */
    struct m *next_all;       /* never changes once linked */
    a32 live;                 /* its thread runs or is about to; rt.m_lock writes */
    struct os_thread thread;
    uint32_t id;
    uint32_t epoch;           /* the run it belongs to; another one in rt: its runtime has ended */
    bool gone;                /* rt.m_lock: the thread is about to end and can be joined */
    struct arena *arena;      /* where its goroutines live; stays until the thread has ended */
    struct arena *orphan;     /* rt.m_lock: the runtime ended without this thread; the last user frees the arena */
};

enum rt_state { RT_OFF, RT_STARTING, RT_RUNNING, RT_STOPPING, RT_FORKED /* for good: run/fork.c */ };

/* What goroutines live in. It outlives the runtime while a goroutine of it is still in foreign code. */
struct arena {
    struct g_heap gs;
    struct stacks stacks;
    struct poll poll;
    a32 transfers; /* to and from files that wait for a disk */
    aptr uring;    /* io/uring.c: what does them when they are many; NULL: nothing yet */
    uint32_t users; /* once the runtime has ended: stragglers, and who takes it apart; rt.m_lock */
};

struct spawn;

/* A function whose goroutines computed past their slices lately: retake.c. sysmon writes. */
struct hog_fn {
    aptr fn;
    a32 n;
    a64 at;
};

/* How long threads slept in the poller lately: netpoll.c. */
struct lingering {
    a32 brief; /* sleeps in a row that were */
    a32 more;  /* so many more than usual are wanted before one stays awake: it was in vain */
};

/* What is left of the machine for the Ps: cores.c. */
struct cores {
    a32 free;           /* 0: nobody knows; sysmon writes */
    a32 contested;      /* the others want them all; sysmon writes */
    int64_t at, all_at; /* the rest is sysmon's. When it last looked, and asked how many there are */
    uint32_t all;       /* 0: it cannot be told who else is on them */
    int others;         /* threads of others that want a core, on average; in cores.c's unit */
    int watch;          /* mag__os_running's */
};

struct rt {
    struct p *ps[PROCS_MAX]; /* [0, made) exist, [0, procs) are or will be in use; written under procs_lock */
    a32 procs, made;
    aptr order;              /* struct order of procs; old ones stay in orders: a thief may be walking by one */
    struct order *orders[PROCS_MAX + 1];
    struct lock procs_lock;
    a32 procs_fixed;         /* somebody asked for a number: do not follow the machine */
    uint32_t (*follow)(void); /* what the machine allows now; set by the room that knows, sched may not call down */
    /* written while no worker runs */
    uint32_t steal_min;
    uint32_t max_threads;
    int stack_class;
    int64_t slice, exit_wait;
    int64_t started;
    int64_t loaded;          /* when the library was, once per process */
    a32 warned_duration;
    bool by_start;           /* mag_start, not mag_run */
    struct arena *arena;
    int64_t schedtrace;      /* ns between two lines, 0: none */
    bool scheddetail;
    int (*group_spawn)(mag_group *group, struct spawn *s);
    void (*leave_group)(struct g_ext *x);
    void (*trace_line)(int64_t now); /* set by the room that prints: sched may not call down */
    void *(*cxa_globals)(void); /* the C++ runtime's, if it is linked */

    ON_LINE a32 state;       /* enum rt_state */
    a32 helpers;             /* threads beside the Ms and sysmon that wait for nothing of the program's own */
    a32 firing;              /* threads that hold goroutines whose timers have fired */
    a32 silent;              /* stopping, and nobody is in the runtime any more: no timer fires */
    a32 epoch;               /* counts starts and stops: an M of another epoch must end */
    a32 sysmon_asleep;
    a32 sysmon_alert;        /* something was put where only sysmon sees it wait: look often from now on */
    a64 sysmon_until;        /* when sysmon will look next */
    a32 hogged;              /* some P's slice has lasted long: sysmon must know of timers to come */
    a64 keeper_until;        /* until when an M sleeps to run timers, TIMER_NEVER: none does */
    a64 keeper_woke;         /* when one last woke up for a timer */
    a64 polled_at;           /* when a P last asked the kernel for events */
    a32 asker;               /* index of that P */
    struct lingering lingering;
    struct cores cores;
    a32 seat;                /* 1: a thread asks the kernel for events, or sleeps there */
    a64 clock;               /* a recent mag__os_now(), about 10 ms old at most while anything runs */

    ON_LINE struct globq globq;
    struct idle idle;
    ON_LINE a64 next_id;
    struct counters count;   /* what happens without a P */
    a32 foreign;             /* calls of foreign threads under way */
    a32 loose;               /* Ms that compute without a P since their slice was over */
    a32 some_brisk;          /* an M may be */
    int64_t loose_seen;      /* sysmon: when there were such Ms last */
    a32 loose_cap;           /* from so many on it is a crowd; sysmon writes */
    a32 announced;           /* some M may be between mag_block_begin and mag_block_end */
    a64 urgent_at;           /* like p.urgent_at, for the global queue */
    a64 front_at;            /* when some of them came to its front */
    a32 urgent_turn;
    struct globq held;       /* in a crowd: goroutines that would only add to it */
    struct hog_fn hogs[HOG_FNS];

    ON_LINE struct lock m_lock;
    aptr ms;                 /* all there ever were in this run, newest first; grows at the front under m_lock, read by anyone */
    struct m *idle_ms;       /* parked, newest first; m_lock */
    a32 nms, nidle_ms;       /* m_lock writes */
    uint32_t nlocked_ms;     /* parked with locked_parked; m_lock */
    struct m *spare_ms;      /* threads that have ended, to be used again: p->m may still point to them; m_lock */
    uint32_t m_ids;
    bool warned_threads;
    a32 ended;               /* futex: threads that have ended */

    ON_LINE struct lock nostack_lock;
    struct g_list nostack;   /* accepted, but no stack could be had; nostack_lock */
    a32 nnostack;
    a32 nostack_tries;       /* by sysmon, since a stack was last had */
    bool warned_stacks;

    ON_LINE a32 done;        /* futex: the caller of mag_run sleeps here; enum in run/init.c */
    a32 sysmon_word;         /* futex: sysmon sleeps here */
    struct os_thread sysmon;
};

extern HIDDEN struct rt mag__rt;

#define URGENT_NS (20 * (int64_t)1000000)
/* Goroutines whose timer fired or whose descriptor is ready came to the front of the global queue lately. */
static inline bool rt_urgent(void)
{
    return (int64_t)(at_64_load_rlx(&mag__rt.clock) - at_64_load_rlx(&mag__rt.urgent_at)) < URGENT_NS;
}

/* As many goroutines compute without a P as are allowed to. */
static inline bool rt_crowded(void) { return at_32_load_rlx(&mag__rt.loose) >= at_32_load_rlx(&mag__rt.loose_cap); }

/* Ps that may run goroutines. */
static inline uint32_t rt_procs(void) { return at_32_load_acq(&mag__rt.procs); /* PR1 */ }
/* Ps that exist: their counters count. */
static inline uint32_t rt_made(void) { return at_32_load_acq(&mag__rt.made); /* PR1 */ }

/* The M of this thread, NULL outside the runtime. Never kept across anything that may switch. */
extern HIDDEN ptrdiff_t mag__m_self_at; /* where it is, from the thread pointer: the same for every thread (initial-exec) */
void mag__m_set_self(struct m *m);

/* In assembly: no compiler keeps a thread pointer or a thread-local's address over it, however much it inlines. As a call that
 * is never inlined it cost 1 ns more in each public function (m.c). */
static ALWAYS_INLINE struct m *mag__m_self(void)
{
    struct m *m;
#if defined(__x86_64__)
    __asm__ volatile("movq %%fs:(%1), %0" : "=r"(m) : "r"(mag__m_self_at) : "memory");
#elif defined(__aarch64__)
    __asm__ volatile("mrs %0, tpidr_el0\n\tldr %0, [%0, %1]" : "=&r"(m) : "r"(mag__m_self_at) : "memory");
#else
#error "the thread pointer of this machine"
#endif
    return m;
}

static inline bool m_in_rt(const struct m *m) { return at_32_load_rlx(&m->in_rt) != 0; }
static inline struct g *m_locked(const struct m *m) { return at_ptr_load_rlx(&m->locked); }
static inline struct g *m_curg(const struct m *m) { return at_ptr_load_rlx(&m->curg); }

#endif
