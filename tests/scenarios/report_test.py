#!/usr/bin/env python3
"""What a scenario makes of what the nodes say: which failures are a surprise, and what the report
counts."""

import io
import json
import os
import sys
import threading
import types
import unittest

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "..", "docker",
                                "scenarios"))
import report  # noqa: E402
import scenarios  # noqa: E402
from observer import Observer, Timeline  # noqa: E402


class Cluster:
    silenced: set = set()
    nodes = [0, 1, 2]

    @staticmethod
    def name(node):
        return f"n{node}"


class ReportTest(unittest.TestCase):
    def setUp(self):
        self.observer = Observer(Timeline(quiet=True))
        self.run_ = scenarios.Run(Cluster(), self.observer, self.observer.timeline,
                                  types.SimpleNamespace(seed=1, nodes=3, local=True, settle=0))

    def say(self, node, *lines):
        text = io.StringIO("".join(json.dumps(line) + "\n" for line in lines))
        self.observer.follow(node, text)
        self.observer.wait_closed(node)

    @staticmethod
    def not_done(second, to, state="failed", code="PEER_DEAD"):
        return {"event": "not_done", "unix_ms": second * 1000, "to": to, "state": state,
                "code": code, "message": ""}

    def test_failures_are_a_surprise_unless_something_happened_to_a_node_of_theirs(self):
        self.run_.excuses = [[100, 110, {1}]]
        self.say(0, self.not_done(105, "n1"), self.not_done(105, "n2"), self.not_done(120, "n1"))
        self.say(1, self.not_done(105, "n0"))
        found = [(each["from"], each["to"]) for each in self.run_.surprises()]
        self.assertEqual(found, [(0, 2), (0, 1)])

    def test_a_partition_excuses_only_what_crosses_it(self):
        self.run_.excuses = [[100, 110, {0, 1, 2}, {0: 0, 1: 0, 2: 1}]]
        self.say(0, self.not_done(105, "n1"), self.not_done(105, "n2"))
        self.assertEqual([each["to"] for each in self.run_.surprises()], [1])

    def test_what_was_refused_or_went_with_its_own_service_is_no_surprise(self):
        self.say(0, self.not_done(5, "n1", "refused", "DRAINING"),
                 self.not_done(5, "n1", "lost", "PEER_LEFT"))
        self.assertEqual(self.run_.surprises(), [])

    def test_the_last_tally_of_every_traffic_process_counts(self):
        def tally(done, wrong=0, still_open=0, failed=None, final=True):
            return {"event": "tally", "unix_ms": 0, "submitted": done + still_open, "done": done,
                    "open": still_open, "verified_pages": done, "wrong_pages": wrong,
                    "failed": failed or {}, "final": final}
        self.say(0, tally(5, still_open=1, final=False), tally(7, failed={"PEER_DEAD": 2}))
        self.say(0, tally(3))  # the next process of the same node
        self.say(1, tally(1, wrong=4, still_open=6))
        made = report.make("crash", self.run_)
        self.assertEqual(made["transfers"]["done"], 11)
        self.assertEqual(made["transfers"]["wrong_pages"], 4)
        self.assertEqual(made["transfers"]["without_an_end"], 6)
        self.assertEqual(made["transfers"]["failed"], {"PEER_DEAD": 2})
        self.assertEqual(len(made["broken"]), 2)

    def test_traffic_that_ends_without_its_last_words_is_told(self):
        self.say(0, {"event": "tally", "unix_ms": 0, "open": 2, "verified_pages": 1})
        self.assertEqual(len(report.make("crash", self.run_)["broken"]), 1)
        self.run_.broken = []
        self.run_.cluster.silenced = {0}
        self.assertEqual(report.make("crash", self.run_)["broken"], [])

    def test_converged_means_exactly_the_others_under_their_newest_incarnations(self):
        def view(*members):
            return {"event": "view", "unix_ms": 0,
                    "nodes": [{"node": name, "state": state, "incarnation": incarnation}
                              for name, state, incarnation in members]}
        names = self.run_.names()
        self.say(0, {"event": "start", "unix_ms": 0, "incarnation": 10},
                 view(("n0", "self", 10), ("n1", "connected", 11)))
        self.say(1, {"event": "start", "unix_ms": 0, "incarnation": 12},
                 view(("n0", "connected", 10), ("n2", "dead", 5)))
        self.assertFalse(self.observer.converged([0, 1], names))  # 0 knows the old n1
        self.say(0, view(("n0", "self", 10), ("n1", "connected", 12)))
        self.assertTrue(self.observer.converged([0, 1], names))
        self.say(1, view(("n0", "connected", 10), ("n2", "connected", 5)))
        self.assertFalse(self.observer.converged([0, 1], names))  # one too many

    def test_waits_are_woken_by_what_comes(self):
        waiting = threading.Timer(0.05, lambda: self.say(0, {"event": "start", "unix_ms": 0,
                                                             "incarnation": 1}))
        waiting.start()
        self.assertTrue(self.observer.wait(lambda: 0 in self.observer.incarnations, 10))


if __name__ == "__main__":
    unittest.main(verbosity=2)
