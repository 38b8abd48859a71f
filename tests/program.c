/* SPDX-License-Identifier: MIT */
/* program.c: long random programs of channel, select and group operations. One goroutine alone is compared with a model,
 * operation by operation; many together must conserve what they pass around, whatever is cancelled, closed or late. */
#include "test.h"

#include <magpie.h>

static const int procs[] = {1, 2, 4, 16};
enum { PROCS = sizeof procs / sizeof *procs };

static void on(int n, mag_fn fn, void *arg) { T_EQ(mag_run_with(&(mag_config){.procs = n}, fn, arg), 0); }

/* ---- one goroutine against a model ---- */

enum { CHANS = 5, MOST = 8 };

struct model { /* of a channel that nobody waits on */
    mag_chan *c;
    long value[MOST];
    size_t n, cap;
    bool closed;
};

static int model_send(struct model *m, long v)
{
    if (m->closed)
        return -EPIPE;
    if (m->n == m->cap)
        return -ETIMEDOUT;
    m->value[m->n++] = v;
    return 0;
}

static int model_recv(struct model *m, long *v)
{
    if (m->n == 0)
        return m->closed ? -EPIPE : -ETIMEDOUT;
    *v = m->value[0];
    memmove(m->value, m->value + 1, --m->n * sizeof *m->value);
    return 0;
}

static bool model_can(const struct model *m, int kind)
{
    return m->closed || (kind == MAG_CASE_SEND ? m->n < m->cap : m->n > 0);
}

static void renew(struct model *m)
{
    if (m->c != NULL) {
        T_EQ(mag_chan_len(m->c), m->n);
        mag_chan_unref(m->c);
    }
    m->cap = t_random() % (MOST + 1);
    m->c = mag_chan_new(sizeof(long), m->cap);
    m->n = 0;
    m->closed = false;
}

static void select_some(struct model *m, long x)
{
    mag_case cases[12];
    struct model *of[12];
    long v[12], expect = 0;
    size_t n = t_random() % 13;
    bool any = false;
    for (size_t i = 0; i < n; i++) {
        of[i] = &m[t_random() % CHANS];
        mag_chan *c = t_random() % 8 ? of[i]->c : NULL;
        v[i] = -1;
        cases[i] = t_random() % 2 ? MAG_SEND(c, &x) : MAG_RECV(c, &v[i]);
        any |= c != NULL && model_can(of[i], cases[i].kind);
    }
    int r = mag_select(cases, n, any && t_random() % 2 ? MAG_FOREVER : MAG_TRY);
    T_EQ(r >= 0, any);
    for (int i = 0; i < (int)n; i++)
        if (i != r)
            T_EQ(v[i], -1);
    if (r < 0) {
        T_EQ(r, -ETIMEDOUT);
        return;
    }
    T_TRUE(cases[r].chan != NULL);
    T_TRUE(model_can(of[r], cases[r].kind));
    T_EQ(cases[r].result, cases[r].kind == MAG_CASE_SEND ? model_send(of[r], x) : model_recv(of[r], &expect));
    if (cases[r].kind == MAG_CASE_RECV && cases[r].result == 0)
        T_EQ(v[r], expect);
}

static void follows_the_model(void *arg)
{
    (void)arg;
    struct model m[CHANS];
    memset(m, 0, sizeof m);
    for (int i = 0; i < CHANS; i++)
        renew(&m[i]);
    for (long step = 0; step < t_scale(200000); step++) {
        struct model *x = &m[t_random() % CHANS];
        long v = -1, expect = -1;
        uint32_t what = t_random() % 100;
        if (what < 35) {
            T_EQ(mag_chan_send(x->c, &step, MAG_TRY), model_send(x, step));
        } else if (what < 65) {
            T_EQ(mag_chan_recv(x->c, &v, MAG_TRY), model_recv(x, &expect));
            T_EQ(v, expect);
        } else if (what < 96) {
            select_some(m, step);
        } else if (what < 98) {
            T_EQ(mag_chan_close(x->c), x->closed ? -EPIPE : 0);
            x->closed = true;
        } else {
            renew(x);
        }
        T_EQ(mag_chan_len(x->c), x->n);
    }
    for (int i = 0; i < CHANS; i++)
        mag_chan_unref(m[i].c);
}

static void alone_as_the_model_says(void)
{
    follows_the_model(NULL);
    on(1, follows_the_model, NULL);
}

