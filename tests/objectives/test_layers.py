"""Hessians from the layers of a network are those of JAX, whatever the network."""

from __future__ import annotations

from collections.abc import Callable
from itertools import pairwise
from typing import Any

import numpy as np
import pytest

import tercet
from tercet.objectives.capabilities import result_of
from tercet.objectives.layers import Layers
from tercet.objectives.programs import traced

jax = pytest.importorskip("jax")
jnp = jax.numpy

Loss = Callable[..., Any]


@pytest.fixture(autouse=True)
def double():
    with jax.enable_x64(True):
        yield


def output(widths: tuple[int, ...], act: Loss, w: Any, x: Any) -> Any:
    at, z = 0, x
    for k, (a, b) in enumerate(pairwise(widths)):
        W, c = w[at : at + a * b].reshape(a, b), w[at + a * b : at + a * b + b]
        at += a * b + b
        z = z @ W + c
        z = z if k == len(widths) - 2 else act(z)
    return z


def size(widths: tuple[int, ...]) -> int:
    return sum((a + 1) * b for a, b in pairwise(widths))


def slope(net: Loss, x: Any) -> Any:
    """d/dx_0, as a differential equation has it."""
    return jax.jvp(net, (x,), (jnp.eye(len(x))[0],))[1]


ONE, TWO, WIDE = (5, 12, 1), (4, 8, 8, 1), (12, 12, 1)
CASES: dict[str, tuple[int, int, Loss]] = {
    "two layers": (size(TWO), 4, lambda w, x, y: (output(TWO, jax.nn.softplus, w, x)[0] - y) ** 2),
    "relu": (size(TWO), 4, lambda w, x, y: jax.nn.softplus(output(TWO, jax.nn.relu, w, x)[0] * y)),
    "penalty first": (size(ONE), 5, lambda w, x, y: w @ w + w[0] ** 3 + output(ONE, jnp.sin, w, x)[0] * y),
    "scale": (
        size(ONE) + 1,
        5,
        lambda w, x, y: (output(ONE, jnp.tanh, w, x)[0] - y) ** 2 * jnp.exp(-2 * w[-1]) + w[-1],
    ),
    "classes": (
        size((6, 9, 3)),
        6,
        lambda w, x, y: jax.nn.logsumexp(output((6, 9, 3), jnp.tanh, w, x)) - y * output((6, 9, 3), jnp.tanh, w, x)[1],
    ),
    "derivative": (
        size(WIDE),
        12,
        lambda w, x, y: (
            (slope(lambda q: output(WIDE, jnp.tanh, w, q)[0], x) + output(WIDE, jnp.tanh, w, x)[0] ** 2 - y) ** 2
        ),
    ),
    "jitted": (size(ONE), 5, jax.jit(lambda w, x, y: (output(ONE, jnp.tanh, w, x)[0] - y) ** 2)),
    "matrix first": (70, 6, lambda w, x, y: jnp.sum(jnp.tanh(w[:60].reshape(10, 6) @ x) * w[60:]) * y),
}


@jax.custom_vjp
def bent(z: Any) -> Any:
    return jnp.sin(z)


bent.defvjp(lambda z: (jnp.sin(z), z), lambda z, g: (g * jnp.cos(z),))


def data(p: int, n: int = 16) -> tuple[np.ndarray, np.ndarray]:
    rng = np.random.default_rng(p)
    return rng.standard_normal((n, p)), rng.standard_normal(n)


def layers_of(loss: Loss, d: int, p: int) -> Layers | None:
    x, y = data(p)
    return Layers.of(jax, traced(jax, loss, jax.ShapeDtypeStruct((d,), np.float64), x[0], y[0]), d)


def hessian(layers: Layers, w: Any, batch: Any, counts: Any, weights: Any = None) -> np.ndarray:
    return jax.jit(lambda w: layers.hessian(w, batch, layers.sums(w, batch, counts, weights)))(w)


