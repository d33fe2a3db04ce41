"""`make_report`: records in; one self-contained page, figures for a paper and a record of what the page says out."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping, Sequence
from dataclasses import asdict
from pathlib import Path
from string import ascii_lowercase
from tempfile import TemporaryDirectory
from typing import Any

import yaml
from jinja2 import Environment, PackageLoader, StrictUndefined
from markupsafe import Markup, escape
from plotly.offline import get_plotlyjs

from phylatent.diagnostics import DIAGNOSTICS
from phylatent.diagnostics.diagnostic import ScatterAxes
from phylatent.errors import UserError
from phylatent.files import atomic, locked, remove_partials
from phylatent.records import provenance, split_words, write_json
from phylatent.reporting import curves, diagnostics, interactive, latent_map, planning, readout, static
from phylatent.reporting.comparisons import compare_diagnostics, compare_plans
from phylatent.reporting.decoder_view import decoder_view
from phylatent.reporting.harmless import in_html, in_plotly, in_script, policy, slug, style_guards
from phylatent.reporting.inputs import Run, read_run
from phylatent.reporting.marks import Figure
from phylatent.reporting.methods import Method, diagnostic, dig, group, shown_diagnostics, success
from phylatent.reporting.scatter import FAILED, Scatter, axes, packed, ranges, scatters
from phylatent.reporting.strips import Filmstrips, filmstrips, players
from phylatent.reporting.words import intervals, meanings, summary
from phylatent.schema import PERTURBATIONS, PLAN_PROTOCOLS

PAGE, RECORD, FIGURES = "report.html", "report.json", "figures"
SCRIPTS = ("script.js", "films.js", "map.js", "save.js")
"""In the order in which they run, as one script."""


def make_report(directories: Sequence[Path], out: Path, *, title: str | None = None) -> Path:
    """Write `report.html`, `report.json` and `figures/` into `out`; returns the page's path."""
    if not directories:
        raise UserError("a report needs at least one run directory; hand in those that train, diagnose or plan wrote to")
    _check_out(out)
    methods = read_methods(directories)
    title = title or _title(methods)
    clouds, strips, figures = scatters(methods), filmstrips(methods), _figures(methods)
    html = _render(methods, title, clouds, strips, figures)

    busy = f"another process is writing a report to {out} right now; wait for it, or choose another out="
    try:
        with locked(out, ".lock", busy=busy, elsewhere="choose another out=", tidy=True):
            remove_partials(out)
            with TemporaryDirectory(prefix=".figures-", suffix=".partial", dir=out) as begun:
                folder = Path(begun)
                written = [name for figure in figures.values() for name in static.render_figure(figure, folder)]
                written += _static_scatters(clouds, axes(methods), folder)
                written += static.render_strips(strips, folder) if strips and strips.episodes else []
                (out / FIGURES).mkdir(exist_ok=True)
                for name in written:
                    (folder / name).replace(out / FIGURES / name)
            write_json(out / RECORD, _record(methods, title, written))
            with atomic(out / PAGE) as temporary:
                temporary.write_text(html, encoding="utf-8")
    except OSError as error:
        raise UserError(f"cannot write to {out}: {error.strerror}; choose another out=") from error
    return out / PAGE


def _check_out(out: Path) -> None:
    try:
        is_file = out.exists() and not out.is_dir()
    except (OSError, ValueError) as error:  # a name too long, or one that no file can have
        reason = error.strerror if isinstance(error, OSError) else error
        raise UserError(f"out={out} cannot be a directory: {reason}; choose another out=") from error
    if is_file:
        raise UserError(f"{out} is a file; out= must name a directory, which may be new")


def read_methods(directories: Sequence[Path]) -> list[Method]:
    unique = {Path(directory).resolve(): Path(directory) for directory in directories}
    runs = [read_run(directory) for directory in unique.values()]
    _check_one_split(runs)
    return group(runs)


def _check_one_split(runs: Sequence[Run]) -> None:
    """Numbers of episodes that settings were chosen on do not stand beside numbers of others."""
    if len({side for run in runs for side in run.splits.values()}) < 2:
        return
    told = []
    for run in runs:
        by_side: dict[str, list[str]] = {}
        for what, side in run.splits.items():
            by_side.setdefault(side, []).append(what)
        told += [f"{run.name} on {side} ({', '.join(names)})" for side, names in by_side.items()]
    raise UserError(
        f"the records come from different splits, which one page cannot mix: {'; '.join(told)}; judge all runs on the same one "
        "(split=test of diagnose and plan), with out= another directory, and report on that"
    )


def judged_on(methods: Sequence[Method]) -> str | None:
    """Which episodes all the numbers are from; None where nothing was judged."""
    sides = [side for method in methods for run in method.runs for side in run.splits.values()]
    return sides[0] if sides else None


