/* SPDX-License-Identifier: MIT */
/* stack_pool.c: core/stack.c from inside: guards, reuse, limits, memory given back, and no memory at all. */
#include "test.h"

#include "core/stack.h"
#include "os/os.h"

#include <pthread.h>
#include <sys/mman.h>

static struct stacks s;
static int class; /* of 256 KiB */

static char *get(struct stack_cache *c) { return mag__stack_get(&s, class, c, class); }
static void put(struct stack_cache *c, char *top) { mag__stack_put(&s, class, c, class, top); }
static size_t usable(void) { return mag__stack_usable(class); }

static void begin(void)
{
    mag__stack_init(&s);
    class = mag__stack_class(STACK_DEFAULT);
}

static void end(long maps)
{
    mag__stack_fini(&s);
    if (t_state.slow == 1)
        T_LE(t_maps(), maps + 1); /* the heap may have grown by one */
}

static void touch(char *top, size_t bytes)
{
    for (size_t i = 1; i <= bytes; i += 4096)
        top[-(long)i] = 1;
}

static bool is_resident(char *page)
{
    unsigned char in;
    T_EQ(mincore((void *)((uintptr_t)page & ~(uintptr_t)4095), 4096, &in), 0);
    return in & 1;
}

/* ---- guards ---- */

static void writes(void *at) { *(volatile char *)at = 1; }

static int signal_of_write(char *at)
{
    static struct t_child c;
    t_fork(&c, writes, at);
    return c.signal ? c.signal : c.code ? SIGSEGV : 0; /* a sanitizer turns it into an exit */
}

static void each_is_guarded(void)
{
    begin();
    long maps = t_maps();
    for (int i = 0; i < STACK_CLASSES; i += 4) {
        class = i;
        char *a = get(NULL), *b = get(NULL); /* neighbours */
        T_TRUE(a && b);
        T_EQ((uintptr_t)a % 16, 0);
        for (int k = 0; k < 2; k++) {
            char *top = k ? b : a, *low = top - usable();
            T_EQ(signal_of_write(top - 1), 0);
            T_EQ(signal_of_write(low), 0);
            T_NE(signal_of_write(low - 1), 0);
            T_NE(signal_of_write(low - s.guard), 0);
            T_FALSE(mag__stack_in_guard(&s, class, top, low));
            T_TRUE(mag__stack_in_guard(&s, class, top, low - 1));
            T_TRUE(mag__stack_in_guard(&s, class, top, low - s.guard));
            T_FALSE(mag__stack_in_guard(&s, class, top, low - s.guard - 1));
        }
    }
    end(maps);
}

static void classes_are_powers_of_two(void)
{
    T_EQ(mag__stack_class(0), 0);
    T_EQ(mag__stack_class(1), 0);
    for (int i = 0; i < STACK_CLASSES; i++) {
        size_t size = (size_t)STACK_MIN << i;
        T_EQ(mag__stack_usable(i), size);
        T_EQ(mag__stack_class(size), i);
        T_EQ(mag__stack_class(size + 1), i + 1 < STACK_CLASSES ? i + 1 : -1);
    }
    T_EQ(mag__stack_usable(STACK_CLASSES - 1), STACK_MAX);
    T_EQ(mag__stack_class(SIZE_MAX), -1);
}

/* ---- reuse ---- */

static void no_two_overlap(void)
{
    enum { N = 3000 };
    static char *top[N];
    long maps = t_maps();
    begin();
    for (int i = 0; i < N; i++) {
        top[i] = get(NULL);
        T_TRUE(top[i]);
        ((long *)top[i])[-1] = i;
        *(long *)(top[i] - usable()) = i;
    }
    for (int i = 0; i < N; i++) {
        T_EQ(((long *)top[i])[-1], i);
        T_EQ(*(long *)(top[i] - usable()), i);
    }
    T_EQ(at_64_load_rlx(&s.made), N);
    if (t_state.slow == 1)
        T_LE(t_maps(), maps + 100 + (mag__os_guard_costs_mapping() ? 2 * N : 0)); /* chunks, not a mapping a stack */
    end(maps);
}

