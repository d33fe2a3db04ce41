"""fig:three_collapse_diagnostics: the three 3-D scatters as arrays, with their decision planes and common axes."""

from __future__ import annotations

import base64
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from phylatent.collapse import (
    KEPT,
    collision_ratio,
    counterfactual_failures,
    identifiability_failures,
    invariance_failures,
    invariance_ratio,
    separation_ratio,
)
from phylatent.report.inputs import Run
from phylatent.report.methods import Method, dig, number

LIMITS = {"invariance": (-4.0, 4.0), "identifiability": (1e-2, 1e3), "counterfactual": (0.0, 4.0)}
"""The vertical axis ends here at the latest; a point beyond is drawn at the edge, and the page counts them."""
AXES = {
    "invariance": ("d nuis", "d state", "r inv"),
    "identifiability": ("d phys", "d lat", "r id, log"),
    "counterfactual": ("d true", "d pred", "r cf"),
}
ORDINARY = {"invariance": "#0072B2", "identifiability": "#009E73", "counterfactual": "#E3A008"}
FAILED = "#D7263D"


@dataclass(frozen=True)
class Cloud:
    """One panel of one run: points (x, y, z), which of them fail, and where the planes stand."""

    name: str
    x: np.ndarray
    y: np.ndarray
    z: np.ndarray
    failed: np.ndarray
    planes: tuple[tuple[str, float], ...]
    """Axis and value."""
    total: int
    """Points in the record; more than are drawn where the record keeps a part for drawing."""
    beyond: int
    """Points drawn at the edge of the box."""


@dataclass(frozen=True)
class Scatter:
    """A run's three panels; a panel that was not measured is None, with the reason."""

    title: str
    colour: str
    clouds: dict[str, Cloud | None]
    reason: str


def scatters(methods: Sequence[Method]) -> list[Scatter]:
    return [_scatter(method, run) for method in methods for run in method.runs]


def _scatter(method: Method, run: Run) -> Scatter:
    clouds = {"invariance": _invariance(run), "identifiability": _identifiability(run), "counterfactual": _counterfactual(run)}
    sentence = dig(run.diagnosis, "health", "sentence")
    broken = dig(run.diagnosis, "health", "status") not in (None, "ok")
    reason = f"not measured: {sentence}" if broken and sentence else "not measured"
    return Scatter(method.title(run), method.colour, clouds, reason)


def _arrays(run: Run, name: str, *keys: str) -> list[np.ndarray] | None:
    found = [run.points.get(f"{name}/{key}") for key in keys]
    arrays = [array for array in found if array is not None]
    return arrays if len(arrays) == len(keys) else None


def _invariance(run: Run) -> Cloud | None:
    arrays = _arrays(run, "invariance", "d_nuis", "d_state")
    if arrays is None:
        return None
    nuis, state = arrays
    failed = invariance_failures(nuis, state)
    return _cloud("invariance", nuis, state, invariance_ratio(nuis, state), failed, (("z", 0.0),), len(nuis))


def _identifiability(run: Run) -> Cloud | None:
    arrays = _arrays(run, "identifiability", "d_phys", "d_lat")
    seed: Mapping[str, Any] = next(iter(dig(run.diagnosis, "identifiability", "per_seed") or []), {})
    tau_phys, tau_lat = number(seed.get("tau_phys")), number(seed.get("tau_lat"))
    if arrays is None or tau_phys is None or tau_lat is None:
        return None
    shown = run.points.get("identifiability/shown", np.arange(len(arrays[0])))
    phys, lat = (array[shown] for array in arrays)
    taus = {"tau_phys": tau_phys, "tau_lat": tau_lat}
    ratio, failed = collision_ratio(phys, lat, **taus), identifiability_failures(phys, lat, **taus)
    return _cloud("identifiability", phys, lat, ratio, failed, (("x", tau_phys), ("y", tau_lat)), len(arrays[0]))


def _counterfactual(run: Run) -> Cloud | None:
    arrays = _arrays(run, "counterfactual", "d_true", "d_pred", "eligible")
    if arrays is None:
        return None
    true, pred, eligible = (array[:, -1] for array in arrays)
    true, pred = true[eligible.astype(bool)], pred[eligible.astype(bool)]
    failed = counterfactual_failures(pred, true)
    return _cloud("counterfactual", true, pred, separation_ratio(pred, true), failed, (("z", KEPT),), len(true))


def _cloud(
    name: str,
    x: np.ndarray,
    y: np.ndarray,
    z: np.ndarray,
    failed: np.ndarray,
    planes: tuple[tuple[str, float], ...],
    total: int,
) -> Cloud | None:
    finite = np.isfinite(x) & np.isfinite(y) & np.isfinite(z)
    if not finite.any():
        return None
    low, high = LIMITS[name]
    drawn = np.clip(z[finite], low, high)
    beyond = int((drawn != z[finite]).sum())
    return Cloud(name, x[finite], y[finite], drawn, failed[finite], planes, total, beyond)


def ranges(scatters: Sequence[Scatter]) -> dict[str, tuple[tuple[float, float], ...]]:
    """The same box for every run: panel → (low, high) of x, y and z."""
    boxes = {}
    for name in AXES:
        clouds = [cloud for scatter in scatters if (cloud := scatter.clouds[name]) is not None]
        if clouds:
            boxes[name] = tuple(_range(name, axis, clouds) for axis in "xyz")
    return boxes


def _range(name: str, axis: str, clouds: Sequence[Cloud]) -> tuple[float, float]:
    planes = [value for cloud in clouds for where, value in cloud.planes if where == axis]
    low = min(*planes, *(float(getattr(cloud, axis).min()) for cloud in clouds), *[np.inf] * 2)
    high = max(*planes, *(float(getattr(cloud, axis).max()) for cloud in clouds), *[-np.inf] * 2)
    if axis != "z":
        return 0.0, high * 1.02 or 1.0
    if name == "identifiability":
        return low / 1.2, high * 1.2
    margin = 0.03 * (high - low) or 0.1
    return low - margin, high + margin


def packed(scatter: Scatter) -> dict[str, Any]:
    """For the page: typed arrays in base64."""
    return {name: None if cloud is None else _packed(cloud) for name, cloud in scatter.clouds.items()}


def _packed(cloud: Cloud) -> dict[str, Any]:
    return {
        **{axis: _base64(getattr(cloud, axis).astype("<f4")) for axis in "xyz"},
        "failed": _base64(cloud.failed.astype("u1")),
        "planes": cloud.planes,
        "count": len(cloud.x),
        "failures": int(cloud.failed.sum()),
        "total": cloud.total,
        "beyond": cloud.beyond,
    }


def _base64(array: np.ndarray) -> str:
    return base64.b64encode(np.ascontiguousarray(array).tobytes()).decode("ascii")
