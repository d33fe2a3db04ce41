"""What `diagnose` and `plan` print."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from rich.console import Console

from phylatent.commands.screen import line, titled, words
from phylatent.diagnostics import DIAGNOSTICS
from phylatent.records import rated_sections, split_of, split_words
from phylatent.statistics import mcnemar, paired_difference

FORMS = ("seen", "unseen")
SIDE_BY_SIDE = 3
"""Rates with their intervals that 80 columns hold; of more, intervals stand below."""


def percent(rate: float | None, interval: Sequence[float] | None = None) -> str:
    if rate is None:
        return "not measured"
    span = f" [{100 * interval[0]:.1f}, {100 * interval[1]:.1f}]" if interval else ""
    return f"{100 * rate:.1f} %{span}"


def show_rates(records: Sequence[Mapping[str, Any]], console: Console) -> None:
    sections = rated_sections(records[0])
    caption = f"split: {split_words(split_of(records[0]))}; 95 % intervals by bootstrap over its episodes"
    table = titled("failure rates, lower is better", caption)
    table.add_column("model", overflow="fold")
    for section in sections:
        table.add_column(words(section), justify="right", no_wrap=True)
    for record in records:
        cells = [percent(record[section]["rate"], record[section]["interval"]) for section in sections]
        if len(sections) > SIDE_BY_SIDE:
            cells = [cell.replace(" [", "\n[") for cell in cells]
        table.add_row(words(record["model"]["name"]), *cells)
    console.print(table)
    _show_kinds(records, console)
    for record in records:
        for section in sections:
            found = record[section]
            counts = f"{found['failures']} of {found['eligible']} eligible"
            sd = "" if found["spread"] is None else f", ± {100 * found['spread']:.1f} over {len(record['seeds'])} seeds"
            more = DIAGNOSTICS[section].remark(found) if section in DIAGNOSTICS else ""
            told = f"{counts}{sd}{'; ' if more else ''}{more}"
            console.print(words(f"  {record['model']['name']} {section}: {told}"), soft_wrap=True)
        if record["health"]["status"] != "ok":
            name = words(f"{record['model']['name']}:", "bold red")
            console.print(line(name, f" {record['health']['sentence']}"), soft_wrap=True)


def _show_kinds(records: Sequence[Mapping[str, Any]], console: Console) -> None:
    """Invariance under each kind of perturbation, and under those whose form the model met in training and the others."""
    kinds = list(records[0].get("invariance", {}).get("by_kind") or {})
    if not kinds:
        return
    table = titled(
        "invariance failures under each perturbation, all states",
        "seen, unseen: all perturbations whose form the model's training had or had not, where that is known",
    )
    table.add_column("model", overflow="fold")
    for column in (*kinds, *FORMS):
        table.add_column(words(column), justify="right")
    for record in records:
        found = record.get("invariance") or {}
        rates = [(found.get("by_kind") or {}).get(kind) for kind in kinds] + [found.get(form) for form in FORMS]
        cells = ["–" if rate is None or rate["rate"] is None else percent(rate["rate"], rate["interval"]) for rate in rates]
        table.add_row(words(record["model"]["name"]), *cells)
    console.print(table)


def show_success(records: Sequence[Mapping[str, Mapping[str, Any]]], console: Console) -> None:
    for protocol in records[0]:
        first = records[0][protocol]
        pairs, judged_on = first["pairs"], split_words(split_of(first))
        table = titled(
            f"success under `{protocol}`, {pairs['count']} pairs",
            f"split: {judged_on}; 95 % intervals by bootstrap over episodes; list {pairs['hash'][:12]}; "
            f"{first['already_solved']} solved at the start",
        )
        table.add_column("policy", overflow="fold")
        for column in ("success", "± seeds", "steps", "ends at"):
            table.add_column(column, justify="right", no_wrap=True)
        rows = [(name, found) for name, found in first["policies"].items() if name != "model"]
        for record in (each[protocol] for each in records):
            rows += [(record["model"]["name"], found) for name, found in record["policies"].items() if name == "model"]
        for name, found in rows:
            sd = "–" if found["spread"] is None else f"{100 * found['spread']:.1f}"
            steps = "–" if found["median_steps"] is None else f"{found['median_steps']:.0f}"
            distance = f"{found['mean_final_distance']:.1f} {first['unit']}"
            table.add_row(words(name), percent(found["rate"], found["interval"]), sd, steps, words(distance))
        console.print(table)
        _show_failures([record[protocol] for record in records], console)


def _show_failures(records: Sequence[Mapping[str, Any]], console: Console) -> None:
    for record in records:
        seen = record["imagination"]
        if seen is not None:
            why = ", ".join(f"{name} {count}" for name, count in seen["failures"].items())
            agreed = f"{100 * seen['agreed']:.0f} % of plans came as imagined; failures by cause: {why}"
            console.print(words(f"  {record['model']['name']}: {agreed}"), soft_wrap=True)
    judged = [record for record in records if "model" in record["policies"]]
    for other in judged[1:]:
        reference = judged[0]
        mine, theirs = ([episode["success"] for episode in record["episodes"]["model"]] for record in (other, reference))
        test = mcnemar(mine, theirs)
        homes = [episode["episode"] for episode in reference["episodes"]["model"]]
        found = paired_difference(np.array([mine]), np.array([theirs]), homes)
        told = (
            f"  {other['model']['name']} against {reference['model']['name']}: "
            f"{100 * found.mean:+.1f} points, 95 % [{100 * found.low:+.1f}, {100 * found.high:+.1f}] over {found.episodes} "
            f"episodes, sign flips by episode p = {found.p_sign_flip:.2g}; only it solved {test.only_first}, only the other "
            f"{test.only_second}, McNemar p = {test.p:.2g}"
        )
        console.print(words(told), soft_wrap=True)
