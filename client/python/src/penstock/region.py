"""A region of memory that the service can move from and to."""

from __future__ import annotations

import concurrent.futures
import dataclasses
import threading
from typing import TYPE_CHECKING, Any, Dict, Optional, Sequence, Tuple, Union

import numpy as np

from ._mapping import Mapping
from ._wire import Message
from .cuda import CudaMemory
from .errors import Unsupported

if TYPE_CHECKING:
    from ._core import Core


_Bytes = bytes  # a field below has that name


@dataclasses.dataclass(frozen=True)
class RegionInfo:
    """As the service describes it."""

    name: str
    bytes: int
    epoch: int = 0         # changes when the name is released and made again
    device: str = ""
    kind: str = "host"     # or "cuda"
    shared_name: str = ""  # "": cannot be mapped
    shared_offset: int = 0
    owner: str = "service"  # or "client"
    uses: int = 0           # transfers and jobs that hold it
    closing: bool = False
    # Of memory of a GPU:
    gpu: int = -1  # as the service numbers them
    gpu_bus: str = ""
    reach: str = ""  # "gpudirect": cards reach it; "staged": it crosses by staging memory
    ipc_handle: _Bytes = b""
    ipc_offset: int = 0


_FIELDS = tuple(field.name for field in dataclasses.fields(RegionInfo))


def info_of(body: Message) -> RegionInfo:
    return RegionInfo(**{key: body[key] for key in _FIELDS if key in body})


