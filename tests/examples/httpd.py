# SPDX-License-Identifier: MIT
"""usage: httpd.py PROGRAM [CASE ...]: examples/httpd with curl, and with bytes that no good client sends."""
import re
import shutil
import socket
import subprocess
import sys
import threading
import time

import server

PROGRAM = sys.argv[1]
HELLO = b'GET /hello HTTP/1.1\r\nHost: x\r\n\r\n'
BODY = b'hello, world\n'


def httpd(*arguments, **options):
    return server.Server(PROGRAM, *arguments, '127.0.0.1:0', **options)


class Reader:
    """Reads answers from a connection: (status, headers, body)."""

    def __init__(self, c):
        self.c, self.rest = c, b''

    def more(self):
        part = self.c.recv(65536)
        if not part:
            raise EOFError(self.rest)
        self.rest += part

    def answer(self, body=True):
        while b'\r\n\r\n' not in self.rest:
            self.more()
        head, self.rest = self.rest.split(b'\r\n\r\n', 1)
        lines = head.decode().split('\r\n')
        assert re.fullmatch(r'HTTP/1.1 \d\d\d [\w -]+', lines[0]), lines
        headers = dict(line.lower().split(': ', 1) for line in lines[1:])
        n = int(headers.get('content-length', 0)) if body else 0
        while len(self.rest) < n:
            self.more()
        found, self.rest = self.rest[:n], self.rest[n:]
        return int(lines[0].split()[1]), headers, found

    def ends(self):
        assert self.rest == b'' and self.c.recv(1) == b'', 'more than the answer'


def ask(s, request):
    """The answer to one request, on a connection of its own."""
    with s.connect() as c:
        c.sendall(request)
        return Reader(c).answer()


def with_curl():
    if not shutil.which('curl'):
        return 'curl is not installed'
    with httpd() as s:
        url = f'http://127.0.0.1:{s.port}'

        def curl(*arguments, **options):
            r = subprocess.run(['curl', '-sS', '-m', str(server.PATIENCE), *arguments], capture_output=True, **options)
            assert r.returncode == 0, r
            return r.stdout
        assert curl(url + '/hello') == BODY
        assert curl(url + '/hello', url + '/work?n=1000', url + '/slow?ms=10') == BODY + b'168\n10\n'
        assert curl('-o', '/dev/null', '-o', '/dev/null', '-w', '%{num_connects},', url + '/hello', url + '/hello') == b'1,0,'
        assert curl('-I', url + '/hello').startswith(b'HTTP/1.1 200 OK\r\n')
        assert curl('-d', 'abc', url + '/length') == b'3\n'
        assert curl('--data-binary', '@-', url + '/length', input=b'x' * 1000000) == b'1000000\n'
        assert curl('-H', 'Transfer-Encoding: chunked', '--data-binary', '@-', url + '/length', input=b'x' * 50000) == b'50000\n'
        assert curl('-o', '/dev/null', '-w', '%{http_code}', '--data-binary', '@-', url + '/length', input=b'x' * 2000000) == b'413'
        assert curl('--http1.0', url + '/hello') == BODY
        assert curl('--http2', url + '/hello') == BODY
        assert len(curl(url + '/bytes?n=3000000')) == 3000000
        assert curl('-o', '/dev/null', '-w', '%{http_code}', url + '/nowhere') == b'404'


def keep_alive():
    with httpd() as s, s.connect() as c:
        r = Reader(c)
        for _ in range(100):
            c.sendall(HELLO)
            assert r.answer()[::2] == (200, BODY)
        c.sendall(HELLO.replace(b'Host', b'Connection: close\r\nHost'))
        status, headers, _ = r.answer()
        assert headers['connection'] == 'close'
        r.ends()
    with httpd() as s, s.connect() as c:  # HTTP/1.0 must ask for it
        c.sendall(b'GET /hello HTTP/1.0\r\nConnection: keep-alive\r\n\r\n' + b'GET /hello HTTP/1.0\r\n\r\n')
        r = Reader(c)
        assert r.answer()[1]['connection'] == 'keep-alive'
        assert r.answer()[1]['connection'] == 'close'
        r.ends()


