"""Requests as msgpack, and replies back."""

from __future__ import annotations

import operator
import struct
from typing import Any, Dict, List, Union

import msgpack

from .errors import InvalidArgument

PROTOCOL_VERSION = 1
Message = Dict[str, Any]

# Lists from here on are put into the request as they are; shorter ones cost less the ordinary way.
_LARGE = 1024


def _append(pieces: List[Union[bytes, memoryview]], packer: msgpack.Packer, value: Any) -> None:
    if isinstance(value, memoryview) and value.nbytes >= _LARGE:
        if value.nbytes >= 1 << 32:
            raise InvalidArgument("INVALID_ARGUMENT", f"a list of {value.nbytes} bytes does not "
                                  "fit into one request; split it")
        pieces.append(b"\xc6" + struct.pack(">I", value.nbytes))
        pieces.append(value)
    elif isinstance(value, dict):
        pieces.append(packer.pack_map_header(len(value)))
        for key, item in value.items():
            pieces.append(packer.pack(key))
            _append(pieces, packer, item)
    elif isinstance(value, list) and value and isinstance(value[0], dict):
        pieces.append(packer.pack_array_header(len(value)))
        for item in value:
            _append(pieces, packer, item)
    else:
        pieces.append(packer.pack(value))


def encode(request_id: int, operation: str, fields: Message) -> bytes:
    """One frame. Large lists are copied once, into it."""
    request = {"v": PROTOCOL_VERSION, "id": request_id, "op": operation, **fields}
    pieces: List[Union[bytes, memoryview]] = []
    try:
        # Numbers of numpy are integers too.
        _append(pieces, msgpack.Packer(use_bin_type=True, default=operator.index), request)
    except (TypeError, OverflowError, ValueError) as problem:
        if isinstance(problem, InvalidArgument):
            raise
        raise InvalidArgument("INVALID_ARGUMENT", f"'{operation}' cannot be sent: {problem}") \
            from problem
    return b"".join(pieces)


def decode(frame: bytes) -> Message:
    """Raises ValueError for what is no map of a service."""
    body = msgpack.unpackb(frame, raw=False, strict_map_key=True, unicode_errors="replace")
    if not isinstance(body, dict):
        raise ValueError("a message that is no map")
    return body
