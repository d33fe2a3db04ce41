"""A model from where it lies: a run directory, a model directory or a Hub id."""

from __future__ import annotations

import hashlib
from pathlib import Path

from huggingface_hub import hf_hub_download

from phylatent.errors import PhylatentError, UserError
from phylatent.models.encoders import find_encoder
from phylatent.models.hub import answers
from phylatent.models.lewm.config import is_lewm
from phylatent.models.world_model import WorldModel
from phylatent.own_files import is_path
from phylatent.reading import read_json, read_yaml
from phylatent.runs import CONFIG, MODEL, check_source, run_directory

OURS = "model.safetensors"
"""The weights in a model directory of ours."""


def weights_hash(model: WorldModel) -> str:
    """Of names and values: two models with the same hash are the same."""
    digest = hashlib.sha256()
    for name, tensor in sorted(model.state_dict().items()):
        digest.update(name.encode())
        digest.update(tensor.detach().cpu().contiguous().numpy().tobytes())
    return digest.hexdigest()


def load_model(source: str) -> WorldModel:
    """The model of a run directory, a model directory or a Hub id."""
    check_source(source)
    place = Path(source).expanduser()
    run = run_directory(place)
    if run is not None:
        _meet_encoder(run / CONFIG)
        return WorldModel.from_pretrained(run / MODEL)
    if place.is_dir():
        if not (place / OURS).is_file():
            _refuse_lewm(source, place / "config.json")
        return WorldModel.from_pretrained(place)
    try:
        kept_only = not answers(source)
        _refuse_lewm(source, Path(hf_hub_download(source, "config.json", local_files_only=kept_only)))
        return WorldModel.from_pretrained(source, local_files_only=kept_only)
    except PhylatentError:
        raise
    except Exception as error:
        raise UserError(
            f"there is no directory {source}, and as a Hub id it could not be loaded: {' '.join(str(error).split())[:200]}"
        ) from error


def _meet_encoder(config: Path) -> None:
    """A model names its encoder. Where one of the user's own is declared, the run's configuration says."""
    try:
        saved = read_yaml(config, again="")
    except UserError:
        return  # the model may do without it; whoever reads the configuration itself says what is wrong
    model = saved.get("model")
    encoder = model.get("encoder") if isinstance(model, dict) else None
    if isinstance(encoder, str) and is_path(encoder):
        find_encoder(encoder)


def _refuse_lewm(source: str, config: Path) -> None:
    """LeWM's layout shares a file name with ours; what it lacks for being judged, `import` adds."""
    try:
        described = read_json(config, again="")
    except UserError:
        return  # and whoever loads it says what is wrong
    if is_lewm(described):
        raise UserError(f"{source} is a LeWM checkpoint; import it first: phylatent import {source} task=… data=…")
