import threading
import time

import numpy as np
import pytest

import penstock


@pytest.fixture
def regions(a, b, name):
    with a.allocate(name, 1 << 20) as here, b.allocate(name, 1 << 20) as there:
        here.array[:] = np.random.default_rng(1).integers(0, 256, here.size, np.uint8)
        yield here, there


def test_write_moves_a_piece(a, regions):
    here, there = regions
    transfer = a.write(here, "b", there, src_offset=1000, dst_offset=50_000, size=70_000)
    result = transfer.result(20)
    assert result.ok and result.state == "done" and result.bytes == 70_000
    assert result.node == "b" and result.direction == "write" and result.id == transfer.id
    assert transfer.done() and transfer.path == result.path != ""
    assert np.array_equal(there[50_000:120_000], here[1000:71_000])
    assert not there[:50_000].any() and not there[120_000:].any()


def test_read_brings_bytes_here(b, regions):
    here, there = regions
    assert b.read(there, "a", here).result(20).bytes == 1 << 20
    assert np.array_equal(here.array, there.array)


def test_ranges_go_where_they_are_told(a, regions):
    here, there = regions
    rows = np.array([[0, 300, 100], [5000, 0, 10], [70_000, 80_000, 20_000]])
    a.write(here, "b", there, ranges=rows).result(20)
    for source, destination, length in rows:
        assert np.array_equal(there[destination:destination + length],
                              here[source:source + length])


@pytest.mark.parametrize("dtype", ["<u4", ">u4", "<u8", "<i8", "<i4", list])
def test_pages_go_where_they_are_told_whatever_type_their_lists_have(a, regions, dtype):
    here, there = regions
    rng = np.random.default_rng(2)
    source, destination = (rng.permutation(1 << 6)[:40] for _ in range(2))
    lists = [each.tolist() if dtype is list else each.astype(dtype)
             for each in (source, destination)]
    result = a.write_pages(here, "b", there, page_bytes=4096, src_pages=lists[0],
                           dst_pages=lists[1], bases=[(0, 512 << 10), (256 << 10, 0)]).result(20)
    assert result.bytes == 2 * 40 * 4096
    source_pages, got = here.array.reshape(-1, 4096), there.array.reshape(-1, 4096)
    assert np.array_equal(got[destination + 128], source_pages[source])
    assert np.array_equal(got[destination], source_pages[source + 64])


def test_strides_place_pages_apart(b, regions):
    here, there = regions
    b.read_pages(there, "a", here, page_bytes=1000, src_stride=3000, dst_stride=2000,
                 src_pages=np.arange(100), dst_pages=np.arange(100)[::-1]).result(20)
    assert np.array_equal(there[198_000:199_000], here[:1000])
    assert np.array_equal(there[:1000], here[297_000:298_000])
    assert not there[1000:2000].any()


def test_strided_moves_slices_of_rows(a, regions):
    here, there = regions
    layout = penstock.Strided(256, 16, np.arange(4), np.array([3, 1, 0, 2]), src_pitch=2048,
                              dst_pitch=256, bases=[(512, 0)])
    a.write_strided(here, "b", there, layout).result(20)
    rows = here.array.reshape(-1, 16, 2048)
    got = there.array.reshape(-1, 16, 256)
    for source, destination in enumerate([3, 1, 0, 2]):
        assert np.array_equal(got[destination], rows[source, :, 512:768])


def test_scatter_is_a_transfer_for_each_target(a, b, regions, name):
    here, there = regions
    with a.allocate(name + "-too", 1 << 20) as third:
        transfers = a.scatter(here, [("b", name), penstock.Target("", name + "-too")])
        results = penstock.wait_all(transfers, 20)
        assert [each.state for each in results] == ["done"] * 2
        assert len({each.id for each in results}) == 2
        assert np.array_equal(there.array, here.array) and np.array_equal(third.array, here.array)


def test_no_pages_are_done_at_once(a, regions):
    here, there = regions
    assert a.write_pages(here, "b", there, page_bytes=4096, src_pages=[], dst_pages=[]) \
        .result(20).bytes == 0


def test_a_refusal_is_the_transfers_error(a, regions):
    here, _ = regions
    transfer = a.write(here, "b", "no-such-region", size=10)
    with pytest.raises(penstock.NotFound, match="no-such-region") as caught:
        transfer.result(20)
    assert caught.value.result is transfer.wait()
    here_only = a.write("nothing-here", "b", here, size=10)
    with pytest.raises(penstock.NotFound):
        here_only.wait_accepted(20)
    assert here_only.wait(20).state == "refused" and here_only.id is None
    assert isinstance(here_only.exception(), penstock.NotFound)
    with pytest.raises(penstock.InvalidArgument, match="no id until"):
        a.trace(here_only)


