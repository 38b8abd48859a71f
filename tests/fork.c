/* SPDX-License-Identifier: MIT */
/* fork.c: processes made by goroutines, and signals that meet them. */
#include "test.h"

#include <magpie.h>
#include <pthread.h>
#include <signal.h>
#include <spawn.h>
#include <sys/time.h>
#include <sys/wait.h>
#include <unistd.h>

extern char **environ;

#if T_ASAN
/* In a child the other threads are gone: what only they pointed to is not leaked by anybody. */
const char *__asan_default_options(void);
const char *__asan_default_options(void) { return "detect_leaks=0"; }
#endif

static void nothing(void *arg) { (void)arg; }
static void wait_for(mag_wg *wg) { T_EQ(mag_wg_wait(wg, MAG_FOREVER), 0); }

static void on(int procs, mag_fn fn, void *arg) { T_EQ(mag_run_with(&(mag_config){.procs = procs}, fn, arg), 0); }

static int exit_of(pid_t pid)
{
    int status = 0;
    T_GT(pid, 0);
    T_EQ(waitpid(pid, &status, 0), pid);
    return WIFEXITED(status) ? WEXITSTATUS(status) : -WTERMSIG(status);
}

/* ---- in the child the runtime is off ---- */

static int child_sees(void)
{
    mag_chan *c = mag_chan_new(sizeof(int), 1);
    mag_mutex mutex = {0};
    int value = 7;
    sigset_t mask;
    pthread_sigmask(SIG_SETMASK, NULL, &mask);
    mag_mutex_lock(&mutex);
    mag_mutex_unlock(&mutex);
    return mag_go(nothing, NULL) != -EPERM           ? 1
           : mag_run(nothing, NULL) != -EPERM        ? 2
           : mag_start(NULL) != -EPERM               ? 3
           : mag_procs() != 0                        ? 4
           : mag_id() != 0                           ? 5
           : mag_set_procs(2) != -EPERM              ? 6
           : mag_chan_send(c, &value, MAG_TRY) != 0  ? 7 /* a channel's buffer is memory like any other */
           : mag_stop(MAG_FOREVER) != -EPERM         ? 8
           : sigismember(&mask, SIGTERM) != 0        ? 9 /* a worker's mask is not what the child should have */
                                                     : 0;
}

static void forks(void *arg)
{
    (void)arg;
    pid_t pid = fork();
    if (pid == 0)
        _exit(child_sees());
    T_EQ(exit_of(pid), 0);
    T_EQ(mag_go(nothing, NULL), 0); /* and here it goes on */
}

static void *forks_too(void *arg)
{
    forks(arg);
    return NULL;
}

static void a_child_is_told(void)
{
    on(1, forks, NULL);
    on(2, forks, NULL);
    pid_t pid = fork(); /* no runtime here: the child may have one */
    if (pid == 0)
        _exit(mag_run(nothing, NULL) == 0 ? 0 : 1);
    T_EQ(exit_of(pid), 0);
    T_EQ(mag_start(NULL), 0);
    pthread_t t; /* a thread of the program's own */
    T_EQ(pthread_create(&t, NULL, forks_too, NULL), 0);
    pthread_join(t, NULL);
    T_EQ(mag_stop(MAG_FOREVER), 0);
}

static void returns_in_child(void *arg)
{
    pid_t pid = fork();
    if (pid != 0)
        T_EQ(exit_of(pid), 0);
    else if (arg != NULL)
        mag_exit();
}

static void main_goes_on(void *arg)
{
    mag_wg wg = {0};
    for (int i = 0; i < 4; i++)
        T_EQ(mag_go(returns_in_child, arg), 0);
    for (mag_stats s = {.goroutines = 2}; s.goroutines > 1; mag_stats_read(&s, NULL, 0))
        mag_sleep(MAG_MS);
    wait_for(&wg);
}

static void the_end_of_the_goroutine_ends_the_child(void)
{
    on(2, main_goes_on, NULL);
    on(2, main_goes_on, &(int){1});
}

/* ---- fork and exec, and its friends, many at once ---- */

