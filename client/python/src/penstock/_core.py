"""The client's one thread: it owns the connection, knows what is asked and not answered, and brings
everything back after a lost connection or a restart of the service. The same rules as client/cpp.
"""

from __future__ import annotations

import atexit
import concurrent.futures
import dataclasses
import itertools
import logging
import os
import threading
import time
import uuid
import weakref
from typing import (TYPE_CHECKING, Any, Callable, List, Optional, Sequence, Set, Tuple, Type,
                    TypeVar)

import numpy as np

from . import _wire
from ._by_ring import ByRing
from ._connection import Connection
from ._keys import keys_for
from ._pending import REPEATABLE, Done, Request
from ._progress import Watch
from ._service import Options, Restart, Service
from ._wire import Message
from .errors import Cancelled, Denied, Error, InternalError, InvalidArgument, NoAnswer, error_of
from .events import Event, Subscription, event_of
from .layout import blob
from .transfer import TERMINAL, Transfer, TransferResult, TransferSpec, ended_by, result_of

if TYPE_CHECKING:
    from .region import RegionBase

log = logging.getLogger("penstock")

# An end that did not come is asked for after this long, and so many at once.
_ASK_AFTER_S = 1.0
_ASK_LIMIT = 1000
_PROGRESS_EVERY_S = 0.1
_S = TypeVar("_S", bound=Subscription)


@dataclasses.dataclass
class _Remaking:
    """Since the service was restarted: what is still to be made, and what came of it."""

    to_make: List[RegionBase]
    service: Service
    made: List[str] = dataclasses.field(default_factory=list)
    lost: List[Error] = dataclasses.field(default_factory=list)


_living: weakref.WeakSet[Core] = weakref.WeakSet()


@atexit.register
def _close_all() -> None:
    for core in list(_living):
        core.close()


