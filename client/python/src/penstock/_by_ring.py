"""The client and its ring: when it has one, what goes by it, and threads that look for an answer
themselves instead of being woken. What all of Core shares with that is here, too."""

from __future__ import annotations

import concurrent.futures
import logging
import threading
import time
from typing import Any, Callable, List, Optional, Tuple

from ._connection import Connection
from ._pending import Done, PendingRequests, Request
from ._ring import VERSION, NoRing, Ring, possible
from ._service import Options
from ._waiting import WaitingTransfers
from ._wire import Message
from .errors import Error

log = logging.getLogger("penstock")

# What is answered with the ids of transfers, by Core._on_accepted().
_STARTS_TRANSFERS = frozenset({"transfer", "stream", "append"})
# Answers by the ring before others get a turn; how soon a ring without room is tried again.
_ANSWERS_PER_TURN = 256
_NO_ROOM_LOOK_S = 0.001


class ByRing:
    options: Options
    _connection: Connection
    _thread: threading.Thread

    def __init__(self) -> None:
        self._lock = threading.Lock()
        # Under the lock:
        self._closing = False
        self._closed = False
        self._posted: List[Request] = []
        self._left: List[Tuple[Callable[..., object], Tuple[object, ...]]] = []  # callbacks
        # Whoever has the turn: the client's thread, or one that asks or waits by the ring. Before
        # the lock. Of the connection only the client's thread sends and receives.
        self._turn = threading.Lock()
        self._ring: Optional[Ring] = None
        self._wants_ring = False   # to be asked for with the next hello
        self._ring_failed = False  # on this connection
        self._unsent = False       # some requests found no room in the ring, or are too long for it
        self._waits = False        # the client's thread, for something to come
        self._wakes_at = 0.0
        self._spinners = 0
        self._connected = False
        self._connections = 0  # so far
        # The service of this connection has answered hello: it is known which life of it this is,
        # and our regions are there. Other requests wait for that.
        self._greeted = False
        self._asking = False
        self._pending = PendingRequests()
        self._waiting = WaitingTransfers()
        self._next_renewal = time.monotonic()

    # -- of Core -----------------------------------------------------------------------------------

    def _next_time(self) -> float:
        raise NotImplementedError

    def _on_message(self, frame: bytes) -> None:
        raise NotImplementedError

    def _say_hello(self) -> None:
        raise NotImplementedError

    def _ask(self, operation: str, fields: Message, done: Done,
             timeout: Optional[float] = None) -> None:
        raise NotImplementedError

    # -- any thread --------------------------------------------------------------------------------

    def call_back(self, callback: Callable[..., object], *args: object) -> None:
        """On the client's thread, whoever learned what it is called for."""
        if threading.current_thread() is not self._thread:
            with self._lock:
                if not self._closed:
                    self._left.append((callback, args))
                    self._connection.wake()
                    return
        self._call_what_was_left()  # what came before
        self.call_here(callback, *args)

    def _call_what_was_left(self) -> None:
        with self._lock:
            left, self._left = self._left, []
        for callback, args in left:
            self.call_here(callback, *args)

    def call_here(self, callback: Callable[..., object], *args: object) -> None:
        try:
            callback(*args)
        except Exception:  # a callback's failure must not end the client's thread
            log.exception("a callback of a penstock client failed")

    def has_ring(self) -> bool:
        return self._ring is not None

    def spin(self, future: concurrent.futures.Future[Any], timeout: Optional[float] = None) -> None:
        """Looks for its answer in the ring, for as long as the client is told to; what else comes
        meanwhile is dealt with as well."""
        if (self.options.spin <= 0 or self._ring is None
                or threading.current_thread() is self._thread or not self._turn.acquire(False)):
            return
        counted = False
        try:
            try:
                if self._ring is None:
                    return
                with self._lock:
                    self._spinners += 1
                    counted = True
                self._ring.awake()  # nobody needs to ring for us
            finally:
                self._turn.release()
            self._look_for(future, timeout)
        finally:  # a signal's exception may end it as well
            if counted:
                self._spin_end()

    def _look_for(self, future: concurrent.futures.Future[Any], timeout: Optional[float]) -> None:
        spin = self.options.spin if timeout is None else min(self.options.spin, timeout)
        end = time.monotonic() + spin
        while not future.done() and time.monotonic() < end:
            if self._turn.acquire(False):
                try:
                    if self._ring is None:
                        break
                    self._ring.receive(_ANSWERS_PER_TURN, self._on_message)
                finally:
                    self._turn.release()

    def _spin_end(self) -> None:
        with self._lock:
            self._spinners -= 1
            if self._spinners > 0 or self._closed:
                return
        # Waits for nobody: whoever has the turn may be in a callback, which may want what our
        # caller holds. The client's thread then sees to it that it is rung for when it waits again.
        asleep = False
        if self._turn.acquire(False):
            try:
                asleep = not self._waits or self._ring is None or self._ring.sleep()
            finally:
                self._turn.release()
        if not asleep:
            with self._lock:
                if not self._closed:
                    self._connection.wake()

    def _send_at_once(self, request: Request) -> bool:
        """By the ring, on the caller's own thread, when nobody else is at it."""
        if threading.current_thread() is self._thread or not self._turn.acquire(False):
            return False
        try:
            with self._lock:
                if self._closing or self._posted:
                    return False
            if (self._ring is None or not self._greeted or self._unsent
                    or not self._ring.fits(request.frame) or not self._ring.send(request.frame)):
                return False
            self._begin(request)
            self._note_sent(request)
            self._pending.add(request)
            if time.monotonic() + request.timeout < self._wakes_at:
                self._connection.wake()
            return True
        finally:
            self._turn.release()

    # -- the ring ----------------------------------------------------------------------------------

    def _may_have_ring(self, offer: Any) -> bool:
        """Whether the service's hello offers one of a version that we speak."""
        return (self.options.ring and not self._ring_failed and isinstance(offer, dict)
                and offer.get("version") == VERSION and possible(self.options.endpoint))

    def _take_ring(self, offer: Message) -> None:
        """Anything that is wrong leaves us with ZeroMQ, which does all that a ring does."""
        if self._ring is not None or "token" not in offer:
            return
        try:
            ring = Ring(offer["socket"], offer["token"])
        except (NoRing, OSError, TypeError, ValueError) as problem:
            log.debug("no ring to %s: %s", self.options.endpoint, problem)
            return
        # What we have sent is on its way by ZeroMQ: the ring begins behind all of that.
        number = ring.announce()
        if number and self._connection.send(b"", number):
            self._connection.also(ring.fileno())
            self._ring = ring
        else:
            ring.close()

    def _drop_ring(self) -> None:
        ring, self._ring = self._ring, None
        self._unsent = False
        if ring is not None:
            self._connection.no_more(ring.fileno())
            ring.close()

    def _on_ring_ended(self, ring: Ring) -> None:
        """The service has ended it, or has died, which the connection will tell, too. What was
        asked by it may have been read or not: as after a lost connection."""
        while ring.receive(_ANSWERS_PER_TURN, self._on_message):
            pass
        ring.receive_left(self._on_message)
        self._drop_ring()
        self._ring_failed = True
        if self._connected:
            self._greeted = False
            self._connections += 1
            self._asking = False
            self._say_hello()

    def _transmit(self, frame: bytes) -> bool:
        """False: no room for it, or no connection; it stays among those to be sent."""
        if self._ring is None:
            return self._connection.send(frame)
        own = threading.current_thread() is self._thread
        if not self._unsent:  # else it would overtake them
            if self._ring.fits(frame):
                if self._ring.send(frame):
                    return True
            elif own:
                number = self._ring.announce()
                if number:
                    return self._connection.send(frame, number)
        self._unsent = True
        if not own:
            self._connection.wake()
        return False

    def _send_unsent(self) -> None:
        if not self._unsent or not self._greeted:
            return
        self._unsent = False
        for request in self._pending.to_send():
            if not request.sent:
                self._send(request)
            if self._unsent:
                return

    def _prepare_to_wait(self) -> float:
        wait = max(0.0, self._next_time() - time.monotonic())
        if self._ring is not None:
            if self._unsent:
                wait = min(wait, _NO_ROOM_LOOK_S)
            if self._spinners == 0 and not self._ring.sleep():
                wait = 0.0
        self._wakes_at = time.monotonic() + wait
        self._waits = True
        return wait

    def _after_wait(self, rang: bool) -> None:
        self._waits = False
        ring = self._ring
        if ring is None:
            return
        ring.awake()
        ring.receive(_ANSWERS_PER_TURN, self._on_message)
        if ring.broken or (rang and not ring.serve_bell()):
            self._on_ring_ended(ring)

    def _on_came(self, frame: bytes, number: int) -> None:
        if self._ring is not None and number:
            self._ring.came_by_socket(number, frame)
        elif frame:  # an empty one is about a ring that has ended
            self._on_message(frame)

    # -- requests ----------------------------------------------------------------------------------

    def _begin(self, request: Request) -> None:
        if request.operation in _STARTS_TRANSFERS:
            self._waiting.request_sent()

    @staticmethod
    def _note_sent(request: Request) -> None:
        request.sent = True
        if not request.repeatable:
            request.frame = b""  # page lists can be large

    def _send(self, request: Request) -> None:
        if self._transmit(request.frame):
            self._note_sent(request)  # else _on_connected() comes, then it is sent

    def _renew_lease(self) -> None:
        """A service that knows no leases refuses it, and that is that."""
        lease = self.options.lease
        if not self._greeted or (lease <= 0 and not self._wants_ring):
            return
        fields: Message = {"client": self.options.client}
        if lease > 0:
            self._next_renewal = time.monotonic() + lease / 3
            fields["lease_ms"] = int(lease * 1000)
        if not self._wants_ring:
            self._ask("hello", fields, lambda *_: None)
            return
        self._wants_ring = False
        connection = self._connections

        def done(reply: Optional[Message], _: Optional[Error]) -> None:
            if connection == self._connections and self._connected and reply is not None:
                self._take_ring(reply.get("ring") or {})

        self._ask("hello", {**fields, "ring": VERSION}, done)
