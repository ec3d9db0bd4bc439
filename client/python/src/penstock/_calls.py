"""The calls of both clients: what each asks, and what its answer means."""

from __future__ import annotations

import dataclasses
import uuid
from typing import (Any, Callable, Dict, Generic, List, Mapping, Optional, Sequence, Tuple, TypeVar,
                    Union)

import numpy as np

from ._core import Core
from ._mapping import shared_place
from ._service import Options, Restart, Service
from ._wire import Message
from .cuda import cuda_place
from .errors import InternalError, InvalidArgument, NotFound
from .layout import (Bases, IndexList, Layout, Pages, Ranges, Strided, blob, unsigned_array)
from .region import RegionBase, RegionInfo, info_of
from .stream import Stream
from .trace import Trace, trace_of
from .transfer import (TERMINAL, Seconds, Target, Transfer, TransferResult, TransferSpec,
                       milliseconds, result_of)

T = TypeVar("T")
RegionName = Union[str, RegionBase]
DEFAULT_ENDPOINT = "tcp://127.0.0.1:7411"


@dataclasses.dataclass(frozen=True)
class Call(Generic[T]):
    operation: str
    fields: Message
    read: Callable[[Message], T]
    touches_memory: bool = False
    timeout: Optional[float] = None

    def patience(self, options: Options) -> float:
        if self.timeout is not None:
            return self.timeout
        return options.memory_timeout if self.touches_memory else options.timeout


@dataclasses.dataclass(frozen=True)
class Node:
    name: str
    incarnation: int
    state: str  # "self", "connecting", "connected", "suspect", "draining", "left", "dead", ...
    load: int = 0
    labels: Mapping[str, str] = dataclasses.field(default_factory=dict)
    request_endpoint: str = ""
    gossip_endpoint: str = ""
    provider: str = ""
    service_version: str = ""
    #: Everything that the service said of it.
    raw: Mapping[str, Any] = dataclasses.field(default_factory=dict, repr=False, compare=False)


@dataclasses.dataclass(frozen=True)
class TransferInfo:
    """`state` may also be one of a transfer under way, or "unknown"; `result` once it ended."""

    id: int
    state: str
    bytes: int = 0
    total_bytes: int = 0
    result: Optional[TransferResult] = None


def _nothing(_: Message) -> None:
    return None


def _body(reply: Message) -> Message:
    return {key: value for key, value in reply.items() if key not in ("v", "id", "ok")}


_NODE_FIELDS = tuple(field.name for field in dataclasses.fields(Node) if field.name != "raw")


def _nodes(reply: Message) -> List[Node]:
    return [Node(**{key: each[key] for key in _NODE_FIELDS if key in each}, raw=each)
            for each in reply["nodes"]]


def _transfer_info(line: Message) -> TransferInfo:
    return TransferInfo(line["id"], line["state"], line.get("bytes", 0), line.get("total_bytes", 0),
                        result_of(line) if line["state"] in TERMINAL else None)


def _digests(reply: Message) -> np.ndarray[Any, Any]:
    return np.frombuffer(reply["digests"], "<u8")


def name_of(region: RegionName) -> str:
    return region if isinstance(region, str) else region.name


# -- memory ----------------------------------------------------------------------------------------

def allocate(name: str, size: int, device: str, memory: str, gpu: Optional[int],
             allow: Sequence[str]) -> Message:
    fields: Message = {"name": name, "bytes": size}
    if allow:
        fields["allow"] = list(allow)
    if device:
        fields["device"] = device
    if memory != "host":
        fields["memory"] = memory
    if gpu is not None:
        fields["gpu"] = gpu
    return fields


def register(name: str, memory: Any, shared_name: str, offset: int, size: Optional[int],
             device: str, gpu: Optional[int], allow: Sequence[str]) -> Tuple[Message, str]:
    """The request, and the bus id of the GPU that the memory is on ("": host memory)."""
    fields: Message = {"name": name}
    if allow:
        fields["allow"] = list(allow)
    bus_id = ""
    if (memory is None) == (not shared_name):
        raise InvalidArgument("INVALID_ARGUMENT",
                              "register takes either memory or the shared_name of a segment")
    if memory is None:
        if size is None:
            raise InvalidArgument("INVALID_ARGUMENT", "register by name needs the size in bytes")
        fields.update(shared_name=shared_name, offset=offset, bytes=size)
    elif offset or size is not None:
        raise InvalidArgument("INVALID_ARGUMENT", "offset and size go with shared_name; register a "
                              "part of an array by its slice")
    elif hasattr(memory, "__cuda_array_interface__"):
        lies = cuda_place(memory)
        fields.update(memory="cuda", ipc_handle=lies.ipc_handle, offset=lies.offset,
                      bytes=lies.size, gpu=lies.gpu)
        bus_id = lies.bus_id
    else:
        place = shared_place(memory)
        fields.update(shared_name=place.shared_name, offset=place.offset, bytes=place.size)
    if device:
        fields["device"] = device
    if gpu is not None:
        fields["gpu"] = gpu
    return fields, bus_id


