#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""Is every ordering needed? Weakens each one, alone, and expects a model test to fail.

An ordering id stands in a comment on the line of its access: `at_32_store_rel(&q->tail, t + 1); /* RQ1 */`. A mutant
is a copy of the file in which the access on one such line is relaxed, or the fence is gone. It is built into the
programs below and run. A mutant that survives is a failure: a test is missing, or the ordering is not needed and
should go.

    mutate.py [--only RQ2] [--list] [--cc gcc] [--jobs N] [--src DIR]
"""
import argparse
import concurrent.futures
import os
import pathlib
import re
import subprocess
import sys
import tempfile

HERE = pathlib.Path(__file__).resolve().parent
ROOT = HERE.parent.parent

# program: its test, the code under test, defines; as in meson.build
PROGRAMS = {
    "runq-2": ("runq.c", ["core/runq.c"], ["-DRUNQ_SIZE=2u"]),
    "runq-4": ("runq.c", ["core/runq.c"], ["-DRUNQ_SIZE=4u"]),
    "lifo-2": ("lifo.c", ["core/lifo.c"], ["-DLIFO_SIZE=2u"]),
    "lifo-4": ("lifo.c", ["core/lifo.c"], ["-DLIFO_SIZE=4u"]),
    "idle": ("idle.c", ["core/globq.c", "core/idle.c", "core/parker.c", "os/lock.c"], []),
    "parker": ("parker.c", ["core/parker.c"], []),
    "lock": ("lock.c", ["core/globq.c", "os/lock.c"], []),
}
# who must notice, the quickest first
FILES = {
    "core/runq.c": ["runq-2", "runq-4"],
    "core/runq.h": ["runq-2", "runq-4"],
    "core/lifo.c": ["lifo-2", "lifo-4"],
    "core/lifo.h": ["lifo-2", "lifo-4"],
    "core/idle.c": ["idle"],
    "core/parker.c": ["parker"],
    "core/globq.h": ["lock"],
    "core/globq.c": ["lock"],
    "os/lock.c": ["lock"],
    "os/lock.h": ["lock"],
}
EXPLORER = ["explore.c", "memory.c", "race.c"]
FLAGS = ["-std=gnu11", "-O2", "-D_GNU_SOURCE", "-DMAG_MODEL", "-DMAG_CHECKS", "-DPROCS_MAX=128", "-DLOCK_SPINS=1",
         "-U_FORTIFY_SOURCE", "-fno-pie", "-w"]
HOOKED = ["-fsanitize=thread"]  # calls the hooks of the explorer: not for linking

IDS = re.compile(r"/\*((?: [A-Z]+[0-9]+)+) \*/")
FENCE = re.compile(r"\bat_fence_seq\(\)")
ACCESS = re.compile(r"\b(at_(?:32|64|ptr)_\w+?)_(?:acqrel|acq|rel)\(")


def weaken(line):
    weaker = ACCESS.sub(r"\1_rlx(", FENCE.sub("(void)0", line))
    return weaker if weaker != line else None


def find_mutants(src):
    for name in FILES:
        lines = (src / name).read_text().splitlines()
        for i, line in enumerate(lines):
            ids, weaker = IDS.search(line), weaken(line)
            if ids and weaker:
                text = "\n".join(lines[:i] + [weaker] + lines[i + 1:]) + "\n"
                yield {"name": name, "line": i + 1, "ids": ids.group(1).split(), "code": line.strip(), "text": text}


class Builder:
    def __init__(self, args, out):
        self.cc, self.src, self.out = args.cc.split(), args.src, out
        self.explorer = [self.compile(HERE / f, out / f"explorer-{f}.o", []) for f in EXPLORER]

    def compile(self, source, target, flags):
        target.parent.mkdir(parents=True, exist_ok=True)
        include = [f"-I{ROOT / 'include'}", f"-I{self.src}", f"-I{HERE}"]
        subprocess.run([*self.cc, *FLAGS, *flags, *include, "-c", source, "-o", target], check=True)
        return target

    def program(self, name, where, replaced=None):
        """Builds a program; a file under `replaced`, a tree like src, takes the place of the real one."""
        test, sources, flags = PROGRAMS[name]
        flags = [*HOOKED, *flags, *([f"-I{replaced}"] if replaced else [])]
        objects = [self.compile(HERE / test, where / name / "test.o", flags)]
        for s in sources:
            real = replaced / s if replaced and (replaced / s).exists() else self.src / s
            objects.append(self.compile(real, where / name / (s.replace("/", "-") + ".o"), flags))
        subprocess.run([*self.cc, "-no-pie", *objects, *self.explorer, "-o", where / name / "run"], check=True)
        return where / name / "run"


def failure(program):
    """What the program complains of first, or None."""
    run = subprocess.run([program, "--first", "1"], stdout=subprocess.PIPE, text=True)
    for case, why in re.findall(r"^(.*?) +FAILED.*\n +(.*)$", run.stdout, re.M):
        return f"{case}: {why}"
    return f"exit status {run.returncode}" if run.returncode != 0 else None


def catch(builder, number, mutant):
    where = builder.out / str(number)
    copy = where / "src" / mutant["name"]
    copy.parent.mkdir(parents=True)
    copy.write_text(mutant["text"])
    for name in FILES[mutant["name"]]:
        why = failure(builder.program(name, where, where / "src"))
        if why:
            return f"{name}: {why}"
    return None


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--cc", default=os.environ.get("CC", "gcc"))
    parser.add_argument("--src", type=pathlib.Path, default=ROOT / "src", help="another tree in place of src")
    parser.add_argument("--only", help="an ordering id")
    parser.add_argument("--list", action="store_true", help="the mutants, without running them")
    parser.add_argument("--jobs", type=int, default=os.cpu_count())
    args = parser.parse_args()
    mutants = [m for m in find_mutants(args.src) if args.only is None or args.only in m["ids"]]
    if args.list:
        for m in mutants:
            print(f"{m['name']}:{m['line']}: {m['code']}")
        return 0
    bad = 0
    with tempfile.TemporaryDirectory() as out, concurrent.futures.ThreadPoolExecutor(args.jobs) as pool:
        builder = Builder(args, pathlib.Path(out))
        needed = sorted({p for m in mutants for p in FILES[m["name"]]})
        for name, why in zip(needed, pool.map(lambda n: failure(builder.program(n, builder.out / "real")), needed)):
            if why:  # then it tells nothing that it fails with a mutant
                print(f"FAILED    {name} without any mutant: {why}")
                bad += 1
        caught = pool.map(lambda m: catch(builder, *m), enumerate(mutants)) if not bad else []
        for m, by in zip(mutants, caught):
            print(f"{'caught  ' if by else 'SURVIVED'}  {m['name']}:{m['line']}: {m['code']}")
            print(f"          {by or 'no test fails without this ordering'}", flush=True)
            bad += by is None
    print(f"{len(mutants)} orderings, {bad} complaints")
    return bad != 0 or not mutants


if __name__ == "__main__":
    sys.exit(main())
