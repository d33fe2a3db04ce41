"""Synthetic records shaped like those of training, diagnostics and planning, for tests of the report."""

from __future__ import annotations

import csv
import hashlib
import json
import math
from pathlib import Path
from typing import Any

import numpy as np
import yaml

from phylatent.statistics import EPISODES, spread, success_interval, wilson

SEEDS = (0, 1, 2)
PAIRS = 60
SIDE = 32
STEPS = tuple(range(0, 55, 5))
HORIZONS = (1, 3, 5)
BETTER = {"lewm": 1.0, "phylatent": 0.45}
OBJECTIVES = {"lewm": ("pred", "sigreg"), "phylatent": ("pred", "sigreg", "svic", "psg", "fra", "casc", "ld")}


def sha(text: str) -> str:
    return hashlib.sha256(text.encode()).hexdigest()


def write_run(
    directory: Path,
    variant: str = "lewm",
    seed: int = 0,
    *,
    preset: str = "laptop",
    training: bool = True,
    diagnosed: bool = True,
    protocols: tuple[str, ...] = ("paper",),
    shown: int = 400,
    sample: str = "sample",
    pairs: str = "pairs",
    rates: dict[str, float] | None = None,
    health: str = "ok",
    quick: bool = False,
    splits: tuple[str, str] = ("test", "test"),
) -> Path:
    """A run directory; `rates` fixes headline rates, `sample` and `pairs` are hashed into the records.

    `splits` are the sides that diagnostics and planning are from.
    """
    directory.mkdir(parents=True)
    model = {"name": directory.name, "variant": variant, "training_seed": seed, "task": "tworooms", "stop_gradient": True}
    rng = np.random.default_rng([seed, len(variant)])
    if training:
        write_training(directory, variant, seed, preset, rng)
    if diagnosed:
        write_diagnosis(directory / "diagnostics", model, rng, shown, sha(sample), rates or {}, health, quick)
        sign(directory / "diagnostics" / "paper.json", splits[0])
    for protocol in protocols:
        write_plan(directory / "planning" / protocol, model, rng, protocol, sha(pairs), (rates or {}).get("success"), quick)
        sign(directory / "planning" / protocol / "result.json", splits[1])
    return directory


def sign(path: Path, split: str) -> None:
    write(path, json.loads(path.read_text()) | {"split": {"name": split, "episodes": 80, "note": None}})


def write_training(directory: Path, variant: str, seed: int, preset: str, rng: np.random.Generator) -> None:
    terms = OBJECTIVES.get(variant, ("pred", "sigreg"))
    config = {
        "task": "tworooms",
        "preset": preset,
        "variant": variant,
        "seed": seed,
        "pred": {"weight": 1.0, "stop_gradient": True},
    }
    (directory / "config.yaml").write_text(yaml.safe_dump(config, sort_keys=False))

    def row(step: int, validation: bool) -> dict[str, float]:
        values = {term: (2 + at) * math.exp(-step / 250) + 0.05 + 0.02 * rng.random() for at, term in enumerate(terms)}
        logged = {"step": step, "loss": sum(values.values()), **values}
        readout = {"effective_rank": 12 + step / 40, "r2/x": 1 - math.exp(-step / 90), "r2/y": 1 - math.exp(-step / 120)}
        shares = {f"share/{place}/{term}": 1 / len(terms) for place in ("z", "zhat") for term in terms}
        shares["share/zhat/sigreg"] = 0.0
        return logged | (readout | shares if validation else {"lr": 5e-4, "clips_per_second": 60.0, "weight/pred": 1.0})

    for name, every, validation in (("train.csv", 10, False), ("validation.csv", 250, True)):
        rows = [row(step, validation) for step in range(every, 1001, every)]
        with (directory / name).open("w", newline="") as handle:
            writer = csv.DictWriter(handle, list(rows[0]))
            writer.writeheader()
            writer.writerows(rows)
    last = {key: value for key, value in rows[-1].items() if key != "step"}
    write(directory / "result.json", {"steps": 1000, "seconds": 493.6, "validation": last, "provenance": {"seed": seed}})


