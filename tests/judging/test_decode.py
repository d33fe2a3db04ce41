"""`decode`: pictures beside the model, from training episodes to test episodes, the same for every model."""

from __future__ import annotations

import json
import re
import shutil
from pathlib import Path

import numpy as np
import pytest
from command_line import assert_user_mistake

from phylatent.data.readers import open_episodes
from phylatent.errors import UserError
from phylatent.judging import decode as module
from phylatent.judging.decode import decode
from phylatent.judging.subject import load_subject
from phylatent.models.decoder import shrink
from phylatent.reporting.page import read_methods, render
from phylatent.tasks.tworooms import TASK

ROOT = Path(__file__).parents[2]


def files(directory: Path) -> dict[str, int]:
    return {str(path.relative_to(directory)): path.stat().st_mtime_ns for path in directory.rglob("*") if path.is_file()}


@pytest.fixture(scope="module")
def decoded(uninterrupted: Path, tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, dict]:
    run = Path(shutil.copytree(uninterrupted, tmp_path_factory.mktemp("decoded") / "run"))
    [record] = decode([run])
    return run, record


def test_the_record_and_what_lies_beside_it(decoded: tuple[Path, dict]) -> None:
    run, record = decoded
    assert {path.name for path in (run / "decoder").iterdir()} == {
        *("decoder.json", "decoder.safetensors", "views.npz", "frames.png"),
        *("rollout-0.png", "rollout-1.png", "rollout-2.png"),
    }
    assert record["settings"]["steps"] == 20
    assert record["split"]["name"] == "test"
    held, horizons = record["reconstruction"], record["rollout"]["horizons"]
    assert held["psnr"] > 5
    assert held["constant_psnr"] > 5
    assert [one["steps"] for one in horizons] == [5 * block for block in range(1, len(horizons) + 1)]
    assert all(one[name] > 0 for one in horizons for name in ("psnr", "constant_psnr", "encoded_psnr"))


def test_what_is_shown_is_from_test_episodes_and_the_first_picture_is_the_real_frame(
    decoded: tuple[Path, dict], tworooms_data: Path
) -> None:
    run, _ = decoded
    views = np.load(run / "decoder" / "views.npz")
    subject = load_subject(str(run))
    episodes = open_episodes(tworooms_data, TASK)
    rows = module.episode_rows(episodes, subject.split.test)
    known = {(255 * shrink(frame[None], 32)).round().byte().numpy().tobytes() for frame in episodes.frames(rows)}
    for name in ("frames", "real", "nearest"):
        for picture in views[name].reshape(-1, *views[name].shape[-3:]):
            assert np.ascontiguousarray(np.moveaxis(picture, -1, 0))[None].tobytes() in known, name
    learnt = module._material(subject).learnt
    train = set(module.episode_rows(episodes, subject.split.train).tolist())
    assert set(learnt.tolist()) <= train


def test_the_same_again_does_nothing_and_other_settings_overwrite_nothing(
    decoded: tuple[Path, dict], here, tmp_path: Path
) -> None:
    run, record = decoded
    before, said = files(run), []
    assert decode([run], say=said.append) == [record]
    assert files(run) == before
    assert said == [f"already measured: {run / 'decoder' / 'decoder.json'}"]
    assert_user_mistake(
        here("decode", str(run), "decode.steps=3", cwd=tmp_path), "holds a measurement with other settings (steps)"
    )
    assert files(run) == before


def test_a_decoder_that_fails_halfway_leaves_nothing(
    uninterrupted: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    run = Path(shutil.copytree(uninterrupted, tmp_path / "run"))
    before = files(run)

    def broken(*_: object) -> None:
        raise UserError("no more")

    monkeypatch.setattr(module, "write_strips", broken)
    with pytest.raises(UserError, match="no more"):
        decode([run], steps=1)
    assert files(run) == before


def test_mistakes_are_one_sentence(uninterrupted: Path, here, tmp_path: Path) -> None:
    for key, sentence in {
        "decode.steps=many": "decode.steps=many: expected a whole number",
        "decode.steps=0": "decode.steps is 0; it must be at least 1",
        "train.steps=3": "train.steps does nothing here: decode takes data, device, decode.steps",
        "seed=1": "decode takes no seed=",
    }.items():
        assert_user_mistake(here("decode", str(uninterrupted), key, f"out={tmp_path / 'out'}", cwd=tmp_path), sentence)
    assert not (tmp_path / "out").exists()


def test_the_report_shows_models_side_by_side_or_says_how(
    decoded: tuple[Path, dict], uninterrupted: Path, tmp_path: Path
) -> None:
    run, _ = decoded
    without = render(read_methods([uninterrupted]))
    assert f"<code>phylatent decode {uninterrupted}</code>" in without
    page = render(read_methods([run]))
    section = page[page.index('<section id="decoder"') : page.index('<section id="training"')]
    assert section.count("<img") == 2 + 3 * 4  # frames and their latents; three clips of four rows
    assert "PSNR" in section
    assert "phylatent decode" not in section

    both = render(read_methods([run, uninterrupted]))
    assert "Some models have no pictures yet. This trains" in both
    (run / "decoder" / "views.npz").rename(tmp_path / "views.npz")
    np.savez(run / "decoder" / "views.npz", frames=np.zeros((2, 4, 4, 3), np.uint8))
    with pytest.raises(UserError, match=r"views\.npz is damaged: it has no decoded"):
        render(read_methods([run]))
    (tmp_path / "views.npz").replace(run / "decoder" / "views.npz")


def test_the_guides_commands(here, uninterrupted: Path, tmp_path: Path) -> None:
    """As they stand, but for runs that are there, and with one step."""
    shown = re.findall(r"^phylatent decode .*$", (ROOT / "docs" / "decoder.md").read_text(), re.MULTILINE)
    assert shown
    (tmp_path / "runs").mkdir()
    for line in shown:
        arguments = re.sub(r"decode\.steps=\d+", "", line.partition("#")[0]).split()[1:]
        for name in (argument for argument in arguments if argument.startswith("runs/")):
            if not (tmp_path / name).exists():
                shutil.copytree(uninterrupted, tmp_path / name)
        done = here(*arguments, "decode.steps=1", cwd=tmp_path)
        assert done.returncode == 0, f"{line}\n{done.stderr}"
    found = [json.loads(path.read_text()) for path in sorted(tmp_path.glob("runs/*/decoder/decoder.json"))]
    assert len(found) == 2
    first, second = (np.load(path) for path in sorted(tmp_path.glob("runs/*/decoder/views.npz")))
    assert np.array_equal(first["frames"], second["frames"])
    assert np.array_equal(first["real"], second["real"])
