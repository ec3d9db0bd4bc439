#!/usr/bin/env python3
"""Runs this suite: run.py [--bin FOLDER] [arguments of pytest].

With the Python that has what it takes: this one, else Debian's. Exits with 77 (skipped) and the
reason where none has.
"""

import argparse
import os
import pathlib
import subprocess
import sys

MODULES = ("zmq", "msgpack", "numpy", "pytest")


def missing(python):
    """None when it has all."""
    try:
        found = subprocess.run([python, "-c", "import " + ", ".join(MODULES)], check=False,
                               capture_output=True, text=True)
    except OSError as problem:
        return str(problem)
    return None if found.returncode == 0 else found.stderr.strip().splitlines()[-1]


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--bin", help="the folder of penstockd")
    options, arguments = parser.parse_known_args()
    reasons = {python: missing(python) for python in (sys.executable, "/usr/bin/python3")}
    able = [python for python, reason in reasons.items() if reason is None]
    if not able:
        for python, reason in reasons.items():
            print(f"skipped: {python}: {reason}")
        print("install python3-zmq python3-msgpack python3-numpy python3-pytest, or with pip pyzmq "
              "msgpack numpy pytest")
        return 77
    folder = pathlib.Path(__file__).resolve().parent
    environment = {**os.environ, "PYTHONPATH": str(folder.parent / "src"),
                   "PYTHONDONTWRITEBYTECODE": "1"}
    if options.bin:
        environment["PENSTOCK_BIN"] = options.bin
    os.chdir(folder.parent)
    os.execve(able[0], [able[0], "-m", "pytest", *arguments], environment)


if __name__ == "__main__":
    sys.exit(main())
