"""`curve_fit`, `least_squares` and `curve_fit_many`: SciPy's contracts, NIST's numbers, and what is refused."""

import warnings

import numpy as np
import pytest
import scipy.optimize

import tercet

jax = pytest.importorskip("jax")
jnp = jax.numpy

RNG = np.random.default_rng(0)
X = np.linspace(0.0, 4.0, 40)
Y = 2.5 * np.exp(-1.3 * X) + 0.5 + 0.1 * RNG.standard_normal(40)
S = RNG.uniform(0.05, 0.2, 40)
# Misra1a of NIST StRD
MISRA_X = np.array([77.6, 114.9, 141.1, 190.8, 239.9, 289.0, 332.8, 378.4, 434.8, 477.3, 536.8, 593.1, 689.1, 760.0])
MISRA_Y = np.array([10.07, 14.73, 17.94, 23.93, 29.61, 35.18, 40.02, 44.82, 50.76, 55.05, 61.01, 66.40, 75.47, 81.78])


def traced(x, a, b, c):
    return a * jnp.exp(-b * x) + c


def plain(x, a, b, c):
    return a * np.exp(-b * np.asarray(x)) + c


def slopes(x, a, b, c):
    e = np.exp(-b * x)
    return np.stack([e, -a * x * e, np.ones_like(x)], axis=1)


@pytest.mark.parametrize("absolute", [False, True])
@pytest.mark.parametrize("sigma", [None, S, np.diag(S**2) + 1e-3], ids=["no sigma", "sigma", "covariance"])
@pytest.mark.parametrize(("f", "jac"), [(traced, None), (plain, None), (plain, slopes)], ids=["JAX", "NumPy", "jac"])
def test_popt_and_pcov_are_those_of_scipy(f, jac, sigma, absolute):
    popt, pcov = tercet.curve_fit(f, X, Y, sigma=sigma, absolute_sigma=absolute, jac=jac)
    tight = {"xtol": 1e-14, "ftol": 1e-14, "gtol": 0.0}
    theirs, cov = scipy.optimize.curve_fit(
        plain, X, Y, p0=popt, sigma=sigma, absolute_sigma=absolute, jac=slopes, **tight
    )
    np.testing.assert_allclose(popt, theirs, rtol=1e-6)
    np.testing.assert_allclose(pcov, cov, rtol=1e-5)


def test_certified_parameters_and_standard_errors_of_nist():
    fit = tercet.curve_fit(lambda x, a, b: a * (1 - jnp.exp(-b * x)), MISRA_X, MISRA_Y, [500.0, 1e-4])
    np.testing.assert_allclose(fit.popt, [2.3894212918e02, 5.5015643181e-04], rtol=1e-10)
    np.testing.assert_allclose(fit.errors, [2.7070075241e00, 7.2668688436e-06], rtol=1e-8)
    assert fit.success
    assert fit.digits >= 10
    assert fit.names == ("a", "b")


def test_a_start_far_out_is_not_left_for_where_the_data_tell_nothing():
    x = np.array([4, 2, 1, 0.5, 0.25, 0.167, 0.125, 0.1, 0.0833, 0.0714, 0.0625])  # MGH09 of NIST StRD, first start
    y = np.array([0.1957, 0.1947, 0.1735, 0.16, 0.0844, 0.0627, 0.0456, 0.0342, 0.0323, 0.0235, 0.0246])
    fit = tercet.curve_fit(lambda x, a, b, c, d: a * (x**2 + x * b) / (x**2 + x * c + d), x, y, [25, 39, 41.5, 39])
    certified = [1.9280693458e-01, 1.9128232873e-01, 1.2305650693e-01, 1.3606233068e-01]
    np.testing.assert_allclose(fit.popt, certified, rtol=1e-9)
    assert fit.success


def test_what_a_fit_tells():
    fit = tercet.curve_fit(traced, X, Y)
    np.testing.assert_allclose(fit.residuals, plain(X, *fit.popt) - Y, atol=1e-12)
    np.testing.assert_allclose(fit.predict(X), plain(X, *fit.popt))
    low, high = fit.band(X, width=1.0)
    J = slopes(X, *fit.popt)
    np.testing.assert_allclose(0.5 * (high - low), np.sqrt(np.einsum("ni,ij,nj->n", J, fit.pcov, J)), rtol=1e-5)
    assert "+-" in str(fit)
    assert fit.certificate.holds


