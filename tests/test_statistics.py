"""Intervals and paired tests, against values computed by hand or known from the literature."""

from __future__ import annotations

import numpy as np
import pytest

from phylatent.statistics import McNemar, mcnemar, paired_difference, spread, wilson


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


def test_the_paired_difference_resamples_pairs_not_outcomes():
    first = np.array([[1, 1, 0, 1]] * 3, dtype=bool)
    second = np.array([[0, 1, 0, 0]] * 3, dtype=bool)
    several, one = paired_difference(first, second), paired_difference(first[:1], second[:1])
    assert several.mean == 0.5
    assert several == one, "copies of a training seed are no new evidence"
    assert several.low == 0.0
    assert several.high == 1.0


def test_spread_is_the_sample_standard_deviation():
    assert spread([1.0, 3.0]) == pytest.approx(2**0.5)
    assert spread([1.0]) is None
