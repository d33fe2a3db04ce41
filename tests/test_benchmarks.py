"""The benchmarks' own arithmetic, their table, and that each of them still fits the code it measures."""

from __future__ import annotations

import importlib
import json
import re
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
BENCHMARKS = ROOT / "benchmarks"


@pytest.fixture(autouse=True)
def _on_the_path(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.syspath_prepend(str(BENCHMARKS))


def test_two_things_are_timed_in_turns() -> None:
    from harness import in_turns

    order: list[str] = []
    pairs = in_turns(lambda: order.append("ours") or len(order), lambda: order.append("peer") or 10 * len(order), 3)
    assert order == ["ours", "peer", "peer", "ours", "ours", "peer"]
    assert pairs == [(1, 20), (4, 30), (5, 60)]


def test_the_median_of_the_ratios_is_not_the_ratio_of_the_medians() -> None:
    from harness import compared, sentence

    pairs = [(1.0, 2.0), (2.0, 10.0), (4.0, 12.0)]
    row = compared("a step", pairs, unit="s", peer_name="them", asked=2.0)
    assert (row.ours, row.peer, row.ratio, row.spread) == (2.0, 10.0, 3.0, (2.0, 5.0))
    assert sentence(row) == "a step: 2 s, them 10: 3.00× (2.00–5.00, 3 repetitions); at least 2 asked"
    faster = compared("clips", pairs, unit="clips/s", peer_name="them", more_is_better=True)
    assert faster.ratio == pytest.approx(1 / 3)


def test_a_record_becomes_a_table(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    from harness import Row, compared, write
    from tables import filled

    rows = [
        compared("a step", [(1.0, 3.0)], unit="s", peer_name="them", asked=2.0),
        Row("steps", "lewm steps", 1.4, asked=1.5, at_most=True),
    ]
    write("step", rows, tmp_path)
    assert {"cores", "processor", "threads"} <= set(json.loads((tmp_path / "step.json").read_text())["machine"])
    assert "a step" in capsys.readouterr().out
    page = filled("# Fast\n\n<!-- benchmark step -->\nold\n<!-- end -->\n<!-- benchmark other -->\n<!-- end -->\n", tmp_path)
    assert "| a step | 1 s | 3 (them) | **3.00×** | 3.00–3.00 | ≥ 2× |" in page
    assert "| steps | 1.4 lewm steps |  |  |  | ≤ 1.5 |" in page
    assert "old" not in page
    assert "Not measured yet." in page


def test_the_page_has_a_place_for_every_benchmark_that_make_runs() -> None:
    named = re.search(r"^BENCHMARKS := (.*)$", (ROOT / "Makefile").read_text(), re.MULTILINE)
    assert named is not None
    marked = re.findall(r"<!-- benchmark (\w+) -->", (ROOT / "docs" / "performance.md").read_text())
    assert set(named[1].split()) <= set(marked)


@pytest.mark.parametrize("name", sorted(path.stem for path in BENCHMARKS.glob("*.py")))
def test_every_benchmark_fits_the_code(name: str) -> None:
    """Its imports are there, and it says what it measures; measuring takes minutes, and is `make bench`'s."""
    module = importlib.import_module(name)
    assert module.__doc__
    sys.modules.pop(name)


def test_both_sides_of_the_step_compute_the_same_prediction_loss() -> None:
    import step
    import torch

    changed = ["model.encoder=vit", "model.dropout=0", "train.batch_size=4", "model.depth=2"]
    config = step.compose(task="pusht", preset="laptop", variant="lewm", overrides=changed)
    graph = step.build(config).train()
    frames, actions, targets = step.batch_of(config, graph)
    ours = graph(frames, actions, targets, step.Draws(0, 0, step.CPU)).terms["pred"]
    plain = step.Plain(step.reference(graph.world_model), graph, config).train()
    pixels = graph.world_model.normalise_frames(frames)
    info = plain.model.encode({"pixels": pixels, "action": actions})
    theirs = (plain.model.predict(info["emb"][:, :3], info["act_emb"]) - info["emb"][:, 1:]).square().mean()
    torch.testing.assert_close(ours, theirs, rtol=1e-4, atol=1e-6)
    assert plain(frames, actions, targets) > theirs
