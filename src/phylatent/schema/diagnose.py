"""Settings of the diagnostics."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from phylatent.schema.checks import as_tuples, at_least, check, whole
from phylatent.schema.split import TEST, check_split

SEVERITIES: Mapping[str, float] = {"brightness": 0.5, "colour": 0.1, "texture": 0.4, "noise": 0.05}
"""Kind of perturbation → its strength, for a task that declares no other (chosen on TwoRooms, docs/experiments.md)."""
PERTURBATIONS = tuple(SEVERITIES)
PAPER_DIAGNOSTICS = ("invariance", "identifiability", "counterfactual")
"""The paper's three, in its order. What else there is: `phylatent.diagnostics.DIAGNOSTICS`."""
DIAGNOSTIC_PROTOCOLS = ("paper", "ordering")
COORDINATES = ("raw", "circular")


@dataclass(frozen=True)
class DiagnoseConfig:
    """Which diagnostics (sec:three_collapse has three) and their scales; the thresholds are the paper's."""

    protocol: str = "paper"
    diagnostics: tuple[str, ...] = PAPER_DIAGNOSTICS
    """Those that protocol=paper measures; protocol=ordering has three of its own."""
    split: str = TEST
    """Whose episodes: `test` for results, `validation` for choices."""
    states: int = 1000
    frames: int = 2000
    pairs: int = 200_000
    branches: int = 1000
    seeds: tuple[int, ...] = (0, 1, 2)
    severity: float = 1.0
    """Multiplies every perturbation; at 1 each has the strength that the task declares."""
    coordinates: str = "raw"
    horizons: tuple[int, ...] = (1, 3, 5)
    """In blocks; the last one is the headline's."""
    bootstrap: int = 1000
    workers: int | None = None
    """Simulating processes. Unset: one for each core. The numbers do not depend on it."""
    anchors: int = 1000
    """protocol=ordering: states whose neighbours are ranked."""
    pool: int = 4096
    references: int = 64
    every: int | None = None
    """Steps between small diagnoses while training. Unset: none."""

    def __post_init__(self) -> None:
        as_tuples(self, "diagnostics", "seeds", "horizons")
        counts = ("states", "frames", "pairs", "branches", "bootstrap", "workers", "anchors", "pool", "references", "every")
        at_least("diagnose", self, 1, *counts)
        at_least("diagnose", self, 0, "severity")
        check(self.frames >= 2, "diagnose.frames must be at least 2: pairs are drawn among them")
        for name, allowed in (("protocol", DIAGNOSTIC_PROTOCOLS), ("coordinates", COORDINATES)):
            value = getattr(self, name)
            check(value in allowed, f"diagnose.{name} is {value!r}; it must be one of {', '.join(allowed)}")
        check(len(self.diagnostics) > 0, "diagnose.diagnostics is empty: name at least one")
        check(
            self.protocol == "paper" or self.diagnostics == PAPER_DIAGNOSTICS,
            f"diagnose.diagnostics does nothing with protocol={self.protocol}, which has its own; leave one of them out",
        )
        check_split("diagnose", self.split)
        whole("diagnose.seeds", self.seeds, 0)
        whole("diagnose.horizons", self.horizons, 1)
        check(list(self.horizons) == sorted(self.horizons), "diagnose.horizons must ascend: the last one is the headline's")
