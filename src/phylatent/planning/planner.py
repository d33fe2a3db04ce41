"""`Planner`: from what a model sees now and what it should see, to the actions that lead there."""

# P problems, N candidates, k blocks ahead, h past frames, D latent, A values of a raw action block

from __future__ import annotations

import inspect
from collections import deque
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np
import torch
from einops import rearrange, repeat
from torch import Tensor, nn

from phylatent.errors import UserError
from phylatent.models.latent import LatentModel
from phylatent.models.world_model import WorldModel
from phylatent.planning.actions import Actions
from phylatent.planning.cost import GoalCost
from phylatent.planning.solver import Search
from phylatent.planning.solvers import find_solver, make_settings
from phylatent.planning.solvers.gradient import descend
from phylatent.randomness import derive_seed
from phylatent.schema import PlanConfig

CHUNK_CPU, CHUNK_ELSEWHERE = 256, 8192
"""Sequences that are rolled out at once if `plan.chunk` does not say: on a CPU as many as its caches hold the arrays of."""


@dataclass(frozen=True)
class History:
    """What a plan knows of the past, at block spacing, oldest first: latents and the raw blocks taken at them."""

    latents_PhD: Tensor
    blocks_PhA: Tensor

    def for_each(self, count: int) -> History:
        """That of every problem, once for each of its candidates."""
        return History(_for_each(self.latents_PhD, count), _for_each(self.blocks_PhA, count))


def _for_each(x_P: Tensor, count: int) -> Tensor:
    return repeat(x_P, "p ... -> (p n) ...", n=count)


@dataclass(frozen=True)
class Plans:
    """One for each problem."""

    blocks_PkA: Tensor
    """Raw actions."""
    imagined_PkD: Tensor
    """Where the model expects to be after each block."""


class Planner:
    """Model-predictive control in the latent space; `act` serves a control loop of your own.

    `act` takes two frames, uint8 [H, W, 3], and returns one raw action.

    >>> import numpy as np
    >>> planner = phylatent.Planner(phylatent.WorldModel.from_pretrained(f"{run}/model"))
    >>> observation, goal = np.zeros((2, 32, 32, 3), dtype=np.uint8)
    >>> planner.act(observation, goal).shape
    (2,)
    """

    def __init__(
        self,
        model: LatentModel,
        *,
        settings: PlanConfig | None = None,
        actions: Actions | None = None,
        seed: int = 0,
        readout_DS: Tensor | None = None,
        solver_settings: Any = None,
    ) -> None:
        """What actions are, a phylatent model says itself. Its weights are taken as they are: make another planner for others.

        `readout_DS` is what `plan.cost=readout` compares; `solver_settings` are the solver's own, if not its defaults.
        """
        self.model = model
        self.settings = settings or PlanConfig()
        self.solver = find_solver(self.settings.solver)
        self.solver_settings = make_settings(self.solver, solver_settings)
        self.cost = GoalCost(readout_DS, self.settings.running)
        self.actions = actions or Actions.of(model)
        self.seed = seed
        self.takes_history = "past_NhD" in inspect.signature(model.rollout).parameters
        self.device = next(model.parameters()).device if isinstance(model, nn.Module) else torch.device("cpu")
        if isinstance(model, nn.Module):
            model.eval()
        self.chunk = self.settings.chunk or (CHUNK_CPU if self.device.type == "cpu" else CHUNK_ELSEWHERE)
        self._rollout = model.frozen(compiled=self.settings.compile) if isinstance(model, WorldModel) else model.rollout
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
        for first in range(0, len(z_ND), self.chunk):
            rows = slice(first, first + self.chunk)
            past: dict[str, Tensor] = {}
            if history is not None and self.takes_history:
                past = {"past_NhD": history.latents_PhD[rows], "past_blocks_NhA": history.blocks_PhA[rows]}
            parts.append(torch.as_tensor(self._rollout(z_ND[rows], blocks_NkA[rows], **past)).float())
        return torch.cat(parts)

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

    def _start(self, left_PkA: Tensor | None, horizon: int) -> tuple[Tensor | None, int, float]:
        """Where a search starts, how many iterations it has, and how far from there its first candidates are."""
        settings = self.settings
        if left_PkA is None or not (settings.warm or self.solver.always_warm):
            return None, settings.iterations, 1.0
        known = self.actions.z_scored(left_PkA[:, :horizon].to(self.device))
        unplanned = known.new_zeros(len(known), horizon - known.shape[1], known.shape[2])
        return torch.cat([known, unplanned], dim=1), settings.warm_iterations or settings.iterations, settings.warm_deviation

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
    ) -> Plans:
        """The plans that the solver finds, all problems side by side.

        `horizon` is the number of blocks if not the settings'; `left_PkA` the raw blocks that the last plan left.
        """
        settings, horizon = self.settings, horizon or self.settings.horizon
        start, iterations, deviation = self._start(left_PkA, horizon)
        low, high = (bound.to(self.device) for bound in self.actions.bounds())

        def cost(candidates_PNkA: Tensor) -> Tensor:
            count = candidates_PNkA.shape[1]
            blocks = self.actions.raw(rearrange(candidates_PNkA, "p n k a -> (p n) k a"))
            imagined = self.imagine(_for_each(z_PD, count), blocks, history and history.for_each(count))
            return self.cost.of_plans(rearrange(imagined, "(p n) k d -> p n k d", n=count), goal_PD[:, None])

        search = Search(
            cost,
            low_A=low,
            high_A=high,
            horizon=horizon,
            candidates=settings.candidates,
            elites=settings.elites,
            iterations=iterations,
            generators=generators,
            start_PkA=start,
            start_deviation=deviation,
            mixing=None if "noise" in self.solver.unused else self._mixing(horizon),
            stride=self.actions.stride,
        )
        plan = self.solver.solve(search, **asdict(self.solver_settings))
        if settings.gradient_steps:
            steps, rate = settings.gradient_steps, settings.gradient_rate
            plan = descend(cost, plan[:, None], low_A=low, high_A=high, steps=steps, rate=rate)[0][:, 0]
        blocks = self.actions.raw(plan)
        return Plans(blocks, self.imagine(z_PD, blocks, history))

    def generator(self, *name: object) -> torch.Generator:
        return torch.Generator(self.device).manual_seed(derive_seed(self.seed, self.solver.name, *name))

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
