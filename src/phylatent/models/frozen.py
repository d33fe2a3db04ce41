"""Rollouts of a world model in eval mode, prepared once for the thousands that a planner asks for.

What does not change between them is done beforehand: BatchNorm and the two action maps without anything between them are
folded into one linear map each, the 1 of AdaLN's `1 + scale` into a bias, and the weights lie as the processor's library wants
them. Keys and values are kept as far as positions allow, and a past that rows have in common is looked at once.
"""

# N rollouts, k steps ahead, t positions of a window, T those of it so far, D latent, A z-scored values of an action block,
# M the six modulations of a block, h attention heads, d values of a head, G different pasts
# Positions come first, so that those of a window are one slice of what was computed for all k steps.

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from phylatent.models.blocks import ConditionalBlock

if TYPE_CHECKING:
    from phylatent.models.world_model import WorldModel

KeysAndValues = tuple[Tensor, Tensor]
"""Of earlier positions [T, N, h, d]."""


class Linear(nn.Module):
    """A linear map, with GELU behind it where `gelu` says so."""

    def __init__(self, weight: Tensor, bias: Tensor | None, gelu: bool = False) -> None:
        super().__init__()
        self.weight, self.bias, self.gelu = weight, bias, gelu
        self.packed: Tensor | None = None

    @classmethod
    def of(cls, linear: nn.Module, gelu: bool = False) -> Linear:
        assert isinstance(linear, nn.Linear)
        return cls(linear.weight, linear.bias, gelu)

    def pack(self) -> None:
        """Lay the weights out as oneDNN multiplies them on a CPU: a tenth to a third faster, where no gradient is asked for."""
        if self.weight.device.type == "cpu" and torch.backends.mkldnn.is_available():
            self.packed = torch.ops.mkldnn._reorder_linear_weight(self.weight.detach())

    def forward(self, x: Tensor) -> Tensor:
        if self.packed is not None and not torch.is_grad_enabled():
            name, algorithm = ("gelu", "none") if self.gelu else ("none", "")
            return torch.ops.mkldnn._linear_pointwise(x, self.packed, self.bias, name, [], algorithm)
        y = F.linear(x, self.weight, self.bias)
        return F.gelu(y) if self.gelu else y


def in_a_row(first: nn.Conv1d, second: nn.Module) -> Linear:
    """A convolution of width 1 and a linear map behind it are one linear map."""
    assert first.bias is not None
    assert isinstance(second, nn.Linear)
    return Linear(second.weight @ first.weight.flatten(1), second.weight @ first.bias + second.bias)


def with_batch_norm(linear: nn.Module, norm: nn.Module, gelu: bool) -> Linear:
    """A linear map and the BatchNorm behind it, which in eval mode is linear as well."""
    assert isinstance(linear, nn.Linear)
    assert isinstance(norm, nn.BatchNorm1d)
    assert norm.running_mean is not None
    assert norm.running_var is not None
    scale = norm.weight * torch.rsqrt(norm.running_var + norm.eps)
    return Linear(linear.weight * scale[:, None], (linear.bias - norm.running_mean) * scale + norm.bias, gelu)


def modulation(blocks: Sequence[ConditionalBlock]) -> Linear:
    """Those of all blocks side by side; a scale comes out as `1 + scale`."""
    weights, biases = [], []
    for block in blocks:
        linear = block.adaLN_modulation[1]
        assert isinstance(linear, nn.Linear)
        ones = torch.zeros_like(linear.bias)
        for part in (1, 4):  # shift, scale and gate of the attention, then those of the MLP
            ones.chunk(6)[part].fill_(1)
        weights.append(linear.weight)
        biases.append(linear.bias + ones)
    return Linear(torch.cat(weights), torch.cat(biases))


class Block(nn.Module):
    """A transformer block of the predictor."""

    def __init__(self, block: ConditionalBlock) -> None:
        super().__init__()
        attention, mlp = block.attn, block.mlp.net
        self.heads = attention.heads
        self.norm1, self.norm_attention, self.norm2, self.norm_mlp = block.norm1, attention.norm, block.norm2, mlp["0"]
        qkv = attention.to_qkv.weight
        third = len(qkv) // 3
        self.to_q, self.to_kv, self.to_qkv = Linear(qkv[:third], None), Linear(qkv[third:], None), Linear(qkv, None)
        self.to_out, self.up, self.down = Linear.of(attention.to_out[0]), Linear.of(mlp["1"], gelu=True), Linear.of(mlp["4"])

    def forward(self, x_tND: Tensor, m_tNM: Tensor, seen: KeysAndValues | None, last: bool) -> tuple[Tensor, KeysAndValues]:
        """At positions after those seen; with `last` at the last one only. Returns the keys and values of all so far."""
        shift, scale, *_ = m_tNM.chunk(6, dim=-1)
        normed = self.norm_attention(torch.addcmul(shift, self.norm1(x_tND), scale))
        if last and len(x_tND) > 1:
            q, (k, v) = self.to_q(normed[-1:]), self.to_kv(normed).chunk(2, dim=-1)
        else:
            q, k, v = self.to_qkv(normed).chunk(3, dim=-1)
        q, k, v = (part.unflatten(-1, (self.heads, -1)) for part in (q, k, v))
        if seen is not None:
            k, v = torch.cat([seen[0], k]), torch.cat([seen[1], v])
        wanted = slice(-1 if last else 0, None)
        _, _, gate_a, shift, scale, gate_m = m_tNM[wanted].chunk(6, dim=-1)
        x = torch.addcmul(x_tND[wanted], gate_a, self.to_out(attend(q, k, v).flatten(2)))
        normed = self.norm_mlp(torch.addcmul(shift, self.norm2(x), scale))
        return torch.addcmul(x, gate_m, self.down(self.up(normed))), (k, v)


