"""`make release`: for each run a folder that is ready for the Hub: weights, card, records and report page. Nothing is uploaded.

    python release/hub_folders.py [runs/tworooms-laptop-lewm-seed0 ...] [--out dist/hub]

Without runs: those of the four tasks in $PHYLATENT_HOME, as far as they are there.
"""

from __future__ import annotations

import argparse
import json
import re
import shutil
import sys
import tempfile
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch
from hub_card import SHOWN, write_card
from safetensors.torch import save_file

from phylatent import WorldModel
from phylatent.commands.report import report
from phylatent.errors import PhylatentError, UserError
from phylatent.files import whole_directory
from phylatent.models.load import load_model, weights_hash
from phylatent.records import read_diagnosis, read_planning, write_json
from phylatent.runs import DIAGNOSTICS, PAIRS, PLANNING, RESULT, ROLLOUTS, TRAIN_TABLE, VALIDATION_TABLE, home, run_directory
from phylatent.tasks import all_tasks

ROOT = Path(__file__).parents[1]
WEIGHTS = "model.safetensors"
LARGEST = 10_000_000
"""Bytes of a model's weights; what is larger at full precision is stored at half, and what is larger still is refused."""
MOST_CHANGED = 0.01
"""How far half precision may move a latent, in standard deviations of latents."""
AGAIN = "judge the run again"


@dataclass(frozen=True)
class Records:
    """What was measured of a run: protocol → record."""

    diagnostics: dict[str, dict[str, Any]]
    planning: dict[str, dict[str, Any]]


def main(arguments: list[str]) -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("runs", nargs="*", type=Path)
    parser.add_argument("--out", type=Path, default=ROOT / "dist" / "hub")
    given = parser.parse_args(arguments)
    runs = given.runs or default_runs()
    if not runs:
        print(
            f"no model is prepared for the Hub: {home() / 'runs'} has no run of the four tasks; name some: runs='runs/a runs/b'"
        )
    try:
        for run in runs:
            folder = prepare(run, given.out)
            print(f"{folder}: {weight(folder):.1f} MB, of which weights {(folder / WEIGHTS).stat().st_size / 1e6:.1f} MB")
    except PhylatentError as error:
        sys.exit(f"error: {error}")


def default_runs() -> list[Path]:
    """The first seed of both methods on each task, at laptop scale."""
    name = re.compile(rf"({'|'.join(all_tasks())})(-laptop)?-(lewm|phylatent-plus)-seed0")
    places = sorted((home() / "runs").glob("*")) if (home() / "runs").is_dir() else []
    return [place for place in places if name.fullmatch(place.name) and (place / RESULT).is_file()]


def prepare(source: Path, out: Path) -> Path:
    """The folder `<task>-<variant>` of a run; in place of an older one."""
    run = run_directory(source.expanduser())
    if run is None or not (run / RESULT).is_file():
        raise UserError(f"{source} is no finished run; a model is published with the training and the records it comes from")
    model, records = load_model(str(run)).eval(), read_records(run)
    folder = out / f"{model.config.task}-{model.config.variant}"
    with whole_directory(folder, replace=True) as new:
        model.save_pretrained(new)
        stored = store_weights(model, run, new)
        figures = add_page(run, new)
        add_records(run, records, new)
        (new / WEIGHTS).chmod(0o644)
        write_json(new / "hub.json", {"run": run.name, "weights": weights_hash(model), **stored})
        write_card(
            new / "README.md", model, diagnostics=records.diagnostics, planning=records.planning, figures=figures, stored=stored
        )
    return folder


def read_records(run: Path) -> Records:
    diagnostics = {path.stem: read_diagnosis(path, again=AGAIN) for path in sorted((run / DIAGNOSTICS).glob("*.json"))}
    results = sorted((run / PLANNING).glob(f"*/{RESULT}"))
    planning = {path.parent.name: read_planning(path, again=AGAIN, shown=True) for path in results}
    if not diagnostics or not planning:
        raise UserError(f"{run} was not diagnosed and planned with yet; a model is published with its records")
    paper_first = dict(sorted(planning.items(), key=lambda item: item[0] != "paper"))
    return Records(diagnostics, paper_first)


