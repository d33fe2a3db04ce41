"""What cases are made of: one of every kind of file that commands write and read, made once by the real commands, as small as
they go; and the imports that are done before the first case."""

from __future__ import annotations

import importlib
import os
import pkgutil
import shutil
import tarfile
import warnings
from contextlib import suppress
from dataclasses import asdict
from pathlib import Path

import torch
import zstandard
from children import Copy, Ended, Order

ROOT = Path(__file__).parents[2]
EXAMPLES = ROOT / "docs" / "examples"
SECRET = "the-secret-of-the-environment"
"""A value of the environment that no command may ever show or write."""
SMALL = (
    *("preset=smoke", "device=cpu", "collect.workers=1", "collect.episodes=8", "collect.steps=30", "collect.shard_episodes=2"),
    *("model.width=12", "model.heads=1", "model.projector_hidden=12", "model.predictor_heads=1", "model.predictor_head_dim=4"),
    *("model.predictor_mlp=12", "sigreg.directions=8", "train.batch_size=4", "train.validation_batches=1"),
    *("train.readout_frames=16", "train.steps=4", "train.validate_every=2", "train.checkpoint_every=2"),
)
"""Keys that make every command take about a second, and that fit one another."""
COLLECT = ("preset=smoke", "collect.workers=1", "collect.episodes=4", "collect.steps=10", "collect.shard_episodes=2")
EVIL = """import os
with open(os.environ["CANARY_FILE"], "a") as file:
    file.write("a foreign file was run\\n")
"""
EVIL_COMMAND = "echo ran >> $CANARY_FILE"
EVIL_YAML = f'!!python/object/apply:os.system ["{EVIL_COMMAND}"]'
WARM = ("stable_worldmodel", "gymnasium", "torch.utils.tensorboard", "tensorboard.compat", "matplotlib.backends.backend_agg")
WARM += ("matplotlib.backends.backend_pdf", "fontTools.subset", "rich._emoji_codes", "PIL.PngImagePlugin", "pyarrow")


def warm() -> None:
    """Import everything that a command would import when it needs it, and open no parallel region: copies could not use it."""
    torch.set_num_threads(1)
    for message in ("lancedb fork support", "lance is not fork-safe"):
        warnings.filterwarnings("ignore", message=message)
    import phylatent
    from phylatent.simulator import prepare_renderer

    prepare_renderer()
    found = [module.name for module in pkgutil.walk_packages(phylatent.__path__, "phylatent.")]
    with warnings.catch_warnings(action="ignore"):
        for name in (*found, *WARM):
            if not name.endswith("__main__"):
                importlib.import_module(name)


def environment(place: Path) -> dict[str, str]:
    """Of a command whose home and state lie in `place`; nothing of the user's own, but what finds the libraries."""
    kept = {name: value for name, value in os.environ.items() if name in ("PATH", "PYTHONPATH", "LANG", "LD_LIBRARY_PATH")}
    own = {"HOME": "user", "XDG_STATE_HOME": "state", "XDG_CACHE_HOME": "cache", "TMPDIR": "tmp", "MPLCONFIGDIR": "cache"}
    for name in own.values():
        (place / name).mkdir(parents=True, exist_ok=True)
    return {
        **kept,
        **{name: str(place / folder) for name, folder in own.items()},
        "PHYLATENT_HOME": str(place / "here"),
        "HF_HUB_OFFLINE": "1",
        "ONEDNN_MAX_CPU_ISA": "AVX512_CORE",
        "COLUMNS": "100",
        "SECRET_CANARY": SECRET,
        "CANARY_FILE": str(place / "canary"),
    }


def run(place: Path, *arguments: str) -> Ended:
    """One command in a copy of this process, in `place/here`."""
    return Copy().run(Order(arguments, str(place / "here"), str(place), environment(place)))


