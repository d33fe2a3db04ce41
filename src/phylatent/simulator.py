"""The one place that imports stable-worldmodel's environments: a task's simulator, stepped, read, restored and rendered."""

from __future__ import annotations

import atexit
import importlib
import os
import sys
import warnings
from typing import Any

import numpy as np
from PIL import Image

from phylatent.errors import UserError
from phylatent.extras import need
from phylatent.schema import AS_PUBLISHED, FAST, Row, TaskSpec

PUBLISHED = "swm/"
"""How the names of stable-worldmodel's environments begin."""


def prepare_renderer() -> str:
    """Choose headless renderers before they are imported, MuJoCo's and pygame's, unless the user chose or has a display."""
    if sys.platform == "linux" and not os.environ.get("DISPLAY"):
        os.environ.setdefault("MUJOCO_GL", "egl")
        os.environ.setdefault("SDL_VIDEODRIVER", "dummy")
    return os.environ.get("MUJOCO_GL", "default")


def check_installed(task: TaskSpec, use: str) -> None:
    """An error unless the packages of a task's environment are there, better told before anything is begun; `use` needs it."""
    need("envs", use, *(() if task.env_id.startswith(PUBLISHED) else ("gymnasium",)))


class Simulator:
    """One environment of a task. Success and resets are the caller's business: nothing here resets by itself."""

    def __init__(self, task: TaskSpec, frame_size: int, render: str = AS_PUBLISHED) -> None:
        check_installed(task, f"simulating {task.name}")
        if task.read_columns is None or task.restore is None:
            raise UserError(f"task {task.name!r} is declared without its environment: read_columns and restore are missing")
        prepare_renderer()
        self.task = task
        self.frame_size = frame_size
        self.render = render
        with warnings.catch_warnings():
            warnings.filterwarnings("ignore", message="ale-py not found")
            warnings.filterwarnings("ignore", message=".*not in the possible render_modes")  # dm_control's name none
            made = self._make()
        # Without wrappers: a time limit must not end an episode that is restored in its midst.
        self.env: Any = made.unwrapped
        self._kept: Any = None

    def _make(self) -> Any:
        import gymnasium

        task = self.task
        if task.env_id.startswith(PUBLISHED):
            import stable_worldmodel  # noqa: F401  registers them
        try:
            return gymnasium.make(task.env_id, render_mode="rgb_array", disable_env_checker=True, **task.env_kwargs)
        except gymnasium.error.Error as error:
            raise UserError(
                f"the environment {task.env_id!r} of task {task.name!r} cannot be made: {' '.join(str(error).split())}; "
                "correct env_id, or register the environment in the file that declares the task"
            ) from error

    def reset(self, seed: int) -> None:
        with warnings.catch_warnings():
            # PushT's spaces hold plain numbers, and Gymnasium would say so in every process.
            warnings.filterwarnings("ignore", message=".*Casting input x to numpy array")
            self.env.reset(seed=seed)

    def step(self, action: np.ndarray) -> None:
        self.env.step(action)

    def columns(self) -> Row:
        assert self.task.read_columns is not None
        return self.task.read_columns(self.env)

    def restore(self, row: Row) -> None:
        assert self.task.restore is not None
        try:
            self.task.restore(self.env, row)
        except KeyError as error:
            name = error.args[0]
            if name in row or name not in self.task.columns:
                raise
            raise UserError(
                f"the data has no column {name!r}, which task {self.task.name!r} needs to restore a state; "
                f"use data that has it, or collect some: `phylatent collect task={self.task.name}`"
            ) from error

    def frame(self) -> np.ndarray:
        """The rendered state, uint8 [size, size, 3]; as published it is scaled as stable-worldmodel's own wrapper does it."""
        if self.render == FAST and self.task.render_fast is not None:
            return self.task.render_fast(self.env, self.frame_size)
        draw = self.task.render_same
        image = np.ascontiguousarray(self.env.render() if draw is None else draw(self.env))
        self._keep_renderer()
        return scaled(image, self.frame_size)

    def _keep_renderer(self) -> None:
        """To the end of the process: one that MuJoCo drops earlier deletes textures of whichever other is in use."""
        renderer = getattr(self.env, "_renderer", None)
        if renderer is not None and renderer is not self._kept:
            self._kept = renderer
            atexit.register(renderer.close)

    @staticmethod
    def load(place: str) -> Any:
        """An object of the environments' packages that a task needs, named as "module:name"."""
        module, _, name = place.partition(":")
        return getattr(importlib.import_module(module), name)

    def close(self) -> None:
        self.env.close()


_SIDE_BY_SIDE: list[Simulator] = []


def side_by_side(task: TaskSpec, frame_size: int, render: str, count: int) -> list[Simulator]:
    """Simulators in any state, the same ones whenever asked for again.

    A MuJoCo renderer lives to the end of its process: with new ones for each model that is planned with, they would add up.
    """
    fitting = [s for s in _SIDE_BY_SIDE if s.task is task and (s.frame_size, s.render) == (frame_size, render)]
    for _ in range(count - len(fitting)):
        fitting.append(Simulator(task, frame_size, render))
        fitting[-1].reset(seed=0)  # an environment wants one before anything else
        _SIDE_BY_SIDE.append(fitting[-1])
    return fitting[:count]


def scaled(image: np.ndarray, size: int) -> np.ndarray:
    """A frame uint8 [size, size, 3], itself if it is of that size."""
    if image.shape[:2] == (size, size):
        return image
    return np.asarray(Image.fromarray(image).resize((size, size), Image.Resampling.BILINEAR))