def pipelining():
    """Answers come in the order of the requests, whatever each takes; a thousand at once are no problem."""
    with httpd() as s, s.connect() as c:
        r = Reader(c)
        requests = [b'GET /slow?ms=30 HTTP/1.1\r\nHost: x\r\n\r\n', HELLO, b'GET /work?n=10 HTTP/1.1\r\nHost: x\r\n\r\n']
        c.sendall(b''.join(requests))
        assert [r.answer()[2] for _ in requests] == [b'30\n', BODY, b'4\n']
        threading.Thread(target=c.sendall, args=(HELLO * 1000,)).start()
        assert all(r.answer()[::2] == (200, BODY) for _ in range(1000))
        c.sendall(HELLO + b'POST /length HTTP/1.1\r\nHost: x\r\nContent-Length: 5\r\n\r\n12345' + HELLO)
        assert [r.answer()[2] for _ in range(3)] == [BODY, b'5\n', BODY]


def an_answer_does_not_wait_for_the_next():
    with httpd() as s, s.connect() as c:
        start = time.monotonic()
        c.sendall(HELLO + b'GET /slow?ms=1000 HTTP/1.1\r\nHost: x\r\n\r\n')
        r = Reader(c)
        r.answer()
        assert time.monotonic() - start < 0.8 * server.SLOW
        r.answer()


def split_anywhere():
    request = b'POST /length HTTP/1.1\r\nHost: example\r\nExpect: 100-continue\r\nContent-Length: 7\r\n\r\n1234567' + HELLO
    with httpd() as s:
        for at in range(1, len(request)):
            with s.connect() as c:
                c.sendall(request[:at])
                time.sleep(0.001)
                c.sendall(request[at:])
                r = Reader(c)
                assert [r.answer()[::2] for _ in range(3)] == [(100, b''), (200, b'7\n'), (200, BODY)], at
        with s.connect() as c:
            for i in range(len(request)):
                c.sendall(request[i:i + 1])
            r = Reader(c)
            assert [r.answer()[0] for _ in range(3)] == [100, 200, 200]


def oversized():
    with httpd() as s:
        assert ask(s, b'GET /' + b'x' * 2000 + b' HTTP/1.1\r\nHost: x\r\n\r\n')[0] == 414
        assert ask(s, b'GET /hello HTTP/1.1\r\nHost: x\r\nCookie: ' + b'x' * 9000 + b'\r\n\r\n')[0] == 431
        assert ask(s, b'GET /hello HTTP/1.1\r\nHost: x\r\n' + b'A: b\r\n' * 100000)[0] == 431
        assert ask(s, b'POST /length HTTP/1.1\r\nHost: x\r\nContent-Length: 2000000\r\n\r\n')[0] == 413
        assert ask(s, b'POST /length HTTP/1.1\r\nHost: x\r\nContent-Length: 99999999999999999999999\r\n\r\n')[0] == 400
        chunks = b'POST /length HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked\r\n\r\n' + (b'10000\r\n' + b'x' * 65536 + b'\r\n') * 40
        assert ask(s, chunks)[0] == 413
        assert ask(s, b'GET /hello HTTP/1.1\r\nHost: x\r\nCookie: ' + b'x' * 7000 + b'\r\n\r\n')[0] == 200


def malformed():
    bad = [
        b'nonsense\r\n\r\n', b'GET\r\n\r\n', b'\x00\x01\x02\x03', b'\x16\x03\x01\x02\x00\x01',
        b'GET  HTTP/1.1\r\nHost: x\r\n\r\n',
        b'GET /hello HTTP/1.1\r\n\r\n',                              # no Host
        b'GET /hello HTTP/1.1\r\nHost: x\r\nHost: y\r\n\r\n',        # two
        b'GET /hello HTTP/1.1\r\nHost: x\r\nBad Name: y\r\n\r\n',
        b'POST /length HTTP/1.1\r\nHost: x\r\nContent-Length: abc\r\n\r\n',
        b'POST /length HTTP/1.1\r\nHost: x\r\nContent-Length: -1\r\n\r\n',
        b'POST /length HTTP/1.1\r\nHost: x\r\nContent-Length: 1\r\nContent-Length: 2\r\n\r\n12',
        b'POST /length HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked\r\n\r\nzz\r\n',
        b'POST /length HTTP/1.1\r\nHost: x\r\nContent-Length: 3\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n',
    ]
    with httpd() as s:
        for request in bad:
            with s.connect() as c:
                c.sendall(HELLO + request + HELLO)
                r = Reader(c)
                assert r.answer()[0] == 200
                status, headers, _ = r.answer()
                assert status == 400 and headers['connection'] == 'close', (request, status)
                r.ends()
        assert ask(s, b'GET /hello HTTP/2.0\r\nHost: x\r\n\r\n')[0] == 505
        assert ask(s, b'GET /hello\r\nHost: x\r\n\r\n')[0] == 505
        assert ask(s, b'DELETE /hello HTTP/1.1\r\nHost: x\r\n\r\n')[0] == 405
        for path in (b'/helloo', b'/slow', b'/slow?ms=', b'/slow?ms=x', b'/slow?ms=99999999', b'/work?n=-1', b'/bytes?n=1&n=2'):
            assert ask(s, b'GET ' + path + b' HTTP/1.1\r\nHost: x\r\n\r\n')[0] == 404, path
        assert ask(s, b'GET http://x/hello HTTP/1.1\r\nHost: x\r\n\r\n')[2] == BODY


