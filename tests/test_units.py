"""Units of a step: other units of f or of an x_j give the same step."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tercet import Euclidean, Natural
from tercet.frame import AsGiven, Reach, Same, Scaled, at_rest

powers = st.integers(-6, 6).map(lambda k: 10.0**k)
D = 4


def reach(rng: np.random.Generator, f: float = 1.0, columns: np.ndarray | float = 1.0, at_zero: bool = False) -> Reach:
    """What a run saw of a problem whose f is multiplied by `f` and whose x_j by `columns`."""
    size, moved, bend = rng.uniform(0.5, 2.0, (3, D))
    if at_zero:
        size[1] = moved[1] = 0.0
    return Reach(size * columns, moved * columns, f * bend / np.square(columns) * np.ones(D))


@given(seed=st.integers(0, 10**6), f=powers, columns=st.lists(powers, min_size=D, max_size=D), at_zero=st.booleans())
def test_the_length_of_a_step_changes_with_f_by_one_factor_and_not_with_the_units_of_x(seed, f, columns, at_zero):
    c = np.array(columns)
    plain = Natural().frame(reach(np.random.default_rng(seed), at_zero=at_zero), None)
    other = Natural().frame(reach(np.random.default_rng(seed), f, c, at_zero), None)
    s = np.random.default_rng(seed + 1).standard_normal(D)
    # E is sqrt(D / sqrt(b)): columns multiply D by c and sqrt(b) by 1 / c, and f multiplies sqrt(b) by sqrt(f).
    np.testing.assert_allclose(other.coordinates(c * s), plain.coordinates(s) * f**0.25, rtol=1e-9)


def test_the_unit_is_the_geometric_mean_of_how_far_x_reaches_and_over_how_far_f_bends_by_one():
    seen = Reach(np.array([2.0, 1.0]), np.array([1.0, 8.0]), np.array([4.0, 0.25]))
    frame = Natural().frame(seen, None)
    np.testing.assert_allclose(frame.E, [np.sqrt(2.0 * 0.5), np.sqrt(8.0 * 2.0)], rtol=1e-15)


def test_an_objective_that_knows_its_units_is_asked_first():
    E = np.array([1.0, 2.0, 3.0, 4.0])
    frame = Natural().frame(reach(np.random.default_rng(0)), E)
    assert isinstance(frame, Scaled)
    assert frame.E is E


def test_without_a_hessian_all_variables_have_the_same_unit():
    assert Natural().frame(Reach(np.ones(3), np.ones(3)), None) == Same()


def test_euclidean_steps_are_measured_in_x_itself():
    assert Euclidean().frame(reach(np.random.default_rng(0)), np.ones(D)) == Same()


@pytest.mark.parametrize("bend", [0.0, 1e-300, 1e300])
def test_a_variable_along_which_f_hardly_bends_or_bends_beyond_measure_has_a_unit_all_the_same(bend):
    seen = Reach(np.ones(3), np.ones(3), np.array([1.0, 2.0, bend]))
    E = Natural().frame(seen, None).E
    assert np.all(np.isfinite(E))
    assert np.all(E > 0)


def test_at_the_origin_of_a_function_without_curvature_units_are_numbers():
    E = Natural().frame(Reach(np.zeros(2), np.zeros(2), np.zeros(2)), None).E
    np.testing.assert_array_equal(E, 1.0)


@pytest.mark.parametrize("small", [0.0, 1e-300, 1e-17, 1e-9, 1e-5])
def test_a_variable_that_hardly_left_0_does_not_rest_while_f_bends_along_it(small):
    seen = Reach(np.array([1.0, small, 2.0]), np.array([0.5, small, 1.0]))
    frame, bend = Scaled(np.ones(3)), np.array([1.0, 1e-3, 100.0])
    assert at_rest(frame, seen, bend, np.array([1.0, 0.0, 1.0]), 1e4) is frame
    resting = at_rest(frame, seen, bend * [1.0, 1e-16, 1.0], np.array([1.0, 1e-17, 1.0]), 1e4)
    assert resting.resting.tolist() == [False, True, False]


# x as given -----------------------------------------------------------------------------------------------------------


@given(seed=st.integers(0, 10**6), columns=st.lists(st.floats(0.1, 10.0), min_size=D, max_size=D))
def test_units_that_suit_are_taken_as_given(seed, columns):
    frame = AsGiven().frame(reach(np.random.default_rng(seed), columns=np.array(columns)), None)
    np.testing.assert_array_equal(frame.E, 1.0)


@given(seed=st.integers(0, 10**6), f=powers, columns=st.lists(st.integers(-30, 30), min_size=D, max_size=D))
def test_whatever_the_units_what_is_left_of_them_is_bounded(seed, f, columns):
    c = 10.0 ** np.array(columns)
    plain = Natural().frame(reach(np.random.default_rng(seed)), None).E
    left = AsGiven().frame(reach(np.random.default_rng(seed), f, c), None).E / (c * plain)
    assert np.max(left) / np.min(left) <= 1.001e6


def test_without_a_hessian_x_is_as_given():
    assert AsGiven().frame(Reach(np.ones(3), np.ones(3)), None) == Same()
