"""Physical identifiability collapse: states far apart whose latents are near each other."""

# F frames, P pairs, D latent

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from phylatent.diagnostics.diagnostic import Diagnostic, Points, ScatterAxes, shortfall
from phylatent.diagnostics.findings import Findings
from phylatent.diagnostics.rates import Counts, Measured, count_pairs
from phylatent.schema import DiagnoseConfig

if TYPE_CHECKING:
    from phylatent.diagnostics.held_out import HeldOutRows
    from phylatent.diagnostics.latents import JudgedModel
    from phylatent.diagnostics.material import Material

EPSILON = 1e-8
Q_PHYS, Q_LAT = 75, 10
THRESHOLDS = tuple((q_phys, q_lat) for q_phys in (70, 75, 80) for q_lat in (5, 10, 15))
"""tab:threshold_sensitivity."""
PAIRS_AT_ONCE = 20_000
SHOWN = 20_000
"""Pairs that a plot shows."""


@dataclass(frozen=True, eq=False)
class Collisions:
    far: np.ndarray
    """bool [P]: d_phys > τ_phys. A failure is one of these."""
    failed: np.ndarray
    tau_phys: float
    tau_lat: float


def collisions(d_phys: np.ndarray, d_lat: np.ndarray, *, q_phys: float, q_lat: float) -> Collisions:
    """C_id of eq:identifiability_diagnostic, with the thresholds at these pairs' own percentiles."""
    tau_phys, tau_lat = float(np.percentile(d_phys, q_phys)), float(np.percentile(d_lat, q_lat))
    failed = identifiability_failures(d_phys, d_lat, tau_phys=tau_phys, tau_lat=tau_lat)
    return Collisions(d_phys > tau_phys, failed, tau_phys, tau_lat)


def identifiability_failures(d_phys: np.ndarray, d_lat: np.ndarray, *, tau_phys: float, tau_lat: float) -> np.ndarray:
    """C_id of eq:identifiability_diagnostic: d_phys > τ_phys ∧ d_lat < τ_lat.

    Latents that coincide are near each other whatever the percentile: otherwise an encoder that folds a tenth of all pairs onto
    one point would make τ_lat 0, and pass without a failure.
    """
    return (d_phys > tau_phys) & ((d_lat < tau_lat) | (d_lat == 0))


def collision_ratio(
    d_phys: np.ndarray, d_lat: np.ndarray, *, tau_phys: float, tau_lat: float, epsilon: float = EPSILON
) -> np.ndarray:
    """r_id of eq:identifiability_ratio: how severe a collision is, for showing it."""
    return (d_phys / (tau_phys + epsilon)) / (d_lat / (tau_lat + epsilon) + epsilon)


def pair_distances(points_FD: np.ndarray, first_P: np.ndarray, second_P: np.ndarray) -> np.ndarray:
    """d_phys and d_lat of eq:identifiability_diagnostic: ‖x_i − x_j‖₂, float64 [P]."""
    points = points_FD.astype(np.float64)
    chunks = (slice(start, start + PAIRS_AT_ONCE) for start in range(0, len(first_P), PAIRS_AT_ONCE))
    return np.concatenate([np.linalg.norm(points[first_P[c]] - points[second_P[c]], axis=1) for c in chunks])


@dataclass(frozen=True, eq=False)
class Pairs:
    rows: np.ndarray
    """int64 [F]: the frames."""
    first: np.ndarray
    """int64 [P]: index into `rows`; `second` is another one, and no pair is there twice."""
    second: np.ndarray
    shown: np.ndarray
    """A fixed choice among the pairs, for plots."""


def draw_pairs(held_out: HeldOutRows, rng: np.random.Generator, *, frames: int, count: int) -> Pairs:
    """Distinct frames, and distinct unordered pairs of two of them."""
    rows = rng.choice(held_out.rows, min(frames, len(held_out.rows)), replace=False)
    possible = len(rows) * (len(rows) - 1) // 2
    drawn = rng.choice(possible, min(count, possible), replace=False)
    first, second = unrank_pairs(drawn)
    shown = np.sort(rng.choice(len(drawn), min(SHOWN, len(drawn)), replace=False))
    return Pairs(rows, first, second, shown)


