"""fig:three_collapse_diagnostics: a 3-D scatter for each diagnostic as arrays, with its decision planes and common axes."""

from __future__ import annotations

import base64
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from phylatent.diagnostics.diagnostic import Diagnostic, ScatterAxes
from phylatent.reporting.inputs import Run
from phylatent.reporting.methods import Method, dig, shown_diagnostics

FAILED = "#D7263D"
Box = tuple[tuple[float, float], ...]
"""(low, high) of x, y and z."""


@dataclass(frozen=True)
class Cloud:
    """One panel of one run: points (x, y, z), which of them fail, and where the planes stand."""

    x: np.ndarray
    y: np.ndarray
    z: np.ndarray
    failed: np.ndarray
    planes: tuple[tuple[str, float], ...]
    """Axis and value."""
    total: int
    """Points in the record; more than are shown where the record keeps a part for showing."""
    beyond: int
    """Points shown at the edge of the box."""


@dataclass(frozen=True)
class Scatter:
    """A run's panels; a panel that was not measured is None, with the reason."""

    title: str
    colour: str
    clouds: dict[str, Cloud | None]
    reason: str


def axes(methods: Sequence[Method]) -> dict[str, ScatterAxes]:
    """Diagnostic → its axes, of those that are shown as a scatter."""
    return {one.name: one.axes for one in shown_diagnostics(methods) if one.axes is not None}


def scatters(methods: Sequence[Method]) -> list[Scatter]:
    shown = [one for one in shown_diagnostics(methods) if one.axes is not None]
    return [_scatter(method, run, shown) for method in methods for run in method.runs]


def _scatter(method: Method, run: Run, shown: Sequence[Diagnostic[Any]]) -> Scatter:
    sentence = dig(run.diagnosis, "health", "sentence")
    broken = dig(run.diagnosis, "health", "status") not in (None, "ok")
    reason = f"not measured: {sentence}" if broken and sentence else "not measured"
    return Scatter(method.title(run), method.colour, {one.name: _cloud(run, one) for one in shown}, reason)


def _cloud(run: Run, one: Diagnostic[Any]) -> Cloud | None:
    assert one.axes is not None
    prefix = f"{one.name}/"
    arrays = {key.removeprefix(prefix): values for key, values in run.points.items() if key.startswith(prefix)}
    points = one.points(arrays, dig(run.diagnosis, one.name) or {})
    if points is None:
        return None
    finite = np.isfinite(points.x) & np.isfinite(points.y) & np.isfinite(points.z)
    if not finite.any():
        return None
    inside = np.clip(points.z[finite], *one.axes.limits)
    beyond = int((inside != points.z[finite]).sum())
    return Cloud(points.x[finite], points.y[finite], inside, points.failed[finite], points.planes, points.total, beyond)


def ranges(scatters: Sequence[Scatter], axes: Mapping[str, ScatterAxes]) -> dict[str, Box]:
    """The same box for every run, by panel."""
    boxes = {}
    for name, its in axes.items():
        clouds = [cloud for scatter in scatters if (cloud := scatter.clouds[name]) is not None]
        if clouds:
            boxes[name] = tuple(_range(axis, clouds, log=its.log) for axis in "xyz")
    return boxes


def _range(axis: str, clouds: Sequence[Cloud], *, log: bool) -> tuple[float, float]:
    planes = [value for cloud in clouds for where, value in cloud.planes if where == axis]
    low = min(*planes, *(float(getattr(cloud, axis).min()) for cloud in clouds), *[np.inf] * 2)
    high = max(*planes, *(float(getattr(cloud, axis).max()) for cloud in clouds), *[-np.inf] * 2)
    if axis != "z":
        return 0.0, high * 1.02 or 1.0
    if log:
        return low / 1.2, high * 1.2
    margin = 0.03 * (high - low) or 0.1
    return low - margin, high + margin


def packed(scatter: Scatter) -> dict[str, Any]:
    """For the page: typed arrays in base64."""
    return {name: None if cloud is None else _packed(cloud) for name, cloud in scatter.clouds.items()}


def _packed(cloud: Cloud) -> dict[str, Any]:
    return {
        **{axis: in_base64(getattr(cloud, axis).astype("<f4")) for axis in "xyz"},
        "failed": in_base64(cloud.failed.astype("u1")),
        "planes": cloud.planes,
        "count": len(cloud.x),
        "failures": int(cloud.failed.sum()),
        "total": cloud.total,
        "beyond": cloud.beyond,
    }


def in_base64(array: np.ndarray) -> str:
    return base64.b64encode(np.ascontiguousarray(array).tobytes()).decode("ascii")
