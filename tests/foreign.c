/* SPDX-License-Identifier: MIT */
/* foreign.c: libraries that know nothing of goroutines, unmodified, in hundreds of goroutines at once, while a ticker keeps its
 * time: qsort, getaddrinfo, and where they are installed zlib, SQLite and OpenSSL. (libpq: foreign_pq.c) */
#include "test.h"

#include <magpie.h>
#include <netdb.h>
#include <sys/socket.h>
#include <unistd.h>

static int over;
static long ticks;
static int64_t worst;

static void ticker(void *wg)
{
    ticks = 0;
    worst = 0;
    for (mag_time next = mag_now(); !__atomic_load_n(&over, __ATOMIC_ACQUIRE); ticks++) {
        next += MAG_MS;
        T_EQ(mag_sleep_until(next), 0);
        int64_t late = mag_now() - next;
        worst = late > worst ? late : worst;
        next = late > MAG_MS ? mag_now() : next;
    }
    mag_wg_done(wg);
}

struct job {
    void (*run)(long i);
    long n;
};

static mag_wg jobs;

struct one {
    void (*run)(long i);
    long i;
};

static void runs(void *arg)
{
    struct one *o = arg;
    o->run(o->i);
    mag_wg_done(&jobs);
}

static void all(void *arg)
{
    struct job *j = arg;
    mag_wg tick = {0};
    __atomic_store_n(&over, 0, __ATOMIC_RELEASE);
    mag_wg_add(&tick, 1);
    T_EQ(mag_go(ticker, &tick), 0);
    T_EQ(mag_sleep(2 * MAG_MS), 0);
    mag_time start = mag_now();
    mag_wg_add(&jobs, (int)j->n);
    for (long i = 0; i < j->n; i++)
        T_EQ(MAG_GO(runs, struct one, j->run, i), 0);
    T_EQ(mag_wg_wait(&jobs, MAG_FOREVER), 0);
    int64_t took = mag_now() - start;
    __atomic_store_n(&over, 1, __ATOMIC_RELEASE);
    T_EQ(mag_wg_wait(&tick, MAG_FOREVER), 0);
    printf("%ld ticks in %lld ms, worst %.1f ms late  ", ticks, (long long)(took / MAG_MS), (double)worst / 1e6);
    T_GE(ticks, took / MAG_MS / 50 / (4 * t_state.slow - 3)); /* it went on all the time, though the machine may be busy elsewhere */
}

static void with(void (*run)(long i), long n)
{
    struct job j = {run, n};
    for (int procs = 1; procs <= 2; procs++)
        T_EQ(mag_run_with(&(mag_config){.procs = procs}, all, &j), 0);
}

/* ---- libc ---- */

static int by_size(const void *a, const void *b)
{
    uint32_t x = *(const uint32_t *)a, y = *(const uint32_t *)b;
    return x < y ? -1 : x > y;
}

static void sorts(long i)
{
    enum { N = 50000 };
    uint32_t *v = malloc(N * sizeof *v);
    uint64_t random = (uint64_t)i;
    for (int k = 0; k < N; k++)
        v[k] = t_random_r(&random);
    qsort(v, N, sizeof *v, by_size);
    for (int k = 1; k < N; k++)
        T_LE(v[k - 1], v[k]);
    free(v);
}

static void resolves(long i)
{
    struct addrinfo hints = {.ai_socktype = SOCK_STREAM}, *a = NULL;
    char port[24];
    snprintf(port, sizeof port, "%ld", 1000 + i);
    T_EQ(getaddrinfo("127.0.0.1", port, &hints, &a), 0);
    T_TRUE(a != NULL);
    freeaddrinfo(a);
    if (getaddrinfo("localhost", port, &hints, &a) == 0)
        freeaddrinfo(a);
}

static void qsort_sorts(void) { with(sorts, t_scale(200)); }
static void getaddrinfo_resolves(void) { with(resolves, t_scale(300)); }

/* ---- zlib ---- */

#ifdef HAVE_ZLIB
#include <zlib.h>

static void squeezes(long i)
{
    enum { N = 200000 };
    Bytef *plain = malloc(N), *back = malloc(N);
    uLongf room = compressBound(N), size = room, again = N;
    Bytef *small = malloc(room);
    uint64_t random = (uint64_t)i;
    for (int k = 0; k < N; k++)
        plain[k] = (Bytef)(t_random_r(&random) % 16);
    T_EQ(compress2(small, &size, plain, N, 9), Z_OK);
    T_LT(size, N);
    T_EQ(uncompress(back, &again, small, size), Z_OK);
    T_EQ(again, N);
    T_EQ(memcmp(plain, back, N), 0);
    free(plain);
    free(back);
    free(small);
}

static void zlib_squeezes(void) { with(squeezes, t_scale(100)); }
#endif

/* ---- SQLite: one file, a connection for each goroutine ---- */

#ifdef HAVE_SQLITE
#include <sqlite3.h>

static char database[64];

static void execute(sqlite3 *db, const char *sql)
{
    char *error = NULL;
    int r = sqlite3_exec(db, sql, NULL, NULL, &error);
    if (r != SQLITE_OK)
        printf("%s: %s\n", sql, error);
    T_EQ(r, SQLITE_OK);
}

