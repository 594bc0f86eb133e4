"""Fits of random curves against SciPy: what is certified is where SciPy stays, with the covariance that SciPy gives."""

from functools import partial

import numpy as np
import pytest
import scipy.optimize
from hypothesis import assume, given, settings
from hypothesis import strategies as st

import tercet

jax = pytest.importorskip("jax")
jnp = jax.numpy

T = np.linspace(0.0, 3.0, 30)
TIGHT = {"ftol": 1e-15, "xtol": 1e-15, "gtol": 1e-15}


def decay(xp, t, a, b, c):
    return a * xp.exp(-b * t) + c


def peak(xp, t, a, m, s, c):
    return a * xp.exp(-0.5 * ((t - m) / s) ** 2) + c


def growth(xp, t, a, b, k):
    return a / (1.0 + xp.exp(b - k * t))


def both(xp, t, a, b, c):  # two outputs with the same parameters
    return xp.concatenate([a * xp.exp(-b * t) + c, c * t - a * b])


MODELS = {
    decay: ([1.0, 0.5, -1.0], [4.0, 2.0, 1.0]),
    peak: ([1.0, 1.0, 0.3, -1.0], [4.0, 2.0, 0.8, 1.0]),
    growth: ([1.0, 1.0, 1.5], [4.0, 3.0, 4.0]),
    both: ([1.0, 0.5, -1.0], [4.0, 2.0, 1.0]),
}
ours = {model: partial(model, jnp) for model in MODELS}
theirs = {model: partial(model, np) for model in MODELS}


@st.composite
def curves(draw, models=tuple(MODELS)):
    """A model, noisy data, a start near the truth, and a standard deviation for each point."""
    model = draw(st.sampled_from(models))
    rng = np.random.default_rng(draw(st.integers(0, 2**32 - 1)))
    true = rng.uniform(*MODELS[model])
    exact = model(np, T, *true)
    sigma = 10.0 ** draw(st.integers(-3, -1)) * np.ptp(exact) * rng.uniform(0.5, 2.0, exact.size)
    start = true * rng.uniform(0.8, 1.25, true.size)
    return model, exact + sigma * rng.standard_normal(exact.size), sigma, start


def quick(test):
    return settings(max_examples=10, deadline=None, derandomize=True)(test)


@quick
@given(curves(), st.booleans(), st.booleans(), st.booleans())
def test_what_is_certified_is_where_scipy_stays_with_its_covariance(curve, numpy_model, weighted, absolute):
    model, y, sigma, start = curve
    named = {"sigma": sigma, "absolute_sigma": absolute} if weighted else {}
    fit = tercet.curve_fit((theirs if numpy_model else ours)[model], T, y, start, **named)
    assert fit.success, fit.result
    popt, pcov = scipy.optimize.curve_fit(theirs[model], T, y, fit.popt, **named, **TIGHT)
    np.testing.assert_allclose(fit.popt, popt, rtol=1e-6, atol=1e-6 * np.max(np.abs(popt)))
    scale = np.sqrt(np.diag(pcov))
    np.testing.assert_allclose(fit.pcov / np.outer(scale, scale), pcov / np.outer(scale, scale), atol=1e-4)
    np.testing.assert_allclose(fit.residuals, model(np, T, *fit.popt) - y, atol=1e-9)


@quick
@given(curves((decay, both)))
def test_a_covariance_of_the_data_is_taken_as_scipy_takes_it(curve):
    model, y, sigma, start = curve
    C = np.outer(sigma, sigma) * 0.5 ** np.abs(np.subtract.outer(np.arange(y.size), np.arange(y.size)))
    fit = tercet.curve_fit(ours[model], T, y, start, C, True)
    assert fit.success, fit.result
    popt, pcov = scipy.optimize.curve_fit(theirs[model], T, y, fit.popt, C, True, **TIGHT)
    np.testing.assert_allclose(fit.popt, popt, rtol=1e-6, atol=1e-6 * np.max(np.abs(popt)))
    np.testing.assert_allclose(fit.errors, np.sqrt(np.diag(pcov)), rtol=1e-4)


@quick
@given(curves(), st.integers(0, 2), st.booleans())
def test_between_bounds_no_point_that_scipy_finds_from_there_is_lower(curve, held, below):
    model, y, _, start = curve
    free = tercet.curve_fit(ours[model], T, y, start)
    assume(free.success)
    low, high = np.full(start.size, -np.inf), np.full(start.size, np.inf)
    span = 0.1 * abs(free.popt[held])  # the bound cuts the minimum off
    (high if below else low)[held] = free.popt[held] + (-span if below else span)
    inside = np.clip(start, np.maximum(low, -1e3) + 0.01, np.minimum(high, 1e3) - 0.01)
    fit = tercet.curve_fit(ours[model], T, y, inside, bounds=(low, high))
    assert np.all((fit.popt >= low) & (fit.popt <= high))

    def residuals(p):
        return model(np, T, *p) - y

    nearby = np.clip(fit.popt, low + 1e-6 * (1.0 + abs(fit.popt)), high - 1e-6 * (1.0 + abs(fit.popt)))
    found = scipy.optimize.least_squares(residuals, nearby, bounds=(low, high), x_scale="jac", **TIGHT)
    cost = 0.5 * np.sum(residuals(fit.popt) ** 2)
    if fit.success:
        assert cost <= found.cost * (1.0 + 1e-9)
        if held in fit.certificate.active:
            assert np.isnan(fit.pcov[held]).all()


@quick
@given(curves(), st.sampled_from(["linear", "soft_l1", "cauchy", "arctan"]), st.integers(0, 3))
def test_robust_fits_are_where_scipy_stays(curve, loss, outliers):
    model, y, sigma, start = curve
    y = y.copy()
    y[:outliers] += 20.0 * sigma[:outliers]
    scale = 1.0 if loss == "linear" else 0.2

    def fun(p, xp):
        return model(xp, T, *p) - y

    library = jnp if model is decay else np  # one is compiled for each loss
    mine = tercet.least_squares(partial(fun, xp=library), start, loss=loss, f_scale=scale)
    assume(mine.success)  # arctan and cauchy have minima at infinity, which are told from others
    other = scipy.optimize.least_squares(partial(fun, xp=np), mine.x, loss=loss, f_scale=scale, x_scale="jac", **TIGHT)
    assert mine.cost == pytest.approx(other.cost, rel=1e-9)
    np.testing.assert_allclose(mine.x, other.x, rtol=1e-4, atol=1e-4 * np.max(np.abs(other.x)))
    np.testing.assert_allclose(mine.fun, other.fun, atol=1e-4 * np.max(np.abs(y)))


@quick
@given(curves((decay, peak, growth)))
def test_many_curves_are_certified_where_scipy_stays(curve):
    model, y, _, start = curve
    fits = tercet.curve_fit_many(ours[model], T, np.stack([y, y[::-1] if model is peak else y]), start)
    for k in np.flatnonzero(fits.success):
        again = y if k == 0 or model is not peak else y[::-1]
        popt, pcov = scipy.optimize.curve_fit(theirs[model], T, again, fits.popt[k], **TIGHT)
        np.testing.assert_allclose(fits.popt[k], popt, rtol=1e-6, atol=1e-6 * np.max(np.abs(popt)))
        np.testing.assert_allclose(fits.errors[k], np.sqrt(np.diag(pcov)), rtol=1e-4)
