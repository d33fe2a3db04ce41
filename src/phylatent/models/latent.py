"""All that diagnostics and planning ask of a world model, ours or anyone's."""

# N any batch, k blocks ahead, D latent, A raw action values of a block

from __future__ import annotations

from typing import Any, Protocol

import numpy as np
from torch import Tensor

Array = Tensor | np.ndarray


class LatentModel(Protocol):
    """Frames and actions come as torch tensors on the CPU; latents may be tensors on any device or numpy arrays.

    The diagnostics hand `rollout` its start exactly as `encode` returned it, planning as a float tensor. A model whose
    `rollout` also takes `past_NhD` and `past_blocks_NhA` is given its history when it plans.
    """

    def encode(self, frames: Tensor, /) -> Array:
        """uint8 [N, H, W, 3] → [N, D]."""
        ...

    def rollout(self, z: Any, blocks: Tensor, /) -> Array:
        """[N, D] and raw action blocks, float32 [N, k, A] → the latents after each block, [N, k, D]."""
        ...
