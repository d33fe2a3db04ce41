"""The report says what the records say: nothing guessed, nothing hidden, nothing compared that cannot be."""

from __future__ import annotations

import json
import subprocess
import sys
from html.parser import HTMLParser
from pathlib import Path

import numpy as np
import pytest
from report_records import write_run

from phylatent.errors import UserError
from phylatent.reporting import curves, diagnostics, make_report
from phylatent.reporting.comparisons import compare_diagnostics, compare_plans, outcomes
from phylatent.reporting.methods import Average, diagnostic, success
from phylatent.reporting.page import read_methods, render
from phylatent.reporting.scatter import scatters
from phylatent.reporting.words import rate_cell, summary
from phylatent.statistics import mcnemar


class Page(HTMLParser):
    """What a reader would see, and what a browser would load."""

    def __init__(self, html: str) -> None:
        super().__init__()
        self.tags: list[tuple[str, dict[str, str | None]]] = []
        self.words: list[str] = []
        self.hidden = 0
        self.feed(html)
        self.text = " ".join(" ".join(self.words).split())

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append((tag, dict(attrs)))
        self.hidden += tag in ("script", "style")

    def handle_endtag(self, tag: str) -> None:
        self.hidden -= tag in ("script", "style")

    def handle_data(self, data: str) -> None:
        if not self.hidden:
            self.words.append(data)


@pytest.fixture(scope="module")
def two(tmp_path_factory: pytest.TempPathFactory) -> list[Path]:
    base = tmp_path_factory.mktemp("two")
    return [write_run(base / variant, variant) for variant in ("lewm", "phylatent")]


@pytest.fixture(scope="module")
def written(two: list[Path], tmp_path_factory: pytest.TempPathFactory) -> Path:
    return make_report(two, tmp_path_factory.mktemp("out") / "report")


def test_everything_is_written_and_nothing_half(written: Path) -> None:
    assert written.name == "report.html"
    assert written.stat().st_size < 15e6
    record = json.loads((written.parent / "report.json").read_text())
    files = {path.name for path in (written.parent / "figures").iterdir()}
    assert files == set(record["figures"])
    assert {path.suffix for path in (written.parent / "figures").iterdir()} == {".png", ".pdf"}
    for path in (written.parent / "figures").iterdir():
        assert path.stat().st_size > 1000
        assert path.read_bytes()[:4] in (b"\x89PNG", b"%PDF")
    names = {path.rsplit(".", 1)[0] for path in record["figures"]}
    assert {"headline", "reductions", "breakdowns", "training", "shares", "rollouts", "diagnostics-lewm-seed-0"} <= names
    assert not list(written.parent.rglob("*.partial"))


def test_the_record_holds_the_numbers_and_where_they_come_from(written: Path, two: list[Path]) -> None:
    record = json.loads((written.parent / "report.json").read_text())
    diagnosis = json.loads((two[0] / "diagnostics" / "paper.json").read_text())
    assert record["methods"][0]["label"] == "lewm"
    assert record["methods"][0]["rates"]["invariance"]["mean"] == diagnosis["invariance"]["rate"]
    assert record["inputs"][0]["sample"] == diagnosis["sample"]
    assert len(record["inputs"][0]["sha256"]["planning/paper/result.json"]) == 64
    assert record["provenance"]["packages"]["phylatent"]


def test_the_page_loads_nothing(written: Path) -> None:
    page = Page(written.read_text())
    loads = [value for tag, attrs in page.tags for key, value in attrs.items() if key in ("src", "href", "srcset", "data")]
    assert loads
    assert all(value is not None and value.startswith(("data:", "#")) for value in loads)
    style = next(part for part in written.read_text().split("<style>")[1:])
    assert "url(" not in style.split("</style>")[0]
    assert "@import" not in style.split("</style>")[0]
    assert any("default-src 'none'" in (attrs.get("content") or "") for tag, attrs in page.tags if tag == "meta")


def test_images_and_tables_are_described(written: Path) -> None:
    page = Page(written.read_text())
    images = [attrs for tag, attrs in page.tags if tag == "img"]
    assert images
    assert all(attrs["alt"] for attrs in images)
    assert sum(tag == "table" for tag, _ in page.tags) == sum(tag == "caption" for tag, _ in page.tags)
    levels = [int(tag[1]) for tag, _ in page.tags if tag in ("h1", "h2", "h3", "h4")]
    assert levels[0] == 1
    assert levels.count(1) == 1