def render(methods: Sequence[Method], title: str | None = None) -> str:
    """The page alone."""
    return _render(methods, title or _title(methods), scatters(methods), filmstrips(methods), _figures(methods))


def _title(methods: Sequence[Method]) -> str:
    tasks = " and ".join(dict.fromkeys(str(method.task) for method in methods if method.task))
    names = " and ".join(method.label for method in methods) if len(methods) < 4 else f"{len(methods)} methods"
    return f"{names} on {tasks}" if tasks else names


def _figures(methods: Sequence[Method]) -> dict[str, Figure]:
    """In the page's order. A figure for which there is no record at all still stands, and says so."""
    made = [diagnostics.headline(methods), diagnostics.reductions_figure(methods), diagnostics.breakdowns(methods)]
    if found := planning.protocols(methods):
        made += [planning.success_figure(methods)] if len(found) > 1 else []  # one protocol is the headline's already
        made += [planning.outcomes_figure(methods, protocol) for protocol in found]
    made.append(curves.curves(methods))
    made += [figure for figure in (curves.share_ends(methods), curves.share_curves(methods)) if figure is not None]
    return {figure.name: figure for figure in made}


def _static_scatters(clouds: Sequence[Scatter], shown: Mapping[str, ScatterAxes], directory: Path) -> list[str]:
    boxes = ranges(clouds, shown)
    written: list[str] = []
    for scatter in clouds:
        if any(cloud is not None for cloud in scatter.clouds.values()):
            name = f"diagnostics-{slug(scatter.title)}"
            name += f"-{len(written)}" if f"{name}.png" in written else ""
            written += static.render_scatter(scatter, shown, boxes, directory, name)
    return written


