"""Checkpoints in LeWM's layout, as files: where they are, and what is in them."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from phylatent.errors import UserError
from phylatent.models.lewm.config import variant_of
from phylatent.models.load import OURS
from phylatent.models.saved import check_finite
from phylatent.reading import read_json, read_tensors
from phylatent.reading.shapes import shown
from phylatent.runs import HUB_ID, run_directory

CONFIG, WEIGHTS, BESIDE = "config.json", "weights.pt", "phylatent.json"
"""A checkpoint in LeWM's layout; `phylatent.json` keeps what that layout has no place for."""
EXPECTED = "a LeWM checkpoint (a directory, its .pt file, or a Hub id like owner/name) or packed data (.h5.zst, .tar.zst)"

EXPORTED = "export it again, or fetch it from where it came"


@dataclass(frozen=True)
class Checkpoint:
    """What was found: a state dict, the description of its graph, and what an export of ours wrote beside them."""

    name: str
    config: Mapping[str, Any]
    state: Mapping[str, Tensor]
    sha256: str
    beside: Mapping[str, Any] | None


def locate(source: str) -> Checkpoint:
    place = Path(source).expanduser()
    if place.suffix == ".pt" and place.is_file():
        return _read(place.resolve().parent.name, place.parent, place)
    if place.is_dir():
        if run_directory(place) or (place / OURS).is_file():
            raise UserError(f"{source} is a phylatent model already: diagnose, plan and export take it as it is")
        found = sorted(place.glob("*.pt"))
        if len(found) != 1:
            names = f"several: {', '.join(path.name for path in found)}; name one of them" if found else "none"
            raise UserError(f"{source} should hold one .pt file with LeWM weights, beside {CONFIG}; it has {names}")
        return _read(place.resolve().name, place, found[0])
    if place.exists() or not HUB_ID.fullmatch(source):
        raise UserError(f"{source} is nothing that import reads; expected {EXPECTED}")
    folder = _download(source)
    return _read(place.name, folder, folder / WEIGHTS)


def _download(source: str) -> Path:
    from huggingface_hub import snapshot_download

    from phylatent.models.hub import answers

    try:
        wanted = [CONFIG, WEIGHTS, BESIDE]
        return Path(snapshot_download(source, allow_patterns=wanted, local_files_only=not answers(source)))
    except Exception as error:
        raise UserError(
            f"there is no {source} here, and as a Hub id it could not be loaded: {' '.join(str(error).split())[:200]}"
        ) from error


def _read(name: str, folder: Path, weights: Path) -> Checkpoint:
    if not weights.is_file():
        raise UserError(f"{name} has no {weights.name}; expected LeWM's {CONFIG} and {WEIGHTS}")
    if not (folder / CONFIG).is_file():
        raise UserError(f"{weights} has no {CONFIG} beside it, which says what its tensors are for")
    config = read_json(folder / CONFIG, again=EXPORTED)
    variant_of(config)
    state = _state(weights)
    beside = None
    if (folder / BESIDE).is_file():
        beside = read_json(folder / BESIDE, again=f"move {BESIDE} away and give task= and data=")
    return Checkpoint(name, config, state, file_sha256(weights), beside)


def _state(weights: Path) -> Mapping[str, Tensor]:
    """Names with a tensor each, every one of them whole and finite."""
    state = read_tensors(weights, again=EXPORTED)
    state = state.get("state_dict", state) if isinstance(state, Mapping) else None
    if not state or not isinstance(state, Mapping):
        raise UserError(f"{weights} holds no state dict; expected names with a tensor each")
    for name, tensor in state.items():
        if not isinstance(name, str):
            raise UserError(f"{weights} holds no state dict: {shown(name)} is no name; expected names with a tensor each")
        if not isinstance(tensor, Tensor):
            found = f"{shown(name)} is {shown(tensor)}"
            raise UserError(f"{weights} holds no state dict: {found}; expected names with a tensor each")
        # A few bytes can be strided to any shape, and sizes are read off shapes.
        if tensor.layout != torch.strided or tensor.untyped_storage().nbytes() < tensor.numel() * tensor.itemsize:
            raise UserError(f"{weights} holds no state dict: {shown(name)} is no plain tensor; {EXPORTED}")
    check_finite(weights, state.items(), EXPORTED)
    return state


def file_sha256(path: Path) -> str:
    with path.open("rb") as handle:
        return hashlib.file_digest(handle, "sha256").hexdigest()