def test_the_plot_has_data_curve_and_band():
    matplotlib = pytest.importorskip("matplotlib")
    matplotlib.use("Agg")
    axes = tercet.curve_fit(traced, X, Y).plot()
    assert len(axes.lines) == 2
    assert len(axes.collections) == 1
    two = tercet.curve_fit(lambda x, a, b: a * x[0] + b * x[1], (X, X**2), Y)
    with pytest.raises(ValueError, match="one variable"):
        two.plot()


def test_integers_are_numbers_and_a_tuple_of_variables_is_fine():
    x = np.arange(10)
    fit = tercet.curve_fit(lambda x, a, b: a * x + b, x, 3 * x + 1)
    np.testing.assert_allclose(fit.popt, [3.0, 1.0], rtol=1e-9)
    popt, _ = tercet.curve_fit(lambda x, a, b: a * x[0] + b * x[1], (X, X**2), 2 * X - X**2 + 1e-3 * np.sin(99 * X))
    np.testing.assert_allclose(popt, [2.0, -1.0], atol=1e-2)


def test_a_fit_that_is_not_certified_does_not_unpack():
    fit = tercet.curve_fit(traced, X, Y, [1.0, 1.0, 1.0], max_iterations=1)
    assert not fit.success
    with pytest.raises(RuntimeError, match="iteration budget"):
        _popt, _pcov = fit


def test_what_data_do_not_tell_has_no_covariance():
    with pytest.warns(scipy.optimize.OptimizeWarning, match="cannot be estimated"):
        fit = tercet.curve_fit(lambda x, a, b: (a + b) * x, X, 2 * X + 0.01 * np.sin(50 * X))
    assert np.all(np.isinf(fit.pcov))
    assert fit.certificate.strict is not True


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        ({"ydata": np.where(Y > 1, np.nan, Y)}, "nan or inf"),
        ({"xdata": np.where(X > 1, np.inf, X)}, "nan or inf"),
        ({"ydata": Y[:, None]}, "vector"),
        ({"p0": [1.0, 2.0, 3.0, 4.0]}, "takes 3 parameters"),
        ({"p0": [1.0, np.nan, 3.0]}, "finite"),
        ({"sigma": -S}, "positive"),
        ({"sigma": S[:-1]}, "shape"),
        ({"sigma": -np.eye(40)}, "positive definite"),
        ({"bounds": (1.0, 0.0)}, "bounds of x.0. cross"),
        ({"f": 3}, "is a function"),
        ({"f": lambda x, *p: x}, "pass p0"),
    ],
)
def test_bad_arguments_are_refused(arguments, says):
    with pytest.raises(ValueError, match=says):
        tercet.curve_fit(**{"f": traced, "xdata": X, "ydata": Y, **arguments})


def test_infinite_bounds_are_none():
    assert tercet.curve_fit(traced, X, Y, bounds=(-np.inf, np.inf)).success


@pytest.mark.parametrize("loss", ["linear", "soft_l1", "cauchy", "arctan"])
def test_least_squares_has_the_fields_of_scipy(loss):
    def fun(p, x, y):
        return plain(x, *p) - y

    ours = tercet.least_squares(fun, [2.0, 1.0, 0.3], loss=loss, f_scale=1.0 if loss == "linear" else 0.2, args=(X, Y))
    theirs = scipy.optimize.least_squares(
        fun, [2.0, 1.0, 0.3], loss=loss, f_scale=0.2, args=(X, Y), xtol=1e-15, ftol=1e-15, gtol=1e-15
    )
    assert ours.success
    assert ours.certificate.holds
    np.testing.assert_allclose(ours.x, theirs.x, rtol=1e-5)
    assert ours.cost == pytest.approx(theirs.cost, rel=1e-10)
    np.testing.assert_allclose(ours.fun, fun(ours.x, X, Y))
    assert set(theirs) <= set(ours)
    assert ours.optimality <= 1e-6


