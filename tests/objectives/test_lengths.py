"""Lengths of differences: told by f or its gradient, whatever the units of x and of f."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import tercet
from tercet import Status
from tercet.objectives.callables import CallObjective
from tercet.objectives.lengths import CENTRAL, Units, by_slopes, by_values, suspects
from tercet.objectives.metered import Meter, Metered
from tercet.objectives.secant import Secant, recalled
from tests.critical.problems import Known, polynomial, quadratic, singular

powers = st.integers(-6, 6)


@pytest.mark.parametrize("unit", 10.0 ** np.arange(-9, 10, 3))
def test_a_length_is_found_within_reach_of_the_unit(unit):
    cosh = lambda t: float(np.cosh(t / unit + 0.3))  # noqa: E731 - a formula with a name
    with np.errstate(over="ignore", invalid="ignore"):
        h, (up, down) = by_values(lambda t: (cosh(t), cosh(-t)), cosh(0.0), CENTRAL, 0.0)
        assert 1e-8 * unit < h < 1e-3 * unit
        assert (up - down) / (2 * h) == pytest.approx(np.sinh(0.3) / unit, rel=1e-5)
        slope = lambda t: float((np.sinh(t / unit + 0.3) - np.sinh(0.3 - t / unit)) / (2 * t))  # noqa: E731
        t, bend = by_slopes(slope, CENTRAL)
    assert 1e-10 * unit < t < 1e-2 * unit
    assert bend == pytest.approx(np.cosh(0.3) / unit, rel=1e-5)


def test_where_no_length_tells_the_first_one_stays():
    assert by_values(lambda t: (1.0, 1.0), 1.0, 0.5, 0.0)[0] == 0.5
    assert by_values(lambda t: (np.nan, np.nan), 1.0, 0.5, 0.0)[0] == 0.5
    assert by_values(lambda t: (t * t, t * t), 0.0, 0.5, 0.0)[0] == 0.5
    assert by_slopes(lambda t: t * t, 0.5)[0] == 0.5
    assert by_slopes(lambda t: np.nan, 0.5)[0] == 0.5


def test_slopes_that_suit_are_not_suspected():
    assert not suspects(10.0, np.array([1.0, 300.0, 0.0])).any()
    assert not suspects(0.0, np.array([1.0, 300.0, 0.0])).any()
    assert suspects(10.0, np.array([1.0, 1e6, 1e-5, 0.0])).tolist() == [False, True, True, False]


def test_units_are_handed_on_and_made_again_from_arrays():
    units = Units(np.array([1.0, 1e-6]), sure=True)
    carry = Secant(np.ones(2), 2.0, np.zeros(2), np.eye(2), units)
    assert carry.exact() is units
    for again in (recalled(carry.arrays()).units, recalled(units.arrays())):
        np.testing.assert_array_equal(again.units, units.units)
        assert again.sure
    view = Metered.of(CallObjective(2, lambda x: float(x @ x), {}), Meter(1)).over(None)
    point = view.at(np.ones(2), tercet.objectives.metered.Carry(None, units))
    np.testing.assert_array_equal(point.view.engine.units, units.units)


def measured(known, columns, scale):
    """The same with x_j in other units and f in others."""
    parts = known.derivatives
    other = {"grad": lambda x: scale * parts["grad"](x / columns) / columns}
    return Known(lambda x: float(scale * known.fun(x / columns)), other, known.x0 * columns, known.minimizer * columns)


@settings(max_examples=15, deadline=None)
@given(seed=st.integers(0, 40), columns=st.lists(powers, min_size=5, max_size=5), f=st.integers(-12, 12))
@pytest.mark.parametrize("make", [quadratic, polynomial])
def test_with_a_gradient_in_any_units_no_more_digits_are_claimed_than_are_right(make, seed, columns, f):
    known = make(seed)
    other = measured(known, 10.0 ** np.array(columns)[: len(known.x0)], 10.0**f)
    result = other.minimize(max_iterations=300)
    assert not result.success or result.certificate.digits <= other.digits(result.x) + 1.0


@pytest.mark.parametrize("make", [quadratic, polynomial])
def test_with_a_gradient_in_units_up_to_1e12_apart_most_are_certified(make):
    """Of 20, all in units that suit; by differences of one length for all x_j two in three were."""
    held = 0
    for seed in range(20):
        known, rng = make(seed), np.random.default_rng(2000 + seed)
        columns, f = 10.0 ** rng.integers(-6, 7, len(known.x0)), 10.0 ** rng.integers(-12, 13)
        result = measured(known, columns, f).minimize(max_iterations=200)
        held += result.status is Status.CERTIFIED and known.digits(result.x / columns) > 4.0
    assert held >= 17


@pytest.mark.parametrize("seed", range(15))
def test_at_a_quartic_minimum_a_hessian_of_differences_claims_no_digits_that_shorter_ones_would_not(seed):
    """Beside it B is what differences make of x^4, and Newton's step with it nothing."""
    known = singular(seed)
    result = tercet.minimize(known.fun, known.x0, grad=known.derivatives["grad"], max_iterations=300)
    assert not result.success or result.certificate.digits <= known.digits(result.x) + 1.0
