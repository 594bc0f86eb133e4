"""f looked at along directions in doubt: it rises, falls, or is flat to both sides or to one."""

import numpy as np
import pytest

from tercet.critical.looks import FAR, VISIBLE, Doubt, Sight, independent, look_along

EPS = float(np.finfo(float).eps)
FIRST = 1e-7


def sight(f, x, rounding=None, limit=np.inf):
    x = np.asarray(x, float)
    noise = EPS * abs(float(f(x))) if rounding is None else rounding
    return Sight(lambda y: float(f(y)), x, float(f(x)), noise, np.where(x == 0.0, 1.0, np.abs(x)), limit)


def look(f, x, v, correct=lambda y: np.zeros_like(y), **settings):
    doubts = [Doubt(np.asarray(v, float), 3, flat=True)]
    return look_along(sight(f, x, **settings), doubts, FIRST, lambda v: 0.0, lambda v: correct)


@pytest.mark.parametrize("c", [0.0, 1.0, -1e6])
@pytest.mark.parametrize("power", [2, 4, 6, 8])
def test_f_rises_around_an_isolated_minimum_however_flat(power, c):
    seen = look(lambda x: c + x[0] ** power, [0.0], [1.0], rounding=EPS * max(abs(c), 1e-300))
    assert seen.way_down is None
    assert seen.ray is None
    assert seen.free == ()
    t = seen.within[0]
    assert t**power > VISIBLE * EPS * abs(c)  # where it was seen to rise
    assert t <= 10 * max(FIRST, (2 * VISIBLE * EPS * max(abs(c), 1e-300)) ** (1 / power))


@pytest.mark.parametrize("edge", [1e-5, 0.1, 3.0, 77.0])
@pytest.mark.parametrize("both", [True, False])
def test_where_f_ends_before_it_rises_it_is_flat(edge, both):
    """1 + x_1^2, and infinite where x_0 (or |x_0|) is beyond the edge."""

    def f(x):
        return np.inf if (abs(x[0]) if both else x[0]) > edge else 1.0 + x[1] ** 2

    seen = look(f, [0.0, 0.0], [1.0, 0.0])
    assert len(seen.free) == 1
    assert seen.ray is None
    rises = look(lambda x: f(x) + x[0] ** 2 / edge**2, [0.0, 0.0], [1.0, 0.0])
    assert rises.free == ()


@pytest.mark.parametrize("sign", [1.0, -1.0])
@pytest.mark.parametrize("power", [3, 5])
def test_an_odd_power_is_a_way_down_to_one_side(power, sign):
    f = lambda x: 1.0 + sign * x[0] ** power + x[0] ** 8  # noqa: E731 - a formula with a name
    down = look(f, [0.0], [1.0]).way_down
    assert down.s[0] * sign < 0
    assert down.fall == pytest.approx(1.0 - f(down.s))
    assert down.fall > 0
    assert f(down.s) <= f(10 * down.s)  # f was followed to where it falls no more
    assert f(down.s) <= f(0.1 * down.s)


def test_a_fourth_order_saddle_has_a_way_down_that_no_third_derivative_tells():
    f = lambda x: x[0] ** 2 - x[1] ** 4 + x[1] ** 6  # noqa: E731 - a formula with a name
    assert look(f, [0.0, 0.0], [1.0, 0.0]).way_down is None
    down = look(f, [0.0, 0.0], [0.0, 1.0]).way_down
    assert f(down.s) == -down.fall < 0


def test_along_a_direction_of_which_f_knows_nothing_the_minimizer_is_not_alone():
    seen = look(lambda x: 3.0 + (x[0] + x[1]) ** 2, [1.0, -1.0], [1.0, -1.0])
    np.testing.assert_allclose(np.abs(seen.free[0]), [0.5**0.5, 0.5**0.5])
    assert seen.ray is None
    assert seen.way_down is None


@pytest.mark.parametrize("seed", range(40))
def test_rounding_far_out_is_no_rise_and_no_fall(seed):
    """Columns that are collinear up to rounding: what cancels is a thousand times as large far out as at x."""
    rng = np.random.default_rng(seed)
    A = rng.standard_normal((50, 3)) * 10.0 ** rng.integers(-3, 4, 3)
    A = np.column_stack([A, A @ rng.standard_normal(3)])
    y = rng.standard_normal(50)
    x = np.linalg.lstsq(A, y, rcond=1e-12)[0]
    v = np.linalg.svd(A)[2][-1]
    v = v / np.max(np.abs(v) / np.maximum(np.abs(x), 1e-3))
    f = lambda x: np.mean((A @ x - y) ** 2)  # noqa: E731 - a formula with a name
    beside = [abs(f(x * (1 + 4 * EPS * rng.choice([-1.0, 1.0], 4))) - f(x)) for _ in range(4)]
    seen = look(f, x, v, rounding=max(EPS * f(x), *beside))
    assert seen.way_down is None
    assert seen.ray is None
    assert len(seen.free) == 1