def counted(failures: int, eligible: int, **more: Any) -> dict[str, Any]:
    return {
        "rate": failures / eligible,
        "interval": wilson(failures, eligible),
        "failures": failures,
        "eligible": eligible,
        **more,
    }


def headline(counts: list[tuple[int, int]], rate: float | None, **more: Any) -> dict[str, Any]:
    per_seed = [{"seed": s, "failures": f, "eligible": n, "rate": f / n} for s, (f, n) in zip(SEEDS, counts, strict=False)]
    failures, eligible = (sum(side) for side in zip(*counts, strict=True))
    entry = counted(failures, eligible, spread=spread([e["rate"] for e in per_seed]), per_seed=per_seed, **more)
    return entry if rate is None else entry | {"rate": rate}


def write_diagnosis(
    directory: Path,
    model: dict[str, Any],
    rng: np.random.Generator,
    shown: int,
    sample: str,
    rates: dict[str, float],
    health: str,
    quick: bool,
) -> None:
    worse = BETTER.get(model["variant"], 0.8)
    states, pairs, branches = 300, 4 * shown, 300
    state, nuis = rng.gamma(6, 1.2, states), rng.gamma(4, 0.95 * worse + 0.15, states)
    phys = rng.gamma(3, 0.6, pairs)
    lat = 14 * phys / (phys + 1.2) * rng.normal(1, 0.28 * worse, pairs).clip(0.1) + 0.4 * rng.random(pairs)
    tau_phys, tau_lat = np.quantile(phys, 0.75), np.quantile(lat, 0.1)
    true = rng.gamma(4, 0.9, (branches, 3)).cumsum(1)
    pred = true * rng.normal([0.97, 0.93, 0.88], 0.22 * worse + 0.03, (branches, 3)).clip(0.02)
    eligible = rng.random((branches, 3)) < [0.5, 0.8, 0.92]

    def at(q_phys: float, q_lat: float) -> dict[str, Any]:
        far, near = phys > np.quantile(phys, q_phys), lat < np.quantile(lat, q_lat)
        entry = counted(int((far & near).sum()), int(far.sum()), share_of_all_pairs=float((far & near).mean()))
        return {"q_phys": q_phys, "q_lat": q_lat, **entry}

    def horizon(column: int) -> dict[str, Any]:
        chosen = eligible[:, column]
        return counted(int((pred[chosen, column] < 0.5 * true[chosen, column]).sum()), int(chosen.sum()))

    invariance = headline([(int((nuis > state).sum()), states)], rates.get("invariance"))
    invariance["by_kind"] = {
        kind: counted(int(((nuis * strength) > state).sum()), states)
        for kind, strength in {"brightness": 1.1, "colour": 0.9, "texture": 1.25, "noise": 0.7}.items()
    }
    if model["variant"] in OBJECTIVES:
        sees = ["brightness", "colour"] if "svic" in OBJECTIVES[model["variant"]] else []
        for form, kinds in (("seen", sees), ("unseen", [kind for kind in invariance["by_kind"] if kind not in sees])):
            failures = sum(invariance["by_kind"][kind]["failures"] for kind in kinds)
            found = counted(failures, states * len(kinds)) if kinds else {"rate": None, "interval": None}
            invariance[form] = found | {"kinds": kinds}
    default = at(0.75, 0.1)
    identifiability = headline([(default["failures"], default["eligible"])], rates.get("identifiability"), chance=0.1)
    identifiability["per_seed"][0] |= {"tau_phys": float(tau_phys), "tau_lat": float(tau_lat)}
    identifiability["thresholds"] = [at(p, q) for p in (0.7, 0.75, 0.8) for q in (0.05, 0.1, 0.15)]
    last = horizon(2)
    counterfactual = headline([(last["failures"], last["eligible"])], rates.get("counterfactual"), horizon=5, pairs=branches)
    counterfactual["by_horizon"] = {str(h): horizon(column) for column, h in enumerate(HORIZONS)}
    record = {
        "protocol": "paper",
        "model": model,
        "settings": {"states": states, "pairs": pairs},
        "sample": sample,
        "seeds": [0],
        "data": {"name": "tworooms.h5", "fingerprint": sha("data")},
        "health": {
            "status": health,
            "sentence": "" if health == "ok" else f"The latents are {health}, so no rate means anything.",
        },
        "invariance": invariance,
        "identifiability": identifiability,
        "counterfactual": counterfactual,
        "provenance": {"created": "2026-11-16T04:00:00+00:00"},
    }
    if quick:
        record["quick"] = True
    if health != "ok":
        for name in ("invariance", "identifiability", "counterfactual"):
            record[name] = {"rate": None, "spread": None, "interval": None, "failures": None, "eligible": None, "per_seed": []}
    write(directory / "paper.json", record)
    if health == "ok":
        arrays = {
            "invariance/d_nuis": nuis,
            "invariance/d_state": state,
            "identifiability/d_phys": phys,
            "identifiability/d_lat": lat,
            "identifiability/shown": np.sort(rng.choice(pairs, shown, replace=False)),
            "counterfactual/d_true": true,
            "counterfactual/d_pred": pred,
            "counterfactual/eligible": eligible,
        }
        np.savez(directory / "paper.npz", **{f"seed0/{key}": value for key, value in arrays.items()})


