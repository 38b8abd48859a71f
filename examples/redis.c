/* SPDX-License-Identifier: MIT */
/* redis: a key-value server that speaks RESP2, the protocol of redis-cli and redis-benchmark, on every core.
 *
 *   pipelining   a read brings all commands that have come, they run where they lie in the buffer, and one write takes all replies
 *   sharing      SHARDS hash tables, each with a mutex of its own, held for the time of a lookup and a copy. It is magpie's: who has to
 *                wait for it leaves the thread to others
 *   expiry       who meets a key that is past its time removes it; a goroutine looks for those that nobody asks for, and sleeps
 *                while there is no key with a time
 *   limits       of a command and of what a client may leave unread: such a client is told, or given up
 *
 * Usage: redis [address]      127.0.0.1:7379 if none is given; port 0 is any free one. SIGINT or SIGTERM ends it.
 *   GET SET MGET MSET DEL EXISTS INCR DECR INCRBY DECRBY EXPIRE PEXPIRE TTL PTTL PERSIST DBSIZE FLUSHALL PING ECHO QUIT */
#include <magpie.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <signal.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>
#include <sys/random.h>
#include <sys/socket.h>

enum { SHARDS = 256, ARGS = 1024, BUFFER = 16 * 1024, FLUSH_AT = 64 * 1024, MAX_BULK = 64 * 1024 * 1024 };
#define PATIENCE (30 * MAG_S) /* with a client that does not read */

struct entry {
    struct entry *next;
    uint64_t hash;
    mag_time expires; /* 0: never */
    uint32_t key_length, length, room;
    char bytes[]; /* the key, then the value */
};

struct shard {
    mag_mutex lock; /* guards the rest */
    struct entry **slots;
    size_t mask, count; /* slots - 1; entries */
} __attribute__((aligned(64)));

struct bytes {
    const char *at;
    size_t n;
};

struct client {
    int fd;
    bool last; /* nothing after these replies */
    mag_time now;
    char *in, *out;
    size_t in_room, begin, end; /* [begin, end) has not been run */
    size_t out_room, out_length;
    size_t wants; /* bytes that the command at hand needs altogether, as far as is known */
    int argc;
    struct bytes argv[ARGS];
};

static mag_group group; /* who accepts, who sweeps, and every client */
static struct shard shards[SHARDS];
static uint64_t seed;
static int with_time; /* entries that expire */
static mag_sem some_expire;

/* ---- the table ---- */

static uint64_t mix(uint64_t a, uint64_t b)
{
    __uint128_t x = (__uint128_t)a * b;
    return (uint64_t)x ^ (uint64_t)(x >> 64);
}

static uint64_t hash_of(struct bytes key)
{
    uint64_t h = seed ^ key.n, word = 0;
    for (; key.n >= 8; key.at += 8, key.n -= 8) {
        memcpy(&word, key.at, 8);
        h = mix(h ^ word, 0x9e3779b97f4a7c15);
    }
    word = 0;
    memcpy(&word, key.at, key.n);
    return mix(mix(h ^ word, 0x9e3779b97f4a7c15), 0xd6e8feb86659fd93);
}

static struct shard *lock_shard(uint64_t hash)
{
    struct shard *s = &shards[hash >> 56];
    mag_mutex_lock(&s->lock);
    return s;
}

static void count_times(int by)
{
    if (__atomic_fetch_add(&with_time, by, __ATOMIC_RELAXED) == 0 && by > 0)
        mag_sem_post(&some_expire, 1);
}

static void set_time(struct entry *e, mag_time expires)
{
    if ((e->expires == 0) != (expires == 0))
        count_times(expires != 0 ? 1 : -1);
    e->expires = expires;
}

static void remove_at(struct shard *s, struct entry **at)
{
    struct entry *e = *at;
    *at = e->next;
    set_time(e, 0);
    free(e);
    s->count--;
}

