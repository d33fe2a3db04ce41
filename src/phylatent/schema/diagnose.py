"""Settings of the diagnostics."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from phylatent.schema.checks import as_tuples, at_least, check, whole
from phylatent.schema.split import SPLITS, TEST, check_split

SEVERITIES: Mapping[str, float] = {"brightness": 0.5, "colour": 0.1, "texture": 0.4, "noise": 0.05}
"""Kind of perturbation → its strength, for a task that declares no other (chosen on TwoRooms, docs/experiments.md)."""
PERTURBATIONS = tuple(SEVERITIES)
PAPER_DIAGNOSTICS = ("invariance", "identifiability", "counterfactual")
"""The paper's three, in its order. What else there is: `phylatent.diagnostics.DIAGNOSTICS`."""
DIAGNOSTIC_PROTOCOLS = ("paper", "ordering")
COORDINATES = ("raw", "circular")
CHOICES = {"protocol": DIAGNOSTIC_PROTOCOLS, "split": SPLITS, "coordinates": COORDINATES}
"""Setting → what it may be."""


@dataclass(frozen=True)
class DiagnoseConfig:
    """Which diagnostics (sec:three_collapse has three) and their scales; the thresholds are the paper's."""

    protocol: str = "paper"
    """`paper`: failure rates of the three collapses. `ordering`: whether near is near and far is far."""
    diagnostics: tuple[str, ...] = PAPER_DIAGNOSTICS
    """Those that protocol=paper measures; protocol=ordering has three of its own."""
    split: str = TEST
    """Whose episodes: `test` for results, `validation` for choices."""
    states: int = 1000
    """Held-out states whose appearance is changed (invariance)."""
    frames: int = 2000
    """Held-out frames among which pairs are drawn (identifiability)."""
    pairs: int = 200_000
    """How many such pairs."""
    branches: int = 1000
    """Held-out states from which two action sequences are tried (counterfactual)."""
    seeds: tuple[int, ...] = (0, 1, 2)
    """Seeds of the draws; rates are means over them."""
    severity: float = 1.0
    """Multiplies every perturbation; at 1 each has the strength that the task declares."""
    coordinates: str = "raw"
    """`raw`: physical states as the paper compares them. `circular`: angles by their sine and cosine."""
    horizons: tuple[int, ...] = (1, 3, 5)
    """In blocks; the last one is the headline's."""
    bootstrap: int = 1000
    """Resamples of the episodes for the intervals."""
    workers: int | None = None
    """Simulating processes. Unset: one for each core. The numbers do not depend on it."""
    anchors: int = 1000
    """protocol=ordering: states whose neighbours are ranked."""
    pool: int = 4096
    """protocol=ordering: frames that neighbours are drawn from."""
    references: int = 64
    """protocol=ordering: neighbours of each anchor in each quartile of distance."""
    every: int | None = None
    """Steps between small diagnoses while training. Unset: none."""

    def __post_init__(self) -> None:
        as_tuples(self, "diagnostics", "seeds", "horizons")
        counts = ("states", "frames", "pairs", "branches", "bootstrap", "workers", "anchors", "pool", "references", "every")
        at_least("diagnose", self, 1, *counts)
        at_least("diagnose", self, 0, "severity")
        check(self.frames >= 2, "diagnose.frames must be at least 2: pairs are drawn among them")
        for name in ("protocol", "coordinates"):
            value = getattr(self, name)
            check(value in CHOICES[name], f"diagnose.{name} is {value!r}; it must be one of {', '.join(CHOICES[name])}")
        check(len(self.diagnostics) > 0, "diagnose.diagnostics is empty: name at least one")
        check(
            self.protocol == "paper" or self.diagnostics == PAPER_DIAGNOSTICS,
            f"diagnose.diagnostics does nothing with protocol={self.protocol}, which has its own; leave one of them out",
        )
        check_split("diagnose", self.split)
        whole("diagnose.seeds", self.seeds, 0)
        whole("diagnose.horizons", self.horizons, 1)
        check(list(self.horizons) == sorted(self.horizons), "diagnose.horizons must ascend: the last one is the headline's")
