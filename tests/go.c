/* SPDX-License-Identifier: MIT */
/* go.c: the spawning calls: every goroutine runs exactly once, with its own argument, or the call says why not. */
#include "test.h"

#include <magpie.h>
#include <pthread.h>

static void never(void *arg)
{
    (void)arg;
    T_FAIL("a goroutine ran that was refused");
}

static void done(void *wg) { mag_wg_done(wg); }
static void wait_for(mag_wg *wg) { T_EQ(mag_wg_wait(wg, MAG_FOREVER), 0); }
static void in_run(mag_fn fn) { T_EQ(mag_run_with(&(mag_config){.procs = 2}, fn, NULL), 0); }

/* ---- outside ---- */

static void yields(void *arg)
{
    (void)arg;
    mag_yield();
}

static void exits(void *arg)
{
    (void)arg;
    mag_exit();
}

static void names_itself(void *arg)
{
    (void)arg;
    mag_set_name("nobody");
}

static void checkpoints(void *arg)
{
    (void)arg;
    mag_checkpoint();
    mag_checkpoint_slow(); /* what it calls when somebody wants the P */
}

static void *calls(void *arg)
{
    mag_fn *fn = arg;
    (*fn)(NULL);
    return NULL;
}

/* A thread of the program, while goroutines run. */
static void calls_beside(void *fn)
{
    pthread_t t;
    T_EQ(pthread_create(&t, NULL, calls, fn), 0);
    pthread_join(t, NULL);
}

static void runs_and_calls_beside(void *fn) { T_EQ(mag_run_with(&(mag_config){.procs = 1}, calls_beside, fn), 0); }

static void outside_a_goroutine_they_abort_by_name(void)
{
    T_ABORTS(yields, NULL, "magpie: mag_yield called outside a goroutine\n");
    T_ABORTS(exits, NULL, "magpie: mag_exit called outside a goroutine\n");
    T_ABORTS(names_itself, NULL, "magpie: mag_set_name called outside a goroutine\n");
    T_ABORTS(runs_and_calls_beside, &(mag_fn){yields}, "magpie: mag_yield called outside a goroutine\n");
    T_ABORTS(runs_and_calls_beside, &(mag_fn){exits}, "magpie: mag_exit called outside a goroutine\n");
    T_ABORTS(runs_and_calls_beside, &(mag_fn){names_itself}, "magpie: mag_set_name called outside a goroutine\n");
    checkpoints(NULL); /* does nothing */
    runs_and_calls_beside(&(mag_fn){checkpoints});
}

/* ---- refused ---- */

static void refusals(void *arg)
{
    (void)arg;
    int x = 0;
    T_EQ(mag_go(NULL, &x), -EINVAL);
    T_EQ(mag_go_copy(NULL, &x, sizeof x), -EINVAL);
    T_EQ(mag_go_copy(never, NULL, 1), -EINVAL);
    T_EQ(mag_go_with(NULL, NULL, &x), -EINVAL);
    T_EQ(mag_go_with(&(mag_go_config){.copy = 4}, never, NULL), -EINVAL);
    T_EQ(mag_go_with(&(mag_go_config){.stack_size = SIZE_MAX}, never, &x), -EINVAL);
    T_EQ(mag_go_with(&(mag_go_config){.stack_size = ((size_t)1 << 30) + 1}, never, &x), -EINVAL);
    for (int i = 0; i < 4; i++) {
        mag_go_config cfg = {0};
        cfg.reserved[i] = 1;
        T_EQ(mag_go_with(&cfg, never, &x), -EINVAL);
    }
    T_EQ(mag_go_copy(never, &x, SIZE_MAX), -E2BIG);
    T_EQ(mag_go_copy(never, &x, (64 << 10) + 1), -E2BIG);
    T_EQ(mag_go_with(&(mag_go_config){.stack_size = 16 << 10, .copy = (4 << 10) + 1}, never, &x), -E2BIG);
    mag_stats total;
    mag_stats_read(&total, NULL, 0);
    T_EQ(total.spawned, 1); /* this one */
    for (int i = 0; i < 10; i++)
        mag_yield();
}

static void what_cannot_be_is_refused(void) { in_run(refusals); }

/* ---- copies ---- */

