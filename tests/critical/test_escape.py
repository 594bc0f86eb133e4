"""The way down from a point whose gradient is small: its direction, its length, and what it promises."""

import numpy as np
import pytest

import tercet
from tercet.critical.certify import Tolerances, certify
from tercet.critical.escape import Escape, escape_along
from tercet.objectives.base import Traits
from tests.critical.points import Polynomial, symmetric

TOL = Tolerances(1e-6, 1e-4, 1e-2, zeta=1e-2, order=3)


def certificate(point):
    return certify(point, 1, TOL, Traits(dense=True))


@pytest.mark.parametrize("seed", range(10))
@pytest.mark.parametrize("order", [2, 3])
def test_an_escape_goes_down_by_what_its_fall_says(seed, order):
    rng = np.random.default_rng(seed)
    values = np.array([-0.5, 0.3, 2.0]) if order == 2 else np.array([0.0, 1e-4, 2.0])
    Q = np.linalg.qr(rng.standard_normal((3, 3)))[0]
    B = Q @ np.diag(values) @ Q.T
    point = Polynomial(1e-8 * rng.standard_normal(3), (B + B.T) / 2, symmetric(rng, 3))
    _, escape = certificate(point)
    assert escape.order == order
    assert np.linalg.norm(escape.y) == pytest.approx(1.0, rel=1e-12)
    y = escape.y
    np.testing.assert_allclose(
        [escape.slope, escape.curvature, escape.cubic],
        [point.g @ y, y @ B @ y, np.einsum("abc,a,b,c", point.T, y, y, y)],
        rtol=1e-10,
        atol=1e-14,
    )
    t = escape.length(1.0)
    assert t > 0
    assert point.value(t * y) < 0
    assert escape.fall(t) == pytest.approx(-point.value(t * y), rel=1e-9)
    if order == 2:
        assert escape.slope <= 0 or escape.cubic <= 0


def test_at_a_saddle_with_a_slope_the_escape_goes_with_the_slope():
    for slope in (0.01, -0.01):
        _, escape = certificate(Polynomial([slope, 0.0], np.diag([-1.0, 1.0])))
        assert escape.slope == pytest.approx(-0.01)


@pytest.mark.parametrize("seed", range(20))
def test_the_length_minimizes_the_model_along_the_escape(seed):
    rng = np.random.default_rng(seed)
    slope, curvature, cubic = rng.standard_normal(3) * [1e-2, 1, 3]
    sigma = 10 ** rng.uniform(-1, 1)
    escape = Escape(np.ones(1), slope, curvature, cubic, 2)
    t = np.linspace(0, 100, 200001)
    m = slope * t + curvature / 2 * t**2 + cubic / 6 * t**3 + sigma / 4 * t**4
    length = escape.length(sigma)
    found = -escape.fall(length) + sigma / 4 * length**4
    # No grid point is lower; and the best grid point is as low up to its spacing h: m'' h^2 / 8.
    bend = abs(curvature) + abs(cubic) * (length + 1) + 3 * sigma * (length + 1) ** 2
    assert found <= m.min() + 1e-12
    assert m.min() <= found + bend * (t[1] - t[0]) ** 2 / 8


def test_the_length_is_zero_where_nothing_is_below():
    assert Escape(np.ones(1), 1.0, 1.0, 0.0, 2).length(1.0) == 0.0
    assert Escape(np.ones(1), 0.0, 0.0, 0.0, 3).length(1.0) == 0.0


@pytest.mark.parametrize("cubic", [-4.1e-3, 0.2])
def test_a_sigma_that_hides_the_fall_behind_a_little_curvature_is_made_smaller(cubic):
    escape = Escape(np.ones(1), 0.0, 4.6e-5, -abs(cubic), 3)
    limit = cubic**2 / (18 * 4.6e-5)
    assert escape.length(1.001 * limit) == 0.0 < escape.length(0.999 * limit)
    assert escape.length(escape.most(100 * limit)) > 0.0
    assert escape.most(1e-9 * limit) == 1e-9 * limit
    assert Escape(np.ones(1), 0.0, -1.0, 0.1, 2).most(3.0) == 3.0


def test_a_run_that_began_behind_a_little_curvature_leaves_it():
    """f = c/2 t^2 - k/6 t^3 + t^4/4: at 0 the curvature is within tolerance, the third derivative is not."""
    result = tercet.minimize(
        lambda x: 2.3e-5 * x[0] ** 2 - 0.0205 * x[0] ** 3 + 0.25 * x[0] ** 4,
        np.zeros(1),
        grad=lambda x: np.array([4.6e-5 * x[0] - 0.0615 * x[0] ** 2 + x[0] ** 3]),
        hess=lambda x: np.array([[4.6e-5 - 0.123 * x[0] + 3 * x[0] ** 2]]),
        third=lambda x: np.array([[[-0.123 + 6 * x[0]]]]),
    )
    assert result.success
    assert result.fun < 0.0


@pytest.mark.parametrize(
    ("order", "slope", "cubic", "sign"),
    [
        (2, -0.1, 5.0, 1.0),  # with the slope, whatever the third derivative says
        (2, 0.1, -5.0, -1.0),
        (2, 0.0, 5.0, -1.0),  # without a slope, with the third derivative
        (2, 0.0, -5.0, 1.0),
        (3, 0.1, -5.0, 1.0),  # at order 3 the third derivative decides
        (3, -0.1, 5.0, -1.0),
    ],
)
def test_of_two_directions_the_one_that_goes_down_is_taken(order, slope, cubic, sign):
    T = np.zeros((2, 2, 2))
    T[0, 0, 0] = cubic
    point = Polynomial([slope, 7.0], np.diag([-1.0, 1.0]), T)
    escape = escape_along(point, point.g, np.array([1.0, 0.0]), order)
    np.testing.assert_array_equal(escape.y, [sign, 0.0])
    assert (escape.slope, escape.curvature, escape.cubic, escape.order) == (sign * slope, -1.0, sign * cubic, order)
