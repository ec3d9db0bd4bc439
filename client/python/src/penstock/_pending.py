"""The requests that have not been answered. One thread."""

from __future__ import annotations

import dataclasses
import heapq
import time
from typing import Callable, Dict, List, Optional, Tuple

from ._wire import Message
from .errors import Error

Done = Callable[[Optional[Message], Optional[Error]], None]
# What may be asked again without harm, when the connection was lost before the answer.
REPEATABLE = frozenset({"hello", "regions", "nodes", "status", "transfers", "cancel", "digest",
                        "fill", "keep", "close"})


@dataclasses.dataclass
class Request:
    id: int
    operation: str
    frame: bytes
    timeout: float
    repeatable: bool
    done: Done  # called once, on the client's thread
    sent: bool = False


class PendingRequests:
    def __init__(self) -> None:
        self._pending: Dict[int, Request] = {}
        self._deadlines: List[Tuple[float, int]] = []  # a heap; answered ones are dropped later

    def add(self, request: Request) -> None:
        self._pending[request.id] = request
        heapq.heappush(self._deadlines, (time.monotonic() + request.timeout, request.id))

    def take(self, request_id: int) -> Optional[Request]:
        return self._pending.pop(request_id, None)

    def take_expired(self, now: float) -> List[Request]:
        expired = []
        while self._deadlines and self._deadlines[0][0] <= now:
            request = self.take(heapq.heappop(self._deadlines)[1])
            if request is not None:
                expired.append(request)
        return expired

    def take_all(self) -> List[Request]:
        taken = list(self._pending.values())
        self._pending.clear()
        self._deadlines.clear()
        return taken

    def next_deadline(self) -> float:
        return self._deadlines[0][0] if self._deadlines else float("inf")

    def to_send(self) -> List[Request]:
        """What a new connection is to carry, in the order of the calls: not sent yet, or what may
        be asked twice."""
        return [each for each in self._pending.values() if not each.sent or each.repeatable]

    def tidy(self) -> None:
        self._deadlines = [each for each in self._deadlines if each[1] in self._pending]
        heapq.heapify(self._deadlines)
