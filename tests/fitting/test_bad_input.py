"""What fits are given that is not right: a clear error, or a status that says so, and never a false success."""

import numpy as np
import pytest
from scipy.optimize import OptimizeWarning

import tercet

jax = pytest.importorskip("jax")
jnp = jax.numpy

T = np.linspace(0.0, 4.0, 30)
Y = 2.5 * np.exp(-1.3 * T) + 0.5 + 0.02 * np.sin(40 * T)


def numpy_model(x, a, b, c):
    return a * np.exp(-b * np.asarray(x)) + c


def jax_model(x, a, b, c):
    return a * jnp.exp(-b * x) + c


def both(test):
    return pytest.mark.parametrize("f", [numpy_model, jax_model], ids=["NumPy", "JAX"])(test)


def test_residuals_that_change_their_number_are_an_error_of_the_function():
    def fun(p):
        return np.asarray(p)[:1] * np.ones(5 if p[0] > 0.9 else 4) - 0.5

    found = tercet.least_squares(fun, [1.0])
    assert not found.success
    assert "shape (4,), but (5,)" in found.message
    assert found.cost <= 0.5 * 5 * 0.25
    always = iter(range(3, 99))
    with pytest.raises(ValueError, match="keep their number"):
        tercet.least_squares(lambda p: np.ones(next(always)) * float(p[0]), [1.0])


@pytest.mark.parametrize("bad", [np.nan, np.inf])
@pytest.mark.parametrize("name", ["xdata", "ydata", "p0", "sigma"])
@both
def test_data_that_are_not_finite_are_refused_by_name(f, name, bad):
    given = {"xdata": T.copy(), "ydata": Y.copy(), "p0": np.ones(3), "sigma": np.ones(30)}
    given[name][1] = bad
    with pytest.raises(ValueError, match=f"{name}.*(nan or inf|finite)"):
        tercet.curve_fit(f, **given)


def test_data_that_are_not_finite_are_refused_by_many_fits():
    with pytest.raises(ValueError, match="nan or inf"):
        tercet.curve_fit_many(jax_model, T, np.stack([Y, np.where(T > 3, np.nan, Y)]), [2.0, 1.0, 0.3])


@both
def test_fewer_residuals_than_parameters_are_fitted_and_not_identified(f):
    with pytest.warns(OptimizeWarning, match="cannot be estimated"):
        fit = tercet.curve_fit(f, T[:2], Y[:2], [2.0, 1.0, 0.3])
    assert np.all(np.isinf(fit.pcov))
    assert np.max(np.abs(fit.residuals)) < 1e-6
    assert fit.certificate.strict is not True
    if fit.success:
        assert fit.certificate.involved


def test_fewer_residuals_than_parameters_in_many_fits_are_no_success():
    fits = tercet.curve_fit_many(jax_model, T[:2], np.stack([Y[:2], Y[:2] + 0.1]), [2.0, 1.0, 0.3])
    assert not fits.success.any()
    assert np.all(np.isinf(fits.pcov))


@both
def test_a_start_outside_the_bounds_is_moved_inside_and_the_message_says_so(f):
    bounds = ([0.0, 0.0, 0.0], [9.0, 9.0, 9.0])
    inside, outside = (tercet.curve_fit(f, T, Y, p0, bounds=bounds) for p0 in ([2.0, 1.0, 0.3], [-5.0, 1.0, 0.3]))
    assert inside.success
    assert outside.success
    np.testing.assert_allclose(outside.popt, inside.popt, rtol=1e-6)
    assert "outside" in outside.result.message
    assert "outside" not in inside.result.message


def test_bounds_that_cross_are_refused_by_name():
    for fit in (
        lambda: tercet.curve_fit(numpy_model, T, Y, [2.0, 1.0, 0.3], bounds=([0.0, 5.0, 0.0], [9.0, 4.0, 9.0])),
        lambda: tercet.least_squares(lambda p: numpy_model(T, *p) - Y, [2.0, 1.0, 0.3], bounds=(3.0, 2.0)),
    ):
        with pytest.raises(ValueError, match="bounds="):
            fit()


@pytest.mark.parametrize("kind", [int, bool, np.int8, np.uint16])
def test_integers_are_numbers(kind):
    x, y = np.arange(6).astype(kind), np.array([0, 1, 1, 0, 1, 1]).astype(kind)
    expected = np.polyfit(x.astype(float), y.astype(float), 1)[::-1]
    for f in (lambda x, a, b: a + b * np.asarray(x), lambda x, a, b: a + b * jnp.asarray(x)):
        np.testing.assert_allclose(tercet.curve_fit(f, x, y, np.array([1, 1])).popt, expected, rtol=1e-6, atol=1e-9)
    found = tercet.least_squares(lambda p: p - 3, np.array([1, 2]))
    np.testing.assert_allclose(found.x, 3.0)


@both
def test_a_jacobian_that_is_singular_at_the_start_is_left(f):
    fit = tercet.curve_fit(f, T, Y, [0.0, 0.0, 0.0])  # b has no effect there, a and c have the same
    assert fit.success
    np.testing.assert_allclose(fit.popt, tercet.curve_fit(f, T, Y, [2.0, 1.0, 0.3]).popt, rtol=1e-6)


def test_a_jacobian_of_zeros_is_left_or_no_strict_success():
    found = tercet.least_squares(lambda p: jnp.stack([p[0] ** 2 - 1.0, p[1] ** 2 - 4.0]), [0.0, 0.0])
    assert found.success  # from a maximum, down to one of the four zeros
    np.testing.assert_allclose(np.abs(found.x), [1.0, 2.0], rtol=1e-9)
    fits = tercet.curve_fit_many(lambda x, a, b: a * a + b * b * x, T, np.stack([2.0 + 3.0 * T] * 2), [0.0, 0.0])
    assert not fits.success.any()


@pytest.mark.filterwarnings("ignore:overflow", "ignore:curve_fit. the covariance", "ignore:invalid value")
@both
def test_a_model_that_is_not_finite_at_the_start_says_so(f):
    fit = tercet.curve_fit(f, T, Y, [1.0, -1e4, 0.0])
    assert not fit.success
    assert fit.result.status is tercet.Status.NOT_FINITE
    np.testing.assert_array_equal(fit.popt, [1.0, -1e4, 0.0])
    with pytest.raises(RuntimeError, match="finite"):
        _popt, _pcov = fit
