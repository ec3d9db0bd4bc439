"""The DEALER to the service: reconnects by itself, and tells when it did. One thread at a time but
for wake()."""

from __future__ import annotations

import os
from typing import Callable, Optional

import zmq
from zmq.utils.monitor import recv_monitor_message

from ._keys import Keys
from .errors import InvalidArgument

# Heartbeats find a service that stopped answering without closing.
_HEARTBEAT_MS = 2000
_HEARTBEAT_TIMEOUT_MS = 6000
_HEARTBEAT_TTL_MS = 10000  # the service hears nothing for so long: it closes the connection
_RECONNECT_MS = 100
_MAX_RECONNECT_MS = 2000
# While a callback is slow, events wait here rather than be dropped by the service.
_RECEIVE_QUEUE = 100_000
_MAX_MESSAGE_BYTES = 1 << 30
# Messages handled before the caller gets a turn at deadlines and requests.
_MESSAGES_PER_POLL = 256
_MECHANISM_MISMATCH = 0x11000002  # ZMQ_PROTOCOL_ERROR_ZMTP_MECHANISM_MISMATCH


class Connection:
    def __init__(self, endpoint: str, identity: bytes, keys: Optional[Keys] = None) -> None:
        self._keys = keys
        self._context = zmq.Context()
        self._dealer = self._context.socket(zmq.DEALER)
        for option, value in (
                (zmq.LINGER, 0), (zmq.SNDHWM, 0), (zmq.RCVHWM, _RECEIVE_QUEUE),
                # What was meant for one life of the service must not reach the next one.
                (zmq.IMMEDIATE, 1),
                (zmq.MAXMSGSIZE, _MAX_MESSAGE_BYTES), (zmq.IPV6, 1),
                (zmq.RECONNECT_IVL, _RECONNECT_MS), (zmq.RECONNECT_IVL_MAX, _MAX_RECONNECT_MS),
                (zmq.HEARTBEAT_IVL, _HEARTBEAT_MS), (zmq.HEARTBEAT_TIMEOUT, _HEARTBEAT_TIMEOUT_MS),
                (zmq.HEARTBEAT_TTL, _HEARTBEAT_TTL_MS)):
            self._dealer.setsockopt(option, value)
        self._dealer.setsockopt(zmq.ROUTING_ID, identity)
        self._monitor = self._dealer.get_monitor_socket(
            zmq.EVENT_HANDSHAKE_SUCCEEDED | zmq.EVENT_HANDSHAKE_FAILED_AUTH
            | zmq.EVENT_HANDSHAKE_FAILED_PROTOCOL | zmq.EVENT_DISCONNECTED)
        if keys is not None:
            self._dealer.setsockopt(zmq.CURVE_SECRETKEY, keys.secret)
            self._dealer.setsockopt(zmq.CURVE_PUBLICKEY, keys.public)
            self._dealer.setsockopt(zmq.CURVE_SERVERKEY, keys.server)
        try:
            self._dealer.connect(endpoint)
        except zmq.ZMQError as problem:
            self._close_sockets()
            raise InvalidArgument(
                "INVALID_ARGUMENT", f"cannot connect to '{endpoint}': {problem}; give an endpoint "
                "such as tcp://127.0.0.1:7411") from None
        self._awoken, self._waker = os.pipe()
        os.set_blocking(self._awoken, False)
        os.set_blocking(self._waker, False)
        self._poller = zmq.Poller()
        for item in (self._dealer, self._monitor, self._awoken):
            self._poller.register(item, zmq.POLLIN)

    def wake(self) -> None:
        """Any thread, until close()."""
        try:
            os.write(self._waker, b"w")
        except BlockingIOError:
            pass  # full: the poller is woken anyway

    def send(self, frame: bytes, number: int = 0) -> bool:
        """False when there is no connection; connected() will come. `number`: its place among what
        goes by the ring."""
        frames = [frame] if number == 0 else [frame, number.to_bytes(8, "little")]
        for _ in range(2):
            try:
                self._dealer.send_multipart(frames, zmq.DONTWAIT)
                return True
            except zmq.Again:
                # A busy socket takes notice of a new connection up to a millisecond after the
                # monitor told us of it; asking for its events makes it look now.
                self._dealer.getsockopt(zmq.EVENTS)
        return False

    def also(self, descriptor: int) -> None:
        """wait() ends when this is readable, too."""
        self._poller.register(descriptor, zmq.POLLIN)

    def no_more(self, descriptor: int) -> None:
        self._poller.unregister(descriptor)

    def wait(self, timeout_ms: int) -> bool:
        """Whether something else than wake() ended it."""
        ready = dict(self._poller.poll(timeout_ms))
        if self._awoken in ready:
            try:
                os.read(self._awoken, 65536)
            except BlockingIOError:
                pass
            del ready[self._awoken]
        return bool(ready)

    def tell(self, connected: Callable[[], None], disconnected: Callable[[], None],
             message: Callable[[bytes, int], None], refused: Callable[[str], None]) -> None:
        """Tells what came. `message(frame, number)`: its place among what comes by the ring, or
        0."""
        self._tell_changes(connected, disconnected, refused)
        for _ in range(_MESSAGES_PER_POLL):
            try:
                frames = self._dealer.recv_multipart(zmq.DONTWAIT)
            except zmq.Again:
                return
            # A reply of a new connection must not be taken for one of the old: first what changed.
            self._tell_changes(connected, disconnected, refused)
            if len(frames) == 1:
                message(frames[0], 0)
            elif len(frames) == 2 and len(frames[1]) == 8:
                message(frames[0], int.from_bytes(frames[1], "little"))

    def _tell_changes(self, connected: Callable[[], None], disconnected: Callable[[], None],
                      refused: Callable[[str], None]) -> None:
        while True:
            try:
                change = recv_monitor_message(self._monitor, zmq.DONTWAIT)
            except zmq.Again:
                return
            event = change["event"]
            if event == zmq.EVENT_HANDSHAKE_SUCCEEDED:
                connected()
            elif event == zmq.EVENT_DISCONNECTED:
                disconnected()
            elif event == zmq.EVENT_HANDSHAKE_FAILED_AUTH:
                refused("this client's key is not on its allow-list")
            elif (event == zmq.EVENT_HANDSHAKE_FAILED_PROTOCOL
                  and change["value"] == _MECHANISM_MISMATCH):
                refused("it asks for no key, this client shows one" if self._keys
                        else "it asks for a key: give key_file and server_key")

    def close(self) -> None:
        self._close_sockets()
        os.close(self._awoken)
        os.close(self._waker)

    def _close_sockets(self) -> None:
        self._dealer.disable_monitor()
        self._dealer.close(0)
        self._context.destroy(0)
