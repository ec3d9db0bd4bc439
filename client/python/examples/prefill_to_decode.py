"""Hands the KV cache of requests over from a prefill node to a decode node, layer by layer.

Both keep a paged pool: for each layer the same blocks, keys and values apart. Decode chooses the
blocks of a request there and says which; prefill opens a stream, appends each layer as soon as it is
computed, and closes it. Decode hears each layer when its bytes are there. What it gains is shown by
doing the same with one transfer at the end: with the stream, only the last layer's crossing is left
to wait for once the model is done.

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

    def bases(self, *layers):
        """Where the keys and the values of layers start. The pools are alike: source =
        destination."""
        each = self.blocks * self.page_bytes
        return [((2 * layer + half) * each,) * 2 for layer in layers for half in (0, 1)]


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
        self._arrived = {}  # request: numbers of the parts that are here
        self._subscription = client.subscribe(["notify"], callback=self._events.put)

    def reserve(self, tokens):
        """The blocks where a request's cache shall go."""
        return self.pool.take(-(-tokens // self.pool.geometry.block_tokens))

    def wait(self, request, parts, timeout=30):
        """Until all parts of the request are here; in which order they come is not promised."""
        deadline = time.monotonic() + timeout
        while len(self._arrived.setdefault(request, set())) < parts:
            told = self._events.get(timeout=max(0.01, deadline - time.monotonic())).body
            self._arrived.setdefault(told.data.decode(), set()).add(told.part)
        del self._arrived[request]


class Model:
    """Stands for one on a GPU: every so often another layer is in the pool, and the CPU is free
    meanwhile."""

    LAYER_SECONDS = 0.004

    def __init__(self, geometry, blocks, seed):
        shape = (geometry.layers, 2, blocks) + geometry.shape[3:]
        self.expected = np.random.default_rng(seed).integers(
            0, 0x7c00, shape, np.uint16).view(np.float16)  # any finite numbers

    def compute(self, layer, cache, blocks):
        until = time.monotonic() + self.LAYER_SECONDS
        cache[layer][:, blocks] = self.expected[layer]
        time.sleep(max(0.0, until - time.monotonic()))


class Prefill:
    def __init__(self, client, geometry):
        self.pool = Pool(client, geometry)

    def run(self, request, model, node, their_blocks):
        """Computes a request's cache and hands it over, a layer at a time. Returns when the last was
        computed, and the result."""
        geometry, ours = self.pool.geometry, self.pool.take(len(their_blocks))
        with self.pool.client.stream(self.pool.region, node, "kv", priority="urgent", deadline=30,
                                     notify=request) as stream:
            for layer in range(geometry.layers):
                model.compute(layer, self.pool.cache, ours)
                # With torch, give start_after the layer's event and compute on without waiting.
                stream.append_pages(page_bytes=geometry.page_bytes, src_pages=ours,
                                    dst_pages=their_blocks, bases=geometry.bases(layer))
        computed = time.monotonic()
        result = stream.result(60)  # only then may the blocks be used again
        self.pool.give_back(ours)
        return computed, result

    def run_at_the_end(self, request, model, node, their_blocks):
        """The same with one transfer after the last layer."""
        geometry, ours = self.pool.geometry, self.pool.take(len(their_blocks))
        for layer in range(geometry.layers):
            model.compute(layer, self.pool.cache, ours)
        computed = time.monotonic()
        result = self.pool.client.write_pages(
            self.pool.region, node, "kv", page_bytes=geometry.page_bytes, src_pages=ours,
            dst_pages=their_blocks, bases=geometry.bases(*range(geometry.layers)),
            priority="urgent", deadline=30, notify=request).result(60)
        self.pool.give_back(ours)
        return computed, result


def hand_over(request, tokens, prefill, decode, streamed):
    """Seconds from the start until decode had everything, and until the model was done."""
    geometry = decode.pool.geometry
    blocks = decode.reserve(tokens)
    model = Model(geometry, len(blocks), tokens)
    outcome = []
    run = prefill.run if streamed else prefill.run_at_the_end
    worker = threading.Thread(
        target=lambda: outcome.append(run(request, model, decode.node, blocks)))
    started = time.monotonic()
    worker.start()
    decode.wait(request, geometry.layers if streamed else 1)
    there = time.monotonic()
    # All is here, though prefill may not have been told so yet.
    got = decode.pool.cache[:, :, blocks].copy()
    worker.join()
    computed, result = outcome[0]
    if not np.array_equal(got.view(np.uint16), model.expected.view(np.uint16)):
        raise AssertionError(f"{request}: the cache at decode is not the one at prefill")
    decode.pool.give_back(blocks)
    print(f"{request}: {tokens} tokens, {result.bytes / 2**20:.1f} MiB by {result.path}, "
          f"{'a layer at a time' if streamed else 'all at the end'}: computed after "
          f"{(computed - started) * 1e3:.0f} ms, at decode {(there - computed) * 1e3:.0f} ms later; "
          "equal")
    return there - started


def compare(prefill_client, decode_client, requests=4, tokens=1500):
    geometry = Geometry()
    prefill, decode = Prefill(prefill_client, geometry), Decode(decode_client, geometry)
    prefill_client.wait_connected(decode.node)
    took = {True: [], False: []}
    for number in range(requests):
        for streamed in (True, False):
            request = f"request-{number}{'' if streamed else '-again'}"
            took[streamed].append(hand_over(request, tokens + number, prefill, decode, streamed))
    streamed, at_the_end = (sorted(took[each])[requests // 2] * 1e3 for each in (True, False))
    print(f"time until decode can begin, median: {at_the_end:.0f} ms all at the end, "
          f"{streamed:.0f} ms a layer at a time: {at_the_end - streamed:.0f} ms are hidden behind "
          "the model")


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--demo", action="store_true", help="start two services for it")
    parser.add_argument("--prefill", metavar="ENDPOINT")
    parser.add_argument("--decode", metavar="ENDPOINT")
    options = parser.parse_args()
    if options.demo:
        with Services("prefill", "decode") as services, services.client("prefill") as prefill, \
                services.client("decode") as decode:
            compare(prefill, decode)
    elif options.prefill and options.decode:
        with penstock.Client(options.prefill) as prefill, penstock.Client(options.decode) as decode:
            compare(prefill, decode)
    else:
        parser.error("give --demo, or --prefill and --decode")


if __name__ == "__main__":
    sys.exit(main())
