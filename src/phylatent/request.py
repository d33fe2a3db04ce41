"""What a command line asks for: plain arguments, the keys that belong to commands, and a configuration."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from phylatent.errors import UserError
from phylatent.task_files import is_task_file

COMMAND_KEYS = ("out", "resume", "config")
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
        return named if is_task_file(named) else None

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
        if not equals:
            plain.append(argument)
        elif key in (*COMMAND_KEYS, *CHOICES, "seed"):
            if not value:
                raise UserError(f"{key}= has no value")
            keys[key] = value
        else:
            overrides.append(argument)
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


def _seeds(text: str) -> tuple[int, ...]:
    try:
        seeds = tuple(int(part) for part in text.split(","))
    except ValueError as error:
        raise UserError(f"seed={text}: expected a whole number, or several with commas between them") from error
    if any(seed < 0 for seed in seeds):
        raise UserError(f"seed={text}: a seed must not be negative")
    return seeds


def _flag(key: str, text: str) -> bool:
    if text.lower() not in ("true", "false"):
        raise UserError(f"{key}={text}: expected true or false")
    return text.lower() == "true"
