"""How long a Hessian that was formed nearby serves."""

from __future__ import annotations

import numpy as np
import pytest

import tercet
from tercet.control.curvature import Renewing
from tercet.objectives.metered import Carry, Formed, Meter, Metered, MeteredPoint

X = np.random.default_rng(0).standard_normal((40, 3))
MODEL = tercet.LinearModel(X, (X[:, 0] > 0).astype(float), l2=1e-2)
ELSEWHERE = np.diag([7.0, 8.0, 9.0])


def point(borrowed: bool) -> MeteredPoint:
    """A point over all terms, with the Hessian of another one or without."""
    view = Metered.of(MODEL, Meter(40)).over(None)
    return view.at(np.ones(3), Carry(Formed(40, ELSEWHERE)) if borrowed else Carry())


@pytest.mark.parametrize(
    ("unexplained", "kept"), [(0.0, True), (0.3, True), (np.nextafter(0.3, 1), False), (5.0, False)]
)
def test_a_hessian_from_nearby_serves_while_it_leaves_no_more_than_its_share_of_the_gradient(unexplained, kept):
    near = point(True)
    B = Renewing().before(near, unexplained)
    assert (B is near) == kept
    assert np.array_equal(B.hessian(), ELSEWHERE) == kept


def test_after_a_rejection_the_hessian_is_that_of_the_point_itself():
    near = point(True)
    near.value(), near.gradient(), near.hessian()
    B = Renewing().before(near, np.inf)
    assert B.borrowed is None
    np.testing.assert_array_equal(B.hessian(), point(False).hessian())
    assert np.array_equal(near.hessian(), ELSEWHERE), "the point that was there before is left as it was"


def test_what_is_known_of_f_is_not_paid_for_again_when_a_hessian_is_let_go_of():
    near = point(True)
    value, gradient = near.value(), near.gradient()
    before = near.view.meter.counts()
    B = Renewing().before(near, np.inf)
    assert B.value() == value
    np.testing.assert_array_equal(B.gradient(), gradient)
    assert near.view.meter.counts() == before


def test_a_point_that_borrows_nothing_is_left_alone():
    here = point(False)
    assert Renewing().before(here, np.inf) is here