def _render(
    methods: Sequence[Method], title: str, clouds: Sequence[Scatter], strips: Filmstrips | None, figures: Mapping[str, Figure]
) -> str:
    environment = Environment(
        loader=PackageLoader("phylatent.reporting"),
        autoescape=True,
        finalize=in_html,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    environment.filters |= {"subscripts": subscripts, "slug": slug}
    found, shown, latents = planning.protocols(methods), axes(methods), latent_map.maps(methods)
    theme, style, plotly = _template("theme.js"), _template("style.css"), get_plotlyjs()
    script = "\n".join(map(_template, SCRIPTS))
    return environment.get_template("page.html").render(
        title=title,
        banner=any(run.quick for method in methods for run in method.runs),
        summary=summary(methods),
        intervals=intervals(methods),
        split=split_words(side) if (side := judged_on(methods)) else None,
        methods=methods,
        meanings=meanings(methods),
        figures=figures,
        headline_table=diagnostics.headline_table(methods),
        clouds=clouds,
        letters=ascii_lowercase,
        spaces=[DIAGNOSTICS[name] for name in shown],
        first=_first(clouds),
        scatter_notes=[_scatter_notes(scatter) for scatter in clouds],
        latents=latents,
        reductions_table=diagnostics.reductions_table(methods),
        kinds_table=diagnostics.kinds_table(methods),
        thresholds=diagnostics.thresholds(methods),
        orderings=diagnostics.orderings(methods),
        protocols=found,
        success_tables={protocol: planning.success_table(methods, protocol) for protocol in found},
        comparison_table=planning.comparison_table(methods),
        causes=planning.CAUSES,
        cause_style=planning.CAUSE_STYLE,
        strips=strips,
        decoder=decoder_view(methods),
        final_table=curves.final_table(methods),
        readout_table=readout.readout_table(methods),
        share_table=curves.share_table(methods),
        missing=_missing(methods),
        details=[_details(method, run) for method in methods for run in method.runs],
        provenance=json.dumps(provenance(), indent=2),
        data=in_script(_data(clouds, shown, figures) | {"films": players(strips), "map": latent_map.in_page(latents)}),
        policy=policy((theme, plotly, script), (style,)),
        style_guards=style_guards(plotly),
        plotly=Markup(plotly),
        style=Markup(style),
        script=Markup(script),
        theme=Markup(theme),
    )


def subscripts(text: str) -> Markup:
    """`d_phys` as a letter with a small word below it, as the figures' axes have it."""
    return Markup(re.sub(r"(\w+)_([a-z0-9]+)", r"\1<sub>\2</sub>", str(escape(text))))


def _template(name: str) -> str:
    return (Path(__file__).parent / "templates" / name).read_text(encoding="utf-8")


def _first(clouds: Sequence[Scatter]) -> int:
    """The run shown first: one that has points."""
    measured = [at for at, scatter in enumerate(clouds) if any(scatter.clouds.values())]
    return measured[0] if measured else 0


def _data(clouds: Sequence[Scatter], shown: Mapping[str, ScatterAxes], figures: Mapping[str, Figure]) -> dict[str, Any]:
    return {
        "figures": {name: interactive.panels(figure) for name, figure in figures.items()},
        "scatter": {
            "runs": [{"clouds": packed(s)} for s in clouds],
            "boxes": ranges(clouds, shown),
            "axes": {name: [in_plotly(label) for label in its.labels] for name, its in shown.items()},
            "log": {name: its.log for name, its in shown.items()},
            "ordinary": {name: its.colour for name, its in shown.items()},
            "failed": FAILED,
            "first": _first(clouds),
        },
    }


def _scatter_notes(scatter: Scatter) -> dict[str, str]:
    notes = {}
    for name, cloud in scatter.clouds.items():
        if cloud is None:
            notes[name] = scatter.reason
            continue
        points, counted = len(cloud.x), DIAGNOSTICS[name].counted
        text = f"{points:,} of {cloud.total:,} {counted} drawn" if points < cloud.total else f"{points:,} {counted} drawn"
        text += f", {int(cloud.failed.sum()):,} of them failing"
        notes[name] = text + (f"; {cloud.beyond:,} lie beyond the box and are drawn at its edge" if cloud.beyond else "")
    return notes


def _missing(methods: Sequence[Method]) -> list[str]:
    """What the page would show and no record holds."""
    found = []
    for method in methods:
        for run in method.runs:
            absent = [] if run.diagnosis else ["diagnostics"]
            absent += [] if run.points or not run.diagnosis else ["the points behind the diagnostics (paper.npz)"]
            absent += [] if run.plans else ["planning"]
            absent += [] if run.train or run.validation else ["training curves"]
            if absent:
                found.append(f"{method.title(run)}: {', '.join(absent)}")
    return found


def _details(method: Method, run: Run) -> dict[str, Any]:
    videos = sorted(str(path.relative_to(run.directory)) for path in run.directory.glob("planning/*/videos/*.webp"))
    return {
        "title": method.title(run),
        "directory": str(run.directory),
        "config": yaml.safe_dump(dict(run.config), sort_keys=False) if run.config else None,
        "settings": {name: json.dumps(record.get("settings"), indent=2) for name, record in _evaluations(run)},
        "provenance": {name: json.dumps(record.get("provenance"), indent=2) for name, record in _evaluations(run)},
        "hashes": run.hashes,
        "videos": videos,
    }


def _evaluations(run: Run) -> list[tuple[str, Mapping[str, Any]]]:
    records = {"training": run.result, "diagnostics": run.diagnosis, "ordering": run.ordering}
    records |= {f"planning, {protocol}": record for protocol, record in run.plans.items()}
    return [(name, record) for name, record in records.items() if record is not None]


def _record(methods: Sequence[Method], title: str, figures: Sequence[str]) -> dict[str, Any]:
    return {
        "title": title,
        "verdict": summary(methods),
        "split": judged_on(methods),
        "quick": any(run.quick for method in methods for run in method.runs),
        "methods": [_method_record(method) for method in methods],
        "planning_comparisons": [asdict(comparison) for comparison in compare_plans(methods)],
        "diagnostic_comparisons": [asdict(r) | {"relative_reduction": r.relative} for r in compare_diagnostics(methods)],
        "not_measured": _missing(methods),
        "figures": list(figures),
        "inputs": [
            {
                "directory": str(run.directory),
                "sample": dig(run.diagnosis, "sample"),
                "pairs": _pair_hashes(run),
                "sha256": run.hashes,
            }
            for method in methods
            for run in method.runs
        ],
        "provenance": provenance(),
    }


def _pair_hashes(run: Run) -> dict[str, Any]:
    return {protocol: dig(record, "pairs", "hash") for protocol, record in run.plans.items()}


def _method_record(method: Method) -> dict[str, Any]:
    first, names = method.runs[0], [one.name for one in shown_diagnostics([method])]
    return {
        "label": method.label,
        "variant": first.variant,
        "stop_gradient": first.stop_gradient,
        "task": first.task,
        "preset": first.preset,
        "training_seeds": [run.seed for run in method.runs],
        "rates": {name: asdict(diagnostic(method, name)) for name in names},
        "invariance_by_kind": {kind: asdict(diagnostic(method, "invariance", "by_kind", kind)) for kind in PERTURBATIONS}
        | {form: asdict(diagnostic(method, "invariance", form)) for form in diagnostics.FORMS},
        "success": {
            protocol: {policy: asdict(success(method, protocol, policy)) for policy in ("model", "random", "nothing", "expert")}
            for protocol in PLAN_PROTOCOLS
            if any(protocol in run.plans for run in method.runs)
        },
    }
