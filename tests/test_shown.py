"""What the documents show is run: every fenced bash and python block of docs/ and README, at smoke size, or it says why not.

The records that come of it have the published schemas.
"""

from __future__ import annotations

import copy
import importlib.util
import json
import os
import re
import shlex
import subprocess
import sys
import tarfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import zstandard
from own_tasks import call

from phylatent.models.encoders import ENCODERS
from phylatent.objectives import OBJECTIVES
from phylatent.planning.solvers import SOLVERS
from phylatent.reading.shapes import misfit
from phylatent.records import rated_sections

ROOT = Path(__file__).parents[1]
FIRST = ("README.md", "docs/tutorial.md", "docs/planning.md")
"""They make the data and the runs that other pages speak of."""
PAGES = [*FIRST, *sorted({str(page.relative_to(ROOT)) for page in (ROOT / "docs").rglob("*.md")} - {*FIRST})]
LANGUAGES = {"bash", "python", "yaml", "toml", "text", "dockerfile", "json"}

RUN_ELSEWHERE = {
    ("docs/own-task.md", "bash"): "tests/tasks/test_own_task.py",
    ("docs/own-task.md", "python"): "tests/tasks/test_own_task.py",
    ("docs/own-objective.md", "bash"): "tests/objectives/test_own_objective.py",
    ("docs/own-objective.md", "python"): "tests/objectives/test_own_objective.py",
    ("docs/planning.md", "python"): "tests/judging/test_judging.py",
    ("docs/diagnose-any-model.md", "python"): "tests/diagnostics/test_diagnostics.py",
    ("docs/diagnostics.md", "python"): "tests/diagnostics/test_registry.py",
}
"""Blocks of a page → the test that runs them, with what they need."""
NOT_RUN = {
    "git clone": "needs the network; the tests run in the clone",
    "cd ": "where the tests are already",
    "source ": "the tests' environment is active already",
    "make ": "what continuous integration itself runs, or hours",
    "export ": "sets a variable of the shell",
    "eval ": "tests/commands/test_discover.py has a shell that completes",
    "pip ": "the wheel's own test installs it",
    "uv pip ": "downloads a torch of its own",
    "python -m pip": "the wheel's own test installs it",
    "python -m venv": "the wheel's own test makes one",
    "docker ": "there is no docker where the tests run",
    "wandb ": "wants an account",
    "tensorboard ": "serves until it is stopped",
    "mkdocs ": "tests/test_site.py builds the site",
    "phylatent demo": "tests/commands/test_cli.py runs it at smoke size",
    "phylatent watch": "serves until it is stopped; it has tests of its own",
    "phylatent report runs/tworooms-laptop-lewm-seed0 runs/tworooms-laptop-phylatent-plus": "README's, with another run",
    "phylatent import quentinll/": "needs the network; tests/models/test_import.py imports a made one",
    "phylatent diagnose runs/lewm-released": "is about the model before it",
    "phylatent plan runs/lewm-released": "is about the model before it",
    "phylatent train task=pusht preset=paper": "needs a published file; tests/data/test_published_data.py reads a made one",
    "phylatent prepare pusht_expert": "needs a published file; tests/data/test_prepare.py prepares a made one",
    "from stable_worldmodel.wm.utils": "wants stable-worldmodel's train extra; tests/models/test_export.py has it",
}
"""How a line of bash, or a block of python, begins that is not run → why."""


def fences(page: str) -> list[tuple[str, str]]:
    """(language, text) of every fenced block."""
    return re.findall(r"^ *```(\S*).*?\n(.*?)^ *```$", (ROOT / page).read_text(), re.DOTALL | re.MULTILINE)


def blocks(page: str, language: str) -> list[str]:
    return [] if (page, language) in RUN_ELSEWHERE else [text for found, text in fences(page) if found == language]


def commands(page: str) -> list[str]:
    """The lines of its bash blocks, those that end in a backslash joined, without remarks."""
    lines = "\n".join(blocks(page, "bash")).replace("\\\n", " ").splitlines()
    return [line.split(" # ")[0].strip() for line in lines if line.strip() and not line.lstrip().startswith("#")]


