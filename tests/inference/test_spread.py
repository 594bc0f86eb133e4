"""Covariances from known curvatures: units do not matter, and what is flat is told from what is steep."""

from __future__ import annotations

import numpy as np
import pytest

import tercet
from tercet.inference.spread import Spread, hessian_of, inverted, scatter_of

EPS = float(np.finfo(float).eps)
RNG = np.random.default_rng(1)
R = RNG.standard_normal((6, 4))


def test_the_inverse_of_a_regular_matrix_in_any_units():
    M, units = R.T @ R, np.array([1e-8, 1.0, 1e6, 1e3])
    inverse = inverted(M * np.outer(units, units), EPS)
    np.testing.assert_allclose(inverse.of * np.outer(units, units), np.linalg.inv(M), rtol=1e-9)
    assert inverse.others.shape == (4, 0)
    assert not inverse.involved.any()
    assert not inverse.falls


def test_flat_and_falling_directions_are_found():
    A = np.column_stack([R[:, 0], R[:, 1], R[:, 0] + 2 * R[:, 1], R[:, 2], np.zeros(6)])
    inverse = inverted(A.T @ A, EPS)
    assert inverse.involved.tolist() == [True, True, True, False, True]
    np.testing.assert_allclose(A @ inverse.others, 0.0, atol=1e-12)
    assert not inverse.falls
    assert inverted(np.diag([1.0, -1.0]), EPS).falls


def test_a_row_that_sees_an_unknown_direction_has_no_variance():
    spread = Spread(np.diag([1.0, 2.0]), np.array([[1.0], [-1.0]]) / np.sqrt(2), ("a", "b"))
    V = spread.along(np.array([[1.0, 1.0], [1.0, 0.0], [0.0, 0.0]]))
    assert V[0, 0] == pytest.approx(3.0)
    assert np.isnan(V[1, 1])
    assert V[2, 2] == 0.0


@pytest.mark.parametrize("engine", ["linear", "weights", "JAX"])
def test_the_scatter_is_the_covariance_of_the_gradients_of_single_terms(engine):
    X, y = RNG.standard_normal((37, 3)), (RNG.random(37) < 0.5).astype(float)
    x = np.array([0.3, -0.2, 0.1])
    if engine == "JAX":
        import jax.numpy as jnp

        problem = tercet.FiniteSum(lambda w, a, t: jnp.logaddexp(0.0, a @ w) - t * (a @ w), (X, y))
        objective = problem.bind(x).objective
    else:
        w = None if engine == "linear" else np.linspace(0.1, 2, 37)
        objective = tercet.LinearModel(X, y, "logistic", weights=w, l2=0.1)
    each = np.stack([objective.over(np.array([i])).at(x).gradient() for i in range(37)])
    np.testing.assert_allclose(scatter_of(objective, x), np.cov(each.T, bias=True), rtol=1e-9, atol=1e-13)
    assert np.allclose(hessian_of(objective, x), hessian_of(objective, x).T)
