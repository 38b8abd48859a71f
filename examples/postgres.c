/* SPDX-License-Identifier: MIT */
/* postgres: 200 goroutines that query through plain libpq, on two procs: blocking code, line by line, and a library that knows
 * nothing of goroutines. The server is the one of PGHOST, PGUSER and so on; without one: tools/with-postgres PROGRAM */
#include <libpq-fe.h>
#include <magpie.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { GOROUTINES = 200, QUERIES = 10 };

static mag_wg wg;
static mag_sem connections; /* a server has a limit too */
static long answers, failures;

static void client(void *arg)
{
    int n = *(int *)arg;
    mag_sem_wait(&connections, MAG_FOREVER);
    PGconn *c = PQconnectdb("connect_timeout=10");
    for (int i = 0; i < QUERIES && PQstatus(c) == CONNECTION_OK; i++) {
        char sql[80];
        snprintf(sql, sizeof sql, "SELECT %d * %d FROM pg_sleep(0.005)", n, i);
        PGresult *r = PQexec(c, sql);
        if (PQresultStatus(r) == PGRES_TUPLES_OK && atoi(PQgetvalue(r, 0, 0)) == n * i)
            __atomic_add_fetch(&answers, 1, __ATOMIC_RELAXED);
        PQclear(r);
    }
    if (PQstatus(c) != CONNECTION_OK && __atomic_fetch_add(&failures, 1, __ATOMIC_RELAXED) == 0)
        fprintf(stderr, "postgres: %s", PQerrorMessage(c));
    PQfinish(c);
    mag_sem_post(&connections, 1);
    mag_wg_done(&wg);
}

static void app(void *arg)
{
    (void)arg;
    mag_time start = mag_now();
    mag_sem_init(&connections, 80);
    mag_wg_add(&wg, GOROUTINES);
    for (int i = 0; i < GOROUTINES; i++)
        MAG_GO(client, int, i);
    mag_wg_wait(&wg, MAG_FOREVER);
    double ms = (double)(mag_now() - start) / 1e6;
    mag_stats s;
    mag_stats_read(&s, NULL, 0);
    printf("%ld of %d answers in %.0f ms (one after the other the queries alone would sleep %d ms); %llu retakes, %llu threads\n",
           answers, GOROUTINES * QUERIES, ms, GOROUTINES * QUERIES * 5, (unsigned long long)s.retakes_blocked,
           (unsigned long long)s.threads);
}

int main(void)
{
    int r = mag_run_with(&(mag_config){.procs = 2}, app, NULL);
    return r == 0 && answers == GOROUTINES * QUERIES ? 0 : 1;
}
