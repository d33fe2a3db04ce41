"""JSON schemas of the records, made from the shapes that they are checked with when they are read: the two cannot differ."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

DRAFT = "https://json-schema.org/draft/2020-12/schema"


@dataclass(frozen=True)
class Record:
    file: str
    """Where it lies in a run."""
    written: str
    """By which command."""
    meaning: str
    shape: Any
    rest: Any = None
    """The shape of what has other names and a rate, where such sections may be there."""


def kinds() -> dict[str, Record]:
    from phylatent import records, runs
    from phylatent.planning import pairs
    from phylatent.training import result

    listed = {**pairs.SHAPE, "pairs": [pairs.NAMED]}
    return {
        "diagnosis": Record(
            "diagnostics/<protocol>.json",
            "diagnose",
            "How often a latent space fails, by diagnostic.",
            records.DIAGNOSIS,
            rest=records.SECTION,
        ),
        "planning": Record(
            "planning/<protocol>/result.json", "plan", "How often plans arrive, for every policy and pair.", records.PLANNING
        ),
        "pairs": Record("planning/<protocol>/pairs.json", "plan", "The starts and goals that were planned between.", listed),
        "result": Record("result.json", "train", "How a training went, and its last validation.", result.SHAPE),
        "run": Record("run.json", "train", "What data the run was begun with.", runs.DATA_SHAPE),
        "time": Record("time.json", "train", "How long each start of the run took.", runs.TIME_SHAPE),
    }


def place(name: str) -> str:
    """Where the schema is in the site."""
    return f"reference/schemas/{name}.schema.json"


def schemas() -> dict[str, dict[str, Any]]:
    """Record → its JSON schema. Keys that it does not name may be there: later versions add some."""
    made = {}
    for name, record in kinds().items():
        schema = of_shape(record.shape)
        if record.rest is not None:
            schema["additionalProperties"] = {"if": {"type": "object", "required": ["rate"]}, "then": of_shape(record.rest)}
        _describe(schema, MEANINGS["everywhere"] | MEANINGS.get(name, {}))
        made[name] = {"$schema": DRAFT, "title": record.file, "description": record.meaning, **schema}
    return made


def of_shape(shape: Any) -> dict[str, Any]:
    """The JSON schema that says what `phylatent.reading.shapes.misfit` checks."""
    from phylatent.reading.shapes import Maybe, Rule

    if isinstance(shape, Maybe):
        return {"anyOf": [of_shape(shape.shape), {"type": "null"}]}
    if isinstance(shape, Rule):
        return _rules()[shape.expected]
    if isinstance(shape, list):
        return {"type": "array", "items": of_shape(shape[0])}
    if isinstance(shape, dict):
        named = {name.removesuffix("?"): of_shape(inner) for name, inner in shape.items() if name != "*"}
        required = [name for name in shape if name != "*" and not name.endswith("?")]
        made: dict[str, Any] = {"type": "object"}
        made |= {"properties": named} if named else {}
        made |= {"required": required} if required else {}
        return made | ({"additionalProperties": of_shape(shape["*"])} if "*" in shape else {})
    types = {bool: "boolean", str: "string", int: "integer", float: "number", dict: "object", list: "array"}
    return {} if shape is object else {"type": types[shape]}


def _rules() -> dict[str, dict[str, Any]]:
    """What a rule expects, by its own words. A rule that is not here is an error: it would be left out of the schema."""
    from phylatent.reading.shapes import COUNT, REAL, WHOLE
    from phylatent.records import INTERVAL

    return {
        WHOLE.expected: {"type": "integer"},
        COUNT.expected: {"type": "integer", "minimum": 0},
        REAL.expected: {"type": "number"},
        INTERVAL.expected: {"type": "array", "items": {"type": "number"}, "minItems": 2, "maxItems": 2},
    }


def properties(schema: Any, path: str = "") -> Iterator[tuple[str, dict[str, Any]]]:
    """Every named property with its path, those inside others after them."""
    if isinstance(schema, Mapping):
        for name, inner in schema.get("properties", {}).items():
            here = f"{path}.{name}" if path else name
            yield here, inner
            yield from properties(inner, here)
        for inner in schema.get("anyOf", ()):
            yield from properties(inner, path)
        yield from properties(schema.get("items"), f"{path}[]")
        if isinstance(rest := schema.get("additionalProperties"), Mapping):
            yield from properties(rest.get("then", rest), f"{path}.*" if path else "*")


def _describe(schema: dict[str, Any], said: Mapping[str, str]) -> None:
    for path, inner in properties(schema):
        name = path.rpartition(".")[2]
        inner["description"] = said.get(path) or said[name]


def records() -> str:
    """A section for every record: what it is, and a table of its keys."""
    parts = []
    for name, schema in schemas().items():
        record = kinds()[name]
        parts.append(f"## {name}\n\n`{record.file}`, written by `phylatent {record.written}`. {record.meaning} ")
        parts[-1] += f"[JSON schema](schemas/{name}.schema.json)"
        rows = [
            f"| `{path}` | {_type(inner)} | {'yes' if is_required(schema, path) else ''} | {inner['description']} |"
            for path, inner in properties(schema)
            if not path.startswith("*")
        ]
        parts.append("\n".join(["| key | type | always | meaning |", "|---|---|---|---|", *_folded(rows)]))
    return "\n\n".join(parts)


SAME_AS = ("identifiability.", "counterfactual.")
"""Sections that have the keys of `invariance`, which are told once."""


def _folded(rows: list[str]) -> list[str]:
    return [row for row in rows if not row.startswith(tuple(f"| `{start}" for start in SAME_AS))]


def _type(schema: Mapping[str, Any]) -> str:
    if "anyOf" in schema:
        return " or ".join(_type(inner) for inner in schema["anyOf"])
    if schema.get("type") == "array" and "minItems" in schema:
        return "two numbers"
    if schema.get("type") == "array":
        return f"list of {_type(schema['items'])}"
    return str(schema.get("type", "anything"))


def is_required(schema: Mapping[str, Any], path: str) -> bool:
    """Whether a reader may rely on the key, given that what holds it is there."""
    for part in path.split(".")[:-1]:
        inner = schema.get("properties", {}).get(part.removesuffix("[]"), schema.get("additionalProperties", {}))
        inner = next((one for one in inner.get("anyOf", ()) if one.get("type") != "null"), inner)
        schema = inner.get("items", {}) if part.endswith("[]") else inner
    return path.rpartition(".")[2] in schema.get("required", ())


MEANINGS: dict[str, dict[str, str]] = {
    "everywhere": {
        "rate": "the share that fails",
        "interval": "95 % interval, over episodes",
        "spread": "standard deviation of the rate over evaluation seeds; null with one",
        "failures": "how many samples fail",
        "eligible": "how many samples could have failed",
        "model": "what was judged",
        "name": "its name on tables and pages",
        "variant": "which objectives it was trained with",
        "task": "which task",
        "preset": "which preset's sizes",
        "training_seed": "seed of its training",
        "stop_gradient": "whether its prediction target was held still",
        "key": "everything that decides these numbers; where it is unchanged, the record is not made again",
        "split": "whose episodes",
        "split.name": "`test`, `validation`, or `held-out` where a run was split in two",
        "settings": "the settings of this measurement",
        "budget": "steps that an episode may take",
        "provenance": "versions, machine, command and time",
        "config": "the training's configuration",
        "seed": "seed of the training",
        "pred": "settings of the prediction objective",
        "data": "the data set",
        "episodes": "how many episodes",
        "fingerprint": "SHA-256 of what decides the data's content",
    },
    "diagnosis": {
        "sample": "hash of the states, pairs and branches: records with the same one are of the same sample",
        "seeds": "evaluation seeds",
        "health": "whether the latents can be judged at all",
        "status": "`ok`, or what is wrong with them",
        "sentence": "the same in words",
        "invariance": "appearance moves the latent further than a real block of actions",
        "identifiability": "states far apart whose latents are near each other; keys as for `invariance`",
        "counterfactual": "actions that lead apart and are predicted to lead to one place; keys as for `invariance`",
        "per_seed": "the same for each evaluation seed",
        "tau_phys": "identifiability: beyond this physical distance a pair is far",
        "tau_lat": "identifiability: below this latent distance a pair is near",
        "by_kind": "invariance: for each perturbation, on all states",
        "by_horizon": "counterfactual: for each number of blocks",
        "by_condition": "`protocol=ordering`: for each condition",
        "seen": "over the perturbations whose form the training had",
        "unseen": "over the others",
        "kinds": "which perturbations",
        "thresholds": "identifiability: at nine pairs of thresholds",
        "q_phys": "percentile of physical distance beyond which a pair is far",
        "q_lat": "percentile of latent distance below which a pair is near",
        "physical": "reachability: the same windows judged by physical distance",
        "median_correlation": "reachability: of time left and latent distance",
    },
    "planning": {
        "rate": "the share that succeeds",
        "rule": "when an episode counts, in words",
        "unit": "of distances",
        "already_solved": "pairs that are solved before anything is done",
        "pairs": "the start/goal list",
        "hash": "of that list",
        "count": "how many pairs",
        "policies": "policy (`model`, `random`, `nothing`, `expert`) → how it did",
        "successes": "how many pairs it solved",
        "median_steps": "steps to success, the median over those solved",
        "mean_final_distance": "distance to the goal at the end, in `unit`",
        "planning_seconds": "of one plan",
        "interval_of": "what the interval is over",
        "imagination": "what the model imagined beside what came of it",
        "agreed": "share of plans whose imagined progress came true",
        "correlation": "of imagined and real cost",
        "imagination.failures": "verdict (`search`, `model`, `latent`) → failed pairs: what is to blame",
        "episodes": "policy → every pair's episode",
        "pair": "which pair of the list",
        "episode": "which episode of the data",
        "success": "whether it arrived",
        "start": "row of the episode that it began at",
        "first_success": "step at which it first counted; null if never",
        "final_distance": "distance to the goal at the end",
        "verdict": "of a failure: what is to blame",
        "plans": "each plan",
        "imagined_cost": "the cost that the model imagined at its end",
        "real_cost": "the cost that was really there",
    },
    "pairs": {
        "data": "the data file's fingerprint",
        "protocol": "whose rule chose them",
        "split": "whose episodes",
        "pairs": "one entry for each",
        "hash": "SHA-256 of the rest",
        "seed": "evaluation seed that drew it",
        "episode": "which episode of the data",
        "start": "row of the start, counted in the episode",
        "goal": "row of the goal",
    },
    "result": {
        "steps": "steps of the joint training",
        "seconds": "over all starts of the run",
        "starts": "how often it was begun or resumed",
        "peak_memory_gb": "of the last start",
        "validation": "measure → value at the end: losses, `share/…` of the gradient, `r2/…` and `error/…` of the read-out",
        "validation_before_predictor_steps": "the same before the predictor's own steps, where it had some",
    },
    "time": {"seconds_of_starts": "one number for each start; null where it was not kept"},
}
"""Record → key → what it is; a path in the place of a key where one name has two meanings."""