/* ---- many together ---- */

/* Tokens: each has a number. A worker owns those it holds; sending gives one away, receiving takes one, and in the end every
 * token is in one place. */
enum { TOKENS = 64, WORKERS = 12, PIPES = 6, HELD = TOKENS };

struct world {
    mag_chan *pipe[PIPES];
    mag_chan *home; /* room for all: who is cancelled brings his there */
    mag_mutex mutex;
    mag_sem sem;
    uint64_t seed;
    long ops;
    long happened, cancelled, late, depth;
};

struct worker {
    struct world *w;
    uint64_t random;
    int held[HELD];
    int n;
    int depth;
    mag_group *group;
};

static void count(long *n) { __atomic_add_fetch(n, 1, __ATOMIC_RELAXED); }

static mag_time some_deadline(struct worker *k)
{
    uint32_t r = t_random_r(&k->random);
    return r % 4 == 0 ? MAG_TRY : mag_in((int64_t)(r >> 8) % (r % 4 == 1 ? 200000 : 8000));
}

static void took(struct worker *k, int token)
{
    T_TRUE(token >= 0 && token < TOKENS);
    T_LT(k->n, HELD);
    k->held[k->n++] = token;
}

/* False: cancelled. */
static bool outcome(struct worker *k, int r)
{
    T_TRUE(r >= 0 || r == -ETIMEDOUT || r == -ECANCELED);
    count(r >= 0 ? &k->w->happened : r == -ETIMEDOUT ? &k->w->late : &k->w->cancelled);
    return r != -ECANCELED;
}

static bool sends(struct worker *k)
{
    if (k->n == 0)
        return true;
    int token = k->held[k->n - 1];
    int r = mag_chan_send(k->w->pipe[t_random_r(&k->random) % PIPES], &token, some_deadline(k));
    k->n -= r == 0;
    return outcome(k, r);
}

static bool receives(struct worker *k)
{
    int token = -1, r = mag_chan_recv(k->w->pipe[t_random_r(&k->random) % PIPES], &token, some_deadline(k));
    if (r == 0)
        took(k, token);
    else
        T_EQ(token, -1);
    return outcome(k, r);
}

static bool chooses(struct worker *k)
{
    mag_case cases[10];
    int in[10], out = k->n != 0 ? k->held[k->n - 1] : -1;
    size_t n = t_random_r(&k->random) % 11;
    for (size_t i = 0; i < n; i++) {
        mag_chan *c = k->w->pipe[t_random_r(&k->random) % PIPES];
        in[i] = -1;
        cases[i] = k->n != 0 && t_random_r(&k->random) % 2 ? MAG_SEND(c, &out) : MAG_RECV(c, &in[i]);
    }
    int r = mag_select(cases, n, some_deadline(k));
    for (int i = 0; i < (int)n; i++)
        if (i != r)
            T_EQ(in[i], -1);
    if (r >= 0) {
        T_EQ(cases[r].result, 0);
        if (cases[r].kind == MAG_CASE_SEND)
            k->n--;
        else
            took(k, in[r]);
    }
    return outcome(k, r);
}

static void works(void *arg);

/* A group inside, with some of the tokens, ended in one of the many ways. */
static bool delegates(struct worker *k)
{
    mag_group inner = {0};
    uint32_t how = t_random_r(&k->random);
    if (k->depth >= 3)
        return true;
    for (uint32_t i = 0; i < 1 + how % 3; i++) {
        struct worker child = {.w = k->w, .random = t_random_r(&k->random), .depth = k->depth + 1, .group = &inner};
        if (k->n != 0)
            child.held[child.n++] = k->held[--k->n];
        int r = mag_group_go_copy(&inner, works, &child, sizeof child);
        if (r != 0 && child.n != 0)
            k->held[k->n++] = child.held[0]; /* it never ran */
        T_TRUE(r == 0 || r == -ECANCELED);
    }
    if (how & 64)
        mag_group_set_deadline(&inner, mag_in((int64_t)(how >> 8) % 100000));
    if (how & 128)
        mag_group_cancel(&inner);
    int r = how & 256 ? mag_group_wait(&inner, how & 512 ? MAG_FOREVER : mag_in((int64_t)(how >> 8) % 100000)) : 0;
    bool go_on = mag_cancelled() == 0;
    T_TRUE(r <= 0);
    r = mag_group_end(&inner);
    T_TRUE(r == 0 || r == -ECANCELED || r == -ETIMEDOUT || r == -EIO);
    return go_on;
}

