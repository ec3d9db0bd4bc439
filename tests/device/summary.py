#!/usr/bin/env python3
"""summary.py RESULTS JSON: how the steps of tests/device/run.sh ended, and their numbers in one file."""

import json
import pathlib
import sys


def main():
    results = pathlib.Path(sys.argv[1])
    steps = [json.loads(path.read_text()) for path in sorted(results.glob("*.status"))]
    numbers = {}
    for path in sorted(results.glob("*.json")):
        try:
            numbers[path.stem] = json.loads(path.read_text())
        except json.JSONDecodeError:  # of a step that failed
            numbers[path.stem] = None
    print("== summary")
    for step in steps:
        word = {0: "good", 124: "OUT OF TIME"}.get(step["status"], f"FAILED ({step['status']})")
        print(f"{step['step']:<20} {word:<14} {step['seconds']:>4} s")
    pathlib.Path(sys.argv[2]).write_text(json.dumps({"steps": steps, "numbers": numbers}, indent=1))


if __name__ == "__main__":
    main()
