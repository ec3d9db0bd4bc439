"""Which bytes of the source region go where in the destination region.

Offsets count bytes from the start of a region. Index lists may be numpy arrays, CPU tensors or
sequences of integers: arrays of little-endian u32 are sent as they are, others are converted once
and refused when a value does not fit.
"""

from __future__ import annotations

import dataclasses
from typing import Any, Dict, Optional, Sequence, Tuple, Union

import numpy as np

from .errors import InvalidArgument

IndexList = Union["np.ndarray[Any, Any]", Sequence[int]]
#: (source offset, destination offset), one for each layer for example; or an array of shape (n, 2).
Bases = Union["np.ndarray[Any, Any]", Sequence[Tuple[int, int]]]


def unsigned_array(values: Any, dtype: str, what: str) -> np.ndarray[Any, Any]:
    """`values` as a contiguous array of `dtype` ("<u4", "<u8"): itself where it is one already."""
    array = np.asarray(values)
    wanted = np.dtype(dtype)
    if array.size == 0:
        return np.empty(array.shape, wanted)
    if array.dtype.kind not in "ui":
        raise InvalidArgument("INVALID_ARGUMENT",
                              f"{what}: expected integers, found an array of {array.dtype}")
    if array.dtype != wanted and not np.can_cast(array.dtype, wanted):
        low, high = int(array.min()), int(array.max())
        if low < 0 or high > np.iinfo(wanted).max:
            raise InvalidArgument("INVALID_ARGUMENT", f"{what}: found {low if low < 0 else high}; "
                                  f"values are from 0 to {np.iinfo(wanted).max}")
    return np.ascontiguousarray(array, wanted)


def blob(array: np.ndarray[Any, Any]) -> memoryview:
    """The array's bytes, not copied."""
    return memoryview(array.reshape(-1).view(np.uint8))  # type: ignore[arg-type,unused-ignore]


def tuples(values: Any, width: int, what: str) -> np.ndarray[Any, Any]:
    array = unsigned_array(values, "<u8", what)
    if array.size == 0:
        return array.reshape(0, width)
    if array.ndim != 2 or array.shape[1] != width:
        raise InvalidArgument("INVALID_ARGUMENT", f"{what}: expected rows of {width} numbers, "
                              f"found the shape {array.shape}")
    return array


def _pages(source: Any, destination: Any, bases: Optional[Bases]) -> Dict[str, Any]:
    from_, to = (unsigned_array(values, "<u4", what) for values, what in
                 ((source, "src_pages"), (destination, "dst_pages")))
    if from_.size != to.size:
        raise InvalidArgument("INVALID_ARGUMENT", f"the layout lists {from_.size} source pages but "
                              f"{to.size} destination pages; give as many of both")
    fields: Dict[str, Any] = {"source_pages": blob(from_), "destination_pages": blob(to)}
    if bases is not None:
        fields["bases"] = blob(tuples(bases, 2, "bases"))
    return fields


def _count(bases: Optional[Bases]) -> int:
    return 1 if bases is None else len(bases)


@dataclasses.dataclass(frozen=True)
class Ranges:
    """Any pieces: rows of (source offset, destination offset, length), as an array or a list."""

    ranges: Union[np.ndarray[Any, Any], Sequence[Tuple[int, int, int]]]

    @property
    def bytes(self) -> int:
        return int(tuples(self.ranges, 3, "ranges")[:, 2].sum())

    def fields(self) -> Dict[str, Any]:
        return {"kind": "ranges", "ranges": blob(tuples(self.ranges, 3, "ranges"))}


@dataclasses.dataclass(frozen=True)
class Pages:
    """Page src_pages[i] goes to page dst_pages[i], once for each pair of `bases`::

        source offset      = bases[b][0] + src_pages[i] * src_stride
        destination offset = bases[b][1] + dst_pages[i] * dst_stride

    Strides default to `page_bytes`, bases to [(0, 0)].
    """

    page_bytes: int
    src_pages: IndexList
    dst_pages: IndexList
    bases: Optional[Bases] = None
    src_stride: Optional[int] = None
    dst_stride: Optional[int] = None

    @property
    def bytes(self) -> int:
        return self.page_bytes * len(self.src_pages) * _count(self.bases)

    def fields(self) -> Dict[str, Any]:
        fields = {"kind": "pages", "page_bytes": self.page_bytes,
                  **_pages(self.src_pages, self.dst_pages, self.bases)}
        if self.src_stride is not None:
            fields["source_stride"] = self.src_stride
        if self.dst_stride is not None:
            fields["destination_stride"] = self.dst_stride
        return fields


@dataclasses.dataclass(frozen=True)
class Strided:
    """As Pages, but each page is `rows` rows of `row_bytes`; row r lies r * pitch further. Moves
    slices of heads between caches of different tensor-parallel degree. Pitches default to
    `row_bytes`, strides to rows * pitch."""

    row_bytes: int
    rows: int
    src_pages: IndexList
    dst_pages: IndexList
    bases: Optional[Bases] = None
    src_pitch: Optional[int] = None
    dst_pitch: Optional[int] = None
    src_stride: Optional[int] = None
    dst_stride: Optional[int] = None

    @property
    def bytes(self) -> int:
        return self.row_bytes * self.rows * len(self.src_pages) * _count(self.bases)

    def fields(self) -> Dict[str, Any]:
        src_pitch = self.row_bytes if self.src_pitch is None else self.src_pitch
        dst_pitch = self.row_bytes if self.dst_pitch is None else self.dst_pitch
        return {
            "kind": "strided", "row_bytes": self.row_bytes, "rows": self.rows,
            "source_pitch": src_pitch, "destination_pitch": dst_pitch,
            "source_stride": self.rows * src_pitch if self.src_stride is None else self.src_stride,
            "destination_stride":
                self.rows * dst_pitch if self.dst_stride is None else self.dst_stride,
            **_pages(self.src_pages, self.dst_pages, self.bases)}


Layout = Union[Ranges, Pages, Strided]
