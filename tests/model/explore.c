/* SPDX-License-Identifier: MIT */
/* explore.c: a stateless model checker for code that uses base/atomic.h.
 *
 * What        threads are coroutines in one OS thread. Compiled with MAG_MODEL, each atomic access and each futex call
 *             comes here: before it, another thread may go on (explore_step), and a load may return any value that the
 *             memory model allows (memory.c). Both are choices. An execution is a string of choices; a depth-first
 *             search walks through all of them: run, step back to the last choice that has another option, take it,
 *             run again.
 * Failures    an assertion of the test or a must() of the code, a crash, a race on plain memory (race.c), everybody
 *             asleep, an execution without an end. A failure is told step by step with the string that repeats it.
 * States      a thread is what it has read. So the histories of the threads, by the identity of the messages they read,
 *             are the whole state; one that was entered before with as much of the bounds left is not entered again.
 *             That makes a search without bounds feasible where two threads take some twenty steps each.
 * Bounds      preemptions (switches away from a thread that could go on) and stale reads (of a message that is not the
 *             newest, or a wait that returns for no reason). Within them the search is complete.
 * Rejected    threads of the system under a debugger's control: 100 times slower, and they show x86's memory, which is
 *             stronger than what the code may rely on.
 *             Partial-order reduction: prunes what merging of states prunes here anyway, and is hard to combine with
 *             bounds.
 * See         litmus.c, which tests this; mutate.py, which weakens the orderings of src/ one by one
 */
#include "inner.h"
#include "base/panic.h"
#include "base/rng.h"

#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <ucontext.h>

enum { NAMES = 64, FUTURES = 4, LESSONS = 1 << 16, STACK = 64 << 10, NO_BOUND = 250 };

struct run run;
struct thread threads[MODEL_THREADS];
struct thread *now;

static struct {
    long preempt, stale, late, merge, first; /* -1: the case's */
    unsigned long most, random, seed;
    const char *replay;
} opt = {.preempt = -1, .stale = -1, .late = 1, .merge = 1, .seed = 1};

struct choice {
    unsigned taken, options; /* taken >= options: a late load */
    uint64_t load;           /* that may be late, 0: none */
    struct future late;
};

static struct {
    struct choice at[2 * STEPS];
    unsigned n, next;
    unsigned known; /* as many were made by an earlier execution too */
    struct rng rng;
} path;

/* ---- telling ---- */

static struct {
    const char *at, *name;
    size_t size, count;
} names[NAMES];
static unsigned nnames;

void model_name(const void *at, size_t size, size_t count, const char *name)
{
    for (unsigned i = 0; i < nnames; i++)
        if (names[i].at == at && names[i].size == size)
            return;
    if (nnames == NAMES)
        return;
    names[nnames].at = at;
    names[nnames].size = size;
    names[nnames].count = count;
    names[nnames++].name = name;
}

/* The narrowest name wins: q.head rather than q. */
const char *explore_show(uint64_t value, char text[64])
{
    const char *at = (const char *)(uintptr_t)value;
    int best = -1;
    for (unsigned i = 0; i < nnames; i++)
        if (at >= names[i].at && at < names[i].at + names[i].size * names[i].count &&
            (best < 0 || names[i].size < names[best].size))
            best = (int)i;
    if (best < 0)
        snprintf(text, 64, value < 4096 ? "%llu" : "%#llx", (unsigned long long)value);
    else if (names[best].count == 1)
        snprintf(text, 64, "%s", names[best].name);
    else
        snprintf(text, 64, "%s[%zu]", names[best].name, (size_t)(at - names[best].at) / names[best].size);
    return text;
}

void explore_trace(const char *what, int order, const void *at, uint64_t value, const char *note)
{
    static const char *const orders[] = {
        [__ATOMIC_RELAXED] = "rlx",
        [__ATOMIC_ACQUIRE] = "acq",
        [__ATOMIC_RELEASE] = "rel",
        [__ATOMIC_ACQ_REL] = "acqrel",
    };
    char place[64] = "", seen[64] = "";
    if (!run.tracing)
        return;
    if (at != NULL) {
        explore_show((uintptr_t)at, place);
        explore_show(value, seen);
    }
    printf("    %4u  T%u  %-11s %-6s  %-16s %-10s %s\n", run.steps, now->self, what, order < 0 ? "" : orders[order],
           place, seen, note);
}

