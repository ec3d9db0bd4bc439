#!/usr/bin/env python3
"""The rig starts, moves data that is right, and leaves nothing behind, also when it is killed.

Exits with 77 (skipped) and the reason where namespaces are not permitted.
"""

import argparse
import glob
import json
import os
import signal
import subprocess
import sys
import tempfile
import time
import unittest

import network

HERE = os.path.dirname(os.path.abspath(__file__))
BIN = ""
PATIENCE_S = 40


def rig(*arguments):
    return [sys.executable, os.path.join(HERE, "rig.py"), "--bin", BIN, "--cards", "2",
            "--region-bytes", "8MiB", "--transfer-bytes", "1MiB", "--warm-up", "0.5",
            *arguments]


def leftovers():
    return [*network.spaces_there(),
            *glob.glob(os.path.join(tempfile.gettempdir(), network.FOLDERS + "*"))]


def wait_for(condition, what):
    end = time.monotonic() + PATIENCE_S
    while not condition():
        if time.monotonic() > end:
            raise AssertionError(f"not within {PATIENCE_S} s: {what}")
        time.sleep(0.1)


class RigTest(unittest.TestCase):
    def test_moves_pages_and_says_what_arrived(self):
        with tempfile.TemporaryDirectory() as folder:
            file = os.path.join(folder, "rig.json")
            done = subprocess.run(rig("--seconds", "2", "--verify", "--json", file),
                                  capture_output=True, text=True, timeout=100, check=False)
            self.assertEqual(done.returncode, 0, done.stdout + done.stderr)
            with open(file, encoding="utf-8") as text:
                report = json.load(text)
        self.assertGreater(report["goodput_mbps"], 0)
        self.assertLessEqual(report["share"], 1.05)  # the shape holds
        self.assertGreater(report["raw_share"], 0)
        self.assertEqual(len(report["per_card_mbps"]), 2)
        self.assertGreater(min(report["per_card_mbps"]), 0)
        self.assertGreater(report["transfers"]["verified_pages"], 0)
        self.assertEqual(report["transfers"]["wrong_pages"], 0)
        self.assertEqual(leftovers(), [])

    def test_a_killed_rig_leaves_nothing_behind(self):
        with subprocess.Popen(rig("--seconds", "60", "--no-raw"), stderr=subprocess.PIPE,
                              stdout=subprocess.DEVNULL, text=True) as process:
            for line in process.stderr:
                if "measuring" in line:
                    break
            self.assertEqual(len(network.spaces_there()), 2)
            pids = [pid for space in network.SPACES for pid in network.pids_in(space)]
            self.assertGreaterEqual(len(pids), 3)  # two services and the load
            process.send_signal(signal.SIGKILL)
        wait_for(lambda: not leftovers(), "namespaces and folders are gone")
        for pid in pids:
            wait_for(lambda each=pid: not os.path.exists(f"/proc/{each}"), f"process {pid} ended")


if __name__ == "__main__":
    parser = argparse.ArgumentParser()
    parser.add_argument("--bin", required=True, help="folder of penstockd, rig_load and rig_raw")
    options, rest = parser.parse_known_args()
    BIN = options.bin
    reason = network.why_not()
    if reason:
        print(f"skipped: {reason}")
        sys.exit(77)
    unittest.main(argv=[sys.argv[0], *rest], verbosity=2)
