"""What a command line asks for: plain arguments, the keys that belong to commands, and a configuration."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from phylatent.errors import UserError
from phylatent.own_files import is_path
from phylatent.runs import check_source
from phylatent.trust import allow

if TYPE_CHECKING:
    from phylatent.schema import Config

Runs = Annotated[list[str] | None, typer.Argument(metavar="RUN... [KEY=VALUE]...", show_default=False)]
Keys = Annotated[list[str] | None, typer.Argument(metavar="[KEY=VALUE]...", show_default=False)]
Sources = Annotated[list[str] | None, typer.Argument(metavar="SOURCE [KEY=VALUE]...", show_default=False)]
COMMAND_KEYS = ("out", "resume", "config", "trust")
KEY = re.compile(r"[A-Za-z_][\w.-]*")
"""What stands before `=` in a setting; a path may hold a `=`, too."""
CHOICES = ("task", "preset", "variant")


@dataclass(frozen=True)
class Request:
    plain: tuple[str, ...]
    """Arguments without `=`."""
    out: Path | None
    resume: bool
    config: Path | None
    choices: dict[str, str]
    overrides: tuple[str, ...]
    seeds: tuple[int, ...]

    @property
    def task_file(self) -> str | None:
        """The file of a user's own task, where `task=` names one."""
        named = self.choices.get("task", "")
        return named if is_path(named) else None

    @property
    def other_choices(self) -> list[str]:
        """What is chosen besides saying where a saved configuration's own task is now."""
        return [key for key in self.choices if key != "task" or self.task_file is None]

    def flag(self, key: str) -> tuple[bool, Request]:
        """`key=true` among the settings, and the request without it."""
        values = [text.partition("=")[2] for text in self.overrides if text.startswith(f"{key}=")]
        rest = tuple(text for text in self.overrides if not text.startswith(f"{key}="))
        return bool(values) and _flag(key, values[-1]), replace(self, overrides=rest)


def parse(arguments: Sequence[str]) -> Request:
    keys: dict[str, str] = {}
    plain: list[str] = []
    overrides: list[str] = []
    for argument in arguments:
        key, equals, value = argument.partition("=")
        if not equals or (not KEY.fullmatch(key) and Path(argument).expanduser().exists()):
            plain.append(argument)
        elif key in (*COMMAND_KEYS, *CHOICES, "seed"):
            if not value:
                raise UserError(f"{key}= has no value")
            keys[key] = value
        else:
            overrides.append(argument)
    for named in filter(None, keys.get("trust", "").split(",")):
        if not Path(named).expanduser().is_file():
            raise UserError(f"trust={named}: there is no such file; name a Python file whose code may run")
        allow(named)
    seeds = _seeds(keys["seed"]) if "seed" in keys else ()
    choices = {key: keys[key] for key in CHOICES if key in keys}
    request = Request(
        plain=tuple(plain),
        out=Path(keys["out"]).expanduser() if "out" in keys else None,
        resume=_flag("resume", keys.get("resume", "false")),
        config=Path(keys["config"]).expanduser() if "config" in keys else None,
        choices=choices,
        overrides=tuple(overrides),
        seeds=seeds,
    )
    if request.config and request.other_choices:
        raise UserError(f"config= already says what {', '.join(request.other_choices)} is; leave one of them out")
    return request


def refuse_plain(request: Request, command: str) -> None:
    if request.plain:
        raise UserError(f"{command} takes key=value arguments only; found {request.plain[0]!r}")


def one_source(request: Request, command: str) -> str:
    """The one thing without `=` that a command is about."""
    if len(request.plain) != 1:
        raise UserError(f"{command} takes one source; found {len(request.plain)}: phylatent {command} --help shows an example")
    return request.plain[0]


def only(request: Request, command: str, allowed: tuple[str, ...], *, task: bool = False) -> dict[str, str]:
    """The settings of a command that has few of its own; anything else would do nothing."""
    given = {key: value for key, _, value in (text.partition("=") for text in request.overrides)}
    other = [*(key for key in given if key not in allowed), *(key for key in request.choices if key != "task" or not task)]
    if other or request.seeds or request.config or request.resume:
        takes = ", ".join(f"{key}=" for key in (*(("task",) if task else ()), *allowed, "out"))
        raise UserError(f"{command} takes {takes} and nothing else" + (f"; found {', '.join(other)}" if other else ""))
    return given


def judging(request: Request) -> dict[str, Any]:
    """What `diagnose` and `plan` take: what to judge, where to write, and settings of the judging."""
    if request.resume or request.config or {"task", "variant"} & set(request.other_choices):
        raise UserError("a model says itself what its task and variant are; name it, and give preset=, data=, out= or settings")
    if not request.plain:
        raise UserError("name what to judge: a run directory, a model directory, or a Hub id")
    for source in request.plain:
        check_source(source)
    return {
        "sources": request.plain,
        "overrides": request.overrides,
        "seeds": request.seeds,
        "preset": request.choices.get("preset"),
        "task": request.task_file,
        "out": request.out,
    }


def configurations(request: Request) -> list[Config]:
    """What the request means, resolved and checked: one configuration for each seed."""
    from phylatent.composition import compose, load_config

    seeds = [[f"seed={seed}"] for seed in request.seeds] or [[]]
    if request.config is not None:
        return [load_config(request.config, [*request.overrides, *seed], request.task_file) for seed in seeds]
    return [compose(**request.choices, overrides=[*request.overrides, *seed]) for seed in seeds]


def _seeds(text: str) -> tuple[int, ...]:
    try:
        seeds = tuple(int(part) for part in text.split(","))
    except ValueError as error:
        raise UserError(f"seed={text}: expected a whole number, or several with commas between them") from error
    if any(not 0 <= seed < 2**63 for seed in seeds):
        raise UserError(f"seed={text}: a seed must not be negative, and fit 63 bits")
    if len(set(seeds)) < len(seeds):
        raise UserError(f"seed={text}: a seed is named twice; the same run twice is no second one")
    return seeds


def _flag(key: str, text: str) -> bool:
    if text.lower() not in ("true", "false"):
        raise UserError(f"{key}={text}: expected true or false")
    return text.lower() == "true"
