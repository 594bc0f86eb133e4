"""Outer losses: the formulas JAX differentiates are those whose derivatives NumPy has."""

import numpy as np
import pytest
import scipy.optimize

from tercet.objectives.residuals.outer import FORMULAS, Outer

R = np.array([-30.0, -3.0, -1.0, -0.4, -1e-4, 0.0, 1e-4, 0.3, 0.9, 2.5, 40.0])


@pytest.mark.parametrize("scale", [1.0, 0.3, 5.0])
@pytest.mark.parametrize("name", FORMULAS)
def test_derivatives_are_those_of_the_formula(name, scale):
    jax = pytest.importorskip("jax")
    loss = Outer(name, 1.0 if name == "squares" else scale)
    value, first, second = loss.derivatives(R)
    with jax.enable_x64(True):
        rho = lambda r: loss.value(r, jax.numpy)  # noqa: E731
        np.testing.assert_allclose(value, jax.vmap(rho)(R), rtol=1e-13)
        np.testing.assert_allclose(first, jax.vmap(jax.grad(rho))(R), rtol=1e-9, atol=1e-13)
        np.testing.assert_allclose(second, jax.vmap(jax.grad(jax.grad(rho)))(R), rtol=1e-6, atol=1e-9)


@pytest.mark.parametrize("name", FORMULAS)
def test_a_small_residual_counts_as_its_square(name):
    r = np.array([1e-5])
    np.testing.assert_allclose(Outer(name, 1.0).value(r), 0.5 * r * r, rtol=1e-8)


@pytest.mark.parametrize("name", ["soft_l1", "cauchy", "arctan"])
def test_names_mean_what_they_mean_in_scipy(name):
    fun = lambda x: np.array([x[0] - 3.0, 2.0 * x[0]])  # noqa: E731
    theirs = scipy.optimize.least_squares(fun, [0.5], loss=name, f_scale=0.7, max_nfev=1)
    assert theirs.cost == pytest.approx(np.sum(Outer(name, 0.7).value(fun(theirs.x))), rel=1e-12)


@pytest.mark.parametrize("name", FORMULAS)
def test_weights_are_positive_and_at_most_what_bounds_the_loss(name):
    slope, h = Outer(name, 1.0).weights(R)
    assert np.all(h > 0)
    some = R != 0
    assert np.all(h[some] <= slope[some] / R[some] * (1 + 1e-9) + np.finfo(float).tiny)


@pytest.mark.parametrize(
    ("name", "scale", "says"),
    [("absolute", 1.0, "unknown loss"), ("cauchy", 0.0, "positive"), ("squares", 2.0, "scale")],
)
def test_bad_settings_are_refused(name, scale, says):
    with pytest.raises(ValueError, match=says):
        Outer.of("Residuals", name, scale)
