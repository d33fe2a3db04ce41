"""What every diagnostic is. No torch here: the report asks a diagnostic for its words, its criterion and its points."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, ClassVar, Generic, TypeVar

import numpy as np

from phylatent.diagnostics.findings import Findings
from phylatent.diagnostics.rates import Measured
from phylatent.schema import DiagnoseConfig

if TYPE_CHECKING:
    from phylatent.diagnostics.latents import JudgedModel
    from phylatent.diagnostics.material import Material

S = TypeVar("S")
"""A diagnostic's sample."""


@dataclass(frozen=True)
class Breakdown:
    """A diagnostic's rate under several conditions, as a panel of the page."""

    key: str
    """Where the record's section holds them: condition → rate."""
    title: str
    kind: str = "dots"
    """dots, or a line where the conditions follow each other."""
    label: Callable[[str], str] = str
    """Condition → what stands under its mark."""


@dataclass(frozen=True)
class ScatterAxes:
    """How a diagnostic's samples are shown as points in space."""

    x: str
    y: str
    z: str
    """`d phys` is written d with a small phys below it."""
    colour: str
    """Of points that do not fail."""
    limits: tuple[float, float]
    """The vertical axis ends here at the latest; a point beyond is shown at the edge, and the page counts them."""
    caption: str
    """What the axes are and where a failure lies; `d_phys` is written as on the axes."""
    log: bool = False
    """Whether the vertical axis is logarithmic."""

    @property
    def labels(self) -> tuple[str, str, str]:
        return self.x, self.y, f"{self.z}, log" if self.log else self.z


@dataclass(frozen=True, eq=False)
class Points:
    x: np.ndarray
    y: np.ndarray
    z: np.ndarray
    failed: np.ndarray
    planes: tuple[tuple[str, float], ...]
    """The decision boundaries: axis and value."""
    total: int
    """How many were measured; more than there are points where a part is kept for showing."""


class Diagnostic(ABC, Generic[S]):
    """One question to a latent space, asked of held-out samples of its own; its answer is the share of samples that fail."""

    name: ClassVar[str]
    """The same in `diagnose.diagnostics`, record and table."""
    title: ClassVar[str]
    meaning: ClassVar[str]
    """What the rate is the share of, in one sentence for the page."""
    failure: ClassVar[str]
    """What a failure is, in a few words for a table in the terminal."""
    counted: ClassVar[str]
    """What is counted, such as `states` or `pairs`."""
    chance: ClassVar[float | None] = None
    """The rate of latents that know nothing, where it is known beforehand."""
    breakdown: ClassVar[Breakdown | None] = None
    axes: ClassVar[ScatterAxes | None] = None
    """For a diagnostic that is shown as a scatter; `points` has its points."""

    @abstractmethod
    def draw(self, material: Material, seed: int) -> S:
        """What is measured with this seed, the same for every model."""

    @abstractmethod
    def identity(self, sample: S) -> Sequence[np.ndarray]:
        """The arrays that tell this sample from another one: they go into the fingerprint of the record's sample."""

    def notes(self, sample: S, material: Material) -> list[str]:
        """Sentences for the record, such as where there was less than was asked for."""
        return []

    @abstractmethod
    def measure(self, model: JudgedModel, sample: S, material: Material, seed: int) -> Measured:
        """What failed and what was eligible, by episode, and the arrays that show it."""

    def beside_rate(self, found: Findings[S], settings: DiagnoseConfig) -> dict[str, Any]:
        """What the record's section holds beside the rate, its counts and its interval."""
        return {}

    def remark(self, section: Mapping[str, Any]) -> str:
        """Of a record's section: what a table says beside the rate, if there is more to say."""
        return ""

    def points(self, arrays: Mapping[str, np.ndarray], section: Mapping[str, Any]) -> Points | None:
        """Of the first seed's arrays and the record's section; None where they are not there."""
        return None


def shortfall(name: str, found: int, wanted: int) -> list[str]:
    """A sentence when the held-out episodes had less than was asked for."""
    return [f"{found:,} {name} instead of {wanted:,}: the held-out episodes have no more"] if found < wanted else []
