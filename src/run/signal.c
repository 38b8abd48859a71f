/* SPDX-License-Identifier: MIT */
/* signal.c: a stack overflow is reported by name, never as a bare SIGSEGV.
 *
 * The handler runs on the M's alternate stack. A fault that is not in the guard of the goroutine that made it is none of
 * ours: the program's own handler gets it, or the default action. A program that installs its handler after mag_run has
 * begun keeps it, and loses only this report.
 */
#include "run/run.h"
#include "base/panic.h"

#include <signal.h>
#include <string.h>
#include <unistd.h>

static struct sigaction previous[2];
static const int faults[2] = {SIGSEGV, SIGBUS};

/* True and reported: the current goroutine ran into its guard. */
static bool is_overflow(const void *address)
{
    struct m *m = mag__m_self();
    struct g *g = m == NULL ? NULL : m_curg(m);
    if (g == NULL || g == &m->g0 || g->stack == NULL || !mag__stack_in_guard(&m->arena->stacks, g->stack_class, g->stack, address))
        return false;
    char name[G_NAME];
    mag__g_get_name(g, name);
    mag__panic_say("stack overflow in goroutine %llu%s%s%s: it has %zu KiB (mag_go_config.stack_size, mag_config.stack_size "
                   "or MAGPIE_STACK give more)",
                   (unsigned long long)at_64_load_rlx(&g->id), name[0] ? " \"" : "", name, name[0] ? "\"" : "",
                   mag__stack_usable(g->stack_class) >> 10);
    return true;
}

static void pass_on(int sig, siginfo_t *info, void *context)
{
    struct sigaction *prev = &previous[sig == SIGBUS];
    if ((prev->sa_flags & SA_SIGINFO) != 0) {
        prev->sa_sigaction(sig, info, context);
    } else if (prev->sa_handler != SIG_DFL && prev->sa_handler != SIG_IGN) {
        prev->sa_handler(sig);
    } else if (prev->sa_handler == SIG_IGN && info->si_code <= 0) {
        return; /* sent by kill, and ignored by the program; a real fault cannot be */
    } else {
        struct sigaction dfl;
        memset(&dfl, 0, sizeof dfl);
        dfl.sa_handler = SIG_DFL;
        sigaction(sig, &dfl, NULL); /* returning runs the faulting instruction again, now without us */
        if (info->si_code <= 0)
            raise(sig); /* sent by kill: there is no instruction to run again */
    }
}

static void on_fault(int sig, siginfo_t *info, void *context)
{
    if (info->si_code > 0 && is_overflow(info->si_addr)) {
        struct sigaction dfl;
        memset(&dfl, 0, sizeof dfl);
        dfl.sa_handler = SIG_DFL;
        sigaction(sig, &dfl, NULL);
        return; /* the same fault again, by the default action: a core dump shows the culprit's frame */
    }
    pass_on(sig, info, context);
}

void mag__signal_install(void)
{
    struct sigaction sa;
    memset(&sa, 0, sizeof sa);
    sa.sa_sigaction = on_fault;
    sa.sa_flags = SA_SIGINFO | SA_ONSTACK;
    sigemptyset(&sa.sa_mask);
    for (int i = 0; i < 2; i++) {
        sigaction(faults[i], NULL, &previous[i]);
        if ((previous[i].sa_flags & SA_NODEFER) != 0)
            sa.sa_flags |= SA_NODEFER; /* the program's handler may rely on it (it may leave by siglongjmp) */
        sigaction(faults[i], &sa, NULL);
    }
}

void mag__signal_remove(void)
{
    for (int i = 0; i < 2; i++) {
        struct sigaction now;
        sigaction(faults[i], NULL, &now);
        if ((now.sa_flags & SA_SIGINFO) != 0 && now.sa_sigaction == on_fault)
            sigaction(faults[i], &previous[i], NULL);
    }
}