def check_gpu(info: RegionInfo, bus_id: str) -> None:
    """The service may number GPUs otherwise than this process does."""
    if bus_id and info.gpu_bus and info.gpu_bus.lower() != bus_id.lower():
        raise InvalidArgument(
            "INVALID_ARGUMENT", f"region '{info.name}' lies on GPU {bus_id}, and the service's GPU "
            f"{info.gpu} is {info.gpu_bus}: say gpu= as the service numbers them (CUDA_VISIBLE_"
            "DEVICES may differ)")


def made(reply: Message, name: str) -> RegionInfo:
    info = info_of(reply)
    if info.name != name:
        raise InternalError("INTERNAL", f"asked for region '{name}', got '{info.name}'")
    return info


def opened(name: str, endpoint: str) -> Call[RegionInfo]:
    def read(reply: Message) -> RegionInfo:
        for each in reply["regions"]:
            if each["name"] == name:
                return info_of(each)
        raise NotFound("NOT_FOUND", f"no region '{name}' at {endpoint}")
    return Call("regions", {}, read)


def release(region: RegionName, force: bool) -> Call[None]:
    return Call("release", {"name": name_of(region), "force": force}, _nothing, True)


def regions() -> Call[List[RegionInfo]]:
    return Call("regions", {}, lambda reply: [info_of(each) for each in reply["regions"]])


def fill(region: RegionName, seed: int, offset: int, size: int) -> Call[int]:
    return Call("fill", {"region": name_of(region), "seed": seed, "offset": offset, "bytes": size},
                lambda reply: int(reply["bytes"]), True)


def digest(region: RegionName, page_bytes: int, pages: Optional[IndexList], offset: int,
           size: int) -> Call[np.ndarray[Any, Any]]:
    fields: Message = {"region": name_of(region), "page_bytes": page_bytes, "offset": offset}
    if pages is None:
        fields["bytes"] = size
    else:
        fields["pages"] = blob(unsigned_array(pages, "<u4", "pages"))
    return Call("digest", fields, _digests, True)


# -- transfers, nodes, status ----------------------------------------------------------------------

def _ids(transfers: Sequence[Union[int, Transfer]]) -> memoryview:
    ids = [each.id if isinstance(each, Transfer) else each for each in transfers]
    return blob(np.array([each for each in ids if each is not None], "<u8"))


def cancel(transfers: Sequence[Union[int, Transfer]]) -> Call[List[int]]:
    return Call("cancel", {"ids": _ids(transfers)}, lambda reply: list(reply.get("unknown", ())))


def transfers(ids: Optional[Sequence[Union[int, Transfer]]],
              limit: int) -> Call[List[TransferInfo]]:
    fields: Message = {"limit": limit}
    if ids is not None:
        fields["ids"] = _ids(ids)
    return Call("transfers", fields,
                lambda reply: [_transfer_info(line) for line in reply["transfers"]])


def trace(transfer: Union[int, Transfer]) -> Call[Trace]:
    number = transfer if isinstance(transfer, int) else transfer.id
    if number is None:
        raise InvalidArgument("INVALID_ARGUMENT", "the transfer has no id until it is accepted; "
                              "wait_accepted() waits for that")
    return Call("trace", {"transfer": number}, trace_of)


def nodes() -> Call[List[Node]]:
    return Call("nodes", {}, _nodes)


def status() -> Call[Dict[str, Any]]:
    return Call("status", {}, _body)


def drain(node: str, deadline: Optional[Seconds]) -> Call[None]:
    fields: Message = {"node": node}
    if deadline is not None:
        fields["deadline_ms"] = milliseconds(deadline, "deadline")
    return Call("drain", fields, _nothing)


