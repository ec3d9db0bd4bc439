"""A transfer as it is asked for, followed, and told to have ended."""

from __future__ import annotations

import asyncio
import concurrent.futures
import dataclasses
import datetime
import threading
from typing import (TYPE_CHECKING, Any, Callable, Dict, Generator, Iterable, List, Optional,
                    Sequence, Tuple, Union)

import numpy as np

from .errors import Error, InvalidArgument, Lost, error_of
from .layout import Layout

if TYPE_CHECKING:
    from ._core import Core

#: A time span: seconds, or a timedelta.
Seconds = Union[float, datetime.timedelta]
TERMINAL = frozenset({"done", "failed", "cancelled", "expired"})


def milliseconds(span: Seconds, what: str) -> int:
    """At least 1 for what is more than nothing: 0 means something else on the wire."""
    seconds = span.total_seconds() if isinstance(span, datetime.timedelta) else float(span)
    if not 0 < seconds <= 4_000_000:
        raise InvalidArgument("INVALID_ARGUMENT", f"{what}: expected more than 0 s, found {span}")
    return max(1, round(seconds * 1000))


@dataclasses.dataclass(frozen=True)
class Target:
    """A region of a node; node "" is the service's own. With an `epoch` other than 0 the transfer
    is refused (Stale) when the region is another one by now."""

    node: str
    region: str
    epoch: int = 0

    def fields(self) -> Dict[str, Any]:
        fields: Dict[str, Any] = {"node": self.node, "region": self.region}
        if self.epoch:
            fields["epoch"] = self.epoch
        return fields


@dataclasses.dataclass(frozen=True)
class TransferSpec:
    """Everything that can be said of a transfer; `Client.write` and its kin build these. Each of
    `targets` becomes a transfer of its own."""

    direction: str  # "write": from `region` to the targets; "read": from them into it
    region: str
    targets: Sequence[Target]
    layout: Layout
    deadline: Optional[Seconds] = None  # from acceptance; then it ends as "expired"
    priority: str = "bulk"              # "urgent" goes before "bulk"
    weight: int = 1                     # 1 to 1000: share among those to the same peer and lane
    packing: str = "auto"               # "always", "never": whether small pages cross packed
    path: str = "auto"                  # "staged", "gpudirect": that way or an error
    key: str = ""                       # a repeated key returns the first one's ids
    notify: Union[bytes, str] = b""     # up to 1024 bytes for the destination's subscribers
    start_after: bytes = b""            # a CUDA event's IPC handle: nothing is read before it
    record_event: bytes = b""           # the same: recorded behind a copy on one node
    verify: bool = False                # done only when both sides have the same digests
    on: str = ""                        # the node that carries it out; `region` is then its

    def fields(self) -> Dict[str, Any]:
        fields: Dict[str, Any] = {"direction": self.direction, "region": self.region,
                                  "targets": [target.fields() for target in self.targets],
                                  "layout": self.layout.fields()}
        if self.deadline is not None:
            fields["deadline_ms"] = milliseconds(self.deadline, "deadline")
        for key, value, default in (("lane", self.priority, "bulk"), ("weight", self.weight, 1),
                                    ("packing", self.packing, "auto"), ("path", self.path, "auto"),
                                    ("key", self.key, ""), ("verify", self.verify, False),
                                    ("on", self.on, "")):
            if value != default:
                fields[key] = value
        for key, data in (("notify", self.notify), ("start_after", self.start_after),
                          ("record_event", self.record_event)):
            if data:
                fields[key] = data.encode() if isinstance(data, str) else bytes(data)
        return fields


@dataclasses.dataclass(frozen=True)
class CardShare:
    name: str
    bytes: int
    writes: int


