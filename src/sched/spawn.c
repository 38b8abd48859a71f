/* SPDX-License-Identifier: MIT */
/* spawn.c: mag_go and its kin. A goroutine is accepted when its descriptor is; its stack comes with its first run, except
 * that a copy larger than the descriptor holds must have it at once.
 *
 * Foreign     a thread outside the runtime counts itself in rt.foreign while it is inside a call; shutdown waits for that
 *             count.
 * Ordering    FOR1  count up, fence, read state (foreign_enter) <-> write state, fence, read count (shutdown): without
 *                   this a foreign thread could use the runtime while it is being taken apart.
 *             FOR2  state release (start) -> state acquire (foreign_enter): without this a foreign thread could see
 *                   "running" before the Ps and the arena it stands for.
 *             FOR3  count down release (foreign_leave) -> count acquire (shutdown): without this the last use of the
 *                   runtime could come after it was taken apart.
 */
#include "base/panic.h"
#include "sched/sched.h"

#include <errno.h>
#include <string.h>

/* ---- foreign threads ---- */

int mag__foreign_enter(void)
{
    at_32_add_rlx(&mag__rt.foreign, 1);
    at_fence_seq(); /* FOR1 */
    uint32_t state = at_32_load_acq(&mag__rt.state); /* FOR2 */
    if (likely(state == RT_RUNNING))
        return 0;
    mag__foreign_leave();
    return state == RT_STOPPING ? -ESHUTDOWN : -EPERM;
}

void mag__foreign_leave(void) { at_32_add_rel(&mag__rt.foreign, (uint32_t)-1); /* FOR3 */ }

/* ---- filling a descriptor ---- */

static COLD int fill_large_copy(struct g *g, const struct spawn *s, struct p *p)
{
    size_t usable = mag__stack_usable(g->stack_class);
    if (s->copy_size > usable / 4)
        return -E2BIG;
    g->stack = mag__stack_get(&mag__rt.arena->stacks, g->stack_class, p ? &p->stacks : NULL, mag__rt.stack_class);
    if (g->stack == NULL)
        return -ENOMEM;
    /* at the low end, away from the frames; the stack is the goroutine's from the start */
    g->arg = memcpy(g->stack - usable, s->copy, s->copy_size);
    return 0;
}

/* A free descriptor has no stack, no flags and no ext. */
static ALWAYS_INLINE void fill_in(struct g *g, mag_fn fn, void *arg, int stack_class, void *created)
{
    at_ptr_store_rlx(&g->fn, (void *)(uintptr_t)fn);
    g->arg = arg;
    g->stack_class = (uint16_t)stack_class;
    at_ptr_store_rlx(&g->created, created);
}

/* It becomes a free descriptor again. */
static COLD int refused(struct g *g, int error)
{
    if (g->ext != NULL)
        at_ptr_store_rel(&g->ext->g, NULL); /* GRP1: the next one with this descriptor is no member */
    g->flags = 0;
    g->ext = NULL;
    return error;
}

static int fill(struct g *g, const struct spawn *s, struct p *p)
{
    fill_in(g, s->fn, s->arg, s->stack_class == SPAWN_DEFAULT ? mag__rt.stack_class : s->stack_class, s->created);
    g->flags = s->flags;
    if (g->stack_class != mag__rt.stack_class || s->copy_size > G_ARGS || (s->flags & G_MAIN) != 0)
        g->flags |= G_ODD;
    g->ext = s->ext;
    if (s->ext != NULL)
        at_ptr_store_rel(&s->ext->g, g); /* GRP1 */
    if (s->copy_size > G_ARGS) {
        int r = fill_large_copy(g, s, p);
        if (r != 0)
            return refused(g, r);
    } else if (s->copy_size != 0) {
        g->arg = memcpy(g->args, s->copy, s->copy_size);
    }
    if ((s->flags & G_MAIN) != 0) { /* without a stack for main there is no run: better to say so now */
        g->stack = mag__stack_get(&mag__rt.arena->stacks, g->stack_class, NULL, mag__rt.stack_class);
        if (g->stack == NULL)
            return refused(g, -ENOMEM);
    }
    if (s->name != NULL)
        mag__g_set_name(g, s->name);
    return 0;
}

static inline uint64_t next_id(struct p *p)
{
    if (unlikely(p->id == p->id_end)) {
        p->id = at_64_add_rlx(&mag__rt.next_id, ID_BATCH) + 1;
        p->id_end = p->id + ID_BATCH;
    }
    return p->id++;
}

static ALWAYS_INLINE void begin(struct p *p, struct g *g)
{
    at_64_store_rlx(&g->id, next_id(p));
    COUNT_OWNER(&p->count, spawned);
}

static int spawn_with_p(struct m *m, const struct spawn *s)
{
    struct p *p = m->p;
    struct g *g = mag__g_new_owner(&mag__rt.arena->gs, &p->gs);
    if (unlikely(g == NULL))
        return -ENOMEM;
    int r = fill(g, s, p);
    if (unlikely(r != 0))
        mag__g_free_owner(&mag__rt.arena->gs, &p->gs, g);
    else {
        begin(p, g);
        mag__wake_spawned(p, g);
    }
    return r;
}