static struct {
    mag_wg wg;
    size_t size;
} check; /* beside the copies, which are nothing but pattern */

static void owns_its_copy(void *arg)
{
    unsigned char *copy = arg;
    size_t n = check.size;
    if (n != 0)
        T_EQ((uintptr_t)copy % 16, 0);
    unsigned char mine = n == 0 ? 0 : copy[0];
    for (size_t i = 0; i < n; i++)
        T_EQ(copy[i], (unsigned char)(mine + i));
    for (size_t i = 0; i < n; i++)
        copy[i] = mine ^ 0xff;
    mag_yield();
    for (size_t i = 0; i < n; i++)
        T_EQ(copy[i], mine ^ 0xff); /* nobody else writes here */
    mag_wg_done(&check.wg);
}

static void copy_of(size_t size, bool with)
{
    static unsigned char from[64 << 10];
    enum { EACH = 40 };
    check.size = size;
    mag_wg_add(&check.wg, EACH);
    for (int k = 0; k < EACH; k++) {
        for (size_t i = 0; i < size; i++)
            from[i] = (unsigned char)(k + i);
        if (with)
            T_EQ(mag_go_with(&(mag_go_config){.copy = size}, owns_its_copy, from), 0);
        else
            T_EQ(mag_go_copy(owns_its_copy, from, size), 0);
        memset(from, 0xee, sizeof from); /* the call has it by now */
    }
    wait_for(&check.wg);
}

static void copies(void *arg)
{
    (void)arg;
    static const size_t sizes[] = {0, 1, 15, 16, 17, 63, 64, 65, 4096, 4097, (64 << 10) - 1, 64 << 10};
    for (size_t i = 0; i < sizeof sizes / sizeof *sizes; i++) {
        copy_of(sizes[i], false);
        if (sizes[i] != 0) /* 0 means the pointer there */
            copy_of(sizes[i], true);
    }
}

static void copies_are_aligned_and_independent(void) { in_run(copies); }

/* A large copy lies on the goroutine's own stack: it must survive the use of all the rest of it. */
__attribute__((noinline)) static void dig(char *until)
{
    volatile char frame[512];
    memset((char *)frame, 0x77, sizeof frame);
    if ((char *)frame > until)
        dig(until);
    frame[0]++;
}

static void digs_beside_its_copy(void *arg)
{
    unsigned char *copy = arg;
    T_GE((char *)__builtin_frame_address(0) - (char *)copy, (256 - 16) << 10); /* out of the way, at the other end */
    dig((char *)copy + (64 << 10) + 8192);
    for (size_t i = 0; i < 64 << 10; i++)
        T_EQ(copy[i], (unsigned char)i);
    mag_wg_done(&check.wg);
}

static void large_copy(void *arg)
{
    (void)arg;
    static unsigned char from[64 << 10];
    for (size_t i = 0; i < sizeof from; i++)
        from[i] = (unsigned char)i;
    for (int i = 0; i < 20; i++) {
        mag_wg_add(&check.wg, 1);
        T_EQ(mag_go_copy(digs_beside_its_copy, from, sizeof from), 0);
    }
    wait_for(&check.wg);
}

static void a_large_copy_survives_deep_calls(void) { in_run(large_copy); }

struct args {
    mag_wg *wg;
    long a, b;
    long *sum;
};

static void adds(void *arg)
{
    struct args *x = arg;
    __atomic_add_fetch(x->sum, x->a * x->b, __ATOMIC_RELAXED);
    mag_wg_done(x->wg);
}

static void macro(void *arg)
{
    (void)arg;
    mag_wg wg = {0};
    long sum = 0, expected = 0;
    for (long i = 0; i < 1000; i++) {
        mag_wg_add(&wg, 1);
        T_EQ(MAG_GO(adds, struct args, &wg, i, .b = i + 1, .sum = &sum), 0);
        expected += i * (i + 1);
    }
    wait_for(&wg);
    T_EQ(sum, expected);
}

static void mag_go_macro_copies_its_values(void) { in_run(macro); }

/* ---- mag_go_with ---- */

static char dump[1 << 16];