def test_a_range_outside_its_region_is_refused(a, regions):
    here, there = regions
    with pytest.raises(penstock.InvalidArgument) as caught:
        a.write(here, "b", there, src_offset=here.size - 10, size=20).result(20)
    assert caught.value.code == "OUT_OF_RANGE"


def test_an_epoch_that_is_gone_is_refused(a, regions):
    here, there = regions
    a.write(here, "b", there, epoch=there.epoch).result(20)
    with pytest.raises(penstock.Stale):
        a.write(here, "b", there, epoch=there.epoch + 1000).result(20)


@pytest.mark.parametrize("arguments, words", [
    (dict(src_pages=[1, 2], dst_pages=[1]), "2 source pages but 1"),
    (dict(src_pages=[-1], dst_pages=[1]), "found -1"),
    (dict(src_pages=[1 << 32], dst_pages=[1]), "found 4294967296"),
    (dict(src_pages=[1.5], dst_pages=[1]), "integers"),
    (dict(src_pages=[1], dst_pages=[1], bases=[(1, 2, 3)]), "rows of 2"),
    (dict(src_pages=[1], dst_pages=[1], deadline=-1), "deadline"),
    (dict(src_pages=[1], dst_pages=[1], weight="much"), None),
])
def test_what_cannot_be_meant_is_refused(a, regions, arguments, words):
    here, there = regions
    with pytest.raises(penstock.InvalidArgument, match=words):
        a.write_pages(here, "b", there, page_bytes=4096, **arguments).result(20)


def test_an_unknown_option_is_a_type_error(a, regions):
    with pytest.raises(TypeError, match="prioritty"):
        a.write(regions[0], "b", regions[1], prioritty="urgent")


def test_options_reach_the_service(a, regions):
    here, there = regions
    pages = np.arange(100, dtype=np.uint32)
    result = a.write_pages(here, "b", there, page_bytes=512, src_pages=pages, dst_pages=pages[::-1],
                           priority="urgent", weight=7, packing="always", deadline=20).result(20)
    assert result.lane == "urgent" and result.path == "packed"
    never = a.write_pages(here, "b", there, page_bytes=512, src_pages=pages * 2,
                          dst_pages=pages * 3, packing="never").result(20)
    assert never.path == "direct"
    with pytest.raises(penstock.Error):
        a.write(here, "b", there, path="gpudirect").result(20)


def test_a_key_starts_a_transfer_once(a, regions):
    here, there = regions
    first = a.write(here, "b", there, key="once")
    assert first.result(20).ok
    again = a.write(here, "b", there, key="once")
    assert again.result(20) == first.result() and again.id == first.id


def test_a_deadline_that_passes_raises(a, services, name):
    cluster = services("c", "d")
    with cluster.client("c") as c, cluster.client("d") as d:
        there = d.allocate("r", 64 << 20)
        here = c.allocate("r", 64 << 20)
        cluster.signal("d", 19)  # SIGSTOP
        started = time.monotonic()
        transfer = c.write(here, "d", there, deadline=0.5)
        with pytest.raises(penstock.DeadlineExceeded) as caught:
            transfer.result(20)
        assert not isinstance(caught.value, penstock.NoAnswer)
        assert transfer.state == "expired" and time.monotonic() - started < 15
        stopped = c.write(here, "d", there)
        stopped.wait_accepted(20)
        assert stopped.running() and stopped.cancel()
        with pytest.raises(penstock.Cancelled):
            stopped.result(20)
        assert stopped.cancelled() and not stopped.cancel()
        at_once = c.write(here, "d", there)
        at_once.cancel()  # before its acceptance is known
        assert at_once.wait(20).state == "cancelled"
        with pytest.raises(TimeoutError):
            waiting = c.write(here, "d", there)
            waiting.wait(0.2)
        assert c.transfers([waiting])[0].state not in ("done", "unknown")
        assert c.cancel([waiting, 1 << 60]) == [1 << 60]
        assert waiting.wait(20).state == "cancelled"
        cluster.signal("d", 18)  # SIGCONT