static void execs(void *arg)
{
    mag_wg *wg = arg;
    char *argv[] = {"sh", "-c", "exit 3", NULL}, text[16] = "";
    pid_t pid = fork();
    if (pid == 0) {
        execvp("sh", argv);
        _exit(127);
    }
    T_EQ(exit_of(pid), 3);
    T_EQ(posix_spawnp(&pid, "sh", NULL, NULL, argv, environ), 0);
    T_EQ(exit_of(pid), 3);
    T_EQ(WEXITSTATUS(system("exit 4")), 4);
    FILE *f = popen("echo magpie", "r");
    T_TRUE(f != NULL);
    T_TRUE(fgets(text, sizeof text, f) != NULL);
    T_STR_HAS(text, "magpie");
    T_EQ(pclose(f), 0);
    mag_wg_done(wg);
}

static void exec_many(void *arg)
{
    (void)arg;
    mag_wg wg = {0};
    enum { N = 8 };
    mag_wg_add(&wg, N);
    for (int i = 0; i < N; i++)
        T_EQ(mag_go(execs, &wg), 0);
    wait_for(&wg);
}

static void other_programs_run(void)
{
    on(1, exec_many, NULL);
    on(2, exec_many, NULL);
}

/* ---- signals ---- */

static int handled, refused, spawned; /* by handlers on several threads */

static void count(int *n) { __atomic_add_fetch(n, 1, __ATOMIC_RELAXED); }

static void counts(int sig)
{
    (void)sig;
    count(&handled);
}

/* Whatever it interrupts: a call is done, or refused because the runtime was interrupted; nothing breaks. */
static void calls(int sig)
{
    (void)sig;
    int saved = errno, r = mag_go(nothing, NULL);
    if (r == 0)
        count(&spawned);
    else if (r == -EPERM)
        count(&refused);
    else if (r != -ESHUTDOWN) /* it met the end of the run, on whatever thread */
        abort();
    errno = saved;
}

static void install(int sig, void (*handler)(int), int flags)
{
    struct sigaction sa = {.sa_handler = handler, .sa_flags = flags};
    T_EQ(sigaction(sig, &sa, NULL), 0);
}

static void kills_itself(void *arg)
{
    mag_wg *wg = arg;
    for (int i = 0; i < 200; i++) {
        T_EQ(raise(SIGTRAP), 0); /* to this thread, and not blocked on any */
        if (i % 8 == 0)
            mag_yield();
    }
    mag_wg_done(wg);
}

static void signalled(void *arg)
{
    (void)arg;
    mag_wg wg = {0};
    enum { N = 20 };
    handled = 0;
    mag_wg_add(&wg, N);
    for (int i = 0; i < N; i++)
        T_EQ(mag_go(kills_itself, &wg), 0);
    wait_for(&wg);
}

static void handlers_run_on_either_stack(void)
{
    install(SIGTRAP, counts, SA_ONSTACK | SA_RESTART);
    on(1, signalled, NULL);
    T_EQ(handled, 20 * 200);
    install(SIGTRAP, counts, SA_RESTART); /* on the goroutine's own: there must be room */
    on(1, signalled, NULL);
    T_EQ(handled, 20 * 200);
    signal(SIGTRAP, SIG_DFL);
}

static void yields_a_lot(void *arg)
{
    mag_wg *wg = arg;
    for (mag_time end = mag_in(300 * MAG_MS); mag_now() < end;)
        for (int i = 0; i < 100; i++)
            mag_yield();
    mag_wg_done(wg);
}

static void interrupted(void *arg)
{
    (void)arg;
    mag_wg wg = {0};
    enum { N = 8 };
    mag_wg_add(&wg, N);
    for (int i = 0; i < N; i++)
        T_EQ(mag_go(yields_a_lot, &wg), 0);
    wait_for(&wg);
}

static void a_handler_that_calls_is_refused(void)
{
    if (T_TSAN) /* it delivers signals late, when the thread is elsewhere */
        return;
    struct itimerval often = {{0, 500}, {0, 500}}, never = {0};
    install(SIGPROF, calls, SA_ONSTACK | SA_RESTART);
    setitimer(ITIMER_PROF, &often, NULL);
    on(2, interrupted, NULL);
    setitimer(ITIMER_PROF, &never, NULL);
    signal(SIGPROF, SIG_IGN);
    T_GT(refused + spawned, 0);
    T_GT(refused, 0); /* most of the time went to the runtime */
}

int main(int argc, char **argv)
{
    t_init(argc, argv);
    T_RUN(a_child_is_told);
    T_RUN(the_end_of_the_goroutine_ends_the_child);
    T_RUN(other_programs_run);
    T_RUN(handlers_run_on_either_stack);
    T_RUN(a_handler_that_calls_is_refused);
    return t_done();
}
