"""Every random draw is a function of (run seed, step, its own name), and of nothing else.

So removing an objective leaves the draws of the others as they were, a resumed run draws what it would have drawn, and several
processes draw for the global batch and keep their own rows.
"""

from __future__ import annotations

import contextlib
import hashlib
from collections.abc import Iterator
from dataclasses import dataclass, replace

import torch
from torch import Tensor

from phylatent import distributed


def derive_seed(*parts: object) -> int:
    digest = hashlib.blake2b("/".join(map(str, parts)).encode(), digest_size=8).digest()
    return int.from_bytes(digest, "big") >> 1


@contextlib.contextmanager
def seeded_init(seed: int, name: str) -> Iterator[None]:
    """Parameters created inside get initial values that depend on the seed and this name only."""
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(derive_seed(seed, "init", name))
        yield


@dataclass(frozen=True)
class Draws:
    seed: int
    step: int | str
    device: torch.device
    scope: str = ""
    copies: int = 1
    """How many passes are made at once that share what is drawn for a row, one below the other in the batch."""

    def named(self, name: str) -> Draws:
        return replace(self, scope=f"{self.scope}/{name}")

    def shared(self, copies: int) -> Draws:
        """For so many passes at once, which then have the same dropout masks."""
        return replace(self, copies=copies)

    def generator(self) -> torch.Generator:
        return torch.Generator(self.device).manual_seed(derive_seed(self.seed, self.step, self.scope))

    def normal(self, *shape: int) -> Tensor:
        """Standard normal, the same in every process."""
        return torch.randn(shape, generator=self.generator(), device=self.device)

    def permutation(self, count: int) -> Tensor:
        return torch.randperm(count, generator=self.generator(), device=self.device)

    def normal_rows(self, batch: int, *shape: int) -> Tensor:
        """Standard normal [batch, *shape]: this process's rows of the global batch's draw."""
        return self.normal(batch * distributed.world_size(), *shape)[distributed.own_rows(batch)]

    def uniform_rows(self, batch: int, *shape: int) -> Tensor:
        """Uniform on [0, 1) [batch, *shape]: this process's rows of the global batch's draw."""
        rows = (batch * distributed.world_size(), *shape)
        return torch.rand(rows, generator=self.generator(), device=self.device)[distributed.own_rows(batch)]
