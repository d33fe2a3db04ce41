"""`Planner`: from what a model sees now and what it should see, to the actions that lead there."""

# P problems, N candidates, k blocks ahead, h past frames, D latent, A values of a raw action block

from __future__ import annotations

import inspect
from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from einops import rearrange, repeat
from torch import Tensor, nn

from phylatent.errors import UserError
from phylatent.models.latent import LatentModel
from phylatent.planning.cem import cem
from phylatent.planning.descent import descend
from phylatent.randomness import derive_seed
from phylatent.schema import Normaliser, PlanConfig


@dataclass(frozen=True)
class Actions:
    """What a raw action is: its bounds, its z-scores, and how many of them make a block."""

    low: tuple[float, ...]
    high: tuple[float, ...]
    normaliser: Normaliser
    stride: int = 5
    correlations: tuple[Any, ...] | None = None
    """Of z-scored actions in the training data, [lag, dimension, dimension of the action that much later]."""

    @classmethod
    def of(cls, model: Any) -> Actions:
        """As a phylatent model brings them along."""
        config = getattr(model, "config", None)
        if config is None or getattr(config, "action", None) is None or config.action_low is None:
            raise UserError(
                "this model does not say what its actions are; give Planner(model, actions=Actions(low, high, normaliser))"
            )
        correlations = getattr(config, "action_correlations", None)
        return cls(config.action_low, config.action_high, config.action, config.clip.stride, correlations)

    def bounds(self) -> tuple[Tensor, Tensor]:
        """Of a z-scored block [A]; a dimension that never varied in the data stays where it was."""
        mean, scale = np.array(self.normaliser.mean), np.array(self.normaliser.scale)
        ends = [torch.tensor((np.array(end) - mean) * scale, dtype=torch.float32) for end in (self.low, self.high)]
        return ends[0].repeat(self.stride), ends[1].repeat(self.stride)

    def mixing(self, blocks: int) -> Tensor:
        """[k·A, k·A]: white noise times this varies over a plan of k blocks as actions do in the training data."""
        if self.correlations is None:
            raise UserError("plan.noise=data needs a model that knows how actions vary in its training data; train it anew")
        lags = np.array(self.correlations)
        steps, dims = blocks * self.stride, lags.shape[1]
        covariance = np.zeros((steps, dims, steps, dims))
        for first in range(steps):
            for later in range(first, min(steps, first + len(lags))):
                covariance[first, :, later] = lags[later - first]
                covariance[later, :, first] = lags[later - first].T
        values, vectors = np.linalg.eigh(covariance.reshape(steps * dims, steps * dims))
        mixing = vectors * np.sqrt(np.maximum(values, 1e-6))
        mixing /= np.linalg.norm(mixing, axis=1, keepdims=True)
        return torch.tensor(mixing, dtype=torch.float32)

    def raw(self, z_A: Tensor) -> Tensor:
        """z-scored blocks [..., A] → raw ones, inside the bounds to the last bit."""
        repeated = [torch.tensor(v, dtype=torch.float32).repeat(self.stride).to(z_A.device) for v in self._constants()]
        mean, std, low, high = repeated
        return (z_A * std + mean).clamp(low, high)

    def z_scored(self, raw_A: Tensor) -> Tensor:
        mean, scale = (torch.tensor(v).repeat(self.stride).to(raw_A) for v in (self.normaliser.mean, self.normaliser.scale))
        return (raw_A - mean) * scale

    def _constants(self) -> tuple[tuple[float, ...], ...]:
        return self.normaliser.mean, self.normaliser.std, self.low, self.high


@dataclass(frozen=True)
class History:
    """What a plan knows of the past, at block spacing, oldest first: latents and the raw blocks taken at them."""

    latents_PhD: Tensor
    blocks_PhA: Tensor


@dataclass(frozen=True)
class Found:
    blocks_PkA: Tensor
    """Raw actions."""
    imagined_PkD: Tensor
    """Where the model expects to be after each block."""