@dataclasses.dataclass(frozen=True)
class TransferResult:
    """How a transfer ended."""

    id: int
    #: "done", "failed", "cancelled", "expired"; "refused": never accepted; "lost": not known.
    state: str
    #: "quiet", or "unreachable": whether anything may still touch the other node's pages.
    remote: str = "quiet"
    node: str = ""
    region: str = ""
    remote_region: str = ""
    direction: str = ""
    lane: str = ""
    bytes: int = 0       # that landed
    writes: int = 0      # one-sided operations
    elapsed_us: int = 0  # from acceptance, by the service's clock
    path: str = ""       # "direct", "packed", "inline", "local_copy", ...: docs/protocol.md
    cards: Tuple[CardShare, ...] = ()
    stream: int = 0      # of a part: the stream's id; `part` is its number
    part: int = 0
    parts: int = 0       # of a stream: appended, and of them done
    parts_done: int = 0
    on: str = ""         # the node that carried it out, "" the service's own
    on_as: int = 0       # the transfer's id there, once it is known
    error: Optional[Error] = None  # unless done
    #: When it is not done: rows of (source offset, destination offset, length) that had landed.
    landed: np.ndarray[Any, Any] = dataclasses.field(
        default_factory=lambda: np.empty((0, 3), "<u8"), compare=False, repr=False)
    landed_truncated: bool = False

    @property
    def ok(self) -> bool:
        return self.state == "done"

    def check(self) -> TransferResult:
        """Itself when it is done; else raises the error of its family, with `result` set."""
        if self.error is not None:
            raise self.error
        return self


def result_of(body: Dict[str, Any]) -> TransferResult:
    """From a terminal event, or a line of `transfers`."""
    state = str(body["state"])
    landed = np.frombuffer(body.get("landed", b""), "<u8").reshape(-1, 3)
    result = TransferResult(
        id=int(body.get("id", 0)), state=state, landed=landed,
        cards=tuple(CardShare(card.get("name", ""), card.get("bytes", 0), card.get("writes", 0))
                    for card in body.get("cards", ())),
        **{key: body[key] for key in ("remote", "node", "region", "remote_region", "direction",
                                      "lane", "bytes", "writes", "elapsed_us", "path",
                                      "landed_truncated", "stream", "part", "parts", "parts_done",
                                      "on", "on_as")
           if key in body})
    return result if state == "done" else with_error(result, body.get("error") or {})


def with_error(result: TransferResult, error: Dict[str, Any]) -> TransferResult:
    code = error.get("code") or {"cancelled": "CANCELLED", "expired": "DEADLINE_EXCEEDED"}.get(
        result.state, "INTERNAL")
    raised = error_of(code, error.get("message") or f"transfer {result.id} is {result.state}")
    return ended_by(result, raised)


def ended_by(result: TransferResult, error: Error) -> TransferResult:
    """`result` with `error`, and the error with the result."""
    if result.state == "lost":
        error = Lost(error.code, error.message)
    else:
        error = type(error)(error.code, error.message)
    told = dataclasses.replace(result, error=error)
    error.result = told
    return told


