#!/usr/bin/env python3
"""Runs a scenario on a cluster of Penstock nodes while every node sends verified transfers to every
other, and says what came of it: the timeline, then numbers. Exits with 0 when everything held, 1
when something did not, 77 when this machine cannot run it (and why)."""

import argparse
import json
import os
import signal
import sys

import namespaces
import report
import scenarios
from compose import ComposeCluster, why_no_engine
from local import LocalCluster
from namespaces import ClusterError
from observer import Observer, Timeline

SKIPPED = 77
ROOT = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))


def options_of(argv):
    parser = argparse.ArgumentParser(
        prog="./dev cluster", description=__doc__,
        epilog="scenarios: " + "; ".join(f"{name}: {function.__doc__}"
                                         for name, function in scenarios.ALL.items()))
    parser.add_argument("scenario", choices=[*scenarios.ALL, "all"])
    parser.add_argument("--local", action="store_true",
                        help="plain processes in network namespaces (needs root), not Compose")
    parser.add_argument("--nodes", type=int, default=5)
    parser.add_argument("--minutes", type=float, default=2.0, help="of churn")
    parser.add_argument("--seed", type=int, default=1, help="of what is random")
    parser.add_argument("--settle", type=float, default=2.0,
                        help="seconds of traffic between two steps")
    parser.add_argument("--away", type=float, default=20.0,
                        help="seconds that a pause or a partition lasts at least")
    parser.add_argument("--json", metavar="FILE", help="the report; -: on standard output")
    parser.add_argument("--bin", default=os.path.join(ROOT, "build", "release", "bin"),
                        help="folder of penstockd and penstock, for --local")
    parser.add_argument("--set", action="append", default=[], metavar="KEY=VALUE",
                        help="a setting of every service")
    parser.add_argument("--traffic", action="append", default=[], metavar="OPTION",
                        help="an option of `penstock traffic`, as in --traffic=--pause=10ms")
    parser.add_argument("--image", default="penstock", help="for Compose")
    parser.add_argument("--override", action="append", default=[], metavar="FILE",
                        help="a further Compose file")
    parser.add_argument("--keep-logs", metavar="FOLDER", help="copies the services' logs there")
    options = parser.parse_args(argv)
    if options.nodes < 3:
        parser.error("a cluster has 3 nodes or more")
    return options


def run_one(name, options):
    quiet = options.json == "-"
    timeline = Timeline(quiet)
    observer = Observer(timeline)
    cluster = (LocalCluster if options.local else ComposeCluster)(options, observer)
    run = scenarios.Run(cluster, observer, timeline, options)
    try:
        scenarios.ALL[name](run)
    except ClusterError as error:
        run.check(False, str(error))
    finally:
        if options.keep_logs:
            cluster.copy_logs(options.keep_logs)
        try:
            cluster.close()
        except ClusterError as error:
            run.check(False, str(error))
    timeline.note("traffic has ended")
    return report.make(name, run)


def main(argv):
    options = options_of(argv)
    reason = namespaces.why_not() if options.local else why_no_engine()
    if reason:
        print(f"skipped: {reason}", file=sys.stderr)
        return SKIPPED
    # Ctrl-C and kill end it through the same cleaning up.
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(1))
    names = list(scenarios.ALL) if options.scenario == "all" else [options.scenario]
    reports = []
    for name in names:
        if options.json != "-":
            print(f"{name}: {scenarios.ALL[name].__doc__}")
        reports.append(run_one(name, options))
        if options.json != "-":
            report.show(reports[-1])
    if options.json:
        whole = json.dumps(reports if options.scenario == "all" else reports[0], indent=1)
        if options.json == "-":
            print(whole)
        else:
            with open(options.json, "w", encoding="utf-8") as file:
                file.write(whole + "\n")
    return 0 if all(not each["broken"] for each in reports) else 1


if __name__ == "__main__":
    try:
        sys.exit(main(sys.argv[1:]))
    except ClusterError as problem:
        print(f"./dev cluster: {problem}", file=sys.stderr)
        sys.exit(1)
    except KeyboardInterrupt:
        sys.exit(130)