def episode(rng: np.random.Generator, pair: int, success: bool, planned: bool) -> dict[str, Any]:
    start = float(rng.uniform(25, 90))
    imagined = float(rng.lognormal(-1.2, 0.7))
    real = imagined * float(rng.lognormal(0.2 if success else 1.1, 0.35))
    plan = {"start_cost": 6.0, "imagined_cost": imagined, "real_cost": real, "recorded_cost": 0.4}
    return {
        "pair": pair,
        "seed": pair * 3 // PAIRS,
        "episode": 700 + pair // 2,
        "start": pair % 40,
        "success": success,
        "first_success": int(rng.integers(6, 50)) if success else None,
        "start_distance": start,
        "final_distance": float(rng.uniform(2, 15)) if success else float(rng.uniform(17, 80)),
        "planning_seconds": 0.21,
        "plans": [plan, plan | {"imagined_cost": imagined * 0.7, "real_cost": real * 0.8}] if planned else [],
        "verdict": str(rng.choice(["search", "model", "latent"], p=[0.25, 0.5, 0.25])) if planned and not success else None,
    }


def policy(episodes: list[dict[str, Any]]) -> dict[str, Any]:
    wins = sum(e["success"] for e in episodes)
    groups = [[e["success"] for e in episodes if e["seed"] == s] for s in SEEDS]
    per_seed = [
        {"seed": s, "successes": sum(g), "count": len(g), "rate": sum(g) / len(g)} for s, g in zip(SEEDS, groups, strict=True)
    ]
    steps = [e["first_success"] for e in episodes if e["success"]]
    return {
        "rate": wins / len(episodes),
        "interval": success_interval([e["success"] for e in episodes], [e["episode"] for e in episodes]),
        "interval_of": EPISODES,
        "wilson": wilson(wins, len(episodes)),
        "successes": wins,
        "count": len(episodes),
        "per_seed": per_seed,
        "spread": spread([e["rate"] for e in per_seed]),
        "median_steps": float(np.median(steps)) if steps else None,
        "mean_final_distance": float(np.mean([e["final_distance"] for e in episodes])),
        "planning_seconds": 0.21,
    }


