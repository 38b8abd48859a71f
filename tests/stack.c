/* SPDX-License-Identifier: MIT */
/* stack.c: a goroutine's stack is as large as promised, ends in a clear word, and a switch keeps what the ABI says a call
 * keeps. */
#include "test.h"

#include <magpie.h>
#include <pthread.h>
#include <setjmp.h>
#include <sys/mman.h>

static void wait_for(mag_wg *wg) { T_EQ(mag_wg_wait(wg, MAG_FOREVER), 0); }

static void succeeds(void (*fn)(void *), void *arg)
{
    static struct t_child c;
    t_fork(&c, fn, arg);
    if (c.code != 0)
        T_FAIL("code %d, signal %d%s\n%s", c.code, c.signal, c.timed_out ? ", timed out" : "", c.err);
}

/* ---- size ---- */

/* Uses `bytes` of the stack below `top`. */
__attribute__((noinline)) static long dig(const char *top, size_t bytes)
{
    volatile char frame[256];
    for (size_t i = 0; i < sizeof frame; i += 64)
        frame[i] = 1;
    if ((size_t)(top - (const char *)__builtin_frame_address(0)) >= bytes)
        return 0;
    return dig(top, bytes) + frame[64]; /* something to do afterwards: no tail call */
}

struct digger {
    size_t bytes;
    mag_wg *wg;
};

static void digs(void *arg)
{
    struct digger *d = arg;
    T_GT(dig(__builtin_frame_address(0), d->bytes), 0);
    if (d->wg)
        mag_wg_done(d->wg);
}

static void digs_twice(void *arg)
{
    digs(arg);
    mag_yield();
    digs(arg);
}

/* 16 KiB are for what calls it and what it calls. */
static void a_goroutine_can_use_its_stack(void)
{
    struct digger d = {.bytes = (256 - 16) << 10};
    T_EQ(mag_run(digs_twice, &d), 0);
    d.bytes = (1024 - 16) << 10;
    T_EQ(mag_run_with(&(mag_config){.stack_size = 1 << 20}, digs_twice, &d), 0);
    d.bytes = (64 - 16) << 10;
    T_EQ(mag_run_with(&(mag_config){.stack_size = 60000}, digs_twice, &d), 0);
}

static void spawns_diggers(void *arg)
{
    (void)arg;
    mag_wg wg = {0};
    static const size_t sizes[] = {64 << 10, 256 << 10, 1 << 20, 8 << 20};
    size_t n = T_TSAN ? 3 : 4; /* it remembers calls, but not so many */
    for (int k = 0; k < 20; k++)
        for (size_t i = 0; i < n; i++) {
            mag_wg_add(&wg, 1);
            struct digger d = {sizes[i] - (16 << 10), &wg};
            mag_go_config cfg = {.stack_size = sizes[i], .copy = sizeof d};
            T_EQ(mag_go_with(&cfg, digs, &d), 0);
        }
    wait_for(&wg);
}

static void each_may_have_its_own_size(void) { T_EQ(mag_run(spawns_diggers, NULL), 0); }

static void digs_with_environment(void *arg)
{
    t_setenv("MAGPIE_STACK", "2m");
    T_EQ(mag_run(digs, arg), 0);
}

static void the_environment_gives_more(void)
{
    struct digger d = {.bytes = (2048 - 16) << 10};
    succeeds(digs_with_environment, &d);
}

/* ---- overflow ---- */

static void overflows(void *arg)
{
    (void)arg;
    mag_set_name("deep");
    mag_yield();
    dig(__builtin_frame_address(0), (size_t)1 << 40);
}

struct overflow {
    size_t stack_size;
    bool spawned; /* not in main, and on a stack that was used before */
};

static void spawns_overflow(void *arg)
{
    (void)arg;
    mag_wg wg = {0};
    for (int i = 0; i < 100; i++) {
        mag_wg_add(&wg, 1);
        struct digger d = {1000, &wg};
        T_EQ(mag_go_copy(digs, &d, sizeof d), 0);
    }
    wait_for(&wg);
    mag_wg_add(&wg, 1);
    T_EQ(mag_go(overflows, NULL), 0);
    wait_for(&wg);
}

