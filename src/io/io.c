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

int mag__io_begin(struct io *io, int fd, enum poll_dir dir, int64_t deadline, const char *function)
{
    struct m *m = mag__m_self();
    int r;
    if (unlikely(m == NULL || m_in_rt(m)))
        return -EPERM;
    if (unlikely(mag__m_is_dead(m)))
        mag__fdwait_end(m, function);
    if (m_is_cancelled(m))
        return -ECANCELED;
    struct desc *d = mag__poll_get(&m->arena->poll, fd, &r);
    if (unlikely(d == NULL) || unlikely((r = mag__poll_enter(d)) != 0))
        return r;
    *io = (struct io){.d = d, .fd = fd, .dir = dir, .deadline = deadline, .function = function};
    return 0;
}

ssize_t mag__io_end(struct io *io, ssize_t result)
{
    struct desc *d = io->d;
    if (unlikely(at_32_load_rlx(&d->side[io->dir].waiting) != 0) && !io->drained)
        mag__fdwait_pass(d, io->dir);
    mag__poll_leave(&mag__m_self()->arena->poll, d);
    if (unlikely(at_32_load_rlx((a32 *)&mag_checkpoint_word) != 0) &&
        io->deadline > MAG_TRY) /* it may never have to wait */
        mag__token_leave(mag__park_yield(mag__park_enter(mag__m_self(), io->function)));
    return result;
}

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

ssize_t mag__io_call(int fd, enum poll_dir dir, io_ask ask, void *arg, int64_t deadline, const char *function)
{
    struct io io;
    unsigned told = 0;
    ssize_t r = mag__io_begin(&io, fd, dir, deadline, function);
    if (unlikely(r != 0))
        return r;
    for (;;) {
        io.seen = side_edges(io.d, dir);
        r = ask(&io, arg);
        if (r == -EINTR)
            continue;
        io.drained = r == -EAGAIN;
        if (likely(!io.drained))
            return mag__io_end(&io, r);
        r = wait(&io);
        if (unlikely(r == -ETIMEDOUT && io.guessed)) { /* nobody has asked the kernel yet */
            io.guessed = false;
            io.deadline = MAG_TRY;
            continue;
        }
        if (r == 0)
            r = slow_down(&io, told++);
        if (unlikely(r == -EPERM))
            return mag__io_end(&io, ask_blocking(&io, ask, arg));
        if (unlikely(r != 0))
            return mag__io_end(&io, r);
    }
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
