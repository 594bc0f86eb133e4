"""Tests of the Moré-Garbow-Hillstrom problems against values derived by hand, plain loops and the paper's minima."""

import math
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import pytest

pytest.importorskip("jax")

import jax
import jax.numpy as jnp
from scipy.optimize import minimize

from benchmarks.problems.mgh import PROBLEMS, Problem

DIMENSIONS = (2, 2, 2, 2, 2, 2, 3, 3, 3, 3, 3, 3, 4, 4, 4, 4, 5, 6, 11, 6, 10, 12, 4, 4, *(10,) * 10, 8)

# Number of the problem and f(x0), from the formulas of the paper by hand.
START_VALUES = {
    1: 4.4**2 + 2.2**2,
    2: 400.5,
    3: 1.0 + (math.exp(-1.0) - 1e-4) ** 2,
    4: (1.0 - 1e6) ** 2 + (1.0 - 2e-6) ** 2 + 1.0,
    5: 1.5**2 + 2.25**2 + 2.625**2,
    7: 50.0**2,
    13: 215.0,
    14: 19192.0,
    20: 29.0 + 0.0 + 1.0,
    21: 5 * 24.2,
    22: 3 * 215.0,
    23: 1e-5 * (0 + 1 + 4 + 9) + 29.75**2,
    25: 3.85 + 38.5**2 + 38.5**4,
    27: 9 * 5.5**2 + (1.0 - 2.0**-10) ** 2,
    30: 2.0**2 + 8 * 1.0 + 3.0**2,
    31: 10 * 6.0**2,
    32: 10 * 1.0 + 10 * 2.0**2,
    33: 55**2 * 2870 - 2 * 55 * 210 + 20,
    34: 44**2 * 2109 - 2 * 44 * 171 + 20,
}


@pytest.fixture(autouse=True)
def _x64() -> Iterator[None]:
    """Enable double precision for one test."""
    before = jax.config.read("jax_enable_x64")
    jax.config.update("jax_enable_x64", True)
    yield
    jax.config.update("jax_enable_x64", before)


def _by_number(problem: Problem) -> str:
    """Name a parametrized case."""
    return str(problem.number)


def test_table() -> None:
    """The problems are ordered, have the standard dimensions, and each lists a minimum."""
    assert [p.number for p in PROBLEMS] == list(range(1, 36))
    assert len({p.name for p in PROBLEMS}) == 35
    assert tuple(p.x0.size for p in PROBLEMS) == DIMENSIONS
    assert all(p.x0.dtype == np.float64 and p.minima for p in PROBLEMS)


@pytest.mark.parametrize("number", START_VALUES)
def test_start_value(number: int) -> None:
    """The value at the starting point is the one derived by hand."""
    problem = PROBLEMS[number - 1]
    np.testing.assert_allclose(jax.jit(problem.fun)(problem.x0), START_VALUES[number], rtol=1e-13)


def _penalty_2(x: list[float]) -> list[float]:
    n, a = len(x), 1e-5**0.5
    r = [x[0] - 0.2]
    for i in range(2, n + 1):
        y = math.exp(i / 10) + math.exp((i - 1) / 10)
        r.append(a * (math.exp(x[i - 1] / 10) + math.exp(x[i - 2] / 10) - y))
    r += [a * (math.exp(x[i - n] / 10) - math.exp(-1 / 10)) for i in range(n + 1, 2 * n)]
    return [*r, sum((n - j + 1) * x[j - 1] ** 2 for j in range(1, n + 1)) - 1]


def _watson(x: list[float]) -> list[float]:
    n, r = len(x), []
    for t in (i / 29 for i in range(1, 30)):
        slope = sum((j - 1) * x[j - 1] * t ** (j - 2) for j in range(2, n + 1))
        r.append(slope - sum(x[j - 1] * t ** (j - 1) for j in range(1, n + 1)) ** 2 - 1)
    return [*r, x[0], x[1] - x[0] ** 2 - 1]