def write_plan(
    directory: Path, model: dict[str, Any], rng: np.random.Generator, protocol: str, pairs: str, rate: float | None, quick: bool
) -> None:
    target = rate if rate is not None else {"lewm": 0.68, "phylatent": 0.87}.get(model["variant"], 0.75)
    target *= 0.7 if protocol == "strict" and rate is None else 1
    floors = np.random.default_rng(5)
    wins = rng.permutation(PAIRS) < round(target * PAIRS)
    episodes = {
        "model": [episode(rng, pair, bool(wins[pair]), True) for pair in range(PAIRS)],
        "random": [episode(floors, pair, pair % 7 < 2, False) for pair in range(PAIRS)],
        "nothing": [episode(floors, pair, pair % 20 == 0, False) for pair in range(PAIRS)],
        "expert": [episode(floors, pair, pair != 3, False) for pair in range(PAIRS)],
    }
    verdicts = [e["verdict"] for e in episodes["model"] if e["verdict"]]
    record = {
        "protocol": protocol,
        "model": model,
        "settings": {"budget": 50, "candidates": 100},
        "pairs": {"file": "pairs.json", "hash": pairs, "count": PAIRS, "seeds": list(SEEDS)},
        "unit": "px",
        "already_solved": 3,
        "policies": {name: policy(played) for name, played in episodes.items()},
        "imagination": {
            "agreed": 0.81,
            "correlation": 0.74,
            "failures": {v: verdicts.count(v) for v in ("search", "model", "latent")},
        },
        "episodes": episodes,
        "provenance": {"created": "2026-11-16T04:10:00+00:00"},
    }
    if quick:
        record["quick"] = True
    write(directory / "result.json", record)
    write_rollouts(directory / "rollouts.npz", episodes["model"], rng)


def write_rollouts(path: Path, episodes: list[dict[str, Any]], rng: np.random.Generator) -> None:
    shown = np.arange(12)
    goals = np.random.default_rng(7).uniform(6, SIDE - 6, (len(shown), 2, 2))
    real, imagined, taken = [], [], []
    for pair in shown:
        start, goal = goals[pair]
        reached = episodes[pair]["first_success"] or 50
        share = np.clip(np.array(STEPS) / reached, 0, 1)[:, None] * (1.0 if episodes[pair]["success"] else 0.6)
        real.append([frame(start + (goal - start) * s, goal) for s in share])
        imagined.append([frame(start + (goal - start) * s + rng.normal(0, 1, 2), goal) for s in np.clip(share * 1.1, 0, 1)])
        taken.append(np.array(STEPS) < reached + 5)
    known = np.ones((len(shown), len(STEPS)), bool)
    known[:, -1] = False
    arrays = {
        "start": [r[0] for r in real],
        "goal": [frame(goal, goal) for _, goal in goals],
        "real": real,
        "imagined": imagined,
    }
    np.savez(
        path,
        shown=shown,
        real_steps=np.array(STEPS),
        taken=np.array(taken),
        imagined_known=known,
        **{key: np.array(value, np.uint8) for key, value in arrays.items()},
    )


def frame(agent: np.ndarray, goal: np.ndarray) -> np.ndarray:
    """A little room with a wall, a disk and a faint goal."""
    image = np.full((SIDE, SIDE, 3), 250, np.uint8)
    image[:, SIDE // 2 - 1 : SIDE // 2 + 1] = 40
    image[SIDE // 3 : SIDE // 3 + 6, SIDE // 2 - 1 : SIDE // 2 + 1] = 250
    image[:2], image[-2:], image[:, :2], image[:, -2:] = 40, 40, 40, 40
    y, x = np.mgrid[:SIDE, :SIDE]
    for centre, colour in ((goal, (170, 220, 170)), (agent, (200, 40, 40))):
        image[(x - centre[0]) ** 2 + (y - centre[1]) ** 2 < 8] = colour
    return image


def write(path: Path, record: Any) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(json.dumps(record))
