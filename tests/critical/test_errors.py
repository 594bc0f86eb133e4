"""Newton's step tells the error of x where f is regular there, and says so where it does not."""

import numpy as np
import pytest

from tercet.critical.errors import Curvature, digits, errors_of, newton_step, sizes
from tests.critical.points import rotated

EPS = float(np.finfo(float).eps)


def curvature_of(B, D=None):
    """With spans over which f bends by one along each x_j, unless others are given."""
    E = 1 / np.sqrt(np.abs(np.diag(B)))
    return Curvature.of(B, E, EPS, E if D is None else D)


def random_hessian(seed, d=5, condition=1e4):
    return rotated(np.logspace(0, np.log10(condition), d), seed)


@pytest.mark.parametrize("seed", range(5))
def test_solutions_norms_and_widths_are_those_of_the_matrix(seed):
    B, v = random_hessian(seed), np.random.default_rng(seed).standard_normal(5)
    c = curvature_of(B)
    assert bool(c.seen.all())
    np.testing.assert_allclose(c.solve(v), np.linalg.solve(B, v), rtol=1e-9)
    assert c.norm(v) == pytest.approx(np.sqrt(v @ B @ v), rel=1e-11)
    np.testing.assert_allclose(c.widths(), np.sqrt(np.diag(np.linalg.inv(B))), rtol=1e-9)
    scaled = B * np.outer(c.E, c.E)
    assert c.condition == pytest.approx(np.linalg.cond(scaled), rel=1e-9)


@pytest.mark.parametrize("seed", range(5))
def test_what_is_told_does_not_depend_on_the_units(seed):
    """x_j in units of U_j and f in units of 1e7: the same condition, and errors in those units."""
    B, g = random_hessian(seed), np.random.default_rng(seed).standard_normal(5)
    U, scale = 10.0 ** np.random.default_rng(seed).integers(-6, 7, 5), 1e7
    here, there = curvature_of(B), curvature_of(scale * B * np.outer(U, U))
    assert there.condition == pytest.approx(here.condition, rel=1e-6)
    np.testing.assert_allclose(there.solve(scale * U * g), here.solve(g) / U, rtol=1e-6)
    np.testing.assert_allclose(there.widths() * U * np.sqrt(scale), here.widths(), rtol=1e-6)
    np.testing.assert_allclose(there.widths(2) * U * np.sqrt(scale), here.widths(2), rtol=1e-6)  # of noise 1/E_j


def test_a_direction_that_is_not_told_from_flat_is_left_out_and_named():
    """A column twice: x_0 + x_1 is told, x_0 - x_1 is not."""
    B = np.array([[2.0, 2.0, 0.0], [2.0, 2.0, 0.0], [0.0, 0.0, 1.0]])
    c = curvature_of(B)
    assert list(c.seen) == [False, True, True]
    assert c.condition == np.inf
    flat = c.flat()
    np.testing.assert_allclose(np.abs(flat[:, 0]) / np.linalg.norm(flat), [0.5**0.5, 0.5**0.5, 0.0], atol=1e-12)
    assert flat[0, 0] * flat[1, 0] < 0
    assert c.falling().shape == (3, 0)
    np.testing.assert_allclose(c.solve(np.array([2.0, 2.0, 3.0])), [0.5, 0.5, 3.0], rtol=1e-12)


def test_a_variable_along_which_f_bends_by_rounding_only_is_flat():
    """B_00 is what was left of a difference; scaled to 1 it would look like any other."""
    B = np.array([[1e-16, 0.0], [0.0, 1.0]])
    assert list(curvature_of(B, D=np.ones(2)).values) == [0.0, 1.0]
    assert bool(curvature_of(B, D=np.array([1e8, 1.0])).seen.all())  # in units that are as small, it is curvature


def test_a_direction_that_bends_down_is_named():
    B = np.diag([2.0, -3.0, 1.0])
    c = curvature_of(B)
    falling = c.falling()
    assert falling.shape == (3, 1)
    np.testing.assert_allclose(np.abs(falling[:, 0]), [0, 3**-0.5, 0], atol=1e-14)


