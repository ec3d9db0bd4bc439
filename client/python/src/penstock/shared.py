"""numpy arrays in shared memory, for `Client.register`."""

from __future__ import annotations

import os
import secrets
import weakref
from typing import Any, Sequence, Union

import numpy as np

from ._mapping import Mapping, path_of
from .errors import AlreadyExists


def shared_array(shape: Union[int, Sequence[int]], dtype: Any = np.uint8,
                 name: str = "") -> np.ndarray[Any, Any]:
    """A zeroed array in a new POSIX segment (`name` without a slash; "": a random one).

    The name goes with the last array of it, or at the end of the process. Keep one as long as its
    region lives: after a restart the service finds the segment by its name.
    """
    kind = np.dtype(dtype)
    count = int(np.prod(shape, dtype=np.int64))
    shared_name = "/" + (name or f"penstock-py-{os.getpid()}-{secrets.token_hex(6)}")
    path = path_of(shared_name)
    try:
        file = os.open(path, os.O_RDWR | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600)
    except FileExistsError:
        raise AlreadyExists("ALREADY_EXISTS", f"there is a segment '{shared_name}' already") \
            from None
    try:
        os.ftruncate(file, max(1, count * kind.itemsize))
        mapping = Mapping(shared_name, 0, max(1, count * kind.itemsize))
    except BaseException:
        os.unlink(path)
        raise
    finally:
        os.close(file)
    weakref.finalize(mapping, _unlink, path, os.getpid())
    array: np.ndarray[Any, Any] = np.asarray(mapping)
    typed: np.ndarray[Any, Any] = array[:count * kind.itemsize].view(kind).reshape(shape)
    return typed


def _unlink(path: str, pid: int) -> None:
    if os.getpid() == pid:  # a forked child's copy does not own it
        try:
            os.unlink(path)
        except FileNotFoundError:
            pass