/* Where the entry is, or NULL. */
static struct entry **find(struct shard *s, uint64_t hash, struct bytes key, mag_time now)
{
    if (s->slots == NULL)
        return NULL;
    for (struct entry **at = &s->slots[hash & s->mask], *e; (e = *at) != NULL; at = &e->next) {
        if (e->hash != hash || e->key_length != key.n || memcmp(e->bytes, key.at, key.n) != 0)
            continue;
        if (e->expires == 0 || e->expires > now)
            return at;
        remove_at(s, at);
        return NULL;
    }
    return NULL;
}

static bool grow(struct shard *s)
{
    size_t n = s->slots == NULL ? 64 : 2 * (s->mask + 1);
    struct entry **slots = calloc(n, sizeof(struct entry *));
    if (slots == NULL)
        return s->slots != NULL; /* longer chains will do */
    for (size_t i = 0; s->slots != NULL && i <= s->mask; i++)
        for (struct entry *e = s->slots[i], *next; e != NULL; e = next) {
            next = e->next;
            e->next = slots[e->hash & (n - 1)];
            slots[e->hash & (n - 1)] = e;
        }
    free(s->slots);
    s->slots = slots;
    s->mask = n - 1;
    return true;
}

/* Sets the value, in place if it has room. False: no memory. */
static bool store(struct shard *s, struct entry **at, uint64_t hash, struct bytes key, struct bytes value,
                  mag_time expires)
{
    struct entry *e = at != NULL ? *at : NULL;
    if (e == NULL && (s->slots == NULL || 2 * s->count > s->mask) && !grow(s))
        return false;
    if (e == NULL || e->room < value.n) {
        size_t room = (value.n + 15) & ~(size_t)15;
        struct entry *bigger = realloc(e, sizeof *e + key.n + room);
        if (bigger == NULL)
            return false;
        if (e == NULL) {
            struct entry **slot = &s->slots[hash & s->mask];
            *bigger = (struct entry){.next = *slot, .hash = hash, .key_length = (uint32_t)key.n};
            memcpy(bigger->bytes, key.at, key.n);
            *slot = bigger;
            s->count++;
        } else {
            *at = bigger;
        }
        e = bigger;
        e->room = (uint32_t)room;
    }
    memcpy(e->bytes + key.n, value.at, value.n);
    e->length = (uint32_t)value.n;
    set_time(e, expires);
    return true;
}

/* Some slots at a time, so that nobody waits for long. */
static void sweep(void *arg)
{
    (void)arg;
    for (size_t shard = 0, slot = 0;; mag_sleep(2 * MAG_MS)) {
        while (__atomic_load_n(&with_time, __ATOMIC_RELAXED) == 0)
            if (mag_sem_wait(&some_expire, MAG_FOREVER) != 0)
                return;
        if (mag_cancelled() != 0)
            return;
        struct shard *s = &shards[shard];
        mag_time now = mag_now();
        mag_mutex_lock(&s->lock);
        size_t n = s->slots != NULL ? s->mask + 1 : 0, end = n < slot + 1024 ? n : slot + 1024;
        for (; slot < end; slot++)
            for (struct entry **at = &s->slots[slot]; *at != NULL;)
                if ((*at)->expires != 0 && (*at)->expires <= now)
                    remove_at(s, at);
                else
                    at = &(*at)->next;
        mag_mutex_unlock(&s->lock);
        if (slot >= n) {
            slot = 0;
            shard = (shard + 1) % SHARDS;
        }
    }
}

/* ---- replies ---- */

static void flush(struct client *c)
{
    ssize_t n = (ssize_t)c->out_length;
    if (n > 0 && mag_write_full(c->fd, c->out, c->out_length, mag_in(PATIENCE)) != n)
        c->last = true;
    c->out_length = 0;
}

/* Room for n more bytes, or NULL and the end of the connection. */
static char *room_for(struct client *c, size_t n)
{
    if (c->out_room - c->out_length < n) {
        size_t room = 2 * (c->out_length + n);
        char *out = realloc(c->out, room);
        if (out == NULL) {
            c->last = true;
            return NULL;
        }
        c->out = out;
        c->out_room = room;
    }
    return c->out + c->out_length;
}

static void put(struct client *c, const char *text, size_t n)
{
    char *to = room_for(c, n);
    if (to == NULL)
        return;
    memcpy(to, text, n);
    c->out_length += n;
}

