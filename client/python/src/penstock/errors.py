"""What every call raises: one class for each family of error codes.

``code`` is the service's (docs/protocol.md), ``message`` its words. What the client itself finds is
told with the same classes; two are its own, :class:`NoAnswer` and :class:`Lost`.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Dict, Optional, Type

if TYPE_CHECKING:
    from .transfer import TransferResult


class Error(Exception):
    """The base of all. ``result`` is how the transfer ended, where a transfer is what failed."""

    def __init__(self, code: str, message: str, result: Optional[TransferResult] = None) -> None:
        super().__init__(f"{code}: {message}")
        self.code = code
        self.message = message
        self.result = result

    def __reduce__(self):  # type: ignore[no-untyped-def]
        return type(self), (self.code, self.message, self.result)


class InvalidArgument(Error, ValueError):
    """INVALID_ARGUMENT, OUT_OF_RANGE: the request itself is wrong."""


class NotFound(Error, LookupError):
    """NOT_FOUND: no such region, node, device, transfer."""


class AlreadyExists(Error):
    """ALREADY_EXISTS: the name is taken."""


class Busy(Error):
    """BUSY: in use by a transfer."""


class Denied(Error, PermissionError):
    """DENIED: the asker may not do this."""


class ResourceExhausted(Error):
    """RESOURCE_EXHAUSTED: a limit was reached: memory, slots, descriptors."""


class Unsupported(Error):
    """UNSUPPORTED: this version, build, provider, card or machine cannot do it."""


class Stale(Error):
    """STALE_PEER, STALE_REGION: what was named is gone, and something else has its name."""


class PeerLost(Error):
    """PEER_UNREACHABLE, PEER_LEFT, PEER_DEAD, EXECUTOR_DIED: the other node, or the one that
    carried it out, went while the work was under way."""


class DeadlineExceeded(Error, TimeoutError):
    """DEADLINE_EXCEEDED: the transfer's own deadline passed."""


class NoAnswer(DeadlineExceeded):
    """The service did not answer this client in time; what it did with the request is unknown."""


class Cancelled(Error):
    """CANCELLED: somebody asked for it to stop, or the client was closed."""


class Draining(Error):
    """DRAINING: the node takes no new work."""


class ProviderError(Error):
    """PROVIDER: libfabric or the driver reported a failure."""


class InternalError(Error):
    """INTERNAL: a bug of the service, or a reply that cannot be understood."""


class Lost(Error):
    """How the transfer ended cannot be learnt: the service was restarted, or stayed away, or this
    client was closed first. ``code`` says which: PEER_LEFT, PEER_UNREACHABLE, CANCELLED, ..."""


_FAMILY: Dict[str, Type[Error]] = {
    "INVALID_ARGUMENT": InvalidArgument,
    "OUT_OF_RANGE": InvalidArgument,
    "NOT_FOUND": NotFound,
    "ALREADY_EXISTS": AlreadyExists,
    "BUSY": Busy,
    "DENIED": Denied,
    "RESOURCE_EXHAUSTED": ResourceExhausted,
    "UNSUPPORTED": Unsupported,
    "STALE_PEER": Stale,
    "STALE_REGION": Stale,
    "PEER_UNREACHABLE": PeerLost,
    "PEER_LEFT": PeerLost,
    "PEER_DEAD": PeerLost,
    "EXECUTOR_DIED": PeerLost,
    "DEADLINE_EXCEEDED": DeadlineExceeded,
    "CANCELLED": Cancelled,
    "DRAINING": Draining,
    "PROVIDER": ProviderError,
    "INTERNAL": InternalError,
}


def error_of(code: str, message: str, result: Optional[TransferResult] = None) -> Error:
    """The error of the family of ``code``; a code newer than this client gives a plain Error."""
    return _FAMILY.get(code, Error)(code, message, result)
