/* SPDX-License-Identifier: MIT */
/* lifo.c: the goroutines that a spawn pushed aside, under every interleaving, with two slots and with four (LIFO_SIZE).
 *
 * Every G that goes in comes out exactly once, and whoever gets it sees what its maker wrote: g->arg is plain memory.
 * The indices start just below 2^32, so that they wrap in every case.
 */
#include "explore.h"
#include "core/lifo.h"

enum { GS = 8 };

static struct lifo l;
static struct g g[GS];
static unsigned made, got[GS];
static bool alone;

static void *arg_of(unsigned i) { return (void *)(uintptr_t)(100 + i); }

/* n Gs are there from the beginning. */
static void fill(unsigned n)
{
    mag__lifo_init(&l, UINT32_MAX - 1);
    for (unsigned i = 0; i < LIFO_SIZE; i++)
        at_ptr_store_rlx(&l.slot[i], NULL);
    for (unsigned i = 0; i < GS; i++) {
        got[i] = 0;
        g[i].arg = i < n ? arg_of(i) : NULL;
    }
    for (made = 0; made < n; made++)
        M_TRUE(mag__lifo_push_owner(&l, &g[made]));
    alone = false;
    MODEL_NAME_ARRAY(g);
    MODEL_NAME(l.top);
    MODEL_NAME(l.bottom);
    model_name(l.slot, 8, LIFO_SIZE, "l.slot");
}

static void fill_none(void) { fill(0); }
static void fill_one(void) { fill(1); }
static void fill_two(void) { fill(2); }
static void fill_all(void) { fill(LIFO_SIZE); }
static void fill_two_alone(void)
{
    fill(2);
    alone = true;
}

static void run_g(struct g *x)
{
    if (x == NULL)
        return;
    M_TRUE(x->arg == arg_of((unsigned)(x - g)));
    M_TRUE(model_tally(&got[x - g]) == 1);
}

static bool push(void)
{
    struct g *x = &g[made];
    x->arg = arg_of(made);
    bool room = mag__lifo_push_owner(&l, x);
    made += room;
    return room;
}

static void pop(void) { run_g(mag__lifo_pop_owner(&l, alone)); }

static void move(uint32_t n)
{
    struct g *to[LIFO_SIZE];
    n = mag__lifo_take_old_owner(&l, to, n);
    for (uint32_t i = 0; i < n; i++)
        run_g(to[i]);
}

static void thief(void) { run_g(mag__lifo_steal(&l)); }

static void thief_twice(void)
{
    thief();
    thief();
}

static void each_once(void)
{
    struct g *x;
    while ((x = mag__lifo_pop_owner(&l, false)) != NULL)
        run_g(x);
    for (unsigned i = 0; i < GS; i++)
        M_TRUE(got[i] == (i < made));
}

static void owner_pushes_and_pops(void)
{
    push();
    pop();
    push();
    push();
    pop();
}

static void owner_pops(void)
{
    pop();
    pop();
}

static void owner_pops_and_pushes(void)
{
    pop();
    push();
    push();
    pop();
}

/* What a thief took makes room for one more, in the slot that it read. */
static void owner_overflows(void)
{
    push();
    push();
    pop();
}

static void owner_moves(void)
{
    move(LIFO_SIZE / 2);
    push();
    pop();
}

static void owner_pushes_one(void) { push(); }

/* With two there, one of them is left whatever the owner does: a thief alone with it must not be told otherwise. */
static void thief_must_find(void) { M_TRUE(mag__lifo_length(&l) >= 1); }

static const struct model_case cases[] = {
    {"owner and thief", fill_none, {owner_pushes_and_pops, thief_twice}, each_once},
    {"owner and two thieves", fill_none, {owner_pushes_and_pops, thief, thief}, each_once},
    {"the last one", fill_one, {owner_pops, thief}, each_once},
    {"the last one, two thieves", fill_one, {owner_pops, thief, thief}, each_once},
    {"the last two", fill_two, {owner_pops, thief_twice}, each_once},
    {"the last two, two thieves", fill_two, {owner_pops, thief, thief}, each_once},
    {"popped and pushed", fill_two, {owner_pops_and_pushes, thief_twice}, each_once},
    {"filled anew", fill_all, {owner_overflows, thief_twice}, each_once},
    {"filled anew, two thieves", fill_all, {owner_overflows, thief, thief}, each_once},
    {"moved", fill_all, {owner_moves, thief_twice}, each_once},
    {"length", fill_one, {owner_pushes_one, thief_must_find}, each_once},
    {"alone", fill_two_alone, {owner_pops_and_pushes}, each_once},
};

int main(int argc, char **argv) { return model_main(argc, argv, cases, ARRAY_LEN(cases)); }