#define PUT(c, literal) put(c, literal "\r\n", sizeof(literal) + 1)

static size_t digits(char *to, int64_t x)
{
    char text[20], *at = text + sizeof text;
    uint64_t u = x < 0 ? 0 - (uint64_t)x : (uint64_t)x;
    do
        *--at = (char)('0' + u % 10);
    while ((u /= 10) != 0);
    if (x < 0)
        *to = '-';
    memcpy(to + (x < 0), at, (size_t)(text + sizeof text - at));
    return (size_t)(text + sizeof text - at) + (x < 0);
}

/* ":5", "$5", "*5": a number, the length of what follows. */
static void put_count(struct client *c, char kind, int64_t x)
{
    char *to = room_for(c, 24), *at = to;
    if (to == NULL)
        return;
    *at++ = kind;
    at += digits(at, x);
    *at++ = '\r';
    *at++ = '\n';
    c->out_length += (size_t)(at - to);
}

static void put_bulk(struct client *c, const char *text, size_t n)
{
    char *to = room_for(c, n + 32), *at = to;
    if (to == NULL)
        return;
    *at++ = '$';
    at += digits(at, (int64_t)n);
    *at++ = '\r';
    *at++ = '\n';
    memcpy(at, text, n);
    at += n;
    *at++ = '\r';
    *at++ = '\n';
    c->out_length += (size_t)(at - to);
}

/* ---- commands: argv[0] is the name ---- */

static bool is(struct bytes b, const char *word) { return b.n == strlen(word) && strncasecmp(b.at, word, b.n) == 0; }

static bool to_number(const char *at, size_t n, int64_t *x)
{
    bool minus = n > 0 && *at == '-';
    uint64_t u = 0;
    if (n == (size_t)minus || n > 20)
        return false;
    for (size_t i = minus; i < n; i++)
        if (at[i] < '0' || at[i] > '9' || __builtin_mul_overflow(u, 10, &u) ||
            __builtin_add_overflow(u, at[i] - '0', &u))
            return false;
    if (u > (uint64_t)INT64_MAX + minus)
        return false;
    *x = (int64_t)(minus ? 0 - u : u);
    return true;
}

static bool number_at(struct client *c, int i, int64_t *x)
{
    if (i < c->argc && to_number(c->argv[i].at, c->argv[i].n, x))
        return true;
    PUT(c, "-ERR value is not an integer or out of range");
    return false;
}

/* A time so many units from now that the server will see; one that has passed: 1. */
static mag_time time_in(struct client *c, int64_t x, int64_t unit)
{
    int64_t ns, t;
    if (__builtin_mul_overflow(x, unit, &ns) || __builtin_add_overflow(c->now, ns, &t))
        return x > 0 ? INT64_MAX : 1;
    return t > 0 ? t : 1;
}

static void get_one(struct client *c, struct bytes key)
{
    uint64_t hash = hash_of(key);
    struct shard *s = lock_shard(hash);
    struct entry **at = find(s, hash, key, c->now);
    if (at != NULL)
        put_bulk(c, (*at)->bytes + key.n, (*at)->length);
    mag_mutex_unlock(&s->lock);
    if (at == NULL)
        PUT(c, "$-1");
}

static void get(struct client *c) { get_one(c, c->argv[1]); }

static void mget(struct client *c)
{
    put_count(c, '*', c->argc - 1);
    for (int i = 1; i < c->argc; i++)
        get_one(c, c->argv[i]);
}

