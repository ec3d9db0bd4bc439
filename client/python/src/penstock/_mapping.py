"""Shared memory in this process: mapped by name, and found again by address."""

from __future__ import annotations

import ctypes
import mmap
import os
from typing import Any, List, NamedTuple, Optional, Tuple

import numpy as np

from .errors import InvalidArgument, Unsupported

_libc = ctypes.CDLL(None, use_errno=True)
_libc.mmap.restype = ctypes.c_void_p
_libc.mmap.argtypes = [ctypes.c_void_p, ctypes.c_size_t, ctypes.c_int, ctypes.c_int, ctypes.c_int,
                       ctypes.c_int64]
_libc.munmap.argtypes = [ctypes.c_void_p, ctypes.c_size_t]
_MAP_FIXED = 0x10
_MAP_FAILED = ctypes.c_void_p(-1).value
_SEGMENTS = "/dev/shm"


def path_of(shared_name: str) -> str:
    """"/name" is a POSIX segment, "/folder/name" a file on huge pages."""
    return _SEGMENTS + shared_name if shared_name.rfind("/") == 0 else shared_name


class Mapping:
    """[offset, offset + size) of a shared segment. numpy arrays of it (`np.asarray(mapping)`) keep
    it mapped; it goes with the last of them."""

    def __init__(self, shared_name: str, offset: int, size: int) -> None:
        self._start: Optional[int] = None
        self._length = 0
        self._map(shared_name, offset, size, None)

    def map_again(self, shared_name: str, offset: int, size: int) -> None:
        """Another segment at the same place: arrays stay valid, and show its bytes from now on."""
        self._map(shared_name, offset, size, self._start)

    def _map(self, shared_name: str, offset: int, size: int, place: Optional[int]) -> None:
        def cannot(why: str) -> Unsupported:
            return Unsupported("UNSUPPORTED", f"shared memory '{shared_name}' cannot be mapped "
                               f"here: {why}")

        if not shared_name.startswith("/"):
            raise cannot("the service shares no memory for it")
        try:
            file = os.open(path_of(shared_name), os.O_RDWR | os.O_CLOEXEC | os.O_NOFOLLOW)
        except OSError as problem:
            raise cannot(f"{problem.strerror}; mapping needs the service on this machine, as the "
                         "same user") from None
        try:
            page = mmap.PAGESIZE
            if shared_name.rfind("/") != 0:
                page = max(page, os.fstatvfs(file).f_bsize)
            lead = offset % page
            length = (size + lead + page - 1) // page * page
            if os.fstat(file).st_size < offset + size:
                raise cannot("the segment is smaller than the region")
            if place is not None and length != self._length:
                raise cannot("its pages are of another size than before")
            start = _libc.mmap(place, length, mmap.PROT_READ | mmap.PROT_WRITE,
                               mmap.MAP_SHARED | (_MAP_FIXED if place is not None else 0), file,
                               offset - lead)
            if start == _MAP_FAILED:
                raise cannot(os.strerror(ctypes.get_errno()))
        finally:
            os.close(file)
        self._start, self._length, self._lead, self._size = start, length, lead, size

    @property
    def __array_interface__(self) -> Any:
        assert self._start is not None
        return {"version": 3, "typestr": "|u1", "shape": (self._size,),
                "data": (self._start + self._lead, False)}

    def __del__(self) -> None:
        if self._start is not None:
            _libc.munmap(self._start, self._length)


class SharedPlace(NamedTuple):
    shared_name: str
    offset: int
    size: int


class _Mapped(NamedTuple):
    start: int
    end: int
    shared: bool
    offset: int
    path: str


def _mappings() -> List[_Mapped]:
    found = []
    with open("/proc/self/maps", encoding="utf-8", errors="surrogateescape") as lines:
        for line in lines:
            span, mode, offset, _, _, *path = line.rstrip("\n").split(None, 5)
            start, end = (int(each, 16) for each in span.split("-"))
            found.append(_Mapped(start, end, mode[3] == "s", int(offset, 16),
                                 path[0] if path else ""))
    return found


def address_of(memory: Any) -> Tuple[int, int]:
    """Address and size of an array, or of anything with the buffer protocol, that is contiguous."""
    if isinstance(memory, np.ndarray):
        array: np.ndarray[Any, Any] = memory
    else:
        # multiprocessing.shared_memory.SharedMemory has its memory in `buf`.
        array = np.frombuffer(getattr(memory, "buf", memory), np.uint8)
    if not array.flags.c_contiguous:
        raise InvalidArgument("INVALID_ARGUMENT", "the array is not contiguous; register the whole "
                              "of it, and say in transfers which parts move")
    return int(array.__array_interface__["data"][0]), array.nbytes


def shared_place(memory: Any) -> SharedPlace:
    """Which shared segment `memory` lies in, as this process has it mapped."""
    address, size = address_of(memory)
    end, reached = address + size, address
    place: Optional[SharedPlace] = None
    for each in _mappings():
        if not each.start <= reached < each.end:
            continue
        offset = each.offset + reached - each.start
        if place is None:
            if not each.shared or not each.path.startswith("/") or each.path.endswith(" (deleted)"):
                break
            name = each.path
            if os.path.dirname(name) == _SEGMENTS:
                name = "/" + os.path.basename(name)
            place = SharedPlace(name, offset, size)
        elif each.path != path_of(place.shared_name) or offset != place.offset + reached - address:
            break
        reached = min(each.end, end)
        if reached == end:
            return place
    raise InvalidArgument(
        "INVALID_ARGUMENT", "the memory does not lie in a shared segment that has a name, so the "
        "service cannot map it; make it with penstock.shared_array(), "
        "multiprocessing.shared_memory, or Client.allocate()")
