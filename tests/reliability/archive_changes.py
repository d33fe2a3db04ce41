"""Changes of packed data: archives that hold something else than they should."""

from __future__ import annotations

import io
import tarfile
from pathlib import Path
from random import Random
from typing import Any

import zstandard

NAMES = ("../../escaped.h5", "/tmp/escaped.h5", "a.h5", "[red].h5", "\x1b[31m.h5", "a" * 200 + ".h5", "evil.py", "odd/loop.h5")


def choose(rng: Random, path: Path) -> dict[str, Any]:
    return {"do": rng.choice(["member", "bomb", "announced", "two", "not hdf5"]), "name": rng.choice(NAMES)}


def apply(change: dict[str, Any], path: Path) -> None:
    raw = zstandard.decompress(path.read_bytes(), max_output_size=2**26)
    do = change["do"]
    if do == "announced":  # says that it holds far more than it does
        content = bytearray(zstandard.ZstdCompressor(write_content_size=True).compress(raw))
        content[5:13] = b"\xff" * 8
        path.write_bytes(bytes(content))
    elif do == "bomb":  # 512 MB of nothing behind the beginning of a data file
        packer = zstandard.ZstdCompressor(level=1).compressobj()
        with path.open("wb") as out:
            out.write(packer.compress(raw[:4096]))
            for _ in range(512):
                out.write(packer.compress(bytes(2**20)))
            out.write(packer.flush())
    elif do == "not hdf5":
        path.write_bytes(zstandard.compress(b"plain text " * 200))
    else:
        packed = io.BytesIO()
        with tarfile.open(fileobj=packed, mode="w") as tar:
            link = tarfile.TarInfo("link.h5")
            link.type, link.linkname = tarfile.SYMTYPE, "/etc/passwd"
            if do == "two":
                tar.addfile(link)
            for _ in range(2 if do == "two" else 1):
                info = tarfile.TarInfo(change["name"])
                info.size = 64
                tar.addfile(info, io.BytesIO(b"\x89HDF\r\n\x1a\n" + bytes(56)))
        path.write_bytes(zstandard.compress(packed.getvalue()))
