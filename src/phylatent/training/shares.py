"""How strongly each objective pulls: the norm of its gradient where it enters the model, and its share of all of them.

An objective can be built, weighted and logged, and still be inert beside the others. Its loss does not tell; its share does.
"""

# B batch, T frames, H context frames, D latent, N terms; the 2 places are Z and Ẑ

from __future__ import annotations

import contextlib
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from phylatent import distributed
from phylatent.models.world_model import WorldModel
from phylatent.objectives.objective import PLACES, Beside, Sequences

INERT = 1e-3
"""A term with a smaller share than this, at Z and at Ẑ, does nothing that one could notice."""


@dataclass(frozen=True)
class Entries:
    """The latents through which a term's gradient enters encoder (`z`) and predictor (`zhat`)."""

    z: list[Tensor]
    zhat: list[Tensor]


@contextlib.contextmanager
def watched(model: WorldModel, seq: Sequences, name: str) -> Iterator[Entries]:
    """Z and Ẑ of the shared graph, what the named term asked for beside them, and what it adds by passes of its own.

    SVIC moves the latents of shifted frames and CASC a counterfactual prediction, while Z and Ẑ are references to them. Every
    pass of a term's own ends in one of the two projectors, so none has to be declared and none can be forgotten.
    """
    own = seq.beside.get(name, Beside())
    entries = Entries(
        [seq.z_BTD, *(z for z in [own.z_BtD] if z is not None)],
        [seq.z_predicted_BHD, *(z for z in [own.predicted_BHD] if z is not None)],
    )

    def keep(place: list[Tensor]) -> Any:
        return lambda module, arguments, output: place.append(output)

    hooks = [
        model.projector.register_forward_hook(keep(entries.z)),
        model.pred_proj.register_forward_hook(keep(entries.zhat)),
    ]
    try:
        yield entries
    finally:
        for hook in hooks:
            hook.remove()


def gradient_norms(losses: Mapping[str, Tensor], entries: Mapping[str, Entries]) -> Tensor:
    """[N, 2]: the norms of each loss's gradient at Z and at Ẑ, those of the global batch.

    Total derivatives: what a term asks of Ẑ it also asks, through the predictor, of Z. A loss is such that its mean over
    processes is the global one, so each process holds its rows of the gradient times the number of processes.
    """
    squares = torch.stack([_squares(loss, entries[name]) for name, loss in losses.items()])
    return distributed.sum_across(squares).sqrt() / distributed.world_size()


def _squares(loss: Tensor, entries: Entries) -> Tensor:
    places = [(place, tensor) for place in PLACES for tensor in getattr(entries, place) if tensor.requires_grad]
    sums = {place: loss.new_zeros((), dtype=torch.float32) for place in PLACES}
    if loss.requires_grad and places:
        inputs = [tensor for _, tensor in places]
        found = torch.autograd.grad(loss, inputs, retain_graph=True, allow_unused=True)
        for (place, _), gradient in zip(places, found, strict=True):
            if gradient is not None:
                sums[place] = sums[place] + gradient.float().square().sum()
    return torch.stack([sums[place] for place in PLACES]).detach()


def shares(norms_N2: Tensor) -> Tensor:
    """Each term's part of the sum over terms, at each place apart; 0 where nothing pulls."""
    total = norms_N2.sum(0)
    return torch.where(total > 0, norms_N2 / total, 0)


def inert(measured: Mapping[str, float]) -> list[str]:
    """The terms whose share is next to nothing at both places, from a validation's results."""
    first, *others = (f"share/{place}/" for place in PLACES)
    names = [key.removeprefix(first) for key in measured if key.startswith(first)]
    return [name for name in names if all(measured[f"{place}{name}"] < INERT for place in (first, *others))]
