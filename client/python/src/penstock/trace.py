"""Where a transfer's time went."""

from __future__ import annotations

import dataclasses
from typing import Any, Dict, Tuple


@dataclasses.dataclass(frozen=True)
class TraceStage:
    #: "admission", "queue", "metadata", "posting", "wire", "recovery", "completion", "copy",
    #: "verification", "notification"; of a stream "open", "closing"
    name: str
    at: float    # seconds since the request arrived
    took: float  # seconds


@dataclasses.dataclass(frozen=True)
class TraceCard:
    name: str
    bytes: int
    writes: int
    last: float = 0.0  # seconds from the request's arrival to its last completion; 0: it had none


@dataclasses.dataclass(frozen=True)
class Trace:
    """The stages follow one another (after a failure some come again): what they took sums up to
    `total` seconds. While the transfer has not ended, until now."""

    id: int
    state: str
    node: str
    region: str
    remote_region: str
    direction: str
    lane: str
    path: str
    bytes: int
    writes: int
    started: float  # of the wall clock, seconds since 1970
    total: float
    stages: Tuple[TraceStage, ...]
    cards: Tuple[TraceCard, ...]

    def took(self, stage: str) -> float:
        """Seconds in this stage in all."""
        return sum(each.took for each in self.stages if each.name == stage)


def trace_of(body: Dict[str, Any]) -> Trace:
    return Trace(body["transfer"], body["state"], body["node"], body["region"],
                 body["remote_region"], body["direction"], body["lane"], body["path"],
                 body["bytes"], body["writes"], body["started_unix_us"] / 1e6,
                 body["total_ns"] / 1e9,
                 tuple(TraceStage(each["stage"], each["at_ns"] / 1e9, each["ns"] / 1e9)
                       for each in body["stages"]),
                 tuple(TraceCard(each["name"], each["bytes"], each["writes"],
                                 each.get("last_ns", 0) / 1e9) for each in body["cards"]))