static int first_column(void *to, int n, char **values, char **names)
{
    (void)n, (void)names;
    *(long *)to = atol(values[0]);
    return 0;
}

static void inserts(long i)
{
    sqlite3 *db = NULL;
    T_EQ(sqlite3_open(database, &db), SQLITE_OK);
    sqlite3_busy_timeout(db, 60000);
    char sql[128];
    for (int k = 0; k < 5; k++) {
        snprintf(sql, sizeof sql, "INSERT INTO t VALUES (%ld)", i);
        execute(db, sql);
        if (k % 2)
            mag_yield();
    }
    T_EQ(sqlite3_close(db), SQLITE_OK);
}

static void sqlite_stores(void)
{
    long n = t_scale(40), rows = 0;
    snprintf(database, sizeof database, "/tmp/magpie-foreign-%d.db", (int)getpid());
    unlink(database);
    sqlite3 *db = NULL;
    T_EQ(sqlite3_open(database, &db), SQLITE_OK);
    execute(db, "PRAGMA journal_mode = WAL");
    execute(db, "CREATE TABLE t (n INTEGER)");
    with(inserts, n);
    T_EQ(sqlite3_exec(db, "SELECT count(*) FROM t", first_column, &rows, NULL), SQLITE_OK);
    T_EQ(rows, 2 * 5 * n); /* on one proc and on two */
    T_EQ(sqlite3_close(db), SQLITE_OK);
    unlink(database);
}
#endif

/* ---- OpenSSL: both ends of a handshake over blocking sockets, each in a goroutine ---- */

#ifdef HAVE_OPENSSL
#include <openssl/ssl.h>
#include <openssl/x509.h>

static SSL_CTX *server_ctx, *client_ctx;

static void make_certificate(SSL_CTX *ctx)
{
    EVP_PKEY *key = EVP_EC_gen("P-256");
    X509 *cert = X509_new();
    T_TRUE(key != NULL && cert != NULL);
    ASN1_INTEGER_set(X509_get_serialNumber(cert), 1);
    X509_gmtime_adj(X509_getm_notBefore(cert), 0);
    X509_gmtime_adj(X509_getm_notAfter(cert), 86400);
    X509_set_pubkey(cert, key);
    X509_NAME_add_entry_by_txt(X509_get_subject_name(cert), "CN", MBSTRING_ASC, (const unsigned char *)"magpie", -1, -1, 0);
    X509_set_issuer_name(cert, X509_get_subject_name(cert));
    T_GT(X509_sign(cert, key, EVP_sha256()), 0);
    T_EQ(SSL_CTX_use_certificate(ctx, cert), 1);
    T_EQ(SSL_CTX_use_PrivateKey(ctx, key), 1);
    X509_free(cert);
    EVP_PKEY_free(key);
}

struct end {
    int fd;
    mag_wg *wg;
};

static void serves(void *arg)
{
    struct end *e = arg;
    SSL *s = SSL_new(server_ctx);
    char text[16] = "";
    T_EQ(SSL_set_fd(s, e->fd), 1);
    T_EQ(SSL_accept(s), 1);
    T_EQ(SSL_read(s, text, sizeof text), 4);
    T_EQ(SSL_write(s, text, 4), 4);
    SSL_shutdown(s);
    SSL_free(s);
    close(e->fd);
    mag_wg_done(e->wg);
}

static void shakes_hands(long i)
{
    (void)i;
    int fd[2];
    mag_wg wg = {0};
    char text[16] = "";
    T_EQ(socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, fd), 0);
    mag_wg_add(&wg, 1);
    T_EQ(MAG_GO(serves, struct end, fd[0], &wg), 0);
    SSL *s = SSL_new(client_ctx);
    T_EQ(SSL_set_fd(s, fd[1]), 1);
    T_EQ(SSL_connect(s), 1);
    T_EQ(SSL_write(s, "ping", 4), 4);
    T_EQ(SSL_read(s, text, sizeof text), 4);
    T_EQ(memcmp(text, "ping", 4), 0);
    SSL_shutdown(s);
    SSL_free(s);
    close(fd[1]);
    T_EQ(mag_wg_wait(&wg, MAG_FOREVER), 0);
}

static void openssl_shakes_hands(void)
{
    signal(SIGPIPE, SIG_IGN);
    server_ctx = SSL_CTX_new(TLS_server_method());
    client_ctx = SSL_CTX_new(TLS_client_method());
    make_certificate(server_ctx);
    with(shakes_hands, t_scale(100));
    SSL_CTX_free(server_ctx);
    SSL_CTX_free(client_ctx);
}
#endif

int main(int argc, char **argv)
{
    t_init(argc, argv);
    T_RUN(qsort_sorts);
    T_RUN(getaddrinfo_resolves);
#ifdef HAVE_ZLIB
    T_RUN(zlib_squeezes);
#endif
#ifdef HAVE_SQLITE
    T_RUN(sqlite_stores);
#endif
#ifdef HAVE_OPENSSL
    T_RUN(openssl_shakes_hands);
#endif
    return t_done();
}
