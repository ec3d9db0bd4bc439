#!/usr/bin/env python3
"""The 1:1000 p5: two services in two network namespaces, 32 shaped cards between them.

Moves random pages from each device of one service to the same device of the other, and says what
arrived there: beside the links' speed, and beside a bare libfabric loop over as many endpoints that
ran in the same minutes. Needs root; leaves nothing behind, also when it is killed.
"""

import argparse
import json
import os
import shutil
import signal
import sys
import tempfile
import time

import measure
import network
from network import RigError
from processes import (CARDS_PER_DEVICE, GPUS, cpus_of, start_load, start_raw,
                       start_service, wait_until_connected)

HERE = os.path.dirname(os.path.abspath(__file__))
ROOT = os.path.dirname(os.path.dirname(HERE))
TOPOLOGY = os.path.join(ROOT, "config", "topology", "p5.48xlarge.xml")
SKIPPED = 77
URGENT_COUNT = 300
URGENT_GAP_MS = 10
IDLE_S = 10.0


def say(text):
    print(f"[rig] {text}", file=sys.stderr, flush=True)


class Rig:
    def __init__(self, options, folder):
        self.options = options
        self.network = network.Network(options.cards, options.mbit, options.mtu,
                                       options.gso_bytes, options.congestion)
        self.network.build()
        self.speed = [options.mbit] * options.cards
        for card, factor in options.slow_card:
            self.slow(card, factor)
        self.services = [start_service(side, options, folder, TOPOLOGY) for side in (0, 1)]
        wait_until_connected(self.services, folder)
        self.load = start_load(options, folder)
        self.load.answer(patience=120)
        self.raw_target = self.raw_initiator = None
        if options.raw:
            self.raw_target = start_raw(1, options, folder)
            descriptions = self.raw_target.answer()
            self.raw_initiator = start_raw(0, options, folder)
            self.raw_initiator.tell(json.dumps(descriptions))
            self.raw_initiator.answer()

    def link_mbit(self):
        """What all links carry together."""
        return sum(self.speed)

    def slow(self, card, factor):
        self.network.slow(card, factor)
        self.speed[card] = self.options.mbit * factor

    def close(self):
        for process in (self.raw_initiator, self.raw_target, self.load, *self.services):
            if process and process.process.poll() is None:
                process.process.send_signal(signal.SIGTERM)


# -- what is measured -----------------------------------------------------------------------------


def plain_rounds(rig):
    ours, raw = [], []
    one = measure.Round(rig)
    for number in range(rig.options.rounds):
        # Taken in turns, so that a machine that changes its speed changes both.
        for what in ("ours", "raw") if number % 2 == 0 else ("raw", "ours"):
            if what == "ours":
                say(f"measuring round {number + 1} of {rig.options.rounds}")
                ours.append(one.load())
            elif rig.options.raw:
                say(f"measuring the bare loop, round {number + 1}")
                raw.append(one.raw())
    return ours, raw


def event_round(rig, card, after, what):
    """One round in which something happens to a card `after` seconds into it."""
    others = [each for each in range(rig.options.cards) if each != card]

    def during(load):
        begin = time.monotonic()
        samples = measure.timeline(load, begin, begin + after)
        say(f"card {card}: {what.__doc__}")
        what()
        samples += measure.timeline(load, begin, begin + rig.options.seconds)
        before = measure.rate_between(samples, 0, after, others)
        later = measure.rate_between(samples, after + 1.0, rig.options.seconds, others)
        quarter_s = [
            {"at": first["at"], "others_mbps": sum(
                measure.megabit(measure.received(first, last, each),
                                last["t_net"] - first["t_net"]) for each in others),
             "card_mbps": measure.megabit(measure.received(first, last, card),
                                          last["t_net"] - first["t_net"])}
            for first, last in zip(samples, samples[1:])]
        return {"others_before_mbps": before, "others_after_1s_mbps": later,
                "others_kept": later / before if later and before else None,
                "timeline": quarter_s}

    return measure.Round(rig).load(during)


def cut_round(rig):
    card, after = rig.options.cut_card

    def cut():
        """cut"""
        rig.network.cut(card)

    return event_round(rig, card, after, cut)


def slow_after_round(rig):
    card, factor, after = rig.options.slow_after

    def slow():
        """slowed"""
        rig.slow(card, factor)

    return event_round(rig, card, after, slow)


def idle(rig):
    """Cores that each service uses with nothing to do."""
    say("measuring the idle services")
    time.sleep(1.0)
    begin, cpu = time.monotonic(), [each.cpu_seconds() for each in rig.services]
    time.sleep(IDLE_S)
    seconds = time.monotonic() - begin
    return [(each.cpu_seconds() - was) / seconds for each, was in zip(rig.services, cpu)]