static void the_hottest_comes_first(void)
{
    static struct stack_cache cache;
    begin();
    for (int k = 0; k < 2; k++) {
        struct stack_cache *c = k ? &cache : NULL;
        char *a = get(c), *b = get(c), *d = get(c);
        T_TRUE(a != b && b != d && a != d);
        put(c, d);
        put(c, a);
        put(c, b);
        T_EQ(get(c), b);
        T_EQ(get(c), a);
        T_EQ(get(c), d);
        put(c, a);
        put(c, b);
        put(c, d);
    }
    T_EQ(at_64_load_rlx(&s.made), 3); /* the second round found those of the first */
    mag__stack_cache_drain(&s, class, &cache);
    mag__stack_fini(&s);
}

static void a_cache_holds_so_many(void)
{
    enum { N = 300 };
    static char *top[N];
    static struct stack_cache c, another;
    begin();
    for (int i = 0; i < N; i++)
        top[i] = get(&c);
    T_EQ(c.n, 0);
    for (int i = 0; i < N; i++) {
        put(&c, top[i]);
        T_LE(c.n, STACK_CACHE);
        T_EQ(c.top[c.n - 1], top[i]); /* the hottest stays here */
    }
    T_EQ(c.n + s.pool[class].dirty.n, N);
    char *theirs = get(&another); /* an empty cache is filled from what others gave up */
    T_TRUE(theirs);
    T_GT(another.n, 0);
    T_LE(another.n, STACK_CACHE / 2);
    put(&another, theirs);
    for (int i = 0; i < N; i++)
        T_TRUE((top[i] = get(&c)) != NULL);
    T_LE(at_64_load_rlx(&s.made), N + another.n);
    for (int i = 0; i < N; i++)
        put(&c, top[i]);
    size_t made = at_64_load_rlx(&s.made);
    mag__stack_cache_drain(&s, class, &c);
    mag__stack_cache_drain(&s, class, &another);
    T_EQ(c.n, 0);
    T_EQ(s.pool[class].dirty.n + s.pool[class].clean.n, made);
    mag__stack_fini(&s);
}

static void another_size_passes_the_cache_by(void)
{
    static struct stack_cache c;
    begin();
    int large = mag__stack_class(1 << 20);
    char *small = get(&c);
    put(&c, small);
    T_EQ(c.n, 1);
    char *a = mag__stack_get(&s, large, &c, class);
    T_NE(a, small);
    touch(a, 1 << 20);
    mag__stack_put(&s, large, &c, class, a);
    T_EQ(c.n, 1);
    T_EQ(s.pool[large].dirty.n, 1);
    T_EQ(mag__stack_get(&s, large, &c, class), a);
    mag__stack_fini(&s);
}

/* Each thread takes, marks, looks, gives back: a stack with two owners would show. */
static void *hammers(void *arg)
{
    struct stack_cache c = {0};
    uint64_t random = t_state.seed + (uintptr_t)arg;
    enum { HOLD = 100 };
    char *held[HOLD] = {0};
    for (long i = 0; i < t_scale(200000); i++) {
        char **slot = &held[t_random_r(&random) % HOLD];
        struct stack_cache *mine = t_random_r(&random) % 8 ? &c : NULL;
        if (*slot == NULL) {
            *slot = get(mine);
            T_TRUE(*slot);
            ((void **)*slot)[-1] = slot;
        } else {
            T_EQ(((void **)*slot)[-1], slot);
            put(mine, *slot);
            *slot = NULL;
        }
        if (i % 1000 == 0)
            mag__stack_trim(&s);
    }
    for (int i = 0; i < HOLD; i++)
        if (held[i])
            put(NULL, held[i]);
    mag__stack_cache_drain(&s, class, &c);
    return NULL;
}

