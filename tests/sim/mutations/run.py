#!/usr/bin/env python3
"""Plants each bug of planted.py into a copy of its source file, links the simulation with that
copy instead of the original, and looks for the first seed that finds it.

  tests/sim/mutations/run.py --build build/release [--seeds 1000] [--only NAME]

Nothing in the tree is touched. A bug that no seed finds makes it fail."""

import argparse
import pathlib
import re
import shlex
import subprocess
import sys
import time

from planted import BUGS

TOP = pathlib.Path(__file__).resolve().parents[3]
PROGRAM = "penstock_sim_seeds"


def commands(build):
    out = subprocess.run(["ninja", "-C", str(build), "-t", "commands", PROGRAM], check=True,
                         capture_output=True, text=True).stdout
    return [line for line in out.splitlines() if line]


def compile_of(source, lines):
    """How the build compiles the file; without what it writes about dependencies."""
    for line in lines:
        words = shlex.split(line)
        if "-c" in words and words[words.index("-c") + 1] == str(TOP / source):
            cut = [i for i, word in enumerate(words) if word in ("-MT", "-MF", "-o", "-c")]
            drop = {j for i in cut for j in (i, i + 1)}
            return [w for i, w in enumerate(words) if i not in drop and w != "-MD"]
    raise SystemExit(f"{source}: the simulation is not built from it")


def link_of(lines):
    for line in reversed(lines):
        found = re.search(r"(\S*c\+\+\S* .* -o bin/%s .*?)( && :)?$" % PROGRAM, line)
        if found:
            return shlex.split(found.group(1))
    raise SystemExit("no command links " + PROGRAM)


def plant(bug, folder, build, lines):
    text = (TOP / bug.file).read_text()
    if text.count(bug.old) != 1:
        raise SystemExit(f"{bug.name}: what is to be replaced is {text.count(bug.old)} times in "
                         f"{bug.file}: mend planted.py")
    folder.mkdir(parents=True, exist_ok=True)
    source = folder / pathlib.Path(bug.file).name
    source.write_text(text.replace(bug.old, bug.new))
    mutant = folder / "mutant.o"
    subprocess.run(compile_of(bug.file, lines) + ["-w", "-c", str(source), "-o", str(mutant)],
                   cwd=build, check=True)
    # Before the libraries: nothing is left undefined that the original would be taken for.
    link = link_of(lines)
    program = folder / PROGRAM
    link[link.index("-o") + 1] = str(program)
    first = next(i for i, word in enumerate(link) if word.endswith(".o"))
    link.insert(first, str(mutant))
    subprocess.run(link, cwd=build, check=True)
    return program


def hunt(program, seeds, limit):
    """The first seed that finds it, and what it says."""
    try:
        done = subprocess.run([str(program), "--seeds", f"1-{seeds}", "--workers", "1"],
                              capture_output=True, text=True, timeout=limit)
    except subprocess.TimeoutExpired:
        return None, f"a run took longer than {limit} s"
    found = re.search(r"^seed (\d+): (.*)$", done.stdout, re.M)
    if found:
        return int(found.group(1)), found.group(2)
    if "a worker died" in done.stdout:
        return first_that_dies(program, seeds, limit), "the process dies"
    return None, f"not found within {seeds} seeds"


def first_that_dies(program, seeds, limit):
    """A process that dies does not say at which seed."""
    end = time.monotonic() + limit
    for seed in range(1, seeds + 1):
        if time.monotonic() > end:
            break
        try:
            done = subprocess.run([str(program), "--seed", str(seed)], timeout=limit,
                                  stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        except subprocess.TimeoutExpired:
            return seed
        if done.returncode not in (0, 1):
            return seed
    return None


def main():
    parser = argparse.ArgumentParser(description=__doc__,
                                     formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--build", type=pathlib.Path, required=True)
    parser.add_argument("--seeds", type=int, default=1000)
    parser.add_argument("--limit", type=int, default=120, help="seconds for each bug")
    parser.add_argument("--only", action="append", default=[])
    arguments = parser.parse_args()
    build = arguments.build.resolve()
    lines = commands(build)
    missed = 0
    print("| bug | promise | found by seed | how it shows |\n|---|---|---|---|")
    for bug in BUGS:
        if arguments.only and bug.name not in arguments.only:
            continue
        began = time.monotonic()
        program = plant(bug, build / "mutations" / bug.name, build, lines)
        seed, words = hunt(program, arguments.seeds, arguments.limit)
        program.unlink()
        missed += seed is None
        print(f"| {bug.name} | {bug.promise} | {seed if seed else 'none'} | {words} |", flush=True)
        print(f"{bug.name}: {time.monotonic() - began:.0f} s", file=sys.stderr)
    return 1 if missed else 0


if __name__ == "__main__":
    sys.exit(main())
