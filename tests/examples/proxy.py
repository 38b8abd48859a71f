# SPDX-License-Identifier: MIT
"""usage: proxy.py PROXY ECHO [CASE ...]: examples/proxy in front of servers that behave and servers that do not."""
import os
import socket
import sys
import threading
import time

import server

PROXY, ECHO = sys.argv[1:3]


def proxy(target, **options):
    return server.Server(PROXY, '127.0.0.1:0', f'127.0.0.1:{target}', **options)


class Listener:
    """A target of our own: accept() gives the proxy's connection."""

    def __enter__(self):
        self.socket = socket.create_server(('127.0.0.1', 0))
        self.socket.settimeout(server.PATIENCE)
        self.port = self.socket.getsockname()[1]
        return self

    def __exit__(self, *_):
        self.socket.close()

    def accept(self):
        c = self.socket.accept()[0]
        c.settimeout(server.PATIENCE)
        return c


def there_and_back():
    with server.Server(ECHO, '127.0.0.1:0') as e, proxy(e.port) as s:
        crowd = [s.connect() for _ in range(50)]
        for c in crowd:
            c.sendall(b'hello')
        for c in crowd:
            assert server.read_exactly(c, 5) == b'hello'
        data = os.urandom(1 << 20)
        sender = threading.Thread(target=crowd[0].sendall, args=(data,))
        sender.start()
        assert server.read_exactly(crowd[0], len(data)) == data
        sender.join()
        for i in range(200):
            crowd[1].sendall(b'%d' % (i % 10))
            assert server.read_exactly(crowd[1], 1) == b'%d' % (i % 10)
        for c in crowd:
            c.close()


def half_close_of_the_client():
    with Listener() as l, proxy(l.port) as s, s.connect() as c, l.accept() as t:
        c.sendall(b'question')
        c.shutdown(socket.SHUT_WR)
        assert server.read_all(t) == b'question'
        time.sleep(0.05)
        t.sendall(b'an answer, later')
        t.close()
        assert server.read_all(c) == b'an answer, later'


def half_close_of_the_target():
    with Listener() as l, proxy(l.port) as s, s.connect() as c, l.accept() as t:
        t.sendall(b'greeting')
        t.shutdown(socket.SHUT_WR)
        assert server.read_all(c) == b'greeting'
        time.sleep(0.05)
        c.sendall(b'farewell')
        c.close()
        assert server.read_all(t) == b'farewell'


def back_pressure():
    """A target that does not read holds the client up, not the proxy's memory; then nothing is missing."""
    with Listener() as l, proxy(l.port) as s, s.connect(SO_SNDBUF=65536) as c, l.accept() as t:
        c.settimeout(0.5 * server.SLOW)
        sent, before = 0, s.rss()
        try:
            while sent < 1 << 30:
                sent += c.send(b'x' * 65536)
        except TimeoutError:
            pass
        assert sent < 64 << 20, sent
        assert s.rss() - before < 8 << 20, s.rss() - before
        reader = threading.Thread(target=lambda: c.shutdown(socket.SHUT_WR))
        reader.start()
        assert len(server.read_all(t)) == sent
        reader.join()


def a_reset_goes_on():
    with Listener() as l, proxy(l.port) as s:
        for vanish_first in (True, False) * 20:
            c = s.connect()
            t = l.accept()
            c.sendall(b'x')
            t.recv(1)
            gone, left = (c, t) if vanish_first else (t, c)
            server.reset(gone)
            try:
                assert left.recv(1) == b'', 'data from nobody'
                raise AssertionError('an orderly end instead of a reset')
            except ConnectionResetError:
                pass
            left.close()


def no_target():
    with Listener() as l:
        port = l.port
    with proxy(port) as s:
        for _ in range(20):
            try:
                with s.connect() as c:
                    assert c.recv(1) == b''
            except ConnectionResetError:
                pass


def ends_with_connections_open():
    if not server.SIGNALS:
        return 'signals do not come through'
    with Listener() as l, proxy(l.port) as s:
        pairs = [(s.connect(), l.accept()) for _ in range(10)]
        s.ends()
        for pair in pairs:
            for c in pair:
                c.close()
        s.settles = s.ends = lambda: None


server.run([there_and_back, half_close_of_the_client, half_close_of_the_target, back_pressure, a_reset_goes_on, no_target,
            ends_with_connections_open], *sys.argv[3:])
