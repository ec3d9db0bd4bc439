"""What needs no service."""

import asyncio
import concurrent.futures
import pickle

import msgpack
import numpy as np
import pytest

import penstock
from penstock import _wire
from penstock._mapping import SharedPlace, shared_place
from penstock.errors import _FAMILY, error_of
from penstock.events import _Seen, event_of
from penstock.layout import blob, unsigned_array
from penstock.transfer import result_of


def test_arrays_that_fit_are_sent_as_they_are():
    pages = np.arange(100_000, dtype="<u4")
    assert unsigned_array(pages, "<u4", "x") is pages
    assert np.shares_memory(np.frombuffer(blob(pages), np.uint8), pages)
    assert unsigned_array(pages[::2], "<u4", "x").flags.c_contiguous
    assert unsigned_array(np.arange(5, dtype=np.uint8), "<u4", "x").dtype == "<u4"


@pytest.mark.parametrize("count", [0, 1, 3, 1000])  # short lists go another way than long ones
def test_requests_are_what_msgpack_would_make_of_them(count):
    pages = np.arange(count, dtype="<u4")
    spec = penstock.TransferSpec(
        "write", "kv", [penstock.Target("b", "kv", 3)],
        penstock.Pages(4096, pages, pages, [(0, 1)], dst_stride=np.int64(8192)), deadline=1.5,
        priority="urgent", weight=10, packing="never", path="staged", key="k", notify="n", on="c")
    frame = _wire.encode(7, "transfer", {"transfers": [spec.fields()]})
    assert msgpack.unpackb(frame) == {
        "v": 1, "id": 7, "op": "transfer", "transfers": [{
            "direction": "write", "region": "kv",
            "targets": [{"node": "b", "region": "kv", "epoch": 3}],
            "layout": {"kind": "pages", "page_bytes": 4096, "source_pages": pages.tobytes(),
                       "destination_pages": pages.tobytes(), "destination_stride": 8192,
                       "bases": np.array([0, 1], "<u8").tobytes()},
            "deadline_ms": 1500, "lane": "urgent", "weight": 10, "packing": "never",
            "path": "staged", "key": "k", "notify": b"n", "on": "c"}]}


def test_what_msgpack_cannot_say_is_refused():
    with pytest.raises(penstock.InvalidArgument, match="fill"):
        _wire.encode(1, "fill", {"seed": object()})
    with pytest.raises(penstock.InvalidArgument):
        _wire.encode(1, "fill", {"seed": 1 << 64})


def test_strided_has_the_defaults_of_the_cpp_client():
    fields = penstock.Strided(256, 16, [0], [0], src_pitch=2048).fields()
    assert (fields["source_stride"], fields["destination_pitch"], fields["destination_stride"]) == \
        (16 * 2048, 256, 16 * 256)


def test_layouts_know_their_bytes():
    assert penstock.Ranges([(0, 0, 5), (9, 9, 6)]).bytes == 11
    assert penstock.Ranges([]).bytes == 0
    assert penstock.Pages(10, [1, 2], [3, 4], bases=[(0, 0), (1, 1), (2, 2)]).bytes == 60
    assert penstock.Strided(10, 4, [1, 2], [3, 4]).bytes == 80


@pytest.mark.parametrize("code", sorted(_FAMILY))
def test_every_code_has_its_family(code):
    error = error_of(code, "words")
    assert type(error) is not penstock.Error and (error.code, error.message) == (code, "words")
    again = pickle.loads(pickle.dumps(error))
    assert type(again) is type(error) and again.code == code


def test_errors_are_also_what_python_calls_them():
    assert isinstance(error_of("DEADLINE_EXCEEDED", ""), TimeoutError)
    assert isinstance(error_of("INVALID_ARGUMENT", ""), ValueError)
    assert type(error_of("NEWER_THAN_US", "")) is penstock.Error


def test_a_failed_end_has_its_error_and_what_had_landed():
    landed = np.array([[0, 4096, 100], [8192, 0, 50]], "<u8")
    result = result_of({"id": 5, "state": "failed", "node": "b", "bytes": 150, "new_key": 1,
                        "cards": [{"name": "eth0", "bytes": 150, "writes": 2}],
                        "error": {"code": "PEER_DEAD", "message": "b died"},
                        "landed": landed.tobytes(), "landed_truncated": True})
    assert np.array_equal(result.landed, landed) and result.landed_truncated and not result.ok
    assert result.cards[0].writes == 2
    with pytest.raises(penstock.PeerLost, match="b died") as caught:
        result.check()
    assert caught.value.result is result


def test_events_newer_than_the_client_are_passed_on():
    event = event_of({"event": "weather", "seq": 3, "rain": True})
    assert event.body is None and event.raw["rain"] and event.topic == "weather"


def test_repeated_events_are_dropped_and_late_ones_are_not():
    seen = _Seen(floor=10)
    assert [seen.is_new(each) for each in (9, 12, 11, 12, 13, 11)] == \
        [False, True, True, False, True, False]
    seen.start_over()
    assert seen.is_new(1)


def test_messages_that_are_no_map_are_refused():
    for frame in (b"", b"\xc1", msgpack.packb([1])):
        with pytest.raises(Exception):
            _wire.decode(frame)


def test_places_are_found_by_address():
    array = penstock.shared_array(100_000)
    whole, part = shared_place(array), shared_place(array[70_000:])
    assert part == SharedPlace(whole.shared_name, 70_000, 30_000)
    with pytest.raises(penstock.InvalidArgument):
        shared_place(np.zeros(10))


def test_transfers_are_futures_that_nobody_else_can_end(monkeypatch):
    transfer = penstock.Transfer(None, "write x to b:x")
    assert not transfer.done() and transfer.running() and transfer.id is None
    assert transfer.state == "submitted" and transfer.path is None
    assert not transfer._ended.cancel()
    transfer._accept(9)
    assert transfer.id == 9 and transfer.state == "accepted"
    result = penstock.TransferResult(9, "done", path="direct")
    transfer._end(result)
    transfer._end(penstock.TransferResult(9, "failed"))
    assert transfer.wait() is transfer.result() is result and transfer.path == "direct"

    async def work():
        return await transfer
    assert asyncio.run(work()) is result
    assert isinstance(transfer._ended, concurrent.futures.Future)
