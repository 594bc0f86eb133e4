"""`certify`: a known minimizer holds, a saddle gives a way down, and units do not matter."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import tercet

MINIMIZER = np.array([1.0, -2.0])


def wells(f: float = 1.0, units: Any = 1.0) -> dict[str, Any]:
    """f times a strictly convex quartic around MINIMIZER, with x measured in other units."""
    u = np.ones(2) * units
    B = np.array([[3.0, 1.0], [1.0, 2.0]])

    def at(x: np.ndarray) -> np.ndarray:
        return x / u - MINIMIZER

    return {
        "problem": lambda x: f * float(at(x) @ B @ at(x) / 2 + np.sum(at(x) ** 4)),
        "grad": lambda x: f * (B @ at(x) + 4 * at(x) ** 3) / u,
        "hess": lambda x: f * (B + np.diag(12 * at(x) ** 2)) / np.outer(u, u),
        "tvp": lambda x, v, w: f * 24 * at(x) * (v / u) * (w / u) / u,
    }


def saddle() -> dict[str, Any]:
    """x^2 - y^2 + y^4: a saddle at 0."""
    return {
        "problem": lambda x: float(x[0] ** 2 - x[1] ** 2 + x[1] ** 4),
        "grad": lambda x: np.array([2 * x[0], -2 * x[1] + 4 * x[1] ** 3]),
        "hess": lambda x: np.diag([2.0, -2.0 + 12 * x[1] ** 2]),
        "tvp": lambda x, u, v: np.array([0.0, 24 * x[1] * u[1] * v[1]]),
    }


powers = st.integers(-12, 12).map(lambda k: 10.0**k)
columns = st.lists(st.integers(-6, 6).map(lambda k: 10.0**k), min_size=2, max_size=2).map(np.array)


@settings(max_examples=30, deadline=None, derandomize=True)
@given(f=powers, units=columns)
def test_a_known_minimizer_holds_in_any_units_and_a_point_beside_it_does_not(f, units):
    calls = wells(f, units)
    problem = calls.pop("problem")
    found = tercet.certify(problem, units * MINIMIZER, **calls)
    assert found.holds
    assert found.strict
    assert found.digits > 8
    beside = tercet.certify(problem, units * (MINIMIZER + np.array([1e-3, 0.0])), **calls)
    assert not beside.holds


@settings(max_examples=30, deadline=None, derandomize=True)
@given(f=powers, units=columns)
def test_a_run_has_the_same_status_in_any_units(f, units):
    calls = wells(f, units)
    result = tercet.minimize(calls.pop("problem"), units * np.array([3.0, 1.0]), **calls)
    assert result.success
    np.testing.assert_allclose(result.x, units * MINIMIZER, rtol=1e-7)


def test_a_saddle_gives_a_way_down():
    calls = saddle()
    problem = calls.pop("problem")
    found = tercet.certify(problem, np.zeros(2), **calls)
    assert not found.holds
    assert problem(np.array(found.way_down)) == pytest.approx(problem(np.zeros(2)) - found.fall)
    assert found.fall > 0


def test_where_x_is_merely_not_there_yet_a_few_steps_lead_down():
    calls = wells()
    problem = calls.pop("problem")
    x = np.array([3.0, 3.0])
    found = tercet.certify(problem, x, **calls)
    assert not found.holds
    assert problem(x + found.way_down) == pytest.approx(problem(x) - found.fall)


@pytest.mark.parametrize("offset", [0.0, 1e-9, 1e-6, 1e-3, 0.1])
def test_what_holds_at_a_tol_holds_at_every_larger_one(offset):
    calls = wells()
    problem = calls.pop("problem")
    tols = (1e-10, 1e-8, 1e-6, 1e-4, 1e-2, 1.0)
    holds = [tercet.certify(problem, MINIMIZER + offset, tol=tol, **calls).holds for tol in tols]
    assert holds == sorted(holds)
    assert holds[0] == (offset == 0.0)


def test_a_point_outside_the_domain_is_refused_and_what_f_raises_comes_with_advice():
    with pytest.raises(ValueError, match="not finite at x"):
        tercet.certify(lambda x: np.nan, np.zeros(1), grad=lambda x: x)

    def broken(x: Any) -> float:
        raise KeyError("broken")

    with pytest.raises(KeyError) as caught:
        tercet.certify(broken, np.zeros(1), grad=lambda x: x)
    assert "at x" in caught.value.__notes__[0]


@pytest.mark.parametrize("seed", range(100))
def test_a_rank_deficient_least_squares_ends_without_a_crash_and_never_above_its_start(seed):
    rng = np.random.default_rng(seed)
    n, d, rank = int(rng.integers(3, 12)), int(rng.integers(2, 8)), int(rng.integers(1, 4))
    A = rng.standard_normal((n, rank)) @ rng.standard_normal((rank, d)) * 10.0 ** rng.uniform(-3, 3, d)
    b, x0 = rng.standard_normal(n), rng.standard_normal(d)
    result = tercet.minimize(
        lambda x: float(np.sum((A @ x - b) ** 2)), x0, grad=lambda x: 2 * A.T @ (A @ x - b), hess=lambda x: 2 * A.T @ A
    )
    assert result.fun <= np.sum((A @ x0 - b) ** 2)
    least = np.sum((A @ np.linalg.lstsq(A, b, rcond=1e-10)[0] - b) ** 2)
    if result.success:
        assert result.fun - least <= 1e-6 * (np.sum((A @ x0 - b) ** 2) - least) + 1e-10