def reason(text: str) -> str | None:
    return next((why for start, why in NOT_RUN.items() if text.startswith(start)), None)


@pytest.mark.parametrize("page", PAGES)
def test_every_block_is_run_or_says_why_not(page: str) -> None:
    assert {language for language, _ in fences(page)} <= LANGUAGES, "a block without a language is not seen"
    for line in commands(page):
        assert line.startswith("phylatent ") or reason(line), f"{line}: run it, or say in NOT_RUN why not"


def test_what_runs_elsewhere_is_run_there() -> None:
    for (page, language), test in RUN_ELSEWHERE.items():
        assert any(found == language for found, _ in fences(page)), f"{page} has no {language} any more"
        helpers = (ROOT / "tests" / "helpers" / "own_tasks.py").read_text() if "own_task" in test else ""
        assert Path(page).name in (ROOT / test).read_text() + helpers, f"{test} does not read {page}"


def test_no_reason_is_out_of_date() -> None:
    shown = [line for page in PAGES for line in commands(page)] + [text for page in PAGES for text in blocks(page, "python")]
    general = {"pip ", "uv pip ", "python -m pip", "python -m venv", "docker ", "wandb ", "tensorboard "}
    general |= {"export ", "eval ", "mkdocs "}
    for start in NOT_RUN.keys() - general - {"phylatent watch"}:
        assert any(line.startswith(start) for line in shown), f"nothing begins with {start!r} any more"


def small(line: str) -> list[str]:
    """The arguments of a command as it is shown, at smoke size and with one process."""
    arguments = shlex.split(re.sub(r"\b(laptop|paper)\b(?=[-.\s]|$)", "smoke", line))[1:]
    arguments = [re.sub("^protocol=smoke", "protocol=paper", argument) for argument in arguments]
    chosen = any(argument.startswith(("preset=", "resume=", "config=")) for argument in arguments)
    if arguments[0] in ("collect", "train", "inspect") and not chosen:
        arguments.append("preset=smoke")
    arguments = [re.sub("^decode.steps=.*", "decode.steps=20", argument) for argument in arguments]  # what smoke has
    if arguments[0] in ("collect", "plan", "prepare"):
        arguments.append(f"{arguments[0]}.workers=1")
    if "reachability" in line:
        arguments.append("horizons=[1,2]")  # the smoke preset's episodes are short
    return arguments


def made_already(arguments: list[str], place: Path) -> bool:
    """Whether the run that it would train is there, from a page before."""
    given = dict(argument.split("=", 1) for argument in arguments[1:] if "=" in argument)
    if arguments[0] != "train" or given.keys() & {"out", "resume", "data"}:
        return False
    variant, seed = given.get("variant", "phylatent"), given.get("seed", "0")
    return (place / "runs" / f"{given.get('task', 'tworooms')}-smoke-{variant}-seed{seed}").exists()


@pytest.fixture(scope="module")
def walked(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[Path, list[str]]]:
    """A directory in which every command shown was run, page after page, and what went wrong."""
    place = tmp_path_factory.mktemp("shown")
    (place / "docs").symlink_to(ROOT / "docs")
    registries = ENCODERS, SOLVERS, OBJECTIVES
    before = [dict(registry) for registry in registries]
    done: set[tuple[str, ...]] = set()
    wrong = []
    for page in PAGES:
        for line in commands(page):
            arguments = small(line) if line.startswith("phylatent ") and not reason(line) else []
            if arguments and tuple(arguments) not in done and not made_already(arguments, place):
                _published(place)
                done.add(tuple(arguments))
                if run(arguments, place) != 0:
                    wrong.append(f"{page}: {line}")
    yield place, wrong
    for registry, known in zip(registries, before, strict=True):
        registry.clear()
        registry.update(known)


