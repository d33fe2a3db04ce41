"""Command lines that nobody should type: a small, right one of every command, with one or two things about it changed."""

from __future__ import annotations

import hashlib
import re
from collections.abc import Sequence
from typing import Any

from cases import Case
from hypothesis import HealthCheck, Phase, given, seed, settings
from hypothesis import strategies as st
from material import COLLECT, SMALL
from nasty import HUGE, NUMBERS, OWN_KEYS, PATHS, TEXTS

RIGHT: dict[str, tuple[str, ...]] = {
    "collect": (*COLLECT, "out=new.h5"),
    "train": (*SMALL, "train.steps=2", "data=data.h5", "out=new"),
    "diagnose": ("done", "data=data.h5", "workers=1", "out=new"),
    "plan": ("done", "data=data.h5", "workers=1", "out=new"),
    "report": ("done", "out=new"),
    "import": ("theirs", "task=tworooms", "data=data.h5", "out=new"),
    "export": ("done", "format=lewm", "out=new"),
    "inspect": ("data.h5", "out=new"),
    "prepare": ("data.h5", "prepare.workers=1", "out=new.frames"),
    "doctor": ("task=tworooms", "out=new"),
    "decode": ("done", "data=data.h5", "decode.steps=2", "out=new"),
    "watch": ("done", "until=finished", "films=false"),
    "list": ("variants",),
    "settings": ("train", "preset=smoke"),
    "config": ("preset=smoke", "variant=lewm", "out=new.yaml"),
    "completion": ("bash",),
    "demo": ("preset=smoke", "variant=no-such-variant"),
}
NEEDS = {
    **dict.fromkeys(("train", "inspect", "prepare"), ("data.h5", "data.h5.json")),
    **dict.fromkeys(("diagnose", "plan", "report", "export", "decode", "watch"), ("done", "data.h5", "data.h5.json")),
    "import": ("lewm", "theirs", "data.h5", "packed.h5.zst"),
}
ALWAYS = ("odd", "evil.py", "evil.yaml", "size.yaml", "straight.py", "straighter.yaml")
CODE = re.compile(r"(\.py\b|\.ya?ml\b)")
LARGE = re.compile(r"^-?[\d_.e+]{4,}$")
"""A number that may be allowed and take for ever."""


def known_keys() -> tuple[str, ...]:
    from phylatent.composition.sections import known_keys

    return known_keys()


def values() -> st.SearchStrategy[str]:
    plain = st.sampled_from(NUMBERS) | st.sampled_from(TEXTS) | st.sampled_from(PATHS) | st.sampled_from(HUGE)
    text = st.text(st.characters(codec="utf-8", exclude_characters="\x00"), max_size=12)
    return st.one_of(plain, plain, plain, text, st.integers(-(2**70), 2**70).map(str), st.floats().map(str))


@st.composite
def twisted(draw: st.DrawFn, command: str, times: int) -> tuple[str, ...]:
    """The right command line with so many things changed."""
    arguments = list(RIGHT[command])
    keys = st.one_of(st.sampled_from(_keys_of(command)), st.sampled_from(_keys_of(command)), st.sampled_from(OWN_KEYS))
    for _ in range(times):
        how = draw(st.sampled_from(("set",) * 6 + ("given",) * 3 + ("without", "twice", "plain", "option")))
        at = draw(st.integers(0, max(0, len(arguments) - 1)))
        if how == "set":
            arguments.append(f"{draw(keys)}={draw(values())}")
        elif how == "given" and arguments:
            key, equals, _ = arguments[at].partition("=")
            arguments[at] = f"{key}={draw(values())}" if equals else draw(st.sampled_from(PATHS) | values())
        elif how == "without" and arguments:
            del arguments[at]
        elif how == "twice" and arguments:
            arguments.append(arguments[at])
        elif how == "plain":
            arguments.append(draw(st.sampled_from(PATHS) | values()))
        elif how == "option":
            arguments.insert(
                at,
                draw(
                    st.sampled_from(("--help", "--no-such", "-x", "--", "--version", "-", "--debug-no", "--install-completion"))
                ),
            )
    return tuple(arguments)


def _keys_of(command: str) -> Sequence[str]:
    """Keys that the command would read, so that most values get as far as being looked at."""
    sections = {
        "collect": ("collect",),
        "prepare": ("prepare",),
        "diagnose": ("diagnose",),
        "plan": ("plan", "icem", "mppi", "gradient"),
    }
    if command == "train":
        return [
            key
            for key in known_keys()
            if key.partition(".")[0] not in ("collect", "prepare", "plan", "icem", "mppi", "gradient")
        ]
    chosen = [key for key in known_keys() if key.partition(".")[0] in sections.get(command, ())]
    return [*chosen, "data", "device", "seed"] if chosen else OWN_KEYS


def drawn(strategy: st.SearchStrategy[Any], number: int) -> Any:
    """One value of a strategy, the same for the same number; not the first, which Hypothesis makes the simplest there is."""
    found: list[Any] = []

    @seed(number)
    @settings(max_examples=4, database=None, deadline=None, phases=[Phase.generate], suppress_health_check=list(HealthCheck))
    @given(strategy)
    def collect(value: Any) -> None:
        found.append(value)

    collect()
    return found[-1]


def _kept_inside(argument: str) -> str:
    """No command writes outside its case's directory, not even when it should have refused to."""
    key, _, value = argument.partition("=")
    return f"{key}={{here}}{value}" if key in ("out", "data") and value.startswith("/") else argument


def make(command: str, number: str) -> Case:
    """The command line of that number."""
    whole = int.from_bytes(hashlib.sha256(f"{command} {number}".encode()).digest()[:7])
    arguments = drawn(st.sampled_from((1, 1, 2)).flatmap(lambda times: twisted(command, times)), whole)
    arguments = tuple(_kept_inside(argument.replace("\x00", "")) for argument in arguments)
    said = [argument.partition("=") for argument in arguments if argument not in RIGHT[command]]
    return Case(
        kind=f"line {command}",
        arguments=(command, *arguments),
        needs=(*NEEDS.get(command, ()), *ALWAYS),
        may_be_long=command in ("watch", "demo")  # left alone, one serves for ever, and the other takes minutes
        or any(LARGE.match(value) for key, _, value in said if key not in ("out", "title", "data", "config")),
        may_run_code=any(CODE.search(argument) for argument in arguments),
    )
