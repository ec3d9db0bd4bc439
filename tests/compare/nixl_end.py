"""NIXL's end: nixl_end.py BACKEND thread|no-thread prepared|each ROLE.

The second says whether the source has a progress thread or makes progress itself, by asking for the
state without a pause; the third whether the descriptors of all pages are prepared once or those of
the round each time. Memory is shared memory of the host, or with "memory": "cuda" in `open` a tensor
of this process's on the GPU. Written pages are announced by a notification, which arrives after the
data: when the target has seen it, the transfer is complete there.
"""

import base64
import sys
import time

import end  # first: it turns standard output aside
import numpy as np

from pages import Segment, page_lists

POLL_S = 50e-6


class GpuMemory:
    """A region of this process's on the GPU; the same random bytes for everybody."""

    def __init__(self, size):
        import torch
        self.torch, self.size = torch, size
        self.bytes = torch.zeros(size, dtype=torch.uint8, device="cuda")

    @property
    def address(self):
        return self.bytes.data_ptr()

    def random(self, seed):
        generator = self.torch.Generator(device="cuda").manual_seed(seed)
        return self.torch.randint(0, 256, (self.size,), dtype=self.torch.uint8, device="cuda",
                                  generator=generator)

    def fill_random(self, seed):
        self.bytes.copy_(self.random(seed))
        self.torch.cuda.synchronize()

    def different_pages(self, seed, page_bytes, lists):
        """How many pages are not what a source filled with `seed` has; every byte is compared."""
        expected = self.random(seed).view(-1, page_bytes)
        found = self.bytes.view(-1, page_bytes)
        wrong = 0
        for at in range(0, len(lists[0]), 4096):
            source, destination = (
                self.torch.from_numpy(pages[at:at + 4096].astype(np.int64)).cuda()
                for pages in lists)
            wrong += int((expected[source] != found[destination]).any(dim=1).sum())
        return wrong


class Nixl:
    def __init__(self, backend, progress, lists, role):
        try:
            from nixl_cu13._api import nixl_agent, nixl_agent_config
        except ImportError:
            from nixl._api import nixl_agent, nixl_agent_config
        self.backend, self.prepares = backend, lists == "prepared"
        self.has_thread = progress == "thread" or role == "destination"
        config = nixl_agent_config(enable_prog_thread=self.has_thread, backends=[])
        self.agent = nixl_agent(f"{role}-{backend}", config)
        self.agent.create_backend(backend)

    def open(self, request):
        if request.get("memory") == "cuda":
            self.kind, self.segment = "VRAM", GpuMemory(request["bytes"])
        else:
            self.kind, self.segment = "DRAM", Segment(request["segment"], request["bytes"])
        region = [(self.segment.address, self.segment.size, 0, "")]
        if self.agent.register_memory(region, self.kind, backends=[self.backend]) is None:
            raise RuntimeError("register_memory gave nothing")
        return {"metadata": base64.b64encode(self.agent.get_agent_metadata()).decode(),
                "address": self.segment.address}

    def connect(self, request):
        name = self.agent.add_remote_agent(base64.b64decode(request["metadata"]))
        self.peer = name.decode() if isinstance(name, bytes) else name
        self.remote_address = request["address"]
        self.agent.make_connection(self.peer, [self.backend])

    def descriptors(self, base, pages, size):
        rows = np.zeros((len(pages), 3), dtype=np.uint64)
        rows[:, 0] = pages.astype(np.uint64) * np.uint64(size) + np.uint64(base)
        rows[:, 1] = size
        return rows

    def prepare(self, request):
        """Once per page size and not timed: the descriptors of all pages of both regions."""
        if not self.prepares:
            return
        size = request["page_bytes"]
        pages = np.arange(self.segment.size // size)
        self.sides = [
            self.agent.prep_xfer_dlist(agent, self.descriptors(base, pages, size), self.kind,
                                       [self.backend])
            for agent, base in (("NIXL_INIT_AGENT", self.segment.address),
                                (self.peer, self.remote_address))]

    def make_request(self, size, source, destination, token):
        if self.prepares:
            return self.agent.make_prepped_xfer(
                "WRITE", self.sides[0], source.astype(np.int32), self.sides[1],
                destination.astype(np.int32), token, [self.backend])
        sides = [self.agent.get_xfer_descs(self.descriptors(base, pages, size), self.kind)
                 for base, pages in ((self.segment.address, source),
                                     (self.remote_address, destination))]
        return self.agent.initialize_xfer("WRITE", *sides, self.peer, token, [self.backend])

    def move(self, request):
        size = request["page_bytes"]
        source, destination = page_lists(self.segment.size, request["round_bytes"], size,
                                         request["seed"])
        deadline = time.monotonic() + request["deadline_s"]
        begin = time.monotonic_ns()
        handle = self.make_request(size, source, destination, request["token"].encode())
        state = self.agent.transfer(handle)
        while state == "PROC" and time.monotonic() < deadline:
            if self.has_thread:
                time.sleep(POLL_S)
            state = self.agent.check_xfer_state(handle)
        ended = time.monotonic_ns()
        if state == "DONE":
            self.agent.release_xfer_handle(handle)
            return {"begin_ns": begin, "end_ns": ended}
        raise RuntimeError(f"the transfer is {state} after {(ended - begin) / 1e9:.1f} s")

    def arrived(self, request):
        """At the target: waits for the notification of the round."""
        deadline = time.monotonic() + request["deadline_s"]
        while time.monotonic() < deadline:
            for messages in self.agent.get_new_notifs([self.backend]).values():
                if request["token"].encode() in messages:
                    return {"end_ns": time.monotonic_ns()}
            time.sleep(POLL_S)
        raise RuntimeError("no notification came")

    def fill(self, request):
        """Only with memory of the GPU; the parent fills shared memory itself."""
        self.segment.fill_random(request["seed"])

    def different(self, request):
        lists = page_lists(self.segment.size, request["round_bytes"], request["page_bytes"],
                           request["seed"])
        return {"different": self.segment.different_pages(request["fill_seed"],
                                                          request["page_bytes"], lists)}


if __name__ == "__main__":
    nixl = Nixl(*sys.argv[1:5])
    end.serve({"open": nixl.open, "connect": nixl.connect, "prepare": nixl.prepare,
               "move": nixl.move, "arrived": nixl.arrived, "fill": nixl.fill,
               "different": nixl.different})
