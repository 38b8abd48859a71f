# SPDX-License-Identifier: MIT
"""usage: redis.py PROGRAM [CASE ...]: examples/redis with redis-cli, redis-benchmark and a client of our own."""
import os
import random
import shutil
import subprocess
import sys
import threading
import time

import server

PROGRAM = sys.argv[1]


def redis():
    return server.Server(PROGRAM, '127.0.0.1:0')


class Error(str):
    pass


class Client:
    def __init__(self, s):
        self.c = s.connect()
        self.f = self.c.makefile('rb')

    @staticmethod
    def pack(*words):
        words = [w if isinstance(w, bytes) else str(w).encode() for w in words]
        return b'*%d\r\n' % len(words) + b''.join(b'$%d\r\n%s\r\n' % (len(w), w) for w in words)

    def reply(self):
        line = self.f.readline()
        assert line.endswith(b'\r\n'), line
        kind, rest = line[:1], line[1:-2]
        if kind == b'+':
            return rest.decode()
        if kind == b'-':
            return Error(rest.decode())
        if kind == b':':
            return int(rest)
        if kind == b'$':
            n = int(rest)
            return None if n < 0 else self.f.read(n + 2)[:-2]
        assert kind == b'*', line
        return [self.reply() for _ in range(int(rest))]

    def __call__(self, *words):
        self.c.sendall(self.pack(*words))
        return self.reply()

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.f.close()
        self.c.close()


def every_command():
    with redis() as s, Client(s) as r:
        assert r('PING') == 'PONG' and r('ping', 'x') == b'x' and r('ECHO', 'y') == b'y'
        assert r('GET', 'a') is None and r('SET', 'a', '1') == 'OK' and r('GET', 'a') == b'1'
        assert r('SET', 'a', b'\r\n\x00binary') == 'OK' and r('GET', 'a') == b'\r\n\x00binary'
        assert r('SET', 'empty', '') == 'OK' and r('GET', 'empty') == b''
        assert r('MSET', 'x', 1, 'y', 2) == 'OK' and r('MGET', 'x', 'none', 'y') == [b'1', None, b'2']
        assert r('EXISTS', 'x', 'y', 'z', 'x') == 3 and r('DEL', 'x', 'y', 'z') == 2 and r('DEL', 'x') == 0
        assert r('INCR', 'n') == 1 and r('INCR', 'n') == 2 and r('INCRBY', 'n', -5) == -3 and r('DECR', 'n') == -4
        assert r('DECRBY', 'n', 6) == -10 and r('GET', 'n') == b'-10'
        assert 'not an integer' in r('INCR', 'a') and 'not an integer' in r('INCRBY', 'n', 'x')
        r('SET', 'n', 2**63 - 1)
        assert 'overflow' in r('INCR', 'n') and r('DECR', 'n') == 2**63 - 2
        assert r('SET', 'a', 2, 'NX') is None and r('SET', 'b', 2, 'XX') is None and r('SET', 'b', 3, 'nx') == 'OK'
        assert 'syntax' in r('SET', 'a', 1, 'WHAT') and 'wrong number' in r('GET') and 'wrong number' in r('GET', 1, 2)
        assert 'unknown command' in r('FLY') and 'unknown command' in r('x' * 5000) and 'wrong number' in r('MSET', 1, 2, 3)
        assert r('DBSIZE') == 4 and r('FLUSHALL') == 'OK' and r('DBSIZE') == 0
        assert r('CONFIG', 'GET', 'save') == [b'save', b''] and isinstance(r('COMMAND', 'DOCS'), list) and r('SELECT', 0) == 'OK'
        assert r('QUIT') == 'OK' and r.c.recv(1) == b''


def expiry():
    with redis() as s, Client(s) as r:
        assert r('TTL', 'a') == -2 and r('EXPIRE', 'a', 1) == 0
        r('SET', 'a', 1)
        assert r('TTL', 'a') == -1 and r('EXPIRE', 'a', 100) == 1 and r('TTL', 'a') == 100 and 99000 < r('PTTL', 'a') <= 100000
        r('INCR', 'a')
        assert r('TTL', 'a') == 100 and r('PERSIST', 'a') == 1 and r('PERSIST', 'a') == 0 and r('TTL', 'a') == -1
        assert r('SET', 'a', 1, 'EX', 50) == 'OK' and r('TTL', 'a') == 50 and r('SET', 'a', 2, 'KEEPTTL') == 'OK' and r('TTL', 'a') == 50
        assert r('SET', 'a', 1) == 'OK' and r('TTL', 'a') == -1 and r('EXPIRE', 'a', -1) == 1 and r('GET', 'a') is None
        assert 'invalid expire' in r('SET', 'a', 1, 'EX', 0) and 'not an integer' in r('SET', 'a', 1, 'EX')
        assert r('SET', 'a', 1, 'EX', 2**62) == 'OK' and r('GET', 'a') == b'1' and r('DEL', 'a') == 1
        for i in range(1000):
            r('SET', f'k{i}', 'v', 'PX', 100)
        assert r('DBSIZE') > 0
        time.sleep(0.11)
        assert r('GET', 'k1') is None and r('MGET', 'k2', 'k3') == [None, None] and r('INCR', 'k4') == 1 and r('TTL', 'k4') == -1
        server.eventually(lambda: r('DBSIZE') == 1, lambda: f"{r('DBSIZE')} keys left")  # also those that nobody asks for


