/* SPDX-License-Identifier: MIT */
/* io.c: the shape of every call on a descriptor: ask the kernel, wait where it would block, ask again.
 *
 * Asking runs as user code: the kernel's answer costs no step into the runtime, and a thread that is held up there all the same
 * loses its P like any other.
 * Passing on  whoever leaves with anything but "would block" may have left something for the next in the queue.
 * Always ready regular files and the like cannot be waited for (-EPERM): they are asked again in a way that may block the thread,
 *             with the P free.
 */
#include "io/io.h"
#include "sync/chan.h"

enum { IN_VAIN = 16 };

void mag__io_yield(const struct io *io) { mag__token_leave(mag__park_yield(mag__park_enter(mag__m_self(), io->function))); }

static int wait(struct io *io)
{
    struct fd_want want = {.again = io->waited};
    if (io->deadline <= MAG_TRY)
        return -ETIMEDOUT;
    want.dir[io->dir] = true;
    want.seen[io->dir] = io->seen;
    int r = mag__fdwait(io->d, &want, io->deadline, io->function);
    io->waited = true;
    io->drained = r != 0;
    return r;
}

/* Told again and again, and every time in vain: something that is no data stays with a foreign file, such as messages in a socket's
 * error queue. It must not keep a core busy. */
static int slow_down(const struct io *io, unsigned told)
{
    if (likely(told < IN_VAIN) || desc_is(io->d, DESC_OWN))
        return 0;
    int64_t pause = (int64_t)told * 50 * MAG_US;
    return mag__io_pause(pause < 5 * MAG_MS ? pause : 5 * MAG_MS, io->deadline);
}

static ssize_t ask_blocking(struct io *io, io_ask ask, void *arg)
{
    ssize_t r;
    io->block = true;
    mag_block_begin();
    do
        r = ask(io, arg);
    while (r == -EINTR);
    mag_block_end();
    return r;
}

bool mag__io_wait(struct io *io, io_ask ask, void *arg, unsigned *told, ssize_t *r)
{
    int how = wait(io);
    if (likely(how == 0))
        how = slow_down(io, (*told)++);
    else if (how == -ETIMEDOUT && io->guessed) { /* nobody has asked the kernel yet */
        io->guessed = false;
        io->deadline = MAG_TRY;
        return true;
    }
    *r = likely(how == 0) ? 0 : how == -EPERM ? ask_blocking(io, ask, arg) : how;
    return how == 0;
}

ssize_t mag__io_call(int fd, enum poll_dir dir, io_ask ask, void *arg, int64_t deadline, const char *function)
{
    return mag__io_run(fd, dir, ask, arg, deadline, function);
}

void mag__io_adopt(int fd, uint32_t flags)
{
    int error;
    struct desc *d = mag__poll_get(&mag__m_self()->arena->poll, fd, &error);
    if (d != NULL)
        mag__poll_adopt(d, flags);
}

int mag__io_pause(int64_t ns, int64_t deadline)
{
    int64_t until = mag__os_now() + ns;
    int r = mag__chan_never(until < deadline ? until : deadline);
    return r == -ETIMEDOUT ? 0 : r;
}
