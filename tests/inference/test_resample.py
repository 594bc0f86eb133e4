"""Resamples: rows that come several times count several times, and failures are counted."""

from __future__ import annotations

import numpy as np
import pytest

import tercet
from tercet.inference.resample import Resampled, bootstrap

X = np.random.default_rng(0).standard_normal((30, 2))
Y = X @ [1.0, 2.0] + np.random.default_rng(1).standard_normal(30)
MODEL = tercet.LinearModel(X, Y, "squares")


def test_a_row_twice_is_a_row_of_weight_two():
    rows = np.array([0, 0, 1, 2, 2, 2])
    x = np.array([0.3, -0.7])
    twice, weighted = Resampled(MODEL, rows), tercet.LinearModel(X[:3], Y[:3], "squares", weights=[2, 1, 3])
    assert (twice.n, twice.d) == (6, 2)
    assert twice.over(None).at(x).value() == pytest.approx(weighted.over(None).at(x).value())
    np.testing.assert_allclose(
        twice.over(np.array([5, 0])).at(x).gradient(), MODEL.over(np.array([2, 0])).at(x).gradient()
    )
    assert twice.traits == MODEL.traits


def mean_of(objective, x):
    return np.array([objective.rows.mean()])


def test_each_resample_has_as_many_rows_and_the_first_do_not_depend_on_how_many_there_are():
    few, failed = bootstrap(MODEL, np.zeros(2), mean_of, 5, seed=7)
    many, _ = bootstrap(MODEL, np.zeros(2), mean_of, 400, seed=7)
    assert failed == 0
    np.testing.assert_array_equal(few, many[:5])
    assert many.std() == pytest.approx(np.arange(30).std() / np.sqrt(30), rel=0.15)
    assert many.mean() == pytest.approx(14.5, abs=0.4)


def test_failures_are_counted_and_too_many_are_an_error():
    turn = iter(range(1000))

    def sometimes(every):
        return lambda objective, x: None if next(turn) % every == 0 else x

    found, failed = bootstrap(MODEL, np.zeros(2), sometimes(4), 20, seed=0)
    assert (len(found), failed) == (15, 5)
    with pytest.raises(ValueError, match="of 20 resamples have no certified minimizer"):
        bootstrap(MODEL, np.zeros(2), lambda objective, x: None, 20, seed=0)
