/* SPDX-License-Identifier: MIT */
/* harness.c: test.h can fail, and says what it saw. */
#include "test.h"

static void fails_eq(void *arg)
{
    (void)arg;
    unsigned long count = 41;
    T_EQ(count, 42);
}

static void fails_signed(void *arg)
{
    (void)arg;
    T_LT(1u, -1);
}

static void fails_str(void *arg)
{
    (void)arg;
    T_STR_EQ("magpie", "crow");
}

static void fails_true(void *arg) { T_TRUE(arg == &t_state); }

static void fails_late(void *arg) { T_EVENTUALLY(arg != NULL, 5); }

static void fails_run(void *arg)
{
    (void)arg;
    T_EQ(2 + 2, 5);
}

static void aborts(void *arg)
{
    (void)arg;
    fprintf(stderr, "last words\n");
    abort();
}

static void talks(void *arg)
{
    for (int i = 0; i < 3000; i++)
        fprintf(stderr, "0123456789abcde\n"); /* more than is kept, and than a pipe's first page */
    _exit(*(int *)arg);
}

static void expects_a_wrong_abort(void *arg) { T_ABORTS(aborts, arg, "first words"); }
static void expects_an_abort_that_never_comes(void *arg) { T_ABORTS(fails_true, arg, "is false"); }

static void expect_failure(void (*fn)(void *), const char *left, const char *right)
{
    static struct t_child c;
    t_fork(&c, fn, NULL);
    T_EQ(c.signal, 0);
    T_EQ(c.code, 1);
    T_STR_HAS(c.err, left);
    T_STR_HAS(c.err, right);
    T_STR_HAS(c.err, "harness.c:");
    T_STR_HAS(c.err, "seed   ");
}

static void failures_show_both_values(void)
{
    expect_failure(fails_eq, "left   41", "right  42");
    expect_failure(fails_signed, "left   1", "right  -1");
    expect_failure(fails_str, "\"magpie\"", "\"crow\"");
    expect_failure(fails_true, "arg == &t_state", "is false");
    expect_failure(fails_late, "arg != NULL", "still false after");
    expect_failure(fails_run, "2 + 2 == 5", "left   4");
    expect_failure(expects_a_wrong_abort, "first words", "last words");
    expect_failure(expects_an_abort_that_never_comes, "code 1, signal 0", "does not abort");
}

static void true_things_hold(void)
{
    double zero = 0.0, nan = zero / zero;
    const char *name = "x";
    T_EQ(1, 1ul);
    T_EQ(-1, -1ll);
    T_EQ(name, name);
    T_NE(-1, UINT64_MAX);
    T_LT(-1, 0u);
    T_LE((signed char)-3, -3);
    T_GT(UINT64_MAX, 1);
    T_GE(0.5, 0.5f);
    T_NE(nan, nan);
    T_TRUE(name);
    T_FALSE(name == NULL);
}

static void child_reports_code_and_words(void)
{
    static struct t_child c;
    int code = 7;
    t_fork(&c, talks, &code);
    T_EQ(c.code, 7);
    T_EQ(c.signal, 0);
    T_EQ(strlen(c.err), sizeof c.err - 1);
    T_ABORTS(aborts, NULL, "last words");
}

static void counts_follow_the_process(void)
{
    long fds = t_fds();
    int fd = open("/dev/null", O_RDONLY);
    T_EQ(t_fds(), fds + 1);
    close(fd);
    T_EQ(t_fds(), fds);
    T_GE(t_threads(), 1);
    T_GT(t_maps(), 5);
    T_GT(t_rss(), 100000);
}

static void seeds_decide(void)
{
    uint64_t a = t_state.seed, b = t_state.seed;
    T_EQ(t_random_r(&a), t_random_r(&b));
    T_NE(t_random_r(&a), t_random_r(&a));
}

int main(int argc, char **argv)
{
    t_init(argc, argv);
    T_RUN(true_things_hold);
    T_RUN(failures_show_both_values);
    T_RUN(child_reports_code_and_words);
    T_RUN(counts_follow_the_process);
    T_RUN(seeds_decide);
    return t_done();
}
