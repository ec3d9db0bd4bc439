"""The accepted transfers whose end has not come. One thread."""

from __future__ import annotations

import dataclasses
import itertools
import time
from typing import Dict, List

from .errors import Error
from .transfer import Transfer, TransferResult, ended_by


@dataclasses.dataclass
class _Waiting:
    transfers: List[Transfer]  # several when a key was repeated
    connection: int
    accepted_at: float


class WaitingTransfers:
    def __init__(self) -> None:
        self._waiting: Dict[int, _Waiting] = {}
        self._requests = 0
        # Ends that came before the ids of their request, kept while requests are under way.
        self._early: Dict[int, TransferResult] = {}

    def __contains__(self, transfer_id: int) -> bool:
        return transfer_id in self._waiting

    def request_sent(self) -> None:
        self._requests += 1

    def request_answered(self) -> None:
        self._requests -= 1
        if self._requests <= 0:
            self._early.clear()

    def accept(self, transfer_id: int, transfer: Transfer, connection: int) -> None:
        """`connection`: a number that rises with every connection to the service."""
        transfer._accept(transfer_id)
        if transfer_id in self._early:
            transfer._end(self._early[transfer_id])
            return
        waiting = self._waiting.setdefault(transfer_id, _Waiting([], connection, time.monotonic()))
        waiting.transfers.append(transfer)

    def end(self, result: TransferResult) -> None:
        waiting = self._waiting.pop(result.id, None)
        if waiting is not None:
            for transfer in waiting.transfers:
                transfer._end(result)
        elif self._requests > 0:
            self._early[result.id] = result

    def lose(self, transfer_id: int, error: Error) -> None:
        waiting = self._waiting.pop(transfer_id, None)
        for transfer in waiting.transfers if waiting else ():
            transfer._end(ended_by(TransferResult(transfer_id, "lost"), error))

    def lose_before(self, connection: float, error: Error) -> None:
        """All that were accepted before `connection`."""
        for transfer_id in [each for each, waiting in self._waiting.items()
                            if waiting.connection < connection]:
            self.lose(transfer_id, error)

    def to_ask(self, age: float, limit: int) -> List[int]:
        """At most `limit` ids that were accepted at least `age` seconds ago, taking turns."""
        until = time.monotonic() - age
        ids = list(itertools.islice((transfer_id for transfer_id, waiting in self._waiting.items()
                                     if waiting.accepted_at <= until), limit))
        for transfer_id in ids:  # the others are next
            self._waiting[transfer_id] = self._waiting.pop(transfer_id)
        return ids
