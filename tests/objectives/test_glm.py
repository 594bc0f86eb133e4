"""Losses of generalized linear models: derivatives against automatic ones, likelihoods against SciPy's distributions,
fits against statsmodels."""

import warnings

import jax
import jax.numpy as jnp
import numpy as np
import pytest
import scipy.sparse as sp
import scipy.stats

import tercet
from tercet.objectives.glm import Gamma, NegativeBinomial, Poisson, SmoothQuantile
from tercet.objectives.losses import Formula, as_loss

LOSSES = [
    Poisson(), NegativeBinomial(), NegativeBinomial(0.03), NegativeBinomial(40.0), Gamma(),
    SmoothQuantile(), SmoothQuantile(0.9, 0.2), SmoothQuantile(0.05, 3.0),
]  # fmt: skip
# The textbook formulas, which lose digits and overflow where ours do not.
PLAIN = {
    Poisson: lambda loss: lambda z, y: jnp.exp(z) - y * z,
    NegativeBinomial: lambda loss: lambda z, y: (y + loss.r) * jnp.log(loss.r + jnp.exp(z)) - y * z,
    Gamma: lambda loss: lambda z, y: y * jnp.exp(-z) + z,
    SmoothQuantile: lambda loss: (
        lambda z, y: loss.scale * jnp.logaddexp(0.0, (z - y) / loss.scale) - loss.quantile * (z - y)
    ),
}


def targets(loss):
    if isinstance(loss, SmoothQuantile):
        return np.array([-2.5, 0.0, 0.37, 4.0])
    return np.array([0.01, 1.0, 3.0, 250.0] if isinstance(loss, Gamma) else [0.0, 1.0, 3.0, 250.0])


def grid(loss):
    return (a.ravel() for a in np.meshgrid(np.linspace(-7, 7, 57) + 0.013, targets(loss)))


@pytest.mark.parametrize("loss", LOSSES, ids=repr)
def test_derivatives_equal_automatic_ones(loss):
    z, y = grid(loss)
    found = loss.derivatives(z, y)
    f = PLAIN[type(loss)](loss)
    chain = [f]
    for _ in range(3):
        chain.append(jax.grad(chain[-1]))
    with jax.enable_x64(True):
        theirs = [np.asarray(jax.vmap(g)(z, y)) for g in chain]
    for order in (1, 2, 3):
        np.testing.assert_allclose(found[order], theirs[order], rtol=1e-10, atol=1e-12 * np.abs(theirs[order]).max())
    for value in np.unique(y):  # the value but for what depends on y alone
        rows = y == value
        ours, own = found[0][rows], theirs[0][rows]
        np.testing.assert_allclose(ours - ours[0], own - own[0], rtol=1e-10, atol=1e-12 * np.abs(own).max())


@pytest.mark.parametrize("loss", LOSSES, ids=repr)
def test_a_part_alone_is_that_derivative_and_nothing_is_written(loss):
    z, y = grid(loss)
    before = z.copy(), y.copy()
    formula = Formula.of(loss, True)
    assert formula.part is not None
    assert Formula.of(loss, False) == Formula()
    for order, whole in enumerate(loss.derivatives(z, y)):
        np.testing.assert_array_equal(formula.part(order, z, y), whole)
    np.testing.assert_array_equal(z, before[0])
    np.testing.assert_array_equal(y, before[1])


@pytest.mark.parametrize("loss", LOSSES, ids=repr)
@pytest.mark.parametrize("far", [30.0, 600.0, 1e5])
def test_the_tails_have_no_nan_and_no_warnings(loss, far):
    z, y = (a.ravel() for a in np.meshgrid([far, -far], targets(loss)))
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        parts = loss.derivatives(z, y)
    assert not any(np.any(np.isnan(part)) for part in parts)
    bounded = isinstance(loss, NegativeBinomial | SmoothQuantile)
    assert all(np.all(np.isfinite(part)) for part in parts) or (far > 700 and not bounded)


@pytest.mark.parametrize("loss", LOSSES[:5], ids=repr)
def test_half_the_deviance_is_0_at_the_target_and_keeps_its_digits_beside_it(loss):
    y = np.array([1.0, 3.0, 1e6])
    np.testing.assert_array_equal(loss.part(0, np.log(y), y), 0.0)
    beside = np.log(y) + 1e-6  # l = l'' u^2 / 2 to first order
    second = loss.part(2, np.log(y), y)
    np.testing.assert_allclose(loss.part(0, beside, y), 0.5e-12 * second, rtol=1e-4)


@pytest.mark.parametrize("dispersion", [0.03, 1.0, 40.0])
def test_the_likelihood_of_the_negative_binomial_is_scipys(dispersion):
    y, z = (a.ravel() for a in np.meshgrid(np.arange(9.0), np.linspace(-3, 4, 15)))
    r, mu = 1 / dispersion, np.exp(z)
    ours = NegativeBinomial(dispersion).log_likelihood(z, y, 1.0)
    np.testing.assert_allclose(ours, scipy.stats.nbinom.logpmf(y, r, r / (r + mu)), rtol=1e-9)
    np.testing.assert_allclose(NegativeBinomial(dispersion).variance(mu), scipy.stats.nbinom.var(r, r / (r + mu)))


