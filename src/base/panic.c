/* SPDX-License-Identifier: MIT */
#include "base/panic.h"

#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

static void say(const char *format, va_list ap)
{
    char line[512];
    int at = snprintf(line, sizeof line, "magpie: ");
    int n = vsnprintf(line + at, sizeof line - (size_t)at - 1, format, ap);
    if (n < 0)
        n = 0;
    size_t len = (size_t)at + (size_t)n;
    if (len > sizeof line - 2)
        len = sizeof line - 2;
    line[len++] = '\n';
    /* stderr may be closed: there is nobody left to tell */
    if (write(STDERR_FILENO, line, len) < 0)
        return;
}

void mag__panic_say(const char *format, ...)
{
    va_list ap;
    va_start(ap, format);
    say(format, ap);
    va_end(ap);
}

void mag__panic_misuse(const char *format, ...)
{
    va_list ap;
    va_start(ap, format);
    say(format, ap);
    va_end(ap);
    abort();
}

void mag__panic_broken(const char *file, int line, const char *invariant)
{
    mag__panic_say("broken at %s:%d: %s. This is a bug in magpie or memory was overwritten", file, line, invariant);
    abort();
}