def test_least_squares_takes_jax_and_a_jacobian():
    by_jax = tercet.least_squares(lambda p: jnp.stack([10 * (p[1] - p[0] ** 2), 1 - p[0]]), [-1.2, 1.0])
    by_hand = tercet.least_squares(
        lambda p: np.array([10 * (p[1] - p[0] ** 2), 1 - p[0]]),
        [-1.2, 1.0],
        lambda p: np.array([[-20 * p[0], 10.0], [-1.0, 0.0]]),
    )
    for found in (by_jax, by_hand):
        assert found.status == 1
        np.testing.assert_allclose(found.x, 1.0, rtol=1e-9)


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        ({"jac": "magic"}, "jac is a function"),
        ({"bounds": (0, 5, 7)}, "give .low, high."),
        ({"loss": "l7"}, "unknown loss"),
    ],
)
def test_least_squares_refuses(arguments, says):
    with pytest.raises(ValueError, match=says):
        tercet.least_squares(lambda p: p, [1.0], **arguments)


K = 60
MANY = np.stack([plain(X, a, b, 0.5) for a, b in RNG.uniform([1.0, 0.8], [4.0, 2.0], (K, 2))])
MANY = MANY + 0.05 * RNG.standard_normal(MANY.shape)


@pytest.mark.parametrize("sigma", [None, S], ids=["no sigma", "sigma"])
def test_many_curves_are_what_each_is_alone(sigma):
    fits = tercet.curve_fit_many(traced, X, MANY, [2.0, 1.0, 0.3], sigma)
    assert fits.success.all()
    assert len(fits) == K
    assert len(fits.alone) <= 2
    for k in (0, 17, K - 1):
        one = tercet.curve_fit(traced, X, MANY[k], [2.0, 1.0, 0.3], sigma)
        np.testing.assert_allclose(fits.popt[k], one.popt, rtol=1e-8)
        np.testing.assert_allclose(fits.errors[k], one.errors, rtol=1e-7)
        true = -np.log10(np.max(np.abs(fits.popt[k] / one.popt - 1)) + 1e-16)
        assert min(fits.digits[k], one.digits) <= true + 0.5
    assert fits.fit(3).success


def cumulative(x, a, b):
    return jnp.cumsum(a * jnp.exp(-b * x))


def peak(x, a, m, s, b, c):
    return a * jnp.exp(-0.5 * ((x - m) / s) ** 2) + b + c * x


@pytest.mark.parametrize(
    ("f", "low", "high"),
    [
        (cumulative, [1.0, 0.3], [2.0, 1.0]),
        (peak, [1.0, 1.0, 0.5, 0.2, -0.2], [5.0, 3.0, 1.0, 1.0, 0.2]),
    ],
)
def test_other_models_end_where_single_fits_end_with_the_digits_they_claim(f, low, high):
    rng = np.random.default_rng(3)
    true, sigma = rng.uniform(low, high, (300, len(low))), rng.uniform(0.01, 0.1, (300, 40))
    y = np.stack([np.asarray(f(X, *p)) for p in true]) + sigma * rng.standard_normal((300, 40))
    start = true * rng.uniform(0.9, 1.1, true.shape)
    fits = tercet.curve_fit_many(f, X, y, start, sigma, absolute_sigma=True)
    assert fits.success.mean() >= 0.99
    assert len(fits.alone) == 0
    for k in np.flatnonzero(fits.success)[::60]:
        exact = tercet.Tolerances(relative=1e-14)
        one = tercet.curve_fit(f, X, y[k], start[k], sigma[k], absolute_sigma=True, tol=exact)
        off = np.max(np.abs(fits.popt[k] / one.popt - 1.0)) + 1e-16
        assert off <= 1e-9
        assert fits.digits[k] <= 1.0 - np.log10(off)
        np.testing.assert_allclose(fits.pcov[k], one.pcov, rtol=1e-7)
        assert fits.cost[k] == pytest.approx(one.result.fun, rel=1e-12)


def test_curves_in_parts_and_in_any_order_are_the_same(monkeypatch):
    from tercet.fitting import together

    whole = tercet.curve_fit_many(traced, X, MANY, [2.0, 1.0, 0.3])
    monkeypatch.setattr(together, "HELD", 20 * X.size)
    parts = tercet.curve_fit_many(traced, X, MANY[::-1], [2.0, 1.0, 0.3])
    np.testing.assert_allclose(parts.popt[::-1], whole.popt, rtol=1e-9)
    assert parts.success.all()


def test_covariances_that_normal_equations_would_lose():
    def near(x, a, b):
        return a * x + b * (x + 1e-5 * jnp.sin(9 * x))

    y = np.stack([3.0 * X + 2e-5 * np.sin(9 * X) + 1e-3 * np.cos((k + 5) * X) for k in range(3)])
    fits = tercet.curve_fit_many(near, X, y, [1.0, 1.0])
    assert fits.success.all()
    J = np.stack([X, X + 1e-5 * np.sin(9 * X)], axis=1)
    Q, R = np.linalg.qr(J)
    W = np.linalg.inv(R)
    for k in range(3):
        r = y[k] - Q @ (Q.T @ y[k])
        np.testing.assert_allclose(fits.pcov[k], W @ W.T * (r @ r) / 38, rtol=1e-6)