static void set(struct client *c)
{
    bool absent = false, present = false, keep = false;
    mag_time expires = 0;
    for (int i = 3; i < c->argc; i++) {
        bool seconds = is(c->argv[i], "ex");
        int64_t x;
        if (seconds || is(c->argv[i], "px")) {
            if (!number_at(c, ++i, &x))
                return;
            if (x <= 0) {
                PUT(c, "-ERR invalid expire time in 'set' command");
                return;
            }
            expires = time_in(c, x, seconds ? MAG_S : MAG_MS);
        } else if (is(c->argv[i], "nx")) {
            absent = true;
        } else if (is(c->argv[i], "xx")) {
            present = true;
        } else if (is(c->argv[i], "keepttl")) {
            keep = true;
        } else {
            PUT(c, "-ERR syntax error");
            return;
        }
    }
    uint64_t hash = hash_of(c->argv[1]);
    struct shard *s = lock_shard(hash);
    struct entry **at = find(s, hash, c->argv[1], c->now);
    bool wanted = at != NULL ? !absent : !present, done = false;
    if (wanted)
        done = store(s, at, hash, c->argv[1], c->argv[2], keep && at != NULL ? (*at)->expires : expires);
    mag_mutex_unlock(&s->lock);
    if (!wanted)
        PUT(c, "$-1");
    else if (done)
        PUT(c, "+OK");
    else
        PUT(c, "-OOM no memory");
}

static void mset(struct client *c)
{
    bool done = true;
    if (c->argc % 2 == 0) {
        PUT(c, "-ERR wrong number of arguments for 'mset' command");
        return;
    }
    for (int i = 1; i < c->argc && done; i += 2) {
        uint64_t hash = hash_of(c->argv[i]);
        struct shard *s = lock_shard(hash);
        done = store(s, find(s, hash, c->argv[i], c->now), hash, c->argv[i], c->argv[i + 1], 0);
        mag_mutex_unlock(&s->lock);
    }
    if (done)
        PUT(c, "+OK");
    else
        PUT(c, "-OOM no memory");
}

static int count_keys(struct client *c, bool remove)
{
    int n = 0;
    for (int i = 1; i < c->argc; i++) {
        uint64_t hash = hash_of(c->argv[i]);
        struct shard *s = lock_shard(hash);
        struct entry **at = find(s, hash, c->argv[i], c->now);
        n += at != NULL;
        if (at != NULL && remove)
            remove_at(s, at);
        mag_mutex_unlock(&s->lock);
    }
    return n;
}

static void del(struct client *c) { put_count(c, ':', count_keys(c, true)); }
static void exists(struct client *c) { put_count(c, ':', count_keys(c, false)); }

static void add(struct client *c, int64_t by)
{
    struct bytes key = c->argv[1];
    uint64_t hash = hash_of(key);
    struct shard *s = lock_shard(hash);
    struct entry **at = find(s, hash, key, c->now);
    int64_t x = 0;
    char text[24];
    const char *error = NULL;
    if (at != NULL && !to_number((*at)->bytes + key.n, (*at)->length, &x))
        error = "-ERR value is not an integer or out of range\r\n";
    else if (__builtin_add_overflow(x, by, &x))
        error = "-ERR increment or decrement would overflow\r\n";
    else if (!store(s, at, hash, key, (struct bytes){text, digits(text, x)}, at != NULL ? (*at)->expires : 0))
        error = "-OOM no memory\r\n";
    mag_mutex_unlock(&s->lock);
    if (error != NULL)
        put(c, error, strlen(error));
    else
        put_count(c, ':', x);
}

static void incr(struct client *c) { add(c, 1); }
static void decr(struct client *c) { add(c, -1); }

static void incrby(struct client *c)
{
    int64_t x;
    if (number_at(c, 2, &x))
        add(c, x);
}

static void decrby(struct client *c)
{
    int64_t x;
    if (!number_at(c, 2, &x))
        return;
    if (x == INT64_MIN)
        PUT(c, "-ERR decrement would overflow");
    else
        add(c, -x);
}

static void set_expiry(struct client *c, int64_t unit)
{
    int64_t x;
    if (!number_at(c, 2, &x))
        return;
    uint64_t hash = hash_of(c->argv[1]);
    struct shard *s = lock_shard(hash);
    struct entry **at = find(s, hash, c->argv[1], c->now);
    if (at != NULL && x <= 0)
        remove_at(s, at);
    else if (at != NULL)
        set_time(*at, time_in(c, x, unit));
    mag_mutex_unlock(&s->lock);
    put_count(c, ':', at != NULL);
}

