"""JSON records that say where a number came from."""

from __future__ import annotations

import json
import math
import platform
import subprocess
import sys
from collections.abc import Iterable, Mapping
from datetime import UTC, datetime
from importlib import metadata
from pathlib import Path
from typing import Any

from phylatent.files import atomic
from phylatent.reading import check_shape, damaged, read_json
from phylatent.reading.shapes import COUNT, REAL, WHOLE, Maybe, Rule
from phylatent.schema import HELD_OUT, PAPER_DIAGNOSTICS, split_note

PACKAGES = ("phylatent", "torch", "lightning", "timm", "numpy", "stable-worldmodel", "h5py", "safetensors")

INTERVAL = Rule("two finite numbers", lambda value: isinstance(value, list) and len(value) == 2 and all(map(REAL.holds, value)))
OBJECT: dict[str, Any] = {}
RATE = {"rate?": Maybe(REAL), "interval?": Maybe(INTERVAL), "spread?": Maybe(REAL)}
COUNTED = {**RATE, "failures?": Maybe(COUNT), "eligible?": Maybe(COUNT)}
SECTION = {
    **COUNTED,
    "per_seed?": Maybe([{"tau_phys?": Maybe(REAL), "tau_lat?": Maybe(REAL)}]),
    "by_kind?": Maybe({"*": COUNTED}),
    "by_horizon?": Maybe({"*": COUNTED}),
    "by_condition?": Maybe({"*": COUNTED}),
    "seen?": Maybe({**COUNTED, "kinds?": Maybe([str])}),
    "unseen?": Maybe({**COUNTED, "kinds?": Maybe([str])}),
    "thresholds?": Maybe([{**COUNTED, "q_phys": REAL, "q_lat": REAL}]),
    "physical?": Maybe(COUNTED),
    "median_correlation?": Maybe(REAL),
}
TRAINED = {"task?": Maybe(str), "preset?": Maybe(str), "variant?": Maybe(str), "seed?": Maybe(WHOLE)}
TRAINED |= {"pred?": Maybe({"stop_gradient?": Maybe(bool)})}
"""Of a training's configuration, what is read without composing it."""
MODEL = {"name?": Maybe(str), "variant?": Maybe(str), "task?": Maybe(str), "preset?": Maybe(str)}
MODEL |= {"training_seed?": Maybe(WHOLE), "stop_gradient?": Maybe(bool)}
JUDGED = {
    "model?": Maybe(MODEL),
    "key?": Maybe(OBJECT),
    "split?": Maybe({"name": str}),
    "settings?": Maybe({"budget?": Maybe(REAL)}),
    "provenance?": Maybe({"config?": Maybe(TRAINED)}),
}
DIAGNOSIS = {
    **JUDGED,
    "sample?": Maybe(str),
    "seeds?": Maybe([COUNT]),
    "health?": Maybe({"status?": Maybe(str), "sentence?": Maybe(str)}),
    **{f"{name}?": Maybe(SECTION) for name in PAPER_DIAGNOSTICS},
}
POLICY = {
    **RATE,
    **{f"{name}?": Maybe(COUNT) for name in ("successes", "count")},
    **{f"{name}?": Maybe(REAL) for name in ("median_steps", "mean_final_distance", "planning_seconds")},
    "interval_of?": Maybe(str),
}
EPISODE = {
    **dict.fromkeys(("pair", "episode"), COUNT),
    "success": bool,
    **{f"{name}?": Maybe(COUNT) for name in ("start", "first_success")},
    "final_distance?": Maybe(REAL),
    "verdict?": Maybe(str),
    "plans?": Maybe([{"imagined_cost?": Maybe(REAL), "real_cost?": Maybe(REAL)}]),
}
PLANNING = {
    **JUDGED,
    "rule?": Maybe(str),
    "unit?": Maybe(str),
    "already_solved?": Maybe(COUNT),
    "pairs?": Maybe({"hash?": Maybe(str), "count?": Maybe(COUNT)}),
    "policies?": Maybe({"*": Maybe(POLICY)}),
    "imagination?": Maybe({"agreed?": Maybe(REAL), "correlation?": Maybe(REAL), "failures?": Maybe({"*": COUNT})}),
    "episodes?": Maybe({"*": [EPISODE]}),
}

