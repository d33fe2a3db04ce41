"""Intervals and paired tests, against values computed by hand or known from the literature."""

from __future__ import annotations

import numpy as np
import pytest

from phylatent.statistics import (
    McNemar,
    cluster_interval,
    mcnemar,
    paired_difference,
    sign_flip,
    spread,
    success_interval,
    wilson,
)


def test_wilson_of_a_known_proportion():
    low, high = wilson(8, 10)  # Agresti & Coull: 0.490–0.943
    assert low == pytest.approx(0.490, abs=5e-4)
    assert high == pytest.approx(0.943, abs=5e-4)


def test_wilson_keeps_its_width_at_the_ends_and_says_nothing_of_nothing():
    assert wilson(0, 100) == (0.0, pytest.approx(0.0370, abs=1e-4))
    assert wilson(100, 100) == (pytest.approx(0.9630, abs=1e-4), 1.0)
    assert wilson(0, 0) == (0.0, 1.0)


def test_mcnemar_is_the_exact_coin():
    first = [True] * 5 + [True] * 20 + [False]
    second = [False] * 5 + [True] * 20 + [True]
    # six disagreements, one of them the other way: 2·(1 + 6)/64
    assert mcnemar(first, second) == McNemar(5, 1, pytest.approx(14 / 64))


def test_mcnemar_of_equal_outcomes_is_no_evidence():
    assert mcnemar([True, False], [True, False]) == McNemar(0, 0, 1.0)
    assert mcnemar([True, False], [False, True]) == McNemar(1, 1, 1.0)


def test_two_episodes_that_disagree_say_less_than_their_pairs():
    """Ten pairs solved in one episode, ten failed in the other: two observations, not twenty."""
    success, episode = [True] * 10 + [False] * 10, [4] * 10 + [9] * 10
    # Replicates are 0, ½ and 1 with chances ¼, ½, ¼: more than 2.5 % lie at either end.
    assert success_interval(success, episode) == (0.0, 1.0)
    low, high = wilson(10, 20)
    assert (low, high) == (pytest.approx(0.299, abs=1e-3), pytest.approx(0.701, abs=1e-3))


def test_the_interval_is_a_ratio_of_sums_by_episode():
    """Episodes of 1 and 3 pairs: drawn twice, the small one gives 1/1, the large one 0/3; drawn both, 1/4."""
    low, high = cluster_interval(np.array([1, 0]), np.array([1, 3]))
    assert (low, high) == (0.0, 1.0)
    weights = np.random.default_rng(0).multinomial(2, [0.5, 0.5], size=10_000)
    drawn = set((weights @ [1, 0] / (weights @ [1, 3])).tolist())
    assert drawn == {0.0, 0.25, 1.0}


def test_pairs_each_from_an_episode_of_their_own_are_independent():
    success = [True] * 150 + [False] * 150
    found, known = success_interval(success, list(range(300))), wilson(150, 300)
    assert found == (pytest.approx(known[0], abs=0.01), pytest.approx(known[1], abs=0.01))


def test_where_all_episodes_agree_wilson_counts_episodes():
    assert success_interval([True] * 30, [i % 5 for i in range(30)]) == pytest.approx(wilson(5, 5))
    assert success_interval([False] * 30, [i % 5 for i in range(30)]) == pytest.approx(wilson(0, 5))
    assert success_interval([True] * 30, [0] * 30) == (0.0, 1.0), "one episode says nothing about others"
    low, high = success_interval([True, False] * 10, [i // 2 for i in range(20)])
    assert low < 0.5 < high, "half of every episode is no proof of exactly one half"


def test_the_paired_difference_resamples_episodes_not_outcomes():
    first = np.array([[1, 1, 0, 1]] * 3, dtype=bool)
    second = np.array([[0, 1, 0, 0]] * 3, dtype=bool)
    several, one = (paired_difference(a, b, [0, 1, 2, 3]) for a, b in ((first, second), (first[:1], second[:1])))
    assert several.mean == 0.5
    assert several == one, "copies of a training seed are no new evidence"
    assert (several.low, several.high, several.episodes) == (0.0, 1.0, 4)
    # Both differences lie in one episode now: replicates are 0, ½ and 1 with chances ¼, ½, ¼.
    together = paired_difference(first, second, [7, 8, 8, 7])
    assert (together.mean, together.low, together.high, together.episodes) == (0.5, 0.0, 1.0, 2)


def test_equal_outcomes_leave_room_for_a_difference_in_other_episodes():
    same = np.array([[True, False, True]])
    found = paired_difference(same, same, [0, 1, 2])
    bound = wilson(0, 3)[1]
    assert (found.mean, found.low, found.high) == (0, pytest.approx(-bound), pytest.approx(bound))
    assert found.p_sign_flip == 1


def test_sign_flips_by_hand():
    # ±3 ±1: only (+, +) and (−, −) of four are as extreme as 4.
    assert sign_flip(np.array([3.0, 1.0])) == pytest.approx(0.5, abs=0.02)
    # Ten pairs of one episode flip together, and are no evidence at all; in ten episodes two of 2¹⁰ flips are as extreme.
    won, lost = np.ones((1, 10), dtype=bool), np.zeros((1, 10), dtype=bool)
    assert paired_difference(won, lost, [0] * 10).p_sign_flip == 1
    assert paired_difference(won, lost, range(10)).p_sign_flip == pytest.approx(2 / 1024, abs=1.5e-3)
    assert sign_flip(np.ones(64)) == 1 / 10_001, "never 0"


def test_spread_is_the_sample_standard_deviation():
    assert spread([1.0, 3.0]) == pytest.approx(2**0.5)
    assert spread([1.0]) is None
