"""What a diagnostic found with every seed, put together for the record."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Generic, TypeVar

from phylatent.diagnostics.rates import Counts, Measured, Rate, over_seeds

NOTHING = Rate(failures=0, eligible=0, rate=None, interval=None)
S = TypeVar("S")


@dataclass(frozen=True, eq=False)
class Findings(Generic[S]):
    """One diagnostic's. Of a model that could not be judged nothing is measured, and nothing has a rate."""

    seeds: tuple[int, ...]
    samples: Sequence[S]
    """Of every seed."""
    measured: Sequence[Measured]
    """Of every seed, or empty."""
    replicates: int
    """Of the bootstrap."""
    seen: Sequence[str] | None = None
    """The perturbations whose form the model met in training, where that is known."""

    def headline(self) -> dict[str, Any]:
        """The rate over all seeds, and each seed's own."""
        rate, spread = self._rate([one.headline for one in self.measured])
        seeds = [
            {
                "seed": seed,
                "failures": int(one.headline.failures.sum()),
                "eligible": int(one.headline.eligible.sum()),
                "rate": one.headline.share,
                **one.facts,
            }
            for seed, one in zip(self.seeds, self.measured, strict=False)
        ]
        return rate.to_dict() | {"spread": spread, "per_seed": seeds}

    def rates(self, conditions: Sequence[str]) -> dict[str, dict[str, Any]]:
        """Condition → its rate."""
        return {name: self._rate([one.beside[name] for one in self.measured])[0].to_dict() for name in conditions}

    def pooled(self, conditions: Sequence[str]) -> dict[str, Any]:
        """The rate of these conditions together."""
        if not conditions:
            return NOTHING.to_dict()
        found = [[one.beside[condition] for condition in conditions] for one in self.measured]
        return self._rate([sum(counts[1:], counts[0]) for counts in found])[0].to_dict()

    def _rate(self, counts: Sequence[Counts]) -> tuple[Rate, float | None]:
        return over_seeds(counts, replicates=self.replicates) if counts else (NOTHING, None)
