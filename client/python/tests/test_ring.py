"""The ring between a client and its service: the same as by ZeroMQ, sooner."""

import asyncio
import concurrent.futures
import struct
import threading
import time

import numpy as np
import pytest

import penstock
from penstock import _ring, aio

PAGE = 4096
PATIENCE_S = 20.0  # only a failing test waits so long

pytestmark = pytest.mark.skipif(not _ring.possible("ipc:///x"),
                                reason="rings of Python clients take x86-64 and CPython")


def eventually(condition):
    end = time.monotonic() + PATIENCE_S
    while not condition():
        if time.monotonic() > end:
            return False
        time.sleep(0.001)
    return True


def with_ring(cluster, node, **arguments):
    client = cluster.client(node, **arguments)
    assert eventually(lambda: client.has_ring)
    return client


def by_ring(client):
    return client.status()["requests"]["by_ring"]


@pytest.fixture
def regions(pair, name):
    with pair.client("a") as a, pair.client("b") as b:
        a.allocate(name, 64 * PAGE).array[:] = 7
        b.allocate(name, 64 * PAGE)
        yield name, b


@pytest.mark.parametrize("spin", [0.0, 0.01])
def test_everything_goes_by_the_ring(pair, regions, spin):
    region, b = regions
    with with_ring(pair, "a", spin=spin) as client:
        before = by_ring(client)
        ended = []
        for page in range(20):
            transfer = client.write_pages(region, "b", region, page_bytes=PAGE, src_pages=[page],
                                          dst_pages=[page])
            transfer.add_done_callback(ended.append)
            assert transfer.result(PATIENCE_S).state == "done"
        assert eventually(lambda: len(ended) == 20)
        assert by_ring(client) >= before + 21
        with pytest.raises(penstock.NotFound):
            client.write("nowhere", "b", region, size=PAGE).result(PATIENCE_S)


def test_long_messages_go_by_zeromq_between_the_others(pair, regions):
    region, _ = regions
    pages = np.arange(64, dtype=np.uint32).repeat(1000)  # 256 KB a list, which no ring takes
    with with_ring(pair, "a") as client:
        transfers = []
        for i in range(40):
            if i % 8 == 0:
                transfers.append(client.write_pages(
                    region, "b", region, page_bytes=16, src_pages=pages, dst_pages=pages,
                    src_stride=PAGE, dst_stride=PAGE))
            else:
                transfers.append(client.write(region, "b", region, size=PAGE))
        assert [each.state for each in penstock.wait_all(transfers, PATIENCE_S)] == ["done"] * 40
        assert client.has_ring


def test_threads_share_one(pair, regions):
    region, _ = regions
    failed = []

    def work(client):
        try:
            for _ in range(20):
                client.write(region, "b", region, size=PAGE).result(PATIENCE_S)
        except Exception as problem:  # told by the assertion below
            failed.append(problem)

    with with_ring(pair, "a", spin=0.001) as client:
        threads = [threading.Thread(target=work, args=(client,)) for _ in range(4)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
    assert not failed


def test_asyncio(pair, regions):
    region, _ = regions

    async def run():
        async with aio.Client(pair.endpoint("a")) as client:
            return [(await client.write(region, "b", region, size=PAGE)).state for _ in range(10)]

    assert asyncio.run(run()) == ["done"] * 10


def test_a_service_that_is_killed_and_started_again_gives_another(services):
    cluster = services("a", "b")
    with with_ring(cluster, "a") as client:
        cluster.kill("a")
        assert eventually(lambda: not client.has_ring)
        cluster.start("a")
        assert eventually(lambda: client.has_ring)
        assert client.service.node == "a"


def test_a_ring_can_be_refused(pair):
    with pair.client("a", ring=False) as client:
        time.sleep(0.05)
        assert client.nodes() and not client.has_ring


def test_an_exception_ends_a_thread_that_waits_awake(pair):
    class Interrupted(concurrent.futures.Future):
        def done(self):
            raise KeyboardInterrupt

    def interrupted():
        try:
            client._core.spin(Interrupted())
        except KeyboardInterrupt:
            return True
        return False

    with with_ring(pair, "a", spin=PATIENCE_S) as client:
        assert eventually(interrupted)  # at once, but when the client's thread has the turn
        assert client._core._spinners == 0
        assert client.nodes()


def test_what_came_by_zeromq_is_not_lost_with_the_ring(pair):
    with with_ring(pair, "a") as client:
        core, left = client._core, []
        on_message = core._on_message
        core._on_message = lambda frame: (left.append(frame) if frame.startswith(b"left")
                                          else on_message(frame))
        with core._turn:
            core._ring.came_by_socket(1 << 60 | 1, b"left 2")
            core._ring.came_by_socket(1 << 60 | 2, b"")
            core._ring.came_by_socket(1 << 60, b"left 1")
            core._ring.broken = True
        with core._lock:
            core._connection.wake()
        assert eventually(lambda: not client.has_ring)
        assert left == [b"left 1", b"left 2"]


def test_a_service_that_writes_nonsense_breaks_the_ring_and_nothing_else(pair):
    with with_ring(pair, "a") as client:
        assert client.nodes()  # until then the ring may wait for what came by ZeroMQ before it
        ring = client._core._ring
        with client._core._turn:
            at = ring._tail & (ring._bytes - 1)
            struct.pack_into("=II", ring._answers, at, 1 << 30, 1)
            ring._words[_ring._ANSWERS_HEAD] += 64
            assert ring.receive(1, print) == 0 and ring.broken
        assert client.nodes()
        assert eventually(lambda: not client.has_ring)
        assert client.nodes()