def test_shares_of_the_gradient(two: list[Path]) -> None:
    """A panel an objective, a line a place; the table has the last ones. Neither shares nor weights are taken for losses."""
    methods = read_methods(two)
    figure, table = curves.share_curves(methods), curves.share_table(methods)
    assert [panel.title for panel in figure.panels][:3] == ["Prediction", "SIGReg", "SVIC"]
    assert {s.dash for s in figure.panels[0].series} == {"solid", "dash"}
    assert {s.dash for s in figure.panels[1].series} == {"solid"}, "SIGReg does not reach the predictor"
    assert [cell.text for cell in table.rows[0][1:4]] == ["50.0 % / 50.0 %", "50.0 % / 0.0 %", "–"]
    assert table.rows[0][1].note == "weight 1"
    assert not any("share/" in panel.title or "weight/" in panel.title for panel in curves.curves(methods).panels)


def test_runs_that_logged_no_shares(tmp_path: Path) -> None:
    run = write_run(tmp_path / "run", "lewm")
    lines = (run / "validation.csv").read_text().splitlines()
    kept = [at for at, name in enumerate(lines[0].split(",")) if not name.startswith("share/")]
    (run / "validation.csv").write_text("\n".join(",".join(line.split(",")[at] for at in kept) for line in lines) + "\n")
    methods = read_methods([run])
    assert curves.share_curves(methods) is None
    assert curves.share_table(methods) is None
    assert "Share of the gradient" not in make_report([run], tmp_path / "report").read_text()


def test_what_is_missing_is_said(tmp_path: Path) -> None:
    trained = write_run(tmp_path / "trained", "lewm", diagnosed=False, protocols=())
    text = Page(render(read_methods([trained]))).text
    assert "Planning was not measured." in text
    assert "lewm was not diagnosed." in text
    assert "lewm · seed 0: diagnostics, planning" in text
    judged = write_run(tmp_path / "judged", "phylatent", training=False)
    text = Page(render(read_methods([trained, judged]))).text
    assert "lewm was not measured under this protocol" in text
    assert "training curves" in text


def test_a_model_that_cannot_be_judged_shows_why(tmp_path: Path) -> None:
    broken = write_run(tmp_path / "broken", "phylatent", health="constant")
    methods = read_methods([write_run(tmp_path / "lewm"), broken])
    text = Page(render(methods)).text
    assert "The latents are constant, so no rate means anything." in text
    assert diagnostic(methods[1], "invariance").mean is None
    assert rate_cell(diagnostic(methods[1], "invariance")).text == "not measured"


def test_several_training_seeds_average(tmp_path: Path) -> None:
    rates = (0.10, 0.16, 0.13)
    runs = [
        write_run(tmp_path / f"l{s}", "lewm", s, rates={"invariance": rate, "success": 0.5}) for s, rate in enumerate(rates)
    ]
    (method,) = read_methods(runs)
    found = diagnostic(method, "invariance")
    assert found.mean == pytest.approx(0.13)
    assert found.spread == pytest.approx(0.03)  # √((0.03² + 0.03² + 0²) / 2)
    assert (found.low, found.high) == (pytest.approx(0.10), pytest.approx(0.16))
    cell = rate_cell(found)
    assert cell.text == "13.00 ± 3.00 %"
    assert "± over training seeds" in cell.note
    (single,) = read_methods(runs[:1])
    assert "± over evaluation seeds" in rate_cell(success(single, "paper")).note


def test_records_of_versions_that_know_other_settings_are_averaged(tmp_path: Path) -> None:
    runs = [write_run(tmp_path / f"l{seed}", "lewm", seed) for seed in (0, 1, 2)]
    said = ({}, {"diagnostics": ["invariance", "identifiability", "counterfactual"]}, {"diagnostics": ["invariance"]})
    for run, more in zip(runs, said, strict=True):
        path = run / "diagnostics" / "paper.json"
        path.write_text(json.dumps(json.loads(path.read_text()) | {"key": {"states": 300, **more}}))
    assert [len(method.runs) for method in read_methods(runs[:2])] == [2]
    assert [len(method.runs) for method in read_methods(runs)] == [1, 1, 1]


def test_a_training_seed_that_failed_is_counted(tmp_path: Path) -> None:
    runs = [write_run(tmp_path / "a", "lewm", 0), write_run(tmp_path / "b", "lewm", 1, health="not finite")]
    (method,) = read_methods(runs)
    assert "1 of 2 training seeds measured" in rate_cell(diagnostic(method, "invariance")).note


