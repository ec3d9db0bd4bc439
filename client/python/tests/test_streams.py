import asyncio
import concurrent.futures

import msgpack
import numpy as np
import pytest

import penstock
from penstock.stream import Stream

LAYERS, PAGE, PAGES = 4, 4096, 32
LAYER = PAGE * PAGES


@pytest.fixture
def regions(a, b, name):
    with a.allocate(name, LAYERS * LAYER) as here, b.allocate(name, LAYERS * LAYER) as there:
        here.array[:] = np.random.default_rng(1).integers(0, 256, here.size, np.uint8)
        yield here, there


def append(stream, layer, **more):
    order = np.arange(PAGES, dtype=np.uint32)
    return stream.append_pages(page_bytes=PAGE, src_pages=order, dst_pages=order[::-1].copy(),
                               bases=[(layer * LAYER, layer * LAYER)], **more)


def arrived(here, there, layer):
    shape = (LAYERS, PAGES, PAGE)
    return np.array_equal(here.array.reshape(shape)[layer],
                          there.array.reshape(shape)[layer][::-1])


def test_parts_are_told_as_they_arrive_and_the_stream_ends_once(a, b, regions):
    here, there = regions
    with b.subscribe(["notify"]) as heard:
        with a.stream(here, "b", there, notify="request", deadline=20) as stream:
            parts = []
            for layer in range(LAYERS):
                parts.append(append(stream, layer, notify=b"last" if layer == 3 else b""))
                told = heard.get(20).body
                assert (told.stream, told.part, told.bytes) == (stream.id, layer, LAYER)
                assert told.data == (b"last" if layer == 3 else b"request")
                assert told.transfer == parts[layer].wait_accepted(20)
                assert arrived(here, there, layer)
            assert stream.parts == LAYERS and not stream.done()
            assert a.transfers([stream])[0].state == "open"
            assert a.status()["streams"]["open"] >= 1
        result = stream.result(20)
    assert (result.id, result.parts, result.parts_done) == (stream.id, LAYERS, LAYERS)
    assert result.bytes == LAYERS * LAYER and result.node == "b"
    ends = [part.result(0) for part in parts]  # the stream ended last
    assert [(end.stream, end.part) for end in ends] == [(stream.id, i) for i in range(LAYERS)]
    assert [stage.name for stage in a.trace(stream).stages][1:3] == ["open", "closing"]
    with pytest.raises(penstock.InvalidArgument):
        append(stream, 0)


def test_a_stream_on_one_node_copies(a, name):
    with a.allocate(name, LAYER) as here, a.allocate(name + "-too", LAYER) as there:
        here.array[:] = 3
        with a.stream(here, "", there) as stream:
            stream.append(penstock.Ranges([(0, 100, 1000)]))
            stream.append(penstock.Ranges([(0, 5000, 10)]))
        assert stream.result(20).path == "local_copy"
        assert there.array.sum() == 3 * 1010


def test_a_stream_reads_too(b, regions):
    here, there = regions
    with b.stream(there, "a", here, direction="read") as stream:
        for layer in range(LAYERS):
            append(stream, layer)
    assert stream.result(20).ok
    assert all(arrived(here, there, layer) for layer in range(LAYERS))


def test_a_part_that_is_refused_is_the_end_of_the_stream(a, regions):
    here, there = regions
    stream = a.stream(here, "b", there)
    assert append(stream, 0).result(20).ok
    refused = append(stream, LAYERS)
    assert refused.wait(20).state == "refused"
    late = append(stream, 1)
    stream.close()
    with pytest.raises(penstock.InvalidArgument) as failure:
        stream.result(20)
    assert failure.value.code == "OUT_OF_RANGE" and "part 1 was refused" in str(failure.value)
    assert failure.value.result.parts_done == 1
    assert late.wait(20).state == "refused"


def test_an_exception_cancels_it(a, regions):
    here, there = regions
    with pytest.raises(KeyError), a.stream(here, "b", there) as stream:
        append(stream, 0)
        raise KeyError
    with pytest.raises(penstock.Cancelled):
        stream.result(20)


