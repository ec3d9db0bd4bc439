"""Penstock: moves pages of memory between machines, asynchronously. The client of penstockd.

    with penstock.Client("tcp://127.0.0.1:7411") as client:
        kv = client.allocate("kv", 1 << 20)
        kv.array[:] = 7
        transfer = client.write_pages(kv, "node-b", "kv", page_bytes=4096,
                                      src_pages=[3, 1, 2], dst_pages=[0, 1, 7])
        print(transfer.result())
"""

from . import aio
from ._calls import Node, TransferInfo
from ._service import Restart, Service
from .client import Client
from .cuda import CudaMemory
from .errors import (AlreadyExists, Busy, Cancelled, DeadlineExceeded, Denied, Draining, Error,
                     InternalError, InvalidArgument, Lost, NoAnswer, NotFound, PeerLost,
                     ProviderError, ResourceExhausted, Stale, Unsupported)
from .events import AsyncSubscription, Event, MemberChange, Notification, Subscription
from .layout import Pages, Ranges, Strided
from .region import AsyncRegion, Region, RegionInfo
from .shared import shared_array
from .stream import Stream
from .trace import Trace, TraceCard, TraceStage
from .transfer import CardShare, Target, Transfer, TransferResult, TransferSpec, wait_all

__version__ = "0.1.0"
__all__ = [
    "AlreadyExists", "AsyncRegion", "AsyncSubscription", "Busy", "Cancelled", "CardShare", "Client",
    "CudaMemory", "DeadlineExceeded", "Denied", "Draining", "Error", "Event", "InternalError",
    "InvalidArgument", "Lost", "MemberChange", "NoAnswer", "Node", "NotFound", "Notification",
    "Pages", "PeerLost", "ProviderError", "Ranges", "Region", "RegionInfo", "ResourceExhausted",
    "Restart", "Service", "Stale", "Stream", "Strided", "Subscription", "Target", "Trace", "TraceCard", "TraceStage",
    "Transfer", "TransferInfo",
    "TransferResult", "TransferSpec", "Unsupported", "aio", "shared_array", "wait_all",
]