@pytest.mark.parametrize("power", [3, 4, 6])
@pytest.mark.parametrize("t", [1e-1, 1e-4])
def test_along_a_power_the_step_does_not_tell_how_far_the_minimizer_is(power, t):
    """|u| / |s| is (k - 2) / (2 (k - 1)) along t^k, however small t is."""
    g = np.array([power * t ** (power - 1)])
    B = np.array([[power * (power - 1) * t ** (power - 2)]])
    T = power * (power - 1) * (power - 2) * t ** (power - 3)
    c = curvature_of(B)
    errors = errors_of(c, g, np.zeros(1), lambda s: T * s * s, np.array([t]), EPS)
    u = -0.5 * c.solve(T * errors.s**2)
    assert c.norm(u) / c.norm(errors.s) == pytest.approx((power - 2) / (2 * (power - 1)), rel=1e-9)
    assert errors.regular is False


@pytest.mark.parametrize("t", [1e-2, -1e-2, 1e-5])
def test_beside_a_regular_minimum_the_error_is_bounded_by_what_is_told(t):
    """f = x^2 + x^3 + x^4 at x = t, minimizer 0."""
    g, B, T = np.array([2 * t + 3 * t**2 + 4 * t**3]), np.array([[2 + 6 * t + 12 * t**2]]), 6 + 24 * t
    errors = errors_of(curvature_of(B), g, np.zeros(1), lambda s: T * s * s, np.array([t]), EPS)
    assert errors.regular is True
    assert abs(t) <= errors.x[0] <= 2 * abs(t)
    assert errors.f == pytest.approx(t**2 + t**3 + t**4, rel=0.1)


def test_rounding_of_the_gradient_is_a_floor_of_the_error():
    B, noise = np.diag([1.0, 1e-6]), np.array([1e-12, 1e-12])
    errors = errors_of(curvature_of(B), np.zeros(2), noise, None, np.ones(2), EPS)
    assert np.all(errors.floor >= [1e-12, 1e-9])  # in the units of each x_j: noise / sqrt(B_jj), over sqrt(B_jj)
    assert errors.noise == pytest.approx(np.sqrt(2) * 1e-12)
    assert errors.within(1e-16, np.ones(2), np.ones(2))
    larger = errors_of(curvature_of(B), np.array([1e-3, 0.0]), noise, None, np.ones(2), EPS)
    assert not larger.within(1e-8, np.ones(2), np.ones(2))


def test_an_error_is_measured_against_x_or_its_span_where_x_is_not_told_from_zero():
    x, error, D = np.array([1.0, 1e-3, 0.0]), np.array([1e-6, 1e-3, 1e-6]), np.array([5.0, 5.0, 5.0])
    np.testing.assert_array_equal(sizes(x, error, D), [1.0, 5.0, 5.0])
    assert digits(np.array([2.0]), np.array([2e-7]), np.array([9.0])) == pytest.approx(7.0)
    assert digits(np.zeros(1), np.array([9e-5]), np.array([9.0])) == pytest.approx(5.0)
    assert digits(np.array([1.0, 1.0]), np.array([1e-9, 1e-3]), np.ones(2)) == pytest.approx(3.0)
    assert digits(np.ones(1), np.array([5.0]), np.ones(1)) == 0.0
    assert digits(np.ones(1), np.zeros(1), np.ones(1)) == 16.0


@pytest.mark.parametrize("seed", range(3))
def test_newtons_step_by_products_is_the_step(seed):
    B, g = random_hessian(seed, 30, 50.0), np.random.default_rng(seed).standard_normal(30)
    s, solved = newton_step(lambda v: B @ v, g)
    assert solved
    assert np.linalg.norm(B @ s + g) <= 0.01 * np.linalg.norm(g)


def test_newtons_step_by_products_says_where_f_bends_down():
    _, solved = newton_step(lambda v: np.array([1.0, -1.0]) * v, np.array([0.1, 1.0]))
    assert not solved
