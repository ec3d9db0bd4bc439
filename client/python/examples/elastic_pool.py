"""A pool of memory over nodes that join, drain and die: every block has a copy on two of them.

Each member lends a region "pool". The owner puts blocks there, follows the members by the service's
events, and copies again what has one copy left: from the other copy, over its own node. Nothing is
configured when a node joins; it is used as soon as its pool answers.

    python elastic_pool.py --demo
"""

import argparse
import sys
import time

import numpy as np

import penstock
from demo_services import Services

BLOCK_BYTES = 64 << 10
COPIES = 2


class Lender:
    """What runs on a member: lends its memory and has nothing else to do."""

    def __init__(self, client, blocks):
        self.client = client
        self.region = client.allocate("pool", blocks * BLOCK_BYTES)


class Pool:
    """The owner of the blocks. One thread."""

    def __init__(self, client, blocks_per_node):
        self.client = client
        self.blocks_per_node = blocks_per_node
        self.free = {}    # node: its free places
        self.copies = {}  # block: {node: place}
        self.buffer = client.allocate("buffer", BLOCK_BYTES)
        self.members = client.subscribe(["members"])
        for node in client.nodes():
            if node.state == "connected":
                self._join(node.name)

    # -- blocks ------------------------------------------------------------------------------------

    def put(self, block, data):
        self.buffer.array[:] = data
        self.copies[block] = {}
        self._copy_until_safe(block)

    def get(self, block):
        """The block, from whichever copy answers."""
        for node, place in list(self.copies[block].items()):
            try:
                self.client.read(self.buffer, node, "pool", src_offset=place * BLOCK_BYTES,
                                 size=BLOCK_BYTES, deadline=10).result(30)
                return self.buffer.array.copy()
            except penstock.Error:
                self._leave(node)
        raise penstock.NotFound("NOT_FOUND", f"block {block}: all copies are gone")

    # -- members -----------------------------------------------------------------------------------

    def follow(self, until, timeout=60):
        """Handles what happens to members, until `until()`."""
        deadline = time.monotonic() + timeout
        while not until():
            if time.monotonic() > deadline:
                raise TimeoutError(f"after {timeout} s: {self.describe()}")
            try:
                change = self.members.get(timeout=0.2).body
            except TimeoutError:
                continue
            print(f"  {change.node} {change.kind}")
            if change.kind == "joined":
                self._join(change.node)
            else:  # "draining" (it takes nothing new), "left", "dead"
                self._leave(change.node)
            self.repair()

    def repair(self):
        for block, copies in self.copies.items():
            if len(copies) < COPIES:
                self.get(block)
                self._copy_until_safe(block)

    def describe(self):
        used = {node: self.blocks_per_node - len(free) for node, free in self.free.items()}
        return ", ".join(f"{node}: {count}" for node, count in sorted(used.items()))

    def _join(self, node):
        self.free.setdefault(node, list(range(self.blocks_per_node)))

    def _leave(self, node):
        self.free.pop(node, None)
        for copies in self.copies.values():
            copies.pop(node, None)

    def _copy_until_safe(self, block):
        """From the buffer to the emptiest members that have no copy yet."""
        copies, refusals = self.copies[block], {}
        while len(copies) < COPIES:
            nodes = [node for node, free in self.free.items()
                     if free and node not in copies and node not in refusals]
            if not nodes:
                if not copies:
                    raise penstock.ResourceExhausted("RESOURCE_EXHAUSTED", f"no member takes block "
                                                     f"{block}: {refusals}")
                return  # one copy: the next member that joins gets the other, by repair()
            node = max(nodes, key=lambda each: len(self.free[each]))
            place = self.free[node].pop()
            try:
                self.client.write(self.buffer, node, "pool", dst_offset=place * BLOCK_BYTES,
                                  size=BLOCK_BYTES, deadline=10).result(30)
                copies[node] = place
            except penstock.Error as problem:  # its pool is not there yet, or it is going
                self.free[node].append(place)
                refusals[node] = problem.code


def contents(block):
    return np.random.default_rng(block).integers(0, 256, BLOCK_BYTES, np.uint8)


def check(pool, blocks):
    for block in range(blocks):
        if not np.array_equal(pool.get(block), contents(block)):
            raise AssertionError(f"block {block} is not what was put")
        if len(pool.copies[block]) != COPIES:
            raise AssertionError(f"block {block} has copies on {list(pool.copies[block])}")
    print(f"{blocks} blocks equal, {COPIES} copies each ({pool.describe()})")


def demo(blocks=60, blocks_per_node=60):
    with Services("owner", "b", "c") as services:
        clients = {}

        def lend(node):
            clients[node] = services.client(node)
            Lender(clients[node], blocks_per_node)

        services.connect_all("owner", "b", "c")
        lend("b")
        lend("c")
        with services.client("owner") as owner:
            pool = Pool(owner, blocks_per_node)
            for block in range(blocks // 2):
                pool.put(block, contents(block))
            check(pool, blocks // 2)
            print("d joins")
            services.start("d")
            lend("d")
            pool.follow(lambda: "d" in pool.free)
            owner.wait_connected("d")
            for block in range(blocks // 2, blocks):
                pool.put(block, contents(block))
            check(pool, blocks)
            print("b drains")
            owner.drain("b", deadline=20)
            pool.follow(lambda: "b" not in pool.free)
            check(pool, blocks)
            if services.wait_ended("b") != 0:
                raise AssertionError("b did not end well")
            print("e joins, c is killed")
            services.start("e")
            lend("e")
            pool.follow(lambda: "e" in pool.free)
            owner.wait_connected("e")
            services.kill("c")
            pool.follow(lambda: "c" not in pool.free)
            check(pool, blocks)
        for client in clients.values():
            client.close()


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--demo", action="store_true", required=True, help="start services for it")
    parser.parse_args()
    demo()


if __name__ == "__main__":
    sys.exit(main())
