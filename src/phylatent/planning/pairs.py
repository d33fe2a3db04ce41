"""Start/goal lists: drawn once from one side of the split, kept as a file with a hash, the same for every policy compared."""

from __future__ import annotations

import hashlib
import json
from dataclasses import asdict, dataclass
from itertools import islice
from pathlib import Path

import numpy as np

from phylatent.data.readers import Episodes
from phylatent.data.stats import Side, Split
from phylatent.errors import UserError
from phylatent.randomness import derive_seed
from phylatent.reading import read_json
from phylatent.reading.shapes import COUNT, misfit
from phylatent.records import write_json
from phylatent.schema import HELD_OUT, PlanConfig, Row, Rule, TaskSpec

SHAPE = {"task": str, "protocol": str, "data": str, "split?": str, "pairs": [{}], "hash": str}
NAMED = {"seed": COUNT, "episode": COUNT, "start": COUNT, "goal": COUNT}


@dataclass(frozen=True)
class Pair:
    """A start and a goal in one held-out episode, as rows counted from its first one."""

    seed: int
    episode: int
    start: int
    goal: int


@dataclass(frozen=True)
class PairList:
    task: str
    protocol: str
    data: str
    """The data file's fingerprint."""
    split: str
    """The name of the side that the pairs are from."""
    pairs: tuple[Pair, ...]

    @property
    def hash(self) -> str:
        listed = asdict(self)
        if self.split == HELD_OUT:  # lists of earlier versions have no other side, and do not name it
            del listed["split"]
        return hashlib.sha256(json.dumps(listed, sort_keys=True).encode()).hexdigest()

    def save(self, path: Path) -> None:
        write_json(path, asdict(self) | {"hash": self.hash})

    @classmethod
    def load(cls, path: Path) -> PairList:
        """An error unless it is one that `save` wrote: by its form, pair by pair, and by its hash."""
        if not path.is_file():
            raise UserError(f"there is no start/goal list {path}")
        record = read_json(path, again="this is not a start/goal list: give plan.list= one that `phylatent plan` wrote")
        wrong = misfit(record, SHAPE) or next(
            (f"it has {name}, which is not of a list" for name in record if name not in _names(SHAPE)), None
        )
        for index, pair in enumerate(record["pairs"] if wrong is None else ()):
            surplus = next((f" has {name}, which is not of a pair" for name in pair if name not in NAMED), None)
            wrong = wrong or misfit(pair, NAMED, f"pair {index}") or (surplus and f"pair {index}{surplus}")
        if wrong:
            raise UserError(f"{path} is not a start/goal list written by `phylatent plan`: {' '.join(wrong.split())}")
        if not record["pairs"]:
            raise UserError(f"{path} holds no pairs; give plan.list= a list that does")
        pairs = tuple(Pair(**pair) for pair in record["pairs"])
        found = cls(record["task"], record["protocol"], record["data"], record.get("split", HELD_OUT), pairs)
        if found.hash != record["hash"]:
            raise UserError(f"{path} was changed after it was written: its hash does not fit its pairs")
        return found


def _names(shape: dict[str, object]) -> set[str]:
    return {name.removesuffix("?") for name in shape}


class Rows:
    """The states of a data file, read once."""

    def __init__(self, task: TaskSpec, episodes: Episodes) -> None:
        self.task = task
        self.offsets = episodes.offsets
        self.columns = {name: episodes.column(name) for name in episodes.row_columns}

    def __call__(self, episode: int, step: int) -> Row:
        row = int(self.offsets[episode]) + step
        return {name: values[row].copy() for name, values in self.columns.items()}

    def start(self, pair: Pair) -> Row:
        """The start's state, with the goal's as its goal."""
        assert self.task.with_goal is not None
        return self.task.with_goal(self(pair.episode, pair.start), self(pair.episode, pair.goal))


def rule_of(task: TaskSpec, protocol: str) -> Rule:
    if task.with_goal is None or protocol not in task.rules:
        known = ", ".join(task.rules) or "none so far"
        raise UserError(f"task {task.name!r} has no planning protocol {protocol!r}; it has: {known}")
    return task.rules[protocol]


def make_list(task: TaskSpec, episodes: Episodes, split: Split, protocol: str, settings: PlanConfig) -> PairList:
    """The list to run: the one that `plan.list` names, checked against this data and split, or a drawn one."""
    if settings.list is None:
        return draw_pairs(task, episodes, split, protocol, settings)
    found, side = PairList.load(Path(settings.list).expanduser()), split.side(settings.split)
    if (found.task, found.protocol, found.data) != (task.name, protocol, episodes.fingerprint()):
        raise UserError(
            f"{settings.list} is a list for {found.task}, protocol {found.protocol}, of another data file or for another "
            f"protocol than the {task.name} data and protocol {protocol!r} asked for here"
        )
    if found.split != side.name:
        raise UserError(f"{settings.list} is a list of {found.split} episodes, and this model is judged on {side.name} ones")
    _check_pairs(found, side, episodes, settings.list)
    return found


def _check_pairs(found: PairList, side: Side, episodes: Episodes, name: str) -> None:
    """An error unless every pair lies in one episode of this side: a hash says who wrote a list last, not that it is true."""
    allowed = set(side.episodes)
    for index, pair in enumerate(found.pairs):
        if pair.episode not in allowed:
            raise UserError(
                f"{name} holds episodes that are not among this model's {side.name} ones: pair {index} is of episode "
                f"{pair.episode}"
            )
        rows = int(episodes.lengths[pair.episode])
        if not pair.start < pair.goal < rows:
            raise UserError(
                f"pair {index} of {name} starts at row {pair.start} with its goal at row {pair.goal} of episode "
                f"{pair.episode}, which has {rows} rows; a goal lies after its start and in its episode"
            )


def draw_pairs(task: TaskSpec, episodes: Episodes, split: Split, protocol: str, settings: PlanConfig) -> PairList:
    """For each evaluation seed, `pairs` distinct starts in random order, those the protocol does not ask for left out.

    The order is the same under every protocol, so that the lists share as many pairs as their rules allow.
    """
    rule = rule_of(task, protocol)
    if settings.goal_steps % episodes.frame_stride:
        raise UserError(f"plan.goal_steps = {settings.goal_steps} is no multiple of the data's stride {episodes.frame_stride}")
    rows = Rows(task, episodes)
    ahead = settings.goal_steps // episodes.frame_stride
    side = split.side(settings.split)
    starts = [(e, t) for e in side.episodes for t in range(int(episodes.lengths[e]) - ahead)]
    chosen: list[Pair] = []
    for seed in settings.seeds:
        order = np.random.default_rng(derive_seed("pairs", seed)).permutation(len(starts))
        drawn = (Pair(seed, episode, start, start + ahead) for episode, start in (starts[i] for i in order))
        asked = (pair for pair in drawn if rule.asks is None or rule.asks(rows.start(pair)))
        chosen += islice(asked, settings.pairs)
    if not chosen:
        raise UserError(
            f"no {side.name} episode of {episodes.path} has a pair {settings.goal_steps} steps apart that protocol "
            f"{protocol!r} asks for; collect longer episodes, or more of them"
        )
    return PairList(task.name, protocol, episodes.fingerprint(), side.name, tuple(chosen))
