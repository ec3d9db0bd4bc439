"""The client for asyncio. As penstock.Client, with `await` before what waits::

    async with penstock.aio.Client("tcp://127.0.0.1:7411") as client:
        region = await client.allocate("kv", 1 << 20)
        result = await client.write(region, "b", "kv")
"""

from __future__ import annotations

import asyncio
import time
from typing import Any, Callable, Dict, List, Optional, Sequence, TypeVar, Union

import numpy as np

from . import _calls
from ._calls import (DEFAULT_ENDPOINT, Call, Node, RegionName, TransferCalls, TransferInfo)
from ._core import Core
from ._service import Restart
from ._wire import Message
from .errors import Error, NoAnswer, PeerLost
from .events import AsyncSubscription, Event
from .layout import IndexList
from .region import AsyncRegion, RegionInfo
from .stream import Stream
from .trace import Trace
from .transfer import Seconds, Transfer

T = TypeVar("T")


class Client(TransferCalls):
    """See penstock.Client for the arguments. Connects at ``async with``, or ``await connect()``.
    Transfers are started without waiting and awaited: ``result = await client.write(...)``.
    Callbacks run on the client's thread, not in the event loop."""

    def __init__(self, endpoint: str = DEFAULT_ENDPOINT, timeout: float = 5.0, *,
                 memory_timeout: float = 120.0, client: str = "penstock-python", identity: str = "",
                 lost_after: float = 60.0, max_request_bytes: int = 64 << 20,
                 restarted: Optional[Callable[[Restart], object]] = None, key_file: str = "",
                 server_key: str = "", lease: float = 60.0, ring: bool = True) -> None:
        self._options = _calls.options_of(endpoint, client, identity, timeout, memory_timeout,
                                          lost_after, max_request_bytes, restarted, key_file,
                                          server_key, lease, ring)

    def __repr__(self) -> str:
        return f"<penstock.aio.Client of {self._options.endpoint}>"

    async def connect(self) -> Client:
        self._core = Core(self._options)
        try:
            await asyncio.wait_for(asyncio.wrap_future(self._core.greeted), self._options.timeout)
        except asyncio.TimeoutError:
            why = self._core.why_no_answer("hello", self._options.timeout)
            await self._end()
            raise NoAnswer("DEADLINE_EXCEEDED", why) from None
        except BaseException:
            await self._end()
            raise
        return self

    async def close(self) -> None:
        """As penstock.Client.close()."""
        try:
            for region in self._core.regions():
                try:
                    await asyncio.wait_for(asyncio.wrap_future(region._start_release(True)),
                                           self._core.patience_to_close())
                    region._finish_release(False)
                except (Error, asyncio.TimeoutError):
                    break
        finally:
            await self._end()

    async def _end(self) -> None:
        await asyncio.get_running_loop().run_in_executor(None, self._core.close)

    async def __aenter__(self) -> Client:
        return await self.connect()

    async def __aexit__(self, *_: object) -> None:
        await self.close()

    # -- memory ------------------------------------------------------------------------------------

    async def allocate(self, name: str, size: int, *, device: str = "", memory: str = "host",
                       gpu: Optional[int] = None, allow: Sequence[str] = ()) -> AsyncRegion:
        """As penstock.Client.allocate()."""
        fields = _calls.allocate(name, size, device, memory, gpu, allow)
        return await self._made("allocate", name, fields, None)

    async def register(self, name: str, memory: Any = None, *, shared_name: str = "",
                       offset: int = 0, size: Optional[int] = None, device: str = "",
                       gpu: Optional[int] = None, allow: Sequence[str] = ()) -> AsyncRegion:
        """As penstock.Client.register()."""
        fields, bus_id = _calls.register(name, memory, shared_name, offset, size, device, gpu,
                                         allow)
        region = await self._made("register", name, fields, memory)
        try:
            _calls.check_gpu(region.info, bus_id)
        except Error:
            await region.release(force=True)
            raise
        return region

    async def open(self, name: str) -> AsyncRegion:
        """As penstock.Client.open()."""
        info = await self._ask(_calls.opened(name, self.endpoint))
        return AsyncRegion(self._core, info, ("", {}))

    async def release(self, region: RegionName, force: bool = False) -> None:
        """As penstock.Client.release()."""
        if isinstance(region, AsyncRegion):
            await region.release(force)
        else:
            await self._ask(_calls.release(region, force))

    async def regions(self) -> List[RegionInfo]:
        return await self._ask(_calls.regions())

    async def fill(self, region: RegionName, seed: int = 0, offset: int = 0, size: int = 0) -> int:
        """As penstock.Client.fill()."""
        return await self._ask(_calls.fill(region, seed, offset, size))

    async def digest(self, region: RegionName, page_bytes: int, pages: Optional[IndexList] = None,
                     *, offset: int = 0, size: int = 0) -> np.ndarray[Any, Any]:
        """As penstock.Client.digest()."""
        if pages is not None and len(pages) == 0:
            return np.empty(0, "<u8")
        return await self._ask(_calls.digest(region, page_bytes, pages, offset, size))

    # -- transfers (those that start them: TransferCalls) ------------------------------------------

    async def accepted(self, transfer: Transfer) -> int:
        """Its id, once the service has accepted it. Raises the refusal."""
        return await asyncio.wrap_future(transfer._accepted)

    async def stream(self, region: RegionName, node: str, remote_region: RegionName, *,
                     direction: str = "write", epoch: int = 0, **options: Any) -> Stream:
        """As penstock.Client.stream(): ``async with await client.stream(...) as stream``."""
        stream = self._stream(region, node, remote_region, direction, epoch, options)
        await self.accepted(stream)
        return stream

    async def cancel(self, transfers: Sequence[Union[int, Transfer]]) -> List[int]:
        """As penstock.Client.cancel()."""
        return await self._ask(_calls.cancel(transfers))

    async def transfers(self, ids: Optional[Sequence[Union[int, Transfer]]] = None,
                        limit: int = 1000) -> List[TransferInfo]:
        """As penstock.Client.transfers()."""
        return await self._ask(_calls.transfers(ids, limit))

    async def trace(self, transfer: Union[int, Transfer]) -> Trace:
        """As penstock.Client.trace()."""
        return await self._ask(_calls.trace(transfer))

    # -- events ------------------------------------------------------------------------------------

    async def subscribe(self, topics: Sequence[str],
                        callback: Optional[Callable[[Event], object]] = None,
                        since: Optional[int] = None) -> AsyncSubscription:
        """As penstock.Client.subscribe(); without a callback, ``async for event in ...``."""
        subscription, answered = self._core.subscribe(AsyncSubscription, topics, callback, since)
        await asyncio.wrap_future(answered)
        return subscription

    # -- the cluster -------------------------------------------------------------------------------

    async def nodes(self) -> List[Node]:
        return await self._ask(_calls.nodes())

    async def wait_connected(self, node: str, timeout: float = 30.0) -> Node:
        """As penstock.Client.wait_connected()."""
        until = time.monotonic() + timeout
        while True:
            found = [each for each in await self.nodes() if each.name == node]
            if found and found[0].state in ("connected", "self"):
                return found[0]
            if time.monotonic() >= until:
                raise PeerLost("PEER_UNREACHABLE", f"node '{node}' is "
                               f"{found[0].state if found else 'not known'} after {timeout:g} s")
            await asyncio.sleep(0.05)

    async def status(self) -> Dict[str, Any]:
        return await self._ask(_calls.status())

    async def drain(self, node: str = "", deadline: Optional[Seconds] = None) -> None:
        """As penstock.Client.drain()."""
        await self._ask(_calls.drain(node, deadline))

    async def remove(self, node: str, force: bool = False) -> None:
        """As penstock.Client.remove()."""
        await self._ask(_calls.remove(node, force))

    async def call(self, operation: str, fields: Optional[Message] = None,
                   timeout: Optional[float] = None) -> Message:
        """As penstock.Client.call()."""
        return await self._ask(_calls.anything(operation, fields or {}, timeout))

    async def _ask(self, call: Call[T]) -> T:
        future = self._core.start(call.operation, call.fields, call.patience(self._options))
        return call.read(await asyncio.wrap_future(future))

    async def _made(self, operation: str, name: str, fields: Message, memory: Any) -> AsyncRegion:
        reply = await asyncio.wrap_future(
            self._core.start(operation, fields, self._options.memory_timeout))
        return AsyncRegion(self._core, _calls.made(reply, name), (operation, fields), memory)
