/* SPDX-License-Identifier: MIT */
/* cpp.cpp: the header in C++, and that exceptions are the goroutine's own. */
#include "test.h"

#include <magpie.h>

#include <atomic>
#include <chrono>
#include <exception>
#include <stdexcept>
#include <string>

static void in_run(int procs, mag_fn fn, void *arg)
{
    mag_config cfg = {};
    cfg.procs = procs;
    T_EQ(mag_run_with(&cfg, fn, arg), 0);
}

static void wait_for(mag_wg *wg) { T_EQ(mag_wg_wait(wg, MAG_FOREVER), 0); }

/* ---- the header ---- */

struct args {
    mag_wg *wg;
    std::atomic<long> *sum;
    long a, b;
};

static void adds(void *arg)
{
    auto *x = static_cast<args *>(arg);
    *x->sum += x->a * x->b;
    mag_wg_done(x->wg);
}

static void macro(void *)
{
    mag_wg wg = {};
    std::atomic<long> sum{0};
    long expected = 0;
    for (long i = 0; i < 1000; i++) {
        mag_wg_add(&wg, 1);
        T_EQ(MAG_GO(adds, args, &wg, &sum, i, i + 1), 0);
        expected += i * (i + 1);
    }
    wait_for(&wg);
    T_EQ(sum.load(), expected);
}

static void mag_go_macro_copies_its_values(void) { in_run(2, macro, nullptr); }

/* Every type that C takes: a tag behind struct, a pointer, a type of two words, an array. */
struct job {
    int n;
    long *result;
};

static mag_wg told;

static void runs_job(void *arg)
{
    auto *j = static_cast<job *>(arg);
    *j->result = j->n;
    mag_wg_done(&told);
}

static void fills_long(void *arg)
{
    **static_cast<long **>(arg) = 7;
    mag_wg_done(&told);
}

static unsigned long number;
static void takes_number(void *arg)
{
    number = *static_cast<unsigned long *>(arg);
    mag_wg_done(&told);
}

static const char *word;
static void takes_word(void *arg)
{
    word = *static_cast<const char **>(arg);
    mag_wg_done(&told);
}

static long milliseconds;
static void takes_time(void *arg)
{
    milliseconds = static_cast<std::chrono::milliseconds *>(arg)->count();
    mag_wg_done(&told);
}

static int three[3];
static void takes_three(void *arg)
{
    memcpy(three, arg, sizeof three);
    mag_wg_done(&told);
}

static void forms(void *)
{
    long a = 0, b = 0;
    mag_wg_add(&told, 6);
    T_EQ(MAG_GO(takes_time, std::chrono::milliseconds, 5), 0); /* its constructor is explicit */
    T_EQ(MAG_GO(runs_job, struct job, 3, &a), 0);
    T_EQ(MAG_GO(fills_long, long *, &b), 0);
    T_EQ(MAG_GO(takes_number, unsigned long, 1ul << 40), 0);
    T_EQ(MAG_GO(takes_word, const char *, "word"), 0);
    T_EQ(MAG_GO(takes_three, int[3], 1, 2, 3), 0);
    wait_for(&told);
    T_EQ(a, 3);
    T_EQ(b, 7);
    T_EQ(number, 1ul << 40);
    T_STR_EQ(word, "word");
    T_EQ(milliseconds, 5);
    T_EQ(three[0] * 100 + three[1] * 10 + three[2], 123);
}

static void group_forms(void *)
{
    long a = 0, b = 0;
    mag_group g = {};
    number = 0;
    word = "";
    mag_wg_add(&told, 4);
    T_EQ(MAG_GROUP_GO(&g, runs_job, struct job, 4, &a), 0);
    T_EQ(MAG_GROUP_GO(&g, fills_long, long *, &b), 0);
    T_EQ(MAG_GROUP_GO(&g, takes_number, unsigned long, 6), 0);
    T_EQ(MAG_GROUP_GO(&g, takes_word, const char *, "group"), 0);
    T_EQ(mag_group_wait(&g, MAG_FOREVER), 0);
    T_EQ(mag_group_end(&g), 0);
    wait_for(&told);
    T_EQ(a, 4);
    T_EQ(b, 7);
    T_EQ(number, 6);
    T_STR_EQ(word, "group");
}

static void macros_take_every_type(void)
{
    in_run(2, forms, nullptr);
    in_run(2, group_forms, nullptr);
}

static void errno_is_usable(void)
{
    errno = ENOENT;
    T_EQ(*mag_errno(), ENOENT);
    T_EQ(errno, ENOENT);
}

/* ---- exceptions ---- */

