import asyncio

import numpy as np
import pytest

import penstock


def run(coroutine):
    return asyncio.run(asyncio.wait_for(coroutine, 60))


def test_every_call_has_its_await(pair, name):
    async def work():
        async with penstock.aio.Client(pair.endpoint("a")) as a, \
                penstock.aio.Client(pair.endpoint("b")) as b:
            assert a.service.node == "a"
            assert (await a.wait_connected("b")).state == "connected"
            own = penstock.shared_array(8192)
            async with await a.allocate(name, 1 << 20) as here, \
                    await b.allocate(name, 1 << 20) as there, \
                    await a.register(name + "-own", own) as mine, \
                    await b.subscribe(["notify"]) as events:
                await a.fill(here, seed=5)
                transfer = a.write(here, "b", there, notify=b"x")
                assert await a.accepted(transfer) == transfer.id
                result = await transfer
                assert result.ok and result.bytes == 1 << 20
                assert (await events.next(20)).body.data == b"x"
                with pytest.raises(TimeoutError):
                    await events.next(0.05)
                pages = np.arange(16, dtype=np.uint32)
                await a.write_pages(here, "b", there, page_bytes=4096, src_pages=pages,
                                    dst_pages=pages[::-1].copy())
                assert np.array_equal(await a.digest(here, 4096, pages=[0]),
                                      await b.digest(there, 4096, pages=[15]))
                await a.read(mine, "b", there, size=8192)
                assert np.array_equal(own, there[:8192])
                both = await asyncio.gather(*a.scatter(mine, [("b", there), ("", here)]))
                assert [each.state for each in both] == ["done", "done"]
                assert (await a.transfers([transfer]))[0].result == result
                assert await a.cancel([1 << 60]) == [1 << 60]
                assert {each.name for each in await a.regions()} >= {name, name + "-own"}
                assert (await a.status())["node"] == "a"
                assert (await a.call("hello"))["node"] == "a"
                opened = await a.open(name)
                assert opened.size == 1 << 20
                with pytest.raises(penstock.NotFound):
                    await a.write(here, "b", "nothing", size=1)
                with pytest.raises(penstock.NotFound):
                    await a.release("nothing")
                with pytest.raises(penstock.NotFound):
                    await a.remove("nobody")
            assert here.released
        with pytest.raises(penstock.Cancelled):
            await a.nodes()
    run(work())


def test_events_come_by_async_for(pair, name):
    async def work():
        async with penstock.aio.Client(pair.endpoint("a")) as a:
            here = await a.allocate(name, 4096)
            there = await a.allocate(name + "-too", 4096)
            events = await a.subscribe(["notify"])

            async def send():
                for i in range(5):
                    await a.write(here, "", there, notify=str(i))

            sender = asyncio.ensure_future(send())
            got = []
            async for event in events:
                got.append(event.body.data)
                if len(got) == 5:
                    events.stop()
            assert got == [b"0", b"1", b"2", b"3", b"4"]
            await sender
    run(work())


def test_a_cancelled_await_leaves_the_transfer_running(pair, name):
    async def work():
        async with penstock.aio.Client(pair.endpoint("a")) as a:
            here = await a.allocate(name, 32 << 20)
            there = await a.allocate(name + "-too", 32 << 20)
            transfer = a.write(here, "", there)
            task = asyncio.ensure_future(wait(transfer))
            await asyncio.sleep(0)
            task.cancel()
            with pytest.raises(asyncio.CancelledError):
                await task
            assert (await transfer).ok

    async def wait(transfer):
        return await transfer
    run(work())


def test_a_sync_clients_transfer_can_be_awaited(a, b, name):
    async def work():
        return await a.write(here, "b", there)
    with a.allocate(name, 4096) as here, b.allocate(name, 4096) as there:
        assert run(work()).ok


def test_nobody_there_is_told():
    async def work():
        async with penstock.aio.Client("ipc:///tmp/there-is-no-penstockd-here", timeout=0.3):
            pass
    with pytest.raises(penstock.NoAnswer):
        run(work())


def test_many_tasks_share_a_client(pair, name):
    async def work():
        async with penstock.aio.Client(pair.endpoint("a")) as a:
            here = await a.allocate(name, 1 << 20)
            there = await a.allocate(name + "-too", 1 << 20)
            await a.fill(here, seed=9)

            async def piece(i):
                await a.write(here, "", there, src_offset=i * 4096, dst_offset=i * 4096, size=4096)
                await a.regions()
            await asyncio.gather(*(piece(i) for i in range(256)))
            assert np.array_equal(here.array, there.array)
    run(work())


def test_members_drain_by_await(services):
    cluster = services("c", "d")

    async def work():
        async with penstock.aio.Client(cluster.endpoint("c")) as c:
            async with await c.subscribe(["members"]) as members:
                await c.drain("d", deadline=5)
                async for event in members:
                    if event.body.kind == "left":
                        return event.body.node
    assert run(work()) == "d"
    assert cluster.wait_ended("d") == 0