def remove(node: str, force: bool) -> Call[None]:
    return Call("remove", {"node": node, "force": force}, _nothing)


def anything(operation: str, fields: Message, timeout: Optional[float]) -> Call[Message]:
    return Call(operation, fields, _body, timeout=timeout)


class TransferCalls:
    """The calls that start transfers. None waits, in either client: each returns a Transfer (a
    future) at once, and a refusal is told by its result.

    Keyword arguments of all of them:

    ============== =================================================================================
    `deadline`     seconds or a timedelta from acceptance; then the transfer ends as "expired"
    `priority`     "urgent" goes before "bulk" (the default)
    `weight`       1 to 1000: share among the transfers to the same peer and priority
    `packing`      "auto", "always", "never": whether small pages cross packed into long writes
    `path`         "auto"; "staged" or "gpudirect": that way or an error
    `key`          idempotency: a repeated key of this client starts nothing anew
    `notify`       bytes or str, up to 1024: told to the destination's subscribers when all is there
    `start_after`  IPC handle of a CUDA event: nothing is read before it is done
    `record_event` the same: recorded behind a copy on one node
    `verify`       done only when the digests of both sides are equal, page by page
    `on`           the node that carries it out: the first region is then that node's (its name), and
                   node "" of the other side means that node
    ============== =================================================================================

    and `progress`: True shows a tqdm bar; a tqdm is updated; a callable gets (bytes, bytes in all).
    """

    _core: Core

    @property
    def service(self) -> Service:
        """Who answers, as told by the latest hello."""
        return self._core.service

    @property
    def endpoint(self) -> str:
        return self._core.options.endpoint

    def submit(self, specs: Sequence[TransferSpec], progress: Any = None) -> List[Transfer]:
        """One request for all, taken or refused as a whole: a Transfer for each target, in order of
        specs and targets."""
        return self._core.submit(specs, progress)

    def write(self, src_region: RegionName, dst_node: str, dst_region: RegionName, *,
              src_offset: int = 0, dst_offset: int = 0, size: Optional[int] = None,
              ranges: Optional[Any] = None, epoch: int = 0, progress: Any = None,
              **options: Any) -> Transfer:
        """Writes `size` bytes (of a Region: by default its rest), or `ranges`: rows of (source
        offset, destination offset, length)."""
        layout = _piece(src_region, src_offset, dst_offset, size, ranges, src_offset)
        return self._one("write", src_region, dst_node, dst_region, layout, epoch, progress,
                         options)

    def read(self, dst_region: RegionName, src_node: str, src_region: RegionName, *,
             src_offset: int = 0, dst_offset: int = 0, size: Optional[int] = None,
             ranges: Optional[Any] = None, epoch: int = 0, progress: Any = None,
             **options: Any) -> Transfer:
        """As write(), from another node's region into one here."""
        layout = _piece(dst_region, src_offset, dst_offset, size, ranges, dst_offset)
        return self._one("read", dst_region, src_node, src_region, layout, epoch, progress,
                         options)

    def write_pages(self, src_region: RegionName, dst_node: str, dst_region: RegionName, *,
                    page_bytes: int, src_pages: IndexList, dst_pages: IndexList,
                    bases: Optional[Bases] = None, src_stride: Optional[int] = None,
                    dst_stride: Optional[int] = None, epoch: int = 0, progress: Any = None,
                    **options: Any) -> Transfer:
        """Page src_pages[i] goes to page dst_pages[i], once for each of `bases` (see Pages). The
        arrays are read before this returns."""
        layout = Pages(page_bytes, src_pages, dst_pages, bases, src_stride, dst_stride)
        return self._one("write", src_region, dst_node, dst_region, layout, epoch, progress,
                         options)

    def read_pages(self, dst_region: RegionName, src_node: str, src_region: RegionName, *,
                   page_bytes: int, src_pages: IndexList, dst_pages: IndexList,
                   bases: Optional[Bases] = None, src_stride: Optional[int] = None,
                   dst_stride: Optional[int] = None, epoch: int = 0, progress: Any = None,
                   **options: Any) -> Transfer:
        """As write_pages(), from another node's region into one here."""
        layout = Pages(page_bytes, src_pages, dst_pages, bases, src_stride, dst_stride)
        return self._one("read", dst_region, src_node, src_region, layout, epoch, progress,
                         options)

    def write_strided(self, src_region: RegionName, dst_node: str, dst_region: RegionName,
                      layout: Strided, *, epoch: int = 0, progress: Any = None,
                      **options: Any) -> Transfer:
        """Pages of rows: slices of heads between different tensor-parallel degrees."""
        return self._one("write", src_region, dst_node, dst_region, layout, epoch, progress,
                         options)

    def scatter(self, src_region: RegionName, targets: Sequence[Union[Target, Tuple[str, str]]],
                layout: Optional[Layout] = None, *, progress: Any = None,
                **options: Any) -> List[Transfer]:
        """The same bytes to many: one request, a Transfer for each of `targets` (node, region).
        Without a layout, the whole Region."""
        if layout is None:
            layout = _piece(src_region, 0, 0, None, None, 0)
        where = tuple(each if isinstance(each, Target) else Target(each[0], name_of(each[1]))
                      for each in targets)
        return self.submit([TransferSpec("write", name_of(src_region), where, layout,
                                         **_checked(options))], progress)

    def _stream(self, region: RegionName, node: str, remote: RegionName, direction: str, epoch: int,
                options: Dict[str, Any]) -> Stream:
        for key in options:
            if key in _NOT_OF_STREAMS or key not in _OPTIONS:
                raise TypeError(f"unexpected keyword argument '{key}' of a stream"
                                + (": append() takes it" if key in _OF_PARTS else ""))
        may_have_ended = bool(options.get("key"))
        if not may_have_ended:
            # Asked again when the answer is lost with its connection, it opens no second one.
            options = {**options, "key": f"stream-{uuid.uuid4().hex}"}
        spec = TransferSpec(direction, name_of(region), (Target(node, name_of(remote), epoch),),
                            Ranges(()), **options)
        fields = spec.fields()
        del fields["layout"]
        fields["target"] = fields.pop("targets")[0]
        stream = Stream(self._core, f"{direction} {spec.region} "
                        f"{'to' if direction == 'write' else 'from'} "
                        f"{node or 'this node'}:{name_of(remote)}")
        self._core.start_transfer("stream", fields, stream, may_have_ended)
        return stream

    def _one(self, direction: str, region: RegionName, node: str, remote: RegionName,
             layout: Layout, epoch: int, progress: Any, options: Dict[str, Any]) -> Transfer:
        spec = TransferSpec(direction, name_of(region), (Target(node, name_of(remote), epoch),),
                            layout, **_checked(options))
        return self.submit([spec], progress)[0]


