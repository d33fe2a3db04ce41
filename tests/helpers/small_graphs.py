"""Small batches, and graphs away from their initialisation."""

from __future__ import annotations

import torch
from torch import Tensor

from phylatent.randomness import Draws
from phylatent.training.graph import TrainingGraph


def awake(graph: TrainingGraph) -> TrainingGraph:
    """With weights at which an action matters: at initialisation AdaLN-zero hides it."""
    generator = torch.Generator().manual_seed(5)
    for name, parameter in graph.named_parameters():
        if "adaLN" in name:
            parameter.data.copy_(0.3 * torch.randn(parameter.shape, generator=generator))
    return graph


def batch_of(size: int, seed: int = 0) -> tuple[Tensor, Tensor, Tensor]:
    generator = torch.Generator().manual_seed(seed)
    frames = torch.randint(0, 256, (size, 4, 32, 32, 3), generator=generator, dtype=torch.uint8)
    return frames, torch.randn(size, 3, 10, generator=generator), torch.randn(size, 4, 2, generator=generator)


DRAWS = Draws(0, 1, torch.device("cpu"))