/* ---- states ---- */

struct seen {
    uint64_t state; /* a hash; 0: empty */
    struct budget left;
};

static struct set {
    struct seen *at;
    size_t n, size;
} states, ends;

/* Where the state is, with as much left to spend, or where it would be put. */
static struct seen *slot_of(struct set *set, uint64_t state, struct budget left)
{
    for (size_t i = state & (set->size - 1);; i = (i + 1) & (set->size - 1)) {
        struct seen *s = &set->at[i];
        bool as_much = s->left.preempt >= left.preempt && s->left.stale >= left.stale && s->left.late >= left.late;
        if (s->state == 0 || (s->state == state && as_much))
            return s;
    }
}

static void grow(struct set *set)
{
    struct set bigger = {.n = set->n, .size = set->size ? set->size * 2 : 1 << 10};
    bigger.at = calloc(bigger.size, sizeof *bigger.at);
    if (bigger.at == NULL)
        abort();
    for (size_t i = 0; i < set->size; i++)
        if (set->at[i].state != 0)
            *slot_of(&bigger, set->at[i].state, set->at[i].left) = set->at[i];
    free(set->at);
    *set = bigger;
}

static void empty(struct set *set)
{
    free(set->at);
    *set = (struct set){0};
}

/* False: it was there. */
static bool add(struct set *set, uint64_t state, struct budget left)
{
    if (set->n * 4 >= set->size * 3)
        grow(set);
    struct seen *s = slot_of(set, state | 1, left);
    if (s->state != 0)
        return false;
    *s = (struct seen){state | 1, left};
    set->n++;
    return true;
}

static uint64_t state_now(void)
{
    uint64_t h = mix(memory_state(), run.failed);
    for (unsigned t = 0; t < run.nthreads; t++) {
        h = mix(h, threads[t].know.history);
        h = mix(h, threads[t].state | (unsigned)threads[t].timed << 2 | (unsigned)threads[t].woken << 3);
    }
    return h;
}

/* ---- ends ---- */

static jmp_buf home;

void explore_leave(enum outcome o) { _longjmp(home, (int)o); }

void model_fail(const char *format, ...)
{
    va_list ap;
    va_start(ap, format);
    if (!run.failed)
        vsnprintf(run.why, sizeof run.why, format, ap);
    va_end(ap);
    run.failed = true;
    if (now == NULL || !run.promise.made || run.promise.kept)
        explore_leave(FAILED);
    /* whether this execution exists at all is known when the late store has come: the others go on */
    now->state = DONE;
    explore_schedule();
    __builtin_unreachable();
}

void mag__panic_broken(const char *file, int line, const char *invariant)
{
    model_fail("%s:%d: broken: %s", file, line, invariant);
}

static void crashed(int signal)
{
    (void)signal;
    model_fail("crashed: a pointer that was never there");
}

static NORETURN void everybody_rests(void)
{
    char text[64];
    for (unsigned t = 0; t < run.nthreads && !run.failed; t++)
        if (threads[t].state == ASLEEP && !(run.what->may_sleep >> t & 1)) {
            run.failed = true;
            snprintf(run.why, sizeof run.why, "nobody will wake thread %u, which sleeps on %s", t,
                     explore_show((uintptr_t)threads[t].bed, text));
        }
    if (run.promise.made && !run.promise.kept)
        explore_leave(DISCARDED);
    add(&ends, state_now(), (struct budget){0});
    explore_leave(run.failed ? FAILED : ENDED);
}

/* ---- choices ---- */

/* What late loads may read: learnt in one execution, tried in later ones. A load is known by its thread's history, so
 * that executions learn from each other when their states were merged. */
static struct lesson {
    uint64_t load;
    unsigned n;
    struct future late[FUTURES];
} lessons[LESSONS];

static struct lesson *lesson_of(uint64_t load)
{
    size_t i = load % LESSONS, left = LESSONS;
    while (lessons[i].load != load && lessons[i].load != 0 && --left > 0)
        i = (i + 1) % LESSONS;
    return left > 0 ? &lessons[i] : NULL;
}