_OPTIONS = ("deadline", "priority", "weight", "packing", "path", "key", "notify", "start_after",
            "record_event", "verify", "on")


_OF_PARTS = ("start_after", "record_event")
_NOT_OF_STREAMS = _OF_PARTS + ("on",)


def _checked(options: Dict[str, Any]) -> Dict[str, Any]:
    for key in options:
        if key not in _OPTIONS:
            raise TypeError(f"unexpected keyword argument '{key}'; known: {', '.join(_OPTIONS)}, "
                            "progress")
    return options


def _piece(local: RegionName, src_offset: int, dst_offset: int, size: Optional[int],
           ranges: Optional[Any], local_offset: int) -> Ranges:
    if ranges is not None:
        if size is not None or src_offset or dst_offset:
            raise InvalidArgument("INVALID_ARGUMENT", "give ranges, or offsets and a size")
        return Ranges(ranges)
    if size is None:
        if isinstance(local, str):
            raise InvalidArgument("INVALID_ARGUMENT", f"how much of region '{local}'? Give its "
                                  "Region object in place of the name, or the size")
        size = local.size - local_offset
    return Ranges([(src_offset, dst_offset, size)])


def options_of(endpoint: str, client: str, identity: str, timeout: float, memory_timeout: float,
               lost_after: float, max_request_bytes: int,
               restarted: Optional[Callable[[Restart], object]], key_file: str,
               server_key: str, lease: float, ring: bool, spin: float = 0.0) -> Options:
    for name, value in (("timeout", timeout), ("memory_timeout", memory_timeout),
                        ("lost_after", lost_after)):
        if not value > 0:
            raise InvalidArgument("INVALID_ARGUMENT", f"{name}: expected seconds, found {value}")
    return Options(endpoint, client, identity, timeout, memory_timeout, lost_after,
                   max_request_bytes, restarted, key_file, server_key, max(0.0, lease), ring, spin)