def test_the_other_likelihoods_are_scipys():
    y, z = (a.ravel() for a in np.meshgrid(np.arange(9.0), np.linspace(-3, 4, 15)))
    np.testing.assert_allclose(Poisson().log_likelihood(z, y, 1.0), scipy.stats.poisson.logpmf(y, np.exp(z)), rtol=1e-9)
    y, phi = y + 0.5, 0.3
    theirs = scipy.stats.gamma.logpdf(y, 1 / phi, scale=np.exp(z) * phi)
    np.testing.assert_allclose(Gamma().log_likelihood(z, y, phi), theirs, rtol=1e-9)
    theirs = scipy.stats.norm.logpdf(y, z, np.sqrt(phi))
    np.testing.assert_allclose(as_loss("squares", None).log_likelihood(z, y, phi), theirs, rtol=1e-9)
    y = (y > 4).astype(float)
    theirs = scipy.stats.bernoulli.logpmf(y, 1 / (1 + np.exp(-z)))
    np.testing.assert_allclose(as_loss("logistic", None).log_likelihood(z, y, 1.0), theirs, rtol=1e-9)


# fits -----------------------------------------------------------------------------------------------------------------


def data(seed=0, n=400, d=4):
    rng = np.random.default_rng(seed)
    X = rng.standard_normal((n, d))
    mu = np.exp(X @ np.array([0.5, -0.3, 0.2, 0.0]) + 0.7)
    return rng, X, mu


def family(loss, sm):
    return {
        Poisson: lambda: sm.families.Poisson(),
        NegativeBinomial: lambda: sm.families.NegativeBinomial(alpha=loss.dispersion),
        Gamma: lambda: sm.families.Gamma(sm.families.links.Log()),
    }[type(loss)]()


@pytest.mark.parametrize("sparse", [False, True], ids=["dense", "CSR"])
@pytest.mark.parametrize("loss", [Poisson(), NegativeBinomial(0.5), Gamma()], ids=repr)
def test_coefficients_are_those_of_statsmodels(loss, sparse):
    sm = pytest.importorskip("statsmodels.api")
    rng, X, mu = data()
    draws = {Poisson: lambda: rng.poisson(mu), Gamma: lambda: rng.gamma(2.0, mu / 2)}
    y = draws.get(type(loss), lambda: rng.negative_binomial(2, 2 / (2 + mu)))().astype(float)
    result = tercet.minimize(tercet.LinearModel(sp.csr_array(X) if sparse else X, y, loss, intercept=True))
    assert result.success
    theirs = sm.GLM(y, np.column_stack([X, np.ones(len(y))]), family=family(loss, sm)).fit(tol=1e-14, maxiter=200)
    np.testing.assert_allclose(result.x, theirs.params, rtol=1e-7, atol=1e-8)
    assert result.fun == pytest.approx(theirs.deviance / (2 * len(y)), rel=1e-9)


def test_a_narrow_smooth_quantile_is_statsmodels_quantile():
    sm = pytest.importorskip("statsmodels.api")
    rng, X, _ = data(n=2000)
    y = X @ np.array([1.0, -1.0, 0.5, 0.0]) + (1 + 0.5 * np.abs(X[:, 0])) * rng.standard_normal(len(X))
    A = np.column_stack([X, np.ones(len(y))])
    theirs = sm.QuantReg(y, A).fit(q=0.8).params
    result = tercet.minimize(tercet.LinearModel(A, y, SmoothQuantile(0.8, 0.02)))
    assert result.success
    np.testing.assert_allclose(result.x, theirs, atol=0.02)
    wide = tercet.minimize(tercet.LinearModel(A, y, SmoothQuantile(0.8, 2.0)))
    assert np.abs(wide.x - theirs).max() > 0.1  # the width is seen


@pytest.mark.parametrize("loss", ["poisson", "negative_binomial", "gamma"])
@pytest.mark.parametrize("size", [1e-6, 1.0, 1e6])
def test_a_fit_from_zero_finds_means_of_any_size(loss, size):
    rng, X, mu = data(1)
    y = np.round(size * mu * rng.gamma(2.0, 0.5, len(mu)), 0 if size > 1 and loss != "gamma" else 12)
    result = tercet.minimize(tercet.LinearModel(X, y, loss, intercept=True))
    assert result.success
    assert result.x[-1] == pytest.approx(np.log(size) + 0.7, abs=0.3)


# misuse ---------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("loss", "y", "named"),
    [("poisson", [1, -2, 0], "-2.0"), ("negative_binomial", [-0.5, 1, 2], "-0.5"), ("gamma", [1, 0, 2], "0.0")],
)
def test_targets_that_a_loss_does_not_take_are_refused(loss, y, named):
    with pytest.raises(ValueError, match=rf"loss='{loss}'\): y holds \[{named}\]"):
        tercet.LinearModel(np.eye(3), y, loss)


@pytest.mark.parametrize("dispersion", [0.0, -1.0, np.nan, np.inf, "1", True])
def test_a_bad_dispersion_is_refused(dispersion):
    with pytest.raises(ValueError, match=r"NegativeBinomial\(dispersion="):
        NegativeBinomial(dispersion)


@pytest.mark.parametrize("quantile", [0.0, 1.0, -1.0, np.nan, "0.5"])
def test_a_bad_quantile_is_refused(quantile):
    with pytest.raises(ValueError, match=r"SmoothQuantile\(quantile="):
        SmoothQuantile(quantile)


@pytest.mark.parametrize("scale", [0.0, -1.0, np.nan, np.inf])
def test_a_bad_scale_is_refused(scale):
    with pytest.raises(ValueError, match=r"SmoothQuantile\(scale="):
        SmoothQuantile(0.5, scale)


def test_a_scale_goes_with_the_smooth_quantile_by_name():
    assert as_loss("smooth_quantile", 0.3) == SmoothQuantile(0.5, 0.3)
    with pytest.raises(ValueError, match=r"loss='poisson', scale=2\.0"):
        as_loss("poisson", 2.0)
