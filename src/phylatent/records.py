"""What a run leaves behind: files that are whole or absent, and JSON records that say where a number came from."""

from __future__ import annotations

import contextlib
import errno
import json
import math
import os
import platform
import subprocess
import sys
from collections.abc import Iterator, Mapping
from datetime import UTC, datetime
from importlib import metadata
from pathlib import Path
from typing import Any

from phylatent.errors import PhylatentError
from phylatent.schema import HELD_OUT, Config, split_note

PACKAGES = ("phylatent", "torch", "lightning", "timm", "numpy", "stable-worldmodel", "h5py", "safetensors")


def home() -> Path:
    """Where `runs/` and `data/` live: $PHYLATENT_HOME, or the working directory."""
    return Path(os.environ.get("PHYLATENT_HOME") or ".")


def data_path(config: Config) -> Path:
    """The data file of a configuration: `data=`, or where `collect` puts it."""
    return Path(config.data).expanduser() if config.data else home() / "data" / f"{config.task}-{config.preset}.h5"


@contextlib.contextmanager
def atomic(path: Path) -> Iterator[Path]:
    """Write to the yielded temporary path; it takes the name `path` only once it is whole and on disk."""
    path.parent.mkdir(parents=True, exist_ok=True)
    temporary = path.with_name(f".{path.name}.{os.getpid()}.partial")
    try:
        yield temporary
        with temporary.open("rb") as handle:
            os.fsync(handle.fileno())
        temporary.replace(path)
    except BaseException as error:
        temporary.unlink(missing_ok=True)
        if is_disk_full(error):
            raise PhylatentError(
                f"no space left on the disk while writing {path}; nothing was overwritten. Free some space and run again"
            ) from error
        raise


def is_disk_full(error: BaseException) -> bool:
    """HDF5 and safetensors wrap the operating system's error: look for it in the chain and in their texts."""
    seen: BaseException | None = error
    while seen is not None:
        if isinstance(seen, OSError) and seen.errno in (errno.ENOSPC, errno.EDQUOT):
            return True
        if "No space left on device" in str(seen):
            return True
        seen = seen.__cause__ or seen.__context__
    return False


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
