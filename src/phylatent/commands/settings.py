"""`phylatent settings` and `phylatent config`: what can be set, what it means, who says it; and all of it resolved."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

from rich.console import Console
from rich.padding import Padding

from phylatent.commands.request import Keys, configurations, parse, refuse_plain
from phylatent.commands.screen import console, line, say, show_path, words
from phylatent.errors import UserError
from phylatent.files import check_target

if TYPE_CHECKING:
    from phylatent.composition.described import Setting
    from phylatent.schema import Config

EXAMPLE = "phylatent settings train. task=pusht variant=phylatent-plus"
CONFIG_EXAMPLE = "phylatent config task=pusht variant=lewm train.steps=300"


def command(keys: Keys = None) -> None:
    """Every key, or those with a prefix: type, default, meaning, and what sets it in this task, preset and variant."""
    request = parse(keys or [])
    if len(request.plain) > 1:
        raise UserError(f"settings takes one prefix, such as train. or plan.solver; found {len(request.plain)}")
    if request.overrides or request.out or request.config or request.resume or request.seeds:
        raise UserError("settings takes a prefix, task=, preset= and variant=, and sets nothing; phylatent config resolves")
    from phylatent.composition import PRESET, TASK, VARIANT
    from phylatent.composition.described import describe
    from phylatent.tasks import get_task

    chosen = {"task": TASK, "preset": PRESET, "variant": VARIANT} | request.choices
    found = describe(get_task(chosen["task"]), chosen["preset"], chosen["variant"], *request.plain)
    console.print(words("values as in " + " ".join(f"{key}={value}" for key, value in chosen.items()), "dim"))
    for setting in found:
        _show(setting, console)


def config_command(keys: Keys = None) -> None:
    """Print the configuration that these settings resolve to, and run nothing; `out=` writes it to a file for `config=`."""
    request = parse(keys or [])
    refuse_plain(request, "config")
    if request.resume:
        raise UserError("config runs nothing, so there is nothing to resume; a run's own configuration is its config.yaml")
    configs = configurations(request)
    if len(configs) > 1:
        raise UserError("config takes one seed: it prints one configuration")
    if request.out is None:
        for text in _text(configs[0]).split("\n"):
            say(text)
        return
    from phylatent.composition import save_config

    check_target(request.out)
    if request.out.exists():
        raise UserError(f"{request.out} is there already; nothing was overwritten: give another out=")
    save_config(configs[0], request.out)
    show_path("configuration", request.out)


def _text(config: Config) -> str:
    import yaml

    from phylatent.composition import to_dict

    return yaml.safe_dump(json.loads(json.dumps(to_dict(config))), sort_keys=False, allow_unicode=True).rstrip("\n")


def _show(setting: Setting, screen: Console) -> None:
    from phylatent.composition.described import DEFAULT

    by = "" if setting.said_by == DEFAULT else f"  ({setting.said_by}; default {shown(setting.default)})"
    screen.print(
        line(words(setting.key, "bold"), " = ", words(shown(setting.value), "green"), words(by, "dim")), soft_wrap=True
    )
    choices = f": {', '.join(setting.choices)}" if setting.choices else ""
    screen.print(Padding(words(f"{setting.kind}{choices}. {setting.meaning}"), (0, 0, 0, 4)))


def shown(value: Any) -> str:
    """A value as it is typed on the command line."""
    if value is None or isinstance(value, bool):
        return str(value).lower().replace("none", "null")
    return f"[{','.join(map(shown, value))}]" if isinstance(value, (list, tuple)) else str(value)
