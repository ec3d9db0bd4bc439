#!/usr/bin/env python3
"""A million transfers between the nodes of a cluster that changes all the time: plain processes in
network namespaces (root). Most transfers are of a few KiB, some of MiB, in both lanes, some with a
notification, some verified by the services; every page is read back and compared. Meanwhile nodes
are killed, drained, stopped, cut off and started again; the first two live all the time. Exits with
0 when no byte was wrong, every transfer ended, nothing failed by itself and no service grew; 1 when
something did not hold, which is said; 77 when this machine cannot run it."""

import argparse
import json
import os
import random
import signal
import sys
import time

ROOT = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
sys.path.insert(0, os.path.join(ROOT, "docker", "scenarios"))

import namespaces  # noqa: E402
import report  # noqa: E402
import scenarios  # noqa: E402
from local import LocalCluster  # noqa: E402
from namespaces import ClusterError  # noqa: E402
from observer import Observer, Timeline  # noqa: E402
import usage  # noqa: E402

SKIPPED = 77
STEADY = 2  # nodes that live through all of it
SAID_EVERY_S = 30
TRAFFIC = ["--mixed", "--page-bytes=4KiB", "--pages=512", "--pause=1ms",
           "--deadline=20s"]
# Results are kept for ten minutes otherwise: a service would grow for as long.
SETTINGS = ["request.results_kept_s=10", "request.events_kept=1000"]


def options_of(argv):
    parser = argparse.ArgumentParser(prog="./dev soak", description=__doc__)
    parser.add_argument("--transfers", type=int, default=1_000_000,
                        help="ends when so many have been submitted (default: %(default)s)")
    parser.add_argument("--minutes", type=float, default=60,
                        help="ends after so long at the latest (default: %(default)s)")
    parser.add_argument("--nodes", type=int, choices=range(3, 9), default=5, metavar="3..8")
    parser.add_argument("--workers", type=int, default=8, help="transfers at once, of each node")
    parser.add_argument("--settle", type=float, default=4.0,
                        help="seconds of traffic between two steps")
    # Owners remember a transfer for a minute after its end, so that a repeated question is answered.
    parser.add_argument("--warm", type=float, default=90.0,
                        help="seconds after which a service should not grow any more")
    parser.add_argument("--seed", type=int, default=1, help="of steps and transfers")
    parser.add_argument("--json", metavar="FILE", help="the report")
    parser.add_argument("--bin", default=os.path.join(ROOT, "build", "release", "bin"),
                        help="folder of penstockd and penstock")
    parser.add_argument("--keep-logs", metavar="FOLDER", help="copies the services' logs there")
    options = parser.parse_args(argv)
    options.local = True
    options.set = SETTINGS
    options.traffic = [*TRAFFIC, f"--slots={options.nodes}", f"--workers={options.workers}"]
    return options


class Soak:
    def __init__(self, run, options):
        self.run = run
        self.options = options
        self.watch = usage.Watch(options.warm)
        self.random = random.Random(options.seed)
        self.end = time.monotonic() + options.minutes * 60
        self.steps = {}
        self.said = time.monotonic()

    def over(self):
        return (self.run.observer.total("submitted") >= self.options.transfers or
                time.monotonic() >= self.end)

    def step(self, what):
        run = self.run
        if what == "partition":
            return run.split({node: 0 if node < STEADY else 1 for node in run.members}, 4)
        node = self.random.randrange(STEADY, self.options.nodes)
        if what == "pause":
            return run.pause(node, 0)
        if what in ("drain", "SIGTERM"):
            run.leave(node, what)
            return run.join(node)
        if what == "kill":
            excuse = run.kill(node)
        else:  # back before anybody knows
            excuse = run.excused([node])
            run.cluster.signal(node, signal.SIGKILL)
            run.cluster.wait_ended(node, scenarios.END_PATIENCE_S)
            run.timeline.note(f"kill -9 of node {node}, which comes back at once")
        run.join(node)
        return run.end_excuse(excuse)

    def look(self, warm=True):
        for node in range(self.options.nodes):
            if self.run.cluster.running(node):
                self.watch.look(self.run.cluster.services[node].pid, self.run.cluster.name(node),
                                warm)

    def say(self):
        if time.monotonic() > self.said + SAID_EVERY_S:
            self.said = time.monotonic()
            self.run.timeline.note(f"{self.run.observer.total('submitted')} transfers, "
                                   f"{self.run.observer.total('wrong_pages')} wrong pages")

    def go(self):
        run = self.run
        run.join(*range(self.options.nodes))
        self.look(warm=False)
        round_of_steps = []
        while not self.over() and not run.broken:
            if not round_of_steps:
                round_of_steps = ["kill", "kill and back", "drain", "SIGTERM", "pause", "partition"]
                self.random.shuffle(round_of_steps)
            what = round_of_steps.pop()
            self.step(what)
            self.steps[what] = self.steps.get(what, 0) + 1
            run.hold(min(self.options.settle, max(0.0, self.end - time.monotonic())))
            self.look()
            self.say()
        run.numbers["steps"] = self.steps
        run.hold(1)
        self.look()

    def judge(self):
        compared = self.watch.compared()
        self.run.check(compared, "a service lived long enough to be compared")
        for each in compared:
            self.run.check(not each["grown"], f"{each['node']} is flat, not {each['grown']}")
        self.run.numbers["services"] = compared


def show_services(services):
    print("  memory of the services that live all the time, from warm to the end, in MiB")
    for each in services[:STEADY]:
        values = " ".join(f"{kib / 1024:5.1f}" for kib in usage.course(each["memory"], 9))
        print(f"  {each['node']:<30} {values}")
    keys = ["memory_kib", "open_files", "tcp_sockets", "threads", "segments"]
    print(f"  {'service, warm -> at its end':<30} " + " ".join(f"{key:>18}" for key in keys))
    for each in services:
        values = (f"{each['first'][key]} -> {each['last'][key]}" for key in keys)
        print(f"  {each['node']:<30} " + " ".join(f"{value:>18}" for value in values))


def main(argv):
    options = options_of(argv)
    reason = namespaces.why_not()
    if reason:
        print(f"skipped: {reason}", file=sys.stderr)
        return SKIPPED
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(1))
    timeline = Timeline()
    observer = Observer(timeline)
    begin = time.monotonic()
    cluster = LocalCluster(options, observer)
    run = scenarios.Run(cluster, observer, timeline, options)
    soak = Soak(run, options)
    try:
        soak.go()
        soak.judge()
    except ClusterError as error:
        run.check(False, str(error))
    finally:
        if options.keep_logs:
            cluster.copy_logs(options.keep_logs)
        try:
            cluster.close()
        except ClusterError as error:
            run.check(False, str(error))
    services = run.numbers.pop("services", [])
    whole = report.make("soak", run)
    whole["seconds"] = round(time.monotonic() - begin, 1)
    report.show(whole)
    show_services(services)
    whole["services"] = services
    if options.json:
        with open(options.json, "w", encoding="utf-8") as file:
            json.dump(whole, file, indent=1)
    return 1 if whole["broken"] else 0


if __name__ == "__main__":
    try:
        sys.exit(main(sys.argv[1:]))
    except ClusterError as problem:
        print(f"./dev soak: {problem}", file=sys.stderr)
        sys.exit(1)
    except KeyboardInterrupt:
        sys.exit(130)
