"""An objective with a variable held fast: the others' derivatives, counted as they are."""

from __future__ import annotations

import numpy as np

import tercet
from tercet.objectives.metered import Meter, Metered
from tercet.objectives.pinned import Pinned

X = np.random.default_rng(0).standard_normal((30, 4))
MODEL = tercet.LinearModel(X, (X[:, 0] > 0).astype(float), "logistic", l2=0.1)
REST = np.array([0.3, -0.2, 0.5])
WHOLE = np.array([0.3, 0.7, -0.2, 0.5])


def test_derivatives_are_those_of_the_others():
    pinned, point = Pinned(MODEL, 1, 0.7), MODEL.over(None).at(WHOLE)
    held, keep = pinned.over(None).at(REST), [0, 2, 3]
    assert (pinned.n, pinned.d) == (30, 3)
    assert held.value() == point.value()
    np.testing.assert_array_equal(held.gradient(), point.gradient()[keep])
    np.testing.assert_array_equal(held.hessian(), point.hessian()[np.ix_(keep, keep)])
    u, v = np.random.default_rng(1).standard_normal((2, 3))
    wide_u, wide_v = np.insert(u, 1, 0.0), np.insert(v, 1, 0.0)
    np.testing.assert_allclose(held.product(2, v), point.product(2, wide_v)[keep], rtol=1e-12)
    np.testing.assert_allclose(held.product(3, u, v), point.product(3, wide_u, wide_v)[keep], rtol=1e-12)


def test_evaluations_are_counted_once():
    meter = Meter(30)
    point = Metered.of(Pinned(MODEL, 1, 0.7), meter).over(None).at(REST)
    point.value(), point.gradient(), point.hessian()
    assert tuple(meter.tally.values()) == (30, 30, 30, 0)
