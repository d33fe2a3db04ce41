"""How much of the physical state a linear map reads off the latents: R² per dimension, and an error in its own unit."""

# N frames, D latent, S physical target, C target with angles as sine and cosine

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence

import torch
from torch import Tensor

from phylatent.data.stats import unroll
from phylatent.models.linear import fit_linear
from phylatent.schema import PhysicalTarget

Rows = tuple[Tensor, Tensor]
"""Latents [N, D] and their raw targets [N, S]."""


def readout(fit: Rows, test: Rows, target: PhysicalTarget) -> dict[str, float]:
    """A linear map fitted on one set of rows and scored on another; rows with an unknown target are left out.

    `r2/<name>` of every dimension as it is, `r2/sin <name>` and `r2/cos <name>` of every angle: an angle that winds up or jumps
    can be readable although its value is not. `error/<name>` is the median absolute error; an angle is read as the direction of
    its two read-outs, and its error goes the shorter way round.
    """
    (fit_z, fit_s), (test_z, test_s) = known(fit), known(test)
    angles = dict(sorted(target.angles.items()))
    every = [target.names, [f"{part} {target.names[i]}" for i in angles for part in ("sin", "cos")]]
    names = [name for group in every for name in group]
    fit_s, wanted = (torch.cat([s, _circles(s, angles)], dim=-1) for s in (fit_s, test_s))
    read = fit_linear(fit_z, fit_s)(test_z)
    error = median_errors(read, test_s, angles)
    scores = {f"r2/{name}": value for name, value in zip(names, r_squared(read, wanted), strict=True)}
    return scores | {f"error/{name}": value for name, value in zip(target.names, error, strict=True)}


def known(rows: Rows) -> Rows:
    z, s = (part.cpu().double() for part in rows)
    finite = s.isfinite().all(-1)
    return z[finite], s[finite]


def _circles(s_NS: Tensor, angles: Mapping[int, float]) -> Tensor:
    """Sine and cosine of each angle, side by side, in order of dimension."""
    return unroll(s_NS[:, list(angles)], periods=dict(enumerate(angles.values())))


def r_squared(read_NC: Tensor, wanted_NC: Tensor) -> Sequence[float]:
    """NaN for a dimension that does not vary."""
    residual = (wanted_NC - read_NC).square().sum(0)
    spread = (wanted_NC - wanted_NC.mean(0)).square().sum(0)
    return torch.where(spread > 0, 1 - residual / spread, torch.nan).tolist()


def median_errors(read_NC: Tensor, wanted_NS: Tensor, angles: Mapping[int, float]) -> Sequence[float]:
    """One per dimension, in its own unit. Behind the dimensions, `read_NC` holds sine and cosine of each angle."""
    if not len(wanted_NS):
        return [math.nan] * wanted_NS.shape[1]
    errors = (read_NC[:, : wanted_NS.shape[1]] - wanted_NS).abs()
    circles = read_NC[:, wanted_NS.shape[1] :].unflatten(1, (len(angles), 2)) if angles else read_NC[:, :0]
    for at, (dimension, period) in enumerate(angles.items()):
        direction = torch.atan2(circles[:, at, 0], circles[:, at, 1]) * period / (2 * math.pi)
        errors[:, dimension] = ((direction - wanted_NS[:, dimension] + period / 2) % period - period / 2).abs()
    return errors.quantile(0.5, dim=0).tolist()
