"""Hands the KV cache of requests over from a prefill node to a decode node, layer by layer.

Both keep a paged pool: for each layer the same blocks, keys and values apart. Decode chooses the
blocks of a request there and says which; prefill writes each layer as soon as it is computed, and
each layer's last byte is told to decode by a notification. Nobody waits for a layer that is not
needed yet, and decode's CPU touches nothing.

    python prefill_to_decode.py --demo
    python prefill_to_decode.py --prefill ENDPOINT --decode ENDPOINT    # services of this machine

In production the two halves are two programs, and what goes through `Decode.reserve` here goes
through your router.
"""

import argparse
import dataclasses
import queue
import sys
import threading
import time

import numpy as np

import penstock
from demo_services import Services


@dataclasses.dataclass(frozen=True)
class Geometry:
    layers: int = 16
    blocks: int = 256      # of the pool
    block_tokens: int = 16
    heads: int = 4
    head_dim: int = 64

    @property
    def page_bytes(self):
        """One block of one layer's keys, or of its values: float16."""
        return self.block_tokens * self.heads * self.head_dim * 2

    @property
    def shape(self):
        return (self.layers, 2, self.blocks, self.block_tokens, self.heads, self.head_dim)

    @property
    def pool_bytes(self):
        return self.layers * 2 * self.blocks * self.page_bytes

    def bases(self, layer):
        """Where a layer's keys and its values start. The pools are alike: source = destination."""
        each = self.blocks * self.page_bytes
        return [((2 * layer + half) * each,) * 2 for half in (0, 1)]


class Pool:
    """Blocks of a region of the node's service."""

    def __init__(self, client, geometry):
        self.client, self.geometry = client, geometry
        self.region = client.allocate("kv", geometry.pool_bytes)
        self.cache = self.region.view(np.float16, geometry.shape)
        # In no order, as pools are after an hour of service.
        self.free = list(np.random.default_rng(len(client.endpoint)).permutation(geometry.blocks))

    def take(self, count):
        taken, self.free = self.free[:count], self.free[count:]
        return np.array(taken, np.uint32)

    def give_back(self, blocks):
        self.free += blocks.tolist()


class Decode:
    def __init__(self, client, geometry):
        self.pool = Pool(client, geometry)
        self.node = client.service.node
        self._events = queue.Queue()
        self._arrived = {}  # request: layers that are here
        self._subscription = client.subscribe(["notify"], callback=self._events.put)

    def reserve(self, tokens):
        """The blocks where a request's cache shall go."""
        return self.pool.take(-(-tokens // self.pool.geometry.block_tokens))

    def wait(self, request, timeout=30):
        """Until all layers of the request are here."""
        deadline = time.monotonic() + timeout
        while len(self._arrived.setdefault(request, set())) < self.pool.geometry.layers:
            told = self._events.get(timeout=max(0.01, deadline - time.monotonic())).body
            whose, layer = told.data.decode().split("/")
            self._arrived.setdefault(whose, set()).add(int(layer))
        del self._arrived[request]


class Prefill:
    def __init__(self, client, geometry):
        self.pool = Pool(client, geometry)

    def run(self, request, tokens, node, their_blocks):
        """Computes a request's cache and hands it over; returns what it was, and the transfers."""
        geometry, ours = self.pool.geometry, self.pool.take(len(their_blocks))
        transfers = []
        expected = np.empty((geometry.layers, 2, len(ours)) + geometry.shape[3:], np.float16)
        rng = np.random.default_rng(tokens)
        for layer in range(geometry.layers):
            # What a model would compute: it takes a while, and the layers before cross meanwhile.
            expected[layer] = rng.standard_normal(expected.shape[1:], np.float32)
            self.pool.cache[layer][:, ours] = expected[layer]
            transfers.append(self.pool.client.write_pages(
                self.pool.region, node, "kv", page_bytes=geometry.page_bytes, src_pages=ours,
                dst_pages=their_blocks, bases=geometry.bases(layer), priority="urgent",
                deadline=30, notify=f"{request}/{layer}"))
        penstock.wait_all(transfers, 60)  # only then may the blocks be used again
        self.pool.give_back(ours)
        return expected, [each.result() for each in transfers]


def hand_over(prefill_client, decode_client, requests=4, tokens=300):
    geometry = Geometry()
    prefill, decode = Prefill(prefill_client, geometry), Decode(decode_client, geometry)
    prefill_client.wait_connected(decode.node)
    for number in range(requests):
        request, count = f"request-{number}", tokens + number
        blocks = decode.reserve(count)
        outcome = []
        worker = threading.Thread(
            target=lambda: outcome.append(prefill.run(request, count, decode.node, blocks)))
        started = time.monotonic()
        worker.start()
        decode.wait(request)
        elapsed = time.monotonic() - started
        # All layers are here, though prefill may not have been told so yet.
        got = decode.pool.cache[:, :, blocks].copy()
        worker.join()
        expected, results = outcome[0]
        if not np.array_equal(got, expected):
            raise AssertionError(f"{request}: the cache at decode is not the one at prefill")
        moved = sum(result.bytes for result in results)
        print(f"{request}: {count} tokens in {len(blocks)} blocks, {geometry.layers} layers, "
              f"{moved / 2**20:.1f} MiB by {results[0].path} in {elapsed * 1e3:.0f} ms; equal")
        decode.pool.give_back(blocks)


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--demo", action="store_true", help="start two services for it")
    parser.add_argument("--prefill", metavar="ENDPOINT")
    parser.add_argument("--decode", metavar="ENDPOINT")
    options = parser.parse_args()
    if options.demo:
        with Services("prefill", "decode") as services, services.client("prefill") as prefill, \
                services.client("decode") as decode:
            hand_over(prefill, decode)
    elif options.prefill and options.decode:
        with penstock.Client(options.prefill) as prefill, penstock.Client(options.decode) as decode:
            hand_over(prefill, decode)
    else:
        parser.error("give --demo, or --prefill and --decode")


if __name__ == "__main__":
    sys.exit(main())
