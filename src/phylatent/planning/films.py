"""What an evaluation shows: filmstrips for the report (real above, imagined below), and side-by-side videos."""

# P filmed episodes, S frames at block spacing, D latent, F frames of the bank

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import numpy as np
from PIL import Image

from phylatent.data.readers import Episodes
from phylatent.data.stats import Side, episode_rows
from phylatent.files import atomic
from phylatent.planning.closed_loop import Start, Trajectory
from phylatent.planning.imagination import nearest
from phylatent.planning.planner import Planner
from phylatent.planning.protocols import Outcome
from phylatent.randomness import derive_seed
from phylatent.schema import PlanConfig

BANK = 2000
"""Held-out frames among which an imagined latent finds its picture."""
BATCH = 128
PANEL = 192
GAP = 8
MILLISECONDS = 80


class Bank:
    """Held-out frames and a model's latents of them: how an imagined latent is shown without a decoder."""

    def __init__(self, planner: Planner, episodes: Episodes, side: Side) -> None:
        rows = np.random.default_rng(derive_seed("bank")).permutation(episode_rows(episodes, side.episodes))[:BANK]
        self.frames = episodes.frames(np.sort(rows))
        parts = [planner.encode(self.frames[i : i + BATCH]).cpu().numpy() for i in range(0, len(self.frames), BATCH)]
        self.latents_FD = np.concatenate(parts)

    def picture(self, latents: np.ndarray) -> np.ndarray:
        return self.frames[nearest(latents, self.latents_FD)]


Filmed = tuple[int, Start, Trajectory, Outcome]
"""An episode whose frames were kept, with its place in the protocol's list."""


def filmstrips(filmed: Sequence[Filmed], bank: Bank, settings: PlanConfig, stride: int) -> dict[str, np.ndarray]:
    """Arrays of the filmed episodes."""
    steps = np.arange(0, settings.budget + 1, stride)
    indices, starts, trajectories, outcomes = zip(*filmed, strict=True)
    real = np.full((len(filmed), len(steps), *starts[0].goal_frame.shape), 255, np.uint8)
    imagined, known = real.copy(), np.zeros(real.shape[:2], bool)
    taken = known.copy()
    for p, (trajectory, outcome) in enumerate(zip(trajectories, outcomes, strict=True)):
        end = trajectory_end(trajectory, outcome, stride)
        for s, step in enumerate(steps.tolist()):
            if step in trajectory.frames:
                real[p, s], taken[p, s] = trajectory.frames[step], step <= end
        imagined[p, 0], known[p, 0] = trajectory.frames[0], True
        for plan in trajectory.plans:
            pictures = bank.picture(plan.imagined_kD)
            for block, picture in enumerate(pictures, start=1):
                s = plan.step // stride + block
                if s < len(steps):
                    imagined[p, s], known[p, s] = picture, True
    return {
        "shown": np.array(indices),
        "start": np.stack([trajectory.frames[0] for trajectory in trajectories]),
        "goal": np.stack([start.goal_frame for start in starts]),
        "real": real,
        "real_steps": steps,
        "imagined": imagined,
        "imagined_known": known,
        "taken": taken,
    }


def trajectory_end(trajectory: Trajectory, outcome: Outcome, stride: int) -> int:
    """The last step to show: the end of the block in which it succeeded, or of all that was done."""
    if outcome.first_success is None:
        return len(trajectory.rows) - 1
    return -(-outcome.first_success // stride) * stride


def write_video(path: Path, start: Start, trajectory: Trajectory, outcome: Outcome) -> None:
    """start · rollout · goal, an animated WebP that stops on the frame of success."""
    last = len(trajectory.rows) - 1 if outcome.first_success is None else outcome.first_success
    frames = [trajectory.frames[step] for step in sorted(trajectory.frames) if step <= last]
    ends = (1, 158, 115) if outcome.success else (213, 94, 0)
    images = [_side_by_side(frames[0], frame, start.goal_frame, (200, 200, 200)) for frame in frames]
    images.append(_side_by_side(frames[0], frames[-1], start.goal_frame, ends))
    durations = [MILLISECONDS] * (len(images) - 1) + [12 * MILLISECONDS]
    with atomic(path) as temporary:
        images[0].save(
            temporary, format="WEBP", save_all=True, append_images=images[1:], duration=durations, loop=0, lossless=True
        )


def _side_by_side(start: np.ndarray, now: np.ndarray, goal: np.ndarray, border: tuple[int, int, int]) -> Image.Image:
    sheet = Image.new("RGB", (3 * PANEL + 4 * GAP, PANEL + 2 * GAP), "white")
    sheet.paste(border, (PANEL + GAP + GAP // 2, GAP // 2, 2 * PANEL + 2 * GAP + GAP // 2, PANEL + GAP + GAP // 2))
    for place, frame in enumerate((start, now, goal)):
        panel = Image.fromarray(frame).resize((PANEL, PANEL), Image.Resampling.NEAREST)
        sheet.paste(panel, (GAP + place * (PANEL + GAP), GAP))
    return sheet
