"""f along a step, against a dense scan of the polynomial that it is fitted with."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tercet.control.ray import FURTHEST, GAIN, NEAREST, Ray, first_root

coefficients = st.floats(-3.0, 3.0)


def polynomial(c1: float, c2: float, c3: float, c4: float, c5: float):
    """f(x + ts) - f(x) as a function of t."""
    return lambda t: c1 * t + c2 / 2 * t**2 + c3 / 6 * t**3 + c4 * t**4 + c5 * t**5


def scan(slope: np.ndarray, low: float, high: float) -> float:
    """The first of a fine grid where a slope that was below 0 is not any more; low or high where there is none."""
    if slope[0] >= 0:
        return low
    return float(np.linspace(low, high, len(slope))[np.argmax(slope >= 0)]) if np.any(slope >= 0) else high


@given(c1=st.floats(-3.0, -0.01), c2=coefficients, c3=coefficients, c4=coefficients, t=st.floats(0.1, 4.0))
def test_one_look_gives_the_fourth_order_term(c1, c2, c3, c4, t):
    f = polynomial(c1, c2, c3, c4, 0.0)
    fourth, fifth = Ray(c1, c2, c3).through([(t, f(t))])
    assert fourth == pytest.approx(c4, rel=1e-6, abs=1e-6 * (1 + t**-4))
    assert fifth == 0.0


@given(
    c1=st.floats(-3.0, -0.01),
    c2=coefficients,
    c3=coefficients,
    c4=coefficients,
    c5=coefficients,
    first=st.floats(0.5, 4.0),
    second=st.floats(0.2, 0.9),
)
def test_two_looks_give_the_fifth_too_and_those_before_are_not_needed(c1, c2, c3, c4, c5, first, second):
    f, ray = polynomial(c1, c2, c3, c4, c5), Ray(c1, c2, c3)
    looks = [(t, f(t)) for t in (first, second * first)]
    told = ray.through(looks)
    np.testing.assert_allclose(told, (c4, c5), rtol=1e-5, atol=1e-4)
    assert ray.through([(7.0, 123.0), *looks]) == told


@given(
    c1=st.floats(-3.0, -0.1),
    c2=coefficients,
    c3=coefficients,
    c4=coefficients,
    c5=coefficients,
    last=st.floats(0.3, 3.0),
)
def test_the_lowest_point_is_where_a_dense_scan_of_the_slope_first_finds_it(c1, c2, c3, c4, c5, last):
    f, ray = polynomial(c1, c2, c3, c4, c5), Ray(c1, c2, c3)
    t = ray.lowest([(0.7 * last, f(0.7 * last)), (last, f(last))])
    low, high = NEAREST * last, FURTHEST * last
    assert low <= t <= high
    grid = np.linspace(low, high, 40_001)
    slope = c1 + c2 * grid + c3 / 2 * grid**2 + 4 * c4 * grid**3 + 5 * c5 * grid**4
    turns = np.flatnonzero((slope[:-1] < 0) & (slope[1:] >= 0))
    gap = np.diff(grid[np.flatnonzero(np.diff(np.sign(slope)))])
    if np.any(np.abs(slope[[0, *turns]]) < 1e-3) or (gap.size and gap.min() < (high - low) / 10):
        return  # a slope that only touches 0, or turns twice between two strides, may be passed over
    assert t == pytest.approx(scan(slope, low, high), abs=(high - low) / 12 / 2**9)


def test_where_the_slope_is_above_0_at_once_the_nearest_point_is_taken_and_else_the_furthest():
    assert first_root(1.0, 0.0, 0.0, 0.0, 0.0, 0.1, 3.0) == 0.1
    assert first_root(-1.0, 0.0, 0.0, 0.0, 0.0, 0.1, 3.0) == 3.0
    assert first_root(-1.0, 1.0, 0.0, 0.0, 0.0, 0.1, 3.0) == pytest.approx(1.0, abs=1e-3)


@pytest.mark.parametrize("bad", [np.nan, np.inf])
def test_after_a_look_outside_the_domain_of_f_the_next_is_a_tenth_as_far(bad):
    ray = Ray(-1.0, 1.0)
    assert ray.lowest([(2.0, bad)]) == NEAREST * 2.0
    assert ray.next([(2.0, bad)]) == NEAREST * 2.0


def test_a_quadratic_is_looked_at_where_it_is_lowest_and_no_more():
    ray, f = Ray(-1.0, 0.5), polynomial(-1.0, 0.5, 0.0, 0.0, 0.0)
    t = ray.next([(1.0, f(1.0))])
    assert t == pytest.approx(2.0, abs=1e-3)
    assert ray.next([(1.0, f(1.0)), (t, f(t))]) is None
    assert ray.next([(2.0, f(2.0))]) is None


@given(c1=st.floats(-3.0, -0.1), c2=coefficients, c3=coefficients, c4=coefficients, t=st.floats(0.2, 3.0))
def test_another_look_is_worth_it_only_where_f_falls_by_a_tenth_more(c1, c2, c3, c4, t):
    f = polynomial(c1, c2, c3, c4, 0.0)
    ray, looks = Ray(c1, c2, c3), [(t, f(t))]
    there = ray.next(looks)
    if there is not None:
        assert NEAREST * t <= there <= FURTHEST * t
        assert f(there) <= f(t) - GAIN * max(-f(t), 0.0) + 1e-6 * (1 + abs(f(there)))