static void expire(struct client *c) { set_expiry(c, MAG_S); }
static void pexpire(struct client *c) { set_expiry(c, MAG_MS); }

static void time_left(struct client *c, int64_t unit)
{
    uint64_t hash = hash_of(c->argv[1]);
    struct shard *s = lock_shard(hash);
    struct entry **at = find(s, hash, c->argv[1], c->now);
    int64_t left = at == NULL ? -2 : (*at)->expires == 0 ? -1 : ((*at)->expires - c->now + unit / 2) / unit;
    mag_mutex_unlock(&s->lock);
    put_count(c, ':', left);
}

static void ttl(struct client *c) { time_left(c, MAG_S); }
static void pttl(struct client *c) { time_left(c, MAG_MS); }

static void persist(struct client *c)
{
    uint64_t hash = hash_of(c->argv[1]);
    struct shard *s = lock_shard(hash);
    struct entry **at = find(s, hash, c->argv[1], c->now);
    bool had = at != NULL && (*at)->expires != 0;
    if (had)
        set_time(*at, 0);
    mag_mutex_unlock(&s->lock);
    put_count(c, ':', had);
}

static void dbsize(struct client *c)
{
    int64_t n = 0;
    for (int i = 0; i < SHARDS; i++) {
        mag_mutex_lock(&shards[i].lock);
        n += (int64_t)shards[i].count;
        mag_mutex_unlock(&shards[i].lock);
    }
    put_count(c, ':', n);
}

static void flushall(struct client *c)
{
    for (struct shard *s = shards; s < shards + SHARDS; s++) {
        mag_mutex_lock(&s->lock);
        for (size_t i = 0; s->slots != NULL && i <= s->mask; i++)
            while (s->slots[i] != NULL)
                remove_at(s, &s->slots[i]);
        mag_mutex_unlock(&s->lock);
    }
    PUT(c, "+OK");
}

static void ping(struct client *c)
{
    if (c->argc == 1)
        PUT(c, "+PONG");
    else
        put_bulk(c, c->argv[1].at, c->argv[1].n);
}

static void echo(struct client *c) { put_bulk(c, c->argv[1].at, c->argv[1].n); }
static void ok(struct client *c) { PUT(c, "+OK"); }
static void nothing(struct client *c) { PUT(c, "*0"); }

static void config(struct client *c) /* GET name: what redis-benchmark prints */
{
    if (c->argc != 3 || !is(c->argv[1], "get")) {
        PUT(c, "+OK");
        return;
    }
    PUT(c, "*2");
    put_bulk(c, c->argv[2].at, c->argv[2].n);
    put_bulk(c, "", 0);
}

static void quit(struct client *c)
{
    PUT(c, "+OK");
    c->last = true;
}

static struct command {
    const char *name;
    int least, most; /* arguments, the name included */
    void (*run)(struct client *c);
    uint64_t word; /* the name as one number */
} commands[] = {
    {"GET", 2, 2, get, 0},          {"SET", 3, ARGS, set, 0},         {"INCR", 2, 2, incr, 0},
    {"DEL", 2, ARGS, del, 0},       {"MGET", 2, ARGS, mget, 0},       {"MSET", 3, ARGS, mset, 0},
    {"PING", 1, 2, ping, 0},        {"EXPIRE", 3, 3, expire, 0},      {"TTL", 2, 2, ttl, 0},
    {"EXISTS", 2, ARGS, exists, 0}, {"INCRBY", 3, 3, incrby, 0},      {"DECR", 2, 2, decr, 0},
    {"DECRBY", 3, 3, decrby, 0},    {"PEXPIRE", 3, 3, pexpire, 0},    {"PTTL", 2, 2, pttl, 0},
    {"PERSIST", 2, 2, persist, 0},  {"DBSIZE", 1, 1, dbsize, 0},      {"FLUSHALL", 1, 2, flushall, 0},
    {"FLUSHDB", 1, 2, flushall, 0}, {"ECHO", 2, 2, echo, 0},          {"SELECT", 2, 2, ok, 0},
    {"CLIENT", 2, ARGS, ok, 0},     {"COMMAND", 1, ARGS, nothing, 0}, {"CONFIG", 2, ARGS, config, 0},
    {"QUIT", 1, ARGS, quit, 0},
};