def unrank_pairs(ranks: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """The pair i < j of each rank j(j−1)/2 + i."""
    second = ((1 + np.sqrt(1 + 8 * ranks.astype(np.float64))) // 2).astype(np.int64)
    second -= second * (second - 1) // 2 > ranks  # the root of a large number may round up
    return ranks - second * (second - 1) // 2, second


def threshold_name(q_phys: float, q_lat: float) -> str:
    return f"{q_phys}/{q_lat}"


class Identifiability(Diagnostic[Pairs]):
    name = "identifiability"
    title = "Physical identifiability"
    meaning = "Share of physically far pairs that are nevertheless near neighbours in latent space; 10 % by chance."
    failure = "states far apart that share a latent neighbourhood"
    counted = "pairs"
    chance = Q_LAT / 100
    axes = ScatterAxes(
        x="d phys",
        y="d lat",
        z="r id",
        colour="#009E73",
        limits=(1e-2, 1e3),
        log=True,
        caption="d_phys and d_lat: distance of a pair of states physically and in latent space; "
        "r_id = (d_phys / τ_phys) / (d_lat / τ_lat); a failure lies beyond τ_phys and before τ_lat.",
    )

    def draw(self, material: Material, seed: int) -> Pairs:
        settings = material.settings
        return draw_pairs(material.held_out, material.rng(seed, "pairs"), frames=settings.frames, count=settings.pairs)

    def identity(self, sample: Pairs) -> tuple[np.ndarray, ...]:
        return sample.rows, sample.first, sample.second

    def notes(self, sample: Pairs, material: Material) -> list[str]:
        settings = material.settings
        frames = shortfall("frames", len(sample.rows), settings.frames)
        return frames + shortfall("pairs", len(sample.first), settings.pairs)

    def measure(self, model: JudgedModel, sample: Pairs, material: Material, seed: int) -> Measured:
        """Failures among physically far pairs (docs/choices.md says why not among all). Beside it: nine thresholds."""
        held_out, first, second = material.held_out, sample.first, sample.second
        z_FD = model.encode(held_out.episodes.frames, sample.rows)
        d_lat = pair_distances(z_FD, first, second)
        d_phys = pair_distances(material.coordinates(held_out.episodes.targets[sample.rows]), first, second)
        episode = held_out.episode_of(sample.rows)

        def counted(found: Collisions) -> Counts:
            return count_pairs(found.failed, found.far, episode[first], episode[second], episodes=len(held_out.ids))

        headline = collisions(d_phys, d_lat, q_phys=Q_PHYS, q_lat=Q_LAT)
        return Measured(
            headline=counted(headline),
            beside={
                threshold_name(q_phys, q_lat): counted(collisions(d_phys, d_lat, q_phys=q_phys, q_lat=q_lat))
                for q_phys, q_lat in THRESHOLDS
            },
            arrays={
                "d_phys": d_phys.astype(np.float32),
                "d_lat": d_lat.astype(np.float32),
                "i": sample.rows[first],
                "j": sample.rows[second],
                "shown": sample.shown,
            },
            facts={"tau_phys": headline.tau_phys, "tau_lat": headline.tau_lat},
        )

    def beside_rate(self, found: Findings[Pairs], settings: DiagnoseConfig) -> dict[str, Any]:
        pairs = sum(len(sample.first) for sample in found.samples)

        def share(entry: Mapping[str, Any]) -> dict[str, float | None]:
            return {"share_of_all_pairs": entry["failures"] / pairs if entry["rate"] is not None else None}

        entries = found.rates([threshold_name(*threshold) for threshold in THRESHOLDS]).values()
        thresholds = [
            {"q_phys": q_phys, "q_lat": q_lat} | entry | share(entry)
            for (q_phys, q_lat), entry in zip(THRESHOLDS, entries, strict=True)
        ]
        return share(found.headline()) | {"chance": self.chance, "thresholds": thresholds}

    def points(self, arrays: Mapping[str, np.ndarray], section: Mapping[str, Any]) -> Points | None:
        seed: Mapping[str, Any] = next(iter(section.get("per_seed") or []), {})
        tau_phys, tau_lat = seed.get("tau_phys"), seed.get("tau_lat")
        if not {"d_phys", "d_lat"} <= arrays.keys() or tau_phys is None or tau_lat is None:
            return None
        total = len(arrays["d_phys"])
        shown = arrays.get("shown", np.arange(total))
        phys, lat = arrays["d_phys"][shown], arrays["d_lat"][shown]
        ratio = collision_ratio(phys, lat, tau_phys=tau_phys, tau_lat=tau_lat)
        failed = identifiability_failures(phys, lat, tau_phys=tau_phys, tau_lat=tau_lat)
        return Points(phys, lat, ratio, failed, (("x", tau_phys), ("y", tau_lat)), total)


DIAGNOSTIC = Identifiability()