static void dump_here(void)
{
    int fd[2];
    T_EQ(pipe(fd), 0);
    T_EQ(mag_dump(fd[1]), 0);
    close(fd[1]);
    ssize_t n = read(fd[0], dump, sizeof dump - 1);
    T_GT(n, 0);
    dump[n] = 0;
    close(fd[0]);
}

static void dumps_itself(void *arg)
{
    dump_here();
    mag_wg_done(arg);
}

static void dumps_beside_its_copy(void *arg)
{
    dump_here();
    mag_wg_done(*(mag_wg **)arg);
}

static void renames_itself(void *arg)
{
    mag_set_name("another");
    dump_here();
    T_STR_HAS(dump, "\"another\"");
    T_FALSE(strstr(dump, "\"worker\""));
    mag_set_name(NULL);
    dump_here();
    T_FALSE(strstr(dump, "\"another\""));
    mag_wg_done(arg);
}

static void names(void *arg)
{
    (void)arg;
    mag_wg wg = {0};
    char name[] = "worker";
    mag_wg_add(&wg, 1);
    T_EQ(mag_go_with(&(mag_go_config){.name = name}, dumps_itself, &wg), 0);
    memset(name, 'x', 6); /* it was copied */
    wait_for(&wg);
    T_STR_HAS(dump, "\"worker\"");
    T_STR_HAS(dump, "\"main\"");

    for (mag_stats total = {.goroutines = 2}; total.goroutines > 1; mag_stats_read(&total, NULL, 0))
        mag_yield();    /* done comes a moment before the end */
    mag_wg_add(&wg, 1); /* a descriptor used again does not keep its name */
    T_EQ(mag_go(dumps_itself, &wg), 0);
    wait_for(&wg);
    T_FALSE(strstr(dump, "\"worker\""));

    mag_wg_add(&wg, 1);
    T_EQ(mag_go_with(&(mag_go_config){.name = "0123456789012345678901234567890123456789"}, dumps_itself, &wg), 0);
    wait_for(&wg);
    T_STR_HAS(dump, "\"0123456789012345678901234567890\"");

    mag_wg_add(&wg, 1);
    T_EQ(mag_go_with(&(mag_go_config){.name = "worker"}, renames_itself, &wg), 0);
    wait_for(&wg);
}

static void names_are_kept(void) { in_run(names); }

static void names_and_copies(void *arg)
{
    (void)arg;
    mag_wg wg = {0}, *from[512] = {&wg}; /* 8 bytes fit the descriptor, 4096 do not */
    static const size_t sizes[] = {8, 4096};
    for (int i = 0; i < 2; i++) {
        mag_wg_add(&wg, 1);
        mag_go_config cfg = {.name = "carrier", .copy = sizes[i]};
        T_EQ(mag_go_with(&cfg, dumps_beside_its_copy, from), 0);
        wait_for(&wg);
        T_STR_HAS(dump, "\"carrier\"");
    }
}

static void names_are_kept_beside_copies(void) { in_run(names_and_copies); }

static void sizes(void *arg)
{
    (void)arg;
    mag_wg wg = {0};
    static const size_t size[] = {0, 1, 4096, 16 << 10, 100000, 256 << 10, 1 << 20, 64 << 20, 1 << 30};
    for (size_t i = 0; i < sizeof size / sizeof *size; i++)
        for (int k = 0; k < 10; k++) {
            mag_wg_add(&wg, 1);
            T_EQ(mag_go_with(&(mag_go_config){.stack_size = size[i]}, done, &wg), 0);
            if (k % 2)
                wait_for(&wg);
        }
    wait_for(&wg);
}

static void stacks_of_any_size(void) { in_run(sizes); }

/* ---- identity ---- */

enum { IDS = 100000 };

static uint64_t id[IDS];

static void notes_its_id(void *arg)
{
    uint64_t mine = mag_id();
    *(uint64_t *)arg = mine;
    mag_yield();
    T_EQ(mag_id(), mine);
    mag_wg_done(&check.wg);
}

static void *spawns_from_a_thread(void *arg)
{
    T_EQ(mag_id(), 0);
    for (long i = 0; i < t_scale(IDS / 4); i++)
        T_EQ(mag_go(notes_its_id, (uint64_t *)arg + i), 0);
    return NULL;
}

