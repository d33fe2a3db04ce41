"""When an episode is a success: its states, scored step by step by a protocol's rule."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from phylatent.schema import Row, Rule, TaskSpec


@dataclass(frozen=True)
class Outcome:
    success: bool
    first_success: int | None
    """The step it happened on; 0 for a pair that was solved before anything was done."""
    start_distance: float
    final_distance: float
    """At the step of success, or at the end."""


class Watch:
    """Follows an episode and notes the step of its success, whatever happens afterwards."""

    def __init__(self, rule: Rule) -> None:
        self.rule = rule
        self.success: int | None = None
        self._held = 0
        self._step = -1

    def see(self, row: Row) -> None:
        """The next state; it holds its goal."""
        self._step += 1
        if self.success is None:
            self._held = self._held + 1 if self.rule.solved(row) else 0
            if self._held >= self.rule.hold:
                self.success = self._step


def score(rows: Sequence[Row], rule: Rule, task: TaskSpec) -> Outcome:
    assert task.distance is not None
    watch = Watch(rule)
    for row in rows:
        watch.see(row)
    end = rows[-1 if watch.success is None else watch.success]
    return Outcome(watch.success is not None, watch.success, task.distance(rows[0], rows[0]), task.distance(end, end))