class Core(ByRing):
    def __init__(self, options: Options) -> None:
        identity = options.identity or f"client-{uuid.uuid4().hex}"
        if not 1 <= len(identity.encode()) <= 255 or identity[0] == "\0":
            raise InvalidArgument("INVALID_ARGUMENT", "an identity has 1 to 255 bytes and does not "
                                  "start with a zero byte")
        self.options = options
        self.service = Service()
        self.greeted: concurrent.futures.Future[Service] = concurrent.futures.Future()
        self.greeted.set_running_or_notify_cancel()
        self._connection = Connection(
            options.endpoint, identity.encode(),
            keys_for(options.endpoint, options.key_file, options.server_key))
        self._ids = itertools.count(1)
        self._pid = os.getpid()
        super().__init__()
        # Under the lock:
        self._subscriptions: List[Subscription] = []
        self._last_sequence = 0
        self._regions: List[RegionBase] = []
        self._watches: List[Watch] = []
        # Of whoever has the turn (ByRing):
        self._remaking: Optional[_Remaking] = None
        self._asking = False
        self._last_heard = self._next_check = self._next_progress = time.monotonic()
        self._thread = threading.Thread(target=self._run, name="penstock", daemon=True)
        _living.add(self)
        self._thread.start()

    # -- any thread --------------------------------------------------------------------------------

    def refuse_on_own_thread(self, what: str) -> None:
        if threading.current_thread() is self._thread:
            raise InvalidArgument(
                "INVALID_ARGUMENT", f"{what} would wait for the thread that runs this callback; "
                "start it and use add_done_callback(), or another thread")

    def start(self, operation: str, fields: Message,
              timeout: Optional[float] = None) -> concurrent.futures.Future[Message]:
        """Asks, without waiting. The future ends by the timeout, or by close()."""
        future: concurrent.futures.Future[Message] = concurrent.futures.Future()
        future.set_running_or_notify_cancel()

        def done(reply: Optional[Message], error: Optional[Error]) -> None:
            if error is not None:
                future.set_exception(error)
            else:
                future.set_result(reply or {})

        self._post(self._request(operation, fields, done, timeout))
        return future

    def call(self, operation: str, fields: Message, timeout: Optional[float] = None) -> Message:
        self.refuse_on_own_thread(f"'{operation}'")
        future = self.start(operation, fields, timeout)
        self.spin(future)
        return future.result()

    def submit(self, specs: Sequence[TransferSpec], progress: Any = None) -> List[Transfer]:
        """A handle for each target, in order of specs and targets. Refusals are results."""
        if any(not spec.targets for spec in specs):
            raise InvalidArgument("INVALID_ARGUMENT", "a transfer needs a target")
        transfers = [Transfer(self, f"{spec.direction} {spec.region} "
                              f"{'to' if spec.direction == 'write' else 'from'} "
                              f"{target.node or 'this node'}:{target.region}")
                     for spec in specs for target in spec.targets]
        if not transfers:
            return []
        keyed = [bool(spec.key) for spec in specs]

        def done(reply: Optional[Message], error: Optional[Error]) -> None:
            self._on_accepted(transfers, any(keyed), reply, error)

        request = self._request("transfer", {"transfers": [spec.fields() for spec in specs]}, done)
        request.repeatable = all(keyed)
        if progress is not None and progress is not False:
            total = sum(spec.layout.bytes * len(spec.targets) for spec in specs)
            watch = Watch(transfers, total, progress)
            with self._lock:
                self._watches.append(watch)
        self._post(request)
        return transfers

    def start_transfer(self, operation: str, fields: Message, transfer: Transfer,
                       may_have_ended: bool = False) -> None:
        """A request of which the reply has the id of one transfer: asked twice, it is the same one.
        `may_have_ended`: long ago, so that it is asked for."""
        def done(reply: Optional[Message], error: Optional[Error]) -> None:
            self._on_accepted([transfer], may_have_ended, reply, error)

        request = self._request(operation, fields, done)
        request.repeatable = True
        self._post(request)

    def subscribe(self, kind: Type[_S], topics: Sequence[str],
                  callback: Optional[Callable[[Event], object]],
                  since: Optional[int]) -> Tuple[_S, concurrent.futures.Future[Message]]:
        """The subscription counts once the future has a result; on an error stop() it."""
        with self._lock:
            floor = self._last_sequence if since is None else since
            subscription = kind(tuple(topics), callback, floor)
            self._subscriptions = [each for each in self._subscriptions if not each.stopped]
            self._subscriptions.append(subscription)
            fields: Message = {"topics": self._topics()}
        if since is not None:
            fields["since"] = since
        future: concurrent.futures.Future[Message] = concurrent.futures.Future()
        future.set_running_or_notify_cancel()

        def done(reply: Optional[Message], error: Optional[Error]) -> None:
            if error is not None:
                subscription.stop()
                future.set_exception(error)
                return
            reply = reply or {}
            if since is None:  # what was before the subscription is not for it
                newest = int(reply.get("seq", 0))
                subscription._seen.floor = max(subscription._seen.floor, newest)
                with self._lock:
                    self._last_sequence = max(self._last_sequence, newest)
            future.set_result(reply)

        self._post(self._request("subscribe", fields, done))
        return subscription, future

    def keep(self, region: RegionBase) -> None:
        """A region to make again when the service was restarted, until it is dropped."""
        with self._lock:
            self._regions.append(region)

    def drop(self, region: RegionBase) -> None:
        with self._lock:
            self._regions = [kept for kept in self._regions if kept is not region]

    def leave(self, region: str) -> None:
        """The region is to outlive this client: its lease does not concern it any more."""
        if self.options.lease <= 0:
            return
        try:
            answer = self.start("keep", {"name": region})
            if threading.current_thread() is not self._thread:
                answer.result()
        except Error:
            pass  # a service that knows no leases, or none at all: then nothing is to be left

    def regions(self) -> List[RegionBase]:
        with self._lock:
            return list(self._regions)

    def patience_to_close(self) -> float:
        """Seconds for each release of close(): few where the service is away."""
        return self.options.timeout if self._connected else min(1.0, self.options.timeout)

    def close(self) -> None:
        """Ends everything under way as cancelled or lost. Callable twice."""
        with self._lock:
            self._closing = True
            if not self._closed and os.getpid() == self._pid:
                self._connection.wake()
        if threading.current_thread() is not self._thread and os.getpid() == self._pid:
            self._thread.join()

    def _topics(self) -> List[str]:
        return sorted({topic for each in self._subscriptions if not each.stopped
                       for topic in each.topics})

    def _request(self, operation: str, fields: Message, done: Done,
                 timeout: Optional[float] = None) -> Request:
        request_id = next(self._ids)
        frame = _wire.encode(request_id, operation, fields)
        if len(frame) > self.options.max_request_bytes:
            raise InvalidArgument(
                "INVALID_ARGUMENT", f"'{operation}' takes {len(frame)} bytes; the service reads "
                f"requests of at most {self.options.max_request_bytes} (request.max_request_bytes "
                "there, max_request_bytes here); split it")
        return Request(request_id, operation, frame,
                        self.options.timeout if timeout is None else timeout,
                        operation in REPEATABLE, done)

    def _post(self, request: Request) -> None:
        if os.getpid() != self._pid:
            raise InvalidArgument("INVALID_ARGUMENT", "this client belongs to the process that was "
                                  "forked; make another one here")
        if self._ring is not None and self._send_at_once(request):
            return
        with self._lock:
            if not self._closing:
                self._posted.append(request)
                self._connection.wake()
                return
        request.done(None, Cancelled("CANCELLED", "the client is closed"))

    # -- the client's thread -----------------------------------------------------------------------

    def _run(self) -> None:
        while True:
            with self._turn:
                self._call_what_was_left()
                with self._lock:
                    posted, self._posted = self._posted, []
                    closing = self._closing
                for request in posted:
                    self._add(request)
                if closing:
                    break
                self._send_unsent()
                wait = self._prepare_to_wait()
            rang = self._connection.wait(int(wait * 1000) + 1 if wait else 0)
            with self._turn:
                self._connection.tell(self._on_connected, self._on_disconnected, self._on_came,
                                      self._on_refused)
                self._after_wait(rang)
                self._check_time()
        with self._turn:
            self._end_everything()

    # -- requests and answers ----------------------------------------------------------------------

    def _next_time(self) -> float:
        progress = self._next_progress if self._watches else float("inf")
        renewal = self._next_renewal if self._greeted and self.options.lease > 0 else float("inf")
        return min(self._next_check, progress, renewal, self._pending.next_deadline())

    def _add(self, request: Request) -> None:
        self._begin(request)
        self._pending.add(request)
        if self._greeted:
            self._send(request)

    def _ask(self, operation: str, fields: Message, done: Done,
             timeout: Optional[float] = None) -> None:
        """A question of the client's own that goes out before others are let through."""
        request = self._request(operation, fields, done, timeout)
        self._pending.add(request)
        self._send(request)

    def _on_message(self, frame: bytes) -> None:
        self._last_heard = time.monotonic()
        try:
            body = _wire.decode(frame)
            if "event" in body:
                self._on_event(event_of(body))
            else:
                self._on_reply(body)
        except Exception:  # from outside: the request that it answers ends by its deadline
            log.warning("a message of %s was not understood", self.options.endpoint, exc_info=True)

    def _on_reply(self, reply: Message) -> None:
        request = self._pending.take(reply["id"])
        if request is None:
            return  # too late, or answered twice
        if reply.get("ok") is True:
            request.done(reply, None)
        else:
            error = reply.get("error") or {}
            request.done(None, error_of(error.get("code", "INTERNAL"),
                                        error.get("message", "the service gave no words")))

    def _on_event(self, event: Event) -> None:
        if isinstance(event.body, TransferResult):
            self._waiting.end(event.body)
        with self._lock:
            self._last_sequence = max(self._last_sequence, event.sequence)
            subscriptions = list(self._subscriptions)
        for subscription in subscriptions:
            subscription._deliver(event, self.call_back)

    # -- a connection, the first or another --------------------------------------------------------

    def _on_connected(self) -> None:
        self._connected = True
        self._connections += 1
        self._asking = False
        self._drop_ring()
        self._ring_failed = False
        self._say_hello()

    def _on_disconnected(self) -> None:
        self._connected = self._greeted = False
        self._drop_ring()

    def _on_refused(self, why: str) -> None:
        """Before the first hello that is the end of it; later it may be let in again."""
        if not self.greeted.done():
            self.greeted.set_exception(Denied(
                "DENIED", f"{self.options.endpoint} does not let this client in: {why}"))

    def _say_hello(self) -> None:
        connection = self._connections

        def done(reply: Optional[Message], error: Optional[Error]) -> None:
            if connection != self._connections or not self._connected:
                return
            if reply is not None:
                self._wants_ring = self._may_have_ring(reply.get("ring"))
                self._resume(Service(reply["node"], reply["incarnation"],
                                     reply.get("service_version", ""),
                                     tuple(reply.get("devices", ()))))
                if not self.greeted.done():
                    self.greeted.set_result(self.service)
            elif isinstance(error, NoAnswer):
                self._say_hello()
            elif not self.greeted.done() and error is not None:
                self.greeted.set_exception(error)

        self._ask("hello", {"client": self.options.client}, done)

    def _resume(self, now: Service) -> None:
        restarted = self.service.incarnation not in (0, now.incarnation)
        self.service = now
        if restarted:
            with self._lock:
                self._last_sequence = 0
                for subscription in self._subscriptions:
                    subscription._seen.start_over()
                self._remaking = _Remaking(list(self._regions), now)
            self._waiting.lose_before(self._connections, error_of(
                "PEER_LEFT", f"the service at {self.options.endpoint} was restarted meanwhile"))
        self._make_regions_again()

    def _make_regions_again(self) -> None:
        """One after the other, in the order in which they were made first; then everything else
        goes on. A connection that breaks meanwhile is followed by another hello, which comes here
        again."""
        remaking = self._remaking
        if remaking is not None:
            if remaking.to_make:
                self._make_again(remaking, remaking.to_make[0])
                return
            self._remaking = None
            if self.options.restarted is not None:
                self.call_back(self.options.restarted, Restart(
                    remaking.service, tuple(remaking.made), tuple(remaking.lost)))
        self._greeted = True
        waiting = self._pending.to_send()  # without the question that comes now
        self._renew_lease()
        for request in waiting:
            self._send(request)
        if self._connections > 1:
            self._subscribe_again()
            self._ask_for_waiting(0)

    def _make_again(self, remaking: _Remaking, region: RegionBase) -> None:
        connection = self._connections

        def made(body: Optional[Message], error: Optional[Error]) -> None:
            try:
                if error is not None:
                    raise error
                region._renew(body or {})
                remaking.made.append(region.name)
            except Error as problem:
                remaking.lost.append(type(problem)(
                    problem.code, f"region '{region.name}': {problem.message}"))
            remaking.to_make = [each for each in remaking.to_make if each is not region]
            self._make_regions_again()

        def taken(reply: Optional[Message], error: Optional[Error]) -> None:
            if connection != self._connections or not self._connected:
                return
            for each in (reply or {}).get("regions", ()):
                if (each["name"] == region.name and each["bytes"] == region.size
                        and each.get("yours", False)):
                    made(each, None)
                    return
            made(None, error or error_of("ALREADY_EXISTS", "another region has the name now"))

        def done(reply: Optional[Message], error: Optional[Error]) -> None:
            if connection != self._connections or not self._connected:
                return
            # Our own first try, whose answer went with its connection, or somebody's: the service
            # knows.
            if error is not None and error.code == "ALREADY_EXISTS":
                self._ask("regions", {}, taken)
            else:
                made(reply, error)

        operation, fields = region._made_by
        self._ask(operation, fields, done, self.options.memory_timeout)

    def _subscribe_again(self) -> None:
        with self._lock:
            topics, since = self._topics(), self._last_sequence
        if topics:
            self._ask("subscribe", {"topics": topics, "since": since}, lambda *_: None)

    # -- transfers ---------------------------------------------------------------------------------

    def _on_accepted(self, transfers: List[Transfer], ask_at_once: bool,
                     reply: Optional[Message], error: Optional[Error]) -> None:
        ids = [] if reply is None else _integers(reply.get("ids", ()))
        if error is None and len(ids) != len(transfers):
            error = InternalError("INTERNAL", "the service gave another number of ids than there "
                                  "were targets")
        if error is not None:
            unknown = isinstance(error, (Cancelled, InternalError, NoAnswer))
            for transfer in transfers:
                transfer._end(ended_by(TransferResult(0, "lost" if unknown else "refused"), error))
        else:
            for transfer_id, transfer in zip(ids, transfers):
                self._waiting.accept(transfer_id, transfer, self._connections)
            # A repeated key may name a transfer whose end was told long ago.
            if ask_at_once:
                self._ask_for([each for each in ids if each in self._waiting])
        self._waiting.request_answered()

    def _ask_for_waiting(self, age: float) -> None:
        if self._asking or not self._greeted:
            return
        self._ask_for(self._waiting.to_ask(age, _ASK_LIMIT))

    def _ask_for(self, ids: List[int]) -> None:
        if not ids:
            return
        self._asking = True
        connection = self._connections

        def done(reply: Optional[Message], error: Optional[Error]) -> None:
            # Another life of the service may have other transfers under the same ids.
            if connection != self._connections:
                return
            self._asking = False
            if reply is not None:
                self._on_asked(ids, reply)

        self._ask("transfers", {"ids": blob(np.array(ids, "<u8")), "limit": len(ids)}, done)

    def _on_asked(self, ids: List[int], reply: Message) -> None:
        known: Set[int] = set()
        for line in reply.get("transfers", ()):
            if line.get("state") != "unknown":
                known.add(line["id"])
            if line.get("state") in TERMINAL:
                self._waiting.end(result_of(line))
        for transfer_id in ids:
            if transfer_id not in known:
                self._waiting.lose(transfer_id, error_of(
                    "NOT_FOUND", f"the service no longer knows transfer {transfer_id}; its end was "
                    "not kept"))

    # -- time --------------------------------------------------------------------------------------

    def _check_time(self) -> None:
        now = time.monotonic()
        for request in self._pending.take_expired(now):
            request.done(None, self._no_answer(request))
        if self._watches and now >= self._next_progress:
            self._next_progress = now + _PROGRESS_EVERY_S
            self._follow_progress()
        if now >= self._next_renewal:
            self._renew_lease()
        if now < self._next_check:
            return
        self._next_check = now + _ASK_AFTER_S
        self._pending.tidy()
        self._ask_for_waiting(_ASK_AFTER_S)
        if now - self._last_heard >= self.options.lost_after:
            self._waiting.lose_before(float("inf"), error_of(
                "PEER_UNREACHABLE", f"the service at {self.options.endpoint} has not answered for "
                f"{self.options.lost_after} s"))

    def _follow_progress(self) -> None:
        with self._lock:
            watches = list(self._watches)
        ids = [each for watch in watches for each in watch.running()][:_ASK_LIMIT]
        if ids and self._greeted:
            def done(reply: Optional[Message], _: Optional[Error]) -> None:
                running = {line["id"]: line.get("bytes", 0)
                           for line in (reply or {}).get("transfers", ())}
                for watch in watches:
                    self.call_back(watch.show, running)
            self._ask("transfers", {"ids": blob(np.array(ids, "<u8")), "limit": len(ids)}, done)
        for watch in watches:
            if watch.ended():
                self.call_back(watch.close)
                with self._lock:
                    self._watches.remove(watch)

    def _no_answer(self, request: Request) -> NoAnswer:
        return NoAnswer("DEADLINE_EXCEEDED", self.why_no_answer(request.operation, request.timeout))

    def why_no_answer(self, operation: str, timeout: float) -> str:
        return (f"no answer from {self.options.endpoint} to '{operation}' within {timeout:g} s; "
                + ("it is connected: is the service busy or stopped?" if self._connected else
                   "it is not connected: is penstockd running there?"))

    def _end_everything(self) -> None:
        self._call_what_was_left()
        self._drop_ring()
        with self._lock:
            posted, self._posted = self._posted, []
            subscriptions, self._subscriptions = self._subscriptions, []
            watches, self._watches = self._watches, []
        closed = Cancelled("CANCELLED", "the client was closed before the answer")
        for request in [*self._pending.take_all(), *posted]:
            request.done(None, closed)
        self._waiting.lose_before(float("inf"), Cancelled(
            "CANCELLED", "the client was closed; the transfer goes on"))
        if not self.greeted.done():
            self.greeted.set_exception(closed)
        for subscription in subscriptions:
            subscription.stop()
        for watch in watches:
            self.call_back(watch.close)
        with self._lock:
            self._closed = True
            self._connection.close()


def _integers(values: Any) -> List[int]:
    if isinstance(values, bytes):
        return [int(value) for value in np.frombuffer(values, "<u8")]
    return [int(value) for value in values]
