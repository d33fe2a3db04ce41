"""How long a run took, over all its starts: kept beside the checkpoints, so that a kill loses no more time than steps."""

from __future__ import annotations

import math
import time
from pathlib import Path

from phylatent.reading import check_shape, read_json
from phylatent.records import write_json
from phylatent.runs import TIME, TIME_SHAPE
from phylatent.training.storage import is_main

AGAIN = "delete it to go on, without the time that was spent before"


class Clock:
    """Counts from `started` on, after what the earlier starts of the run in this directory had counted.

    `earlier_unknown`: the run was begun by a version that kept no time; then the sum is not a number.
    """

    def __init__(self, directory: Path, started: float, *, earlier_unknown: bool = False) -> None:
        self.path, self.started = directory / TIME, started
        self.earlier = [math.nan] if earlier_unknown else []
        if self.path.exists():
            found = read_json(self.path, again=AGAIN)
            check_shape(self.path, found, TIME_SHAPE, again=AGAIN)
            self.earlier = [math.nan if seconds is None else seconds for seconds in found["seconds_of_starts"]]

    @property
    def starts(self) -> int:
        return len(self.earlier) + 1

    @property
    def seconds(self) -> float:
        return round(sum(self.earlier) + self._now, 1)

    @property
    def _now(self) -> float:
        return time.perf_counter() - self.started

    def save(self) -> None:
        """With every checkpoint: what a killed start did after its last one is done again, and not counted twice."""
        if is_main():
            write_json(self.path, {"seconds_of_starts": [*self.earlier, self._now]})
