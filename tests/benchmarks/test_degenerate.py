"""Tests of the problems that start at a degenerate critical point."""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import pytest
from scipy import special, stats

jax = pytest.importorskip("jax")

from benchmarks.problems.degenerate import (  # noqa: E402 - after importorskip, so that a machine without JAX skips
    PROBLEMS,
    Degenerate,
    finite_sum,
    log_normal_cdf,
    skew_normal_loss,
)

Function = Callable[[Any], Any]

KERNEL_TOLERANCE = 1e-9
BY_NAME = {problem.name: problem for problem in PROBLEMS}
DEGENERATE = [problem for problem in PROBLEMS if problem.degenerate]
FLAT_MINIMA = [problem for problem in PROBLEMS if not problem.degenerate]


@pytest.fixture(autouse=True)
def _x64() -> Iterator[None]:
    before = jax.config.jax_enable_x64
    jax.config.update("jax_enable_x64", True)
    yield
    jax.config.update("jax_enable_x64", before)


def _objective(problem: Degenerate, kind: str) -> Function:
    f: Function = jax.jit(problem.fun if kind == "fun" else finite_sum(problem.loss, problem.data))
    return f


@functools.cache
def _derivatives(name: str, kind: str) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    grad = jax.grad(_objective(BY_NAME[name], kind))
    hess = jax.jacfwd(grad)
    g, h, t = jax.jit(lambda x: (grad(x), hess(x), jax.jacfwd(hess)(x)))(BY_NAME[name].start)
    return np.asarray(g), np.asarray(h), np.asarray(t)


def _steepest_kernel_direction(hess: np.ndarray, third: np.ndarray) -> np.ndarray:
    """Minimize T[y, y, y] over the unit vectors of the kernel by the shifted power method from random starts."""
    values, vectors = np.linalg.eigh(hess)
    basis = vectors[:, np.abs(values) <= KERNEL_TOLERANCE]
    t = -np.einsum("ijk,ia,jb,kc->abc", third, basis, basis, basis)
    y = np.random.default_rng(0).standard_normal((200, basis.shape[1]))
    y = np.concatenate([y, -y])
    for _ in range(300):
        y /= np.linalg.norm(y, axis=1, keepdims=True)
        y = np.einsum("abc,nb,nc->na", t, y, y) + 0.5 * np.linalg.norm(t) * y
    y /= np.linalg.norm(y, axis=1, keepdims=True)
    best: np.ndarray = basis @ y[np.argmax(np.einsum("abc,na,nb,nc->n", t, y, y, y))]
    return best


def _cube(third: np.ndarray, y: np.ndarray) -> float:
    return float(np.einsum("ijk,i,j,k->", third, y, y, y))


def _name(problem: Degenerate) -> str:
    return problem.name


each_kind = pytest.mark.parametrize("kind", ["fun", "sum"])
each_problem = pytest.mark.parametrize("problem", PROBLEMS, ids=_name)
each_degenerate = pytest.mark.parametrize("problem", DEGENERATE, ids=_name)
each_flat_minimum = pytest.mark.parametrize("problem", FLAT_MINIMA, ids=_name)


@each_problem
def test_data_are_float64_with_a_common_leading_axis(problem: Degenerate) -> None:
    assert problem.start.dtype == np.float64
    assert problem.start.ndim == 1
    assert all(a.dtype == np.float64 for a in problem.data)
    assert len({len(a) for a in problem.data}) == 1
    assert problem.loss(problem.start, *(a[0] for a in problem.data)).shape == ()
    assert problem.fun(jax.numpy.asarray(problem.start)).shape == ()


@each_kind
@each_problem
def test_start_is_second_order_critical_and_singular(problem: Degenerate, kind: str) -> None:
    grad, hess, third = _derivatives(problem.name, kind)
    assert np.max(np.abs(grad)) <= 1e-12
    lowest = np.linalg.eigvalsh(hess)[0]
    assert -KERNEL_TOLERANCE <= lowest <= KERNEL_TOLERANCE
    assert np.all(np.isfinite(third))


@each_kind
@each_degenerate
def test_third_derivative_on_the_kernel_leads_down(problem: Degenerate, kind: str) -> None:
    f = _objective(problem, kind)
    _, hess, third = _derivatives(problem.name, kind)
    y = _steepest_kernel_direction(hess, third)
    slope = _cube(third, y)
    assert slope < -0.03
    t = 0.02
    drop = float(f(problem.start + t * y) - f(problem.start))
    assert drop == pytest.approx(slope * t**3 / 6.0, rel=0.25)


@each_problem
def test_sum_and_function_agree_up_to_a_constant(problem: Degenerate) -> None:
    fun, total = _objective(problem, "fun"), _objective(problem, "sum")
    shift = float(total(problem.start) - fun(problem.start))
    for x in problem.start + np.random.default_rng(1).uniform(-0.5, 0.5, (20, problem.start.size)):
        assert float(total(x)) == pytest.approx(float(fun(x)) + shift, rel=1e-11, abs=1e-12)


@each_problem
def test_single_terms_differ_from_the_sum(problem: Degenerate) -> None:
    x = problem.start + 0.1
    gradients = jax.jit(jax.vmap(jax.grad(problem.loss), in_axes=(None, *(0 for _ in problem.data))))
    assert np.max(np.std(gradients(x, *problem.data), axis=0)) > 1e-3


