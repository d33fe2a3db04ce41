"""Batches read ahead by threads, for frames that are a mere copy away.

Processes that read ahead pay where frames have to be decoded. Where they only have to be copied, handing them from process to
process takes ten times as long as reading them; a thread hands over what it has read, and waits for the disk as well as any.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Iterator, Sequence, Sized
from concurrent.futures import Future, ThreadPoolExecutor
from typing import Protocol

from phylatent.data.windows import Batch, Windows

EACH = 2
"""Batches that a thread is ahead, as in torch's own loader."""


class BatchSampler(Iterable[Sequence[int]], Sized, Protocol):
    """Indices of one batch after another."""


class ReadAhead:
    """The batches of `windows` in the sampler's order. `threads` of them are being read at a time."""

    def __init__(self, windows: Windows, sampler: BatchSampler, threads: int, *, pin_memory: bool = False) -> None:
        self.windows, self.sampler, self.threads, self.pin_memory = windows, sampler, threads, pin_memory

    def __len__(self) -> int:
        return len(self.sampler)

    def __iter__(self) -> Iterator[Batch]:
        waiting: deque[Future[Batch]] = deque()
        pool = ThreadPoolExecutor(self.threads, thread_name_prefix="loader")
        try:
            for indices in self.sampler:
                waiting.append(pool.submit(self._read, indices))
                if len(waiting) > EACH * self.threads:
                    yield waiting.popleft().result()
            while waiting:
                yield waiting.popleft().result()
        finally:
            pool.shutdown(wait=True, cancel_futures=True)

    def _read(self, indices: Sequence[int]) -> Batch:
        batch = self.windows.__getitems__(indices)
        return Batch(*(part.pin_memory() for part in batch)) if self.pin_memory else batch
