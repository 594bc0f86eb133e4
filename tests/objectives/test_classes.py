"""Losses of many classes: derivatives against automatic ones, limits in the tails, two classes as a special case."""

from __future__ import annotations

import warnings

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from tercet.objectives.classes import CLASS_LOSSES, Brier, Shares, SoftmaxLoss, softmax
from tercet.objectives.losses import Logistic, SigmoidSquares

PLAIN = {
    "softmax": lambda z, y: jax.scipy.special.logsumexp(z) - z[y],
    "brier": lambda z, y: 0.5 * jnp.sum((jax.nn.softmax(z) - jnp.eye(len(z))[y]) ** 2),
}


def draws(K, n=40, seed=0):
    rng = np.random.default_rng(seed)
    return 3 * rng.standard_normal((K, n)), rng.integers(0, K, n), *rng.standard_normal((2, K, n))


@pytest.mark.parametrize("name", CLASS_LOSSES)
def test_derivatives_equal_automatic_ones(name):
    Z, y, a, b = draws(5)
    loss, p, f = CLASS_LOSSES[name](), softmax(Z), PLAIN[name]
    with jax.enable_x64(True):
        g = jax.grad(f)
        hvp = lambda z, t, v: jax.jvp(lambda q: g(q, t), (z,), (v,))[1]  # noqa: E731
        tvp = lambda z, t, u, v: jax.jvp(lambda q: hvp(q, t, v), (z,), (u,))[1]  # noqa: E731
        value, slope, bend, third = (
            np.asarray(jax.jit(jax.vmap(call))(*(v.T for v in given))).T
            for call, given in ((f, (Z, y)), (g, (Z, y)), (hvp, (Z, y, a)), (tvp, (Z, y, a, b)))
        )
        H = np.asarray(jax.jit(jax.vmap(jax.hessian(f)))(Z.T, y))
    np.testing.assert_allclose(loss.value(Shares.of(Z, y), y), value, rtol=1e-11, atol=1e-14)
    np.testing.assert_allclose(loss.gradient(p, y), slope, rtol=1e-9, atol=1e-14)
    np.testing.assert_allclose(loss.product(p, y, a), bend, rtol=1e-9, atol=1e-14)
    np.testing.assert_allclose(loss.third(p, y, a, b), third, rtol=1e-8, atol=1e-13)
    np.testing.assert_allclose(loss.third(p, y, b, a), third, rtol=1e-8, atol=1e-13)
    np.testing.assert_allclose(loss.curvature(p, y), H, rtol=1e-9, atol=1e-14)


@pytest.mark.parametrize("name", CLASS_LOSSES)
def test_adding_the_same_to_all_margins_changes_nothing(name):
    Z, y, a, _ = draws(4)
    loss, ones = CLASS_LOSSES[name](), np.ones_like(Z)
    np.testing.assert_allclose(loss.value(Shares.of(Z + 7.0, y), y), loss.value(Shares.of(Z, y), y), rtol=1e-12)
    np.testing.assert_allclose(loss.product(softmax(Z), y, ones), 0.0, atol=1e-15)
    np.testing.assert_allclose(loss.third(softmax(Z), y, a, ones), 0.0, atol=1e-14)


def test_two_classes_are_the_losses_of_one_margin():
    z, y = np.linspace(-6, 6, 25), np.arange(25) % 2
    Z, e = np.stack([np.zeros(25), z]), np.stack([np.zeros(25), np.ones(25)])
    for many, one, factor in ((SoftmaxLoss(), Logistic(), 1.0), (Brier(), SigmoidSquares(), 2.0)):
        parts, p = one.derivatives(z, y.astype(float)), softmax(Z)
        np.testing.assert_allclose(many.value(Shares.of(Z, y), y), factor * parts[0], rtol=1e-12)
        np.testing.assert_allclose(many.gradient(p, y)[1], factor * parts[1], rtol=1e-10)
        np.testing.assert_allclose(many.product(p, y, e)[1], factor * parts[2], rtol=1e-8, atol=1e-15)
        np.testing.assert_allclose(many.third(p, y, e, e)[1], factor * parts[3], rtol=1e-8, atol=1e-14)


@pytest.mark.parametrize("far", [40.0, 800.0, 1e300])
@pytest.mark.parametrize("name", CLASS_LOSSES)
def test_the_tails_are_finite_and_keep_their_digits(name, far):
    Z, y = np.array([[far, far], [0.0, 0.0], [1.0, 1.0]]), np.array([0, 1])
    loss = CLASS_LOSSES[name]()
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        shares = Shares.of(Z, y)
        value, slope = loss.value(shares, y), loss.gradient(shares.p, y)
    assert np.all(np.isfinite(value))
    assert np.all(np.isfinite(slope))
    if name == "softmax":
        np.testing.assert_allclose(value[0], np.exp(-far) * (1 + np.e), rtol=1e-12)
        np.testing.assert_allclose(slope[0, 0], -np.exp(-far) * (1 + np.e), rtol=1e-12)
        assert value[1] == pytest.approx(far)
    else:
        assert value[1] == pytest.approx(1.0)


@pytest.mark.parametrize("name", CLASS_LOSSES)
def test_the_typical_curvature_is_its_mean_over_labels_that_follow_p(name):
    Z, _, _, _ = draws(4)
    loss, p, w = CLASS_LOSSES[name](), softmax(Z), np.linspace(0.5, 2.0, 40)
    mean = sum((w * p[k])[:, None, None] * loss.curvature(p, np.full(40, k)) for k in range(4)).sum(axis=0)
    np.testing.assert_allclose(loss.typical(p, w), mean, rtol=1e-10, atol=1e-12)