class Planner:
    """Model-predictive control in the latent space; `act` serves a control loop of your own.

    >>> planner = Planner(WorldModel.from_pretrained("runs/my-run/model"))
    >>> action = planner.act(observation, goal)   # two uint8 frames [H, W, 3]; one raw action
    """

    def __init__(
        self,
        model: LatentModel,
        *,
        settings: PlanConfig | None = None,
        actions: Actions | None = None,
        seed: int = 0,
        readout_DS: Tensor | None = None,
    ) -> None:
        self.model = model
        self.readout_DS = readout_DS
        """What the cost compares instead of latents, where `plan.cost` asks for it."""
        self.settings = settings or PlanConfig()
        self.actions = actions or Actions.of(model)
        self.seed = seed
        self.takes_history = "past_NhD" in inspect.signature(model.rollout).parameters
        self.device = next(model.parameters()).device if isinstance(model, nn.Module) else torch.device("cpu")
        if isinstance(model, nn.Module):
            model.eval()
        if self.settings.cost == "readout" and readout_DS is None:
            raise UserError("plan.cost=readout needs a map from latents to states: Planner(model, readout_DS=fit_readout(…))")
        self._mixings: dict[int, Tensor] = {}
        self.reset()

    @property
    def frames_before(self) -> int:
        """How many frames before the present one a plan may see."""
        return self.settings.context - 1 if self.takes_history else 0

    def reset(self) -> None:
        """Forget what was seen and planned: call it between episodes."""
        self._queue: deque[np.ndarray] = deque()
        self._past: list[tuple[np.ndarray, np.ndarray]] = []
        self._block_frame = np.empty(0)
        self._taken: list[np.ndarray] = []
        self._goal: tuple[np.ndarray, Tensor] | None = None
        self._plans = 0
        self._blocks_done = 0
        self._left: Tensor | None = None

    @torch.no_grad()
    def encode(self, frames: np.ndarray | Tensor) -> Tensor:
        """uint8 frames [N, H, W, 3] → latents [N, D]."""
        seen = frames if isinstance(frames, Tensor) else torch.from_numpy(np.array(frames))
        return torch.as_tensor(self.model.encode(seen)).float().to(self.device)

    def imagine(self, z_ND: Tensor, blocks_NkA: Tensor, history: History | None = None) -> Tensor:
        """Latents [N, k, D] after each raw block, `chunk` sequences at a time."""
        parts = []
        for first in range(0, len(z_ND), self.settings.chunk):
            rows = slice(first, first + self.settings.chunk)
            past: dict[str, Tensor] = {}
            if history is not None and self.takes_history:
                past = {"past_NhD": history.latents_PhD[rows], "past_blocks_NhA": history.blocks_PhA[rows]}
            parts.append(torch.as_tensor(self.model.rollout(z_ND[rows], blocks_NkA[rows], **past)).float())
        return torch.cat(parts)

    def cost(self, z_ND: Tensor, goal_ND: Tensor) -> Tensor:
        """The squared distance [N] that planning lessens, from latents to the goal's."""
        away = z_ND - goal_ND
        if self.readout_DS is not None:
            away = away @ self.readout_DS.to(away)
        return away.square().sum(-1)

    def plan_cost(self, imagined_kD: Tensor, goal_D: Tensor) -> Tensor:
        """Of plans [..., k, D]: the cost at their ends and, as `plan.running` says, on the way there."""
        costs_k = self.cost(imagined_kD, goal_D[..., None, :])
        on_the_way = costs_k[..., :-1].mean(-1) if self.settings.running and costs_k.shape[-1] > 1 else 0.0
        return costs_k[..., -1] + self.settings.running * on_the_way

    def horizon(self, blocks_done: int) -> int:
        """Blocks of the next plan: always as many, or only those left until the arrival that was planned for."""
        whole = self.settings.horizon
        return whole - blocks_done % whole if self.settings.shrink else whole

    def _mixing(self, horizon: int) -> Tensor | None:
        if self.settings.noise == "white":
            return None
        if horizon not in self._mixings:
            self._mixings[horizon] = self.actions.mixing(horizon).to(self.device)
        return self._mixings[horizon]

    @torch.no_grad()
    def search(
        self,
        z_PD: Tensor,
        goal_PD: Tensor,
        generators: Sequence[torch.Generator],
        history: History | None = None,
        *,
        horizon: int | None = None,
        left_PkA: Tensor | None = None,
    ) -> Found:
        """CEM on the cost of the last imagined latent, all problems side by side.

        `horizon` is the number of blocks if not the settings'; `left_PkA` the raw blocks that the last plan left.
        """
        horizon, start = horizon or self.settings.horizon, None
        iterations, deviation = self.settings.iterations, 1.0
        if self.settings.warm and left_PkA is not None:
            known = self.actions.z_scored(left_PkA[:, :horizon].to(self.device))
            start = torch.cat([known, known.new_zeros(len(known), horizon - known.shape[1], known.shape[2])], dim=1)
            iterations, deviation = self.settings.warm_iterations or iterations, self.settings.warm_deviation
        count = self.settings.candidates
        low, high = (bound.to(self.device) for bound in self.actions.bounds())

        def spread(x: Tensor) -> Tensor:
            return repeat(x, "p ... -> (p n) ...", n=count)

        seen = spread(z_PD)
        past = history and History(spread(history.latents_PhD), spread(history.blocks_PhA))

        def cost(candidates_PNkA: Tensor) -> Tensor:
            blocks = self.actions.raw(rearrange(candidates_PNkA, "p n k a -> (p n) k a"))
            imagined = self.imagine(seen, blocks, past)
            return self.plan_cost(rearrange(imagined, "(p n) k d -> p n k d", n=count), goal_PD[:, None])

        mean = cem(
            cost,
            low_A=low,
            high_A=high,
            horizon=horizon,
            candidates=count,
            elites=self.settings.elites,
            iterations=iterations,
            generators=generators,
            start_PkA=start,
            start_deviation=deviation,
            mixing=self._mixing(horizon),
        )
        if self.settings.gradient_steps:
            mean = descend(
                lambda plan_PkA: self.plan_cost(self.imagine(z_PD, self.actions.raw(plan_PkA), history), goal_PD),
                mean,
                low_A=low,
                high_A=high,
                steps=self.settings.gradient_steps,
                rate=self.settings.gradient_rate,
            )
        blocks = self.actions.raw(mean)
        return Found(blocks, self.imagine(z_PD, blocks, history))

    def generator(self, *name: object) -> torch.Generator:
        return torch.Generator(self.device).manual_seed(derive_seed(self.seed, "cem", *name))

    def act(self, observation: np.ndarray, goal: np.ndarray) -> np.ndarray:
        """The next raw action [action dim]; plans anew when the last plan is used up, or the goal is another one."""
        observation, goal = np.asarray(observation), np.asarray(goal)
        if len(self._taken) == self.actions.stride:
            self._past.append((self._block_frame, np.concatenate(self._taken)))
            self._past = self._past[max(0, len(self._past) - self.frames_before) :]
            self._taken = []
        if self._goal is None or not np.array_equal(self._goal[0], goal):
            self._goal = (goal.copy(), self.encode(goal[None]))
            self._queue.clear()
            self._blocks_done, self._left = 0, None
            if self._taken:  # in the middle of a block: what came before no longer lies at block spacing
                self._past, self._taken = [], []
        if not self._taken:
            self._block_frame = observation.copy()
        if not self._queue:
            self._queue.extend(self._plan(observation, self._goal[1]))
        action = self._queue.popleft()
        self._taken.append(action)
        return action

    def _plan(self, observation: np.ndarray, goal_PD: Tensor) -> np.ndarray:
        *before, now = self.encode(np.stack([*(frame for frame, _ in self._past), observation])).split(1)
        history = None
        if before:
            blocks = torch.as_tensor(np.stack([block for _, block in self._past]), dtype=torch.float32, device=self.device)
            history = History(torch.cat(before)[None], blocks[None])
        generators, horizon = [self.generator("act", self._plans)], self.horizon(self._blocks_done)
        found = self.search(now, goal_PD, generators, history, horizon=horizon, left_PkA=self._left)
        self._plans += 1
        blocks = found.blocks_PkA[0, : self.settings.receding]
        self._blocks_done += len(blocks)
        self._left = found.blocks_PkA[:, len(blocks) :] if horizon > len(blocks) else None
        return rearrange(blocks, "k (s a) -> (k s) a", s=self.actions.stride).cpu().numpy()