static bool locks(struct worker *k)
{
    int r = mag_sem_wait(&k->w->sem, some_deadline(k));
    mag_mutex_lock(&k->w->mutex);
    k->w->depth++;
    mag_mutex_unlock(&k->w->mutex);
    if (r == 0)
        mag_sem_post(&k->w->sem, 1);
    return outcome(k, r);
}

static void works(void *arg)
{
    struct worker *k = arg;
    long ops = k->depth == 0 ? k->w->ops : 10;
    bool go_on = true;
    for (long i = 0; i < ops && go_on; i++) {
        uint32_t what = t_random_r(&k->random) % 100;
        if (what < 28)
            go_on = sends(k);
        else if (what < 56)
            go_on = receives(k);
        else if (what < 84)
            go_on = chooses(k);
        else if (what < 90)
            go_on = locks(k);
        else if (what < 94)
            go_on = delegates(k);
        else if (what < 96)
            go_on = outcome(k, mag_sleep((int64_t)(t_random_r(&k->random) % 3000)));
        else if (what < 97 && k->depth > 1)
            mag_fail(-EIO);
        else
            mag_yield();
    }
    mag_shield_begin();
    while (k->n > 0) /* cancelled or not, it brings everything home */
        T_EQ(mag_chan_send(k->w->home, &k->held[--k->n], MAG_FOREVER), 0);
    mag_shield_end();
}

static void world(void *arg)
{
    struct world w = {.seed = *(uint64_t *)arg, .ops = t_scale(1500)};
    uint64_t random = w.seed;
    for (int i = 0; i < PIPES; i++)
        w.pipe[i] = mag_chan_new(sizeof(int), i < 2 ? 0 : t_random_r(&random) % 9);
    w.home = mag_chan_new(sizeof(int), TOKENS);
    mag_sem_init(&w.sem, 2);
    mag_group g = {0};
    int next = 0;
    for (int i = 0; i < WORKERS; i++) {
        struct worker k = {.w = &w, .random = random + (uint64_t)i, .group = &g};
        for (int t = 0; t < TOKENS / WORKERS; t++)
            k.held[k.n++] = next++;
        T_EQ(mag_group_go_copy(&g, works, &k, sizeof k), 0);
    }
    if (w.seed % 2) {
        mag_group_set_deadline(&g, mag_in((int64_t)(t_random_r(&random) % 50) * MAG_MS));
        int r = mag_group_wait(&g, MAG_FOREVER);
        T_TRUE(r == 0 || r == -ETIMEDOUT);
    } else {
        T_EQ(mag_group_wait(&g, MAG_FOREVER), 0);
    }
    mag_group_end(&g);
    bool seen[TOKENS] = {false};
    int token, found = 0;
    for (int i = 0; i <= PIPES; i++) {
        mag_chan *c = i < PIPES ? w.pipe[i] : w.home;
        T_LE(mag_chan_len(c), mag_chan_cap(c));
        while (mag_chan_recv(c, &token, MAG_TRY) == 0) {
            T_TRUE(token >= 0 && token < next);
            T_FALSE(seen[token]); /* not twice */
            seen[token] = true;
            found++;
        }
        mag_chan_unref(c); /* nobody is left in its queues */
    }
    T_EQ(found, next); /* and none lost */
    for (int i = 0; i < 2; i++)
        T_EQ(mag_sem_wait(&w.sem, MAG_TRY), 0);
    T_EQ(mag_sem_wait(&w.sem, MAG_TRY), -ETIMEDOUT);
    T_EQ(mag_mutex_trylock(&w.mutex), 0);
    if (w.seed % 2 == 0) /* a deadline may have come before anything else */
        T_GT(w.happened, 0);
}

static void together_nothing_is_lost(void)
{
    for (int i = 0; i < PROCS; i++)
        for (int round = 0; round < 4; round++) {
            uint64_t seed = (uint64_t)t_random() << 8 | (unsigned)round;
            on(procs[i], world, &seed);
        }
}

int main(int argc, char **argv)
{
    t_init(argc, argv);
    T_RUN(alone_as_the_model_says);
    T_RUN(together_nothing_is_lost);
    return t_done();
}