static void ids(void *arg)
{
    (void)arg;
    long quarter = t_scale(IDS / 4);
    pthread_t t;
    T_NE(mag_id(), 0);
    mag_wg_add(&check.wg, (int)(4 * quarter));
    T_EQ(pthread_create(&t, NULL, spawns_from_a_thread, id), 0);
    for (int i = 1; i < 4; i++) {
        for (long k = 0; k < quarter; k++) {
            T_EQ(mag_go(notes_its_id, &id[i * quarter + k]), 0);
            if (k % 512 == 0)
                mag_yield();
        }
    }
    T_EQ(pthread_join(t, NULL), 0);
    wait_for(&check.wg);
}

static int by_value(const void *a, const void *b)
{
    uint64_t x = *(const uint64_t *)a, y = *(const uint64_t *)b;
    return x < y ? -1 : x > y;
}

static void ids_are_unique(void)
{
    T_EQ(mag_id(), 0);
    in_run(ids);
    long n = 4 * t_scale(IDS / 4);
    qsort(id, (size_t)n, sizeof *id, by_value);
    T_NE(id[0], 0);
    for (long i = 1; i < n; i++)
        T_NE(id[i - 1], id[i]);
    uint64_t last = id[n - 1];
    in_run(ids); /* nor do they come again in the next run */
    for (long i = 0; i < n; i++)
        T_GT(id[i], last);
}

/* ---- exactly once ---- */

struct tree {
    mag_wg *wg;
    long *leaves;
    int depth;
};

static void grows(void *arg)
{
    struct tree t = *(struct tree *)arg;
    if (t.depth == 0) {
        __atomic_add_fetch(t.leaves, 1, __ATOMIC_RELAXED);
    } else {
        mag_wg_add(t.wg, 2);
        T_EQ(MAG_GO(grows, struct tree, t.wg, t.leaves, t.depth - 1), 0);
        T_EQ(MAG_GO(grows, struct tree, t.wg, t.leaves, t.depth - 1), 0);
    }
    mag_wg_done(t.wg);
}

static void trees(void *arg)
{
    (void)arg;
    mag_wg wg = {0};
    long leaves = 0;
    int depth = t_state.slow > 1 ? 11 : 16;
    for (int i = 0; i < 4; i++) {
        mag_wg_add(&wg, 1);
        T_EQ(MAG_GO(grows, struct tree, &wg, &leaves, depth), 0);
    }
    wait_for(&wg);
    T_EQ(leaves, 4L << depth);
}

static void trees_grow_to_every_leaf(void) { in_run(trees); }

static unsigned char *runs; /* how often each ran */

static void runs_once(void *arg)
{
    __atomic_add_fetch((unsigned char *)arg, 1, __ATOMIC_RELAXED);
    mag_wg_done(&check.wg);
}

static void million(void *arg)
{
    long n = *(long *)arg;
    mag_wg_add(&check.wg, (int)n);
    for (long i = 0; i < n; i++) {
        T_EQ(mag_go(runs_once, &runs[i]), 0);
        if (T_TSAN && i % 1000 == 0)
            mag_yield();
    }
    wait_for(&check.wg);
}

static void a_million_run_exactly_once(void)
{
    long n = t_scale(1000000);
    runs = calloc((size_t)n, 1);
    T_TRUE(runs);
    T_EQ(mag_run(million, &n), 0);
    for (long i = 0; i < n; i++)
        if (runs[i] != 1)
            T_FAIL("goroutine %ld ran %d times", i, runs[i]);
    free(runs);
}

int main(int argc, char **argv)
{
    t_init(argc, argv);
    t_setenv("MAGPIE_STACK", NULL); /* the sizes here are those of the default */
    T_RUN(outside_a_goroutine_they_abort_by_name);
    T_RUN(what_cannot_be_is_refused);
    T_RUN(copies_are_aligned_and_independent);
    T_RUN(a_large_copy_survives_deep_calls);
    T_RUN(mag_go_macro_copies_its_values);
    T_RUN(names_are_kept);
    T_RUN(stacks_of_any_size);
    T_RUN(ids_are_unique);
    T_RUN(trees_grow_to_every_leaf);
    T_RUN(a_million_run_exactly_once);
    T_RUN(names_are_kept_beside_copies);
    return t_done();
}
