"""The whole training graph as one module: world model, objectives, and their weighted sum, eq:full_objective."""

# B batch, T frames, H context frames, A action block, S physical target

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import torch
from torch import Tensor, nn

from phylatent import distributed
from phylatent.data.stats import unroll
from phylatent.models.encoders import encoder_settings, find_encoder
from phylatent.models.world_model import WorldModel, WorldModelConfig
from phylatent.objectives import OBJECTIVES
from phylatent.objectives.objective import PLACES, Beside, Dims, Objective, Sequences
from phylatent.objectives.psg import CIRCULAR
from phylatent.randomness import Draws, seeded_init
from phylatent.schema import Config, Normaliser
from phylatent.schema.settings import SHARES
from phylatent.training.balance import Balance
from phylatent.training.passes import embed_together, predict_together
from phylatent.training.shares import Entries, gradient_norms, shares, watched


@dataclass(frozen=True)
class Losses:
    total: Tensor
    terms: dict[str, Tensor]
    entries: dict[str, Entries]
    """Where each term's gradient enters the model."""

    def over_processes(self) -> dict[str, float]:
        """The global batch's losses as numbers: `loss` for the weighted sum, each term under its name."""
        values = distributed.mean_across(torch.stack([self.total, *self.terms.values()]).float())
        return dict(zip(["loss", *self.terms], values.tolist(), strict=True))


class TrainingGraph(nn.Module):
    target_mean: Tensor
    target_scale: Tensor

    def __init__(
        self,
        world_model: WorldModel,
        terms: dict[str, Objective],
        target: Normaliser,
        periods: Mapping[int, float],
        balance: Balance | None = None,
    ) -> None:
        super().__init__()
        self.periods = periods
        self.world_model = world_model
        self.terms = nn.ModuleDict(terms)
        self.configured = {name: term.settings.weight for name, term in terms.items()}
        self.balance = balance
        self.register_buffer("target_mean", torch.tensor(target.mean, dtype=torch.float32), persistent=False)
        self.register_buffer("target_scale", torch.tensor(target.scale, dtype=torch.float32), persistent=False)

    @property
    def weights(self) -> Mapping[str, float | Tensor]:
        """What each term is multiplied with by now."""
        return self.configured if self.balance is None else self.balance.weights()

    def objective(self, name: str) -> Objective:
        term = self.terms[name]
        assert isinstance(term, Objective)
        return term

    def normalise_targets(self, targets: Tensor) -> Tensor:
        """S̄ from raw targets [..., S]: angles unrolled if the configuration asks for it, then z-scored."""
        return (unroll(targets, periods=self.periods) - self.target_mean) * self.target_scale

    def sequences(self, frames: Tensor, actions: Tensor, targets: Tensor, draws: Draws) -> Sequences:
        """eq:phylatent_sequence from uint8 frames [B, T, h, w, 3], raw action blocks [B, H, A] and raw targets [B, T, S].

        Frames and actions that objectives want to see beside the clip's go through the model in the same passes.
        """
        pixels = self.world_model.normalise_frames(frames)
        more = _given({name: self.objective(name).more_frames(pixels, draws.named(name)) for name in self.terms})
        z, *others = embed_together(self.world_model, [pixels, *more.values()])
        beside = {name: Beside(z_BtD=z_more) for name, z_more in zip(more, others, strict=True)}
        return self.from_latents(pixels, z, actions, targets, draws, list(self.terms), beside)

    def from_latents(
        self,
        pixels: Tensor,
        z: Tensor,
        actions: Tensor,
        targets: Tensor,
        draws: Draws,
        names: Sequence[str],
        beside: Mapping[str, Beside] | None = None,
    ) -> Sequences:
        """The same from Z on, for the named terms."""
        model, clip = self.world_model, self.world_model.config.clip
        blocks = model.normalise_actions(actions)
        more = _given({name: self.objective(name).more_actions(blocks, draws.named(name)) for name in names})
        c, *c_more = model.embed_actions(torch.cat([blocks, *more.values()])).chunk(1 + len(more))
        z_context = z[:, : clip.context]
        predicted, *others = predict_together(model, z_context, [c, *c_more], draws)
        beside = dict(beside or {})
        for (name, taken), outcome in zip(more.items(), others, strict=True):
            beside[name] = replace(beside.get(name, Beside()), actions_BHA=taken, predicted_BHD=outcome)
        return Sequences(
            pixels=pixels,
            actions_BHA=blocks,
            z_BTD=z,
            c_BHD=c,
            z_context_BHD=z_context,
            z_future_BHD=z[:, clip.offset :],
            z_predicted_BHD=predicted,
            targets_BTS=self.normalise_targets(targets),
            offset=clip.offset,
            beside=beside,
        )

    def forward(self, frames: Tensor, actions: Tensor, targets: Tensor, draws: Draws, rebalance: bool = False) -> Losses:
        """Every term. `rebalance` measures their gradients first, and sets the weights by them."""
        return self.losses(self.sequences(frames, actions, targets, draws), draws, list(self.terms), rebalance)

    def losses(self, seq: Sequences, draws: Draws, names: Sequence[str], rebalance: bool = False) -> Losses:
        """The named terms and their weighted sum."""
        losses: dict[str, Tensor] = {}
        entries: dict[str, Entries] = {}
        for name in names:
            with watched(self.world_model, seq, name) as entries[name]:
                losses[name] = self.terms[name](seq, self.world_model, draws.named(name))
        if rebalance and self.balance is not None:
            self.balance.observe(gradient_norms(losses, entries))
        weights = self.weights
        total = torch.stack([weights[name] * loss for name, loss in losses.items()]).sum()
        return Losses(total=total, terms=losses, entries=entries)

    def shares(self, losses: Losses) -> dict[str, float]:
        """`share/z/<term>` and `share/zhat/<term>`: each weighted term's part of the gradient at Z and at Ẑ."""
        norms_N2 = gradient_norms(losses.terms, losses.entries)
        weights_N = norms_N2.new_tensor([float(self.weights[name]) for name in losses.terms])
        parts = shares(weights_N[:, None] * norms_N2).T.tolist()
        return {
            f"share/{place}/{name}": value
            for place, values in zip(PLACES, parts, strict=True)
            for name, value in zip(losses.terms, values, strict=True)
        }


