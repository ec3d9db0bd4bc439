"""Transfers that stay open: parts are appended as a program produces them, until it closes them."""

from __future__ import annotations

import concurrent.futures
import threading
from typing import TYPE_CHECKING, Any, Dict, Optional, Union

from .errors import Cancelled, InvalidArgument, NoAnswer, NotFound
from .layout import Bases, IndexList, Layout, Pages
from .transfer import Transfer

if TYPE_CHECKING:
    from ._core import Core
    from ._wire import Message


class Stream(Transfer):
    """A future of the TransferResult of the whole, and open for parts until close()::

        with client.stream("kv", "decode", "kv", notify="request-81") as stream:
            for layer in range(layers):
                ...  # compute it
                stream.append_pages(page_bytes=65536, src_pages=ours, dst_pages=theirs,
                                    bases=bases_of(layer))
        stream.result()

    Each part is a Transfer of its own; its notification carries `stream` (this id) and `part` (its
    number, from 0 in the order of the calls). Parts run side by side under the stream's terms and
    one share of them, the oldest first: they mostly end in order, and nothing promises it. The
    stream ends once: when it is closed and all parts have ended. A part that fails or is refused, a
    cancel, or the stream's deadline end it early: the parts under way are cancelled, later ones
    refused. `with` (and `async with`) closes it at the end, without waiting, and cancels it after an
    exception. One that nobody closes ends at its deadline.
    """

    def __init__(self, core: Core, description: str) -> None:
        super().__init__(core, description)
        self._order = threading.Lock()  # requests leave in the order of their numbers
        self._parts = 0
        self._closed = False

    @property
    def parts(self) -> int:
        """So many were appended."""
        return self._parts

    def append(self, layout: Layout, *, notify: Union[bytes, str] = b"", start_after: bytes = b"",
               record_event: bytes = b"") -> Transfer:
        """Waits for nothing: a refusal is the part's result, and ends the stream too. Arrays are
        read before this returns. `notify` "": the stream's. `start_after`, `record_event`: as in
        TransferSpec, for this part."""
        fields: Dict[str, Any] = {"layout": layout.fields()}
        for key, data in (("notify", notify), ("start_after", start_after),
                          ("record_event", record_event)):
            if data:
                fields[key] = data.encode() if isinstance(data, str) else bytes(data)
        with self._order:
            if self._closed:
                raise InvalidArgument("INVALID_ARGUMENT", "the stream is closed")
            fields.update(stream=self.id, part=self._parts)
            part = Transfer(self._core, f"part {self._parts} of {self._description}")
            self._core.start_transfer("append", fields, part)
            self._parts += 1
        return part

    def append_pages(self, *, page_bytes: int, src_pages: IndexList, dst_pages: IndexList,
                     bases: Optional[Bases] = None, src_stride: Optional[int] = None,
                     dst_stride: Optional[int] = None, notify: Union[bytes, str] = b"",
                     start_after: bytes = b"", record_event: bytes = b"") -> Transfer:
        """As append(), of Pages."""
        return self.append(Pages(page_bytes, src_pages, dst_pages, bases, src_stride, dst_stride),
                           notify=notify, start_after=start_after, record_event=record_event)

    def close(self) -> None:
        """No more parts. Waits for nothing; the end tells what went wrong."""
        with self._order:
            if not self._closed:
                self._closed = True
                self._ask_to_close()

    def _ask_to_close(self) -> None:
        fields = {"stream": self.id, "parts": self._parts}
        self._core.start("close", fields).add_done_callback(self._on_asked_to_close)

    def _on_asked_to_close(self, answer: concurrent.futures.Future[Message]) -> None:
        """It is asked for until the service answers, or the stream has ended; one that the service
        does not close is cancelled."""
        error = answer.exception()
        if error is None or self.done() or isinstance(error, (NotFound, Cancelled)):
            return
        if isinstance(error, NoAnswer):
            self._ask_to_close()
        else:
            self.cancel()

    def __enter__(self) -> Stream:
        return self

    def __exit__(self, problem: object, *_: object) -> None:
        if problem is None:
            self.close()
        else:
            self.cancel()

    async def __aenter__(self) -> Stream:
        return self

    async def __aexit__(self, problem: object, *_: object) -> None:
        self.__exit__(problem)