enum { COMMANDS = sizeof commands / sizeof *commands };

static uint64_t word_of(const char *name, size_t n)
{
    uint64_t w = 0;
    if (n > sizeof w)
        return 0;
    memcpy(&w, name, n);
    return w & ~UINT64_C(0x2020202020202020); /* in capitals */
}

static void run(struct client *c)
{
    struct bytes name = c->argv[0];
    uint64_t w = word_of(name.at, name.n);
    for (const struct command *k = commands; k < commands + COMMANDS; k++) {
        if (k->word != w)
            continue;
        if (c->argc >= k->least && c->argc <= k->most) {
            k->run(c);
        } else {
            char text[80];
            put(c, text,
                (size_t)snprintf(text, sizeof text, "-ERR wrong number of arguments for '%s' command\r\n", k->name));
        }
        return;
    }
    char text[80];
    int n = name.n < 32 ? (int)name.n : 32;
    put(c, text, (size_t)snprintf(text, sizeof text, "-ERR unknown command '%.*s'\r\n", n, name.at));
}

/* ---- the protocol ---- */

enum parsed { BROKEN = -1, MORE, WHOLE };

static enum parsed refuse(struct client *c, const char *what)
{
    put(c, what, strlen(what));
    c->last = true;
    return BROKEN;
}

/* The number at *at and the end of its line. */
static enum parsed count_at(const struct client *c, size_t *at, int64_t *x)
{
    const char *p = c->in + *at, *end = c->in + c->end, *first = p;
    int64_t v = 0;
    for (; p < end && *p >= '0' && *p <= '9' && v <= MAX_BULK; p++)
        v = v * 10 + (*p - '0');
    if (end - p < 2 && (p == end || *p == '\r'))
        return MORE;
    if (p == first || end - p < 2 || p[0] != '\r' || p[1] != '\n')
        return BROKEN;
    *x = v;
    *at = (size_t)(p + 2 - c->in);
    return WHOLE;
}

/* A line of words, as one types it. */
static enum parsed parse_line(struct client *c)
{
    const char *p = c->in + c->begin, *end = memchr(p, '\n', c->end - c->begin);
    if (end == NULL)
        return c->end - c->begin < BUFFER / 2 ? MORE : refuse(c, "-ERR Protocol error: too big inline request\r\n");
    c->begin = (size_t)(end + 1 - c->in);
    c->argc = 0;
    while (p < end && c->argc < ARGS) {
        const char *word = p;
        while (p<end && * p> ' ')
            p++;
        if (p > word)
            c->argv[c->argc++] = (struct bytes){word, (size_t)(p - word)};
        else
            p++;
    }
    return WHOLE;
}

/* One command from the buffer into argv, which points into it. */
static enum parsed parse(struct client *c)
{
    int64_t n, length;
    if (c->begin == c->end)
        return MORE;
    if (c->in[c->begin] != '*')
        return parse_line(c);
    size_t at = c->begin + 1;
    enum parsed r = count_at(c, &at, &n);
    if (r == BROKEN || (r == WHOLE && n > ARGS))
        return refuse(c, "-ERR Protocol error: invalid multibulk length\r\n");
    for (int i = 0; r == WHOLE && i < n; i++) {
        if (at == c->end)
            return MORE;
        if (c->in[at++] != '$')
            return refuse(c, "-ERR Protocol error: expected '$'\r\n");
        r = count_at(c, &at, &length);
        if (r == BROKEN || (r == WHOLE && length > MAX_BULK))
            return refuse(c, "-ERR Protocol error: invalid bulk length\r\n");
        if (r == WHOLE && c->end - at < (size_t)length + 2) {
            c->wants = at - c->begin + (size_t)length + 2;
            return c->wants <= MAX_BULK + BUFFER ? MORE : refuse(c, "-ERR Protocol error: command too big\r\n");
        }
        if (r == WHOLE) {
            c->argv[i] = (struct bytes){c->in + at, (size_t)length};
            at += (size_t)length + 2;
        }
    }
    if (r == WHOLE) {
        c->argc = (int)n;
        c->begin = at;
    }
    return r;
}