def store_weights(model: WorldModel, run: Path, folder: Path) -> dict[str, Any]:
    """Matrices at half precision where the file would be too large otherwise; what that does is measured and said."""
    place = folder / WEIGHTS
    if place.stat().st_size <= LARGEST:
        return {"precision": "float32"}
    halved = {
        name: tensor.half() if tensor.ndim > 1 and tensor.dtype == torch.float32 else tensor
        for name, tensor in model.state_dict().items()
    }
    save_file({name: tensor.contiguous() for name, tensor in halved.items()}, place, metadata={"format": "pt"})
    if (size := place.stat().st_size) > LARGEST:
        raise UserError(
            f"{run}: its weights take {size / 1e6:.1f} MB at half precision; at most {LARGEST / 1e6:.0f} are published"
        )
    moved = difference(model, WorldModel.from_pretrained(folder).eval(), run)
    if not moved <= MOST_CHANGED:
        raise UserError(f"{run}: half precision moves its latents by {moved:.3f} standard deviations, more than {MOST_CHANGED}")
    return {"precision": "float16 matrices", "latents_moved": float(f"{moved:.1e}")}


@torch.no_grad()
def difference(model: WorldModel, other: WorldModel, run: Path) -> float:
    """The largest distance between their latents of frames and of rollouts, in the spread of latents over these frames."""
    frames = np.concatenate([*shown_frames(run)] or [np.random.default_rng(0).integers(0, 256, (32, 64, 64, 3), np.uint8)])
    blocks = np.random.default_rng(0).normal(size=(len(frames), 5, model.config.block_dim)).astype(np.float32)
    action = model.config.action
    if action is not None:
        blocks = blocks * np.tile(action.std, model.config.clip.stride) + np.tile(action.mean, model.config.clip.stride)
    ends = []
    for one in (model, other):
        z = one.encode(frames)
        ends.append(torch.cat([z[:, None], one.rollout(z, blocks.astype(np.float32))], dim=1))
    spread = ends[0][:, 0].std(dim=0).norm()
    return float((ends[0] - ends[1]).norm(dim=-1).max() / spread)


def shown_frames(run: Path) -> Iterator[np.ndarray]:
    """Real frames that planning kept for the report."""
    for path in sorted((run / PLANNING).glob(f"*/{ROLLOUTS}")):
        with np.load(path, allow_pickle=False) as arrays:
            yield np.concatenate([arrays["start"], arrays["goal"]])


def add_page(run: Path, folder: Path) -> list[str]:
    """`report.html` and the PNG figures that the card shows; returns their names."""
    with tempfile.TemporaryDirectory() as name:
        page = report([run], out=Path(name))
        shutil.copy(page, folder / page.name)
        (folder / "figures").mkdir()
        figures = [figure for figure in sorted((page.parent / "figures").glob("*.png")) if figure.stem in SHOWN]
        for figure in figures:
            shutil.copy(figure, folder / "figures" / figure.name)
    return [figure.name for figure in figures]


def add_records(run: Path, records: Records, folder: Path) -> None:
    target = folder / "records"
    for protocol, record in records.diagnostics.items():
        write_json(target / DIAGNOSTICS / f"{protocol}.json", without_paths(record))
    for protocol, record in records.planning.items():
        write_json(target / PLANNING / protocol / RESULT, without_paths(record))
        shutil.copy(run / PLANNING / protocol / PAIRS, target / PLANNING / protocol / PAIRS)
    write_json(target / RESULT, without_paths(json.loads((run / RESULT).read_text())))
    for table in (TRAIN_TABLE, VALIDATION_TABLE):
        if (run / table).is_file():
            shutil.copy(run / table, target / table)


def without_paths(value: Any) -> Any:
    """A record as it may be published: where its files lay on the machine that made it is nobody's business."""
    if isinstance(value, Mapping):
        return {name: without_paths(inner) for name, inner in value.items() if name != "command"}
    if isinstance(value, list):
        return [without_paths(inner) for inner in value]
    return Path(value).name if isinstance(value, str) and value.startswith(("/", "~")) else value


def weight(folder: Path) -> float:
    return sum(path.stat().st_size for path in folder.rglob("*") if path.is_file()) / 1e6


if __name__ == "__main__":
    main(sys.argv[1:])