def _variably_dimensioned(x: list[float]) -> list[float]:
    s = sum(j * (xj - 1) for j, xj in enumerate(x, 1))
    return [*(xj - 1 for xj in x), s, s**2]


def _trigonometric(x: list[float]) -> list[float]:
    total = sum(map(math.cos, x))
    return [len(x) - total + i * (1 - math.cos(xi)) - math.sin(xi) for i, xi in enumerate(x, 1)]


def _brown_almost_linear(x: list[float]) -> list[float]:
    return [*(xi + sum(x) - (len(x) + 1) for xi in x[:-1]), math.prod(x) - 1]


def _discrete_boundary_value(x: list[float]) -> list[float]:
    n, h, z = len(x), 1 / (len(x) + 1), [0.0, *x, 0.0]
    return [2 * z[i] - z[i - 1] - z[i + 1] + h**2 * (z[i] + i * h + 1) ** 3 / 2 for i in range(1, n + 1)]


def _discrete_integral_equation(x: list[float]) -> list[float]:
    n, h, r = len(x), 1 / (len(x) + 1), []
    cubes = [(xj + j * h + 1) ** 3 for j, xj in enumerate(x, 1)]
    for i in range(1, n + 1):
        left = sum(j * h * cubes[j - 1] for j in range(1, i + 1))
        right = sum((1 - j * h) * cubes[j - 1] for j in range(i + 1, n + 1))
        r.append(x[i - 1] + h * ((1 - i * h) * left + i * h * right) / 2)
    return r


def _broyden_tridiagonal(x: list[float]) -> list[float]:
    z = [0.0, *x, 0.0]
    return [(3 - 2 * z[i]) * z[i] - z[i - 1] - 2 * z[i + 1] + 1 for i in range(1, len(x) + 1)]


def _broyden_banded(x: list[float]) -> list[float]:
    n, r = len(x), []
    for i in range(1, n + 1):
        band = [j for j in range(max(1, i - 5), min(n, i + 1) + 1) if j != i]
        r.append(x[i - 1] * (2 + 5 * x[i - 1] ** 2) + 1 - sum(x[j - 1] * (1 + x[j - 1]) for j in band))
    return r


def _linear_full_rank(x: list[float]) -> list[float]:
    shift = 2 / 20 * sum(x) + 1
    return [*(xi - shift for xi in x), *(-shift for _ in range(20 - len(x)))]


def _linear_rank_1(x: list[float]) -> list[float]:
    return [i * sum(j * xj for j, xj in enumerate(x, 1)) - 1 for i in range(1, 21)]


def _linear_rank_1_zero(x: list[float]) -> list[float]:
    s = sum(j * x[j - 1] for j in range(2, len(x)))
    return [-1.0, *((i - 1) * s - 1 for i in range(2, 20)), -1.0]


def _chebyquad(x: list[float]) -> list[float]:
    n, r = len(x), []
    for i in range(1, n + 1):
        mean = sum(math.cos(i * math.acos(2 * xj - 1)) for xj in x) / n
        r.append(mean - (-1 / (i**2 - 1) if i % 2 == 0 else 0.0))
    return r


LOOPS: dict[int, Callable[[list[float]], list[float]]] = {
    20: _watson,
    24: _penalty_2,
    25: _variably_dimensioned,
    26: _trigonometric,
    27: _brown_almost_linear,
    28: _discrete_boundary_value,
    29: _discrete_integral_equation,
    30: _broyden_tridiagonal,
    31: _broyden_banded,
    32: _linear_full_rank,
    33: _linear_rank_1,
    34: _linear_rank_1_zero,
    35: _chebyquad,
}


