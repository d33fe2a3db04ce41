"""`train.balance=shares`: every objective is kept at its share of the gradient, whatever the task, the size and the budget.

A weight that suits one latent dimension or one number of steps makes a term inert, or everything, at another. A share does not.
"""

# N terms; the 2 places are Z and Ẑ

from __future__ import annotations

import math
from collections.abc import Mapping

import torch
from torch import Tensor, nn

from phylatent.errors import UserError
from phylatent.objectives.objective import PLACES, Objective

DECAY = 0.98
LIMIT = 1e3
"""A balanced weight stays within this factor of the configured one."""
REFERENCE = "pred"


class Balance(nn.Module):
    """Effective weights, from running means of the norm of each *unweighted* term's gradient at the places it acts on.

    Prediction keeps its own weight; every other term i gets the weight with which its gradient is shareᵢ / share_pred times
    prediction's. The running means are buffers: a checkpoint carries them. All processes see the same norms, so they agree.
    """

    mean_N: Tensor
    count_N: Tensor
    weight_N: Tensor
    start_N: Tensor
    share_N: Tensor
    places_N2: Tensor

    def __init__(self, terms: Mapping[str, Objective]) -> None:
        super().__init__()
        if REFERENCE not in terms:
            raise UserError(
                f"train.balance=shares measures every objective against {REFERENCE}, which is not among the objectives; "
                f"add it, or take train.balance=weights"
            )
        for name, term in terms.items():
            if not 0 < term.settings.share < math.inf:
                raise UserError(
                    f"{name}.share is {term.settings.share}; with train.balance=shares it must be above 0 "
                    "(to leave the objective out, take it out of the list)"
                )
        self.names = tuple(terms)
        self.reference = self.names.index(REFERENCE)
        weights = torch.tensor([term.settings.weight for term in terms.values()])
        shares = torch.tensor([term.settings.share for term in terms.values()])
        places = torch.tensor([[place in term.acts_on for place in PLACES] for term in terms.values()])
        self.register_buffer("mean_N", torch.zeros(len(terms)))
        self.register_buffer("count_N", torch.zeros(len(terms)))
        self.register_buffer("weight_N", weights.clone())
        self.register_buffer("start_N", weights, persistent=False)
        self.register_buffer("share_N", shares, persistent=False)
        self.register_buffer("places_N2", places, persistent=False)

    @torch.no_grad()
    def observe(self, norms_N2: Tensor) -> None:
        """Take a measurement into the running means, and set the weights by them.

        A term that does not pull at all, as CASC when nothing is active, is not measured: its mean is over when it does pull,
        and until it first does it has its configured weight. Otherwise its weight would grow while it rests.
        """
        norm_N = torch.where(self.places_N2, norms_N2, 0).square().sum(1).sqrt()
        pulls = norm_N.isfinite() & (norm_N > 0)
        self.mean_N.copy_(torch.where(pulls, DECAY * self.mean_N + (1 - DECAY) * norm_N, self.mean_N))
        self.count_N += pulls
        known = self.count_N > 0
        mean_N = torch.where(known, self.mean_N / (1 - DECAY**self.count_N), 1)  # without the pull towards the zero it began at
        at = self.reference
        wanted = self.start_N[at] * (self.share_N / self.share_N[at]) * (mean_N[at] / mean_N)
        wanted = wanted.clamp(min=self.start_N / LIMIT, max=self.start_N * LIMIT)
        self.weight_N.copy_(torch.where(known & known[at], wanted, self.start_N))

    def weights(self) -> dict[str, Tensor]:
        # a copy: what a loss was weighted with must not change before its backward pass
        return dict(zip(self.names, self.weight_N.clone().unbind(), strict=True))