def test_runs_that_differ_otherwise_are_not_averaged(tmp_path: Path) -> None:
    first, second = write_run(tmp_path / "short", "phylatent"), write_run(tmp_path / "long", "phylatent")
    assert [m.label for m in read_methods([first, second])] == ["phylatent · short", "phylatent · long"]
    assert len(read_methods([first, first])) == 1
    other = write_run(tmp_path / "smoke", "phylatent", 1, preset="smoke")
    assert {m.label for m in read_methods([first, other])} == {"phylatent · laptop", "phylatent · smoke"}


def test_the_comparison_is_paired(two: list[Path]) -> None:
    methods = read_methods(two)
    (found,) = compare_plans(methods)
    reference, method = (outcomes(m.runs[0], "paper") for m in methods)
    expected = mcnemar([reference[p] for p in sorted(reference)], [method[p] for p in sorted(reference)])
    assert (found.reference, found.method) == ("lewm", "phylatent")
    assert found.tests[0].p == expected.p
    assert found.tests[0].only_method == expected.only_second
    assert found.difference is not None
    assert found.difference.mean == pytest.approx(np.mean(list(method.values())) - np.mean(list(reference.values())))
    assert found.difference.episodes == found.pairs // 2, "two pairs of each episode count together"
    text = Page(render(methods)).text
    assert f"bootstrap over {found.difference.episodes} episodes ({found.pairs} pairs)" in text
    assert "95 % intervals are bootstraps over held-out episodes" in text
    assert "older records" not in text
    first = compare_diagnostics(methods)[0]
    assert first.before is not None
    assert first.after is not None
    assert first.relative == pytest.approx(1 - first.after / first.before)


def test_every_perturbation_is_shown_and_those_seen_in_training_apart(two: list[Path], tmp_path: Path) -> None:
    other = write_run(tmp_path / "own", "own")
    methods = read_methods([*two, other])
    table = diagnostics.kinds_table(methods)
    assert table is not None
    assert [head.split()[0] for head in table.head] == ["Method", "brightness", "colour", "texture", "noise", "seen", "unseen"]
    cells = {row[0].text: row[1:] for row in table.rows}
    assert cells["lewm"][4].text == "–", "its training had no change of appearance at all"
    assert cells["lewm"][5].note.startswith("brightness, colour, texture, noise · ")
    assert cells["phylatent"][4].note.startswith("brightness, colour · ")
    assert cells["phylatent"][5].note.startswith("texture, noise · ")
    assert cells["own"][4].text == "not measured"
    assert all(cell.text.endswith("%") for row in cells.values() for cell in row[:4])
    assert table.caption in render(methods)


def test_records_of_different_splits_are_not_mixed(tmp_path: Path) -> None:
    a, b = write_run(tmp_path / "a"), write_run(tmp_path / "b", "phylatent", splits=("validation", "validation"))
    with pytest.raises(UserError) as caught:
        make_report([a, b], tmp_path / "out")
    told = "a on test (diagnostics, planning (paper)); b on validation (diagnostics, planning (paper))"
    assert told in str(caught.value)
    assert "\n" not in str(caught.value)
    mixed = write_run(tmp_path / "mixed", splits=("test", "validation"))
    with pytest.raises(UserError, match=r"mixed on test \(diagnostics\); mixed on validation \(planning \(paper\)\)"):
        make_report([mixed], tmp_path / "out")
    assert not (tmp_path / "out").exists()
    trained = write_run(tmp_path / "trained", seed=1, diagnosed=False, protocols=())
    note = "settings may have been chosen on these episodes"
    assert f"Split: validation ({note})." in Page(render(read_methods([b, trained]))).text


def test_the_loss_before_the_predictors_own_steps_stands_beside_the_one_after(tmp_path: Path) -> None:
    run = write_run(tmp_path / "run")
    assert "before the predictor's own steps" not in Page(render(read_methods([run]))).text
    record = json.loads((run / "result.json").read_text())
    (run / "result.json").write_text(json.dumps(record | {"validation_before_predictor_steps": {"pred": 0.0372}}))
    assert "0.0372 before the predictor's own steps" in Page(render(read_methods([run]))).text


def test_what_was_measured_on_other_samples_is_not_compared(tmp_path: Path) -> None:
    runs = [write_run(tmp_path / "lewm"), write_run(tmp_path / "p", "phylatent", sample="other", pairs="other")]
    methods = read_methods(runs)
    (plans,) = compare_plans(methods)
    assert plans.difference is None
    assert not plans.tests
    assert all(r.relative is None and "different hashes" in r.reason for r in compare_diagnostics(methods))
    text = " ".join(summary(methods))
    assert "not compared in planning: their lists of start/goal pairs have different hashes" in text
    assert "fewer" not in text
    assert "Left out, because planned on other pairs: phylatent · seed 0" in Page(render(methods)).text