class RegionBase:
    """What Client's and aio.Client's regions share.

    When the service was restarted, the client makes the region there again: its epoch and shared
    name are new ones then, arrays of it stay where they are. Memory of the client's own keeps what
    it holds; memory that the service had allocated is zero again.
    """

    def __init__(self, core: Core, info: RegionInfo, made_by: Tuple[str, Message],
                 keep_alive: object = None) -> None:
        self._core = core
        self._info = info
        self._made_by = made_by  # ("", {}) for one that others made
        self._keep_alive = keep_alive
        self._lock = threading.Lock()
        self._mapping: Optional[Mapping] = None
        self._cuda: Optional[CudaMemory] = None
        self.released = False
        if made_by[0]:
            core.keep(self)

    def __repr__(self) -> str:
        state = ", released" if self.released else ""
        kind = self.info.kind
        return f"<penstock region '{self.name}': {self.size} bytes of {kind} memory{state}>"

    @property
    def info(self) -> RegionInfo:
        """As the service last described it."""
        return self._info

    @property
    def name(self) -> str:
        return self._info.name

    @property
    def size(self) -> int:
        """Bytes."""
        return self._info.bytes

    @property
    def epoch(self) -> int:
        return self._info.epoch

    # -- the memory --------------------------------------------------------------------------------

    @property
    def array(self) -> np.ndarray[Any, Any]:
        """The memory as bytes: a view, valid as long as it is held, also after the release (the
        memory then belongs to nobody else). Unsupported for a GPU's memory, on another machine, or
        as another user."""
        with self._lock:
            if self._mapping is None:
                self._mapping = self._map()
            array: np.ndarray[Any, Any] = np.asarray(self._mapping)
            return array

    def view(self, dtype: Any, shape: Optional[Union[int, Sequence[int]]] = None,
             offset: int = 0) -> np.ndarray[Any, Any]:
        """`array` from `offset` on as another type; `shape` may leave bytes at the end."""
        kind = np.dtype(dtype)
        rest = self.array[offset:]
        if shape is None:
            return rest[:rest.size // kind.itemsize * kind.itemsize].view(kind)
        wanted = int(np.prod(shape, dtype=np.int64)) * kind.itemsize
        typed: np.ndarray[Any, Any] = rest[:wanted].view(kind).reshape(shape)
        return typed

    def __array__(self, dtype: Any = None, copy: Optional[bool] = None) -> np.ndarray[Any, Any]:
        array = self.array
        if dtype is not None and np.dtype(dtype) != array.dtype:
            return array.astype(dtype)
        return array.copy() if copy else array

    def __len__(self) -> int:
        return self.size

    def __getitem__(self, key: Any) -> Any:
        return self.array[key]

    def __setitem__(self, key: Any, value: Any) -> None:
        self.array[key] = value

    @property
    def cuda(self) -> CudaMemory:
        """The memory of a GPU, opened at first use. Unsupported for host memory, and where there is
        no driver. After a restart of the service it is another one: ask again."""
        if self._info.kind != "cuda":
            raise Unsupported("UNSUPPORTED", f"region '{self.name}' is in host memory: use `array`")
        with self._lock:
            if self._cuda is None:
                info = self._info
                self._cuda = CudaMemory(info.ipc_handle, info.ipc_offset, info.bytes, info.gpu_bus)
            return self._cuda

    @property
    def __cuda_array_interface__(self) -> Dict[str, Any]:
        if self._info.kind != "cuda":
            raise AttributeError("__cuda_array_interface__")
        return self.cuda.__cuda_array_interface__

    def __dlpack__(self, **arguments: Any) -> Any:
        if self._info.kind == "cuda":
            return self.cuda.__dlpack__(**arguments)
        return self.array.__dlpack__(**arguments)

    def __dlpack_device__(self) -> Tuple[int, int]:
        return self.cuda.__dlpack_device__() if self._info.kind == "cuda" else (1, 0)

    def _map(self) -> Mapping:
        if self._info.kind != "host":
            raise Unsupported("UNSUPPORTED", f"region '{self.name}' is on a GPU: use `cuda`, or "
                              "give it to torch.as_tensor or cupy.asarray")
        return Mapping(self._info.shared_name, self._info.shared_offset, self._info.bytes)

    # -- its life at the service -------------------------------------------------------------------

    def detach(self) -> None:
        """The region stays at the service when this client goes; a restarted service has it no
        more."""
        self._core.drop(self)
        self._core.leave(self.name)

    def _start_release(self, force: bool) -> concurrent.futures.Future[Message]:
        # Not to be made again by a restart meanwhile; a refusal takes that back.
        self._core.drop(self)
        return self._core.start("release", {"name": self.name, "force": force},
                                self._core.options.memory_timeout)

    def _finish_release(self, failed: bool) -> None:
        if failed:
            if self._made_by[0]:
                self._core.keep(self)
            return
        self.released = True
        with self._lock:
            self._mapping = self._cuda = self._keep_alive = None

    def _renew(self, body: Message) -> None:
        """The region was made again. Raises Unsupported when it cannot be mapped where it was: then
        `array` is memory that no service knows."""
        with self._lock:
            before, self._info = self._info, info_of(body)
            now = self._info
            self._cuda = None
            moved = (before.shared_name, before.shared_offset) != \
                (now.shared_name, now.shared_offset)
            if self._mapping is not None and moved:
                self._mapping.map_again(now.shared_name, now.shared_offset, now.bytes)


class Region(RegionBase):
    """A region of a Client's; released at the end of a `with` block, or with the client."""

    def release(self, force: bool = False) -> None:
        """Without `force`, Busy while a transfer uses it; with it they are cancelled first. After
        an error the region is still there."""
        if self.released:
            return
        self._core.refuse_on_own_thread("release")
        failed = True
        try:
            self._start_release(force).result()
            failed = False
        finally:
            self._finish_release(failed)

    def __enter__(self) -> Region:
        return self

    def __exit__(self, *_: object) -> None:
        self.release(force=True)


class AsyncRegion(RegionBase):
    """As Region, of an aio.Client's: ``async with await client.allocate(...) as region``."""

    async def release(self, force: bool = False) -> None:
        """As Region.release()."""
        import asyncio
        if self.released:
            return
        failed = True
        try:
            await asyncio.wrap_future(self._start_release(force))
            failed = False
        finally:
            self._finish_release(failed)

    async def __aenter__(self) -> AsyncRegion:
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.release(force=True)
