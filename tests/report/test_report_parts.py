"""Parts of the page beside its rates: several seeds as one row, films, the map of the latents, the read-out, the shares."""

from __future__ import annotations

import base64
import io
import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from report_extras import STATES, latent_map, write_films, write_map
from report_records import write_run

from phylatent.diagnostics.latent_map import principal, read_map
from phylatent.errors import UserError
from phylatent.reporting import curves, diagnostics, films, planning
from phylatent.reporting.inputs import read_run
from phylatent.reporting.interactive import log_ticks
from phylatent.reporting.latent_map import in_page, maps
from phylatent.reporting.page import read_methods, render
from phylatent.reporting.readout import readout_table
from phylatent.reporting.strips import filmstrips


def pixels(uri: str) -> np.ndarray:
    from PIL import Image

    return np.asarray(Image.open(io.BytesIO(base64.b64decode(uri.partition(",")[2]))).convert("RGB")).astype(int)


def change(path: Path, **values: Any) -> None:
    record = json.loads(path.read_text())
    record["validation"] |= values.pop("validation", {})
    path.write_text(json.dumps(record | values))


def test_several_seeds_are_one_row_with_their_spread(tmp_path: Path) -> None:
    rates = (0.10, 0.16, 0.13)
    runs = [write_run(tmp_path / f"l{s}", "lewm", s, rates={"invariance": rate}) for s, rate in enumerate(rates)]
    for run, loss in zip(runs, (0.1, 0.2, 0.3), strict=True):
        change(run / "result.json", validation={"pred": loss}, seconds=60.0)
    methods = read_methods([*runs, write_run(tmp_path / "p", "phylatent")])
    table = curves.final_table(methods)
    assert [row[0].text for row in table.rows] == ["lewm", "phylatent"]
    assert (table.rows[0][3].text, table.rows[0][3].note) == ("0.2000 ± 0.1000", "n = 3: 0.1000, 0.2000, 0.3000")
    assert "±" not in table.rows[1][3].text
    assert table.rows[0][0].note == "3 training seeds"
    headline = diagnostics.headline_table(methods)
    assert headline.rows[0][1].note.endswith("n = 3: 10.00, 16.00, 13.00")
    assert "±" in planning.success_table(methods, "paper").rows[0][3].text
    marks = [series for series in diagnostics.headline(methods).panels[0].series if series.shift]
    assert [mark.y[0] for mark in marks] == list(rates), "each seed has a mark of its own"
    assert len({mark.shift for mark in marks}) == 3
    assert all(mark.shift < 0 for mark in marks)
    assert curves.share_table(methods).rows[0][1].note.startswith("n = 3")
    assert "Of several training seeds one is shown: lewm · seed 0, phylatent · seed 0." in filmstrips(methods).note


def test_seeds_of_methods_that_share_a_variants_name(tmp_path: Path) -> None:
    """Trained with the same settings but for the seed: one method, called what their names have in common."""
    runs = [write_run(tmp_path / f"no-{part}-seed{seed}", "plus", seed) for part in ("psg", "fra") for seed in (0, 1)]
    for run in runs[:2]:
        (run / "config.yaml").write_text((run / "config.yaml").read_text() + "psg: {weight: 0.0}\n")
    methods = read_methods(runs)
    assert [(method.label, len(method.runs)) for method in methods] == [("plus · no-psg", 2), ("plus · no-fra", 2)]
    twice = write_run(tmp_path / "again-seed0", "plus", 0)
    assert sorted(len(method.runs) for method in read_methods([*runs, twice])) == [1, 1, 1, 2]


