#!/usr/bin/env python3
"""Penstock beside NIXL and Mooncake: the same random pages, in turns, every byte verified.

Start it with run.sh, which installs what it needs. docs/comparison.md says what is measured.
"""

import argparse
import datetime
import json
import os
import pathlib
import platform
import shutil
import statistics
import sys
import tempfile
from importlib import metadata

import pages
import systems

UNITS = {"K": 1 << 10, "M": 1 << 20, "G": 1 << 30}
PACKAGES = ("nixl-cu13", "mooncake-transfer-engine-non-cuda", "mooncake-transfer-engine")


def size(text):
    text = text.upper().removesuffix("IB").removesuffix("B")
    number, unit = (text[:-1], UNITS[text[-1]]) if text[-1:] in UNITS else (text, 1)
    if not number.isdigit() or int(number) == 0:
        raise argparse.ArgumentTypeError(f"{text} is not a size such as 64K")
    return int(number) * unit


def name_of(bytes_):
    for unit in "GMK":
        if bytes_ % UNITS[unit] == 0:
            return f"{bytes_ // UNITS[unit]}{unit}"
    return str(bytes_)


def parse():
    root = pathlib.Path(__file__).resolve().parents[2]
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--pages", default="4K,16K,64K,256K,1M",
                        type=lambda text: [size(each) for each in text.split(",")])
    parser.add_argument("--rounds", type=int, default=5, help="that count, of each page size")
    parser.add_argument("--bytes", type=size, default=size("256M"), help="moved in each round")
    parser.add_argument("--region", type=size, default=size("1G"))
    parser.add_argument("--systems", default="penstock,nixl-libfabric,nixl-ucx,mooncake",
                        type=lambda text: text.split(","))
    parser.add_argument("--bin", type=pathlib.Path, default=root / "build/release/bin",
                        help="folder of penstockd")
    parser.add_argument("--set", action="append", default=[], metavar="SECTION.KEY=VALUE",
                        help="a setting of both penstockd, which else have their defaults")
    parser.add_argument("--libfabric", type=pathlib.Path,
                        help="folder of a libfabric.so.1 for NIXL's LIBFABRIC backend")
    parser.add_argument("--nixl-without-thread", action="store_true",
                        help="NIXL's source has no progress thread but asks without a pause")
    parser.add_argument("--nixl-lists-each-time", action="store_true",
                        help="NIXL gets its descriptors in the time that is measured, instead of "
                             "having prepared those of all pages")
    parser.add_argument("--penstock-libfabric", type=pathlib.Path, metavar="FOLDER",
                        help="the same for penstockd, instead of the system's")
    parser.add_argument("--json", type=pathlib.Path, metavar="FILE")
    parser.add_argument("--keep-logs", action="store_true")
    arguments = parser.parse_args()
    for page_bytes in arguments.pages:
        if arguments.bytes % page_bytes or arguments.region % page_bytes or page_bytes % 8:
            parser.error(f"pages of {page_bytes} bytes do not divide --bytes and --region")
    if arguments.bytes > arguments.region or arguments.rounds < 1:
        parser.error("--bytes is at most --region, --rounds at least 1")
    return arguments


class Run:
    """Segments, systems and what was measured."""

    def __init__(self, arguments):
        self.arguments = arguments
        self.region_bytes = arguments.region
        self.folder = pathlib.Path(tempfile.mkdtemp(prefix="compare-"))
        self.segment_names = [f"compare-{os.getpid()}-{end}" for end in ("source", "destination")]
        self.segments = []
        self.systems = {}
        self.absent = {}   # name -> why
        self.results = {}  # page bytes -> name -> list of rounds

    def open(self):
        for name in self.segment_names:
            self.segments.append(pages.Segment(name, self.region_bytes, create=True))
        self.segments[0].fill_random(1)
        self.segments[1].bytes[:] = 0
        known = systems.all_systems(self, self.arguments)
        for key in self.arguments.systems:
            if key not in known:
                raise SystemExit(f"{key} is none of {', '.join(known)}")
            system = known[key]
            try:
                system.start(self)
                self.systems[key] = system
            except (systems.NotRunning, OSError) as error:
                self.give_up(key, system, error)

    def give_up(self, key, system, error):
        self.absent[system.name] = str(error).splitlines()[0] if str(error) else repr(error)
        print(f"compare: {system.name} does not run: {self.absent[system.name]}", file=sys.stderr)
        system.stop()
        self.systems.pop(key, None)

    def one_round(self, system, page_bytes, number):
        lists = pages.page_lists(self.region_bytes, self.arguments.bytes, page_bytes, number)
        self.segments[1].clear_pages(page_bytes, lists[1])
        system.resume()
        try:
            before = sum(map(systems.cpu_seconds, system.pids()))
            seconds = system.move(page_bytes=page_bytes, seed=number,
                                  round_bytes=self.arguments.bytes,
                                  token=f"{page_bytes}/{number}")
            cpu = sum(map(systems.cpu_seconds, system.pids())) - before
        finally:
            system.pause()
        wrong = pages.different_pages(*self.segments, page_bytes, lists)
        if wrong:
            print(f"compare: {system.name}: {wrong} of {len(lists[0])} pages of {page_bytes} bytes "
                  "are not what they should be", file=sys.stderr)
        return {"seconds": seconds, "gb_per_s": self.arguments.bytes / seconds / 1e9,
                "cpu_s_per_gb": cpu / self.arguments.bytes * 1e9, "wrong_pages": wrong}

    def measure(self):
        for page_bytes in self.arguments.pages:
            rounds = self.results.setdefault(page_bytes, {})
            for key, system in list(self.systems.items()):
                try:
                    system.prepare(page_bytes)
                except systems.NotRunning as error:
                    self.give_up(key, system, error)
            # Round 0 connects and warms up and is not counted; each goes first in its turn.
            for number in range(self.arguments.rounds + 1):
                order = list(self.systems.items())
                shift = number % max(1, len(order))
                for key, system in order[shift:] + order[:shift]:
                    try:
                        result = self.one_round(system, page_bytes, number)
                    except systems.NotRunning as error:
                        self.give_up(key, system, error)
                        continue
                    if number > 0:
                        rounds.setdefault(system.name, []).append(result)

    def close(self):
        for system in self.systems.values():
            system.stop()
        for segment in self.segments:
            segment.unlink()
        if self.arguments.keep_logs:
            print(f"logs: {self.folder}", file=sys.stderr)
        else:
            shutil.rmtree(self.folder, ignore_errors=True)