def _given(asked: Mapping[str, Tensor | None]) -> dict[str, Tensor]:
    return {name: tensor for name, tensor in asked.items() if tensor is not None}


def target_periods(config: Config) -> Mapping[int, float]:
    """The dimensions of the physical target that are regressed as sine and cosine, with their periods."""
    psg = config.objective_settings.get("psg")
    return config.spec.target.angles if psg is not None and psg.angles == CIRCULAR else {}


def build(
    config: Config,
    action: Normaliser | None = None,
    target: Normaliser | None = None,
    action_correlations: tuple[Any, ...] | None = None,
) -> TrainingGraph:
    """The training graph of a configuration. Without statistics of data, actions and targets pass as they are.

    >>> graph = phylatent.build(phylatent.compose("tworooms", "smoke", "phylatent"))
    >>> list(graph.terms)
    ['pred', 'sigreg', 'svic', 'psg', 'fra', 'casc', 'ld']
    """
    task = config.spec
    world_model = WorldModel(
        WorldModelConfig(
            action_dim=task.action_dim,
            # A model is published under its encoder's name, not with the path of the file that declares it.
            model=replace(config.model, encoder=find_encoder(config.model.encoder).name),
            encoder=encoder_settings(config.encoder),
            clip=config.clip,
            task=task.name,
            variant=config.variant,
            action_low=task.action_low,
            action_high=task.action_high,
            action=action,
            action_correlations=action_correlations,
            target=target,
        ),
        seed=config.seed,
    )
    periods = target_periods(config)
    dims = Dims(latent=config.model.width, target=task.target.dim + len(periods), action=world_model.config.block_dim)
    terms = {}
    for name in config.objectives:
        with seeded_init(config.seed, name):
            terms[name] = OBJECTIVES[name](config.objective_settings[name], dims)
    target = target or Normaliser((0.0,) * dims.target, (1.0,) * dims.target)
    balance = Balance(terms) if config.train.balance == SHARES else None
    return TrainingGraph(world_model, terms, target, periods, balance)
