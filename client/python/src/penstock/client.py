"""The client for ordinary threads; penstock.aio has the one for asyncio."""

from __future__ import annotations

import concurrent.futures
import time
from typing import Any, Callable, Dict, List, Optional, Sequence, TypeVar, Union

import numpy as np

from . import _calls
from ._calls import (DEFAULT_ENDPOINT, Call, Node, RegionName, TransferCalls, TransferInfo)
from ._core import Core
from ._service import Restart
from ._wire import Message
from .errors import Error, NoAnswer, PeerLost
from .events import Event, Subscription
from .layout import IndexList
from .region import Region, RegionInfo
from .stream import Stream
from .trace import Trace
from .transfer import Seconds, Transfer

T = TypeVar("T")


class Client(TransferCalls):
    """A connection to the node's service. Any number of threads may share it.

    One thread in the background owns the connection. It reconnects by itself under the same
    identity, renews subscriptions where they left off and asks for the transfers that it waits for,
    so that no end of a transfer is missed. After a restart of the service it first makes again the
    regions that its Region objects stand for. Callbacks run on that thread: they must not block; a
    call that would wait raises InvalidArgument there.

    `endpoint`: tcp://HOST:PORT or ipc://PATH. `timeout` (seconds): for the answer to an ordinary
    call, and for the first contact; `memory_timeout`: for calls that touch much memory. `client`:
    free words for the service's log. `identity` names the connection at the service ("": a random
    one). A transfer is called lost when the service has not answered for `lost_after` seconds.
    `restarted(Restart)` is called when the service was restarted. When the service has not heard of
    this client for `lease` seconds, the client has died: its transfers are cancelled, its regions
    released, but for detached ones; the thread in the background lets itself be heard three times as
    often, and 0 means never. Where a tcp endpoint asks for
    keys (docs/security.md): `key_file` is the file of this client's secret key, `server_key` the
    service's public key or the file of it; "": as PENSTOCK_KEY_FILE and PENSTOCK_SERVER_KEY say.
    With `ring` a service on the same machine is asked by a ring in shared memory where it offers
    one (on x86-64, in CPython); else, and for long messages, by ZeroMQ. A call that waits for an
    answer by the ring looks for it itself for `spin` seconds before it sleeps, which takes a core
    meanwhile.
    Raises NoAnswer when nobody answers, Denied when the client is not let in.
    """

    def __init__(self, endpoint: str = DEFAULT_ENDPOINT, timeout: float = 5.0, *,
                 memory_timeout: float = 120.0, client: str = "penstock-python", identity: str = "",
                 lost_after: float = 60.0, max_request_bytes: int = 64 << 20,
                 restarted: Optional[Callable[[Restart], object]] = None, key_file: str = "",
                 server_key: str = "", lease: float = 60.0, ring: bool = True,
                 spin: float = 0.0) -> None:
        self._core = Core(_calls.options_of(endpoint, client, identity, timeout, memory_timeout,
                                            lost_after, max_request_bytes, restarted, key_file,
                                            server_key, lease, ring, spin))
        try:
            self._core.greeted.result(timeout)
        except concurrent.futures.TimeoutError:
            why = self._core.why_no_answer("hello", timeout)
            self._core.close()
            raise NoAnswer("DEADLINE_EXCEEDED", why) from None
        except Error:
            self._core.close()
            raise

    def __repr__(self) -> str:
        return f"<penstock.Client of node '{self.service.node}' at {self.endpoint}>"

    def close(self) -> None:
        """Releases the regions of this client, with force, and ends. Transfers of other regions go
        on; handles of unended ones become lost. Callable twice, but not in a callback."""
        self._core.refuse_on_own_thread("close")
        try:
            for region in self._core.regions():
                try:
                    region._start_release(True).result(self._core.patience_to_close())
                    region._finish_release(False)
                except (Error, concurrent.futures.TimeoutError):
                    break  # the service is away: there is nobody to ask
        finally:
            self._core.close()

    @property
    def has_ring(self) -> bool:
        """Whether requests go by a ring in shared memory now."""
        return self._core.has_ring()

    def __enter__(self) -> Client:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    # -- memory ------------------------------------------------------------------------------------

    def allocate(self, name: str, size: int, *, device: str = "", memory: str = "host",
                 gpu: Optional[int] = None, allow: Sequence[str] = ()) -> Region:
        """`size` bytes of the service's, shared with this process: ``region.array``. `memory`
        "cuda": of the GPU numbered `gpu` (as the service numbers them): ``region.cuda``. `device`
        "": the service chooses. `allow`: the nodes that may reach it, by name or by label
        ("rack=r7"); empty: every member."""
        fields = _calls.allocate(name, size, device, memory, gpu, allow)
        return self._made("allocate", name, fields, None)

    def register(self, name: str, memory: Any = None, *, shared_name: str = "", offset: int = 0,
                 size: Optional[int] = None, device: str = "",
                 gpu: Optional[int] = None, allow: Sequence[str] = ()) -> Region:
        """Registers memory of this process, without a copy: a numpy array in a named shared segment
        (shared_array(), multiprocessing.shared_memory), the SharedMemory itself, or a tensor on a
        GPU (anything with `__cuda_array_interface__`; `gpu` as the service numbers them, where that
        differs from here). Or any segment by `shared_name`. The memory stays the caller's; the
        Region keeps it alive until it is released."""
        fields, bus_id = _calls.register(name, memory, shared_name, offset, size, device, gpu,
                                         allow)
        region = self._made("register", name, fields, memory)
        try:
            _calls.check_gpu(region.info, bus_id)
        except Error:
            region.release(force=True)
            raise
        return region

    def open(self, name: str) -> Region:
        """A region that is there already. Closing this client does not release it."""
        info = self._ask(_calls.opened(name, self.endpoint))
        return Region(self._core, info, ("", {}))

    def release(self, region: RegionName, force: bool = False) -> None:
        """As Region.release(); also by name."""
        if isinstance(region, Region):
            region.release(force)
        else:
            self._ask(_calls.release(region, force))

    def regions(self) -> List[RegionInfo]:
        return self._ask(_calls.regions())

    def fill(self, region: RegionName, seed: int = 0, offset: int = 0, size: int = 0) -> int:
        """Fills with the pattern of `seed` (docs/protocol.md); size 0: to the end."""
        return self._ask(_calls.fill(region, seed, offset, size))

    def digest(self, region: RegionName, page_bytes: int, pages: Optional[IndexList] = None, *,
               offset: int = 0, size: int = 0) -> np.ndarray[Any, Any]:
        """XXH3-64 of each page: of `pages`, or of all from `offset` on."""
        if pages is not None and len(pages) == 0:
            return np.empty(0, "<u8")  # on the wire, no pages means every page
        return self._ask(_calls.digest(region, page_bytes, pages, offset, size))

    # -- transfers (those that start them: TransferCalls) ------------------------------------------

    def stream(self, region: RegionName, node: str, remote_region: RegionName, *,
               direction: str = "write", epoch: int = 0, **options: Any) -> Stream:
        """Opens a transfer that stays open: parts are appended, and it is closed (see Stream).
        Waits until it is accepted; raises the refusal. Options are those of write() but for
        `start_after` and `record_event`, which append() takes; `deadline` is that of the whole."""
        self._core.refuse_on_own_thread("stream")
        stream = self._stream(region, node, remote_region, direction, epoch, options)
        stream.wait_accepted()
        return stream

    def cancel(self, transfers: Sequence[Union[int, Transfer]]) -> List[int]:
        """Asks the service to stop these. Returns the ids that it does not know."""
        return self._ask(_calls.cancel(transfers))

    def transfers(self, ids: Optional[Sequence[Union[int, Transfer]]] = None,
                  limit: int = 1000) -> List[TransferInfo]:
        """What the service knows of these; None: the newest `limit` of all clients."""
        return self._ask(_calls.transfers(ids, limit))

    def trace(self, transfer: Union[int, Transfer]) -> Trace:
        """Where its time went, stage by stage. NotFound: unknown, or too many ended since."""
        return self._ask(_calls.trace(transfer))

    # -- events ------------------------------------------------------------------------------------

    def subscribe(self, topics: Sequence[str], callback: Optional[Callable[[Event], object]] = None,
                  since: Optional[int] = None) -> Subscription:
        """Topics: "transfers" (the ends of all transfers of the node), "notify", "members". With
        `since`, the events after that number that the service still keeps come first."""
        self._core.refuse_on_own_thread("subscribe")
        subscription, answered = self._core.subscribe(Subscription, topics, callback, since)
        answered.result()
        return subscription

    # -- the cluster -------------------------------------------------------------------------------

    def nodes(self) -> List[Node]:
        """This node first, then those that it knows."""
        return self._ask(_calls.nodes())

    def wait_connected(self, node: str, timeout: float = 30.0) -> Node:
        """Waits until `node` takes transfers. PeerLost when it does not within `timeout`."""
        until = time.monotonic() + timeout
        while True:
            found = [each for each in self.nodes() if each.name == node]
            if found and found[0].state in ("connected", "self"):
                return found[0]
            if time.monotonic() >= until:
                raise PeerLost("PEER_UNREACHABLE", f"node '{node}' is "
                               f"{found[0].state if found else 'not known'} after {timeout:g} s")
            time.sleep(0.05)

    def status(self) -> Dict[str, Any]:
        """The service's status, as docs/protocol.md has it."""
        return self._ask(_calls.status())

    def drain(self, node: str = "", deadline: Optional[Seconds] = None) -> None:
        """A node ("": this one) takes no new work, finishes what is in flight, and leaves. Returns
        when it has begun."""
        self._ask(_calls.drain(node, deadline))

    def remove(self, node: str, force: bool = False) -> None:
        """Strikes off a member that will not come back."""
        self._ask(_calls.remove(node, force))

    def call(self, operation: str, fields: Optional[Message] = None,
             timeout: Optional[float] = None) -> Message:
        """Any operation of the protocol, for those newer than this client. Returns the reply's
        body."""
        return self._ask(_calls.anything(operation, fields or {}, timeout))

    def _ask(self, call: Call[T]) -> T:
        return call.read(self._core.call(call.operation, call.fields,
                                         call.patience(self._core.options)))

    def _made(self, operation: str, name: str, fields: Message, memory: Any) -> Region:
        reply = self._core.call(operation, fields, self._core.options.memory_timeout)
        return Region(self._core, _calls.made(reply, name), (operation, fields), memory)
