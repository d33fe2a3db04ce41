"""Changes of what holds tensors and arrays: checkpoints, weights, npz, opened and written anew."""

from __future__ import annotations

import json
import os
import pickle
import struct
import zipfile
from collections.abc import Callable, Iterator
from pathlib import Path
from random import Random
from typing import Any

import numpy as np
import structures
import torch
from arrays import HOW, shaped
from material import EVIL_COMMAND


class Evil:
    """A pickle that runs a command when it is opened."""

    def __reduce__(self) -> tuple[Callable[[str], int], tuple[str]]:
        return os.system, (EVIL_COMMAND,)


def choose(rng: Random, path: Path) -> dict[str, Any]:
    suffix = path.suffix
    if suffix == ".npz":
        do, name = rng.choice(["array", "array", "without", "pickle"]), rng.choice(list(np.load(path)))
        return {"do": do, "name": name, "how": rng.choice(HOW)}
    if suffix == ".safetensors":
        header = json.loads(_header(path.read_bytes()))
        if rng.random() < 0.5:
            node = [rng.choice(list(header))]
            if rng.random() < 0.8 and header[node[0]]:
                node.append(rng.choice(list(header[node[0]])))
            return {"do": rng.choice(["set", "delete"]), "node": node, "value": rng.choice(structures.VALUES)}
        names = [name for name in header if name != "__metadata__"]
        return {"do": "tensor", "node": [rng.choice(names)], "how": rng.choice(HOW)}
    if rng.random() < 0.1:
        return {"do": "pickle", "zipped": rng.random() < 0.5}
    node = rng.choice(list(_nodes(_load(path))))
    if rng.random() < 0.4:
        return {"do": "tensor", "node": node, "how": rng.choice(HOW)}
    value = rng.choice([v for v in structures.VALUES if v != "\ud800"])
    return {"do": rng.choice(["set", "set", "delete"]), "node": node[: rng.randint(1, len(node))], "value": value}


def apply(change: dict[str, Any], path: Path) -> None:
    suffix, do = path.suffix, change["do"]
    if suffix == ".npz":
        arrays = dict(np.load(path))
        array = arrays.pop(change["name"], np.zeros(3))
        if do != "without":
            arrays[change["name"]] = np.array([Evil()]) if do == "pickle" else shaped(array, change["how"])
        np.savez(path, **arrays)
    elif suffix == ".safetensors":
        _apply_safetensors(change, path)
    elif do == "pickle":
        _write_pickle(path, change["zipped"])
    elif do == "tensor":
        found = _load(path)
        _replace(found, change["node"], lambda value: _tensor(value, change["how"]))
        torch.save(found, path)
    else:
        torch.save(structures.edited(_load(path), change, path.parent), path)


def _tensor(value: Any, how: str) -> Any:
    if not isinstance(value, torch.Tensor):
        return float("nan") if how == "nan" else torch.zeros(3)
    return torch.from_numpy(np.ascontiguousarray(shaped(value.detach().float().numpy(), how)))


def _load(path: Path) -> Any:
    return torch.load(path, map_location="cpu", weights_only=True)


def _nodes(value: Any, path: tuple[Any, ...] = ()) -> Iterator[list[Any]]:
    """The way to every value; those of large tables are many, and tensors are what counts there."""
    if isinstance(value, dict):
        for key, inner in value.items():
            yield from _nodes(inner, (*path, key))
    elif isinstance(value, (list, tuple)) and value:
        for number, inner in enumerate(value):
            yield from _nodes(inner, (*path, number))
    elif path:
        yield list(path)


def _replace(found: Any, node: list[Any], how: Callable[[Any], Any]) -> None:
    try:
        for step in node[:-1]:
            found = found[step]
        found[node[-1]] = how(found[node[-1]])
    except (KeyError, IndexError, TypeError):
        pass


def _write_pickle(path: Path, zipped: bool) -> None:
    if not zipped:
        path.write_bytes(pickle.dumps(Evil()))
        return
    with zipfile.ZipFile(path, "w") as file:
        file.writestr("archive/data.pkl", pickle.dumps({"state_dict": Evil(), "global_step": 1}, protocol=2))
        file.writestr("archive/version", "3\n")


def _header(content: bytes) -> bytes:
    return content[8 : 8 + struct.unpack("<Q", content[:8])[0]]


def _apply_safetensors(change: dict[str, Any], path: Path) -> None:
    from safetensors.torch import load, save

    content = path.read_bytes()
    if change["do"] == "tensor":
        tensors = load(content)
        _replace(tensors, change["node"], lambda value: _tensor(value, change["how"]).clone())
        path.write_bytes(save(tensors))
        return
    header = _header(content)
    changed = json.dumps(structures.edited(json.loads(header), change, path.parent)).encode(errors="surrogatepass")
    path.write_bytes(struct.pack("<Q", len(changed)) + changed + content[8 + len(header) :])
