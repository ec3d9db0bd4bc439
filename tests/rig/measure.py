"""What the rig measures: bytes at the receiver between two instants, and what they cost."""

import statistics
import time

from network import card_name

# Ethernet, IPv4 and TCP with timestamps: once for each packet that an interface counts, whether or
# not it is a large one that hardware would cut.
HEADER_BYTES = 66
# Payload at the receiver may exceed what is known to be complete by the provider's own headers.
AGREEMENT = 0.02


def received(before, after, card):
    """TCP payload that came in on a card between two samples of the interfaces' counters."""
    first, last = before["net"][card_name(card)], after["net"][card_name(card)]
    return (last[0] - first[0]) - HEADER_BYTES * (last[1] - first[1])


def rx_bytes(before, after, card):
    return after["net"][card_name(card)][0] - before["net"][card_name(card)][0]


def megabit(count, seconds):
    return count * 8 / 1e6 / seconds


class Rates:
    """Rates of all cards between two samples: what the receiver got, and what is complete."""

    def __init__(self, before, after, completed, completed_seconds, cards):
        self.seconds = after["t_net"] - before["t_net"]
        self.per_card = [megabit(received(before, after, card), self.seconds)
                         for card in range(cards)]
        self.wire = megabit(sum(rx_bytes(before, after, card) for card in range(cards)),
                            self.seconds)
        self.received = sum(self.per_card)
        self.complete = megabit(completed, completed_seconds)
        # The lower of the two: nothing counts that did not arrive, or is not known to be complete.
        self.goodput = min(self.received, self.complete)

    def agree(self):
        return abs(self.received - self.complete) <= AGREEMENT * self.complete

    def json(self, link_mbit):
        return {
            "goodput_mbps": self.goodput,
            "share": self.goodput / link_mbit,
            "complete_mbps": self.complete,
            "received_mbps": self.received,
            "rx_mbps": self.wire,
            "agree": self.agree(),
            "per_card_mbps": self.per_card,
            "seconds": self.seconds,
        }


def written(status):
    return sum(card["written_bytes"] for device in status["devices"] for card in device["cards"])


def sleep_until(end):
    time.sleep(max(0.0, end - time.monotonic()))


class Round:
    """Once the load, once the bare loop, each after its own warm-up."""

    def __init__(self, rig):
        self.rig = rig
        self.options = rig.options

    def load(self, during=None):
        """`during` is called with the load in the time between the two instants, and ends it."""
        load, services = self.rig.load, self.rig.services
        load.ask("go")
        time.sleep(self.options.warm_up)
        before = load.ask("sample")
        cpu = [service.cpu_seconds() for service in services]
        extra = (during or self._wait)(load)
        after = load.ask("sample")
        cpu = [service.cpu_seconds() - was for service, was in zip(services, cpu)]
        end = load.ask("stop", patience=150)
        complete = written(after["source"]) - written(before["source"])
        rates = Rates(before, after, complete, after["t_source"] - before["t_source"],
                      self.options.cards)
        result = rates.json(self.rig.link_mbit())
        result["cpu_s_per_gb"] = sum(cpu) / (complete / 1e9) if complete else None
        result["cores"] = [used / rates.seconds for used in cpu]
        result["transfers"] = end["transfers"]
        result["transfers"]["all_ended"] = end["all_ended"]
        result.update(extra or {})
        return result

    def _wait(self, _):
        time.sleep(self.options.seconds)

    def raw(self):
        target, initiator, load = self.rig.raw_target, self.rig.raw_initiator, self.rig.load
        target.ask("go")
        initiator.ask("go")
        time.sleep(self.options.warm_up)
        before = (initiator.ask("sample"), target.ask("sample"), load.ask("net"))
        time.sleep(self.options.seconds)
        after = (initiator.ask("sample"), target.ask("sample"), load.ask("net"))
        initiator.ask("stop")
        target.ask("stop")
        complete = sum(after[0]["bytes"]) - sum(before[0]["bytes"])
        rates = Rates(before[2], after[2], complete, after[0]["t"] - before[0]["t"],
                      self.options.cards)
        result = rates.json(self.rig.link_mbit())
        cpu = sum(after[i]["cpu_s"] - before[i]["cpu_s"] for i in (0, 1))
        result["cpu_s_per_gb"] = cpu / (complete / 1e9) if complete else None
        return result


def timeline(load, begin, end, every=0.25):
    """Samples of the interfaces' counters from now to `end`, with times since `begin`."""
    samples = []
    at = time.monotonic()
    while True:
        sample = load.ask("net")
        sample["at"] = time.monotonic() - begin
        samples.append(sample)
        at += every
        if at >= end:
            sleep_until(end)
            return samples
        sleep_until(at)


def rate_between(samples, first, last, cards):
    """Of these cards together, over the samples taken from `first` to `last` seconds."""
    within = [sample for sample in samples if first <= sample["at"] <= last]
    if len(within) < 2:
        return None
    seconds = within[-1]["t_net"] - within[0]["t_net"]
    return megabit(sum(received(within[0], within[-1], card) for card in cards), seconds)


def median_of(rounds, key):
    values = [each[key] for each in rounds if each.get(key) is not None]
    return statistics.median(values) if values else None


def spread_of(rounds, key):
    values = [each[key] for each in rounds if each.get(key) is not None]
    return [min(values), max(values)] if values else None