def urgent(rig):
    say("measuring small urgent transfers alone")
    ask = f"urgent {URGENT_COUNT} {URGENT_GAP_MS}"
    rig.load.ask(f"urgent 20 {URGENT_GAP_MS}")
    alone = rig.load.ask(ask, patience=120)
    say("measuring them beside the load")
    rig.load.ask("go")
    time.sleep(rig.options.warm_up)
    loaded = rig.load.ask(ask, patience=300)
    rig.load.ask("stop", patience=150)
    window_us = rig.options.window * 8 / rig.options.mbit
    allowed = 3 * alone["p99_us"] + window_us
    return {"alone": alone, "loaded": loaded, "window_us": window_us, "allowed_p99_us": allowed,
            "within": loaded["p99_us"] <= allowed}


def run(rig):
    options = rig.options
    idle_cores = idle(rig) if options.idle else None
    ours, raw = plain_rounds(rig)
    report = {
        "cards": options.cards, "mbit": options.mbit, "page_bytes": options.page_bytes,
        "mtu": options.mtu, "gso_bytes": options.gso_bytes,
        "window_bytes": options.window, "congestion": options.congestion,
        "cpus": [cpus_of(0), cpus_of(1)], "link_mbps": rig.link_mbit(),
        "goodput_mbps": measure.median_of(ours, "goodput_mbps"),
        "share": measure.median_of(ours, "share"),
        "share_spread": measure.spread_of(ours, "share"),
        "raw_share": measure.median_of(raw, "share"),
        "raw_share_spread": measure.spread_of(raw, "share"),
        "per_card_mbps": ours[-1]["per_card_mbps"] if ours else [],
        "cpu_s_per_gb": measure.median_of(ours, "cpu_s_per_gb"),
        "raw_cpu_s_per_gb": measure.median_of(raw, "cpu_s_per_gb"),
        "idle_cores": idle_cores,
        "rounds": ours, "raw_rounds": raw,
    }
    if options.urgent:
        report["urgent"] = urgent(rig)
    if options.slow_after:
        report["slow_after"] = slow_after_round(rig)
    if options.cut_card:
        report["cut"] = cut_round(rig)
    rounds = [*ours, *(report[key] for key in ("slow_after", "cut") if key in report)]
    last = rounds[-1]["transfers"]
    report["transfers"] = last  # counted since the start
    report["good"] = (last["failed"] == 0 and last["wrong_pages"] == 0 and last["all_ended"]
                      and all(each["agree"] for each in ours))
    return report


# -- the report -----------------------------------------------------------------------------------


def show(report):
    def percent(value):
        return "-" if value is None else f"{100 * value:.2f} %"

    def number(value, form):
        return "-" if value is None else format(value, form)

    print(f"{report['cards']} cards of {report['mbit']:g} Mbit/s, {report['page_bytes']} byte "
          f"pages, MTU {report['mtu']}, at the receiver:")
    print(f"  penstock    {number(report['goodput_mbps'], '.1f')} of {report['link_mbps']:.0f} "
          f"Mbit/s = {percent(report['share'])}, "
          f"{number(report['cpu_s_per_gb'], '.2f')} CPU s/GB (both services)")
    if report["raw_rounds"]:
        print(f"  bare loop   {percent(report['raw_share'])}, "
              f"{number(report['raw_cpu_s_per_gb'], '.2f')} CPU s/GB (both ends)")
    for number_of, each in enumerate(report["rounds"]):
        print(f"  round {number_of + 1}: {percent(each['share'])}; complete "
              f"{each['complete_mbps']:.1f}, received {each['received_mbps']:.1f}, on the wire "
              f"{each['rx_mbps']:.1f} Mbit/s; cores {each['cores'][0]:.2f} + "
              f"{each['cores'][1]:.2f}" + ("" if each["agree"] else "; THESE DISAGREE"))
    cards = report["per_card_mbps"]
    for first in range(0, len(cards), 8):
        print("  cards " + f"{first:2}.. " + " ".join(f"{rate:6.1f}" for rate in
                                                     cards[first:first + 8]))
    for key in ("slow_after", "cut"):
        if key in report:
            each = report[key]
            print(f"  {key}: the other cards {number(each['others_before_mbps'], '.1f')} before, "
                  f"{number(each['others_after_1s_mbps'], '.1f')} Mbit/s from 1 s after it")
    if "urgent" in report:
        both = report["urgent"]
        print(f"  urgent 4 KiB: alone p50 {both['alone']['p50_us']:.0f} p99 "
              f"{both['alone']['p99_us']:.0f} us; beside the load p50 "
              f"{both['loaded']['p50_us']:.0f} p99 {both['loaded']['p99_us']:.0f} us "
              f"(allowed {both['allowed_p99_us']:.0f})")
    if report["idle_cores"]:
        print("  idle: " + " + ".join(f"{100 * each:.2f} %" for each in report["idle_cores"]) +
              " of a core")
    total = report["transfers"]
    print(f"  transfers: {total['done']} done, {total['failed']} failed; pages verified "
          f"{total['verified_pages']}, wrong {total['wrong_pages']}")
    for error in total["errors"]:
        print(f"    {error}")