def attend(q_tNhd: Tensor, k_TNhd: Tensor, v_TNhd: Tensor) -> Tensor:
    """Causal attention of the last t of T positions, [t, N, h, d]. A window has few: sums beat products of tiny matrices."""
    mixed = []
    for upto, q_Nhd in enumerate(q_tNhd * q_tNhd.shape[-1] ** -0.5, start=len(k_TNhd) - len(q_tNhd) + 1):
        weights = (q_Nhd * k_TNhd[:upto]).sum(-1, keepdim=True).softmax(0)
        mixed.append((weights * v_TNhd[:upto]).sum(0))
    return torch.stack(mixed)


@dataclass(frozen=True)
class Past:
    """What came before a rollout, once for all neighbouring rows that have it in common, as a planner's candidates do."""

    latents_tGD: Tensor
    modulations_tGM: Tensor
    group_N: Tensor
    """Which of the G each row has."""


class FrozenRollout(nn.Module):
    """Rollouts with the weights as they are now. Gradients flow through it as through the model."""

    def __init__(self, model: WorldModel) -> None:
        super().__init__()
        blocks = [block for block in model.predictor.transformer.layers if isinstance(block, ConditionalBlock)]
        actions, projector = model.action_encoder, model.pred_proj.net
        self.context = model.config.clip.context
        self.positions_t1D = model.predictor.pos_embedding.transpose(0, 1)
        self.widen, self.embed = in_a_row(actions.patch_embed, actions.embed[0]), Linear.of(actions.embed[2])
        self.modulation, self.blocks = modulation(blocks), nn.ModuleList(Block(block) for block in blocks)
        self.norm = model.predictor.transformer.norm
        self.up, self.down = with_batch_norm(projector[0], projector[1], gelu=True), Linear.of(projector[3])
        self.compiled: Callable[..., tuple[Tensor, list[KeysAndValues]]] | None = None
        """What torch.compile made of `follow`."""

    def pack(self) -> FrozenRollout:
        """Itself, prepared for so many rollouts that some milliseconds for it are well spent."""
        for module in self.modules():
            if isinstance(module, Linear):
                module.pack()
        return self

    def forward(self, z_ND: Tensor, actions_NkA: Tensor, past: tuple[Tensor, Tensor] | None = None) -> Tensor:
        """Latents [N, k, D] after each z-scored block; `past`: the latents [N, t, D] before, and the blocks taken at them."""
        latents, m_kNM = [z_ND], self.modulations(actions_NkA)
        before = None if past is None else self.look_back(*past)
        length = 0 if past is None else past[0].shape[1]
        seen: list[KeysAndValues] = []
        done = 0  # positions of the present window that `seen` is about, counted from the present on
        for end in range(1, len(m_kNM) + 1):
            start = end - self.context
            if start > -length or end == 1:  # a new window: the first, or everything has moved by a position
                seen, done = [], max(0, start)
                if before is not None and start < 0:
                    seen = self.seen_before(before, max(0, length + start))
            last, seen = (self.compiled or self.follow)(torch.stack(latents[done:end]), m_kNM[done:end], seen)
            latents.append(self.down(self.up(self.norm(last[-1]))))
            done = end
        return torch.stack(latents[1:], dim=1)

    def modulations(self, actions_NkA: Tensor) -> Tensor:
        """[k, N, M of every block]: what the blocks make of the actions, wherever in a window they will stand."""
        embedded = self.embed(F.silu(self.widen(actions_NkA.transpose(0, 1).float().contiguous())))
        return self.modulation(F.silu(embedded))

    def follow(self, z_tND: Tensor, m_tNM: Tensor, seen: Sequence[KeysAndValues]) -> tuple[Tensor, list[KeysAndValues]]:
        """The transformer's output at the last position; `seen` is what was returned for those before, or empty."""
        first = len(seen[0][0]) if seen else 0
        x, now = z_tND + self.positions_t1D[first : first + len(z_tND)], []
        for index, (block, m) in enumerate(zip(self.blocks, m_tNM.chunk(len(self.blocks), dim=-1), strict=True)):
            x, kept = block(x, m, seen[index] if seen else None, last=index == len(self.blocks) - 1)
            now.append(kept)
        return x, now

    def look_back(self, latents_NtD: Tensor, actions_NtA: Tensor) -> Past:
        told = torch.cat([latents_NtD, actions_NtA], dim=-1).flatten(1)
        _, group_N, sizes = torch.unique_consecutive(told, dim=0, return_inverse=True, return_counts=True)
        first = sizes.cumsum(0) - sizes
        return Past(latents_NtD[first].transpose(0, 1), self.modulations(actions_NtA[first]), group_N)

    def seen_before(self, past: Past, start: int) -> list[KeysAndValues]:
        """Keys and values of each row's past from `start` on."""
        _, kept = (self.compiled or self.follow)(past.latents_tGD[start:], past.modulations_tGM[start:], [])
        return [(k[:, past.group_N], v[:, past.group_N]) for k, v in kept]