COMPARED = {"psnr": Maybe(REAL), "constant_psnr": Maybe(REAL), "explained": Maybe(REAL)}
DECODING = {
    **JUDGED,
    "settings": {"steps": COUNT, "frames": COUNT, "side": COUNT},
    "reconstruction": {**COMPARED, "frames": COUNT},
    "rollout": {"clips": COUNT, "horizons": [{**COMPARED, "blocks": COUNT, "steps": COUNT, "encoded_psnr": Maybe(REAL)}]},
}


def read_decoding(path: Path, *, again: str) -> dict[str, Any]:
    """The record of a decoder that was trained after the fact."""
    record = read_json(path, again=again)
    check_shape(path, record, DECODING, again=again)
    return record


def read_diagnosis(path: Path, *, again: str, sections: Iterable[str] = ()) -> dict[str, Any]:
    """The record of a diagnosis; what is there has its type, and `sections` are there with all that a table shows of them."""
    record = read_json(path, again=again)
    shown = {"rate": Maybe(REAL), "interval": Maybe(INTERVAL), "spread": Maybe(REAL)}
    shown |= {
        "failures": Maybe(COUNT),
        "eligible": Maybe(COUNT),
        "by_kind?": Maybe({"*": {"rate": object, "interval": object}}),
    }
    wanted: dict[str, Any] = dict.fromkeys(sections, shown)
    if wanted:
        wanted |= {f"{name}?": OBJECT for name in PAPER_DIAGNOSTICS if name not in wanted}
        wanted |= {"model": {"name": str}, "seeds": list, "health": {"status": str, "sentence": str}}
    for shape in (DIAGNOSIS, dict.fromkeys(rated_sections(record), SECTION), wanted):
        check_shape(path, record, shape, again=again)
    for name in rated_sections(record):
        _check_counted(path, record[name], ("failures", "eligible"), name, again)
    return record


def read_planning(path: Path, *, again: str, shown: bool = False) -> dict[str, Any]:
    """The record of an evaluation; what is there has its type, and with `shown` all is there that a table shows."""
    record = read_json(path, again=again)
    check_shape(path, record, PLANNING, again=again)
    _check_counted(path, record.get("policies"), ("successes", "count"), "policies", again)
    if shown:
        check_shape(path, record, {"policies": OBJECT, "episodes": OBJECT}, again=again)
        cells = {"rate": REAL, "interval": object, "spread": object, "median_steps": object, "mean_final_distance": REAL}
        count = Rule("one for each pair", lambda value: len(value) == record["pairs"]["count"])
        wanted = {
            "model": {"name": str},
            "pairs": {"hash": str, "count": COUNT},
            "unit": str,
            "already_solved": COUNT,
            "policies": {"*": cells},
            "episodes": dict.fromkeys(record["policies"], count),
            "imagination": Maybe({"agreed": REAL, "failures": OBJECT}),
        }
        check_shape(path, record, wanted, again=again)
    return record


def _check_counted(path: Path, found: Any, names: tuple[str, str], where: str, again: str) -> None:
    """An error where only one of two counts is there that are told together, `16 of 20`."""
    if isinstance(found, Mapping):
        if len({found.get(name) is None for name in names}) > 1:
            raise damaged(path, f"{where} has only one of {' and '.join(names)}", again)
        for name, inner in found.items():
            _check_counted(path, inner, names, f"{where}.{name}", again)
    elif isinstance(found, list):
        for at, inner in enumerate(found):
            _check_counted(path, inner, names, f"{where}[{at}]", again)


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
