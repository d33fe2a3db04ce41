"""What `pip install phylatent`, without extras, must be able to do; run by the Python of such an installation.

    python check_core.py

It makes a tiny data file, trains a few steps, loads the model, plans with it and diagnoses it; and whatever needs an extra must
answer with one sentence that has the line to install it.
"""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
from collections.abc import Callable
from importlib import metadata
from importlib.util import find_spec
from pathlib import Path

EPISODES, STEPS, SIZE = 12, 30, 32


def write_data(path: Path) -> None:
    """TwoRooms as `collect` records it, as far as columns go: a red dot that is where `proprio` says."""
    import h5py
    import numpy as np

    rng, rows = np.random.default_rng(0), EPISODES * STEPS
    actions = rng.uniform(-1, 1, (EPISODES, STEPS, 2)).astype(np.float32)
    starts = rng.uniform(50, 170, (EPISODES, 1, 2))
    places = np.clip(starts + 5 * np.cumsum(np.pad(actions, ((0, 0), (1, 0), (0, 0)))[:, :-1], axis=1), 20, 200)
    actions[:, -1] = np.nan
    position = places.reshape(rows, 2).astype(np.float32)
    grid = (np.arange(SIZE) + 0.5) * 224 / SIZE
    x, y = position[:, 0, None, None], position[:, 1, None, None]
    dot = np.exp(-((grid[None, None] - x) ** 2 + (grid[None, :, None] - y) ** 2) / 200)
    pixels = np.full((rows, SIZE, SIZE, 3), 255, np.uint8)
    pixels[..., 1:] = (255 * (1 - dot))[..., None].astype(np.uint8)
    columns = {"pixels": pixels, "action": actions.reshape(rows, 2), "proprio": position, "state": position}
    columns |= {"goal_state": position, "step_idx": np.tile(np.arange(STEPS), EPISODES)}
    columns |= {"ep_len": np.full(EPISODES, STEPS, np.int32), "ep_offset": STEPS * np.arange(EPISODES, dtype=np.int64)}
    with h5py.File(path, "w") as file:
        for name, values in columns.items():
            file.create_dataset(name, data=values)


def check_nothing_else_is_there() -> None:
    from phylatent.extras import MODULES

    there = sorted({name for names in MODULES.values() for name in names if find_spec(name) is not None})
    assert not there, f"this is no installation without extras: {', '.join(there)} can be imported"


def check_command_line() -> None:
    import phylatent

    command = Path(sys.executable).with_name("phylatent")
    said = subprocess.run([command, "--version"], capture_output=True, text=True, check=True).stdout
    assert said == f"phylatent {phylatent.__version__}\n", said
    assert metadata.version("phylatent") == phylatent.__version__
    helped = subprocess.run([command, "train", "--help"], capture_output=True, text=True, check=True).stdout
    assert "train" in helped


def check_core(folder: Path) -> Path:
    """Train, load, plan, diagnose, inspect; returns the run."""
    import h5py

    import phylatent

    data = folder / "data.h5"
    write_data(data)
    with h5py.File(data) as file:
        first, last = file["pixels"][0], file["pixels"][-1]
    settings = [f"data={data}", "train.steps=2", "device=cpu"]
    run = folder / "run"
    config = phylatent.compose(preset="smoke", variant="phylatent", overrides=settings)
    phylatent.train(config, out=run)

    model = phylatent.WorldModel.from_pretrained(run / "model")
    action = phylatent.Planner(model).act(first, last)
    assert action.shape == (2,), action
    [record] = phylatent.diagnose([run], overrides=["diagnostics=invariance,identifiability"])
    assert all(record[name]["eligible"] > 0 for name in ("invariance", "identifiability")), record
    phylatent.export_model(run, format="phylatent", out=folder / "exported")
    assert phylatent.inspect(config, out=folder / "looked")["episodes"] == EPISODES
    if hasattr(phylatent, "audit"):
        phylatent.audit(model, task="tworooms", data=str(data))
    return run


def check_sentences(folder: Path, run: Path) -> None:
    """One sentence for each extra, from whatever needs it, and nothing begun."""
    import phylatent
    from phylatent.commands.exchange import import_data
    from phylatent.commands.report import report
    from phylatent.extras import MODULES

    archive = folder / "data.h5.zst"
    archive.write_bytes(b"\x28\xb5\x2f\xfd" + bytes(64))
    (folder / "table.lance").mkdir()
    config = phylatent.compose(preset="smoke")
    wandb = phylatent.compose(preset="smoke", overrides=[f"data={folder / 'data.h5'}", "train.wandb=true"])
    uses: list[tuple[str, str, Callable[[], object]]] = [
        ("envs", "collect needs the environments", lambda: phylatent.collect(config, out=folder / "new.h5")),
        ("envs", "plan needs the environments", lambda: phylatent.plan([run])),
        ("envs", "such as counterfactual, needs the environments", lambda: phylatent.diagnose([run], out=folder / "all")),
        ("report", "report needs plotly and matplotlib", lambda: report([run])),
        ("lance", "needs Lance", lambda: phylatent.inspect(config, path=folder / "table.lance")),
        ("archives", "needs zstandard", lambda: import_data(archive, out=folder / "unpacked.h5")),
        ("wandb", "train.wandb=true needs", lambda: phylatent.train(wandb, out=folder / "other")),
    ]
    before = sorted(path.name for path in folder.iterdir())
    for extra, words, use in uses:
        said = sentence(use)
        assert words in said, said
        assert f"pip install 'phylatent[{extra}]'" in said, said
        assert "\n" not in said, said
    assert sorted(path.name for path in folder.iterdir()) == before, "something was begun that cannot be done"
    assert {extra for extra, _, _ in uses} == MODULES.keys() - {"tensorboard"}, "an extra without its sentence"


def sentence(use: Callable[[], object]) -> str:
    from phylatent.errors import UserError

    try:
        use()
    except UserError as error:
        return str(error)
    raise AssertionError("it went through without its extra")


def main() -> None:
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        os.environ["PHYLATENT_HOME"] = str(folder / "home")
        (folder / "home").mkdir()
        check_nothing_else_is_there()
        check_command_line()
        check_sentences(folder, check_core(folder))
    print("the core works without extras")


if __name__ == "__main__":
    main()
