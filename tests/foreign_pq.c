/* SPDX-License-Identifier: MIT */
/* foreign_pq.c: plain libpq against a real PostgreSQL: 200 goroutines, each with its connection, while a ticker keeps its time.
 * The server is started by tools/with-postgres, which sets PGHOST. */
#include "test.h"

#include <libpq-fe.h>
#include <magpie.h>

static int over;
static long ticks, answers;

static void ticker(void *wg)
{
    while (!__atomic_load_n(&over, __ATOMIC_ACQUIRE)) {
        T_EQ(mag_sleep(MAG_MS), 0);
        ticks++;
    }
    mag_wg_done(wg);
}

static void queries(void *arg)
{
    struct {
        mag_wg *wg;
        int i;
    } *a = arg;
    PGconn *c = PQconnectdb("dbname=postgres");
    if (PQstatus(c) != CONNECTION_OK)
        printf("%s\n", PQerrorMessage(c));
    T_EQ(PQstatus(c), CONNECTION_OK);
    for (int k = 0; k < 5; k++) {
        char sql[80], want[16];
        snprintf(sql, sizeof sql, "SELECT %d + %d FROM pg_sleep(0.01)", a->i, k);
        snprintf(want, sizeof want, "%d", a->i + k);
        PGresult *r = PQexec(c, sql);
        T_EQ(PQresultStatus(r), PGRES_TUPLES_OK);
        T_EQ(strcmp(PQgetvalue(r, 0, 0), want), 0);
        PQclear(r);
        __atomic_add_fetch(&answers, 1, __ATOMIC_RELAXED);
    }
    PQfinish(c);
    mag_wg_done(a->wg);
}

static void app(void *arg)
{
    (void)arg;
    mag_wg wg = {0}, tick = {0};
    int n = (int)t_scale(200);
    over = 0;
    answers = ticks = 0;
    mag_wg_add(&tick, 1);
    mag_wg_add(&wg, n);
    T_EQ(mag_go(ticker, &tick), 0);
    mag_time start = mag_now();
    for (int i = 0; i < n; i++) {
        struct {
            mag_wg *wg;
            int i;
        } a = {&wg, i};
        T_EQ(mag_go_copy(queries, &a, sizeof a), 0);
    }
    T_EQ(mag_wg_wait(&wg, MAG_FOREVER), 0);
    long ms = (long)((mag_now() - start) / MAG_MS);
    __atomic_store_n(&over, 1, __ATOMIC_RELEASE);
    T_EQ(mag_wg_wait(&tick, MAG_FOREVER), 0);
    T_EQ(answers, 5 * n);
    printf("%ld answers, %ld ticks in %ld ms  ", answers, ticks, ms);
    T_GE(ticks, ms / 50);
}

static void two_hundred_goroutines_ask_postgres(void)
{
    for (int procs = 1; procs <= 2; procs++)
        T_EQ(mag_run_with(&(mag_config){.procs = procs}, app, NULL), 0);
}

int main(int argc, char **argv)
{
    t_init(argc, argv);
    T_RUN(two_hundred_goroutines_ask_postgres);
    return t_done();
}
