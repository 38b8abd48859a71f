# SPDX-License-Identifier: MIT
"""What the checks share. A check is a function from a directory to a list of complaints."""

import pathlib
import re
import sys
import tempfile

ROOT = pathlib.Path(__file__).resolve().parent.parent
TOKEN = re.compile(r'/\*.*?\*/|//[^\n]*|"(?:\\.|[^"\\\n])*"|' + r"'(?:\\.|[^'\\\n])*'", re.S)


def sources(root):
    return sorted(p for p in (root / 'src').rglob('*') if p.suffix in ('.c', '.h', '.S'))


def split(text):
    """The text twice, without its comments and with nothing but them; every character keeps its line and column."""
    blank = lambda s: re.sub(r'[^\n]', ' ', s)
    code, comments, at = [], [], 0
    for token in TOKEN.finditer(text):
        plain, found = text[at:token.start()], token[0]
        is_comment = found.startswith('/')
        code += [plain, blank(found) if is_comment else found]
        comments += [blank(plain), found if is_comment else blank(found)]
        at = token.end()
    return ''.join(code) + text[at:], ''.join(comments) + blank(text[at:])


def tree(files):
    """A temporary directory with these files: {path: text}."""
    holder = tempfile.TemporaryDirectory(prefix='magpie-check-')
    for path, text in files.items():
        file = pathlib.Path(holder.name) / path
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(text)
    return holder


def self_test(check, good, bad):
    """The good tree passes; each bad one, the good one with some files changed, gives a complaint with these words."""
    with tree(good) as holder:
        complaints = check(pathlib.Path(holder))
        assert not complaints, complaints
    for words, changes in bad.items():
        with tree({**good, **changes}) as holder:
            complaints = check(pathlib.Path(holder))
            assert any(words in c for c in complaints), f'no complaint says "{words}": {complaints}'
            print(f'complains as it should: {words}')


def finish(complaints, praise):
    for complaint in complaints:
        print(complaint)
    if complaints:
        sys.exit(1)
    print(praise)
