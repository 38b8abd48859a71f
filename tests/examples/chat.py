# SPDX-License-Identifier: MIT
"""usage: chat.py PROGRAM [CASE ...]: examples/chat with members that talk, dribble, shout, sleep and vanish."""
import re
import sys
import time

import server

PROGRAM = sys.argv[1]


class Member:
    """A connection that reads by lines."""

    def __init__(self, s, name=None, **options):
        self.c, self.rest = s.connect(**options), b''
        self.until_match(r'\* welcome, guest \d+; .*')
        if name:
            self.say('/name ' + name)
            self.until_match(rf'\* guest \d+ is now {name}')

    def say(self, text):
        self.c.sendall(text.encode() + b'\n')

    def line(self):
        while b'\n' not in self.rest:
            part = self.c.recv(65536)
            assert part, 'thrown out'
            self.rest += part
        line, self.rest = self.rest.split(b'\n', 1)
        return line.decode()

    def until(self, wanted):
        self.until_match(re.escape(wanted))

    def until_match(self, pattern):
        while not re.fullmatch(pattern, self.line()):
            pass

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.c.close()


def chat():
    return server.Server(PROGRAM, '127.0.0.1:0')


def everybody_hears():
    with chat() as s, Member(s, 'ann') as ann, Member(s, 'bob') as bob, Member(s, 'cy') as cy:
        ann.say('good morning')
        bob.until('ann: good morning')
        cy.until('ann: good morning')
        bob.say('hello ann\r')
        ann.until('bob: hello ann')
        cy.c.close()
        ann.until('* cy has left')


def order_is_kept():
    with chat() as s, Member(s, 'ann') as ann, Member(s) as bob:
        for i in range(200):
            ann.say(str(i))
            bob.until(f'ann: {i}')


def one_byte_at_a_time():
    with chat() as s, Member(s) as listener, Member(s, 'slow') as slow:
        for byte in b'half a word, then the rest\n':
            slow.c.sendall(bytes([byte]))
            time.sleep(0.001)
        listener.until('slow: half a word, then the rest')


def a_line_without_end():
    with chat() as s, Member(s) as listener, Member(s, 'long') as talker:
        talker.c.sendall(b'y' * 5000 + b'\n')
        got = ''
        while len(got) < 5000:
            line = listener.line()
            if line.startswith('long: '):
                got += line[6:]
        assert got == 'y' * 5000


def a_slow_reader_loses_lines():
    """He holds nobody up, the server's memory stays small, and he is told what he missed."""
    text = 'z' * 900
    with chat() as s, Member(s) as sleeper, Member(s) as awake, Member(s, 'loud') as loud:
        before = s.rss()
        for i in range(1500):
            loud.say(f'{i} {text}')
            awake.until(f'loud: {i} {text}')
        assert s.rss() - before < 16 << 20, s.rss() - before
        loud.say('the end')
        sleeper.until_match(r'\* you missed \d+ lines')


def a_dead_reader_is_thrown_out():
    text = 'z' * 900
    with chat() as s, Member(s, 'dead'), Member(s) as awake, Member(s, 'loud') as loud:
        for i in range(1500):
            loud.say(f'{i} {text}')
            awake.until(f'loud: {i} {text}')
        awake.until('* dead has left')


def members_that_vanish():
    with chat() as s, Member(s) as listener:
        for i in range(100):
            m = Member(s, f'ghost{i}')
            m.c.sendall(b'boo')
            server.reset(m.c)
            listener.until(f'* ghost{i} has left')


def ends_in_the_middle():
    if not server.SIGNALS:
        return 'signals do not come through'
    with chat() as s:
        crowd = [Member(s, f'm{i}') for i in range(20)]
        for m in crowd:
            m.say('talk')
        s.ends()
        for m in crowd:
            m.c.close()
        s.settles = s.ends = lambda: None


server.run([everybody_hears, order_is_kept, one_byte_at_a_time, a_line_without_end, a_slow_reader_loses_lines,
            a_dead_reader_is_thrown_out, members_that_vanish, ends_in_the_middle], *sys.argv[2:])