@each_kind
@each_flat_minimum
def test_flat_minimum_has_no_lower_point(problem: Degenerate, kind: str) -> None:
    f = jax.vmap(_objective(problem, kind))
    lowest = float(_objective(problem, kind)(problem.start))
    rng = np.random.default_rng(2)
    for radius in 10.0 ** np.arange(-4.0, 1.0):
        values = f(problem.start + radius * rng.standard_normal((2000, problem.start.size)))
        # The terms of the sum, of the order of the radius, cancel only up to rounding.
        slack = 0.0 if kind == "fun" else 1e-15 * max(radius, float(np.max(values)))
        assert np.min(values) >= lowest - slack


@each_flat_minimum
def test_flat_minimum_has_no_third_derivative(problem: Degenerate) -> None:
    for kind in ("fun", "sum"):
        assert np.max(np.abs(_derivatives(problem.name, kind)[2])) == 0.0


@pytest.mark.parametrize("name", ["monkey_saddle", "cubic_valley", "quartic_bowl"])
def test_perturbations_cancel_exactly(name: str) -> None:
    for noise in BY_NAME[name].data:
        assert np.all(np.sum(noise, axis=0) == 0.0)
    for fun, total in zip(_derivatives(name, "fun"), _derivatives(name, "sum"), strict=True):
        assert np.all(fun == total)


def test_tensor_noise_is_symmetric_and_centred() -> None:
    problem = BY_NAME["symmetric_cp"]
    (observed,) = problem.data
    for axes in [(0, 2, 1, 3), (0, 3, 2, 1)]:
        np.testing.assert_allclose(observed, observed.transpose(axes), rtol=0.0, atol=1e-15)
    values = np.linalg.svd(np.mean(observed, axis=0).reshape(4, 16), compute_uv=False)
    assert values[1] > 0.1
    assert np.all(values[2:] < 1e-14)


def test_linear_network_third_derivative_formula() -> None:
    problem = BY_NAME["linear_network"]
    inputs, outputs = problem.data
    third = _derivatives(problem.name, "fun")[2]
    y = np.random.default_rng(3).standard_normal(problem.start.size)
    first, second, last = y.reshape(3, 2, 2)
    expected = -6.0 * np.sum((last @ second @ first) * (outputs.T @ inputs / len(inputs)))
    assert _cube(third, y) == pytest.approx(expected, rel=1e-12)


def test_skew_normal_kernel_and_third_derivative_formula() -> None:
    problem = BY_NAME["skew_normal"]
    (sample,) = problem.data
    z = (sample - np.mean(sample)) / np.std(sample)
    b = np.sqrt(2.0 / np.pi)
    _, hess, third = _derivatives(problem.name, "fun")
    y = np.array([-b * np.std(sample), 0.0, 1.0])
    np.testing.assert_allclose(hess @ y, 0.0, atol=1e-14)
    assert np.linalg.eigvalsh(hess)[1] > 0.1
    assert _cube(third, y) == pytest.approx(-b * (4.0 / np.pi - 1.0) * np.mean(z**3), rel=1e-10)


def test_skew_normal_loss_is_the_negative_log_density() -> None:
    loss: Any = skew_normal_loss
    negative_log_density = jax.jit(jax.vmap(loss, in_axes=(None, 0)))
    observations = np.array([-3.0, 0.2, 1.7])
    for mu, log_omega, alpha in [(0.0, 0.0, 0.0), (1.0, 0.7, 4.0), (-2.0, -0.3, -15.0)]:
        losses = negative_log_density(np.array([mu, log_omega, alpha]), observations)
        expected = -stats.skewnorm.logpdf(observations, alpha, mu, np.exp(log_omega))
        np.testing.assert_allclose(losses, expected, rtol=1e-7)


@functools.cache
def _derivative_chain(order: int) -> Function:
    f: Function = log_normal_cdf
    for _ in range(order):
        f = jax.grad(f)
    compiled: Function = jax.jit(f)
    return compiled


def _log_cdf_derivatives(z: float) -> list[float]:
    """log Phi and its derivatives, by lambda = phi/Phi, lambda' = -lambda (z + lambda), and its derivative."""
    ratio = np.sqrt(2.0 / np.pi) / special.erfcx(-z / np.sqrt(2.0))
    second = -ratio * (z + ratio)
    return [float(special.log_ndtr(z)), ratio, second, -second * (z + 2.0 * ratio) - ratio]


@pytest.mark.parametrize("z", [-60.0, -30.0, -20.1, -19.9, -8.001, -7.999, -5.0, -1.0, 0.0, 1.0, 4.9, 5.1, 9.0])
def test_log_cdf_derivatives_closed_form(z: float) -> None:
    for order, expected in enumerate(_log_cdf_derivatives(z)):
        # The closed form of the third derivative loses about z^6 units of rounding to cancellation.
        rel = 2e-9 + 1e-15 * min(z, 0.0) ** 6
        assert float(_derivative_chain(order)(z)) == pytest.approx(expected, rel=rel, abs=1e-16)


@pytest.mark.parametrize("order", [1, 2, 3])
@pytest.mark.parametrize("z", [-30.0, -20.0, -9.0, -5.0, 0.0, 1.5])
def test_log_cdf_derivatives_by_finite_differences(z: float, order: int) -> None:
    lower, h = _derivative_chain(order - 1), 1e-3
    difference = float(lower(z - 2 * h) - 8 * lower(z - h) + 8 * lower(z + h) - lower(z + 2 * h)) / (12 * h)
    assert float(_derivative_chain(order)(z)) == pytest.approx(difference, rel=1e-8, abs=1e-10)
