#!/usr/bin/env python3
"""A scenario that is killed leaves no namespace, process, folder or shared memory behind."""

import argparse
import glob
import os
import signal
import subprocess
import sys
import tempfile
import time

SCENARIOS = os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "..", "docker",
                         "scenarios")
sys.path.insert(0, SCENARIOS)
import namespaces  # noqa: E402

PATIENCE_S = 40


def leftovers():
    return [*namespaces.spaces_there(), *glob.glob(namespaces.SEGMENTS),
            *glob.glob(os.path.join(tempfile.gettempdir(), namespaces.FOLDERS + "*"))]


def wait_for(condition, what):
    end = time.monotonic() + PATIENCE_S
    while not condition():
        if time.monotonic() > end:
            raise AssertionError(f"not within {PATIENCE_S} s: {what}")
        time.sleep(0.1)


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--bin", required=True, help="folder of penstockd and penstock")
    options = parser.parse_args()
    reason = namespaces.why_not()
    if reason:
        print(f"skipped: {reason}")
        return 77
    with subprocess.Popen(
            [sys.executable, os.path.join(SCENARIOS, "run.py"), "churn", "--local", "--nodes", "3",
             "--minutes", "5", "--bin", options.bin], stdout=subprocess.PIPE, text=True) as run:
        for line in run.stdout:
            if "all see each other" in line:
                break
        pids = [pid for space in namespaces.spaces_there() for pid in namespaces.pids_in(space)]
        if len(pids) < 3:
            raise AssertionError(f"no cluster of 3 nodes was running: {pids}")
        run.send_signal(signal.SIGKILL)
    wait_for(lambda: not leftovers(), f"all is gone, not {leftovers()}")
    for pid in pids:
        wait_for(lambda each=pid: not os.path.exists(f"/proc/{each}"), f"process {pid} ended")
    return 0


if __name__ == "__main__":
    sys.exit(main())
