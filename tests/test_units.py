"""Units of a step: other units of f or of an x_j give the same step; and of whole runs, by every objective."""

from __future__ import annotations

from functools import cache

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import tercet
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


# whole runs -----------------------------------------------------------------------------------------------------------

RNG = np.random.default_rng(0)
ROWS = RNG.standard_normal((120, 3))
LINE = ROWS @ np.array([1.0, -2.0, 0.5]) + 0.3 * RNG.standard_normal(120)
START = np.array([0.5, 0.3, -0.4])  # where the robust loss below bends down along its gradient


def robust(p, a, b):
    """Bounded, and not convex."""
    return jnp.log1p((a @ p - b) ** 2)


def torch_robust(p, a, b):
    """The same in PyTorch."""
    return ((a @ p - b) ** 2).log1p()


def summed(f, u, constant):
    return tercet.FiniteSum(lambda p, a, b: f * (robust(p * u, a, b) + constant), (ROWS, LINE)), START / u


def summed_by_torch(f, u, constant):
    torch = pytest.importorskip("torch")
    engine = pytest.importorskip("tercet.torch")
    data = (torch.as_tensor(ROWS), torch.as_tensor(LINE))
    units = torch.as_tensor(u)
    return engine.FiniteSum(lambda p, a, b: f * (torch_robust(p * units, a, b) + constant), data), START / u


def plain(f, u, constant):
    def fun(p):
        return f * (jnp.mean(jnp.log1p((ROWS @ (p * u) - LINE) ** 2)) + constant)

    return fun, START / u


def own_loss(f, u, constant):
    return tercet.LinearModel(ROWS * u, LINE, lambda z, y: f * (jnp.log1p((z - y) ** 2) + constant)), START / u


def residual(f, u, constant):
    def r(p, a, b):
        return np.sqrt(f) * (jnp.tanh(a @ (p * u)) - jnp.tanh(b))

    return tercet.Residuals(r, (ROWS, LINE)), START / u


def classes(f, u, constant):
    return tercet.ClassModel(ROWS * u, np.digitize(LINE, [-1.0, 1.0]), l2=0.0), None


def built_in(loss):
    y = (LINE > 0) * 1.0 if loss in ("logistic", "sigmoid_squares") else LINE
    return lambda f, u, constant: (tercet.LinearModel(ROWS * u, y, loss), START / u)


OBJECTIVES = {
    "FiniteSum": summed,
    "FiniteSum of PyTorch": summed_by_torch,
    "a function": plain,
    "a loss of one's own": own_loss,
    "Residuals": residual,
    "classes": classes,
    **{loss: built_in(loss) for loss in ("logistic", "squares", "cauchy", "welsch", "geman_mcclure")},
}


def minimized(make, f, u, constant=0.0):
    problem, x0 = make(f, u, constant)
    with jax.enable_x64(True):
        return tercet.minimize(problem, x0)


@cache
def as_given(name):
    return minimized(OBJECTIVES[name], 1.0, np.ones(3))


@pytest.mark.parametrize("name", ["a loss of one's own", "Residuals"])
@settings(max_examples=2, deadline=None)
@given(f=st.integers(-20, 20), unit=st.integers(-20, 20))
def test_a_run_is_the_same_in_any_units_of_f_and_of_x_as_a_whole(name, f, unit):
    """Powers of 2, of which rounding knows nothing: the same steps, to the last digit or two."""
    u = 2.0**unit
    here, there = as_given(name), minimized(OBJECTIVES[name], 4.0**f, np.full(3, u))
    assert here.success
    assert there.status is here.status
    assert there.nit == here.nit
    np.testing.assert_allclose(there.x * u, here.x, rtol=1e-7)
    assert there.certificate.digits == pytest.approx(here.certificate.digits, abs=1.0)


@pytest.mark.parametrize("name", OBJECTIVES)
@settings(max_examples=2, deadline=None)
@given(f=st.sampled_from([1e-12, 1.0, 1e12]), units=st.lists(st.integers(-6, 6), min_size=3, max_size=3))
def test_the_status_and_six_digits_are_the_same_whatever_the_units_of_each_parameter(name, f, units):
    u = 10.0 ** np.array(units)
    here, there = as_given(name), minimized(OBJECTIVES[name], f, u)
    assert here.success
    assert there.success
    np.testing.assert_allclose(np.asarray(there.x) * u, np.asarray(here.x), rtol=1e-6)
    assert there.certificate.digits >= 6.0


@pytest.mark.parametrize("name", ["FiniteSum", "a function", "a loss of one's own"])
@pytest.mark.parametrize("constant", [-1.0, 1.0, 100.0])
def test_a_constant_that_is_added_to_f_changes_neither_the_status_nor_the_digits(name, constant):
    here, there = as_given(name), minimized(OBJECTIVES[name], 1.0, np.ones(3), constant)
    assert here.success
    assert there.success
    np.testing.assert_allclose(there.x, here.x, rtol=1e-7)
    assert there.certificate.digits >= 6.0
