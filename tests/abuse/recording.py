"""Bytes of TCP connections on loopback: recorded as they go by, and sent again."""

import contextlib
import select
import socket
import struct
import threading
import time

LOOPBACK = "127.0.0.1"


class Relay:
    """A port that passes everything on to another and keeps what the clients said."""

    def __init__(self, to):
        self._to = to
        self.said = []  # one bytearray for each connection
        self.heard = []
        self._listener = socket.create_server((LOOPBACK, 0))
        self.port = self._listener.getsockname()[1]
        threading.Thread(target=self._accept, daemon=True).start()

    def _accept(self):
        with contextlib.suppress(OSError):
            while True:
                client, _ = self._listener.accept()
                server = socket.create_connection((LOOPBACK, self._to))
                self.said.append(bytearray())
                self.heard.append(bytearray())
                threading.Thread(target=self._pass, daemon=True,
                                 args=(client, server, self.said[-1], self.heard[-1])).start()

    @staticmethod
    def _pass(client, server, said, heard):
        with client, server, contextlib.suppress(OSError):
            while True:
                for ready in select.select([client, server], [], [])[0]:
                    data = ready.recv(65536)
                    if not data:
                        return
                    (said if ready is client else heard).extend(data)
                    (server if ready is client else client).sendall(data)

    def close(self):
        self._listener.close()


class Capture:
    """What is said on loopback, from the packets themselves (root)."""

    def __init__(self):
        self._segments = {}  # (port, port) -> {sequence number: bytes}
        self._socket = socket.socket(socket.AF_PACKET, socket.SOCK_RAW, socket.htons(0x0800))
        self._socket.bind(("lo", 0))
        self._socket.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 64 << 20)
        self._stop = False
        self._thread = threading.Thread(target=self._run, daemon=True)
        self._thread.start()

    def _run(self):
        while not self._stop:
            if not select.select([self._socket], [], [], 0.1)[0]:
                continue
            packet = self._socket.recv(1 << 17)[14:]  # behind the Ethernet head
            head = (packet[0] & 15) * 4
            if packet[9] != socket.IPPROTO_TCP:
                continue
            source, to, sequence = struct.unpack_from(">HHI", packet, head)
            data = packet[head + (packet[head + 12] >> 4) * 4:]
            if data:
                self._segments.setdefault((source, to), {}).setdefault(sequence, data)

    def close(self):
        """{port: [what each connection said to it]}, of all ports."""
        self._stop = True
        self._thread.join()
        self._socket.close()
        said = {}
        for (_, to), segments in self._segments.items():
            said.setdefault(to, []).append(b"".join(segments[key] for key in sorted(segments)))
        return said


def say_again(port, data, seconds=2.0):
    """Sends recorded bytes; how many went out, what came back, and whether it was closed."""
    heard, sent, closed = bytearray(), 0, False
    with socket.create_connection((LOOPBACK, port), timeout=5) as connection:
        connection.setblocking(False)
        end = time.monotonic() + seconds
        while time.monotonic() < end and not closed:
            # A handshake goes step by step, as the peer took its steps.
            rest = data[sent:sent + (256 if sent < 2048 else 65536)]
            readable, writable, _ = select.select([connection], [connection] if rest else [], [],
                                                  0.05)
            try:
                if writable:
                    sent += connection.send(rest)
                    time.sleep(0.05 if sent < 2048 else 0)
                if readable:
                    more = connection.recv(65536)
                    closed = not more
                    heard += more
            except OSError:
                closed = True
    return sent, bytes(heard), closed
