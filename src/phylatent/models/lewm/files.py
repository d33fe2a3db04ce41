"""Checkpoints in LeWM's layout, as files: where they are, and what is in them."""

from __future__ import annotations

import hashlib
import json
import pickle
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from zipfile import BadZipFile

import torch
from torch import Tensor

from phylatent.errors import UserError
from phylatent.models.lewm.config import variant_of
from phylatent.models.load import OURS
from phylatent.runs import HUB_ID, run_directory

CONFIG, WEIGHTS, BESIDE = "config.json", "weights.pt", "phylatent.json"
"""A checkpoint in LeWM's layout; `phylatent.json` keeps what that layout has no place for."""
EXPECTED = "a LeWM checkpoint (a directory, its .pt file, or a Hub id like owner/name) or packed data (.h5.zst, .tar.zst)"


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

    try:
        return Path(snapshot_download(source, allow_patterns=[CONFIG, WEIGHTS, BESIDE]))
    except Exception as error:
        raise UserError(
            f"there is no {source} here, and as a Hub id it could not be loaded: {' '.join(str(error).split())[:200]}"
        ) from error


def _read(name: str, folder: Path, weights: Path) -> Checkpoint:
    if not weights.is_file():
        raise UserError(f"{name} has no {weights.name}; expected LeWM's {CONFIG} and {WEIGHTS}")
    config = _json(folder / CONFIG)
    if config is None:
        raise UserError(f"{weights} has no {CONFIG} beside it, which says what its tensors are for")
    variant_of(config)
    try:
        state = torch.load(weights, map_location="cpu", weights_only=True)
    except (pickle.UnpicklingError, RuntimeError, EOFError, BadZipFile, ValueError, KeyError, TypeError) as error:
        raise UserError(
            f"{weights} is not a whole file of tensors ({' '.join(str(error).split())[:120]}); "
            "expected a state dict, as stable-worldmodel's save_pretrained writes it"
        ) from error
    state = state.get("state_dict", state) if isinstance(state, Mapping) else {}
    if not state or not all(isinstance(tensor, Tensor) for tensor in state.values()):
        raise UserError(f"{weights} holds no state dict; expected names with a tensor each")
    return Checkpoint(name, config, state, file_sha256(weights), _json(folder / BESIDE))


def _json(path: Path) -> dict[str, Any] | None:
    if not path.is_file():
        return None
    try:
        found = json.loads(path.read_text())
    except ValueError as error:
        raise UserError(f"{path} is not JSON: {error}") from error
    if not isinstance(found, dict):
        raise UserError(f"{path} holds no JSON object; expected what phylatent or stable-worldmodel wrote")
    return found


def file_sha256(path: Path) -> str:
    with path.open("rb") as handle:
        return hashlib.file_digest(handle, "sha256").hexdigest()