static COLD int spawn_foreign(const struct spawn *s)
{
    int r = mag__foreign_enter();
    if (r != 0)
        return r;
    struct g *g = mag__g_new_any(&mag__rt.arena->gs);
    if (g == NULL)
        r = -ENOMEM;
    else if ((r = fill(g, s, NULL)) != 0)
        mag__g_free_any(&mag__rt.arena->gs, g);
    else {
        at_64_store_rlx(&g->id, at_64_add_rlx(&mag__rt.next_id, 1) + 1);
        COUNT_ANY(&mag__rt.count, spawned);
        mag__wake_global(g);
    }
    mag__foreign_leave();
    return r;
}

int mag__spawn(const struct spawn *s)
{
    struct m *m = mag__m_self();
    if (likely(m != NULL)) {
        if (unlikely(m_in_rt(m)))
            return -EPERM; /* a signal handler that interrupted the runtime */
        int r;
        if (likely(mag__token_enter(m) != NULL) || mag__p_take_idle(m))
            r = spawn_with_p(m, s);
        else
            r = mag__m_is_dead(m) ? -ESHUTDOWN : spawn_foreign(s);
        mag__token_leave(m);
        return r;
    }
    return spawn_foreign(s);
}

static NOINLINE int spawn_plain(mag_fn fn, void *arg, const void *copy, size_t size, void *created)
{
    struct spawn s = {.fn = fn, .arg = arg, .copy = copy, .copy_size = size, .stack_class = SPAWN_DEFAULT, .created = created};
    return mag__spawn(&s);
}

/* The common case of the above, a goroutine with its P and a descriptor at hand, and nothing laid out in memory for it. Whatever else
 * may happen is another function's, and the last thing done here: so no register has to be saved. */
static NOINLINE int spawn_entered(mag_fn fn, void *arg, const void *copy, size_t size, void *created, struct p *p)
{
    struct m *m = mag__m_self();
    if (token_is_lost(p))
        mag__token_lost(m, (enum lost)(uintptr_t)p);
    mag__token_leave(m);
    return spawn_plain(fn, arg, copy, size, created);
}

static NOINLINE int spawn_behind(struct m *m, struct p *p, struct g *g)
{
    mag__wake_spawned(p, g);
    mag__token_leave(m);
    return 0;
}

static ALWAYS_INLINE int spawn_quick(mag_fn fn, void *arg, const void *copy, size_t size, void *created)
{
    struct m *m = mag__m_self();
    if (unlikely(m == NULL || m_in_rt(m) || size > G_ARGS))
        return spawn_plain(fn, arg, copy, size, created);
    struct p *p = token_try(m);
    struct g *g;
    if (token_is_lost(p) || unlikely((g = mag__g_new_cached(&p->gs)) == NULL))
        return spawn_entered(fn, arg, copy, size, created, p);
    fill_in(g, fn, arg, mag__rt.stack_class, created);
    if (size != 0)
        g->arg = memcpy(g->args, copy, size);
    begin(p, g);
    if (!mag__wake_spawned_quick(p, g))
        return spawn_behind(m, p, g);
    mag__token_leave(m);
    return 0;
}

/* ---- the public calls ---- */

int mag_go(mag_fn fn, void *arg)
{
    if (unlikely(fn == NULL))
        return -EINVAL;
    return spawn_quick(fn, arg, NULL, 0, __builtin_return_address(0));
}

int mag_go_copy(mag_fn fn, const void *arg, size_t size)
{
    if (unlikely(fn == NULL || (arg == NULL && size != 0)))
        return -EINVAL;
    return spawn_quick(fn, NULL, arg, size, __builtin_return_address(0));
}

int mag_go_with(const mag_go_config *cfg, mag_fn fn, void *arg)
{
    static const mag_go_config defaults;
    if (cfg == NULL)
        cfg = &defaults;
    if (fn == NULL || (arg == NULL && cfg->copy != 0))
        return -EINVAL;
    for (size_t i = 0; i < ARRAY_LEN(cfg->reserved); i++)
        if (cfg->reserved[i] != 0)
            return -EINVAL;
    struct spawn s = {.fn = fn,
                      .arg = arg,
                      .name = cfg->name,
                      .stack_class = SPAWN_DEFAULT,
                      .created = __builtin_return_address(0)};
    if (cfg->stack_size != 0 && (s.stack_class = mag__stack_class(cfg->stack_size)) < 0)
        return -EINVAL;
    if (cfg->copy != 0) {
        s.arg = NULL;
        s.copy = arg;
        s.copy_size = cfg->copy;
    }
    if (cfg->group != NULL)
        return mag__rt.group_spawn == NULL ? -EPERM : mag__rt.group_spawn(cfg->group, &s);
    return mag__spawn(&s);
}

/* ---- the goroutine about itself ---- */

uint64_t mag_id(void)
{
    struct m *m = mag__m_self();
    return m == NULL ? 0 : at_64_load_rlx(&m_curg(m)->id);
}

void mag_set_name(const char *name)
{
    struct m *m = mag__m_self();
    if (m == NULL || m_curg(m) == &m->g0)
        mag__panic_misuse("mag_set_name called outside a goroutine");
    mag__g_set_name(m_curg(m), name);
}