def build(place: Path) -> Path:
    """Everything, in `place/here`; returns that directory."""
    here = place / "here"
    if (place / "ready").exists():
        return here
    shutil.rmtree(place, ignore_errors=True)
    here.mkdir(parents=True)

    def do(*arguments: str) -> None:
        ended = run(place, *arguments)
        if ended.code:
            raise RuntimeError(f"phylatent {' '.join(arguments)} ended with {ended.code}: {(place / 'stderr').read_text()}")

    do("collect", *SMALL, "out=data.h5")
    do("train", *SMALL, "data=data.h5", "out=run", "train.predictor_steps=4", "diagnose.every=2", "diagnose.workers=1")
    do("diagnose", "run", "workers=1")
    do("plan", "run", "workers=1")
    do("decode", "run", "decode.steps=2")
    do("export", "run", "out=lewm")
    do("export", "run", "format=phylatent", "out=model")
    do("prepare", "data.h5", "prepare.workers=1", "out=data.frames")
    shutil.copytree(here / "lewm", here / "theirs", ignore=shutil.ignore_patterns("phylatent.json"))
    _unfinished_runs(here)
    _begun_collection(here)
    _archives(here)
    _own_files(here)
    _odd_places(here)
    (place / "ready").touch()
    return here


def _unfinished_runs(here: Path) -> None:
    """`half` stopped in its joint steps, `late` in the predictor's; `done` is a run without its checkpoints, quick to copy."""
    unfinished = ("model", "result.json", "diagnostics", "planning")
    for name, left_out in (
        ("half", (*unfinished, "predictor-*.ckpt", "step-00000004.ckpt")),
        ("late", (*unfinished, "step-00000002.ckpt", "predictor-00000004.ckpt")),
        ("done", ("checkpoints",)),
    ):
        shutil.copytree(here / "run", here / name, ignore=shutil.ignore_patterns("tensorboard", ".lock", *left_out))
    shutil.rmtree(here / "run")


def _begun_collection(here: Path) -> None:
    """`begun.h5.parts`, with the first of two shards."""
    from phylatent.composition import compose
    from phylatent.data.collect import make_plan
    from phylatent.data.shards import write_shard
    from phylatent.records import write_json
    from phylatent.simulator import Simulator

    parts = here / "begun.h5.parts"
    config = compose(preset="smoke", overrides=list(COLLECT[1:]))
    plan = make_plan(config.spec, config.collect, 0)
    write_json(parts / "plan.json", asdict(plan))
    write_shard(Simulator(config.spec, plan.frame_size, plan.render), config.spec, plan, parts, 0, lambda: None)


def _archives(here: Path) -> None:
    raw = (here / "data.h5").read_bytes()
    (here / "packed.h5.zst").write_bytes(zstandard.compress(raw))
    with tarfile.open(here / "packed.tar", "w") as tar:
        tar.add(here / "data.h5", "packed.h5")
    (here / "packed.tar.zst").write_bytes(zstandard.compress((here / "packed.tar").read_bytes()))
    (here / "packed.tar").unlink()


def _own_files(here: Path) -> None:
    for name in ("pendulum.py", "pooled.py", "shooting.py", "straight.py", "straighter.yaml"):
        shutil.copy(EXAMPLES / name, here / name)
    (here / "size.yaml").write_text("extends: smoke\ntrain:\n  steps: 3\n")
    (here / "evil.py").write_text(EVIL)
    (here / "evil.yaml").write_text(f"extends: {EVIL_YAML}\n")


def _odd_places(here: Path) -> None:
    """`odd`: what a path may lead to besides a file of the right kind."""
    odd = here / "odd"
    (odd / "empty").mkdir(parents=True)
    (odd / "a=b").mkdir()
    (odd / "loop").symlink_to("loop")
    (odd / "nowhere").symlink_to("not-there")
    os.mkfifo(odd / "fifo")
    (odd / "nothing.h5").touch()
    (odd / "noise.h5").write_bytes(bytes(range(256)) * 16)
    (odd / "text.txt").write_text("plain text\n")
    (odd / "[red]markup").mkdir()
    (odd / "new\nline").mkdir()


def copy(here: Path, names: tuple[str, ...], target: Path) -> None:
    """These pieces of the material, for one case to do with as it likes."""
    target.mkdir(parents=True, exist_ok=True)
    for name in names:
        source, place = here / name, target / name
        place.parent.mkdir(parents=True, exist_ok=True)
        if source.is_dir():
            shutil.copytree(source, place, symlinks=True, dirs_exist_ok=True, copy_function=_copy_file)
        else:
            _copy_file(source, place)


def _copy_file(source: str | Path, target: str | Path) -> None:
    with suppress(FileExistsError):
        if Path(source).is_fifo():
            os.mkfifo(target)
        else:
            shutil.copyfile(source, target, follow_symlinks=False)