static void run_overflow(void *arg)
{
    struct overflow *o = arg;
    mag_config cfg = {.stack_size = o->stack_size};
    mag_run_with(&cfg, o->spawned ? spawns_overflow : overflows, NULL);
}

static void an_overflow_is_named(void)
{
    static struct t_child c;
    static const struct {
        struct overflow how;
        const char *words;
    } all[] = {
        {{0, false}, "256 KiB"}, {{0, true}, "256 KiB"}, {{16 << 10, true}, "16 KiB"}, {{1 << 20, true}, "1024 KiB"}};
    for (size_t i = 0; i < sizeof all / sizeof *all; i++) {
        t_fork(&c, run_overflow, (void *)&all[i].how);
        T_EQ(c.signal, SIGSEGV);
        T_STR_HAS(c.err, "stack overflow in goroutine ");
        T_STR_HAS(c.err, "\"deep\"");
        T_STR_HAS(c.err, all[i].words);
        T_EQ(strchr(c.err, '\n') - c.err, strlen(c.err) - 1);
    }
}

/* ---- the program's own faults ---- */

static volatile int *volatile nowhere = (volatile int *)16;

static void crashes(void *arg)
{
    (void)arg;
    *nowhere = 1;
}

static void run_crash(void *arg)
{
    (void)arg;
    signal(SIGSEGV, SIG_DFL); /* a sanitizer has its own */
    mag_run(crashes, NULL);
}

static void another_fault_is_no_overflow(void)
{
    static struct t_child c;
    t_fork(&c, run_crash, NULL);
    T_EQ(c.signal, SIGSEGV);
    T_STR_EQ(c.err, "");
}

static volatile struct { /* the compiler does not see the handler write */
    char *page;
    long faults;
    void *address;
    int code;
} own;

static void repairs(int sig, siginfo_t *info, void *context)
{
    (void)context;
    if (sig != SIGSEGV)
        _exit(9);
    own.faults++;
    own.address = info->si_addr;
    own.code = info->si_code;
    if (mprotect(own.page, 4096, PROT_READ | PROT_WRITE) != 0)
        _exit(9);
}

static void faults(void *arg)
{
    (void)arg;
    for (int i = 0; i < 20; i++) {
        char *at = own.page + i * 8;
        T_EQ(mprotect(own.page, 4096, PROT_NONE), 0);
        *(volatile char *)at = 7; /* goes on here when the handler has repaired it */
        T_EQ(own.address, at);
        T_EQ(own.code, SEGV_ACCERR);
        T_EQ(*at, 7);
        mag_yield();
    }
}

static void *faults_in_a_thread(void *arg)
{
    (void)arg;
    T_EQ(mprotect(own.page, 4096, PROT_NONE), 0);
    *(volatile char *)own.page = 7;
    T_EQ(own.address, own.page);
    return NULL;
}

static void faults_everywhere(void *arg)
{
    pthread_t t;
    faults(arg);
    T_EQ(pthread_create(&t, NULL, faults_in_a_thread, NULL), 0);
    T_EQ(pthread_join(t, NULL), 0);
}

static void install(void (*fn)(int, siginfo_t *, void *))
{
    struct sigaction sa = {.sa_sigaction = fn, .sa_flags = SA_SIGINFO};
    T_EQ(sigaction(SIGSEGV, &sa, NULL), 0);
}