void explore_offer(uint64_t load, struct future late)
{
    struct lesson *l = lesson_of(load);
    if (l == NULL)
        return;
    l->load = load;
    for (unsigned i = 0; i < l->n; i++)
        if (l->late[i].value == late.value && l->late[i].thread == late.thread)
            return;
    if (l->n < FUTURES)
        l->late[l->n++] = late;
}

unsigned explore_choose(unsigned options, uint64_t load, struct future *late)
{
    if (path.next == path.n) {
        if (path.n == ARRAY_LEN(path.at))
            model_fail("more choices than the explorer can hold");
        unsigned taken = 0;
        if (opt.random != 0 && opt.replay == NULL && rng_below(&path.rng, 4) == 0)
            taken = rng_below(&path.rng, options);
        path.at[path.n++] = (struct choice){.taken = taken};
    }
    struct choice *c = &path.at[path.next++];
    c->options = options; /* these two as the last time, but a replay does not know them */
    c->load = load;
    if (c->taken == UINT32_MAX)
        c->taken = options;
    if (c->taken >= options && load == 0)
        model_fail("the test is not deterministic, or this string is of another build or other bounds");
    if (c->taken >= options)
        *late = c->late;
    return c->taken;
}

static bool next_option(struct choice *c)
{
    if (++c->taken < c->options)
        return true;
    const struct lesson *l = c->load != 0 ? lesson_of(c->load) : NULL;
    if (l == NULL || c->taken - c->options >= l->n)
        return false;
    c->late = l->late[c->taken - c->options];
    return true;
}

/* ---- threads ---- */

/* Each coroutine stops at its start once, and begins there anew in every execution. */
static struct {
    jmp_buf start, at;
    ucontext_t context;
    char stack[STACK] __attribute__((aligned(16)));
} bodies[MODEL_THREADS];

static bool can_run(const struct thread *t) { return t->state == READY || (t->state == ASLEEP && t->timed); }

/* Goes on with the thread that is chosen; returns when the caller is. */
void explore_schedule(void)
{
    unsigned option[MODEL_THREADS], n = 0;
    bool stays = now != NULL && now->state == READY;
    if (stays)
        option[n++] = now->self;
    for (unsigned t = 0; t < run.nthreads; t++)
        if (can_run(&threads[t]) && !(stays && t == now->self))
            option[n++] = t;
    if (n == 0)
        everybody_rests();
    if (stays && run.left.preempt == 0)
        n = 1;
    unsigned k = n > 1 ? explore_choose(n, 0, NULL) : 0;
    if (stays && k > 0)
        run.left.preempt--;
    struct thread *me = now;
    now = &threads[option[k]];
    if (now != me && (me == NULL || _setjmp(bodies[me->self].at) == 0))
        _longjmp(bodies[now->self].at, 1);
}

void explore_step(void)
{
    if (++run.steps >= STEPS)
        model_fail("no end after %d steps", STEPS);
    bool searches = opt.random == 0 && opt.replay == NULL && opt.merge != 0;
    if (searches && path.next >= path.known && !add(&states, mix(state_now(), now->self), run.left))
        explore_leave(KNOWN);
    explore_schedule();
    now->know.cause[now->self] = ++now->know.view.at[now->self];
}

static void entry(unsigned self)
{
    if (_setjmp(bodies[self].start) == 0)
        explore_leave(ENDED);
    run.what->thread[self]();
    now->state = DONE;
    explore_schedule();
    __builtin_unreachable();
}

static void make_thread(unsigned t)
{
    ucontext_t *c = &bodies[t].context;
    getcontext(c);
    c->uc_stack.ss_sp = bodies[t].stack;
    c->uc_stack.ss_size = STACK;
    makecontext(c, (void (*)(void))entry, 1, t);
    if (_setjmp(home) == 0)
        setcontext(c);
}

unsigned model_tally(unsigned *n) { return ++*n; }

/* ---- the search ---- */

static enum outcome execute(const struct model_case *what, struct budget left)
{
    uint64_t number = run.number + 1;
    bool tracing = run.tracing;
    now = NULL;
    path.next = 0;
    run = (struct run){.what = what, .number = number, .left = left, .tracing = tracing};
    memory_reset();
    what->setup();
    for (unsigned t = 0; t < MODEL_THREADS && what->thread[t] != NULL; t++) {
        threads[t] = (struct thread){.self = t, .know.history = t + 1};
        memcpy(&bodies[t].at, &bodies[t].start, sizeof bodies[t].at);
        run.nthreads = t + 1;
    }
    int o = _setjmp(home);
    if (o == 0)
        explore_schedule();
    now = NULL;
    if (o == ENDED && what->verify != NULL)
        what->verify(); /* may come back through home, with FAILED */
    return (enum outcome)o;
}