@pytest.mark.parametrize(("direction", "ray"), [(1.0, 1.0), (-1.0, 1.0)])
def test_a_plateau_to_one_side_is_a_ray(direction, ray):
    seen = look(lambda x: 1.0 + np.exp(-x[0]), [40.0], [40.0 * direction])
    assert seen.ray[0] * ray > 0
    assert seen.way_down is None


def test_a_curved_valley_is_not_an_isolated_minimum():
    """Along the circle |x| = 1 f does not change; along its tangent it rises, and a step across comes back."""
    f = lambda x: (x @ x - 1.0) ** 2  # noqa: E731 - a formula with a name

    def across(x):
        return x / np.linalg.norm(x) - x

    assert len(look(f, [1.0, 0.0], [0.0, 1.0], across, rounding=1e-17).free) == 1
    assert look(f, [1.0, 0.0], [0.0, 1.0], rounding=1e-17).free == ()


def test_outside_of_its_domain_f_rises():
    seen = look(lambda x: np.inf if x[0] < 1.0 else (x[0] - 1.0) ** 2, [1.0], [1.0])
    assert seen.way_down is None
    assert seen.ray is None


def test_looks_that_are_too_far_out_come_closer():
    """A barrier far below the first look: nothing is jumped over."""
    f = lambda x: 1e12 * x[0] ** 2 - 1e31 * x[0] ** 4 if abs(x[0]) < 5e-9 else 1.0  # noqa: E731 - a formula with a name
    assert look(f, [0.0], [1.0], limit=1e-9, rounding=1e-20).way_down is not None


def test_f_is_looked_at_up_to_a_thousand_spans_and_no_further():
    asked = []

    def flat(x):
        asked.append(abs(x[0]))
        return 1.0

    look(flat, [0.0], [1.0])
    assert max(asked) == FAR
    assert len(asked) <= 30


def test_directions_of_which_f_knows_nothing_are_told_as_a_basis():
    basis = independent([np.array([1.0, 0, 0]), np.array([1.0, 1, 0]), np.array([0, 1.0, 0])])
    assert len(basis) == 2
    np.testing.assert_allclose(np.stack(basis) @ np.stack(basis).T, np.eye(2), atol=1e-12)
    assert independent([]) == ()


BENT = {
    "falls": (-1.0, 4),
    "falls to one side": (-1.0, 5),
    "sixth order": (-1.0, 6),
    "rises": (1.0, 6),
    "stays": (0.0, 6),
}


@pytest.mark.parametrize("c", [1.0, -30.0])
@pytest.mark.parametrize("case", BENT)
def test_a_valley_that_bends_away_is_followed(case, c):
    """(x_0 - c x_1^2)^2 + a x_1^p rises along every line through 0; along the parabola it does what a x_1^p does."""
    a, p = BENT[case]
    f = lambda x: 1.0 + (x[0] - c * x[1] ** 2) ** 2 + a * c**2 * 0.1 * x[1] ** p  # noqa: E731 - a formula with a name
    seen = look_along(
        Sight(f, np.zeros(2), 1.0, EPS, np.ones(2)),
        [Doubt(np.array([0.0, 1.0]), 3, flat=True)],
        FIRST,
        lambda v: 0.0,
        lambda v: lambda x: np.array([c * x[1] ** 2 - x[0], 0.0]) * 0.9,
    )
    assert len(seen.free) == (case == "stays")
    assert (seen.way_down is not None) == (a < 0.0)
    if seen.way_down is not None:
        assert 1.0 - f(seen.way_down.s) == pytest.approx(seen.way_down.fall)
        assert seen.way_down.fall > VISIBLE * EPS


@pytest.mark.parametrize("seed", range(8))
def test_between_flat_directions_f_is_looked_at_where_it_rises_least(seed):
    """y_0^4 + y_1^4 - 2.2 y_0^2 y_1^2 falls within 9 degrees of the diagonals, and the axes are anywhere."""
    Q = np.linalg.qr(np.random.default_rng(seed).standard_normal((2, 2)))[0]

    def f(x):
        a, b = Q @ x
        return 1.0 + a**4 + b**4 - 2.2 * a**2 * b**2

    def gradient(x):
        a, b = Q @ x
        return Q.T @ np.array([4 * a**3 - 4.4 * a * b**2, 4 * b**3 - 4.4 * a**2 * b])

    sight = Sight(f, np.zeros(2), 1.0, EPS, np.ones(2), gradient=gradient)
    doubts = [Doubt(v, 3, flat=True) for v in np.eye(2)]
    down = look_along(sight, doubts, FIRST, lambda v: 0.0, lambda v: lambda x: np.zeros(2)).way_down
    assert down.fall == pytest.approx(1.0 - f(down.s))
    assert down.fall > 0.0
