"""How strong each perturbation should be on a task: a sweep on validation states, and a proposal for its declaration.

    python benchmarks/severities.py TASK RUN [RUN ...]        # minutes; writes nothing

The proposal is for the runs of `lewm`, the baseline (without one: the first run): the strength of each kind at which their mean
failure rate of that kind lies nearest to 12 %, in the middle of the paper's range. It goes into the task's `severities`, once,
for all models.
"""

from __future__ import annotations

import sys
from collections.abc import Mapping, Sequence

import numpy as np
from rich.console import Console
from rich.table import Table

from phylatent.diagnostics.held_out import find_held_out_rows, generator
from phylatent.diagnostics.invariance import draw_states, measure_states
from phylatent.diagnostics.latents import judged
from phylatent.errors import PhylatentError, UserError
from phylatent.judging.subject import Subject, load_subject
from phylatent.schema import PERTURBATIONS, VALIDATION

FACTORS = tuple(2 ** (step / 2) for step in range(-8, 9))
"""Of the task's present strengths: from 1/16 to 16, two to a doubling."""
STATES, SEED, WANTED = 300, 0, 0.12

Rates = Mapping[float, Mapping[str, float]]
"""Factor → kind → share of states that fail."""


def sweep(subject: Subject) -> Rates:
    held_out = find_held_out_rows(subject.episodes, subject.split.side(VALIDATION), subject.model.config.clip)
    states, strengths = draw_states(held_out, generator(SEED, "states"), count=STATES), subject.task.strengths()
    found: dict[float, dict[str, float]] = {}
    with judged(subject.model) as model:
        for factor in FACTORS:
            measured = measure_states(model, states, held_out, strengths=strengths, severity=factor, seed=SEED)
            found[factor] = {kind: counts.share or 0.0 for kind, counts in measured.beside.items()}
    return found


def propose(rates: Sequence[Rates]) -> dict[str, float]:
    """Kind → the factor at which the mean rate of these runs lies nearest to what is wanted; the weaker of two."""

    def miss(kind: str, factor: float) -> float:
        return abs(float(np.mean([one[factor][kind] for one in rates])) - WANTED)

    return {kind: min(FACTORS, key=lambda factor: (miss(kind, factor), factor)) for kind in PERTURBATIONS}


def main(task: str, *runs: str) -> None:
    subjects = [load_subject(run) for run in runs]
    for subject in subjects:
        if subject.task.name != task:
            raise UserError(f"{subject.name} was trained on {subject.task.name}, not on {task}")
    found = {subject.name: sweep(subject) for subject in subjects}
    baseline = [subject.name for subject in subjects if subject.model.config.variant == "lewm"] or [subjects[0].name]
    chosen, strengths = propose([found[name] for name in baseline]), subjects[0].task.strengths()
    console = Console()
    for kind in PERTURBATIONS:
        table = Table()
        for column in ("strength", *found):
            table.add_column(column, justify="right")
        for factor in FACTORS:
            cells = [f"{100 * rates[factor][kind]:.1f}" for rates in found.values()]
            table.add_row(f"{factor * strengths[kind]:.3g}", *cells, style="bold" if factor == chosen[kind] else "")
        console.print(f"{kind}: % of {STATES} states that fail", table, highlight=False, soft_wrap=True)
    proposal = {kind: float(f"{factor * strengths[kind]:.2g}") for kind, factor in chosen.items()}
    console.print(
        f"nearest to {WANTED:.0%} for {', '.join(baseline)}:\nseverities={proposal},", highlight=False, soft_wrap=True
    )


if __name__ == "__main__":
    if len(sys.argv) < 3:
        sys.exit(__doc__)
    try:
        main(*sys.argv[1:])
    except PhylatentError as error:
        sys.exit(str(error))
