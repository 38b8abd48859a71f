/* SPDX-License-Identifier: MIT */
/* runq.c: the run queue under every interleaving, with rings of two and of four slots (RUNQ_SIZE).
 *
 * Every G that goes in comes out exactly once, and whoever gets it sees what its maker wrote: g->arg is plain memory.
 * The indices start just below 2^32, so that they wrap in every case.
 */
#include "explore.h"
#include "core/runq.h"

enum { GS = 8 };

static struct runq q, a, b; /* the owner's, and those of two thieves */
static struct g g[GS];
static unsigned made, got[GS];
static struct g_list moved; /* what the owner spilled */

static void *arg_of(unsigned i) { return (void *)(uintptr_t)(100 + i); }

static void name_queue(struct runq *r, const char *head, const char *tail, const char *next, const char *slot)
{
    model_name(&r->head, 4, 1, head);
    model_name(&r->tail, 4, 1, tail);
    model_name(&r->next, 8, 1, next);
    model_name(r->slot, 8, RUNQ_SIZE, slot);
}

/* n Gs are in the ring from the beginning; the owner has written and the thieves have read up to here. */
static void fill(unsigned n)
{
    const uint32_t start = UINT32_MAX - 1;
    mag__runq_init(&q, start);
    mag__runq_init(&a, start);
    mag__runq_init(&b, start);
    for (unsigned i = 0; i < RUNQ_SIZE; i++) {
        at_ptr_store_rlx(&q.slot[i], NULL);
        at_ptr_store_rlx(&a.slot[i], NULL);
        at_ptr_store_rlx(&b.slot[i], NULL);
    }
    moved = (struct g_list){0};
    for (unsigned i = 0; i < GS; i++) {
        got[i] = 0;
        g[i].next = NULL;
        g[i].arg = i < n ? arg_of(i) : NULL;
    }
    for (made = 0; made < n; made++)
        M_TRUE(mag__runq_put_owner(&q, &g[made]));
    MODEL_NAME_ARRAY(g);
    MODEL_NAME(q.alone);
    name_queue(&q, "q.head", "q.tail", "q.next", "q.slot");
    name_queue(&a, "a.head", "a.tail", "a.next", "a.slot");
    name_queue(&b, "b.head", "b.tail", "b.next", "b.slot");
}

/* The ring of a is full, and there is one G in q. */
static void fill_a(void)
{
    fill(1);
    for (; made <= RUNQ_SIZE; made++) {
        g[made].arg = arg_of(made);
        M_TRUE(mag__runq_put_owner(&a, &g[made]));
    }
}

static void fill_none(void) { fill(0); }
static void fill_one(void) { fill(1); }
static void fill_all(void) { fill(RUNQ_SIZE); }
static void fill_next(void)
{
    fill(0);
    g[0].arg = arg_of(0);
    made = 1;
    mag__runq_next_swap_owner(&q, &g[0]);
}

static void run_g(struct g *x)
{
    if (x == NULL)
        return;
    M_TRUE(x->arg == arg_of((unsigned)(x - g)));
    M_TRUE(model_tally(&got[x - g]) == 1);
}

static struct g *make(void)
{
    struct g *x = &g[made];
    x->arg = arg_of(made++);
    return x;
}

static void put(void)
{
    struct g *x = make();
    if (mag__runq_put_owner(&q, x))
        return;
    struct g_list list = mag__runq_spill_owner(&q, x);
    if (list.n == 0) {
        M_TRUE(mag__runq_put_owner(&q, x)); /* thieves have made room */
        return;
    }
    M_TRUE(list.n == RUNQ_SIZE / 2 + 1 && list.last == x);
    if (moved.n == 0)
        moved.first = list.first;
    else
        moved.last->next = list.first;
    moved.last = list.last;
    moved.n += list.n;
}

/* What the scheduler does: the older half and the new one go into an array, with no look at them. */
static void put_or_move(void)
{
    struct g *x = make(), *to[RUNQ_SPILL];
    if (mag__runq_put_owner(&q, x))
        return;
    uint32_t n = mag__runq_spill_into_owner(&q, x, to);
    if (n == 0) {
        M_TRUE(mag__runq_put_owner(&q, x)); /* thieves have made room */
        return;
    }
    M_TRUE(n == RUNQ_SPILL && to[n - 1] == x);
    for (uint32_t i = 0; i < n; i++) {
        M_TRUE(i == 0 || to[i - 1] < to[i]); /* oldest first */
        g_list_put(&moved, to[i]);
    }
}

