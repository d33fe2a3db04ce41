"""Several processes as one batch: sums that carry gradients, means over the whole batch, gathers.

Every loss is returned so that its *mean over processes* is the loss of the global batch. DDP averages gradients in the same
way, so 2 processes × batch B give the losses and the gradients of 1 process × batch 2B.
"""

from __future__ import annotations

from typing import Any

import torch
import torch.distributed as dist
from torch import Tensor


def world_size() -> int:
    return dist.get_world_size() if dist.is_available() and dist.is_initialized() else 1


def rank() -> int:
    return dist.get_rank() if dist.is_available() and dist.is_initialized() else 0


def own_rows(batch: int) -> slice:
    """This process's rows of the global batch, when every process holds `batch` of them."""
    return slice(rank() * batch, (rank() + 1) * batch)


class _Sum(torch.autograd.Function):
    """Sum over processes whose gradient is summed over processes too, since every process uses the result."""

    @staticmethod
    def forward(ctx: Any, x: Tensor) -> Tensor:
        total = x.detach().clone(memory_format=torch.contiguous_format)
        dist.all_reduce(total)
        return total

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> Tensor:
        total = grad.clone(memory_format=torch.contiguous_format)
        dist.all_reduce(total)
        return total


def sum_across(x: Tensor) -> Tensor:
    return _Sum.apply(x) if world_size() > 1 else x


def mean_across(x: Tensor) -> Tensor:
    """For numbers to log: detached."""
    return sum_across(x.detach()) / world_size()


def masked_mean(values: Tensor, mask: Tensor) -> Tensor:
    """Mean of `values` where `mask`, over the global batch; 0 when the mask is empty everywhere."""
    total = torch.where(mask, values, torch.zeros_like(values)).sum()
    count = sum_across(mask.sum().to(values.dtype))
    return world_size() * total / count.clamp(min=1)


def gather_moving(x: Tensor) -> Tensor:
    """`gather_rows` with a gradient: every process's rows as a sum that is 0 outside its own."""
    if world_size() == 1:
        return x
    before, after = rank() * len(x), (world_size() - rank() - 1) * len(x)
    return sum_across(torch.cat([x.new_zeros(before, *x.shape[1:]), x, x.new_zeros(after, *x.shape[1:])]))


def gather_rows(x: Tensor) -> Tensor:
    """Concatenate along the first axis in order of rank. No gradient; every process must hold the same shape."""
    if world_size() == 1:
        return x.detach()
    parts = [torch.empty_like(x) for _ in range(world_size())]
    dist.all_gather(parts, x.detach().contiguous())
    return torch.cat(parts)
