"""The diagnostics' equations by hand-computed values."""

from __future__ import annotations

import math
from dataclasses import replace

import numpy as np
import pytest

from phylatent.diagnostics import perturbations
from phylatent.diagnostics.coordinates import Coordinates
from phylatent.diagnostics.counterfactual import counterfactual_failures, separation, separation_ratio
from phylatent.diagnostics.identifiability import collision_ratio, collisions, pair_distances, unrank_pairs
from phylatent.diagnostics.invariance import displacement, invariance_failures, invariance_ratio
from phylatent.diagnostics.ordering import confused, lost_order, reversed_order, unit
from phylatent.diagnostics.ordering_sample import action_fan
from phylatent.diagnostics.perturbations import perturb
from phylatent.diagnostics.rates import Counts, bootstrap_rate, count, count_pairs, over_seeds
from phylatent.schema import PERTURBATIONS, SEVERITIES
from phylatent.statistics import wilson
from phylatent.tasks.tworooms import TASK


def test_invariance_by_hand() -> None:
    z = np.zeros((3, 2))
    d_nuis = displacement(z, np.array([[3.0, 4.0], [0.0, 1.0], [2.0, 0.0]]))
    d_state = displacement(z, np.array([[0.5, 0.0], [0.0, 10.0], [0.0, 2.0]]))
    assert d_nuis.tolist() == [5, 1, 2]
    assert invariance_ratio(d_nuis, d_state) == pytest.approx([1, -1, 0], abs=1e-6)
    assert invariance_failures(d_nuis, d_state).tolist() == [True, False, False]  # a tie is no failure


def test_identifiability_by_hand() -> None:
    """Ten pairs; the two farthest are d_phys > Q80 = 8.2, the two nearest latents d_lat < Q20 = 2.8; one pair is both."""
    d_phys = np.arange(1.0, 11.0)
    d_lat = np.array([9.0, 8, 7, 6, 5, 4, 3, 2, 1, 10])
    found = collisions(d_phys, d_lat, q_phys=80, q_lat=20)
    assert (found.tau_phys, found.tau_lat) == (pytest.approx(8.2), pytest.approx(2.8))
    assert np.flatnonzero(found.far).tolist() == [8, 9]
    assert np.flatnonzero(found.failed).tolist() == [8]
    ratio = collision_ratio(np.array([4.0]), np.array([1.0]), tau_phys=2.0, tau_lat=4.0)
    assert ratio == pytest.approx([8.0])


def test_latents_that_coincide_are_collisions_even_if_they_are_the_lowest_tenth() -> None:
    d_phys, d_lat = np.arange(10.0), np.array([1.0, 1, 1, 1, 1, 1, 1, 0, 0, 0])
    assert collisions(d_phys, d_lat, q_phys=75, q_lat=10).failed.sum() == 3


def test_an_encoder_without_one_coordinate_folds_the_pairs_that_differ_in_it_alone() -> None:
    """Corners of a 1 × 3 rectangle seen without the long side: of the two longest diagonals (d_lat 1) and the two long sides
    (d_lat 0), the sides are far and fold. Six pairs: far are d_phys > Q50 = 3, the diagonals; at Q30 also the sides."""
    corners = np.array([[0.0, 0], [1, 0], [0, 3], [1, 3]])
    first, second = unrank_pairs(np.arange(6))
    d_phys = pair_distances(corners, first, second)
    d_lat = pair_distances(corners[:, :1], first, second)
    assert sorted(d_phys) == pytest.approx([1, 1, 3, 3, math.sqrt(10), math.sqrt(10)])
    found = collisions(d_phys, d_lat, q_phys=20, q_lat=10)
    assert (found.far.sum(), found.failed.sum()) == (4, 2)
    assert collisions(d_phys, d_lat, q_phys=50, q_lat=10).failed.sum() == 0


def test_counterfactual_by_hand() -> None:
    """One start, two branches, two horizons."""
    true = np.array([[[[0.0, 0], [3, 4]], [[2, 0], [0, 0]]]])
    predicted = np.array([[[[0.0, 0], [2, 0]], [[1, 0], [0, 0]]]])
    d_true, d_pred = separation(true), separation(predicted)
    assert d_true.tolist() == [[2, 5]]
    assert d_pred.tolist() == [[1, 2]]
    assert separation_ratio(d_pred, d_true) == pytest.approx(np.array([[0.5, 0.4]]))
    assert counterfactual_failures(np.array([1.0, 2, 0]), np.array([1.9, 5, 0])).tolist() == [False, True, True]


