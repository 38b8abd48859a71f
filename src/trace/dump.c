/* SPDX-License-Identifier: MIT */
/* dump.c: mag_dump: every goroutine in a line. Walks the descriptors while the program runs; a goroutine that changes
 * meanwhile may show its old state or its new one. */
#include "trace/dump.h"
#include "trace/out.h"

static const char *const state_name[] = {
    [G_FREE] = "ended", [G_RUNNABLE] = "runnable", [G_RUNNING] = "running", [G_WAITING] = "waiting"};

void mag__dump_g(struct out *o, const struct g *g, int64_t now)
{
    uint32_t word = at_32_load_rlx(&g->state);
    enum g_state state = word & 0xff;
    uint32_t why = word >> 8 & 0xff;
    char name[G_NAME];
    mag__g_get_name(g, name);
    mag__out_print(o, "goroutine %llu", (unsigned long long)at_64_load_rlx(&g->id));
    if (name[0] != 0)
        mag__out_print(o, " \"%s\"", name);
    mag__out_print(o, " [%s", state == G_WAITING ? mag__g_reason_name[why < WAIT_MAX ? why : 0] : state_name[state & 3]);
    if (state == G_WAITING) {
        int64_t since = (int64_t)at_64_load_rlx(&g->since);
        bool still = at_32_load_rlx(&g->state) == word; /* otherwise that may be something else already */
        mag__out_print(o, ", ");
        mag__out_duration(o, still && now > since ? now - since : 0);
    }
    mag__out_print(o, "] in ");
    mag__out_place(o, at_ptr_load_rlx(&g->fn));
    mag__out_print(o, ", created at ");
    mag__out_place(o, at_ptr_load_rlx(&g->created));
    mag__out_print(o, "\n");
}

struct dump {
    struct out out;
    int64_t now;
};

static void dump_one(struct g *g, void *arg)
{
    struct dump *d = arg;
    mag__dump_g(&d->out, g, d->now);
}

int mag__dump_all(int fd)
{
    struct dump d;
    mag__out_init(&d.out, fd);
    d.now = mag__os_now();
    mag__g_each(&mag__rt.arena->gs, dump_one, &d);
    return mag__out_flush(&d.out);
}

int mag_dump(int fd)
{
    int r = mag__foreign_enter();
    if (r != 0)
        return r;
    r = mag__dump_all(fd);
    mag__foreign_leave();
    return r;
}