def timeouts():
    with httpd('-t', '300') as s:
        with s.connect() as idle:
            start = time.monotonic()
            assert idle.recv(1) == b''
            assert 0.25 < time.monotonic() - start < 2 * server.SLOW
        with s.connect() as c:  # a drop at a time does not help
            try:
                for i in range(60):
                    c.sendall(HELLO[i % 10:i % 10 + 1] if i < 4 else b'x')
                    time.sleep(0.05)
            except (BrokenPipeError, ConnectionResetError):
                pass
            assert i < 59
        with s.connect() as c:
            c.sendall(b'POST /length HTTP/1.1\r\nHost: x\r\nContent-Length: 10\r\n\r\n123')
            r = Reader(c)
            assert r.answer()[0] == 408
            r.ends()
        with s.connect(SO_RCVBUF=4096) as deaf:
            deaf.sendall(b'GET /bytes?n=1000000000 HTTP/1.1\r\nHost: x\r\n\r\n')
            server.eventually(lambda: s.fds() <= s.before + server.OWN)


def clients_that_vanish():
    with httpd() as s:
        for i in range(200):
            c = s.connect()
            c.sendall([HELLO * 20, HELLO[:10], b'GET /bytes?n=100000000 HTTP/1.1\r\nHost: x\r\n\r\n',
                       b'GET /slow?ms=20 HTTP/1.1\r\nHost: x\r\n\r\n'][i % 4])
            server.reset(c)
        assert ask(s, HELLO)[2] == BODY


def uneven_requests():
    """A core that computes holds up nobody on another, or on its own for long."""
    with httpd() as s:
        def heavy():
            assert ask(s, b'GET /work?n=%d HTTP/1.1\r\nHost: x\r\n\r\n' % (1000000 // server.SLOW))[0] == 200
        busy = [threading.Thread(target=heavy) for _ in range(4)]
        for t in busy:
            t.start()
        time.sleep(0.05)
        late = []
        with s.connect() as c:
            r = Reader(c)
            while any(t.is_alive() for t in busy):
                start = time.monotonic()
                c.sendall(HELLO)
                r.answer()
                late.append(time.monotonic() - start)
        for t in busy:
            t.join()
        late.sort()
        assert late[len(late) // 2] < 0.1 * server.SLOW, late[len(late) // 2]


def ends_in_good_order():
    if not server.SIGNALS:
        return 'signals do not come through'
    with httpd() as s:
        idle, busy, half, quick = (s.connect() for _ in range(4))
        busy.sendall(b'GET /slow?ms=700 HTTP/1.1\r\nHost: x\r\n\r\n' + HELLO)
        half.sendall(b'POST /length HTTP/1.1\r\nHost: x\r\nContent-Length: 2\r\n\r\n1')
        quick.sendall(HELLO)
        Reader(quick).answer()
        time.sleep(0.2)
        stopper = threading.Thread(target=s.ends)
        stopper.start()
        assert idle.recv(1) == b'' and quick.recv(1) == b''  # at once
        try:
            socket.create_connection(('127.0.0.1', s.port), 1).close()
            raise AssertionError('it still accepts')
        except OSError:
            pass
        half.sendall(b'2')
        r = Reader(half)
        status, headers, body = r.answer()
        assert (status, headers['connection'], body) == (200, 'close', b'2\n')
        r = Reader(busy)
        status, headers, body = r.answer()
        assert (status, body) == (200, b'700\n')
        status, headers, body = r.answer()  # had come before the signal
        assert (status, headers['connection'], body) == (200, 'close', BODY)
        for c in (idle, busy, half, quick):
            c.close()
        stopper.join()
        s.settles = s.ends = lambda: None


server.run([with_curl, keep_alive, pipelining, an_answer_does_not_wait_for_the_next, split_anywhere, oversized, malformed, timeouts,
            clients_that_vanish, uneven_requests, ends_in_good_order], *sys.argv[2:])