def run(arguments: list[str], place: Path) -> int:
    """The exit code of a command, in this process where that makes no difference."""
    if arguments[0] != "doctor":
        return call(*arguments, cwd=place)
    command = [sys.executable, "-m", "phylatent", *arguments]  # the doctor looks at its process, and this one is a test's
    return subprocess.run(command, cwd=place, env=os.environ, capture_output=True).returncode


def _published(place: Path) -> None:
    """`tworoom.tar.zst` as the Hub has it, but with the smoke preset's episodes."""
    data, archive = place / "data" / "tworooms-smoke.h5", place / "tworoom.tar.zst"
    if data.exists() and not archive.exists():
        with tarfile.open(place / "tworoom.tar", "w") as packed:
            packed.add(data, "tworoom.h5")
        archive.write_bytes(zstandard.compress((place / "tworoom.tar").read_bytes()))


@pytest.mark.slow
def test_the_commands_shown(walked: tuple[Path, list[str]]) -> None:
    place, wrong = walked
    assert not wrong
    assert (place / "runs" / "with-videos" / "planning" / "paper" / "videos").is_dir()


@pytest.mark.slow
@pytest.mark.parametrize("page", [page for page in PAGES if blocks(page, "python")])
def test_the_python_shown(page: str, walked: tuple[Path, list[str]], monkeypatch: pytest.MonkeyPatch) -> None:
    """All blocks of a page are one script."""
    place, _ = walked
    monkeypatch.chdir(place)
    script = "\n".join(block for block in blocks(page, "python") if not reason(block))
    exec(compile(script.replace("laptop", "smoke"), page, "exec"), {"__name__": "shown"})


def record_pages() -> Any:
    """The module that makes the schemas for the site."""
    spec = importlib.util.spec_from_file_location("record_pages", ROOT / "docs" / "hooks" / "record_pages.py")
    module = importlib.util.module_from_spec(spec)
    sys.modules["record_pages"] = module  # dataclasses look their module up
    spec.loader.exec_module(module)
    return module


def leaves(value: Any, path: tuple[Any, ...] = ()) -> Iterator[tuple[Any, ...]]:
    """Where the values of a record are; of a list the first entry stands for all."""
    inside = value.items() if isinstance(value, dict) else enumerate(value[:1]) if isinstance(value, list) else ()
    for key, inner in inside:
        yield (*path, key)
        yield from leaves(inner, (*path, key))


def changed(record: Any, path: tuple[Any, ...], value: Any) -> Any:
    made = copy.deepcopy(record)
    inner = made
    for key in path[:-1]:
        inner = inner[key]
    inner[path[-1]] = value
    return made


@pytest.mark.slow
@pytest.mark.parametrize("name", ["diagnosis", "planning", "pairs", "result", "run", "time"])
def test_real_records_have_the_published_schema(name: str, walked: tuple[Path, list[str]]) -> None:
    """And it refuses what the reader refuses: the value of every key that it names, replaced by each of some others."""
    jsonschema = pytest.importorskip("jsonschema", reason="the test extra holds it")
    pages = record_pages()
    kind = pages.kinds()[name]
    validator = jsonschema.Draft202012Validator(pages.schemas()[name])
    validator.check_schema(validator.schema)
    found = sorted((walked[0] / "runs").glob(f"*/{kind.file.replace('<protocol>', '*')}"))
    assert len(found) >= 3
    for path in found:
        validator.validate(json.loads(path.read_text()))

    record, refused = json.loads(found[0].read_text()), 0
    named = {path.rpartition(".")[2] for path, _ in pages.properties(validator.schema)}
    tried = {path[-1]: path for path in leaves(record) if path[-1] in named}
    for where in tried.values():
        for value in (None, "x", -1, 1.5, True, [{}]):
            other = changed(record, where, value)
            shapes = [kind.shape, dict.fromkeys(rated_sections(other), kind.rest) if kind.rest else {}]
            wrong = next((said for shape in shapes if (said := misfit(other, shape))), None)
            assert validator.is_valid(other) == (wrong is None), f"{where} = {value}: {wrong}"
            refused += wrong is not None
    assert refused >= len(tried)