def test_a_curve_that_is_not_certified_says_why():
    hard = MANY[:4].copy()
    hard[2] = np.cos(20 * X)  # no such curve
    fits = tercet.curve_fit_many(traced, X, hard, [2.0, 1.0, 0.3], max_iterations=30)
    assert fits.success[[0, 1, 3]].all()
    assert fits.success[2] or fits.status[2] in (tercet.Status.MAX_ITERATIONS, tercet.Status.NOT_CERTIFIED)
    short = tercet.curve_fit_many(traced, X, MANY[:4], [20.0, 9.0, -3.0], max_iterations=1)
    assert not short.success.any()
    assert set(short.status) == {tercet.Status.MAX_ITERATIONS}
    assert np.isinf(short.pcov).all()


def test_what_data_do_not_tell_is_never_a_success():
    fits = tercet.curve_fit_many(lambda x, a, b, c: (a + b) * x + c, X, MANY[:5], [1.0, 1.0, 1.0])
    assert not fits.success.any()
    away = tercet.curve_fit_many(lambda x, a, b: a + jnp.exp(-b * b * x), X, np.ones((3, 40)), [0.5, 30.0])
    assert not away.success.any()  # f only falls towards b = inf


def test_a_model_that_is_not_finite_at_the_start_says_so():
    y = np.stack([2.0 * np.log(X + 2.5) + 0.01 * np.sin(9 * X)] * 2)
    fits = tercet.curve_fit_many(lambda x, a, b: a * jnp.log(b + x), X + 1.0, y, [[1.0, 1.0], [1.0, -9.0]])
    assert fits.success[0]
    assert fits.status[1] is tercet.Status.NOT_FINITE


def test_curves_that_are_not_certified_together_may_be_fitted_alone():
    hard = MANY[:3].copy()
    start = np.array([[2.0, 1.0, 0.3], [-1e3, -4.0, 1e3], [2.0, 1.0, 0.3]])
    together = tercet.curve_fit_many(traced, X, hard, start, max_iterations=5)
    assert not together.success[1]
    fits = tercet.curve_fit_many(traced, X, hard, start, max_iterations=5, alone=True)
    assert list(fits.alone) == list(np.flatnonzero(~together.success))
    one = tercet.curve_fit(traced, X, hard[1], start[1], max_iterations=5)
    assert fits.success[1] == one.success
    np.testing.assert_array_equal(fits.popt[1], one.popt)


def test_an_interruption_leaves_what_was_reached(monkeypatch):
    from tercet.fitting import together

    calls = []

    def interrupt(*arguments):
        calls.append(1)
        if len(calls) == 3:
            raise KeyboardInterrupt
        return advance(*arguments)

    advance = together.steps.advance
    monkeypatch.setattr(together.steps, "advance", interrupt)
    fits = tercet.curve_fit_many(traced, X, MANY, [2.0, 1.0, 0.3])
    assert set(fits.status) == {tercet.Status.INTERRUPTED}
    assert not fits.success.any()
    first = 0.5 * np.sum((traced(X, 2.0, 1.0, 0.3) - MANY) ** 2, axis=1)
    assert (fits.cost < first).all()
    np.testing.assert_allclose(
        fits.cost, [0.5 * np.sum((plain(X, *p) - y) ** 2) for p, y in zip(fits.popt, MANY, strict=True)]
    )


def test_many_curves_of_a_numpy_model_are_fitted_one_by_one():
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        fits = tercet.curve_fit_many(plain, X, MANY[:2], [2.0, 1.0, 0.3])
    assert list(fits.alone) == [0, 1]
    assert fits.success.all()


@pytest.mark.parametrize(
    ("arguments", "says"),
    [({"ydata": Y}, "a row for each"), ({"p0": np.ones((3, 3))}, "3 rows"), ({"sigma": np.zeros(40)}, "positive")],
)
def test_many_refuses(arguments, says):
    with pytest.raises(ValueError, match=says):
        tercet.curve_fit_many(traced, X, **{"ydata": MANY, **arguments})
