"""The end of Mooncake's transfer engine, tcp transport: mooncake_end.py ROLE."""

import sys
import time

import end  # first: it turns standard output aside
from pages import Segment, page_lists

LARGEST_BATCH = 32768  # its queue holds 65535
ATTEMPTS = 4


class Mooncake:
    def __init__(self):
        from mooncake.engine import TransferEngine
        self.engine = TransferEngine()
        if self.engine.initialize("127.0.0.1", "P2PHANDSHAKE", "tcp", "") != 0:
            raise RuntimeError("TransferEngine.initialize failed")

    def open(self, request):
        self.segment = Segment(request["segment"], request["bytes"])
        if self.engine.register_memory(self.segment.address, self.segment.size) != 0:
            raise RuntimeError("register_memory failed")
        return {"metadata": f"127.0.0.1:{self.engine.get_rpc_port()}",
                "address": self.segment.address}

    def connect(self, request):
        self.peer, self.remote_address = request["metadata"], request["address"]

    def prepare(self, request):
        pass

    def move(self, request):
        size = request["page_bytes"]
        source, destination = page_lists(self.segment.size, request["round_bytes"], size,
                                         request["seed"])
        local = (source.astype("u8") * size + self.segment.address).tolist()
        remote = (destination.astype("u8") * size + self.remote_address).tolist()
        lengths = [size] * len(local)
        # A batch that its queue refuses (known after a pause) is asked for again, and not timed.
        for attempt in range(ATTEMPTS):
            begin = time.monotonic_ns()
            status = 0
            for at in range(0, len(local), LARGEST_BATCH):
                part = slice(at, at + LARGEST_BATCH)
                status = status or self.engine.batch_transfer_sync_write(
                    self.peer, local[part], remote[part], lengths[part])
            ended = time.monotonic_ns()
            if status == 0:
                return {"begin_ns": begin, "end_ns": ended, "attempts": attempt + 1}
            time.sleep(0.2)
        raise RuntimeError(f"batch_transfer_sync_write: {status}, {ATTEMPTS} times")


if __name__ == "__main__":
    mooncake = Mooncake()
    end.serve({"open": mooncake.open, "connect": mooncake.connect, "prepare": mooncake.prepare,
               "move": mooncake.move})