struct thrower {
    mag_wg *wg;
    int number, rounds;
};

/* Throws through a few frames with destructors; the goroutine may be elsewhere when each of them runs. */
struct counted {
    int &count;
    explicit counted(int &c) : count(c) { count++; }
    ~counted()
    {
        T_EQ(std::uncaught_exceptions(), 1);
        mag_yield();
        T_EQ(std::uncaught_exceptions(), 1);
        count--;
    }
};

__attribute__((noinline)) static void throws(int number, int depth, int &live)
{
    counted here(live);
    if (depth == 0)
        throw std::runtime_error(std::to_string(number));
    throws(number, depth - 1, live);
}

static void catches(void *arg)
{
    auto *t = static_cast<thrower *>(arg);
    for (int i = 0; i < t->rounds; i++) {
        int live = 0, mine = t->number * 1000 + i;
        std::string words = std::to_string(mine);
        T_EQ(std::uncaught_exceptions(), 0);
        T_TRUE(std::current_exception() == nullptr);
        try {
            throws(mine, 3, live);
            T_FAIL("nothing was thrown");
        } catch (const std::runtime_error &e) {
            T_EQ(live, 0);
            mag_yield();
            T_STR_EQ(e.what(), words.c_str());
            T_EQ(std::uncaught_exceptions(), 0);
            try {
                std::rethrow_exception(std::current_exception());
            } catch (const std::runtime_error &again) {
                mag_yield();
                T_STR_EQ(again.what(), words.c_str());
            }
            try { /* one inside the handler of another */
                mag_yield();
                throw mine;
            } catch (int inner) {
                mag_yield();
                T_EQ(inner, mine);
            }
            mag_yield();
            try {
                throw; /* whichever this goroutine is handling */
            } catch (const std::runtime_error &once_more) {
                T_STR_EQ(once_more.what(), words.c_str());
            }
        }
        mag_yield();
        T_TRUE(std::current_exception() == nullptr);
    }
    mag_wg_done(t->wg);
}

static void many_catch(void *)
{
    mag_wg wg = {};
    for (int i = 0; i < 100; i++) {
        mag_wg_add(&wg, 1);
        T_EQ(MAG_GO(catches, thrower, &wg, i, static_cast<int>(t_scale(50))), 0);
    }
    wait_for(&wg);
}

static void exceptions_interleave(void)
{
    in_run(1, many_catch, nullptr);
    in_run(2, many_catch, nullptr);
}

/* A goroutine that ends inside a handler takes its exception with it: the next one on the same thread and stack starts
 * clean. Somebody refers to the exception, so that it is not lost memory. */
static std::exception_ptr kept[1000];
static std::atomic<int> nkept;

static void exits_in_a_handler(void *)
{
    try {
        throw 1;
    } catch (int) {
        kept[nkept++] = std::current_exception();
        mag_yield();
        mag_exit();
    }
}

static void starts_clean(void *arg)
{
    T_EQ(std::uncaught_exceptions(), 0);
    T_TRUE(std::current_exception() == nullptr);
    mag_wg_done(static_cast<mag_wg *>(arg));
}

static void handlers_left_open(void *)
{
    mag_wg wg = {};
    for (int i = 0; i < 100; i++) {
        mag_wg_add(&wg, 1);
        T_EQ(mag_go(exits_in_a_handler, nullptr), 0);
        T_EQ(mag_go(starts_clean, &wg), 0);
        mag_yield();
    }
    wait_for(&wg);
}

static void a_new_goroutine_starts_clean(void)
{
    in_run(1, handlers_left_open, nullptr);
    in_run(2, handlers_left_open, nullptr);
}

static void ends_the_run_in_a_handler(void *)
{
    try {
        throw std::runtime_error("left behind");
    } catch (const std::runtime_error &) {
        kept[nkept++] = std::current_exception();
        mag_exit();
    }
}

static void the_program_outside_is_untouched(void)
{
    try {
        throw 42;
    } catch (int mine) {
        in_run(2, many_catch, nullptr);
        in_run(2, ends_the_run_in_a_handler, nullptr);
        T_EQ(mine, 42);
        T_TRUE(std::current_exception() != nullptr);
    }
    T_TRUE(std::current_exception() == nullptr);
}

int main(int argc, char **argv)
{
    t_init(argc, argv);
    T_RUN(mag_go_macro_copies_its_values);
    T_RUN(macros_take_every_type);
    T_RUN(errno_is_usable);
    T_RUN(exceptions_interleave);
    T_RUN(a_new_goroutine_starts_clean);
    T_RUN(the_program_outside_is_untouched);
    return t_done();
}