static bool step_back(void)
{
    while (path.n > 0 && !next_option(&path.at[path.n - 1]))
        path.n--;
    path.known = path.n;
    return path.n > 0;
}

/* A choice is a digit, a late load [thread:value]. */
static void print_path(void)
{
    while (path.n > 0 && path.at[path.n - 1].taken == 0)
        path.n--;
    for (unsigned i = 0; i < path.n; i++) {
        const struct choice *c = &path.at[i];
        if (c->taken < c->options)
            putchar("0123456789abcdefghijklmnopqrstuvwxyz"[c->taken % 36]);
        else
            printf("[%u:%llx]", c->late.thread, (unsigned long long)c->late.value);
    }
}

static void parse_path(const char *text)
{
    for (path.n = 0; *text != 0 && path.n < ARRAY_LEN(path.at); text++) {
        struct choice *c = &path.at[path.n++];
        *c = (struct choice){.taken = (unsigned)(*text <= '9' ? *text - '0' : *text - 'a' + 10)};
        if (*text == '[') {
            char *end;
            c->taken = UINT32_MAX;
            c->late.thread = (unsigned)strtoul(text + 1, &end, 10);
            c->late.value = strtoull(end + 1, &end, 16);
            text = end;
        }
    }
}

static uint8_t bound(long option, int of_case, int otherwise)
{
    return (uint8_t)(option >= 0 ? option : of_case != 0 ? of_case : otherwise);
}

static struct budget bounds(const struct model_case *what)
{
    bool two = what->thread[2] == NULL;
    return (struct budget){
        .preempt = bound(opt.preempt, what->preempt, two ? NO_BOUND : 3),
        .stale = bound(opt.stale, what->stale, two ? 4 : 2),
        .late = opt.late != 0,
    };
}

static bool as_expected(const struct model_case *what, bool failed)
{
    return what->fails == NULL ? !failed : failed && strstr(run.why, what->fails) != NULL;
}

static bool replay(const struct model_case *what)
{
    parse_path(opt.replay);
    run.tracing = true;
    enum outcome o = execute(what, bounds(what));
    run.tracing = false;
    printf("%s: %s\n", what->name,
           o == FAILED      ? run.why
           : o == DISCARDED ? "impossible: the store of the late load never came"
                            : "ok");
    return as_expected(what, o == FAILED);
}

static void tell(const struct model_case *what)
{
    struct budget b = bounds(what);
    printf("    %s\n    again with: '%s' --preempt %u --stale %u --replay '", run.why, what->name, b.preempt, b.stale);
    print_path();
    printf("'\n");
    opt.replay = ""; /* nothing is chosen anew */
    run.tracing = true;
    execute(what, b);
    run.tracing = false;
    opt.replay = NULL;
}

static double seconds(void)
{
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec + (double)t.tv_nsec / 1e9;
}

/* The number of executions. */
static unsigned long search(const struct model_case *what, bool *complete, bool *failed)
{
    unsigned long count = 0, most = opt.random != 0 ? opt.random : opt.most != 0 ? opt.most : ~0ul;
    empty(&states);
    empty(&ends);
    memset(lessons, 0, sizeof lessons);
    nnames = 0;
    *complete = *failed = false;
    for (path.n = path.known = 0; !*complete && !*failed && count < most; count++) {
        if (opt.random != 0) {
            rng_init(&path.rng, opt.seed + count);
            path.n = 0;
        }
        *failed = execute(what, bounds(what)) == FAILED;
        *complete = !*failed && opt.random == 0 && !step_back();
    }
    return count;
}

/* Does merging lose an end? Without late loads: which ones are learnt depends on the way. */
static bool compare(const struct model_case *what)
{
    bool complete, failed;
    long late = opt.late;
    opt.late = 0;
    search(what, &complete, &failed);
    size_t merged = ends.n;
    opt.merge = 0;
    unsigned long count = search(what, &complete, &failed);
    opt.merge = 2;
    opt.late = late;
    printf("%-36s %-6s %8lu executions without merging, %zu ends, with merging %zu\n", "",
           ends.n == merged ? "ok" : "FAILED", count, ends.n, merged);
    return ends.n == merged;
}