def summary_of(rounds):
    speeds = [each["gb_per_s"] for each in rounds]
    return {"gb_per_s": statistics.median(speeds), "min": min(speeds), "max": max(speeds),
            "cpu_s_per_gb": statistics.median(each["cpu_s_per_gb"] for each in rounds),
            "wrong_pages": sum(each["wrong_pages"] for each in rounds), "rounds": rounds}


def ratio_to_best_rival(by_system):
    """The median over the rounds of Penstock's speed by that of the rival with the best median."""
    rivals = {name: result for name, result in by_system.items() if name != "Penstock"}
    if not rivals or "Penstock" not in by_system:
        return None
    best = max(rivals, key=lambda name: rivals[name]["gb_per_s"])
    pairs = zip(by_system["Penstock"]["rounds"], rivals[best]["rounds"])
    ratios = [ours["gb_per_s"] / theirs["gb_per_s"] for ours, theirs in pairs]
    return {"rival": best, "median": statistics.median(ratios), "min": min(ratios),
            "max": max(ratios)}


def installed():
    found = {}
    for package in PACKAGES:
        try:
            found[package] = metadata.version(package)
        except metadata.PackageNotFoundError:
            pass
    return found


def report_of(run):
    report = {"date": datetime.datetime.now(datetime.timezone.utc).isoformat(timespec="seconds"),
              "cores": os.cpu_count(), "kernel": platform.release(), "packages": installed(),
              "region_bytes": run.region_bytes, "round_bytes": run.arguments.bytes,
              "penstock_settings": run.arguments.set,
              "nixl_without_thread": run.arguments.nixl_without_thread, "absent": run.absent,
              "nixl_lists_each_time": run.arguments.nixl_lists_each_time,
              "results": []}
    for page_bytes, rounds in run.results.items():
        by_system = {name: summary_of(each) for name, each in rounds.items()}
        report["results"].append({"page_bytes": page_bytes, "systems": by_system,
                                  "ratio": ratio_to_best_rival(by_system)})
    return report


def print_table(report):
    print(f"{'page':>5} {'system':15} {'GB/s':>6} {'min':>6} {'max':>6} {'CPU s/GB':>9} "
          f"{'verified':>9}  Penstock / best rival")
    for row in report["results"]:
        for name, result in row["systems"].items():
            ratio = ""
            if name == "Penstock" and row["ratio"]:
                ratio = "{median:.2f} ({min:.2f} to {max:.2f}) of {rival}".format(**row["ratio"])
            verified = "yes" if result["wrong_pages"] == 0 else "NO"
            print(f"{name_of(row['page_bytes']):>5} {name:15} {result['gb_per_s']:6.2f} "
                  f"{result['min']:6.2f} {result['max']:6.2f} {result['cpu_s_per_gb']:9.3f} "
                  f"{verified:>9}  {ratio}".rstrip())
    for name, why in report["absent"].items():
        print(f"not compared: {name}: {why}")


def main():
    run = Run(parse())
    try:
        run.open()
        run.measure()
    finally:
        run.close()
    report = report_of(run)
    print_table(report)
    if run.arguments.json:
        run.arguments.json.write_text(json.dumps(report, indent=1) + "\n")
    wrong = any(result["wrong_pages"] for row in report["results"]
                for result in row["systems"].values())
    return 1 if wrong or "Penstock" in run.absent else 0


if __name__ == "__main__":
    sys.exit(main())
