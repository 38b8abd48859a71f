/* SPDX-License-Identifier: MIT */
#include "trace/out.h"
#include "os/os.h"

#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <link.h>
#include <poll.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <unistd.h>

static struct {
    uintptr_t from, to;
} program;

static int note_program(struct dl_phdr_info *info, size_t size, void *arg)
{
    (void)size, (void)arg;
    uintptr_t from = UINTPTR_MAX, to = 0;
    for (int i = 0; i < info->dlpi_phnum; i++) {
        const ElfW(Phdr) *h = &info->dlpi_phdr[i];
        uintptr_t at = info->dlpi_addr + h->p_vaddr;
        if (h->p_type != PT_LOAD)
            continue;
        from = at < from ? at & ~(uintptr_t)(OS_PAGE - 1) : from;
        to = at + h->p_memsz > to ? at + h->p_memsz : to;
    }
    program.from = from;
    program.to = to;
    return 1; /* it is the first one */
}

void mag__out_loaded(void) { dl_iterate_phdr(note_program, NULL); }

void mag__out_init(struct out *o, int fd)
{
    o->fd = fd;
    o->error = 0;
    o->n = 0;
    o->may_drop = false;
}

void mag__out_init_dropping(struct out *o, int fd)
{
    mag__out_init(o, fd);
    o->may_drop = true;
    o->full = false;
}

/* The same pipe or terminal once more, for a write that does not block: O_NONBLOCK on fd itself would be everybody's who has it.
 * poll(2) alone is not enough: another may be faster, and a terminal is ready when it has room for a part. */
static int reopen(int fd)
{
    char path[32];
    struct stat st;
    if (fstat(fd, &st) != 0 || (!S_ISFIFO(st.st_mode) && !(S_ISCHR(st.st_mode) && isatty(fd))))
        return -1;
    snprintf(path, sizeof path, "/proc/self/fd/%d", fd);
    return open(path, O_WRONLY | O_NONBLOCK | O_NOCTTY | O_CLOEXEC);
}

static ssize_t write_if_room(int fd, const char *text, size_t n)
{
    ssize_t r = send(fd, text, n, MSG_DONTWAIT | MSG_NOSIGNAL);
    if (r >= 0 || errno != ENOTSOCK)
        return r;
    struct pollfd p = {.fd = fd, .events = POLLOUT};
    if (poll(&p, 1, 0) <= 0)
        return -1;
    int own = reopen(fd);
    r = write(own >= 0 ? own : fd, text, n);
    if (own >= 0)
        close(own);
    return r;
}

static void flush_or_drop(struct out *o)
{
    size_t n = o->n, done = 0;
    if (n == 0)
        return;
    while (n > 0 && o->buf[n - 1] != '\n')
        n--;
    if (n == 0)
        n = o->n; /* a line longer than the buffer */
    if (!o->full && (!o->cut || write_if_room(o->fd, "\n", 1) == 1)) {
        ssize_t r = write_if_room(o->fd, o->buf, n);
        done = r > 0 ? (size_t)r : 0;
        o->cut = done != 0 && done != n && o->buf[done - 1] != '\n';
    }
    o->full |= done != n;
    for (size_t i = done; i < n; i++)
        o->dropped += o->buf[i] == '\n';
    memmove(o->buf, o->buf + n, o->n -= n);
}

static void flush_all(struct out *o)
{
    for (size_t at = 0; at < o->n && o->error == 0;) {
        ssize_t r = write(o->fd, o->buf + at, o->n - at);
        if (r > 0)
            at += (size_t)r;
        else if (r < 0 && errno != EINTR)
            o->error = -errno;
    }
    o->n = 0;
}

int mag__out_flush(struct out *o)
{
    int saved = errno;
    if (o->may_drop)
        flush_or_drop(o);
    else
        flush_all(o);
    errno = saved;
    return o->error;
}

void mag__out_print(struct out *o, const char *format, ...)
{
    va_list ap;
    if (sizeof o->buf - o->n < 512)
        mag__out_flush(o);
    va_start(ap, format);
    int n = vsnprintf(o->buf + o->n, sizeof o->buf - o->n, format, ap);
    va_end(ap);
    size_t room = sizeof o->buf - o->n - 1;
    if (n > 0)
        o->n += (size_t)n < room ? (size_t)n : room;
}

void mag__out_duration(struct out *o, int64_t ns)
{
    if (ns >= 1000000000)
        mag__out_print(o, "%.1f s", (double)ns / 1e9);
    else
        mag__out_print(o, "%lld ms", (long long)(ns / 1000000));
}

/* dladdr takes the loader's lock, and who holds it may be a goroutine in dlopen that waits for a P. */
static void place_without_lock(struct out *o, const void *pc)
{
    uintptr_t at = (uintptr_t)pc;
    if (at >= program.from && at < program.to)
        mag__out_print(o, "%s+0x%zx", program_invocation_short_name, (size_t)(at - program.from));
    else
        mag__out_print(o, "%p", pc);
}

void mag__out_place(struct out *o, const void *pc)
{
    Dl_info info;
    if (o->may_drop) {
        place_without_lock(o, pc);
        return;
    }
    if (dladdr(pc, &info) == 0 || info.dli_fname == NULL) {
        mag__out_print(o, "%p", pc);
        return;
    }
    const char *module = strrchr(info.dli_fname, '/');
    module = module != NULL ? module + 1 : info.dli_fname;
    if (info.dli_sname != NULL)
        mag__out_print(o, "%s+0x%zx (%s)", info.dli_sname, (size_t)((const char *)pc - (const char *)info.dli_saddr), module);
    else
        mag__out_print(o, "%s+0x%zx", module, (size_t)((const char *)pc - (const char *)info.dli_fbase));
}