static bool explore(const struct model_case *what)
{
    bool complete, failed;
    double start = seconds();
    unsigned long count = search(what, &complete, &failed);
    bool ok = as_expected(what, failed) || (!failed && !complete);
    printf("%-36s %-6s %8lu executions %8zu states %6.2f s %s\n", what->name, ok ? "ok" : "FAILED", count, states.n,
           seconds() - start,
           failed     ? ""
           : complete ? "complete"
                      : "cut short");
    if (!ok && what->fails != NULL)
        printf("    not found: a failure with the words \"%s\"\n", what->fails);
    if (!ok && failed)
        tell(what);
    return opt.merge == 2 && complete ? compare(what) : ok;
}

/* ---- arguments ---- */

static const struct {
    const char *name, *help;
    long *number;
    unsigned long *count;
    const char **text;
} arguments[] = {
    {"--preempt", "switches away from a thread that could go on", &opt.preempt, NULL, NULL},
    {"--stale", "loads that do not see the newest value", &opt.stale, NULL, NULL},
    {"--late", "0: no load sees a store that comes after it", &opt.late, NULL, NULL},
    {"--merge", "0: enter known states again; 2: search both ways and compare the ends", &opt.merge, NULL, NULL},
    {"--first", "1: stop at the first case that fails", &opt.first, NULL, NULL},
    {"--most", "executions of a case", NULL, &opt.most, NULL},
    {"--random", "so many random executions instead of the search", NULL, &opt.random, NULL},
    {"--seed", "of the random executions", NULL, &opt.seed, NULL},
    {"--replay", "the string of one execution, to be told step by step", NULL, NULL, &opt.replay},
};

static bool parse(char **argv, int *i)
{
    for (size_t a = 0; a < ARRAY_LEN(arguments); a++) {
        if (strcmp(argv[*i], arguments[a].name) != 0 || argv[*i + 1] == NULL)
            continue;
        const char *value = argv[++*i];
        if (arguments[a].number != NULL)
            *arguments[a].number = atol(value);
        else if (arguments[a].count != NULL)
            *arguments[a].count = strtoul(value, NULL, 0);
        else
            *arguments[a].text = value;
        return true;
    }
    return false;
}

static int usage(const char *program, const struct model_case *cases, size_t ncases)
{
    printf("%s [part of a case's name ...] [option value ...]\n", program);
    for (size_t a = 0; a < ARRAY_LEN(arguments); a++)
        printf("    %-10s %s\n", arguments[a].name, arguments[a].help);
    for (size_t i = 0; i < ncases; i++)
        printf("%s\n", cases[i].name);
    return 2;
}

static void catch_crashes(void)
{
    static char stack[STACK];
    sigaltstack(&(stack_t){.ss_sp = stack, .ss_size = sizeof stack}, NULL);
    struct sigaction action = {.sa_handler = crashed, .sa_flags = SA_NODEFER | SA_ONSTACK};
    sigaction(SIGSEGV, &action, NULL);
    sigaction(SIGBUS, &action, NULL);
}

int model_main(int argc, char **argv, const struct model_case *cases, size_t ncases)
{
    char *wanted[16];
    unsigned nwanted = 0, failures = 0, ran = 0;
    for (int i = 1; i < argc; i++)
        if (argv[i][0] != '-' && nwanted < ARRAY_LEN(wanted))
            wanted[nwanted++] = argv[i];
        else if (!parse(argv, &i))
            return usage(argv[0], cases, ncases);
    setvbuf(stdout, NULL, _IOLBF, 0);
    catch_crashes();
    for (unsigned t = 0; t < MODEL_THREADS; t++)
        make_thread(t);
    for (size_t i = 0; i < ncases && !(opt.first > 0 && failures > 0); i++) {
        bool want = nwanted == 0;
        for (unsigned w = 0; w < nwanted; w++)
            want |= strstr(cases[i].name, wanted[w]) != NULL;
        if (!want)
            continue;
        ran++;
        failures += !(opt.replay != NULL ? replay(&cases[i]) : explore(&cases[i]));
    }
    if (ran == 0)
        printf("no such case\n");
    return failures != 0 || ran == 0;
}
