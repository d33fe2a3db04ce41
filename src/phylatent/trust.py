"""Whose code may run (SECURITY.md): a Python file that the user names in this command, and nothing that only a file names.

What was named once is remembered with its hash, in the user's own state directory: a run of the user's own that names the very
same file goes on without it being named again. A path in a run, a model or a variant that came from elsewhere stays a hint.
"""

from __future__ import annotations

import contextlib
import hashlib
import os
from pathlib import Path

from phylatent.errors import PhylatentError, UserError
from phylatent.files import atomic

NAMED = "PHYLATENT_NAMED_FILES"
"""Paths that were named, one a line. In the environment, so that the processes of this command know them, too."""


def allow(path: str | Path) -> None:
    """The user named this file, on the command line or in a call: its code may run in this process and its children."""
    os.environ[NAMED] = "\n".join(dict.fromkeys([*_named(), _full(path)]))


def forget_named() -> None:
    """A command begins: nothing is named yet."""
    os.environ.pop(NAMED, None)


def check_allowed(path: Path, key: str) -> None:
    """An error unless the code of this file may run; `key` is where the user would name it, such as task=."""
    if _full(path) in _named():
        return
    before = _remembered(path)
    if before is not None and before == _hash(path):
        return
    why = "has changed since you named it" if before is not None else "was named by a file and not by you"
    raise UserError(
        f"{path} holds code and {why}, so it was not run (SECURITY.md); if you trust it, name it in the command: {key}{path}"
    )


def remember(path: Path) -> None:
    """The user named this file and it was run: as it is now, it may be run again. Where nothing can be kept, nothing is."""
    if _full(path) in _named() and _remembered(path) != _hash(path):
        with contextlib.suppress(OSError, RuntimeError, PhylatentError), atomic(_entry(path)) as temporary:
            temporary.write_text(f"{_hash(path)} {_full(path)}\n")


def _named() -> list[str]:
    return list(filter(None, os.environ.get(NAMED, "").split("\n")))


def _full(path: str | Path) -> str:
    return os.path.realpath(Path(path).expanduser())


def _entry(path: Path) -> Path:
    """A file for each path, so that processes do not write into each other's."""
    state = os.environ.get("XDG_STATE_HOME") or Path.home() / ".local" / "state"
    return Path(state) / "phylatent" / "own-files" / hashlib.sha256(os.fsencode(_full(path))).hexdigest()


def _remembered(path: Path) -> str | None:
    """The hash that the file had when the user named it last."""
    try:
        return _entry(path).read_text().partition(" ")[0]
    except (OSError, ValueError, RuntimeError):  # nothing there, or no home at all
        return None


def _hash(path: Path) -> str:
    return hashlib.sha256(path.read_bytes()).hexdigest()
