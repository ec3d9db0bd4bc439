"""How far transfers are, for people: a tqdm bar, or a function that is told."""

from __future__ import annotations

from typing import Any, Dict, List

from .errors import Unsupported
from .transfer import Transfer


class Watch:
    """`progress`: True for a bar of our own, a tqdm (anything with `update(bytes)`), or a callable
    that gets (bytes so far, bytes in all)."""

    def __init__(self, transfers: List[Transfer], total: int, progress: Any) -> None:
        self._transfers = transfers
        self._total = total
        self._shown = 0
        self._own = progress is True
        self._target = self._bar(total) if self._own else progress

    @staticmethod
    def _bar(total: int) -> Any:
        try:
            import tqdm
        except ImportError:
            raise Unsupported("UNSUPPORTED", "progress bars need tqdm: pip install tqdm") from None
        return tqdm.tqdm(total=total, unit="B", unit_scale=True, unit_divisor=1024)

    def running(self) -> List[int]:
        return [transfer.id for transfer in self._transfers
                if not transfer.done() and transfer.id is not None]

    def ended(self) -> bool:
        return all(transfer.done() for transfer in self._transfers)

    def show(self, running: Dict[int, int]) -> None:
        """`running`: bytes so far of transfers under way, by id."""
        done = sum(transfer.wait(0).bytes if transfer.done() else running.get(transfer.id or 0, 0)
                   for transfer in self._transfers)
        if hasattr(self._target, "update"):
            if done > self._shown:
                self._target.update(done - self._shown)
        else:
            self._target(max(done, self._shown), self._total)
        self._shown = max(done, self._shown)

    def close(self) -> None:
        if self.ended():
            self.show({})
        if self._own:
            self._target.close()
