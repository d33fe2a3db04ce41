"""The card of a published model: what it is, what was measured of it, and what it should not be used for."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

from huggingface_hub import EvalResult, ModelCardData

from phylatent import WorldModel
from phylatent.diagnostics import DIAGNOSTICS
from phylatent.files import atomic
from phylatent.records import rated_sections, split_of, split_words
from phylatent.tasks import saved_task

POLICIES = ("model", "random", "nothing", "expert")
SHOWN = {"headline": "Failure rates and planning success", "rollouts": "What it did, above, and what it imagined, below"}
"""The report's figures that the card shows, and what they show."""
Record = Mapping[str, Any]


def write_card(
    path: Path,
    model: WorldModel,
    *,
    diagnostics: Mapping[str, Record],
    planning: Mapping[str, Record],
    figures: Sequence[str],
    stored: Record,
) -> None:
    """The model's own card, with results that the Hub shows beside it, tables, a picture and a word about limits."""
    config = model.config
    name = f"{config.task}-{config.variant}"
    data = ModelCardData(
        license="mit",
        library_name="phylatent",
        pipeline_tag="robotics",
        tags=["jepa", "planning", "world-model", "model_hub_mixin", "pytorch_model_hub_mixin", str(config.task)],
        model_name=name,
        eval_results=[*results(str(config.task), diagnostics, planning)],
    )
    card = model.generate_model_card()
    parts = [card.text.strip(), measured(diagnostics, planning), picture(figures, name), files(stored), limits(model)]
    with atomic(path) as temporary:
        temporary.write_text(f"---\n{data.to_yaml()}\n---\n\n" + "\n\n".join(part for part in parts if part) + "\n")


def results(task: str, diagnostics: Mapping[str, Record], planning: Mapping[str, Record]) -> Iterable[EvalResult]:
    for protocol, record in planning.items():
        yield EvalResult(
            task_type="robotics",
            task_name="goal-conditioned planning",
            dataset_type=f"phylatent-{task}",
            dataset_name=f"{title(task)}, {record['pairs']['count']} start/goal pairs, protocol {protocol}",
            dataset_config=f"plan-{protocol}",
            dataset_split=split_of(record),
            metric_type="success_rate",
            metric_name="planning success, %",
            metric_value=round(100 * record["policies"]["model"]["rate"], 1),
        )
    for protocol, record in diagnostics.items():
        for section in rated_sections(record):
            if record[section]["rate"] is not None:
                yield EvalResult(
                    task_type="robotics",
                    task_name="diagnosis of the latent space",
                    dataset_type=f"phylatent-{task}",
                    dataset_name=f"{title(task)}, protocol {protocol}",
                    dataset_config=f"diagnose-{protocol}",
                    dataset_split=split_of(record),
                    metric_type=f"{section}_failures",
                    metric_name=f"{section} failures, %",
                    metric_value=round(100 * record[section]["rate"], 1),
                )


def title(task: str) -> str:
    return saved_task(task).title


def measured(diagnostics: Mapping[str, Record], planning: Mapping[str, Record]) -> str:
    first = next(iter(planning.values()))
    lines = ["## What was measured", "", f"On {split_words(split_of(first))} episodes, with 95 % intervals over episodes.", ""]
    policies = [name for name in POLICIES if any(name in record["policies"] for record in planning.values())]
    lines += ["| success in planning ↑ | this " + " | ".join(policies) + " |", "|---" * (1 + len(policies)) + "|"]
    for protocol, record in planning.items():
        found = record["policies"]
        cells = [percent(found[name], interval=name == "model") if name in found else "–" for name in policies]
        lines.append(f"| {protocol}: {record['rule']}, {record['pairs']['count']} pairs | " + " | ".join(cells) + " |")
    lines += ["", "| failures ↓ | share | what fails |", "|---|---|---|"]
    for protocol, record in diagnostics.items():
        for section in rated_sections(record):
            meaning = DIAGNOSTICS[section].failure if section in DIAGNOSTICS else ""
            lines.append(
                f"| {section}{'' if protocol == 'paper' else f', {protocol}'} | {percent(record[section])} | {meaning} |"
            )
    return "\n".join(lines)


def percent(found: Record, *, interval: bool = True) -> str:
    if found["rate"] is None:
        return "–"
    low_high = found.get("interval")
    shown = f" [{100 * low_high[0]:.1f}, {100 * low_high[1]:.1f}]" if interval and low_high else ""
    return f"{100 * found['rate']:.1f} %{shown}"


def picture(figures: Sequence[str], name: str) -> str:
    there = {figure: words for figure, words in SHOWN.items() if f"{figure}.png" in figures}
    return "\n\n".join(f"![{words}: {name}](figures/{figure}.png)" for figure, words in there.items())


def files(stored: Record) -> str:
    half = (
        "Matrices are stored at half precision, which moves a latent by at most "
        f"{100 * stored['latents_moved']:.2f} % of the latents' spread; what was measured was measured at full precision. "
        if "latents_moved" in stored
        else ""
    )
    return (
        "## What is here\n\n"
        f"`model.safetensors` and `config.json`: the model. {half}`report.html`: everything that was measured, as one page "
        "that asks no server for anything; download it and open it. `records/`: the same as JSON, episode by episode, with the "
        "tables of the training. `hub.json`: which run this is, and the hash of its weights."
    )


def limits(model: WorldModel) -> str:
    config = model.config
    return (
        "## Limits\n\n"
        f"It knows one simulated task, {title(str(config.task))}, in frames of {config.model.image_size} px and the actions of "
        "its training data, trained at laptop scale with one seed. It says nothing about real robots, other cameras or other "
        "tasks. Success depends on the planner's settings as much as on the model; they are in the records.\n\n"
        "## Citing\n\n"
        "Please cite *PhyLatent: Learning Dynamics-Relevant Representations for JEPA World Models* and phylatent "
        "(`CITATION.cff` in its repository)."
    )
