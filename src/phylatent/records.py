"""JSON records that say where a number came from."""

from __future__ import annotations

import json
import math
import platform
import subprocess
import sys
from collections.abc import Mapping
from datetime import UTC, datetime
from importlib import metadata
from pathlib import Path
from typing import Any

from phylatent.files import atomic
from phylatent.schema import HELD_OUT, split_note

PACKAGES = ("phylatent", "torch", "lightning", "timm", "numpy", "stable-worldmodel", "h5py", "safetensors")


def write_json(path: Path, record: Any) -> None:
    """JSON has no NaN and no infinity: a number that is not finite is written as null, a value that is not there."""
    with atomic(path) as temporary:
        temporary.write_text(json.dumps(_finite(record), indent=2, allow_nan=False) + "\n")


def _finite(value: Any) -> Any:
    if isinstance(value, float):
        return value if math.isfinite(value) else None
    if isinstance(value, Mapping):
        return {key: _finite(item) for key, item in value.items()}
    if isinstance(value, (list, tuple)):
        return [_finite(item) for item in value]
    return value


def rated_sections(record: Mapping[str, Any]) -> list[str]:
    """The diagnostics that a record holds a section of, in its order: whatever they are called, a section has a rate."""
    return [name for name, entry in record.items() if isinstance(entry, Mapping) and "rate" in entry]


def complete_key(key: Mapping[str, Any], defaults: Mapping[str, Any]) -> dict[str, Any]:
    """The key of a record, whichever version made it: a setting that it does not name was not there, and is at its default."""
    return json.loads(json.dumps({**defaults, **key}))


def split_of(record: Mapping[str, Any]) -> str:
    """The name of the side of the split that a record's numbers are from. Records of two-way splits did not name it."""
    return (record.get("split") or {}).get("name", HELD_OUT)


def split_words(name: str) -> str:
    """`test`, or `held-out (two-way split: …)`: what a table or page says of where its numbers come from."""
    note = split_note(name)
    return f"{name} ({note})" if note else name


def provenance() -> dict[str, Any]:
    """Versions, machine and time: what someone needs to reproduce or distrust a number."""
    return {
        "created": datetime.now(UTC).isoformat(timespec="seconds"),
        "command": [Path(sys.argv[0]).name, *sys.argv[1:]],
        "python": platform.python_version(),
        "platform": platform.platform(),
        "packages": {name: _version(name) for name in PACKAGES},
        "commit": _commit(),
    }


def _version(package: str) -> str | None:
    try:
        return metadata.version(package)
    except metadata.PackageNotFoundError:
        return None


def _commit() -> str | None:
    """The commit of phylatent's own checkout, when it runs from one."""
    here = Path(__file__).resolve().parent
    git = ["git", "-C", str(here)]
    try:
        head = subprocess.run([*git, "rev-parse", "HEAD"], capture_output=True, text=True, timeout=5, check=True)
        tracked = subprocess.run([*git, "ls-files", "--error-unmatch", __file__], capture_output=True, timeout=5)
    except (OSError, subprocess.SubprocessError):
        return None
    return head.stdout.strip() if tracked.returncode == 0 else None