@pytest.mark.parametrize("number", LOOPS)
def test_agrees_with_loops(number: int) -> None:
    """The vectorized indices agree with the paper's sums at a point without symmetry."""
    problem = PROBLEMS[number - 1]
    x = np.random.default_rng(number).uniform(0.05, 0.95, problem.x0.size)
    expected = math.fsum(r**2 for r in LOOPS[number](x.tolist()))
    np.testing.assert_allclose(jax.jit(problem.fun)(x), expected, rtol=1e-11)


@pytest.mark.parametrize("problem", PROBLEMS, ids=_by_number)
def test_derivatives_are_finite(problem: Problem) -> None:
    """The value and the derivatives up to third order are finite at the starting point."""
    grad = jax.grad(problem.fun)
    hessian = jax.jacfwd(grad)
    derivatives = jax.jit(lambda x: (problem.fun(x), grad(x), hessian(x), jax.jacfwd(hessian)(x)))
    assert all(np.isfinite(d).all() for d in derivatives(jnp.asarray(problem.x0)))


def test_helical_valley_angle() -> None:
    """The angle of problem 7 and its derivatives up to third order are those of the rotated arctan2."""

    def reference(x: jax.Array) -> jax.Array:
        theta = 0.25 - jnp.arctan2(x[0], x[1]) / (2.0 * jnp.pi)
        radius = jnp.sqrt(x[0] ** 2 + x[1] ** 2)
        return 100.0 * ((x[2] - 10.0 * theta) ** 2 + (radius - 1.0) ** 2) + x[2] ** 2

    points = [(0.0, 2.0), (1e-9, 1.0), (1.0, 1.0), (-1.0, 0.5), (-0.5, -1.0), (0.5, -1.0)]
    x = jnp.array([(*point, 0.3) for point in points])
    fun, expected = PROBLEMS[6].fun, reference
    for _ in range(4):
        np.testing.assert_allclose(jax.jit(jax.vmap(fun))(x), jax.jit(jax.vmap(expected))(x), rtol=1e-11, atol=1e-10)
        fun, expected = jax.jacfwd(fun), jax.jacfwd(expected)


@pytest.mark.parametrize(
    ("number", "point", "value"),
    [
        (2, (5.0, 4.0), 0.0),
        (3, (1.098159e-5, 9.106146), 0.0),
        (8, (0.8406, -1e9, -1e9), 17.4286),
        (11, (50.0, 25.0, 1.5), 0.0),
        (18, (1.0, 10.0, 1.0, 5.0, 4.0, 3.0), 0.0),
        (27, (0.0,) * 9 + (11.0,), 1.0),
    ],
)
def test_listed_minimizer(number: int, point: tuple[float, ...], value: float) -> None:
    """A minimizer printed in the paper, or a point towards its limit at infinity, has the listed value."""
    assert value in PROBLEMS[number - 1].minima
    np.testing.assert_allclose(jax.jit(PROBLEMS[number - 1].fun)(jnp.array(point)), value, rtol=1e-5, atol=1e-10)


@pytest.mark.parametrize("problem", PROBLEMS, ids=_by_number)
def test_scipy_reaches_a_listed_minimum(problem: Problem) -> None:
    """A trust-region Newton method from the standard start ends at one of the listed values."""
    value_and_grad, second = jax.jit(jax.value_and_grad(problem.fun)), jax.jit(jax.hessian(problem.fun))

    def fun(x: np.ndarray) -> tuple[float, np.ndarray]:
        value, grad = value_and_grad(x)
        return float(value), np.asarray(grad)

    def hessian(x: np.ndarray) -> np.ndarray:
        return np.asarray(second(x))

    options: Any = {"gtol": 1e-9, "maxiter": 2000, "max_trust_radius": 1e6}
    # Rejected trial points may overflow.
    with np.errstate(over="ignore", invalid="ignore"):
        found = minimize(fun, problem.x0, method="trust-exact", jac=True, hess=hessian, options=options).fun
    assert any(abs(found - value) <= (1e-5 * value or 1e-10) for value in problem.minima), found
