"""Profile likelihood: intervals in closed form, invariance, and what is not there."""

from __future__ import annotations

import jax.numpy as jnp
import matplotlib as mpl
import numpy as np
import pytest
from scipy.optimize import minimize as scipy_minimize
from scipy.special import ndtri

import tercet

mpl.use("Agg")
RNG = np.random.default_rng(0)
DATA = RNG.normal(3.0, 0.7, 30)
Q = float(ndtri(0.975))


def normal(params, t):
    return 0.5 * ((t - params[0]) * jnp.exp(-params[1])) ** 2 + params[1]


@pytest.fixture(scope="module")
def fit():
    problem = tercet.FiniteSum(normal, DATA)
    return problem, tercet.minimize(problem, np.zeros(2))


def test_the_interval_of_a_normal_mean_is_the_closed_form(fit):
    """n log(1 + (t - mean)^2 / s^2) = q^2."""
    problem, result = fit
    found = tercet.profile(problem, result, 0)
    reach = DATA.std() * np.sqrt(np.expm1(Q**2 / 30))
    np.testing.assert_allclose([found.lower, found.upper], DATA.mean() + reach * np.array([-1, 1]), rtol=1e-5)
    expected = np.sign(found.t - DATA.mean()) * np.sqrt(30 * np.log1p((found.t - DATA.mean()) ** 2 / DATA.var()))
    np.testing.assert_allclose(found.root, expected, atol=1e-5)
    assert found.lowest == 0.0
    assert len(found.plot().lines) == 3
    assert "95% profile interval" in str(found)


def test_the_interval_of_a_poisson_slope_and_of_squares():
    X = RNG.standard_normal((60, 2))
    y = RNG.poisson(np.exp(X[:, 0] * 0.4 + 0.5)).astype(float)
    model = tercet.LinearModel(X, y, "poisson", intercept=True)
    result = tercet.minimize(model)
    found = tercet.profile(model, result, "x[0]", points=0)
    for end in (found.lower, found.upper):  # held there, the log-likelihood has fallen by q^2 / 2
        offset = np.array([end])

        def held(u, offset=offset):
            return model.over(None).at(np.concatenate([offset, u])).value()

        least = scipy_minimize(held, result.x[1:], method="Nelder-Mead", options={"xatol": 1e-9, "fatol": 1e-14}).fun
        assert 2 * 60 * (least - result.fun) == pytest.approx(Q**2, rel=1e-5)
    squares = tercet.LinearModel(X, y, "squares", intercept=True)
    plain = tercet.minimize(squares)
    exact = tercet.profile(squares, plain, 1, points=0)
    lower, upper = plain.confidence_intervals()
    np.testing.assert_allclose([exact.lower, exact.upper], [lower[1], upper[1]], rtol=1e-6)  # quadratic: the same


def test_a_skewed_likelihood_has_a_skewed_interval():
    def f(p, t):
        return jnp.log1p(jnp.exp(-p[0])) + 0.02 * jnp.log1p(jnp.exp(p[0]))

    problem = tercet.FiniteSum(f, np.zeros(3))
    result = tercet.minimize(problem, np.zeros(1))
    found = tercet.profile(problem, result, 0, points=3)
    for end in (found.lower, found.upper):
        value = np.log1p(np.exp(-end)) + 0.02 * np.log1p(np.exp(end))
        assert 6 * (value - result.fun) == pytest.approx(Q**2, rel=1e-5)
    assert found.upper - result.x[0] > 5 * (result.x[0] - found.lower)


def test_a_likelihood_that_levels_off_has_no_limits():
    problem = tercet.FiniteSum(lambda p, t: 0.1 * p[0] ** 2 / (1 + p[0] ** 2), np.zeros(3))
    found = tercet.profile(problem, np.zeros(1), 0, points=3)
    assert (found.lower, found.upper) == (-np.inf, np.inf)


def test_misuse_is_refused(fit):
    problem, result = fit
    with pytest.raises(ValueError, match=r"which=7.*x\[0\], x\[1\]"):
        tercet.profile(problem, result, 7)
    with pytest.raises(ValueError, match="level="):
        tercet.profile(problem, result, 0, level=2.0)
    with pytest.raises(ValueError, match="needs no transform"):
        tercet.profile(tercet.Transformed(problem, {1: (-9, 9)}), result.x, 0)