def test_pairs_are_unranked_without_repetition() -> None:
    first, second = unrank_pairs(np.arange(45))
    assert {(int(i), int(j)) for i, j in zip(first, second, strict=True)} == {(i, j) for j in range(10) for i in range(j)}
    count = 3_000_000
    ranks = np.array([count * (count - 1) // 2 - 1, count * (count - 1) // 2])
    assert [values.tolist() for values in unrank_pairs(ranks)] == [[count - 2, 0], [count - 1, count]]


def test_an_angle_just_below_its_period_is_near_zero_when_unrolled() -> None:
    targets = np.array([[5.0, 0.1], [5.0, 6.2]])
    circle = Coordinates(centre=(0, 0, 0), scale=(1, 1, 1), periods={1: 2 * math.pi})(targets)
    assert circle.shape == (2, 3)
    assert np.linalg.norm(circle[0] - circle[1]) == pytest.approx(2 * math.sin((2 * math.pi - 6.1) / 2))
    scaled = Coordinates(centre=(5.0, 0, 0), scale=(2.0, 1, 1), periods={1: 2 * math.pi})(targets)
    assert scaled[:, 0].tolist() == [0, 0]


FRAMES = np.random.default_rng(0).integers(0, 256, (3, 24, 24, 3), dtype=np.uint8)


@pytest.mark.parametrize("kind", PERTURBATIONS)
def test_perturbations_keep_shape_and_type_and_vanish_at_severity_0(kind: str) -> None:
    rows = np.arange(3)
    before = FRAMES.copy()
    changed = perturb(FRAMES, kind, severity=1, seed=0, rows=rows)
    assert (changed.shape, changed.dtype) == (FRAMES.shape, np.uint8)
    assert (changed != FRAMES).any()
    assert (perturb(FRAMES, kind, severity=0, seed=0, rows=rows) == FRAMES).all()
    assert (before == FRAMES).all()
    for extreme in (0, 255):
        full = np.full((1, 24, 24, 3), extreme, dtype=np.uint8)
        loud = perturb(full, kind, severity=3, seed=0, rows=rows[:1]).astype(int)
        assert np.abs(loud - extreme).max() < 128, "clipped, not wrapped around"


def test_perturbations_by_hand() -> None:
    grey = np.full((1, 24, 24, 3), 100, dtype=np.uint8)
    assert perturbations.brightness(grey, strength=1)[0, 0, 0].tolist() == [101] * 3  # 100·0.92 + 8.925
    assert perturbations.brightness(grey, strength=2)[0, 0, 0].tolist() == [102] * 3  # 100·0.84 + 17.85
    assert perturbations.colour(grey, strength=1)[0, 0, 0].tolist() == [116, 88, 105]
    checker = perturbations.texture(grey, strength=1)[0]
    assert checker[0, 0].tolist() == [120, 92, 115]  # +20.4, −7.65, +15.3
    assert checker[0, 2].tolist() == [100] * 3
    assert (checker[:, :, 0] == 120).mean() == 0.5


def test_a_task_declares_its_own_strengths() -> None:
    grey, rows = np.full((1, 24, 24, 3), 100, dtype=np.uint8), np.arange(1)
    assert TASK.strengths().keys() == set(PERTURBATIONS)
    assert replace(TASK, severities={}).strengths() == SEVERITIES, "a task that is silent has these"
    strengths = replace(TASK, severities={"colour": 0.5}).strengths()
    assert strengths == SEVERITIES | {"colour": 0.5}
    tinted = perturb(grey, "colour", severity=2, seed=0, rows=rows, strengths=strengths)
    assert tinted[0, 0, 0].tolist() == [116, 88, 105], "twice a half"
    same = perturb(grey, "brightness", severity=2, seed=0, rows=rows, strengths=strengths)
    assert (same == perturbations.brightness(grey, strength=1)).all()


def test_noise_depends_on_seed_and_row_and_not_on_its_company() -> None:
    rows = np.array([7, 8, 9])
    all_three = perturb(FRAMES, "noise", severity=1, seed=0, rows=rows)
    assert (perturb(FRAMES[1:2], "noise", severity=1, seed=0, rows=rows[1:2])[0] == all_three[1]).all()
    assert (perturb(FRAMES, "noise", severity=1, seed=1, rows=rows) != all_three).any()


def test_rates_count_by_episode() -> None:
    failed, eligible = np.array([True, True, False, True]), np.array([True, True, True, False])
    counts = count(failed, eligible, np.array([0, 2, 2, 1]), episodes=3)
    assert (counts.failures.tolist(), counts.eligible.tolist()) == ([1, 0, 1], [1, 0, 2])
    pairs = count_pairs(failed, eligible, np.array([0, 1, 1, 0]), np.array([0, 0, 1, 1]), episodes=2)
    assert pairs.eligible.tolist() == [[1, 1], [0, 1]]
    assert pairs.failures.tolist() == [[1, 1], [0, 0]]


def test_the_bootstrap_of_two_episodes_by_hand() -> None:
    """Episodes (1 of 1) and (0 of 1): replicates are 0, ½ and 1 with ¼, ½ and ¼."""
    rate = bootstrap_rate(Counts(np.array([1, 0]), np.array([1, 1])), replicates=1000, seed=0)
    assert (rate.failures, rate.eligible, rate.rate, rate.interval) == (1, 2, 0.5, (0.0, 1.0))
    assert bootstrap_rate(Counts(np.array([1, 0]), np.array([1, 1])), replicates=1000, seed=0) == rate


def test_the_bootstrap_is_as_wide_as_the_binomial_when_samples_are_independent() -> None:
    failures = (np.random.default_rng(0).random(400) < 0.2).astype(int)
    rate = bootstrap_rate(Counts(failures, np.ones(400, int)), replicates=4000, seed=0)
    half = 1.96 * math.sqrt(rate.rate * (1 - rate.rate) / 400)
    assert rate.interval == pytest.approx((rate.rate - half, rate.rate + half), abs=0.005)


def test_a_pair_weighs_as_its_two_episodes() -> None:
    """Two episodes: the pair across fails, those within do not. Drawn (1, 1): ⅓; drawn (2, 0) or (0, 2): 0 of 2."""
    counts = Counts(np.array([[0, 1], [0, 0]]), np.array([[1, 1], [0, 1]]))
    assert bootstrap_rate(counts, replicates=1000, seed=0).interval == pytest.approx((0, 1 / 3))


def test_degenerate_rates_are_honest() -> None:
    nothing = bootstrap_rate(Counts(np.zeros(5, int), np.zeros(5, int)), replicates=10, seed=0)
    assert (nothing.rate, nothing.interval) == (None, None)
    zero = bootstrap_rate(Counts(np.zeros(5, int), np.full(5, 100)), replicates=10, seed=0)
    assert (zero.rate, zero.interval) == (0, wilson(0, 5))
    everything = bootstrap_rate(Counts(np.full(5, 100), np.full(5, 100)), replicates=10, seed=0)
    assert everything.interval == pytest.approx(wilson(5, 5))
    single = bootstrap_rate(Counts(np.array([0, 3]), np.array([0, 9])), replicates=10, seed=0)
    assert single.interval == (0, 1)


def test_seeds_are_pooled_for_the_interval_and_averaged_for_the_rate() -> None:
    rate, spread = over_seeds(
        [Counts(np.array([1, 1]), np.array([2, 2])), Counts(np.array([0, 0]), np.array([1, 1]))], replicates=10
    )
    assert (rate.failures, rate.eligible, rate.rate) == (2, 6, 0.25)
    assert spread == pytest.approx(math.sqrt(0.125))


def test_ordering_by_hand() -> None:
    near, far = np.array([1.0, 1, 3, 1]), np.array([2.0, 2, 2, 2])
    present = np.array([True, True, True, False])
    shifted = reversed_order(near, far, np.array([1.0, 2, 1, 9]), np.array([2.0, 2, 2, 1]), present=present)
    assert shifted.eligible.tolist() == [True, True, False, False]  # wrong on clean frames, or not there
    assert (shifted.failed & shifted.eligible).tolist() == [False, True, False, False]  # a tie fails
    assert confused(near, np.array([2.0, 1, 2, 0]), present=present).failed.tolist() == [False, True, True, True]
    assert unit(np.array([[3.0, 4.0], [0.0, 0.0]])).tolist() == [[0.6, 0.8], [0.0, 0.0]]


def test_ordering_of_predictions_by_hand() -> None:
    """Closest pair 0 against farthest pair 2. Truth agrees with physics in the first two rows only; a tie fails."""
    d_phys = np.array([[1.0, 2, 3]] * 3)
    d_true = np.array([[1.0, 9, 2], [1, 9, 2], [2, 9, 1]])
    d_pred = np.array([[1.0, 0, 2], [1, 0, 1], [1, 0, 1]])
    found = lost_order(d_phys, d_true, d_pred, compared=1)
    assert found.eligible.ravel().tolist() == [True, True, False]
    assert found.failed.ravel().tolist() == [False, True, True]
    assert lost_order(*(np.arange(21.0) for _ in range(3))).eligible.sum() == 25


def test_the_fan_of_actions_by_hand() -> None:
    """Blocks (±4, 0, 0), (0, ±2, 0), (0, 0, ±1) around (1, 1, 1): |projections| are 0 but for two, and bounds cut the first."""
    arms = np.array([[4.0, 0, 0], [0, 2, 0], [0, 0, 1]])
    blocks = 1 + np.concatenate([arms, -arms])
    fan = action_fan(blocks, low_A=np.full(3, -9), high_A=np.full(3, 4.0))
    assert fan.shape == (7, 3)
    assert fan[0].tolist() == [1, 1, 1]
    radius = np.percentile([4, 4, 0, 0, 0, 0], 75)
    assert fan[1] == pytest.approx([min(1 + radius, 4), 1, 1])
    assert fan[4] == pytest.approx([1 - radius, 1, 1])