@pytest.mark.parametrize("name", CASES)
def test_weighted_sums_of_hessians_are_those_of_jax(name: str) -> None:
    d, p, loss = CASES[name]
    layers, (x, y) = layers_of(loss, d, p), data(p)
    assert layers is not None
    assert 2 * layers.units <= d
    rng = np.random.default_rng(1)
    w, weights = jnp.asarray(0.7 * rng.standard_normal(d)), jnp.asarray(rng.standard_normal(len(y)))
    counts = jnp.asarray(rng.random(len(y)) < 0.8)
    kept = jnp.where(counts, weights, 0.0)
    expected = jax.jit(jax.hessian(lambda v: kept @ jax.vmap(lambda *e: loss(v, *e))(x, y)))(w)
    found = hessian(layers, w, (x, y), counts, weights)
    np.testing.assert_allclose(found, expected, rtol=0, atol=1e-13 * np.abs(expected).max())


def test_an_example_that_does_not_count_may_be_nan() -> None:
    d, p, loss = CASES["two layers"]
    layers, (x, y) = layers_of(loss, d, p), data(p)
    assert layers is not None
    x[3], y[5] = np.nan, np.inf
    counts = jnp.asarray(np.isfinite(x.sum(axis=1) + y))
    assert np.isfinite(hessian(layers, jnp.full(d, 0.1), (x, y), counts)).all()


@pytest.mark.parametrize(
    "loss",
    [
        lambda w, x, y: jnp.sum(jnp.sin(w) * jnp.outer(x, x).ravel()[:20]) * y,  # each parameter by itself
        lambda w, x, y: jnp.sum(w**3),  # no example
        lambda w, x, y: jax.lax.scan(lambda c, v: (jnp.tanh(c + v), None), y, w)[0],
        lambda w, x, y: bent(jnp.sum(w * w * y)) + jax.lax.cond(y > 0, jnp.sum, jnp.prod, w),
    ],
)
def test_without_layers_there_are_none(loss: Loss) -> None:
    assert layers_of(loss, 20, 5) is None


def test_a_linear_predictor_is_not_taken_for_a_network() -> None:
    """Its one unit has as many inputs as there are parameters, of which each two are multiplied one by one."""
    for d in (5, 50):
        assert layers_of(lambda w, x, y: jnp.logaddexp(0.0, w @ x) - y * (w @ x), d, d) is None


@pytest.mark.parametrize("name", ["two layers", "penalty first"])
def test_finite_sums_and_their_samples_take_them(name: str) -> None:
    d, p, loss = CASES[name]
    x, y = data(p, 300)
    objective = tercet.FiniteSum(loss, (x, y), chunk=64).bind(np.zeros(d)).objective
    w = 0.5 * np.random.default_rng(2).standard_normal(d)
    for rows in (None, np.arange(7, 290, 3)):
        some = slice(None) if rows is None else rows
        mean = jax.jit(lambda v, x, y: jnp.mean(jax.vmap(lambda *e: loss(v, *e))(x, y)))
        expected = jax.jit(jax.hessian(mean))(w, x[some], y[some])
        found = objective.over(rows).at(w).hessian()
        np.testing.assert_allclose(found, expected, atol=1e-13 * np.abs(expected).max())


@pytest.mark.parametrize("outer", ["squares", "cauchy"])
def test_residuals_take_them_for_what_gauss_newton_leaves_out(outer: str) -> None:
    x, y = data(5, 100)
    d = size(ONE)

    def residual(w: Any, x: Any, y: Any) -> Any:
        return output(ONE, jnp.tanh, w, x)[0] - y

    rho = (lambda r: 0.5 * r * r) if outer == "squares" else (lambda r: 0.5 * jnp.log1p(r * r))
    w = 0.5 * np.random.default_rng(2).standard_normal(d)
    point = tercet.Residuals(residual, (x, y), outer, chunk=32).bind(w).objective.over(None).at(w)
    expected = jax.jit(jax.hessian(lambda v: jnp.mean(rho(jax.vmap(lambda *e: residual(v, *e))(x, y)))))(w)
    np.testing.assert_allclose(result_of(point.hessian()), expected, atol=1e-13 * np.abs(expected).max())
