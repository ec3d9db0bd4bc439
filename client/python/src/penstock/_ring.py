"""The client's end of a ring in shared memory to a service on the same machine (docs/protocol.md).
For one thread at a time.

Python has no atomic operations, so this is for x86-64 and CPython alone: an aligned word is read
and written whole there, and loads and stores keep their order, but that a store may be passed by a
later load; where that matters a lock is taken, which the processor does not pass (_fence)."""

from __future__ import annotations

import array
import mmap
import os
import platform
import socket
import struct
import sys
import threading
from typing import Callable, Dict, List, Optional

VERSION = 1
_MAGIC = 0x314E525453504E50
_HEADER = 4096
_LEAST, _MOST = 4096, 64 << 20
_RECORD = struct.Struct("=II")
_NUMBER = struct.Struct("=Q")
_MESSAGE, _BY_SOCKET = 1, 2
_TAKE, _TAKEN = 2, 4
_ANSWER_S = 5.0
_MOST_AHEAD = 1024  # messages that came before the ring said where they belong
# Where the indices are, in words of 8 bytes, and the flags, of 4.
_REQUESTS_HEAD, _REQUESTS_TAIL, _SERVICE_ASLEEP = 16, 32, 96
_ANSWERS_HEAD, _ANSWERS_TAIL, _CLIENT_ASLEEP = 64, 80, 192


def possible(endpoint: str) -> bool:
    """Whether a client here can have one, of a service on this machine."""
    return (sys.platform == "linux" and platform.machine() == "x86_64"
            and sys.implementation.name == "cpython"
            and endpoint.startswith(("ipc://", "tcp://127.", "tcp://localhost:", "tcp://[::1]:")))


class NoRing(Exception):
    """It cannot be had, or used. The client goes on by ZeroMQ."""


def _take(path: str, token: int) -> List[int]:
    """The descriptors under this token."""
    with socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET | socket.SOCK_CLOEXEC) as server:
        server.settimeout(_ANSWER_S)
        server.connect(path)
        credentials = server.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, 12)
        if struct.unpack("3i", credentials)[1] not in (0, os.geteuid()) and os.geteuid() != 0:
            raise NoRing("another user listens there")
        server.sendall(struct.pack("=QQ", _TAKE, token))
        record, ancillary, _, _ = server.recvmsg(16, socket.CMSG_SPACE(4 * 4),
                                                 socket.MSG_CMSG_CLOEXEC)
    descriptors = array.array("i")
    for level, kind, data in ancillary:
        if level == socket.SOL_SOCKET and kind == socket.SCM_RIGHTS:
            descriptors.frombytes(data[:len(data) - len(data) % descriptors.itemsize])
    taken = list(descriptors)
    if len(taken) != 2 or len(record) != 16 or struct.unpack("=QQ", record)[0] != _TAKEN:
        for descriptor in taken:
            os.close(descriptor)
        raise NoRing("the service gave no ring")
    return taken


