"""What a client is told to do, and who it is talking to."""

from __future__ import annotations

import dataclasses
from typing import Callable, Optional, Tuple

from .errors import Error


@dataclasses.dataclass(frozen=True)
class Service:
    """Who answers, as told by the latest hello. `incarnation` is another after each restart."""

    node: str = ""
    incarnation: int = 0
    version: str = ""
    devices: Tuple[str, ...] = ()


@dataclasses.dataclass(frozen=True)
class Restart:
    """The service was started anew and the client has settled with it. Transfers of its earlier
    life have ended as lost."""

    service: Service
    regions: Tuple[str, ...]  # there again
    lost: Tuple[Error, ...]   # regions that could not be made again, and why


@dataclasses.dataclass(frozen=True)
class Options:
    """Client's arguments."""

    endpoint: str
    client: str
    identity: str
    timeout: float
    memory_timeout: float
    lost_after: float
    max_request_bytes: int
    restarted: Optional[Callable[[Restart], object]]
    key_file: str = ""
    server_key: str = ""
    lease: float = 0.0
    ring: bool = True
    spin: float = 0.0
