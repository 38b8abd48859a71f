#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""usage: unwind.py gdb|perf PROGRAM: the tool unwinds from deep in a goroutine to its entry, and stops there.
Exits with 77 (skipped) where the tool is not there or may not look at processes."""
import os
import re
import shutil
import subprocess
import sys
import tempfile

FRAMES = ["unwind_inner", "unwind_middle", "unwind_middle", "unwind_middle", "unwind_goroutine", "mag__park_main", "mag__arch_entry"]


def skip(why):
    print(f"skipped: {why}")
    sys.exit(77)


def frames_of_gdb(program):
    r = subprocess.run(["gdb", "-nx", "-batch", "-ex", "set debuginfod enabled off", "-ex", "run", "-ex", "bt", program],
                       capture_output=True, text=True, timeout=120)
    if "SIGTRAP" not in r.stdout:
        skip("gdb cannot run a program here: " + (r.stderr.strip().splitlines() or ["?"])[-1])
    print(r.stdout)
    names = re.findall(r"^#\d+ +(?:0x[0-9a-f]+ in )?([A-Za-z_][\w.]*)", r.stdout, re.M)
    return [n.replace(".", "__") for n in names]  # where it knows no language it takes two underscores for Ada's


def frames_of_perf(program):
    with tempfile.TemporaryDirectory() as d:
        data = os.path.join(d, "perf.data")
        r = subprocess.run(["perf", "record", "-q", "-e", "cpu-clock", "-F", "199", "--call-graph", "dwarf,16384", "-o", data, program, "spin"],
                           capture_output=True, text=True, timeout=120)
        if r.returncode != 0 or not os.path.exists(data):
            skip("perf cannot record here: " + (r.stderr.strip().splitlines() or ["?"])[-1])
        r = subprocess.run(["perf", "script", "-i", data, "-F", "ip,sym"], capture_output=True, text=True, timeout=120)
    best = []
    for sample in r.stdout.split("\n\n"):
        names = re.findall(r"^\s*[0-9a-f]+ (\S+)", sample, re.M)
        if "unwind_inner" in names:
            best = max(best, names, key=len)
    if not best:
        skip("perf took no sample in the goroutine")
    print("\n".join(best))
    return best


def main():
    tool, program = sys.argv[1:]
    if shutil.which(tool) is None:
        skip(f"{tool} is not installed")
    frames = (frames_of_gdb if tool == "gdb" else frames_of_perf)(program)
    at = frames.index("unwind_inner")
    if frames[at:] != FRAMES:
        sys.exit(f"{tool} saw {frames[at:]}\nwanted   {FRAMES}")


main()