def pipelines_split_anywhere():
    """The same bytes in pieces of any size give the same replies."""
    commands = []
    for i in range(300):
        commands += [('SET', f'k{i}', 'v' * random.randrange(200)), ('GET', f'k{i}'), ('INCR', 'n'), ('MGET', f'k{i}', 'n')]
    data = b''.join(Client.pack(*c) for c in commands) + b'PING\r\n\r\nping  word \n' * 3
    n = len(commands) + 6
    replies = None
    with redis() as s:
        for size in (len(data), 1, 7, 100, 16384, 5000):
            if size == 1 and server.SLOW > 1:
                continue
            with Client(s) as r:
                r('FLUSHALL')

                def send():
                    for at in range(0, len(data), size):
                        r.c.sendall(data[at:at + size])
                t = threading.Thread(target=send)
                t.start()
                got = [r.reply() for _ in range(n)]
                t.join()
                replies = replies or got
                assert got == replies


def large_values():
    with redis() as s, Client(s) as r:
        big = os.urandom(10 << 20)
        for n in (15000, 16384, 100000, 10 << 20):
            assert r('SET', 'big', big[:n]) == 'OK' and r('GET', 'big') == big[:n]
        assert [r('SET', 'small', i) for i in range(5)] == ['OK'] * 5
        assert r('MGET', *['small'] * 1000) == [b'4'] * 1000


def broken_protocol():
    with redis() as s:
        for data in (b'*x\r\n', b'*99999\r\n', b'*1\r\nx', b'*1\r\n$x\r\n', b'*1\r\n$-1\r\n', b'*1\r\n$99999999999999\r\n', b'*1a\r\n',
                     b'x' * 100000, b'*1\r\n$3 \r\n'):
            with Client(s) as r:
                r.c.sendall(Client.pack('PING') + data)
                assert r.reply() == 'PONG'
                try:
                    assert 'Protocol error' in r.reply(), data
                    assert r.c.recv(1) == b''
                except ConnectionResetError:
                    assert len(data) > 10000
        for _ in range(50):
            with Client(s) as r:
                r.c.sendall(b'*3\r\n$3\r\nSET\r\n$5\r\nhel')  # and vanishes


def a_client_that_never_reads():
    with redis() as s, Client(s) as deaf, Client(s) as r:
        deaf('SET', 'v', 'x' * 100000)
        deaf.c.settimeout(0.3)
        try:
            while True:
                deaf.c.send(Client.pack('GET', 'v') * 100)
        except TimeoutError:
            pass
        for i in range(100):
            assert r('SET', 'w', i) == 'OK'
        assert s.rss() < (400 if server.SLOW > 1 else 60) << 20, s.rss()
        server.reset(deaf.c)


def many_count_together():
    with redis() as s:
        def count():
            with Client(s) as r:
                for _ in range(20):
                    r.c.sendall(Client.pack('INCR', 'n') * 16)
                    for _ in range(16):
                        r.reply()
        crowd = [threading.Thread(target=count) for _ in range(20)]
        for t in crowd:
            t.start()
        for t in crowd:
            t.join()
        with Client(s) as r:
            assert r('GET', 'n') == b'%d' % (20 * 20 * 16)


def with_redis_cli():
    if not shutil.which('redis-cli'):
        return 'redis-cli is not installed'
    with redis() as s:
        def cli(*words):
            r = subprocess.run(['redis-cli', '-p', str(s.port), *words], capture_output=True, text=True, timeout=server.PATIENCE)
            assert r.returncode == 0, r
            return r.stdout.strip()
        assert cli('SET', 'greeting', 'hello world') == 'OK' and cli('GET', 'greeting') == 'hello world'
        assert cli('INCR', 'n') == '1' and cli('EXPIRE', 'n', '100') == '1' and cli('TTL', 'n') == '100'
        r = subprocess.run(['redis-cli', '-p', str(s.port)], input='SET a 1\nMGET a none\nPING\nQUIT\n', capture_output=True, text=True,
                           timeout=server.PATIENCE)
        assert r.returncode == 0 and 'PONG' in r.stdout, r


def with_redis_benchmark():
    if not shutil.which('redis-benchmark'):
        return 'redis-benchmark is not installed'
    with redis() as s:
        r = subprocess.run(['redis-benchmark', '-p', str(s.port), '-t', 'ping,set,get,incr,mset', '-n', str(20000 // server.SLOW), '-P',
                            '16', '-r', '1000', '--csv'], capture_output=True, text=True, timeout=3 * server.PATIENCE)
        assert r.returncode == 0 and 'rror' not in r.stdout and r.stdout.count('\n') >= 7, r


server.run([every_command, expiry, pipelines_split_anywhere, large_values, broken_protocol, a_client_that_never_reads,
            many_count_together, with_redis_cli, with_redis_benchmark], *sys.argv[2:])
