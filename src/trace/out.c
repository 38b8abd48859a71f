/* SPDX-License-Identifier: MIT */
#include "trace/out.h"

#include <dlfcn.h>
#include <errno.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

void mag__out_init(struct out *o, int fd)
{
    o->fd = fd;
    o->error = 0;
    o->n = 0;
}

int mag__out_flush(struct out *o)
{
    int saved = errno;
    for (size_t at = 0; at < o->n && o->error == 0;) {
        ssize_t r = write(o->fd, o->buf + at, o->n - at);
        if (r > 0)
            at += (size_t)r;
        else if (r < 0 && errno != EINTR)
            o->error = -errno;
    }
    o->n = 0;
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

void mag__out_place(struct out *o, const void *pc)
{
    Dl_info info;
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
