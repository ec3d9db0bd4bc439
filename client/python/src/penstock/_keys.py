"""The keys that a client shows, and the one that it expects of its service."""

from __future__ import annotations

import os
import stat
from typing import NamedTuple, Optional

import zmq
import zmq.utils.z85

from .errors import Denied, InvalidArgument

_CHARACTERS = 40


class Keys(NamedTuple):
    secret: bytes
    public: bytes
    server: bytes


def keys_for(endpoint: str, key_file: str, server_key: str) -> Optional[Keys]:
    """From the arguments, and from the environment where they say nothing. None: no keys are
    wanted, or the endpoint is not tcp (an ipc endpoint is guarded by its file)."""
    if not endpoint.startswith("tcp://"):
        return None
    key_file = key_file or os.environ.get("PENSTOCK_KEY_FILE", "")
    server_key = server_key or os.environ.get("PENSTOCK_SERVER_KEY", "")
    if not key_file and not server_key:
        return None
    if not key_file or not server_key:
        raise InvalidArgument(
            "INVALID_ARGUMENT", "keys come in two parts: the client's own (key_file, "
            "PENSTOCK_KEY_FILE) and the service's public one (server_key, PENSTOCK_SERVER_KEY)")
    secret = _read(key_file, True)
    server = server_key if _is_key(server_key) else _read(server_key, False)
    return Keys(secret.encode(), zmq.curve_public(secret.encode()), server.encode())


def _is_key(text: str) -> bool:
    try:
        return len(text) == _CHARACTERS and len(zmq.utils.z85.decode(text)) == 32
    except (ValueError, KeyError, UnicodeError):
        return False


def _read(file: str, is_secret: bool) -> str:
    try:
        with open(file, encoding="ascii") as opened:
            mode = stat.S_IMODE(os.fstat(opened.fileno()).st_mode)
            text = opened.read(256).rstrip("\r\n")
    except (OSError, UnicodeError) as problem:
        raise InvalidArgument("INVALID_ARGUMENT", f"key file {file}: {problem}") from None
    if is_secret and mode & 0o037:
        raise Denied("DENIED", f"key file {file}: its mode lets others at it; chmod 600")
    if not _is_key(text):
        raise InvalidArgument("INVALID_ARGUMENT", f"key file {file}: wanted the {_CHARACTERS} "
                              "characters that penstock keygen writes")
    return text