/* Moves the beginning of a command to the front, and sees to the room for its rest. False: no memory. */
static bool make_room(struct client *c)
{
    size_t rest = c->end - c->begin, wanted = c->wants > BUFFER ? c->wants : rest * 2 > BUFFER ? rest * 2 : BUFFER;
    memmove(c->in, c->in + c->begin, rest);
    c->begin = 0;
    c->end = rest;
    if (wanted <= c->in_room && (c->in_room == BUFFER || wanted > BUFFER))
        return true;
    char *in = realloc(c->in, wanted); /* and back, once a big one is done */
    if (in == NULL)
        return wanted <= c->in_room;
    c->in = in;
    c->in_room = wanted;
    return true;
}

/* Runs what has come and replies. False: that was all. */
static bool serve(struct client *c)
{
    enum parsed r;
    ssize_t n = mag_read(c->fd, c->in + c->end, c->in_room - c->end, MAG_FOREVER);
    if (n <= 0)
        return false;
    c->end += (size_t)n;
    c->now = mag_now();
    c->wants = 0;
    while ((r = parse(c)) == WHOLE && !c->last) {
        if (c->argc > 0)
            run(c);
        if (c->out_length >= FLUSH_AT)
            flush(c);
        mag_checkpoint();
    }
    flush(c);
    return !c->last && make_room(c);
}

static void client(void *arg)
{
    struct client c; /* not zeroed: most of it is argv */
    memset(&c, 0, offsetof(struct client, argv));
    c.fd = *(int *)arg;
    c.in_room = c.out_room = BUFFER;
    c.in = malloc(c.in_room);
    c.out = malloc(c.out_room);
    while (c.in != NULL && c.out != NULL && serve(&c))
        continue;
    free(c.in);
    free(c.out);
    mag_close(c.fd);
}

/* ---- the server ---- */

static void accept_all(void *arg)
{
    int listener = *(int *)arg, fd;
    while ((fd = mag_accept(listener, NULL, NULL, MAG_FOREVER)) != -ECANCELED) {
        if (fd < 0) /* out of descriptors or memory: those who leave give some back */
            mag_sleep(10 * MAG_MS);
        else if (MAG_GROUP_GO(&group, client, int, fd) != 0)
            mag_close(fd);
    }
    mag_close(listener);
}

static int listen_at(const char *address)
{
    int fd = mag_listen(address, 0);
    if (fd < 0) {
        fprintf(stderr, "redis: %s: %s\n", address, strerror(-fd));
        return fd;
    }
    struct sockaddr_in6 at = {0}; /* its port is where IPv4's is */
    getsockname(fd, (struct sockaddr *)&at, &(socklen_t){sizeof at});
    setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &(int){1}, sizeof(int)); /* its connections inherit it */
    printf("redis: port %d\n", ntohs(at.sin6_port));
    fflush(stdout);
    return fd;
}

static int result = 1;

static void app(void *arg)
{
    sigset_t set;
    sigemptyset(&set);
    sigaddset(&set, SIGINT);
    sigaddset(&set, SIGTERM);
    mag_chan *signals = mag_signal_new(&set, 1);
    int fd = listen_at(arg);
    if (fd >= 0 && mag_group_go(&group, sweep, NULL) == 0 && MAG_GROUP_GO(&group, accept_all, int, fd) == 0) {
        mag_chan_recv(signals, NULL, MAG_FOREVER);
        result = 0;
    }
    mag_group_end(&group);
    mag_chan_unref(signals);
}

int main(int argc, char **argv)
{
    for (struct command *k = commands; k < commands + COMMANDS; k++)
        k->word = word_of(k->name, strlen(k->name));
    if (getrandom(&seed, sizeof seed, 0) != sizeof seed) /* nobody can choose keys that fall on one chain */
        return 1;
    int r = mag_run(app, argc > 1 ? argv[1] : "127.0.0.1:7379");
    return r == 0 ? result : 1;
}
