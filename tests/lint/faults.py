#!/usr/bin/env python3
"""Every test that docs/faults.md names exists, and every bug that it says is planted is."""

import pathlib
import re
import sys

TOP = pathlib.Path(__file__).resolve().parents[2]
TEST = re.compile(r"^TEST(?:_F|_P)?\((\w+),\s*(\w+)\)", re.M)


def main():
    tests = set()
    for source in TOP.glob("tests/**/*_test.cpp"):
        tests |= {".".join(found) for found in TEST.findall(source.read_text())}
    fuzz = re.findall(r"^penstock_fuzz\((\w+)", (TOP / "tests/fuzz/CMakeLists.txt").read_text(), re.M)
    tests |= {f"fuzz.{name}" for name in fuzz}
    page = (TOP / "docs/faults.md").read_text()
    planted = (TOP / "tests/sim/mutations/planted.py").read_text()
    missing = [name for name in re.findall(r"`([A-Z]\w+\.[A-Z]\w+|fuzz\.\w+)`", page)
               if name not in tests]
    missing.remove("Suite.Test")  # how they look
    missing += [name for names in re.findall(r"planted: ([^|]*)", page)
                for name in re.findall(r"`(\w+)`", names) if f'"{name}"' not in planted]
    for name in missing:
        print(f"docs/faults.md names {name}, which does not exist")
    return 1 if missing else 0


if __name__ == "__main__":
    sys.exit(main())