static void handle_before(void *arg)
{
    (void)arg;
    struct sigaction now;
    own.page = mmap(NULL, 4096, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    install(repairs);
    for (int i = 0; i < 3; i++)
        T_EQ(mag_run(faults_everywhere, NULL), 0);
    T_EQ(own.faults, 3 * 21);
    T_EQ(sigaction(SIGSEGV, NULL, &now), 0); /* as it was */
    T_TRUE(now.sa_sigaction == repairs);
    T_EQ(now.sa_flags & SA_ONSTACK, 0);
    faults_in_a_thread(NULL);
}

static void installs_and_faults(void *arg)
{
    install(repairs);
    faults(arg);
}

static void handle_meanwhile(void *arg)
{
    (void)arg;
    struct sigaction now;
    own.page = mmap(NULL, 4096, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    T_EQ(mag_run(installs_and_faults, NULL), 0);
    T_EQ(own.faults, 20);
    T_EQ(sigaction(SIGSEGV, NULL, &now), 0); /* the program's choice stays */
    T_TRUE(now.sa_sigaction == repairs);
}

static __thread sigjmp_buf back;

static void jumps(int sig)
{
    (void)sig;
    siglongjmp(back, 1);
}

static void faults_and_jumps(void *arg)
{
    for (int i = 0; i < 20; i++) {
        if (sigsetjmp(back, 1) == 0) {
            *nowhere = 1;
            T_FAIL("no fault");
        }
        (*(volatile long *)arg)++;
    }
}

static void handle_by_jump(void *arg)
{
    (void)arg;
    long faulted = 0;
    signal(SIGSEGV, jumps);
    T_EQ(mag_run(faults_and_jumps, &faulted), 0);
    T_EQ(faulted, 20);
}

static void raises(void *arg)
{
    (void)arg;
    T_EQ(kill(getpid(), SIGSEGV), 0);
    T_EQ(raise(SIGSEGV), 0);
    mag_yield();
}

static void ignore(void *arg)
{
    (void)arg;
    signal(SIGSEGV, SIG_IGN);
    T_EQ(raise(SIGSEGV), 0);
    T_EQ(mag_run(raises, NULL), 0);
}

static void sends(void *arg)
{
    (void)arg;
    signal(SIGSEGV, SIG_DFL);
    mag_run(raises, NULL);
}

static void the_programs_handler_gets_its_faults(void) { succeeds(handle_before, NULL); }
static void a_handler_installed_meanwhile_stays(void) { succeeds(handle_meanwhile, NULL); }
static void a_handler_may_jump_out(void) { succeeds(handle_by_jump, NULL); }
static void an_ignored_signal_stays_ignored(void) { succeeds(ignore, NULL); }

static void a_signal_sent_by_hand_still_kills(void)
{
    static struct t_child c;
    t_fork(&c, sends, NULL);
    T_EQ(c.signal, SIGSEGV);
    T_STR_EQ(c.err, "");
}

/* ---- what a switch keeps ---- */

/* keep_across(values, call): puts values into the registers that a call must keep, calls, reads them back. */
#if defined(__x86_64__)
enum { KEPT = 6 }; /* rbx rbp r12 r13 r14 r15 */
__asm__(".text\n"
        ".globl keep_across\n"
        ".type keep_across, @function\n"
        "keep_across:\n"
        "push %rbx; push %rbp; push %r12; push %r13; push %r14; push %r15; push %rdi\n"
        "mov 0(%rdi), %rbx; mov 8(%rdi), %rbp; mov 16(%rdi), %r12\n"
        "mov 24(%rdi), %r13; mov 32(%rdi), %r14; mov 40(%rdi), %r15\n"
        "call *%rsi\n"
        "pop %rdi\n"
        "mov %rbx, 0(%rdi); mov %rbp, 8(%rdi); mov %r12, 16(%rdi)\n"
        "mov %r13, 24(%rdi); mov %r14, 32(%rdi); mov %r15, 40(%rdi)\n"
        "pop %r15; pop %r14; pop %r13; pop %r12; pop %rbp; pop %rbx\n"
        "ret\n"
        ".size keep_across, . - keep_across\n");
#elif defined(__aarch64__)
enum { KEPT = 18 }; /* x19 ... x28, d8 ... d15 */
__asm__(".text\n"
        ".globl keep_across\n"
        ".type keep_across, %function\n"
        "keep_across:\n"
        "stp x29, x30, [sp, #-176]!\n"
        "stp x19, x20, [sp, #16]; stp x21, x22, [sp, #32]; stp x23, x24, [sp, #48]\n"
        "stp x25, x26, [sp, #64]; stp x27, x28, [sp, #80]\n"
        "stp d8, d9, [sp, #96]; stp d10, d11, [sp, #112]; stp d12, d13, [sp, #128]; stp d14, d15, [sp, #144]\n"
        "str x0, [sp, #160]\n"
        "ldp x19, x20, [x0, #0]; ldp x21, x22, [x0, #16]; ldp x23, x24, [x0, #32]\n"
        "ldp x25, x26, [x0, #48]; ldp x27, x28, [x0, #64]\n"
        "ldp d8, d9, [x0, #80]; ldp d10, d11, [x0, #96]; ldp d12, d13, [x0, #112]; ldp d14, d15, [x0, #128]\n"
        "blr x1\n"
        "ldr x0, [sp, #160]\n"
        "stp x19, x20, [x0, #0]; stp x21, x22, [x0, #16]; stp x23, x24, [x0, #32]\n"
        "stp x25, x26, [x0, #48]; stp x27, x28, [x0, #64]\n"
        "stp d8, d9, [x0, #80]; stp d10, d11, [x0, #96]; stp d12, d13, [x0, #112]; stp d14, d15, [x0, #128]\n"
        "ldp x19, x20, [sp, #16]; ldp x21, x22, [sp, #32]; ldp x23, x24, [sp, #48]\n"
        "ldp x25, x26, [sp, #64]; ldp x27, x28, [sp, #80]\n"
        "ldp d8, d9, [sp, #96]; ldp d10, d11, [sp, #112]; ldp d12, d13, [sp, #128]; ldp d14, d15, [sp, #144]\n"
        "ldp x29, x30, [sp], #176\n"
        "ret\n"
        ".size keep_across, . - keep_across\n");
#endif

void keep_across(uint64_t values[KEPT], void (*call)(void));

/* Floating-point control: 0 nearest, 1 down, 2 up, 3 to zero, in the machine's own numbering. */
#if defined(__x86_64__)
static unsigned rounding(void)
{
    uint32_t mxcsr;
    uint16_t x87;
    __asm__ volatile("stmxcsr %0; fnstcw %1" : "=m"(mxcsr), "=m"(x87));
    T_EQ(mxcsr >> 13 & 3, x87 >> 10 & 3);
    return mxcsr >> 13 & 3;
}

static void set_rounding(unsigned how)
{
    uint32_t mxcsr;
    uint16_t x87;
    __asm__ volatile("stmxcsr %0; fnstcw %1" : "=m"(mxcsr), "=m"(x87));
    mxcsr = (mxcsr & ~(3u << 13)) | how << 13;
    x87 = (uint16_t)((x87 & ~(3u << 10)) | how << 10);
    __asm__ volatile("ldmxcsr %0; fldcw %1" ::"m"(mxcsr), "m"(x87));
}
#elif defined(__aarch64__)
static unsigned rounding(void)
{
    uint64_t fpcr;
    __asm__ volatile("mrs %0, fpcr" : "=r"(fpcr));
    return fpcr >> 22 & 3;
}

static void set_rounding(unsigned how)
{
    uint64_t fpcr;
    __asm__ volatile("mrs %0, fpcr" : "=r"(fpcr));
    fpcr = (fpcr & ~((uint64_t)3 << 22)) | (uint64_t)how << 22;
    __asm__ volatile("msr fpcr, %0" ::"r"(fpcr));
}
#endif

static double third(void)
{
    volatile double one = 1, three = 3;
    return one / three;
}

struct keeper {
    uint64_t seed;
    mag_wg *wg;
};

static void keeps_registers(void *arg)
{
    struct keeper *k = arg;
    for (int i = 0; i < 200; i++) {
        uint64_t values[KEPT], seen[KEPT];
        for (int j = 0; j < KEPT; j++)
            values[j] = seen[j] = (uint64_t)t_random_r(&k->seed) << 32 | t_random_r(&k->seed);
        keep_across(seen, mag_yield);
        for (int j = 0; j < KEPT; j++)
            T_EQ(seen[j], values[j]);
    }
    mag_wg_done(k->wg);
}

/* More live values than registers, so that some are on the stack and some are not. */
static void keeps_locals(void *arg)
{
    struct keeper *k = arg;
    uint64_t s = k->seed, a = s * 3, b = s * 5, c = s * 7, d = s * 11, e = s * 13, f = s * 17, g = s * 19;
    double x = (double)s, y = x * 1.5, z = x * 2.5;
    for (uint64_t i = 1; i <= 200; i++) {
        a += s, b += a, c ^= b, d += c, e ^= d, f += e, g ^= f;
        x += 1, y += 2, z += 3;
        uint64_t sum = a + b + c + d + e + f + g;
        mag_yield();
        T_EQ(a, s * 3 + s * i);
        T_EQ(a + b + c + d + e + f + g, sum);
        T_EQ(x, (double)s + (double)i);
        T_EQ(y, (double)s * 1.5 + 2 * (double)i);
        T_EQ(z, (double)s * 2.5 + 3 * (double)i);
    }
    mag_wg_done(k->wg);
}

static void keeps_rounding(void *arg)
{
    struct keeper *k = arg;
    unsigned how = (unsigned)k->seed % 4;
    T_EQ(rounding(), 0); /* whatever others have */
    set_rounding(how);
    double mine = third();
    for (int i = 0; i < 200; i++) {
        mag_yield();
        T_EQ(rounding(), how);
        T_EQ(third(), mine);
    }
    set_rounding(0);
    mag_wg_done(k->wg);
}

static void interleave(void *arg)
{
    mag_fn fn = *(mag_fn *)arg;
    mag_wg wg = {0};
    for (uint64_t i = 0; i < 16; i++) {
        mag_wg_add(&wg, 1);
        T_EQ(MAG_GO(fn, struct keeper, i, &wg), 0);
    }
    wait_for(&wg);
}

static void interleaved(mag_fn fn)
{
    T_EQ(mag_run_with(&(mag_config){.procs = 1}, interleave, &fn), 0);
    T_EQ(mag_run_with(&(mag_config){.procs = 2}, interleave, &fn), 0);
}

static void a_switch_keeps_registers(void) { interleaved(keeps_registers); }
static void a_switch_keeps_locals(void) { interleaved(keeps_locals); }
static void a_switch_keeps_the_rounding_mode(void) { interleaved(keeps_rounding); }

/* A goroutine that ends with another rounding mode must not leave it to the next one, which may take over its stack without
 * a switch; nor to the thread that called mag_run. */
static void rounds_up_and_ends(void *arg)
{
    set_rounding(2);
    mag_wg_done(arg);
}

static void starts_with_the_default(void *arg)
{
    T_EQ(rounding(), 0);
    mag_wg_done(arg);
}

static void ends_and_begins(void *arg)
{
    (void)arg;
    mag_wg wg = {0};
    for (int i = 0; i < 100; i++) {
        mag_wg_add(&wg, 2);
        T_EQ(mag_go(starts_with_the_default, &wg), 0);
        T_EQ(mag_go(rounds_up_and_ends, &wg), 0); /* the newest runs first */
        wait_for(&wg);
        T_EQ(rounding(), 0);
    }
    set_rounding(1);
}

static void a_new_goroutine_has_the_default_rounding_mode(void)
{
    T_EQ(mag_run_with(&(mag_config){.procs = 1}, ends_and_begins, NULL), 0);
    T_EQ(mag_run_with(&(mag_config){.procs = 2}, ends_and_begins, NULL), 0);
    T_EQ(rounding(), 0);
    set_rounding(2);
    T_EQ(mag_run_with(&(mag_config){.procs = 2}, ends_and_begins, NULL), 0);
    T_EQ(rounding(), 2);
    set_rounding(0);
}

int main(int argc, char **argv)
{
    t_init(argc, argv);
    t_setenv("MAGPIE_STACK", NULL);
    T_RUN(a_goroutine_can_use_its_stack);
    T_RUN(each_may_have_its_own_size);
    T_RUN(the_environment_gives_more);
    T_RUN(an_overflow_is_named);
    T_RUN(another_fault_is_no_overflow);
    T_RUN(the_programs_handler_gets_its_faults);
    T_RUN(a_handler_installed_meanwhile_stays);
    T_RUN(a_handler_may_jump_out);
    T_RUN(a_signal_sent_by_hand_still_kills);
    T_RUN(a_switch_keeps_registers);
    T_RUN(a_switch_keeps_locals);
    T_RUN(a_switch_keeps_the_rounding_mode);
    T_RUN(an_ignored_signal_stays_ignored);
    T_RUN(a_new_goroutine_has_the_default_rounding_mode);
    return t_done();
}