static void threads_share_it(void)
{
    pthread_t t[4];
    begin();
    for (uintptr_t i = 0; i < 4; i++)
        T_EQ(pthread_create(&t[i], NULL, hammers, (void *)i), 0);
    for (int i = 0; i < 4; i++)
        T_EQ(pthread_join(t[i], NULL), 0);
    T_EQ(s.pool[class].dirty.n + s.pool[class].clean.n, at_64_load_rlx(&s.made));
    mag__stack_fini(&s);
}

/* ---- giving back ---- */

enum { TRIMMED = 200, KEPT = 16 };

static void trim_gives_memory_back(void)
{
    char *top[TRIMMED];
    long maps = t_maps();
    begin();
    for (int i = 0; i < TRIMMED; i++) {
        top[i] = get(NULL);
        touch(top[i], 32 << 10);
    }
    T_EQ(mag__stack_trim(&s), 0); /* all in use */
    for (int i = 0; i < TRIMMED; i++)
        put(NULL, top[i]);
    T_EQ(mag__stack_trim(&s), 0); /* they were needed since the last call */
    for (int i = 0; i < TRIMMED; i++)
        T_TRUE(is_resident(top[i] - 1));
    T_EQ(mag__stack_trim(&s), TRIMMED - KEPT);
    int resident = 0;
    for (int i = 0; i < TRIMMED; i++)
        for (size_t k = 1; k < 32 << 10; k += 4096)
            resident += is_resident(top[i] - k);
    T_EQ(resident, KEPT * 8);
    T_EQ(mag__stack_trim(&s), 0);
    for (int i = 0; i < TRIMMED; i++) { /* they work as before: memory, and a guard below it */
        char *again = get(NULL);
        T_TRUE(again);
        touch(again, usable());
        if (i % 20 == 0)
            T_NE(signal_of_write(again - usable() - 1), 0);
    }
    T_EQ(at_64_load_rlx(&s.made), TRIMMED);
    end(maps);
}

static void trim_leaves_what_was_needed(void)
{
    char *top[TRIMMED];
    begin();
    for (int i = 0; i < TRIMMED; i++)
        top[i] = get(NULL);
    for (int i = 0; i < TRIMMED; i++)
        put(NULL, top[i]);
    mag__stack_trim(&s);
    for (int i = 0; i < 150; i++) /* between two calls 150 are in use at a time: 50 were not */
        top[i] = get(NULL);
    for (int i = 0; i < 150; i++)
        put(NULL, top[i]);
    T_EQ(mag__stack_trim(&s), TRIMMED - 150 - KEPT);
    mag__stack_fini(&s);
}

/* ---- no memory ---- */

static void every_call_may_fail(void)
{
    long maps = t_maps();
    bool failed = true;
    for (unsigned n = 1; failed; n++) {
        static char *top[200];
        T_LT(n, 10000);
        begin();
        failed = false;
        mag__os_fail_nth(n);
        for (int i = 0; i < 200; i++) {
            top[i] = get(NULL);
            if (top[i] == NULL) {
                failed = true;
                top[i] = get(NULL); /* once is once */
                T_TRUE(top[i]);
            }
            ((long *)top[i])[-1] = i;
        }
        for (int i = 0; i < 200; i++)
            T_EQ(((long *)top[i])[-1], i);
        mag__stack_trim(&s);
        for (int i = 0; i < 200; i++)
            put(NULL, top[i]);
        mag__stack_trim(&s);
        mag__os_fail_nth(0);
        T_EQ(s.pool[class].dirty.n + s.pool[class].clean.n, at_64_load_rlx(&s.made));
        mag__stack_fini(&s);
        if (n < 210)
            failed = true; /* a failure that a smaller chunk makes good is not seen above */
    }
    if (t_state.slow == 1)
        T_LE(t_maps(), maps + 1);
}

static void fill_until_none(size_t least)
{
    static char *top[100000];
    size_t n = 0;
    while ((top[n] = get(NULL)) != NULL) {
        top[n][-1] = 1;
        T_LT(++n, 100000);
    }
    printf("%zu stacks  ", n);
    T_GE(n, least);
    T_EQ(get(NULL), NULL);
    put(NULL, top[0]); /* one comes free, one can be had */
    T_EQ(get(NULL), top[0]);
    T_EQ(get(NULL), NULL);
    for (size_t i = 0; i < n; i++)
        put(NULL, top[i]);
}

