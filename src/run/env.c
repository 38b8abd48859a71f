/* SPDX-License-Identifier: MIT */
/* env.c: MAGPIE_PROCS, MAGPIE_STACK, MAGPIE_DEBUG. They override the config; what does not parse stops the run with a line
 * that says so, instead of running with something the user did not ask for. MAGPIE_GUARD is used in os/os_linux.c, MAGPIE_TRACE
 * nowhere yet. */
#include "run/run.h"
#include "base/panic.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

/* A whole number from low to high, nothing around it. */
static bool number(const char *text, size_t len, uint64_t low, uint64_t high, uint64_t *value)
{
    uint64_t n = 0;
    if (len == 0)
        return false;
    for (size_t i = 0; i < len; i++) {
        if (text[i] < '0' || text[i] > '9' || n > (UINT64_MAX - 9) / 10)
            return false;
        n = n * 10 + (uint64_t)(text[i] - '0');
    }
    if (n < low || n > high)
        return false;
    *value = n;
    return true;
}

/* A number of bytes, with k, m or g behind it. */
static bool size(const char *text, uint64_t *value)
{
    size_t len = strlen(text);
    int shift = 0;
    if (len > 1) {
        switch (text[len - 1] | 0x20) {
        case 'k': shift = 10; break;
        case 'm': shift = 20; break;
        case 'g': shift = 30; break;
        }
    }
    if (!number(text, shift != 0 ? len - 1 : len, 1, STACK_MAX >> shift, value))
        return false;
    *value <<= shift;
    return true;
}

static int refuse(const char *name, const char *value, const char *wanted)
{
    mag__panic_say("%s=%s: %s", name, value, wanted);
    return -EINVAL;
}

static bool debug_key(struct settings *s, const char *key, size_t key_len, const char *value, size_t value_len)
{
    uint64_t n;
    if (key_len == 10 && memcmp(key, "schedtrace", 10) == 0) {
        if (!number(value, value_len, 0, 86400000, &n))
            return false;
        s->schedtrace = (int64_t)n * MAG_MS;
        return true;
    }
    if (key_len == 11 && memcmp(key, "scheddetail", 11) == 0) {
        if (!number(value, value_len, 0, 1, &n))
            return false;
        s->scheddetail = n != 0;
        return true;
    }
    return false;
}

static int debug(struct settings *s, const char *text)
{
    for (const char *at = text; *at != 0;) {
        size_t len = strcspn(at, ",");
        const char *eq = memchr(at, '=', len);
        if (eq == NULL || !debug_key(s, at, (size_t)(eq - at), eq + 1, len - (size_t)(eq + 1 - at)))
            return refuse("MAGPIE_DEBUG", text, "wants schedtrace=MILLISECONDS and scheddetail=0 or 1, commas between");
        at += len;
        if (*at == ',')
            at++;
    }
    return 0;
}

/* The program runs as it would without it. */
static void no_tracer(const char *value)
{
    static bool said; /* under the claim of the runtime: one thread at a time */
    if (!said)
        mag__panic_say("MAGPIE_TRACE=%s: this version has no tracer, nothing is written", value);
    said = true;
}

int mag__env_read(struct settings *s)
{
    const char *text;
    uint64_t n;
    if ((text = getenv("MAGPIE_PROCS")) != NULL) {
        if (!number(text, strlen(text), 1, PROCS_MAX, &n))
            return refuse("MAGPIE_PROCS", text, "wants a number from 1 to 1024");
        s->procs = (uint32_t)n;
        s->procs_fixed = true;
    }
    if ((text = getenv("MAGPIE_STACK")) != NULL) {
        if (!size(text, &n))
            return refuse("MAGPIE_STACK", text, "wants a size such as 64k, at most 1g");
        s->stack_class = mag__stack_class((size_t)n);
    }
    if ((text = getenv("MAGPIE_GUARD")) != NULL && strcmp(text, "mprotect") != 0)
        return refuse("MAGPIE_GUARD", text, "wants mprotect");
    if ((text = getenv("MAGPIE_TRACE")) != NULL && *text != 0)
        no_tracer(text);
    if ((text = getenv("MAGPIE_DEBUG")) != NULL)
        return debug(s, text);
    return 0;
}
