"""A client of two penstockd that speaks the protocol of docs/protocol.md: no library of Penstock.
penstock_end.py ENDPOINT_OF_SOURCE ENDPOINT_OF_DESTINATION"""

import sys
import time

import msgpack
import zmq

import end
from pages import page_lists


class Service:
    def __init__(self, endpoint):
        self.socket = zmq.Context.instance().socket(zmq.DEALER)
        self.socket.linger = 0
        self.socket.connect(endpoint)
        self.asked = 0

    def send(self, op, **keys):
        self.asked += 1
        self.socket.send(msgpack.packb({"v": 1, "id": self.asked, "op": op, **keys}))

    def receive(self, patience_s):
        if not self.socket.poll(patience_s * 1000):
            raise TimeoutError(f"no answer in {patience_s} s")
        return msgpack.unpackb(self.socket.recv())

    def call(self, op, patience_s=60, **keys):
        self.send(op, **keys)
        while True:
            message = self.receive(patience_s)
            if "event" in message:
                continue
            if not message["ok"]:
                raise RuntimeError(f"{op}: {message['error']}")
            return message


class Penstock:
    def __init__(self, source, destination):
        self.source, self.destination = Service(source), Service(destination)

    def open(self, request):
        size = request["bytes"]
        self.size = size
        self.peer = self.destination.call("hello")["node"]
        deadline = time.monotonic() + 20
        while not any(n["name"] == self.peer and n["state"] == "connected"
                      for n in self.source.call("nodes")["nodes"]):
            if time.monotonic() > deadline:
                raise TimeoutError(f"{self.peer} is not connected after 20 s")
            time.sleep(0.05)
        for service, segment in ((self.source, request["source"]),
                                 (self.destination, request["destination"])):
            service.call("register", name="pages", shared_name="/" + segment, bytes=size)
        return {}

    def prepare(self, request):
        pass

    def move(self, request):
        size = request["page_bytes"]
        source, destination = page_lists(self.size, request["round_bytes"], size, request["seed"])
        begin = time.monotonic_ns()
        self.source.send("transfer", transfers=[{
            "direction": "write", "region": "pages",
            "targets": [{"node": self.peer, "region": "pages"}],
            "layout": {"kind": "pages", "page_bytes": size, "source_pages": source.tobytes(),
                       "destination_pages": destination.tobytes()},
            "deadline_ms": int(request["deadline_s"] * 1000)}])
        while True:
            message = self.source.receive(request["deadline_s"] + 10)
            if "event" in message:
                break
            if not message["ok"]:
                raise RuntimeError(str(message["error"]))
        ended = time.monotonic_ns()
        if message["state"] != "done" or message["bytes"] != request["round_bytes"]:
            raise RuntimeError(f"the transfer ended as {message}")
        return {"begin_ns": begin, "end_ns": ended, "writes": message["writes"]}


if __name__ == "__main__":
    penstock = Penstock(sys.argv[1], sys.argv[2])
    end.serve({"open": penstock.open, "prepare": penstock.prepare, "move": penstock.move})