def test_films_have_every_step_that_plan_filmed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    run = write_run(tmp_path / "run")
    made = write_films(run, (0, 5, 40))
    (run / "planning" / "paper" / "videos" / "pair0-<b>.webp").touch()
    shown = filmstrips(read_methods([run]))
    assert len(shown.films) == 2, "pair 40 is not among the strips"
    film = next(strip.film for episode in shown.episodes for strip in episode.strips if strip.film)
    assert film.steps == (0, 1, 2, 4, 5, 6, 7, 8, 9, 10, 11), "a frame that repeats the one before it is stored once"
    sheet, side = pixels(film.image), film.side
    assert side == made[0][0].shape[0]
    at = film.steps.index(11)
    cell = sheet[at // film.across * side :, at % film.across * side :][:side, :side]
    assert np.abs(cell - made[0][11]).mean() < 12
    assert np.abs(cell - made[0][0]).mean() > np.abs(cell - made[0][11]).mean() + 3
    assert "2 films have every step (0.0 MB of this page)" in render(read_methods([run]))
    monkeypatch.setattr("phylatent.reporting.strips.MOST_FILMS", 1)
    assert len(filmstrips(read_methods([run])).films) == 1


@pytest.mark.parametrize("content", [b"", b"RIFF\x00\x00\x00\x00WEBP", b"GIF89a"])
def test_a_video_that_is_none(content: bytes, tmp_path: Path) -> None:
    run = write_run(tmp_path / "run")
    (run / "planning" / "paper" / "videos").mkdir()
    path = run / "planning" / "paper" / "videos" / "pair000-solved.webp"
    path.write_bytes(content)
    with pytest.raises(UserError, match=r"pair000-solved.webp is damaged: it is not a whole WebP film") as error:
        filmstrips(read_methods([run]))
    assert "make that record again" in str(error.value)


def test_a_picture_of_another_kind_is_no_video(tmp_path: Path) -> None:
    from PIL import Image

    path = tmp_path / "pair000-solved.webp"
    Image.new("RGB", (30, 40)).save(path)
    with pytest.raises(UserError, match="1 frames of 30 by 40 pixels are no video of start, rollout and goal"):
        films.read_rollout(path, 32)


def test_components_are_those_of_the_widest_directions() -> None:
    long, short = np.array([3.0, 4.0]) / 5, np.array([-4.0, 3.0]) / 5
    latents = np.array([2 * long, -2 * long, short, -short]) + 7
    explained, scores = principal(latents.astype(np.float32))
    assert explained == pytest.approx([0.8, 0.2], abs=1e-6)
    assert np.abs(scores) == pytest.approx(np.array([[2, 0], [2, 0], [0, 1], [0, 1]]), abs=1e-5)
    assert principal(np.ones((3, 2), np.float32))[0].tolist() == [0, 0]


def test_a_map_is_read_back_as_it_was_written(tmp_path: Path) -> None:
    run = write_map(write_run(tmp_path / "run"))
    found, wanted = read_run(run).latents, latent_map()
    assert found is not None
    assert (found.coordinates, found.angles) == (wanted.coordinates, wanted.angles)
    assert np.array_equal(found.pictures, wanted.pictures)
    other = write_map(write_run(tmp_path / "other", "phylatent"), latent_map(1.0))
    shown = in_page(maps(read_methods([run, other])))
    assert [panel["sample"] for panel in shown["panels"]] == [0, 0], "models judged on the same states share their pictures"
    assert len(shown["samples"]) == 1
    assert shown["samples"][0]["periods"] == [None, None, pytest.approx(2 * np.pi)]
    sheet = pixels(shown["samples"][0]["image"])
    assert np.abs(sheet[32:64, 32:64] - wanted.pictures[21]).mean() < 15
    assert len(np.frombuffer(base64.b64decode(shown["panels"][0]["x"]), "<f4")) == STATES


def test_a_record_without_a_map_says_how_to_get_one(tmp_path: Path) -> None:
    old, new = write_run(tmp_path / "old"), write_map(write_run(tmp_path / "new", "phylatent"))
    assert "The records were made before there were maps: <code>phylatent diagnose RUN" in render(read_methods([old]))
    html = render(read_methods([old, new]))
    assert "Without a map: lewm." in html
    assert 'data-map="0"' in html
    assert 'data-map="1"' not in html


MAPS: dict[str, tuple[dict[str, Any], str]] = {
    "gone": ({"scores": None}, "it has no map/scores"),
    "text": ({"scores": np.array([["a", "b"]] * STATES)}, "map/scores is <U1"),
    "fewer": ({"states": np.zeros((3, 3), np.float32)}, r"map/states is float32 \[3, 3\], which does not go with the rest"),
    "flat": ({"pictures": np.zeros(5, np.uint8)}, "map/pictures is uint8"),
    "not finite": ({"states": np.full((STATES, 3), np.nan, np.float32)}, "the numbers of its map do not go together"),
    "axes": ({"scores": np.zeros((STATES, 3), np.float32)}, "the numbers of its map do not go together"),
}


@pytest.mark.parametrize("changed, sentence", MAPS.values(), ids=MAPS.keys())
def test_maps_that_do_not_go_together(changed: dict[str, Any], sentence: str, tmp_path: Path) -> None:
    run = write_map(write_run(tmp_path / "run"), **changed)
    with pytest.raises(UserError, match=sentence):
        read_methods([run])


@pytest.mark.parametrize("said", [[], {"coordinates": "x"}, {"coordinates": ["x"], "angles": {"x": 0}, "explained": [1]}])
def test_a_map_of_wrong_types(said: Any, tmp_path: Path) -> None:
    with pytest.raises(UserError, match=r"paper.json is damaged: map"):
        read_map(tmp_path / "paper.npz", {"map": said}, again="do it again")


def test_the_readout_of_every_dimension(tmp_path: Path) -> None:
    runs = [write_run(tmp_path / f"l{seed}", "lewm", seed) for seed in (0, 1)]
    for run, score in zip(runs, (0.8, 0.6), strict=True):
        more = {"r2/angle": score - 1, "r2/sin angle": 0.5, "r2/cos angle": 0.5, "error/x": 2 * score, "r2/x": score}
        change(run / "result.json", validation=more)
    table = readout_table(read_methods(runs))
    assert [row[0].text for row in table.rows] == ["x", "y", "angle"], "sine and cosine stand beside their angle"
    x, angle = table.rows[0][1], table.rows[2][1]
    assert (x.text, x.note) == ("0.700 ± 0.141", "n = 2: 0.800, 0.600 · off by 1.4 ± 0.283")
    assert x.bar == pytest.approx(0.7)
    assert angle.text == "−0.300 ± 0.141"
    assert angle.bar == 0
    assert "R² of its sin 0.500 ± 0.000" in angle.note
    assert readout_table(read_methods([write_run(tmp_path / "judged", training=False)])) is None


def test_the_shares_of_a_method_fill_its_bar(tmp_path: Path) -> None:
    methods = read_methods([write_run(tmp_path / variant, variant) for variant in ("lewm", "phylatent")])
    encoder, predictor = curves.share_ends(methods).panels
    assert "encoder" in encoder.title
    assert [sum(series.y[at] for series in encoder.series) for at in (0, 1)] == pytest.approx([1, 1])
    assert "SIGReg" not in [series.label for series in predictor.series], "it does not reach the predictor"
    assert encoder.series[0].texts[0] == "Prediction 50%"


@pytest.mark.parametrize(
    "low, high, ticks",
    [
        (0.6, 3.0, [1, 3]),
        (0.02, 0.06, [0.02, 0.03, 0.04, 0.05, 0.06]),
        (0.02, 2.4, [0.02, 0.05, 0.1, 0.2, 0.5, 1, 2]),
        (1e-8, 1e6, [1e-8, 1e-5, 1e-2, 1e1, 1e4]),
        (1.0, 1.0, [1]),
    ],
)
def test_ticks_of_a_logarithmic_axis_keep_apart(low: float, high: float, ticks: list[float]) -> None:
    assert log_ticks(low, high) == pytest.approx(ticks)
