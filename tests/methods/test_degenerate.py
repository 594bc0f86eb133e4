"""Degenerate starts: STM leaves every second-order point that is not a minimum, and stays at one that is."""

from __future__ import annotations

import functools
from typing import Any

import numpy as np
import pytest

import tercet
from tercet import Status

jax = pytest.importorskip("jax")

from benchmarks.problems.degenerate import PROBLEMS, Degenerate, finite_sum  # noqa: E402 - after importorskip, so that a machine without JAX skips

SEEDS = (0, 1, 2)
BY_NAME = {problem.name: problem for problem in PROBLEMS}
DEGENERATE = [problem.name for problem in PROBLEMS if problem.degenerate]
FLAT = [problem.name for problem in PROBLEMS if not problem.degenerate]

each_kind = pytest.mark.parametrize("kind", ["function", "sum"])


@functools.cache
def target(name: str, kind: str) -> Any:
    """What `minimize` is given; one object per problem, so that it is compiled once."""
    problem = BY_NAME[name]
    return problem.fun if kind == "function" else tercet.FiniteSum(problem.loss, problem.data)


@functools.cache
def plain(name: str, kind: str) -> Any:
    problem = BY_NAME[name]
    return jax.jit(problem.fun if kind == "function" else finite_sum(problem.loss, problem.data))


def value(name: str, kind: str, x: np.ndarray) -> float:
    """f(x), apart from the library."""
    with jax.enable_x64(True):
        return float(plain(name, kind)(x))


def beside(problem: Degenerate, seed: int) -> np.ndarray:
    y = np.random.default_rng(seed).standard_normal(problem.start.shape)
    return problem.start + 1e-6 * y / np.linalg.norm(y)


def assert_left(name: str, kind: str, result: tercet.Result) -> None:
    problem = BY_NAME[name]
    assert result.status is Status.CERTIFIED
    assert result.success
    assert result.certificate.order == 3
    assert result.fun < value(name, kind, problem.start) - 1e-6
    assert value(name, kind, result.x) == pytest.approx(result.fun, rel=1e-12, abs=1e-13)


@each_kind
@pytest.mark.parametrize("name", DEGENERATE)
def test_stm_leaves_the_degenerate_point_and_its_neighbourhood_for_a_certified_lower_point(name, kind):
    exact = [(BY_NAME[name].start, seed) for seed in (SEEDS[:1] if kind == "function" else SEEDS)]
    for start, seed in exact + [(beside(BY_NAME[name], seed), seed) for seed in SEEDS]:
        result = tercet.minimize(target(name, kind), start, seed=seed)
        assert_left(name, kind, result)


@pytest.mark.parametrize("name", ["monkey_saddle", "cubic_valley", "linear_chain"])
def test_a_second_order_certificate_is_content_with_the_degenerate_point(name):
    """What the third order adds: the very same call with order=2 stays."""
    problem = BY_NAME[name]
    result = tercet.minimize(target(name, "function"), problem.start, order=2)
    assert result.success
    assert np.array_equal(result.x, problem.start)


@pytest.mark.parametrize(("name", "minimum"), [("monkey_saddle", -27 / 256), ("cubic_valley", -27 / 256)])
@each_kind
def test_where_the_minimum_is_known_it_is_reached(name, minimum, kind):
    result = tercet.minimize(target(name, kind), BY_NAME[name].start)
    assert result.fun == pytest.approx(minimum, abs=1e-10)


@each_kind
@pytest.mark.parametrize("name", FLAT)
def test_at_a_genuine_flat_minimum_it_stops_with_success(name, kind):
    problem = BY_NAME[name]
    lowest = value(name, kind, problem.start)
    for start in (problem.start, beside(problem, 0), problem.start + 0.5):
        result = tercet.minimize(target(name, kind), start)
        assert result.success
        assert result.fun <= lowest + 1e-9
    exact = tercet.minimize(target(name, kind), problem.start, method=tercet.STM(sizes=tercet.Full()))
    assert np.array_equal(exact.x, problem.start)
    assert exact.nit == 0


def test_ten_valleys_seen_through_noise_are_all_gone_down_though_rounding_moves_them_first():
    """f = u^2 + v^3 + v^4 over ten pairs, started at 0: steps of 1e-17 are no span to measure a slope by."""
    pairs, tilt = 10, np.random.default_rng(0).standard_normal((2000, 20))
    tilt -= tilt.mean(axis=0)

    def loss(x: Any, a: Any) -> Any:
        u, v = x[:pairs], x[pairs:]
        return (u**2 + v**3 + v**4).sum() + 0.3 * (a * x).sum()

    result = tercet.minimize(tercet.FiniteSum(loss, tilt), np.zeros(20), method=tercet.SCR())
    assert result.status is Status.CERTIFIED
    assert result.fun == pytest.approx(-27 / 256 * pairs, abs=1e-10)
