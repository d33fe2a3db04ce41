"""What others wrote is printed as it is: no markup, no emoji, nothing that steers a terminal or turns its text around."""

from __future__ import annotations

import io
import shutil
from pathlib import Path

import h5py
import numpy as np
import pytest
from command_line import assert_user_mistake
from rich.console import Console
from rich.progress import TextColumn
from rich.text import Text

from phylatent.commands import screen
from phylatent.commands.findings import Finding, show
from phylatent.commands.screen import console
from phylatent.errors import PhylatentError
from phylatent.texts import file_name, printable, shortened

STEERING = "\x1b[2J\x07\x9b31m\u202e\u200b\udcff\r\n\t\x00"
SPELLED = "\\x1b[2J\\x07\\x9b31m\\u202e\\u200b\\xff\\r\\n\\t\\x00"
MARKUP = ("[red]x[/]", "[/]", "[/red]", "[bold", "a\\", "\\[red]", ":smile:", "{task.nothing}", "[link=file:///etc]x[/link]")


@pytest.fixture
def terminal(monkeypatch: pytest.MonkeyPatch) -> Console:
    """In the place of the real one, which would colour what it understands as markup."""
    console = Console(file=io.StringIO(), force_terminal=True, width=200, color_system="truecolor")
    monkeypatch.setattr(screen, "console", console)
    return console


def written(console: Console) -> str:
    assert isinstance(console.file, io.StringIO)
    return console.file.getvalue()


def test_what_is_unseen_is_spelled_out() -> None:
    assert printable(STEERING) == SPELLED
    assert printable(STEERING).isprintable()
    assert printable("a\n\tb\x1b", lines=True) == "a\n\tb\\x1b"
    assert printable("Ẑ → naïve 漢字 🙂 a\u00a0b") == "Ẑ → naïve 漢字 🙂 a\u00a0b"
    assert printable(Path("runs/a\x1b")) == "runs/a\\x1b"
    assert printable("\ud800") == "\\ud800"


def test_long_texts_are_shortened_in_the_middle() -> None:
    assert shortened("a" * 50 + "b" * 50, 12) == "aaaaaaa…bbbb"
    assert shortened("short", 12) == "short"


def test_a_file_name_is_tame_short_and_its_own() -> None:
    assert file_name("tworooms-laptop.lewm seed0") == "tworooms-laptop.lewm seed0"
    names = [file_name(text) for text in ("../a", "..>a", "x" * 300, "x" * 301, "é" * 200, "\udcff", "a\n", "\ud800")]
    assert len(set(names)) == len(names)
    assert all(name.isprintable() and "/" not in name and len(name.encode()) < 135 for name in names)


@pytest.mark.parametrize("text", [*MARKUP, STEERING])
def test_lines_are_said_as_they_are(terminal: Console, text: str) -> None:
    screen.say(text)
    screen.show_path(text, text)
    said, shown = written(terminal).splitlines()
    assert Text.from_ansi(said).plain == printable(text)
    assert Text.from_ansi(shown).plain == f"{printable(text)}: {printable(text)}"
    assert "\x1b[2J" not in said + shown
    assert not set(STEERING) - set("\x1b[2J31m") & set(said + shown)


@pytest.mark.parametrize("text", [*MARKUP, STEERING])
def test_bars_show_titles_as_they_are(terminal: Console, text: str) -> None:
    with screen.bar(text, terminal, TextColumn("frames")) as progress:
        progress(1, 2)
    with screen.bars(terminal) as tell:
        tell(text, text, 1, 2)
        tell(f"{text} again", text, 1, 2)
    shown = written(terminal)
    assert printable(text) in shown
    assert "\x1b[2J" not in shown
    assert not set("\x07\x9b\u202e\u200b\x00") & set(shown)


@pytest.mark.parametrize("text", [*MARKUP, STEERING])
def test_findings_are_shown_as_they_are(text: str) -> None:
    console = Console(file=io.StringIO(), width=400)
    findings = [Finding(text, text), Finding(text, text, False, text), Finding(text, text, False, text, needed=False)]
    with pytest.raises(PhylatentError, match=r"^wrong: "):
        show(text, findings, console, bad="wrong")
    assert written(console).count(printable(text)) == 9
    assert all(line.isprintable() for line in written(console).split("\n"))


@pytest.mark.parametrize("name", ["[red]x \x1b[2J", "[red]x[/] \x1b[2J", "[|]", "\u202e\x9b\x07", "line\nbreak :smile:"])
def test_inspect_prints_the_name_of_a_column_harmlessly(
    here, tworooms_data: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str
) -> None:
    """A slash makes a group of HDF5, which is no column; the rest of the file is shown all the same."""
    monkeypatch.setattr(console, "_width", 400)
    path = tmp_path / f"{name.replace('/', '|')}.h5"
    shutil.copyfile(tworooms_data, path)
    with h5py.File(path, "r+") as file:
        file[name] = np.zeros(len(file["action"]), dtype=np.float32)
    done = here("inspect", str(path), "task=tworooms", "preset=smoke", cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    assert all(line.isprintable() for line in done.stdout.split("\n"))
    assert "/" in name or done.stdout.count(printable(name)) > 1
    assert printable(path.name) in done.stdout
    assert (tmp_path / "runs").is_dir()


def test_inspect_of_a_file_with_the_longest_name(here, tworooms_data: Path, tmp_path: Path) -> None:
    path = tmp_path / ("x" * 252 + ".h5")
    shutil.copyfile(tworooms_data, path)
    assert here("inspect", str(path), "task=tworooms", "preset=smoke", cwd=tmp_path).returncode == 0
    assert_user_mistake(here("inspect", "nowhere[/].h5", "task=tworooms", cwd=tmp_path), "nowhere[/].h5")