static void halve(void)
{
    struct g *to[RUNQ_SPILL];
    uint32_t n = mag__runq_half_into_owner(&q, to);
    for (uint32_t i = 0; i < n; i++) {
        M_TRUE(i == 0 || to[i - 1] < to[i]);
        g_list_put(&moved, to[i]);
    }
}

static void get(void) { run_g(mag__runq_get_owner(&q)); }

static void steal(struct runq *to, struct runq *from)
{
    uint32_t n = 0;
    run_g(mag__runq_steal(to, from, 1, &n));
}

static void thief_a(void)
{
    steal(&a, &q);
    run_g(mag__runq_get_owner(&a));
}

static void thief_b(void)
{
    steal(&b, &q);
    run_g(mag__runq_get_owner(&b));
}

static void thief_a_twice(void)
{
    thief_a();
    thief_a();
}

static void thief_of_thief(void) { steal(&b, &a); }

/* Its ring has run dry, in part by theft: what it steals now goes where others may still be reading. */
static void dry_thief(void)
{
    struct g *x;
    while ((x = mag__runq_get_owner(&a)) != NULL)
        run_g(x);
    steal(&a, &q);
}

static void each_once(void)
{
    struct g_list rest[] = {mag__runq_drain_owner(&q), mag__runq_drain_owner(&a), mag__runq_drain_owner(&b)};
    struct g *x = moved.first;
    for (unsigned i = 0; i < moved.n; i++, x = x->next)
        run_g(x);
    M_TRUE(x == NULL);
    for (unsigned r = 0; r < ARRAY_LEN(rest); r++)
        for (x = rest[r].first; x != NULL; x = x->next)
            run_g(x);
    for (unsigned i = 0; i < GS; i++)
        M_TRUE(got[i] == (i < made));
}

/* ---- the ring ---- */

static void owner_puts_and_gets(void)
{
    put();
    put();
    get();
    put();
    get();
}

static void owner_gets_and_puts(void)
{
    get();
    put();
    put();
}

static void owner_overflows(void)
{
    put();
    put();
    put();
}

static void owner_moves(void)
{
    put_or_move();
    put_or_move();
    put_or_move();
}

static void owner_halves(void)
{
    halve();
    put();
    halve();
}

/* One goes in before one comes out, so there is always one: nobody may be told otherwise. */
static void owner_keeps_one(void)
{
    put();
    get();
}

static void owner_keeps_one_by_spilling(void)
{
    for (unsigned i = 0; i < RUNQ_SIZE; i++)
        put();
}

static void owner_keeps_one_by_moving(void)
{
    for (unsigned i = 0; i < RUNQ_SIZE; i++)
        put_or_move();
}

static void thief_must_find(void)
{
    uint32_t n = 0;
    struct g *x = mag__runq_steal(&a, &q, 1, &n);
    M_TRUE(x != NULL && n >= 1);
    run_g(x);
}

static void prober(void) { M_TRUE(!mag__runq_is_empty(&q)); }

static void measurer(void)
{
    uint32_t n = mag__runq_length(&q);
    M_TRUE(n >= 1 && n <= RUNQ_SIZE);
}

/* ---- runnext ---- */

static void kick(void)
{
    struct g *old = mag__runq_next_swap_owner(&q, make());
    if (old != NULL)
        M_TRUE(mag__runq_put_owner(&q, old));
}

static void owner_sets_next_and_takes(void)
{
    kick();
    kick();
    run_g(mag__runq_next_take_owner(&q));
    kick();
}

static void next_thief(void)
{
    struct g *x = mag__runq_next_peek(&q);
    if (x != NULL && mag__runq_next_steal(&q, x))
        run_g(x);
}

/* g[0] is in runnext; it moves into the ring, and only then may the other one go. */
static void owner_kicks_and_takes(void)
{
    kick();
    run_g(mag__runq_next_take_owner(&q));
}

/* The ring's G goes only when there is one in runnext. */
static void owner_kicks_and_gets(void)
{
    kick();
    get();
}

static void owner_kicks_and_takes_again(void)
{
    kick();
    run_g(mag__runq_next_take_owner(&q));
    kick();
    get();
}

static void put_many(void)
{
    struct g *from[] = {make(), make()};
    mag__runq_put_many_owner(&q, from, 2);
}

static void owner_gets_all_and_puts_many(void)
{
    for (unsigned i = 0; i < RUNQ_SIZE; i++)
        get();
    put_many();
    get();
}

/* ---- alone ---- */

