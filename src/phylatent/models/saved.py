"""What a saved model must hold before it is built: sizes that are numbers, a split that is one, weights of these sizes."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import fields
from pathlib import Path
from typing import TYPE_CHECKING, Any

from phylatent.errors import UserError
from phylatent.reading import read_json
from phylatent.reading.shapes import COUNT, REAL, Maybe, Rule, is_whole, misfit, shown
from phylatent.schema import ClipConfig, ModelConfig

if TYPE_CHECKING:
    from torch import Tensor

    from phylatent.models.world_model import WorldModelConfig

SIZE = Rule("a whole number above 0", lambda value: is_whole(value, 1))
SCALES = {"mean": [REAL], "std": [REAL]}
OBJECT: dict[str, Any] = {}
SPLIT = {"train": [COUNT], "seed": COUNT, "validation?": [COUNT], "test?": [COUNT], "held_out?": [COUNT]}
TRAINED = {
    "seed?": Maybe(COUNT),
    "preset?": Maybe(str),
    "train?": Maybe(OBJECT),
    "pred?": Maybe(OBJECT),
    "plan?": Maybe(OBJECT),
}
TRAINED |= {"objectives?": Maybe([str]), "svic?": Maybe({"family?": str, "kinds?": [str]}), "diagnose?": Maybe(OBJECT)}
SHAPE = {
    "action_dim": SIZE,
    "model?": {entry.name + "?": SIZE for entry in fields(ModelConfig)} | {"encoder?": str, "dropout?": REAL},
    "encoder?": Maybe(OBJECT),
    "clip?": {entry.name + "?": SIZE for entry in fields(ClipConfig)},
    "task?": Maybe(str),
    "variant?": Maybe(str),
    "action_low?": Maybe([REAL]),
    "action_high?": Maybe([REAL]),
    "action?": Maybe(SCALES),
    "action_correlations?": Maybe([[[REAL]]]),
    "target?": Maybe(SCALES),
    "split?": Maybe(SPLIT),
    "provenance?": Maybe({"config?": Maybe(TRAINED), "data?": Maybe({"fingerprint?": Maybe(str)})}),
}


def read_config(path: Path, again: str) -> dict[str, Any]:
    """`config.json` of a model directory of ours; an error unless it could be one."""
    found = read_json(path, again=again)
    if wrong := config_misfit(found):
        raise UserError(f"{path} does not describe a phylatent world model: {wrong}; {again}")
    return found


def config_misfit(found: Any) -> str | None:
    """What is wrong with the saved configuration of a model, in words; None where nothing is."""
    return misfit(found, SHAPE) or _unknown(found) or _lengths(found) or _split(found.get("split"))


def _unknown(found: Mapping[str, Any]) -> str | None:
    for part, shape in (
        ("", SHAPE),
        ("model", SHAPE["model?"]),
        ("clip", SHAPE["clip?"]),
        ("action", SCALES),
        ("target", SCALES),
    ):
        names = {name.removesuffix("?") for name in shape}  # type: ignore[attr-defined]
        inside = found if not part else found.get(part) or {}
        if surplus := [name for name in inside if name not in names]:
            return f"it has {part + '.' if part else ''}{surplus[0]}, which this version does not know"
    return None


def _lengths(found: Mapping[str, Any]) -> str | None:
    """Every list about actions has as many entries as an action has values."""
    count = found["action_dim"]
    action = found.get("action") or {"mean": [0] * count, "std": [0] * count}
    lists: dict[str, Sequence[Any]] = {"action.mean": action["mean"], "action.std": action["std"]}
    lists |= {name: found[name] for name in ("action_low", "action_high") if found.get(name) is not None}
    for lag, rows in enumerate(found.get("action_correlations") or ()):
        lists[f"action_correlations[{lag}]"] = rows
        lists |= {f"action_correlations[{lag}][{at}]": row for at, row in enumerate(rows)}
    for name, values in lists.items():
        if len(values) != count:
            return f"{name} has {len(values)} entries, and action_dim is {count}"
    target = found.get("target") or {"mean": (), "std": ()}
    if len(target["mean"]) != len(target["std"]):
        return "target.mean and target.std have not the same length"
    negative = [
        f"{name}.std" for name in ("action", "target") if any(value < 0 for value in (found.get(name) or action)["std"])
    ]
    return f"{negative[0]} holds a negative number" if negative else None


def _split(split: Mapping[str, Any] | None) -> str | None:
    """An episode that is on two sides would be judged on after the model was trained on it."""
    if split is None:
        return None
    names = ("held_out",) if "held_out" in split else ("validation", "test")
    if missing := [name for name in names if name not in split]:
        return f"split has no {missing[0]}"
    seen: dict[int, str] = {}
    for name in ("train", *names):
        for episode in split[name]:
            if episode in seen:
                return f"episode {episode} is in split.{seen[episode]} and in split.{name}"
            seen[episode] = name
    return None


def check_sizes(path: Path, config: WorldModelConfig, shapes: Mapping[str, Sequence[int]], again: str) -> None:
    """An error unless the weights are of the configured sizes: told before a model is built that may not fit the memory."""
    size, layers = config.model, "predictor.transformer.layers."
    inner = 3 * size.predictor_heads * size.predictor_head_dim
    wanted: dict[str, tuple[int, ...]] = {
        "projector.net.0.weight": (size.projector_hidden, size.width),
        "action_encoder.patch_embed.weight": (size.action_smoothed, config.block_dim, 1),
        "predictor.pos_embedding": (1, config.clip.context, size.width),
        f"{layers}0.attn.to_qkv.weight": (inner, size.width),
        f"{layers}0.mlp.net.1.weight": (size.predictor_mlp, size.width),
    }
    depths = {layers: size.predictor_depth}
    if size.encoder == "vit":
        patches = (size.image_size // size.patch_size) ** 2
        wanted["encoder.patch_embed.proj.weight"] = (size.width, 3, size.patch_size, size.patch_size)
        wanted["encoder.pos_embed"] = (1, patches + 1, size.width)
        depths["encoder.blocks."] = size.depth
    for name, shape in wanted.items():
        if name not in shapes:
            raise UserError(f"{path} does not hold the weights of a phylatent world model: it has no {name}; {again}")
        if tuple(shapes[name]) != shape:
            raise UserError(f"{path} does not fit its config.json: {name} is {list(shapes[name])}, not {list(shape)}; {again}")
    for prefix, depth in depths.items():
        found = len({name[len(prefix) :].split(".")[0] for name in shapes if name.startswith(prefix)})
        if found != depth:
            raise UserError(f"{path} does not fit its config.json: it has {found} of {prefix}*, not {depth}; {again}")


def check_finite(path: Path | str, tensors: Iterable[tuple[str, Tensor]], again: str) -> None:
    """An error if a weight is NaN or infinite: whatever such a model says, it says of nothing."""
    broken = next((name for name, tensor in tensors if not tensor.isfinite().all()), None)
    if broken is not None:
        raise UserError(f"{path} holds weights that are not finite ({shown(broken)}), so there is nothing to judge; {again}")