def test_callbacks_come_once_on_the_clients_thread(a, regions):
    here, there = regions
    called = []
    ended = threading.Event()

    def callback(transfer):
        called.append((transfer, threading.current_thread().name))
        with pytest.raises(penstock.InvalidArgument, match="callback"):
            a.nodes()
        follower.append(a.write(here, "b", there, size=10))
        ended.set()

    follower = []
    transfer = a.write(here, "b", there)
    transfer.add_done_callback(callback)
    assert ended.wait(20)
    assert called == [(transfer, "penstock")]
    assert follower[0].result(20).ok
    late = []
    transfer.add_done_callback(late.append)
    assert late == [transfer]


def test_a_callback_that_fails_is_logged_and_harms_nobody(a, regions, caplog):
    here, there = regions
    transfer = a.write(here, "b", there)
    transfer.add_done_callback(lambda _: 1 / 0)
    assert transfer.result(20).ok and a.nodes()
    assert "ZeroDivisionError" in caplog.text


def test_threads_share_a_client(a, regions):
    here, there = regions
    failures = []

    def work(number):
        try:
            for _ in range(20):
                a.write(here, "b", there, src_offset=number * 1000, dst_offset=number * 1000,
                        size=1000).result(30)
                a.regions()
        except Exception as problem:
            failures.append(problem)

    threads = [threading.Thread(target=work, args=(number,)) for number in range(8)]
    for each in threads:
        each.start()
    for each in threads:
        each.join()
    assert not failures
    assert np.array_equal(here[:8000], there[:8000])


def test_transfers_tells_of_what_has_ended(a, regions):
    here, there = regions
    transfer = a.write(here, "b", there)
    result = transfer.result(20)
    told = a.transfers([transfer, 1 << 60])
    assert told[0].result == result and told[1].state == "unknown"
    assert transfer.id in [each.id for each in a.transfers(limit=10)]


def test_a_request_that_the_service_would_not_read_is_refused_here(a, regions):
    here, there = regions
    pages = np.zeros(9 << 20, np.uint32)
    with pytest.raises(penstock.InvalidArgument, match="split"):
        a.write_pages(here, "b", there, page_bytes=1, src_pages=pages, dst_pages=pages)


def test_progress_is_told(a, regions):
    here, there = regions
    seen = []
    ended = threading.Event()

    def told(done, total):
        seen.append((done, total))
        if done == total:
            ended.set()

    a.write(here, "b", there, progress=told).result(20)
    assert ended.wait(5) and seen[-1] == (1 << 20, 1 << 20)


def test_progress_bars_are_shown(a, regions, capsys):
    pytest.importorskip("tqdm")
    here, there = regions
    transfers = a.scatter(here, [("b", there), ("b", there)], progress=True)
    penstock.wait_all(transfers, 20)
    deadline = time.monotonic() + 5
    shown = ""
    while "100%" not in shown and time.monotonic() < deadline:
        time.sleep(0.05)
        shown += capsys.readouterr().err
    assert "100%" in shown and "2.00M" in shown


def test_a_trace_tells_where_the_time_went(a, regions):
    here, there = regions
    transfer = a.write(here, "b", there)
    result = transfer.result(20)
    trace = a.trace(transfer)
    assert trace.id == result.id and trace.state == "done" and trace.bytes == 1 << 20
    assert [stage.name for stage in trace.stages][0] == "admission"
    assert trace.stages[-1].name == "notification" and trace.took("wire") > 0
    assert sum(stage.took for stage in trace.stages) == pytest.approx(trace.total, abs=1e-6)
    assert sum(card.bytes for card in trace.cards) == 1 << 20
    assert 0 < max(card.last for card in trace.cards) <= trace.total
    with pytest.raises(penstock.NotFound):
        a.trace(1)


def test_another_node_carries_a_transfer_out(a, b, name):
    with b.allocate(name, 8192) as here, a.allocate(name, 8192) as there:
        here.array[:] = 7
        result = a.write(name, "a", name, size=8192, on="b").result(20)
        assert (result.on, result.node, result.bytes) == ("b", "a", 8192) and result.on_as
        assert there.array.sum() == 7 * 8192
        with pytest.raises(penstock.NotFound, match="node 'b' refused"):
            a.write("no-region", "a", name, size=1, on="b").result(20)
        with pytest.raises(penstock.NotFound):
            a.write(name, "a", name, size=1, on="nobody").result(20)
        with pytest.raises(TypeError, match="on"):
            a.stream(name, "a", name, on="b")