static void be_alone(void) { at_32_store_rlx(&q.alone, 1); }
static void fill_one_alone(void)
{
    fill_one();
    be_alone();
}
static void fill_next_alone(void)
{
    fill_next();
    be_alone();
}

static void take_turns(void)
{
    struct g *x = mag__runq_oldest_owner(&q);
    mag__runq_turn_owner(&q, make());
    run_g(x);
}

static void owner_keeps_one_in_turn(void)
{
    put();
    take_turns();
    take_turns();
}

/* There were no thieves; from now on there may be (sched/p.c). */
static void admit_company(void) { at_32_store_rel(&q.alone, 0); /* PR3 */ }

static bool company(void) { return at_32_load_acq(&q.alone) == 0; /* PR3 */ }

static void owner_admits_company(void)
{
    put();
    get();
    kick();
    take_turns();
    admit_company();
    get();
    kick();
    run_g(mag__runq_next_take_owner(&q));
}

static void thief_as_company(void)
{
    if (company())
        thief_a();
}

static void next_thief_as_company(void)
{
    if (company())
        next_thief();
}

static const struct model_case cases[] = {
    {"ring: owner and thief", fill_none, {owner_puts_and_gets, thief_a_twice}, each_once},
    {"ring: owner and two thieves", fill_none, {owner_puts_and_gets, thief_a, thief_b}, each_once},
    {"ring: filled anew", fill_all, {owner_gets_and_puts, thief_a_twice}, each_once},
    {"ring: filled anew, two thieves", fill_all, {owner_gets_and_puts, thief_a, thief_b}, each_once},
    {"ring: many at once", fill_none, {put_many, thief_a}, each_once},
    {"ring: filled anew by many", fill_all, {owner_gets_all_and_puts_many, thief_a}, each_once},
    {"ring: overflows", fill_all, {owner_overflows, thief_a}, each_once},
    {"ring: overflows into an array", fill_all, {owner_moves, thief_a}, each_once},
    {"ring: overflows, array, two thieves", fill_all, {put_or_move, thief_a, thief_b}, each_once},
    {"ring: its half leaves", fill_all, {owner_halves, thief_a}, each_once},
    {"ring: a thief is robbed", fill_all, {owner_gets_and_puts, thief_a, thief_of_thief}, each_once},
    {"ring: a thief is robbed, then robs", fill_a, {dry_thief, thief_of_thief}, each_once},
    {"ring: never empty, thief finds", fill_one, {owner_keeps_one, thief_must_find}, each_once},
    {"ring: never empty, probe", fill_one, {owner_keeps_one, prober}, each_once},
    {"ring: never empty, length", fill_one, {owner_keeps_one, measurer}, each_once},
    {"ring: never empty, spill", fill_one, {owner_keeps_one_by_spilling, prober}, each_once},
    {"ring: never empty, array", fill_one, {owner_keeps_one_by_moving, prober}, each_once},
    {"next: owner and two thieves", fill_none, {owner_sets_next_and_takes, next_thief, next_thief}, each_once},
    {"next: probe during a kick", fill_next, {owner_kicks_and_takes, prober}, each_once},
    {"next: probe during two kicks", fill_next, {owner_kicks_and_takes_again, prober}, each_once},
    {"next: probe, ring runs dry", fill_one, {owner_kicks_and_gets, prober}, each_once},
    {"alone: never empty, probe", fill_one_alone, {owner_keeps_one, prober}, each_once},
    {"alone: never empty, length", fill_one_alone, {owner_keeps_one, measurer}, each_once},
    {"alone: never empty, in turn, probe", fill_one_alone, {owner_keeps_one_in_turn, prober}, each_once},
    {"alone: never empty, in turn, length", fill_one_alone, {owner_keeps_one_in_turn, measurer}, each_once},
    {"alone: probe during a kick", fill_next_alone, {owner_kicks_and_takes, prober}, each_once},
    {"alone: probe during two kicks", fill_next_alone, {owner_kicks_and_takes_again, prober}, each_once},
    {"alone: probe, ring runs dry", fill_one_alone, {owner_kicks_and_gets, prober}, each_once},
    {"alone: company", fill_one_alone, {owner_admits_company, thief_as_company, next_thief_as_company}, each_once},
    {"next: ring thief and next thief", fill_next, {owner_kicks_and_takes_again, thief_a, next_thief}, each_once},
};

int main(int argc, char **argv) { return model_main(argc, argv, cases, ARRAY_LEN(cases)); }