def test_it_ends_at_its_deadline(a, regions):
    here, there = regions
    stream = a.stream(here, "b", there, deadline=0.2)
    with pytest.raises(penstock.DeadlineExceeded):
        stream.result(20)


def test_what_is_asked_twice_is_done_once(a, regions):
    here, there = regions
    stream = a.stream(here, "b", there, key="once")
    assert a.stream(here, "b", there, key="once").id == stream.id
    first = append(stream, 0).wait_accepted(20)
    piece = {"kind": "ranges", "ranges": np.array([0, 0, 8], "<u8").tobytes()}
    again = a.call("append", {"stream": stream.id, "part": 0, "layout": piece})
    assert again["ids"] == [first]
    stream.close()
    assert stream.result(20).parts == 1
    assert a.call("append", {"stream": stream.id, "part": 0, "layout": piece})["ids"] == [first]
    a.call("close", {"stream": stream.id, "parts": 1})


def test_opening_one_may_be_asked_twice(a, regions):
    here, there = regions
    asked = []
    ask = a._core._request
    a._core._request = lambda *request: asked.append(ask(*request)) or asked[-1]
    streams = [a.stream(here, "b", there), a.stream(here, "b", there)]
    opened = [each for each in asked if each.operation == "stream"]
    assert all(each.repeatable for each in opened)
    keys = [msgpack.unpackb(each.frame)["key"] for each in opened]
    assert len(keys) == 2 and keys[0] != keys[1]
    assert streams[0].id != streams[1].id
    for stream in streams:
        stream.close()
        stream.result(20)


class Answers:
    """Of a core that answers `close` so, and takes `cancel`."""

    def __init__(self, *answers):
        self.answers, self.asked = list(answers), []

    def start(self, operation, fields):
        self.asked.append(operation)
        answer = concurrent.futures.Future()
        error = self.answers.pop(0) if operation == "close" else None
        if error is not None:
            answer.set_exception(error)
        else:
            answer.set_result({})
        return answer


@pytest.mark.parametrize("answers, asked", [
    ([penstock.errors.NoAnswer("DEADLINE_EXCEEDED", ""), None], ["close", "close"]),
    ([penstock.NotFound("NOT_FOUND", "")], ["close"]),
    ([penstock.Cancelled("CANCELLED", "")], ["close"]),
    ([penstock.DeadlineExceeded("DEADLINE_EXCEEDED", "")], ["close", "cancel"]),
    ([penstock.errors.ResourceExhausted("RESOURCE_EXHAUSTED", "")], ["close", "cancel"]),
])
def test_it_is_closed_until_that_is_answered_and_cancelled_when_refused(answers, asked):
    core = Answers(*answers)
    stream = Stream(core, "")
    stream._accept(9)
    stream.close()
    assert core.asked == asked


def test_one_that_lacks_a_part_is_never_done(a, regions):
    here, there = regions
    stream = a.stream(here, "b", there)
    append(stream, 0)
    with pytest.raises(penstock.InvalidArgument):
        a.call("close", {"stream": stream.id, "parts": 2})
    assert stream.wait(20).state == "failed"


def test_options_of_parts_are_not_the_streams(a, regions):
    with pytest.raises(TypeError, match="append"):
        a.stream("here", "b", "there", start_after=bytes(64))
    with pytest.raises(TypeError, match="unexpected"):
        a.stream("here", "b", "there", colour="blue")


def test_streams_in_asyncio(pair, name):
    async def work():
        async with penstock.aio.Client(pair.endpoint("a")) as a, \
                penstock.aio.Client(pair.endpoint("b")) as b:
            here, there = await a.allocate(name, LAYER), await b.allocate(name, LAYER)
            here.array[:] = 9
            async with await a.stream(here, "b", there) as stream:
                part = append(stream, 0)
                assert (await part).stream == stream.id
            assert (await stream).parts_done == 1
            assert (there.array == 9).all()
            with pytest.raises(penstock.NotFound):
                await a.stream("none", "b", there)
    asyncio.run(work())
