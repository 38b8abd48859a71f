/* SPDX-License-Identifier: MIT */
/* lock.c: the lock, and the global queue that it guards. One at a time, everybody in the end, and what was written
 * under the lock is seen under it. What they guard is plain memory: a lock that lets two in, or orders too little, is a
 * race. */
#include "explore.h"
#include "core/globq.h"

static struct lock lock;
static unsigned sum, tries;

static void free_lock(void)
{
    lock = (struct lock){0};
    sum = tries = 0;
    MODEL_NAME(lock);
    MODEL_NAME(sum);
}

static void add(void)
{
    mag__lock_take(&lock);
    sum++;
    mag__lock_give(&lock);
}

static void add_twice(void)
{
    add();
    add();
}

static void try_add(void)
{
    if (!mag__lock_try(&lock))
        return;
    model_tally(&tries);
    sum++;
    mag__lock_give(&lock);
}

static void three(void)
{
    M_TRUE(sum == 3);
    M_TRUE(at_32_load_rlx(&lock.word) == 0);
}

static void tried(void) { M_TRUE(sum == 2 + tries && at_32_load_rlx(&lock.word) == 0); }

/* ---- the global queue ---- */

enum { GS = 3 };

static struct globq q;
static struct crate crate; /* it needs no more: the model has no malloc */
static struct g g[GS];
static unsigned got[GS];

static void empty_queue(void)
{
    crate = (struct crate){0};
    q = (struct globq){.spare = &crate, .nspare = 1};
    for (unsigned i = 0; i < GS; i++) {
        g[i].next = NULL;
        g[i].arg = NULL;
        got[i] = 0;
    }
    MODEL_NAME(q.length);
    MODEL_NAME(q.lock);
    MODEL_NAME(q.crates);
    MODEL_NAME(q.newest);
    MODEL_NAME(crate);
    MODEL_NAME_ARRAY(g);
}

static void putter_of_two(void)
{
    g[0].arg = &g[0];
    g[1].arg = &g[1];
    g[0].next = &g[1];
    g[1].next = NULL;
    mag__globq_put_list(&q, (struct g_list){.first = &g[0], .last = &g[1], .n = 2});
}

static void putter_of_one(void)
{
    g[2].arg = &g[2];
    mag__globq_put(&q, &g[2]);
}

static void get(uint32_t most)
{
    struct g *at[GS];
    uint32_t n = mag__globq_get_many(&q, at, most);
    for (uint32_t i = 0; i < n; i++) {
        M_TRUE(at[i]->arg == at[i]);
        M_TRUE(model_tally(&got[at[i] - g]) == 1);
    }
}

static void getter(void)
{
    if (mag__globq_length(&q) != 0)
        get(2);
}

static void getter_of_one(void) { get(1); }

static void queue_drained(void)
{
    M_TRUE(mag__globq_length(&q) == 3 - got[0] - got[1] - got[2]);
    M_TRUE(got[1] <= got[0]); /* first in, first out */
    get(GS);
    M_TRUE(mag__globq_length(&q) == 0 && q.crates == NULL);
    for (unsigned i = 0; i < GS; i++)
        M_TRUE(got[i] == 1);
}

static const struct model_case cases[] = {
    {"lock: two", free_lock, {add, add_twice}, three},
    {"lock: three", free_lock, {add, add, add}, three},
    {"lock: try", free_lock, {add_twice, try_add}, tried},
    {"globq: put and get", empty_queue, {putter_of_two, putter_of_one, getter}, queue_drained},
    {"globq: two get", empty_queue, {putter_of_two, getter_of_one, putter_of_one}, queue_drained},
};

int main(int argc, char **argv) { return model_main(argc, argv, cases, ARRAY_LEN(cases)); }
