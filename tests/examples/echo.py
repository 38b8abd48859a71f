# SPDX-License-Identifier: MIT
"""usage: echo.py PROGRAM [CASE ...]: examples/echo with clients of every kind."""
import os
import random
import socket
import subprocess
import sys
import threading
import time

import server

PROGRAM = sys.argv[1]


def echo(**options):
    return server.Server(PROGRAM, '127.0.0.1:0', **options)


def comes_back(c, data):
    sender = threading.Thread(target=c.sendall, args=(data,))
    sender.start()
    assert server.read_exactly(c, len(data)) == data
    sender.join()


def small_and_large():
    with echo() as s, s.connect() as c:
        for n in (1, 64, 4096, 16384, 16385, 1 << 20):
            comes_back(c, os.urandom(n))


def one_byte_at_a_time():
    with echo() as s, s.connect() as c:
        for i in range(500):
            comes_back(c, bytes([i % 256]))


def half_close():
    with echo() as s, s.connect() as c:
        c.sendall(b'x' * 100000)
        c.shutdown(socket.SHUT_WR)
        assert server.read_all(c) == b'x' * 100000


def many_at_once():
    """Ten thousand, if as many descriptors are allowed; used and closed in any order, a part of them by a reset."""
    n = min(10000, server.FDS - 100) // server.SLOW
    with echo() as s:
        open_ones = [s.connect() for _ in range(n)]
        for c in open_ones:
            c.sendall(b'all of us')
        random.shuffle(open_ones)
        for c in open_ones:
            assert server.read_exactly(c, 9) == b'all of us'
        for i, c in enumerate(open_ones):
            server.reset(c) if i % 3 == 0 else c.close()


def peers_that_vanish():
    with echo() as s:
        for i in range(200):
            c = s.connect()
            c.sendall(b'x' * (i * 100))
            server.reset(c)
        with s.connect() as c:
            comes_back(c, b'still there')


def a_client_that_never_reads():
    """It fills its own buffers, and nobody else notices."""
    with echo() as s, s.connect(SO_RCVBUF=4096) as deaf, s.connect() as c:
        deaf.settimeout(0.3)
        sent = 0
        try:
            while True:
                sent += deaf.send(b'x' * 65536)
        except TimeoutError:
            pass
        for _ in range(100):
            comes_back(c, b'and we?')
        assert s.rss() < (400 if server.SLOW > 1 else 40) << 20, s.rss()
        server.reset(deaf)


def out_of_descriptors():
    """Who comes too late waits in the backlog; as soon as others leave, he is served."""
    with echo(fds=40) as s:
        crowd = [s.connect() for _ in range(60)]
        crowd[-1].sendall(b'late')
        comes_back(crowd[0], b'early')
        cpu = s.cpu()
        time.sleep(0.3)
        assert s.cpu() - cpu < 0.2, 'it spins'
        for c in crowd[:-1]:
            c.close()
        assert server.read_exactly(crowd[-1], 4) == b'late'
        crowd[-1].close()


def idle_costs_nothing():
    if server.SLOW > 1:
        return 'a machine or build that is slower'
    with echo() as s:
        crowd = [s.connect() for _ in range(100)]
        for c in crowd:
            comes_back(c, b'1')
        time.sleep(0.3)
        cpu = s.cpu()
        time.sleep(1)
        assert s.cpu() - cpu < 0.02, s.cpu() - cpu
        for c in crowd:
            c.close()


def bad_addresses():
    for address in ('nonsense', '127.0.0.1:99999', '127.0.0.1:', '300.0.0.1:1', ''):
        r = subprocess.run([*server.WRAPPER, PROGRAM, address], capture_output=True, text=True, timeout=server.PATIENCE)
        assert r.returncode == 1 and 'echo:' in r.stderr, (address, r)
    with echo() as s:
        r = subprocess.run([*server.WRAPPER, PROGRAM, f'127.0.0.1:{s.port}'], capture_output=True, text=True, timeout=server.PATIENCE)
        assert r.returncode == 1 and 'in use' in r.stderr, r


server.run([small_and_large, one_byte_at_a_time, half_close, many_at_once, peers_that_vanish, a_client_that_never_reads,
            out_of_descriptors, idle_costs_nothing, bad_addresses], *sys.argv[2:])
