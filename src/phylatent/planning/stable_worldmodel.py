"""Our model inside stable-worldmodel's own planning: its solvers ask for `get_cost`, its policies for an action scaler."""

# B environments, S candidates, k blocks, A values of an action block, D latent

from __future__ import annotations

from typing import Any

import numpy as np
import torch
from einops import rearrange, repeat
from torch import Tensor, nn

from phylatent.models.world_model import WorldModel
from phylatent.planning.actions import Actions
from phylatent.planning.cost import GoalCost


class CostModel(nn.Module):
    """What `CEMSolver(model=…)` takes. Observations and goals come as uint8 frames [B, S, T, H, W, 3], as `World` makes them.

    >>> model = WorldModel.from_pretrained("runs/my-run/model")
    >>> solver = CEMSolver(model=CostModel(model), num_samples=100, topk=10, n_steps=10)
    >>> policy = WorldModelPolicy(solver=solver, config=PlanConfig(...), process={"action": ActionScaler(model)})
    """

    def __init__(self, model: WorldModel) -> None:
        super().__init__()
        self.model = model.eval()
        self.actions = Actions.of(model)
        self.rollout = model.frozen()

    @torch.no_grad()
    def get_cost(self, info: dict[str, Any], candidates_BSkA: Tensor) -> Tensor:
        """Costs [B, S] of z-scored candidates, clamped to the action bounds.

        A solver asks again and again about the same observation and hands over the same dictionary: latents stay in it.
        """
        for name, frames in (("phylatent_now", "pixels"), ("phylatent_goal", "goal")):
            if name not in info:
                info[name] = self.model.encode(info[frames][:, 0, -1].to(torch.uint8))
        count = candidates_BSkA.shape[1]
        blocks = self.actions.raw(rearrange(candidates_BSkA.float(), "b s k a -> (b s) k a"))
        start = repeat(info["phylatent_now"], "b d -> (b s) d", s=count)
        imagined = rearrange(self.rollout(start, blocks), "(b s) k d -> b s k d", s=count)
        return GoalCost().of_plans(imagined, info["phylatent_goal"][:, None])


class ActionScaler:
    """z-scores of raw actions [..., action dim], there and back."""

    def __init__(self, model: WorldModel) -> None:
        normaliser = Actions.of(model).normaliser
        self.mean, self.std, self.scale = (
            np.array(v, dtype=np.float32) for v in (normaliser.mean, normaliser.std, normaliser.scale)
        )

    def transform(self, actions: np.ndarray) -> np.ndarray:
        return (actions - self.mean) * self.scale

    def inverse_transform(self, actions: np.ndarray) -> np.ndarray:
        return actions * self.std + self.mean