class Transfer:
    """A transfer under way: a future of its TransferResult. Dropping it leaves it running.

    Any thread, and awaitable in any event loop: ``result = await transfer``. The end always comes:
    the service ends each transfer at its deadline, and the client calls it lost when the service
    stays away.
    """

    def __init__(self, core: Core, description: str) -> None:
        self._core = core
        self._description = description
        self._lock = threading.Lock()
        self._cancel_asked = False
        self._accepted: concurrent.futures.Future[int] = concurrent.futures.Future()
        self._ended: concurrent.futures.Future[TransferResult] = concurrent.futures.Future()
        # Running: nobody's cancel() of the future itself may end what the service still does.
        self._accepted.set_running_or_notify_cancel()
        self._ended.set_running_or_notify_cancel()

    def __repr__(self) -> str:
        return f"<penstock.Transfer {self.id or ''} {self._description}: {self.state}>"

    # -- where it stands, without waiting ----------------------------------------------------------

    @property
    def id(self) -> Optional[int]:
        """The service's number for it; None until it is accepted, and when it was refused."""
        done = self._accepted.done() and self._accepted.exception() is None
        return self._accepted.result() if done else None

    @property
    def state(self) -> str:
        """"submitted", "accepted", or the state of its result."""
        if self._ended.done():
            return self._ended.result().state
        return "submitted" if self.id is None else "accepted"

    @property
    def path(self) -> Optional[str]:
        """The way that its bytes took, once it has ended."""
        return self._ended.result().path if self._ended.done() else None

    def done(self) -> bool:
        """Whether it has ended, in whichever way."""
        return self._ended.done()

    def running(self) -> bool:
        return not self._ended.done()

    def cancelled(self) -> bool:
        return self._ended.done() and self._ended.result().state == "cancelled"

    # -- waiting -----------------------------------------------------------------------------------

    def wait_accepted(self, timeout: Optional[float] = None) -> int:
        """Its id. Raises the refusal; TimeoutError after `timeout` seconds."""
        return int(self._wait(self._accepted, timeout, "accepted"))

    def wait(self, timeout: Optional[float] = None) -> TransferResult:
        """How it ended, whichever way. TimeoutError after `timeout` seconds."""
        result: TransferResult = self._wait(self._ended, timeout, "ended")
        return result

    def result(self, timeout: Optional[float] = None) -> TransferResult:
        """As wait(), but raises unless it is done: the error of its family, with `.result`."""
        return self.wait(timeout).check()

    def exception(self, timeout: Optional[float] = None) -> Optional[Error]:
        return self.wait(timeout).error

    def __await__(self) -> Generator[Any, None, TransferResult]:
        result = yield from asyncio.wrap_future(self._ended).__await__()
        return result.check()

    def _wait(self, future: concurrent.futures.Future[Any], timeout: Optional[float],
              what: str) -> Any:
        if not future.done():
            self._core.refuse_on_own_thread("waiting for a transfer")
            self._core.spin(future, timeout)
        try:
            return future.result(timeout)
        except concurrent.futures.TimeoutError:
            if future.done():  # an answer that is a timeout itself
                return future.result()
            raise TimeoutError(f"{self!r} has not {what} after {timeout} s") from None

    # -- asking for more ---------------------------------------------------------------------------

    def add_done_callback(self, callback: Callable[[Transfer], object]) -> None:
        """Calls `callback(transfer)` once it has ended, on the client's thread (at once, here, when
        it has ended already). It must not block; it may start transfers."""
        if self._ended.done():
            self._core.call_here(callback, self)
        else:
            self._ended.add_done_callback(lambda _: self._core.call_back(callback, self))

    def cancel(self) -> bool:
        """Asks the service to stop it, without waiting: the end still comes, and may be "done" when
        that was faster. False when it has ended already."""
        if self._ended.done():
            return False
        with self._lock:
            self._cancel_asked = True
            accepted = self._accepted.done()
        if accepted:
            self._send_cancel()
        return True

    # -- for the client's thread -------------------------------------------------------------------

    def _accept(self, transfer_id: int) -> None:
        with self._lock:
            self._accepted.set_result(transfer_id)
            cancel = self._cancel_asked
        if cancel:
            self._send_cancel()

    def _send_cancel(self) -> None:
        if self.id is not None:
            self._core.start("cancel", {"ids": [self.id]})

    def _end(self, result: TransferResult) -> None:
        if self._ended.done():
            return
        if not self._accepted.done():
            if result.error is not None:
                self._accepted.set_exception(result.error)
            else:
                self._accepted.set_result(result.id)
        self._ended.set_result(result)


def wait_all(transfers: Iterable[Transfer],
             timeout: Optional[float] = None) -> List[TransferResult]:
    """Waits for the ends of all, in their order; TimeoutError after `timeout` seconds."""
    transfers = list(transfers)
    concurrent.futures.wait([transfer._ended for transfer in transfers], timeout)
    return [transfer.wait(0 if timeout is not None else None) for transfer in transfers]
