"""What a diagnosis is drawn from: held-out rows only, the same for every model, and said where there is less than asked."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from drifts import CLIP, EPISODES, SETTINGS, SPLIT, STEPS, TASK, diagnose, draw
from exact_model import ExactTwoRooms

from phylatent.data.readers import Episodes
from phylatent.data.stats import Split
from phylatent.diagnostics.held_out import find_held_out_rows
from phylatent.diagnostics.sample import Sample, make_sample
from phylatent.errors import UserError


def test_nothing_is_drawn_from_training_episodes(sample: Sample) -> None:
    held = set(range(3 * (STEPS + 1), EPISODES * (STEPS + 1)))
    for one in sample.seeds:
        states, pairs, branches = (one[name] for name in ("invariance", "identifiability", "counterfactual"))
        assert {*states.rows, *states.later, *pairs.rows, *branches.rows} <= held
        assert (states.rows // (STEPS + 1) == states.later // (STEPS + 1)).all()
        taken = {action.tobytes(): row for row, action in enumerate(sample.held_out.episodes.actions)}
        for start, windows in zip(branches.rows, branches.windows, strict=True):
            homes = [taken[window[0, :2].tobytes()] // (STEPS + 1) for window in windows]
            assert len({start // (STEPS + 1), *homes}) == 3
            assert set(homes) <= set(SPLIT.test)
    drawn = {tuple(sorted(pair)) for pair in zip(pairs.first.tolist(), pairs.second.tolist(), strict=True)}
    assert len(drawn) == 500
    assert all(i != j for i, j in drawn)


def test_the_split_decides_what_is_drawn(sample: Sample, free_space: Episodes) -> None:
    swapped = replace(SPLIT, validation=SPLIT.test, test=SPLIT.validation)
    other = draw(free_space, replace(SETTINGS, split="validation"), swapped)
    assert np.array_equal(other.seeds[0]["invariance"].rows, sample.seeds[0]["invariance"].rows)
    assert other.fingerprint != sample.fingerprint, "the same episodes under another name are another sample"


@pytest.mark.slow
def test_the_same_seed_draws_the_same_whatever_the_workers(sample: Sample, free_space: Episodes) -> None:
    settings = replace(SETTINGS, branches=24, seeds=(0,))
    one, two = (draw(free_space, replace(settings, workers=workers)) for workers in (1, 2))
    assert one.fingerprint == two.fingerprint != sample.fingerprint
    assert one.seeds[0]["counterfactual"].packed == two.seeds[0]["counterfactual"].packed
    assert (one.seeds[0]["counterfactual"].targets == two.seeds[0]["counterfactual"].targets).all()
    first, second = (diagnose(ExactTwoRooms(), each, settings) for each in (one, two))
    assert all((values == second.arrays[name]).all() for name, values in first.arrays.items())
    timeless = [{key: value for key, value in found.record.items() if key != "seconds"} for found in (first, second)]
    assert timeless[0] == timeless[1]
    assert draw(free_space, replace(settings, severity=2.0, branches=2)).fingerprint != one.fingerprint
    other = replace(TASK, severities={"noise": 0.2})
    louder = make_sample(task=other, episodes=free_space, split=SPLIT, clip=CLIP, settings=settings)
    assert louder.fingerprint != one.fingerprint, "the task's own strengths are part of it"


def test_what_cannot_be_drawn_is_said_in_one_sentence(free_space: Episodes) -> None:
    with pytest.raises(UserError, match=r"1 held-out episodes 1 are long enough .* split\.test"):
        draw(free_space, split=Split(train=(0,), validation=(1,), test=(3,), seed=0))
    with pytest.raises(UserError, match="are long enough for 9 blocks"):
        draw(free_space, replace(SETTINGS, horizons=(9,)))
    with pytest.raises(UserError, match="does not divide a block of 5"):
        find_held_out_rows(replace(free_space, frame_stride=2), SPLIT.side("test"), CLIP)


def test_less_than_was_asked_for_is_used_and_said(free_space: Episodes) -> None:
    settings = replace(SETTINGS, states=10_000, frames=10_000, branches=2, seeds=(0,))
    drawn = draw(free_space, settings, Split(train=(0,), validation=(1,), test=(3, 4), seed=0))
    assert len(drawn.seeds[0]["invariance"].rows) == 2 * (STEPS + 1 - 5)
    assert any("52 states instead of 10,000" in note for note in drawn.notes)
    assert any("come from one episode" in note for note in drawn.notes)


def test_rows_without_a_known_state_are_never_drawn(free_space: Episodes) -> None:
    targets = free_space.targets.copy()
    targets[::2] = np.nan
    held = find_held_out_rows(replace(free_space, targets=targets), SPLIT.side("test"), CLIP)
    assert (held.rows % 2 == 1).all()
