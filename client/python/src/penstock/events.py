"""What the service tells without being asked."""

from __future__ import annotations

import asyncio
import collections
import dataclasses
import queue
import threading
from typing import Any, AsyncIterator, Callable, Deque, Dict, Iterator, Optional, Set, Tuple, Union

from .transfer import TERMINAL, TransferResult, result_of


_Bytes = bytes  # a field below has that name


@dataclasses.dataclass(frozen=True)
class Notification:
    """A transfer with `notify` is done: its last byte is visible on this node."""

    from_node: str
    transfer: int  # its id there
    region: str    # the region here
    bytes: int
    data: _Bytes
    stream: int = 0  # the stream's id there, of which the transfer is a part; 0: of none
    part: int = 0


@dataclasses.dataclass(frozen=True)
class MemberChange:
    kind: str  # "joined", "draining", "left", "dead"
    node: str
    incarnation: int
    reason: str = ""


@dataclasses.dataclass(frozen=True)
class Event:
    """`body` is None for a kind that this client does not know; `raw` has everything."""

    sequence: int
    name: str  # "transfer", "notify", "member_joined", ...
    body: Union[TransferResult, Notification, MemberChange, None]
    raw: Dict[str, Any] = dataclasses.field(repr=False, compare=False)

    @property
    def topic(self) -> str:
        if self.name == "transfer":
            return "transfers"
        return "members" if self.name.startswith("member_") else self.name


def event_of(raw: Dict[str, Any]) -> Event:
    name = str(raw["event"])
    body: Union[TransferResult, Notification, MemberChange, None] = None
    if name == "transfer" and raw.get("state") in TERMINAL:
        body = result_of(raw)
    elif name == "notify":
        data = raw.get("data", b"")
        body = Notification(raw.get("from", ""), raw.get("transfer", 0), raw.get("region", ""),
                            raw.get("bytes", 0), data.encode() if isinstance(data, str) else data,
                            raw.get("stream", 0), raw.get("part", 0))
    elif name.startswith("member_"):
        body = MemberChange(name[len("member_"):], raw.get("node", ""), raw.get("incarnation", 0),
                            raw.get("reason", ""))
    return Event(int(raw.get("seq", 0)), name, body, raw)


class _Seen:
    """Which events a subscription has had. The service may repeat old ones to one subscription
    while newer ones arrive, so the highest number does not tell the new from the known."""

    KEPT = 65536

    def __init__(self, floor: int) -> None:
        self.floor = floor
        self._seen: Set[int] = set()
        self._order: Deque[int] = collections.deque()

    def is_new(self, sequence: int) -> bool:
        if sequence <= self.floor or sequence in self._seen:
            return False
        self._seen.add(sequence)
        self._order.append(sequence)
        if len(self._order) > self.KEPT:
            self._seen.discard(self._order.popleft())
        return True

    def start_over(self) -> None:
        self.floor = 0
        self._seen.clear()
        self._order.clear()


class Subscription:
    """Events of some topics, until it is stopped: given to the callback, or else kept here for
    `get()` and iteration. Renewed by the client whenever the connection or the service is."""

    def __init__(self, topics: Tuple[str, ...], callback: Optional[Callable[[Event], object]],
                 floor: int) -> None:
        self.topics = topics
        self._callback = callback
        self._seen = _Seen(floor)
        self._stopped = threading.Event()
        self._queue: queue.SimpleQueue[Optional[Event]] = queue.SimpleQueue()

    @property
    def stopped(self) -> bool:
        return self._stopped.is_set()

    def stop(self) -> None:
        """No event after this one call that may be running; iteration ends."""
        self._stopped.set()
        self._wake()

    def __enter__(self) -> Subscription:
        return self

    def __exit__(self, *_: object) -> None:
        self.stop()

    def get(self, timeout: Optional[float] = None) -> Event:
        """The next event. TimeoutError after `timeout` seconds; StopIteration's place is taken by
        EOFError when the subscription is stopped."""
        try:
            event = self._queue.get(timeout=timeout)
        except queue.Empty:
            raise TimeoutError(f"no event of {', '.join(self.topics)} within {timeout} s") from None
        if event is None:
            self._queue.put(None)  # for whoever waits next
            raise EOFError("the subscription is stopped")
        return event

    def __iter__(self) -> Iterator[Event]:
        while True:
            try:
                yield self.get()
            except EOFError:
                return

    # -- for the client's thread -------------------------------------------------------------------

    def _wake(self) -> None:
        self._queue.put(None)

    def _deliver(self, event: Event, call_back: Callable[..., None]) -> None:
        if self.stopped or event.topic not in self.topics or not self._seen.is_new(event.sequence):
            return
        if self._callback is not None:
            call_back(self._callback, event)
        else:
            self._keep(event)

    def _keep(self, event: Event) -> None:
        self._queue.put(event)


class AsyncSubscription(Subscription):
    """As Subscription, for the event loop that made it: ``async for event in subscription``."""

    def __init__(self, topics: Tuple[str, ...], callback: Optional[Callable[[Event], object]],
                 floor: int) -> None:
        super().__init__(topics, callback, floor)
        self._loop = asyncio.get_running_loop()
        self._events: asyncio.Queue[Optional[Event]] = asyncio.Queue()

    async def __aenter__(self) -> AsyncSubscription:
        return self

    async def __aexit__(self, *_: object) -> None:
        self.stop()

    async def next(self, timeout: Optional[float] = None) -> Event:
        """As Subscription.get()."""
        try:
            event = await asyncio.wait_for(self._events.get(), timeout)
        except asyncio.TimeoutError:
            raise TimeoutError(f"no event of {', '.join(self.topics)} within {timeout} s") from None
        if event is None:
            self._events.put_nowait(None)
            raise EOFError("the subscription is stopped")
        return event

    def __aiter__(self) -> AsyncIterator[Event]:
        return self._iterate()

    async def _iterate(self) -> AsyncIterator[Event]:
        while True:
            try:
                yield await self.next()
            except EOFError:
                return

    def _wake(self) -> None:
        self._put(None)

    def _keep(self, event: Event) -> None:
        self._put(event)

    def _put(self, event: Optional[Event]) -> None:
        try:
            self._loop.call_soon_threadsafe(self._events.put_nowait, event)
        except RuntimeError:  # the loop is closed: nobody is left to read
            self._stopped.set()
