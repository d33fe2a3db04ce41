"""Seconds of planning: ours against stable-worldmodel's `CEMSolver` around its own LeWM, for one episode and for fifty at once.

    python benchmarks/plan.py          # about three minutes; writes benchmarks/results/plan.json

Equal on both sides: weights (random), frames, candidates (the same noise, drawn here and there from the same generators),
elites, iterations, horizon, cost; start and goal are given as frames and encoded by both; one thread. Bounds are wide, for
the peer knows none. Its LeWM works with a solver batch of 1 only, so that it plans fifty episodes one after the other.
`plan_cost` and `peer_cost` are the mean costs of the plans that each finds, as its own model sees them; `difference` is the
largest relative difference of an episode's.
"""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import gymnasium
import harness
import numpy as np
import torch
from peer_lewm import SIZES, STRIDE, both

from phylatent.planning.planner import Planner
from phylatent.processes import one_thread
from phylatent.schema import PlanConfig

SEED, ACTION_DIM, HORIZON, WIDE = 1234, 2, 5, 100.0
CASES = [
    # model, episodes, candidates, iterations, repetitions, asked
    ("laptop", 1, 64, 8, 9, 1.4),
    ("laptop", 50, 64, 2, 5, 2.0),
    ("paper", 1, 100, 5, 5, 1.4),
    ("paper", 50, 32, 1, 3, 2.0),
]


def streams(episodes: int, iterations: int, shape: tuple[int, ...]) -> list[torch.Generator]:
    """For each episode the peer's generator as it stands when the peer comes to that episode."""
    whole, found = torch.Generator().manual_seed(SEED), []
    for _ in range(episodes):
        found.append(torch.Generator())
        found[-1].set_state(whole.get_state())
        for _ in range(iterations):
            torch.randn(shape, generator=whole)
    return found


def measure(
    size: str, episodes: int, candidates: int, iterations: int, repetitions: int, asked: float, **settings: Any
) -> harness.Row:
    from stable_worldmodel.solver import CEMSolver

    theirs, model = both(SIZES[size], ACTION_DIM, WIDE)
    elites, edge = max(2, candidates // 10), SIZES[size].image
    frames = np.random.default_rng(0).integers(0, 256, (2, episodes, edge, edge, 3), dtype=np.uint8)
    plan = PlanConfig(horizon=HORIZON, candidates=candidates, elites=elites, iterations=iterations, **settings)
    planner = Planner(model, settings=plan)
    found: dict[str, torch.Tensor] = {}

    def ours() -> None:
        now, goal = planner.encode(frames.reshape(-1, *frames.shape[2:])).chunk(2)
        generators = streams(episodes, iterations, (candidates, HORIZON, STRIDE * ACTION_DIM))
        found["ours"] = planner.search(now, goal, generators).blocks_PkA

    solver_settings = {"batch_size": 1, "num_samples": candidates, "topk": elites, "n_steps": iterations}
    pixels = model.normalise_frames(frames)[:, :, None]
    given = {"pixels": pixels[0], "goal": pixels[1], "action": torch.zeros(episodes, 1, STRIDE * ACTION_DIM)}

    def peer() -> None:
        solver = CEMSolver(model=theirs, seed=SEED, **solver_settings)
        space = gymnasium.spaces.Box(-WIDE, WIDE, (episodes, ACTION_DIM))
        config = SimpleNamespace(horizon=HORIZON, action_block=STRIDE)
        solver.configure(action_space=space, n_envs=episodes, config=config)
        found["peer"] = solver.solve(dict(given))["actions"]

    with one_thread():
        ours(), peer()
        pairs = harness.in_turns(lambda: harness.seconds(ours), lambda: harness.seconds(peer), repetitions)
        our_cost, peer_cost = expected(planner, frames, found["ours"]), expected_by(theirs, given, found["peer"].clone())
    return harness.compared(
        f"{size} model, {episodes} episode{'s' * (episodes > 1)}, {candidates} candidates, {iterations} iterations",
        pairs,
        unit="s",
        peer_name="CEMSolver",
        asked=asked,
        plan_cost=float(our_cost.mean()),
        peer_cost=float(peer_cost.mean()),
        difference=float(((our_cost - peer_cost).abs() / peer_cost).max()),
    )


@torch.no_grad()
def expected(planner: Planner, frames: np.ndarray, blocks_PkA: torch.Tensor) -> torch.Tensor:
    now, goal = (planner.encode(one) for one in frames)
    return planner.cost.of_plans(planner.imagine(now, blocks_PkA), goal)


@torch.no_grad()
def expected_by(theirs: Any, given: dict[str, torch.Tensor], blocks_PkA: torch.Tensor) -> torch.Tensor:
    costs = []
    for index, plan in enumerate(blocks_PkA):  # one by one: their `get_cost` fails for more
        info = {name: value[index : index + 1, None] for name, value in given.items()}
        costs.append(theirs.get_cost(info, plan[None, None])[0, 0])
    return torch.stack(costs)


if __name__ == "__main__":
    harness.write("plan", [measure(*case) for case in CASES])
