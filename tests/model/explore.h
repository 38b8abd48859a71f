/* SPDX-License-Identifier: MIT */
/* explore.h: runs real code of src/ under every interleaving of a few threads. See explore.c.
 *
 *     static const struct model_case cases[] = {
 *         {"two thieves", fill, {owner, thief_a, thief_b}, each_once},
 *     };
 *     int main(int argc, char **argv) { return model_main(argc, argv, cases, ARRAY_LEN(cases)); }
 *
 * A case is run again and again: setup puts all shared state back, the threads start together, verify looks at what
 * they left. Threads must be deterministic but for what they read through atomics, and may not keep a record whose
 * content depends on the order in which they ran: states that differ in nothing else are taken for one.
 */
#ifndef MAG_TESTS_MODEL_EXPLORE_H
#define MAG_TESTS_MODEL_EXPLORE_H

#include "base/compiler.h"

#define MODEL_THREADS 3

struct model_case {
    const char *name;
    void (*setup)(void);
    void (*thread[MODEL_THREADS])(void);
    void (*verify)(void); /* may be NULL */
    unsigned may_sleep;   /* bit t: it is no failure that thread t still sleeps at the end */
    int preempt, stale;   /* bounds of this case; 0: the default */
    const char *fails;    /* the search must find a failure with these words: what the case denies is possible */
};

/* The exit status. --help tells the arguments. */
int model_main(int argc, char **argv, const struct model_case *cases, size_t ncases);

/* Inside a case. */
NORETURN void model_fail(const char *format, ...) PRINTF(1, 2);
#define M_TRUE(x)                                                                                                      \
    do {                                                                                                               \
        if (!(x))                                                                                                      \
            model_fail("%s:%d: %s is false", __FILE__, __LINE__, #x);                                                  \
    } while (0)

/* For records of the test itself, which every thread may write: the race detector does not see them. */
unsigned model_tally(unsigned *n);

/* For the trace: `count` things of `size` bytes from `at` on are called name, or name[i]. In setup. */
void model_name(const void *at, size_t size, size_t count, const char *name);
#define MODEL_NAME(x) model_name(&(x), sizeof(x), 1, #x)
#define MODEL_NAME_ARRAY(x) model_name((x), sizeof *(x), ARRAY_LEN(x), #x)

#endif