# -- options --------------------------------------------------------------------------------------


def size(text):
    units = {"KiB": 1 << 10, "MiB": 1 << 20, "GiB": 1 << 30}
    for unit, factor in units.items():
        if text.endswith(unit):
            return int(text[:-len(unit)]) * factor
    return int(text)


def numbers(*kinds):
    def parse(text):
        words = text.split(":")
        if len(words) != len(kinds):
            raise argparse.ArgumentTypeError(f"'{text}' is not {len(kinds)} numbers with colons")
        return tuple(kind(word) for kind, word in zip(kinds, words))
    return parse


def parse_options():
    parser = argparse.ArgumentParser(prog="./dev rig", description=__doc__,
                                     formatter_class=argparse.RawDescriptionHelpFormatter)
    add = parser.add_argument
    add("--cards", type=int, default=32, help="1 to 32 (4 per device)")
    add("--mbit", type=float, default=100, help="speed of a card, Mbit/s")
    add("--mtu", type=int, default=9000)
    add("--gso-bytes", type=size, default=65536,
        help="what the kernel hands to a card at once; two per connection wait in its queue")
    add("--page-bytes", type=size, default=65536)
    add("--rounds", type=int, default=1, help="each of the load and of the bare loop")
    add("--seconds", type=float, default=15, help="between the two instants of a round")
    add("--warm-up", type=float, default=3, help="seconds before the first instant")
    add("--window", type=size, default=512 << 10, help="bytes out per card, the bare loop's too")
    add("--quantum", type=size, default=1 << 20, help="fabric.quantum_bytes")
    add("--region-bytes", type=size, default=128 << 20, help="per device, on each side")
    add("--transfer-bytes", type=size, default=16 << 20)
    add("--in-flight", type=int, default=4, help="transfers of a device at once")
    add("--slow-card", type=numbers(int, float), action="append", default=[],
        metavar="I:FACTOR", help="card I has FACTOR of the speed from the start")
    add("--slow-after", type=numbers(int, float, float), metavar="I:FACTOR:S",
        help="one more round, in which card I is slowed after S seconds")
    add("--cut-card", type=numbers(int, float), metavar="I:S",
        help="one more round, in which card I is cut after S seconds; implies --verify")
    add("--verify", action="store_true", help="every page of every transfer, by digests")
    add("--urgent", action="store_true", help="4 KiB urgent transfers, alone and beside the load")
    add("--idle", action="store_true", help="CPU of the two services before the load begins")
    add("--no-raw", dest="raw", action="store_false", help="without the bare loop")
    add("--congestion", default="reno",
        help="of TCP; reno is there in every namespace, and nothing is lost here")
    add("--set", action="append", default=[], metavar="KEY=VALUE",
        help="a setting of both services")
    add("--json", metavar="FILE", help="write everything that was measured there")
    add("--keep", metavar="DIR", help="copy the services' configurations and logs there")
    add("--bin", default=os.path.join(ROOT, "build", "release", "bin"),
        help="folder of penstockd, rig_load and rig_raw")
    add("--check", action="store_true", help="only say whether this machine can run the rig")
    options = parser.parse_args()
    if not 1 <= options.cards <= CARDS_PER_DEVICE * len(GPUS):
        parser.error("--cards: 1 to 32")
    for card, *_ in [*options.slow_card, *filter(None, (options.slow_after, options.cut_card))]:
        if not 0 <= card < options.cards:
            parser.error(f"there is no card {card}")
    if options.transfer_bytes % options.page_bytes or options.page_bytes % 4:
        parser.error("--transfer-bytes must be whole pages, --page-bytes a multiple of 4")
    if options.cut_card:
        options.verify = True
    return options


def main():
    options = parse_options()
    reason = network.why_not()
    if reason:
        say(reason)
        return SKIPPED
    if options.check:
        return 0
    for sign in (signal.SIGTERM, signal.SIGHUP):
        signal.signal(sign, lambda number, _: sys.exit(128 + number))
    rig = None
    with network.only_rig():
        folder = tempfile.mkdtemp(prefix=network.FOLDERS)
        try:
            say(f"building {options.cards} cards of {options.mbit:g} Mbit/s")
            rig = Rig(options, folder)
            report = run(rig)
        finally:
            if rig:
                rig.close()
            if options.keep:
                shutil.copytree(folder, options.keep, dirs_exist_ok=True,
                                ignore=shutil.ignore_patterns("*.ipc"))
    show(report)
    if options.json:
        with open(options.json, "w", encoding="utf-8") as file:
            json.dump(report, file, indent=1)
    return 0 if report["good"] else 1


if __name__ == "__main__":
    try:
        sys.exit(main())
    except RigError as error:
        say(f"error: {error}")
        sys.exit(1)
    except KeyboardInterrupt:
        sys.exit(130)