static void little_address_space(void *arg)
{
    (void)arg;
    long size = 0;
    FILE *f = fopen("/proc/self/statm", "r");
    T_EQ(fscanf(f, "%ld", &size), 1);
    fclose(f);
    rlim_t now = (rlim_t)size * 4096, room = 16 << 20; /* the first chunk alone wants 17 MiB */
    T_EQ(setrlimit(RLIMIT_AS, &(struct rlimit){now + room, now + room}), 0);
    if (mmap(NULL, 2 * room, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0) != MAP_FAILED)
        _exit(77); /* an emulator does not care */
    begin();
    fill_until_none(40); /* of 58 that fit */
    mag__stack_fini(&s);
}

static void a_small_address_space_is_used_up(void)
{
    static struct t_child c;
    if (T_ASAN || T_TSAN)
        T_SKIP("the sanitizer needs the address space");
    t_fork(&c, little_address_space, NULL);
    if (c.code == 77)
        T_SKIP("no limit on address space here");
    if (c.code != 0)
        T_FAIL("code %d, signal %d\n%s", c.code, c.signal, c.err);
}

/* ---- kernels without cheap guards ---- */

static void with_mappings(void *arg)
{
    (void)arg;
    t_setenv("MAGPIE_GUARD", "mprotect");
    T_TRUE(mag__os_guard_costs_mapping());
    each_is_guarded();
    trim_gives_memory_back();
    begin();
    T_LE(s.limit, mag__os_mapping_limit() / 2); /* a guard and a stack are two */
    T_GE(s.limit, mag__os_mapping_limit() / 2 - 1024);
    s.limit = 100;
    fill_until_none(100);
    T_EQ(at_64_load_rlx(&s.made), 100);
    mag__stack_fini(&s);
}

static void guards_that_cost_mappings(void)
{
    static struct t_child c;
    t_fork(&c, with_mappings, NULL);
    if (c.code != 0)
        T_FAIL("code %d, signal %d\n%s", c.code, c.signal, c.err);
}

/* At the limit the program can still map memory of its own. */
static void all_mappings(void *arg)
{
    (void)arg;
    t_setenv("MAGPIE_GUARD", "mprotect");
    begin();
    if (s.limit > 90000)
        _exit(77);
    fill_until_none(s.limit);
    void *at[200];
    for (int i = 0; i < 200; i++) {
        at[i] = mmap(NULL, 4096, i % 2 ? PROT_NONE : PROT_READ, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
        T_TRUE(at[i] != MAP_FAILED);
    }
    mag__stack_fini(&s);
}

static void the_limit_of_mappings_is_respected(void)
{
    static struct t_child c;
    if (T_ASAN || T_TSAN)
        T_SKIP("the sanitizer has mappings of its own for each");
    t_fork(&c, all_mappings, NULL);
    if (c.code == 77)
        T_SKIP("the limit is too high to reach");
    if (c.code != 0)
        T_FAIL("code %d, signal %d\n%s", c.code, c.signal, c.err);
}

int main(int argc, char **argv)
{
    t_init(argc, argv);
    T_RUN(guards_that_cost_mappings); /* before this process has found out which guards the kernel has */
    T_RUN(the_limit_of_mappings_is_respected);
    T_RUN(classes_are_powers_of_two);
    T_RUN(each_is_guarded);
    T_RUN(no_two_overlap);
    T_RUN(the_hottest_comes_first);
    T_RUN(a_cache_holds_so_many);
    T_RUN(another_size_passes_the_cache_by);
    T_RUN(threads_share_it);
    T_RUN(trim_gives_memory_back);
    T_RUN(trim_leaves_what_was_needed);
    T_RUN(every_call_may_fail);
    T_RUN(a_small_address_space_is_used_up);
    return t_done();
}
