# SPDX-License-Identifier: MIT
"""What the tests of the example servers share: a server process, sockets that give up, and cases.

    with server.Server(program, '127.0.0.1:0') as s:
        c = s.connect()

The server must still be there at the end, hold no more descriptors than at the beginning, and leave with status 0 on SIGTERM.
MAGPIE_TEST_SLOW=N: this machine or build is N times slower. TSan keeps a signal back from a thread that sleeps in a system call which it
does not know: such a build (MAGPIE_TEST_SANITIZE) is not asked to end by itself.
"""
import os
import resource
import shlex
import signal
import socket
import struct
import subprocess
import time

SLOW = max(1, int(os.environ.get('MAGPIE_TEST_SLOW', '1')))
PATIENCE = 20 * SLOW
SIGNALS = 'thread' not in os.environ.get('MAGPIE_TEST_SANITIZE', '')
WRAPPER = shlex.split(os.environ.get('MESON_EXE_WRAPPER', ''))
LIMIT = resource.getrlimit(resource.RLIMIT_NOFILE)[1]
FDS = LIMIT if LIMIT != resource.RLIM_INFINITY else 1 << 20
resource.setrlimit(resource.RLIMIT_NOFILE, (FDS, LIMIT))
OWN = 3  # descriptors that come with the first connection and stay: the poller's, and what sysmon looks through


class Server:
    def __init__(self, *command, fds=None, stop=PATIENCE):
        self.command, self.fds_limit, self.stop_within = list(command), fds, stop

    def __enter__(self):
        def limit():
            if self.fds_limit:
                resource.setrlimit(resource.RLIMIT_NOFILE, (self.fds_limit, self.fds_limit))
        self.process = subprocess.Popen(WRAPPER + self.command, stdout=subprocess.PIPE, text=True, preexec_fn=limit)
        line = self.process.stdout.readline()
        assert 'port' in line, f'{self.command} says {line!r}, status {self.process.poll()}'
        self.port = int(line.split()[-1])
        self.before = self.fds()
        return self

    def __exit__(self, kind, *_):
        try:
            if kind is None:
                self.settles()
                self.ends()
        finally:
            self.process.kill()
            self.process.wait()
            self.process.stdout.close()

    def fds(self):
        return len(os.listdir(f'/proc/{self.process.pid}/fd'))

    def settles(self):
        """Every connection is gone, and with it what it held."""
        assert self.process.poll() is None, f'the server has died with {self.process.returncode}'
        eventually(lambda: self.fds() <= self.before + OWN, lambda: f'{self.fds()} descriptors, {self.before} at the beginning')

    def ends(self):
        if not SIGNALS:
            self.process.kill()
            return
        self.process.send_signal(signal.SIGTERM)
        status = self.process.wait(self.stop_within)
        assert status == 0, f'status {status} after SIGTERM'

    def connect(self, **options):
        c = socket.create_connection(('127.0.0.1', self.port), PATIENCE)
        for name, value in options.items():
            c.setsockopt(socket.SOL_SOCKET, getattr(socket, name), value)
        c.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        return c

    def rss(self):
        with open(f'/proc/{self.process.pid}/statm') as f:
            return int(f.read().split()[1]) * resource.getpagesize()

    def cpu(self):
        with open(f'/proc/{self.process.pid}/stat') as f:
            fields = f.read().rsplit(')', 1)[1].split()
        return (int(fields[11]) + int(fields[12])) / os.sysconf('SC_CLK_TCK')


def reset(c):
    """Closes it with a reset: a peer that vanishes."""
    c.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack('ii', 1, 0))
    c.close()


def read_exactly(c, n):
    parts = []
    while n:
        part = c.recv(min(n, 1 << 20))
        assert part, f'the end, {n} bytes early'
        parts.append(part)
        n -= len(part)
    return b''.join(parts)


def read_all(c):
    parts = []
    while part := c.recv(1 << 16):
        parts.append(part)
    return b''.join(parts)


def eventually(true, otherwise=lambda: 'never true'):
    end = time.monotonic() + PATIENCE
    while not true():
        assert time.monotonic() < end, otherwise()
        time.sleep(0.01)


def run(cases, *arguments):
    """Runs the functions; those whose name contains one of the program's last arguments, if there are any."""
    wanted = arguments
    for case in cases:
        if wanted and not any(w in case.__name__ for w in wanted):
            continue
        print(f'{case.__name__:40}', end=' ', flush=True)
        start = time.monotonic()
        why = case()
        print(f'skipped: {why}' if why else f'ok {1000 * (time.monotonic() - start):9.1f} ms', flush=True)
