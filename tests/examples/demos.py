# SPDX-License-Identifier: MIT
"""usage: demos.py HELLO FIB IMBALANCE [CASE ...]: the first programs that somebody will run say what they should."""
import os
import pty
import re
import subprocess
import sys

import server

HELLO, FIB, IMBALANCE = sys.argv[1:4]


def says(program, *arguments, procs, status=0, **options):
    r = subprocess.run([*server.WRAPPER, program, *arguments], capture_output=True, text=True, timeout=server.PATIENCE,
                       env={**os.environ, 'MAGPIE_PROCS': str(procs)}, **options)
    assert r.returncode == status, (arguments, r)
    assert status or not r.stderr, r.stderr
    return r.stdout if not status else r.stderr


def hello():
    for procs in 1, 2, 4:
        lines = says(HELLO, procs=procs).splitlines()
        found = [re.fullmatch(r'hello from goroutine (\d+), number (\d)', line) for line in lines]
        assert all(found), lines
        assert sorted(m[2] for m in found) == list('0123456789'), lines
        assert len({m[1] for m in found}) == 10, lines


def fib():
    numbers, made = [0, 1], [0, 0]
    for n in range(2, 21):
        numbers.append(numbers[n - 1] + numbers[n - 2])
        made.append(1 + made[n - 1] + made[n - 2])
    for n, procs in (1, 1), (2, 1), (20, 1), (20, 2), (20, 4):
        text = says(FIB, str(n), procs=procs)
        found = re.fullmatch(r'fib\((\d+)\) = (\d+) on (\d+) procs: \d+ ms, (\d+) goroutines, \d+ ns each, \d+ steals\n', text)
        assert found, text
        expected = [n, numbers[n], procs, made[n] + 1]  # and main
        assert [int(x) for x in found.groups()] == expected, (text, expected)


ROW = re.compile(r'  P(\d+) +created +(\d+), ran +(\d+), stole +(\d+) in (\d+) steals')
LOST = re.compile(r'  (\d+) lost their P on the way: the machine is busy')
LAST = re.compile(r'(\d+) procs: [\d.]+ s, (\d+) steals moved (\d+) goroutines\. 1 proc: [\d.]+ s\. Speed-up ([\d.]+)')


def imbalance_sums(text, n, procs):
    first, *rows, last = text.splitlines()
    assert first == f'{n} goroutines of about 2 ms each, all created on one P', first
    lost = LOST.fullmatch(rows[-1])
    table = [ROW.fullmatch(row) for row in (rows[:-1] if lost else rows)]
    assert all(table) and len(table) == procs, text
    _, created, ran, stolen, steals = zip(*[[int(x) for x in row.groups()] for row in table])
    assert created[0] == n and not any(created[1:]), text  # as the first line says
    assert sum(ran) + (int(lost[1]) if lost else 0) == n, text
    end = LAST.fullmatch(last)
    assert end and [int(x) for x in end.groups()[:3]] == [procs, sum(steals), sum(stolen)], text
    assert float(end[4]) > 0, text
    return sum(stolen), sum(steals)


def imbalance():
    assert imbalance_sums(says(IMBALANCE, '100', procs=1), 100, 1) == (0, 0)
    for procs in 2, 3:
        stolen, steals = imbalance_sums(says(IMBALANCE, '450', procs=procs), 450, procs)  # three waves
        assert stolen >= 100 and steals >= 3, (stolen, steals)
    assert 'usage' in says(IMBALANCE, '0', procs=2, status=2)


def imbalance_draws():
    """On a terminal: bars while it runs, in lines that fit 80 columns, and the same words at the end."""
    try:
        there, here = pty.openpty()
    except OSError as why:  # a bare container has none
        return why
    process = subprocess.Popen([*server.WRAPPER, IMBALANCE, '300'], stdout=here, env={**os.environ, 'MAGPIE_PROCS': '2'})
    os.close(here)
    text = b''
    try:
        while part := os.read(there, 65536):
            text += part
    except OSError:  # the other end is closed
        pass
    os.close(there)
    assert process.wait(server.PATIENCE) == 0
    text = text.decode().replace('\r\n', '\n')
    head, *pictures, end = text.split('\033[2A')
    assert len(pictures) >= 3, text
    for picture in pictures:
        lines = picture.replace('\033[K', '').splitlines()
        assert len(lines) == 2 and all(len(line) < 80 for line in lines), lines
        assert all(re.fullmatch(r'  P\d  #* +\d+ run +\d+ stolen +\d+ waiting', line) for line in lines), lines
    assert pictures[-1].count('#') > pictures[0].count('#'), text
    assert end.startswith('\033[J'), text
    imbalance_sums(head.splitlines()[0] + '\n' + end[3:], 300, 2)


server.run([hello, fib, imbalance, imbalance_draws], *sys.argv[4:])
