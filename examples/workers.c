/* SPDX-License-Identifier: MIT */
/* workers: a bounded pool of goroutines counts the bytes of a directory tree. The first error cancels everybody else.
 * Usage: workers [directory] */
#include <dirent.h>
#include <magpie.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

enum { WORKERS = 8 };

static mag_chan *jobs;   /* of char *: directories still to be read */
static mag_wg pending;   /* directories found and not done */
static long files, bytes;
static mag_mutex totals; /* guards the two */

static void add_file(long size)
{
    mag_mutex_lock(&totals);
    files++;
    bytes += size;
    mag_mutex_unlock(&totals);
}

static int read_directory(const char *path);

/* A directory for the pool. When the pool is busy and the channel full, the finder reads it itself. */
static int offer(char *path)
{
    mag_wg_add(&pending, 1);
    int r = mag_chan_send(jobs, &path, MAG_TRY);
    if (r == -ETIMEDOUT) {
        r = read_directory(path);
        mag_wg_done(&pending);
        free(path);
    } else if (r != 0) {
        mag_wg_done(&pending);
        free(path);
    }
    return r;
}

static int read_directory(const char *path)
{
    DIR *d = opendir(path);
    if (d == NULL)
        return errno == EACCES ? 0 : -errno; /* what may not be read is left out */
    int r = 0;
    for (struct dirent *e; r == 0 && (e = readdir(d)) != NULL;) {
        struct stat st;
        char *name;
        if (strcmp(e->d_name, ".") == 0 || strcmp(e->d_name, "..") == 0 || asprintf(&name, "%s/%s", path, e->d_name) < 0)
            continue;
        if (lstat(name, &st) == 0 && S_ISDIR(st.st_mode)) {
            r = offer(name);
            continue;
        }
        add_file((long)st.st_size);
        free(name);
    }
    closedir(d);
    return r;
}

static void worker(void *arg)
{
    (void)arg;
    char *path;
    while (mag_chan_recv(jobs, &path, MAG_FOREVER) == 0) {
        int r = read_directory(path);
        free(path);
        mag_wg_done(&pending);
        if (r != 0) {
            mag_fail(r); /* the others are cancelled, main hears of it */
            return;
        }
    }
}

static int result;

static void app(void *arg)
{
    mag_group pool = {0};
    mag_time start = mag_now();
    jobs = mag_chan_new(sizeof(char *), 64);
    for (int i = 0; i < WORKERS; i++)
        mag_group_go(&pool, worker, NULL);
    offer(strdup(arg));
    /* done when nothing is pending, or when somebody failed */
    while (mag_wg_wait(&pending, mag_in(10 * MAG_MS)) == -ETIMEDOUT && mag_group_wait(&pool, MAG_TRY) == -ETIMEDOUT)
        continue;
    mag_chan_close(jobs);
    result = mag_group_end(&pool);
    char *left;
    while (mag_chan_recv(jobs, &left, MAG_TRY) == 0)
        free(left);
    mag_chan_unref(jobs);
    if (result == 0)
        printf("%ld files, %.1f MB, in %.0f ms with %d workers\n", files, (double)bytes / 1e6,
               (double)(mag_now() - start) / 1e6, WORKERS);
    else
        fprintf(stderr, "workers: %s\n", strerror(-result));
}

int main(int argc, char **argv)
{
    int r = mag_run(app, argc > 1 ? argv[1] : ".");
    return r == 0 && result == 0 ? 0 : 1;
}
