"""What is installed only for those who use it: where it is missing, one sentence says who wants it and how to get it."""

from __future__ import annotations

from importlib.util import find_spec

from phylatent.errors import UserError

WHAT = {
    "envs": "the environments",
    "lance": "Lance",
    "report": "plotly and matplotlib",
    "tensorboard": "TensorBoard",
    "archives": "zstandard",
    "wandb": "the wandb package",
}
"""Extra → what it brings, in a sentence."""
MODULES = {
    "envs": (
        "stable_worldmodel", "gymnasium", "mujoco", "dm_control", "ogbench", "pygame", "pymunk", "shapely", "cv2", "imageio",
    ),
    "lance": ("lance", "pyarrow", "cv2"),
    "report": ("plotly", "matplotlib"),
    "tensorboard": ("tensorboard",),
    "archives": ("zstandard",),
    "wandb": ("wandb",),
}  # fmt: skip
"""Extra → what can be imported once it is installed; a test compares it with pyproject.toml."""


def missing(extra: str, *modules: str) -> list[str]:
    """Which modules of an extra are not installed, of all of them or of those that are named."""
    return [name for name in modules or MODULES[extra] if find_spec(name) is None]


def install(extra: str) -> str:
    """The line that installs it."""
    return f"pip install 'phylatent[{extra}]'"


def need(extra: str, use: str, *modules: str) -> None:
    """An error unless the extra is installed, or those of its modules that are named; `use` is who needs it."""
    if lacking := missing(extra, *modules):
        some = f" ({', '.join(lacking)} missing)" if len(lacking) < len(MODULES[extra]) and not modules else ""
        raise UserError(f"{use} needs {WHAT[extra]}: {install(extra)}{some}")
