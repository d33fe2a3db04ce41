"""The parts of the world model behind the image encoder: projector, action encoder, predictor.

Parameter names and arithmetic follow the reference LeWM, so that its weights load. What differs is what the reference leaves to
global state: dropout masks are drawn by name, and BatchNorm sees the batch of all processes.
"""

# B batch, T time, D latent, A flattened action block, h attention heads

from __future__ import annotations

import contextlib
from collections.abc import Iterator

import torch
import torch.nn.functional as F
from einops import rearrange
from torch import Tensor, nn

from phylatent import distributed
from phylatent.randomness import Draws


class GlobalBatchNorm1d(nn.BatchNorm1d):
    """BatchNorm over the global batch, on any device (torch's SyncBatchNorm refuses the CPU)."""

    update_running = True

    def forward(self, x: Tensor) -> Tensor:
        if not self.training:
            return super().forward(x)
        x = x.float()
        count = x.shape[0] * distributed.world_size()
        if count < 2:
            raise ValueError("BatchNorm in train mode needs at least two rows")
        mean = distributed.sum_across(x.sum(0)) / count
        centred = x - mean
        variance = distributed.sum_across(centred.square().sum(0)) / count
        if self.update_running:
            self._track(mean.detach(), variance.detach() * count / (count - 1))
        return centred * torch.rsqrt(variance + self.eps) * self.weight + self.bias

    @torch.no_grad()
    def _track(self, mean: Tensor, variance: Tensor) -> None:
        assert self.running_mean is not None
        assert self.running_var is not None
        assert self.num_batches_tracked is not None
        assert self.momentum is not None
        self.num_batches_tracked += 1
        self.running_mean.lerp_(mean, self.momentum)
        self.running_var.lerp_(variance, self.momentum)


@contextlib.contextmanager
def batch_statistics_only(module: nn.Module) -> Iterator[None]:
    """For an objective's extra pass: normalise with the batch's statistics, leave the running ones alone."""
    # one inside another: the inner one must not switch the outer one off
    before = {m: m.update_running for m in module.modules() if isinstance(m, GlobalBatchNorm1d)}
    for norm in before:
        norm.update_running = False
    try:
        yield
    finally:
        for norm, update in before.items():
            norm.update_running = update


class Projector(nn.Module):
    def __init__(self, width: int, hidden: int) -> None:
        super().__init__()
        self.net = nn.Sequential(nn.Linear(width, hidden), GlobalBatchNorm1d(hidden), nn.GELU(), nn.Linear(hidden, width))

    def forward(self, x: Tensor) -> Tensor:
        """[..., D] → [..., D]; every leading axis counts as batch."""
        return self.net(x.flatten(0, -2)).unflatten(0, x.shape[:-1])


class ActionEncoder(nn.Module):
    """G_a: an action block to an embedding, each block by itself."""

    def __init__(self, block_dim: int, smoothed: int, width: int) -> None:
        super().__init__()
        self.patch_embed = nn.Conv1d(block_dim, smoothed, kernel_size=1)
        self.embed = nn.Sequential(nn.Linear(smoothed, 4 * width), nn.SiLU(), nn.Linear(4 * width, width))

    def forward(self, blocks_BTA: Tensor) -> Tensor:
        smoothed = self.patch_embed(rearrange(blocks_BTA.float(), "b t a -> b a t"))
        return self.embed(rearrange(smoothed, "b s t -> b t s"))


class Dropout(nn.Module):
    """Dropout whose mask comes from named draws where there are some: two passes with the same draws share their masks."""

    def __init__(self, rate: float) -> None:
        super().__init__()
        self.rate = rate

    def forward(self, x: Tensor, draws: Draws | None = None) -> Tensor:
        if not self.training or self.rate == 0:
            return x
        if draws is None:
            return F.dropout(x, self.rate)
        passes = x.unflatten(0, (draws.copies, -1))
        keep = draws.uniform_rows(*passes.shape[1:]) >= self.rate
        return (passes * (keep / (1 - self.rate))).flatten(0, 1)


