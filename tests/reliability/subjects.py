"""Every kind of file that a command reads back, and the commands that read it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from random import Random

import changes
from cases import Case
from material import COLLECT, SMALL

DATA = ("data.h5", "data.h5.json")
TRAIN = ("train", *SMALL, "train.steps=2", "data=data.h5", "out=new")
RESUME, LATE = ("train", "out=half", "resume=true", "data=data.h5"), ("train", "out=late", "resume=true", "data=data.h5")
DIAGNOSE, PLAN = (
    ("diagnose", "done", "data=data.h5", "workers=1", "out=new"),
    ("plan", "done", "data=data.h5", "workers=1", "out=new"),
)
AGAIN, PLAN_AGAIN = ("diagnose", "done", "data=data.h5", "workers=1"), ("plan", "done", "data=data.h5", "workers=1")
DECODE, WATCH = ("decode", "done", "data=data.h5", "decode.steps=2"), ("watch", "done", "until=finished", "films=false")
REPORT, EXPORT = ("report", "done", "out=new"), ("export", "done", "out=new")
INSPECT, PREPARE = ("inspect", "data.h5", "out=new"), ("prepare", "data.h5", "prepare.workers=1", "out=new.frames")
IMPORT = ("import", "theirs", "task=tworooms", "data=data.h5", "out=new")
IMPORT_OURS = ("import", "lewm", "out=new")
LINES = tuple[tuple[str, ...], ...]


@dataclass(frozen=True)
class Subject:
    file: str
    """In the material."""
    lines: LINES
    """Command lines that read it."""
    needs: tuple[str, ...]
    may_run_code: bool = False


def _subject(file: str, *lines: tuple[str, ...], needs: tuple[str, ...] = (), code: bool = False) -> Subject:
    whole = needs or (file.partition("/")[0], *DATA)
    return Subject(file, lines, whole, code)


SUBJECTS: Mapping[str, Subject] = {
    "saved config": _subject(
        "done/config.yaml", DIAGNOSE, PLAN, REPORT, EXPORT, ("train", "config=done/config.yaml", "data=data.h5", "out=new")
    ),
    "config of a run to resume": _subject("half/config.yaml", RESUME),
    "run.json": _subject("half/run.json", RESUME),
    "time.json": _subject("half/time.json", RESUME),
    "train.csv": _subject("done/train.csv", REPORT, REPORT, DIAGNOSE, WATCH),
    "train.csv of a run to resume": _subject("half/train.csv", RESUME),
    "validation.csv": _subject("done/validation.csv", REPORT, WATCH),
    "validation.csv of a run to resume": _subject("late/validation.csv", LATE),
    "checkpoint": _subject("half/checkpoints/step-00000002.ckpt", RESUME),
    "predictor's checkpoint": _subject("late/checkpoints/predictor-00000002.ckpt", LATE),
    "model config": _subject("done/model/config.json", DIAGNOSE, PLAN, EXPORT),
    "config of a model directory": _subject(
        "model/config.json", ("export", "model", "out=new"), ("diagnose", "model", "data=data.h5", "workers=1", "out=new")
    ),
    "model weights": _subject("done/model/model.safetensors", DIAGNOSE, PLAN, EXPORT),
    "result.json": _subject("done/result.json", REPORT, REPORT, ("train", "out=done", "resume=true")),
    "diagnosis": _subject("done/diagnostics/paper.json", REPORT, REPORT, AGAIN),
    "diagnosis arrays": _subject("done/diagnostics/paper.npz", REPORT),
    "planning result": _subject("done/planning/paper/result.json", REPORT, REPORT, PLAN_AGAIN),
    "pairs": _subject(
        "done/planning/paper/pairs.json",
        PLAN_AGAIN,
        (*PLAN, "list=done/planning/paper/pairs.json"),
        (*PLAN, "list=done/planning/paper/pairs.json"),
    ),
    "decoder record": _subject("done/decoder/decoder.json", REPORT, DECODE),
    "decoder pictures": _subject("done/decoder/views.npz", REPORT, DECODE),
    "rollouts": _subject("done/planning/paper/rollouts.npz", REPORT),
    "data": _subject("data.h5", INSPECT, TRAIN, PREPARE, IMPORT, DIAGNOSE, PLAN, needs=("done", "theirs", *DATA)),
    "prepared frames": _subject("data.frames/frames.bin", (*TRAIN, "data=data.frames"), ("inspect", "data.frames", "out=new")),
    "prepared columns": _subject("data.frames/columns.h5", (*TRAIN, "data=data.frames"), ("inspect", "data.frames", "out=new")),
    "prepared record": _subject(
        "data.frames/prepared.json",
        *((*TRAIN, "data=data.frames"), ("inspect", "data.frames", "out=new")),
        ("prepare", "data.h5", "prepare.workers=1", "out=data.frames"),
    ),
    "begun collection": _subject("begun.h5.parts/plan.json", ("collect", *COLLECT, "out=begun.h5"), needs=("begun.h5.parts",)),
    "begun shard": _subject("begun.h5.parts/shard-00000.h5", ("collect", *COLLECT, "out=begun.h5"), needs=("begun.h5.parts",)),
    "LeWM config": _subject("theirs/config.json", IMPORT, ("import", "theirs", "out=new")),
    "LeWM weights": _subject("theirs/weights.pt", IMPORT, ("import", "theirs/weights.pt", "task=tworooms", "out=new")),
    "LeWM record": _subject("lewm/phylatent.json", IMPORT_OURS),
    "archive .h5.zst": _subject("packed.h5.zst", ("import", "packed.h5.zst", "out=new")),
    "archive .tar.zst": _subject("packed.tar.zst", ("import", "packed.tar.zst", "out=new.h5")),
    "own task": _subject(
        "pendulum.py",
        *(("collect", "task=pendulum.py", *COLLECT, "out=new.h5"), ("doctor", "task=pendulum.py", "out=new")),
        code=True,
    ),
    "own encoder": _subject("pooled.py", (*TRAIN, "model.encoder=pooled.py"), code=True),
    "own objective": _subject("straight.py", (*TRAIN, "objectives=[pred,sigreg,straight.py]"), code=True),
    "own solver": _subject("shooting.py", (*PLAN, "solver=shooting.py"), needs=("shooting.py", "done", *DATA), code=True),
    "own variant": _subject(
        "straighter.yaml", (*TRAIN, "variant=straighter.yaml"), needs=("straighter.yaml", "straight.py", *DATA), code=True
    ),
    "own preset": _subject("size.yaml", (*TRAIN[:1], *TRAIN[2:], "preset=size.yaml")),
}


def make(name: str, number: str, source: Path) -> Case:
    """The case of that number: one change of the file, sometimes two."""
    rng, subject = Random(f"{name} {number}"), SUBJECTS[name]
    chosen = [changes.choose(rng, source, subject.file)]
    if rng.random() < 0.15 and chosen[0]["do"] in ("set", "delete", "add"):
        chosen.append(_same_kind(rng, source, subject.file))
    return Case(
        kind=f"file {name}",
        arguments=rng.choice(subject.lines),
        needs=(*subject.needs, "evil.py", "odd"),
        changes=tuple(chosen),
        may_run_code=subject.may_run_code,
    )


def _same_kind(rng: Random, source: Path, file: str) -> changes.Change:
    while (change := changes.choose(rng, source, file))["do"] not in ("set", "delete", "add"):
        pass
    return change
