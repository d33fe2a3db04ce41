"""Files changed at random, in ways that are written down: a change is plain data, chosen once and applied as often as wanted.

`choose` looks at a file and returns a change of it, `apply` does it. Any file can have its bytes changed or something else put
in its place; what has a structure that we know can have that changed, so that it still opens (structures.py, containers.py, …).
"""

from __future__ import annotations

import os
import shutil
from pathlib import Path
from random import Random
from typing import Any

import archive_changes
import containers
import hdf5_changes
import structures

Change = dict[str, Any]
"""`file`, from the case's directory; `do`, the name of what is done to it; and that one's own fields."""
STRUCTURED = {
    ".json": structures,
    ".yaml": structures,
    ".csv": structures,
    ".py": structures,
    ".ckpt": containers,
    ".pt": containers,
    ".safetensors": containers,
    ".npz": containers,
    ".h5": hdf5_changes,
    ".zst": archive_changes,
}
PLACES = ("directory", "loop", "fifo", "nowhere", "missing")
BYTES = ("flip", "cut", "empty", "repeat", "zeros", "insert", "other", "place")
WEIGHTS = (4, 3, 1, 1, 1, 1, 2, 2)


def choose(rng: Random, here: Path, file: str) -> Change:
    """A change of the file that lies there."""
    path = here / file
    known = STRUCTURED.get(path.suffix)
    if known is not None and rng.random() < 0.65:
        return {"file": file, **known.choose(rng, path)}
    size = path.stat().st_size
    do = rng.choices(BYTES, WEIGHTS)[0]
    change: Change = {"file": file, "do": do}
    if do == "flip":
        # half of the time near the start, where formats keep what they say about themselves
        limit = max(1, min(size, 4096) if rng.random() < 0.5 else size)
        change["bits"] = [[rng.randrange(limit), rng.randrange(8)] for _ in range(rng.choice([1, 1, 3, 20]))]
    elif do == "cut":
        change["keep"] = rng.choice([rng.randrange(max(1, size)), rng.randrange(min(size, 64) or 1), max(0, size - 1)])
    elif do in ("repeat", "zeros"):
        change |= {"at": rng.randrange(max(1, size)), "size": rng.choice([1, 16, 512, 4096])}
    elif do == "insert":
        change |= {"at": rng.randrange(max(1, size)), "hex": rng.randbytes(rng.choice([1, 8, 200])).hex()}
    elif do == "other":
        change["of"] = rng.choice(OTHERS)
    elif do == "place":
        change["what"] = rng.choice(PLACES)
    return change


OTHERS = (
    *("data.h5", "done/config.yaml", "done/model/config.json", "done/model/model.safetensors", "lewm/weights.pt", "evil.py"),
    *("done/diagnostics/paper.json", "done/diagnostics/paper.npz", "packed.h5.zst", "done/train.csv", "done/result.json"),
    *("done/planning/paper/pairs.json", "odd/noise.h5", "half/run.json", "lewm/config.json"),
)
"""Files of the material that can take the place of any other."""


def apply(change: Change, here: Path, material: Path) -> None:
    """Do it to the case's own copy."""
    path, do = here / change["file"], change["do"]
    if do == "place":
        _put(path, change["what"])
    elif do == "other":
        shutil.copyfile(material / change["of"], path)
    elif do in BYTES:
        path.write_bytes(_changed(path.read_bytes(), change))
    else:
        STRUCTURED[path.suffix].apply(change, path)


def _changed(content: bytes, change: Change) -> bytes:
    do, at, size = change["do"], change.get("at", 0), change.get("size", 0)
    at = min(at, len(content))
    if do == "flip":
        flipped = bytearray(content)
        for place, bit in change["bits"]:
            if flipped:
                flipped[place % len(flipped)] ^= 1 << bit
        return bytes(flipped)
    if do == "cut":
        return content[: change["keep"]]
    if do == "empty":
        return b""
    if do == "repeat":
        return content[:at] + content[at : at + size] * 2 + content[at + size :]
    if do == "zeros":
        return content[:at] + bytes(min(size, len(content) - at)) + content[at + size :]
    assert do == "insert"
    return content[:at] + bytes.fromhex(change["hex"]) + content[at:]


def _put(path: Path, what: str) -> None:
    path.unlink()
    if what == "directory":
        path.mkdir()
    elif what == "loop":
        path.symlink_to(path.name)
    elif what == "fifo":
        os.mkfifo(path)
    elif what == "nowhere":
        path.symlink_to("not-there")