class Attention(nn.Module):
    """Causal self-attention. Written out: over three frames it costs nothing, and its dropout mask must be ours to draw."""

    def __init__(self, width: int, heads: int, head_dim: int, dropout: float) -> None:
        super().__init__()
        self.heads = heads
        self.norm = nn.LayerNorm(width)
        self.to_qkv = nn.Linear(width, 3 * heads * head_dim, bias=False)
        self.to_out = nn.Sequential(nn.Linear(heads * head_dim, width))
        self.dropout = Dropout(dropout)

    def forward(self, x_BTD: Tensor, draws: Draws | None) -> Tensor:
        q, k, v = rearrange(self.to_qkv(self.norm(x_BTD)), "b t (three h d) -> three b h t d", three=3, h=self.heads)
        scores = q @ k.transpose(-1, -2) * q.shape[-1] ** -0.5
        future = torch.ones(x_BTD.shape[1], x_BTD.shape[1], dtype=torch.bool, device=x_BTD.device).triu(1)
        attention = scores.masked_fill(future, float("-inf")).softmax(-1)
        attention = self.dropout(attention, draws and draws.named("attention"))
        mixed = rearrange(attention @ v, "b h t d -> b t (h d)")
        return self.dropout(self.to_out(mixed), draws and draws.named("attention_out"))


class FeedForward(nn.Module):
    def __init__(self, width: int, hidden: int, dropout: float) -> None:
        super().__init__()
        self.net = nn.ModuleDict({"0": nn.LayerNorm(width), "1": nn.Linear(width, hidden), "4": nn.Linear(hidden, width)})
        self.dropout = Dropout(dropout)

    def forward(self, x: Tensor, draws: Draws | None) -> Tensor:
        hidden = self.dropout(F.gelu(self.net["1"](self.net["0"](x))), draws and draws.named("mlp"))
        return self.dropout(self.net["4"](hidden), draws and draws.named("mlp_out"))


class ConditionalBlock(nn.Module):
    """A transformer block steered by the action embedding (AdaLN-zero: at initialisation it passes its input on)."""

    def __init__(self, width: int, heads: int, head_dim: int, hidden: int, dropout: float) -> None:
        super().__init__()
        self.attn = Attention(width, heads, head_dim, dropout)
        self.mlp = FeedForward(width, hidden, dropout)
        self.norm1 = nn.LayerNorm(width, elementwise_affine=False, eps=1e-6)
        self.norm2 = nn.LayerNorm(width, elementwise_affine=False, eps=1e-6)
        modulation = nn.Linear(width, 6 * width)
        nn.init.zeros_(modulation.weight)
        nn.init.zeros_(modulation.bias)
        self.adaLN_modulation = nn.Sequential(nn.SiLU(), modulation)

    def forward(self, x_BTD: Tensor, c_BTD: Tensor, draws: Draws | None) -> Tensor:
        return self.modulated(x_BTD, self.adaLN_modulation(c_BTD), draws)

    def modulated(self, x_BTD: Tensor, m_BTD6: Tensor, draws: Draws | None = None) -> Tensor:
        shift_a, scale_a, gate_a, shift_m, scale_m, gate_m = m_BTD6.chunk(6, dim=-1)
        x = x_BTD + gate_a * self.attn(self.norm1(x_BTD) * (1 + scale_a) + shift_a, draws)
        return x + gate_m * self.mlp(self.norm2(x) * (1 + scale_m) + shift_m, draws)


class Transformer(nn.Module):
    def __init__(self, blocks: list[ConditionalBlock], width: int) -> None:
        super().__init__()
        self.layers = nn.ModuleList(blocks)
        self.norm = nn.LayerNorm(width)

    def forward(self, x_BTD: Tensor, c_BTD: Tensor, draws: Draws | None) -> Tensor:
        for index, block in enumerate(self.layers):
            x_BTD = block(x_BTD, c_BTD, draws and draws.named(f"block{index}"))
        return self.norm(x_BTD)


class Predictor(nn.Module):
    """F_θ: latents and action embeddings of the context to the next latent at every context position, causally."""

    def __init__(self, *, frames: int, width: int, depth: int, heads: int, head_dim: int, hidden: int, dropout: float) -> None:
        super().__init__()
        self.pos_embedding = nn.Parameter(torch.randn(1, frames, width))
        self.transformer = Transformer([ConditionalBlock(width, heads, head_dim, hidden, dropout) for _ in range(depth)], width)

    def forward(self, z_BTD: Tensor, c_BTD: Tensor, draws: Draws | None = None) -> Tensor:
        return self.transformer(z_BTD + self.pos_embedding[:, : z_BTD.shape[1]], c_BTD, draws)
