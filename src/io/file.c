/* SPDX-License-Identifier: MIT */
/* file.c: files, which are never waited for but take their time: what the page cache has is read at once, everything else blocks its
 * thread with the P free, or is the kernel's business alone (uring.c). A write in flight is waited for, whatever the deadline.
 */
#include "io/io.h"
#include "io/uring.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#ifdef MAG_HOSTILE
enum { FEW = 1 };
#else
enum { FEW = 32 };
#endif

int mag_open(const char *path, int flags, mode_t mode)
{
    struct m *m = mag__m_self();
    struct stat s;
    if (m == NULL || m_in_rt(m))
        return -EPERM;
    if (m_is_cancelled(m))
        return -ECANCELED;
    mag_block_begin(); /* a name may be far away, a pipe's other end not there yet */
    int fd = (int)io_result(open(path, flags | O_CLOEXEC, mode));
    mag_block_end();
    if (fd < 0)
        return fd;
    bool disk = fstat(fd, &s) == 0 && !S_ISFIFO(s.st_mode) && !S_ISCHR(s.st_mode);
    int mode_flags = fcntl(fd, F_GETFL);
    if (mode_flags >= 0)
        fcntl(fd, F_SETFL, mode_flags | O_NONBLOCK);
    mag__io_adopt(fd, (disk ? DESC_FILE : 0) | ((flags & O_DIRECT) != 0 ? DESC_DIRECT : 0));
    return fd;
}

static bool is_refusal(ssize_t r) { return r == -EAGAIN || r == -EOPNOTSUPP || r == -ENOSYS; }

static bool passes_the_cache(struct io *io)
{
    return desc_is(io->d, DESC_OWN) ? desc_is(io->d, DESC_DIRECT) : (fcntl(io->fd, F_GETFL) & O_DIRECT) != 0;
}

static ssize_t at_once(struct io *io, const struct piece *a)
{
    struct iovec v = {.iov_base = a->buf, .iov_len = a->n};
    if (a->at < 0)
        return -EINVAL; /* -1 would mean the file's own position */
    if (passes_the_cache(io))
        return -EAGAIN; /* it would wait for the disk after all */
    return io_result(a->write ? pwritev2(io->fd, &v, 1, a->at, RWF_NOWAIT) : preadv2(io->fd, &v, 1, a->at, RWF_NOWAIT));
}

static bool has_passed(int64_t deadline)
{
    return deadline <= MAG_TRY || (deadline != MAG_FOREVER && mag__os_now() >= deadline);
}

static ssize_t block(int fd, const struct piece *a)
{
    ssize_t r;
    mag_block_begin();
    do
        r = io_result(a->write ? pwrite(fd, a->buf, a->n, a->at) : pread(fd, a->buf, a->n, a->at));
    while (r == -EINTR);
    mag_block_end();
    return r;
}

/* A few are quickest on a thread each; of many, those that the kernel can do without one go to it. */
static ssize_t wait_for_disk(struct io *io, const struct piece *a)
{
    struct arena *arena = mag__m_self()->arena;
    bool many = at_32_add_rlx(&arena->transfers, 1) >= FEW;
    ssize_t r = many && passes_the_cache(io) ? mag__uring_transfer(io->fd, a, io->function) : -EAGAIN;
    if (is_refusal(r) || r == -EINTR)
        r = block(io->fd, a);
    at_32_add_rlx(&arena->transfers, (uint32_t)-1);
    return r;
}

static ssize_t transfer(int fd, struct piece a, int64_t deadline, const char *function)
{
    struct io io;
    ssize_t r = mag__io_begin(&io, fd, a.write ? POLL_WRITE : POLL_READ, deadline, function);
    if (r != 0)
        return r;
    r = at_once(&io, &a);
    if (is_refusal(r) && r == -EAGAIN && has_passed(deadline)) {
        r = -ETIMEDOUT;
    } else if (is_refusal(r)) {
        r = wait_for_disk(&io, &a);
    }
    return mag__io_end(&io, r);
}

ssize_t mag_pread(int fd, void *buf, size_t n, off_t at, mag_time deadline)
{
    return transfer(fd, (struct piece){.buf = buf, .n = n, .at = at}, deadline, "mag_pread");
}

ssize_t mag_pwrite(int fd, const void *buf, size_t n, off_t at, mag_time deadline)
{
    return transfer(fd, (struct piece){.buf = (void *)buf, .n = n, .at = at, .write = true}, deadline, "mag_pwrite");
}

int mag_fsync(int fd, mag_time deadline)
{
    struct io io;
    int r = mag__io_begin(&io, fd, POLL_WRITE, deadline, "mag_fsync");
    if (r != 0)
        return r;
    if (has_passed(deadline))
        return (int)mag__io_end(&io, -ETIMEDOUT);
    mag_block_begin();
    do
        r = (int)io_result(fsync(fd));
    while (r == -EINTR);
    mag_block_end();
    return (int)mag__io_end(&io, r);
}
