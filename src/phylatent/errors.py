"""The two ways a command can fail on purpose: the user's mistake, and a run that could not go on."""

from __future__ import annotations

import difflib
from collections.abc import Iterable


class PhylatentError(Exception):
    """A failure told in one sentence. Exit code 1 unless a subclass says otherwise."""

    exit_code = 1
    shared = False
    """Whether all processes of a training raise it together, so that the first one's word is enough."""


class UserError(PhylatentError):
    """Something in what the user asked for or handed in: what was found, what was expected, what to do."""

    exit_code = 2


def unknown(kind: str, name: str, known: Iterable[str]) -> str:
    """The sentence for a name that does not exist, with the nearest one that does."""
    names = sorted(known)
    near = difflib.get_close_matches(name, names, n=1)
    hint = f"did you mean {near[0]!r}?" if near else f"known: {', '.join(names)}"
    return f"unknown {kind} {name!r}; {hint}"


def of_the_system(error: BaseException) -> str | None:
    """The sentence for what the operating system refused: memory, or a file; None where the error is of another kind."""
    text = " ".join(str(error).split())
    if isinstance(error, MemoryError) or type(error).__name__ == "OutOfMemoryError" or "can't allocate memory" in text:
        return f"memory ran out ({text[:160] or 'the system gave none'}); give smaller sizes or batches, or fewer workers"
    if isinstance(error, RuntimeError) and "home directory" in text:
        return "a path begins with ~ and a name that nobody has here; write the path in full"
    if isinstance(error, OSError) and error.strerror is not None:
        where = f"{error.filename}: " if error.filename is not None else ""
        return f"{where}{error.strerror}; check that path, its permissions and its disk"
    return None


class Interrupted(PhylatentError):
    """Ctrl-C or SIGTERM, after everything needed to go on was saved."""

    exit_code = 130
    shared = True