def test_a_change_within_the_intervals_is_said_to_be(tmp_path: Path) -> None:
    same = [write_run(tmp_path / v, v, rates={"invariance": rate}) for v, rate in (("lewm", 0.2), ("other", 0.19))]
    for run in same:
        path = run / "diagnostics" / "paper.json"
        record = json.loads(path.read_text())
        record["invariance"]["interval"] = [0.15, 0.25]
        path.write_text(json.dumps(record))
    methods = read_methods(same)
    assert compare_diagnostics(methods)[0].overlap
    assert "5 % fewer invariance failures (20.0 % → 19.0 %, ranges overlap)" in " ".join(summary(methods))


def test_many_times_as_many_failures_are_told_as_a_factor(tmp_path: Path) -> None:
    rates = {"lewm": 0.02, "other": 0.5}
    methods = read_methods([write_run(tmp_path / v, v, rates={"invariance": rate}) for v, rate in rates.items()])
    assert "25 times as many invariance failures (2.0 % → 50.0 %)" in " ".join(summary(methods))


def test_labels_of_close_floors_stand_on_either_side(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    reached = {"random": 0.26, "nothing": 0.29, "expert": 0.99}
    monkeypatch.setattr(diagnostics, "success", lambda _, protocol, policy: Average(reached[policy], None, "", None, None, ()))
    lines = diagnostics.floors(read_methods([write_run(tmp_path / "lewm")]), "paper")
    assert [(line.value, line.below) for line in lines] == [(0.26, True), (0.29, False), (0.99, False)]


def test_drawn_points_are_the_records(two: list[Path]) -> None:
    methods = read_methods(two)
    scatter = scatters(methods)[0]
    record = json.loads((two[0] / "diagnostics" / "paper.json").read_text())
    cloud, pairs, branches = scatter.clouds["invariance"], scatter.clouds["identifiability"], scatter.clouds["counterfactual"]
    assert cloud is not None
    assert pairs is not None
    assert branches is not None
    assert int(cloud.failed.sum()) == record["invariance"]["failures"]
    assert (len(pairs.x), pairs.total) == (400, 1600)
    assert len(branches.x) == record["counterfactual"]["eligible"]
    assert int(branches.failed.sum()) == record["counterfactual"]["failures"]
    assert "400 of 1,600 pairs drawn" in render(methods)


@pytest.mark.parametrize("options", [{"preset": "smoke"}, {"quick": True}])
def test_a_shortened_run_is_announced(tmp_path: Path, options: dict[str, object]) -> None:
    run = write_run(tmp_path / "run", **options)  # type: ignore[arg-type]
    assert "This is not the real comparison." in Page(render(read_methods([run]))).text


def test_names_are_text(tmp_path: Path) -> None:
    name = "<script>alert(1)</script>"
    run = write_run(tmp_path / "run", name, training=False)
    html = render(read_methods([run]), title=f"{name} & more")
    assert "alert(1)" in html
    assert "<script>alert" not in html
    data = html.split('id="data">')[1].split("</script>")[0]
    assert "<" not in data
    assert "&lt;script&gt;" in json.dumps(json.loads(data))


def test_mistakes_are_told_in_a_sentence(tmp_path: Path) -> None:
    out = tmp_path / "out"
    (tmp_path / "empty").mkdir()
    cut = write_run(tmp_path / "cut")
    (cut / "diagnostics" / "paper.json").write_text('{"protocol": "pap')
    torn = write_run(tmp_path / "torn")
    (torn / "diagnostics" / "paper.npz").write_bytes(b"PK")
    for directories, words in (
        ([], "at least one run directory"),
        ([tmp_path / "nowhere"], "is not a directory"),
        ([tmp_path / "empty"], "holds no records"),
        ([cut], "is damaged: it is not JSON"),
        ([torn], "not a whole array file"),
    ):
        with pytest.raises(UserError, match=words):
            make_report(directories, out)
    assert not out.exists()
    (tmp_path / "file").write_text("")
    with pytest.raises(UserError, match="is a file"):
        make_report([cut], tmp_path / "file")


def test_the_report_does_not_import_torch() -> None:
    script = "import sys, phylatent.reporting.page; sys.exit('torch' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", script]).returncode == 0