class Ring:
    def __init__(self, path: str, token: int) -> None:
        """Fetches and maps what the service has handed out. Raises NoRing, OSError."""
        memory, bell = _take(path, token)
        self._bell = socket.socket(fileno=bell)
        self._bell.setblocking(False)
        try:
            size = os.fstat(memory).st_size
            if size < _HEADER + 2 * _LEAST:
                raise NoRing("the service's ring has another size")
            self._map = mmap.mmap(memory, size)
        finally:
            os.close(memory)
        whole = memoryview(self._map)
        self._words = whole[:_HEADER].cast("Q")
        self._flags = whole[:_HEADER].cast("I")
        magic, self._bytes = self._words[0], self._words[2]
        version, header = self._flags[2], self._flags[3]
        if (magic != _MAGIC or version != VERSION or header != _HEADER
                or self._bytes & (self._bytes - 1) or not _LEAST <= self._bytes <= _MOST
                or size < _HEADER + 2 * self._bytes):
            raise NoRing("the service's ring is of another version")
        self._requests = whole[_HEADER:_HEADER + self._bytes]
        self._answers = whole[_HEADER + self._bytes:_HEADER + 2 * self._bytes]
        self._longest = self._bytes // 4
        self._head = self._tail = 0
        self._sent_numbers = 0
        self._waits_for = 0
        self._by_socket: Dict[int, bytes] = {}
        self._lock = threading.Lock()
        self.broken = False

    def close(self) -> None:
        self._bell.close()
        self._words = self._flags = self._requests = self._answers = memoryview(b"")
        try:
            self._map.close()
        except BufferError:
            pass  # a view is in use yet, and takes it along when it goes

    def fileno(self) -> int:
        return self._bell.fileno()

    # -- requests ----------------------------------------------------------------------------------

    def fits(self, frame: bytes) -> bool:
        return len(frame) <= self._longest

    def send(self, frame: bytes) -> bool:
        """False: no room now."""
        return self._write(_MESSAGE, frame)

    def announce(self) -> int:
        """Says that the next message comes by ZeroMQ, with the number that this returns; 0: no room
        to say it."""
        if not self._write(_BY_SOCKET, _NUMBER.pack(self._sent_numbers + 1)):
            return 0
        self._sent_numbers += 1
        return self._sent_numbers

    def _write(self, kind: int, payload: bytes) -> bool:
        record = _RECORD.pack(len(payload), kind) + payload + bytes(-len(payload) % 8)
        used = self._head - self._words[_REQUESTS_TAIL]
        if not 0 <= used <= self._bytes:
            self.broken = True
            return False
        if len(record) > self._bytes - used:
            return False
        at = self._head & (self._bytes - 1)
        first = min(len(record), self._bytes - at)
        self._requests[at:at + first] = record[:first]
        if first < len(record):
            self._requests[:len(record) - first] = record[first:]
        self._head += len(record)
        self._words[_REQUESTS_HEAD] = self._head
        self._fence()
        if self._flags[_SERVICE_ASLEEP]:
            self._flags[_SERVICE_ASLEEP] = 0
            try:
                self._bell.send(b"\1", socket.MSG_DONTWAIT | socket.MSG_NOSIGNAL)
            except OSError:
                pass  # full: it rings already; closed: that is seen elsewhere
        return True

    # -- answers -----------------------------------------------------------------------------------

    def receive(self, most: int, deliver: Callable[[bytes], None]) -> int:
        """Gives what has come, in its order; how many there were."""
        received = 0
        while received < most and not self.broken:
            if self._waits_for:
                message = self._by_socket.pop(self._waits_for, None)
                if message is None:
                    break
                self._waits_for = 0
                if message:  # an empty one only says where the answers begin
                    received += 1
                    deliver(message)
                continue
            message = self._read()
            if message is None:
                break
            received += 1
            deliver(message)
        return received

    def _read(self) -> Optional[bytes]:
        """None: nothing is there, or it has to be waited for."""
        while not self.broken and not self._waits_for:
            there = self._words[_ANSWERS_HEAD] - self._tail
            if there == 0:
                return None
            if not _RECORD.size <= there <= self._bytes:
                break
            at = self._tail & (self._bytes - 1)
            length, kind = _RECORD.unpack_from(self._answers, at)
            total = _RECORD.size + length + -length % 8
            if length > self._longest or total > there:
                break
            start = (at + _RECORD.size) & (self._bytes - 1)
            first = min(length, self._bytes - start)
            payload = bytes(self._answers[start:start + first])
            if first < length:
                payload += bytes(self._answers[:length - first])
            self._tail += total
            self._words[_ANSWERS_TAIL] = self._tail
            if kind == _MESSAGE:
                return payload
            if kind != _BY_SOCKET or length != _NUMBER.size:
                break
            self._waits_for = _NUMBER.unpack(payload)[0]
        else:
            return None
        self.broken = True
        return None

    def came_by_socket(self, number: int, message: bytes) -> None:
        if len(self._by_socket) >= _MOST_AHEAD:
            self.broken = True
        self._by_socket[number] = message

    def receive_left(self, deliver: Callable[[bytes], None]) -> None:
        """When the ring has ended: what came by ZeroMQ, and its place will not be said any more."""
        left, self._by_socket = self._by_socket, {}
        for number in sorted(left):
            if left[number]:
                deliver(left[number])

    # -- sleep -------------------------------------------------------------------------------------

    def sleep(self) -> bool:
        """Before everybody sleeps who would look. False: something is there."""
        if self._waits_for:
            return self._waits_for not in self._by_socket
        self._flags[_CLIENT_ASLEEP] = 1
        self._fence()
        if self._words[_ANSWERS_HEAD] == self._tail:
            return True
        self.awake()
        return False

    def awake(self) -> None:
        self._flags[_CLIENT_ASLEEP] = 0

    def serve_bell(self) -> bool:
        """False: the service has ended the ring, or died."""
        try:
            return bool(self._bell.recv(256))
        except BlockingIOError:
            return True
        except OSError:
            return False

    def _fence(self) -> None:
        with self._lock:
            pass
