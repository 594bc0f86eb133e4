"""The regularized Taylor model, against automatic differentiation of its definition."""

from functools import partial

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from tercet.model import Bend, DenseModel, ProductModel, Regularizer, add_third
from tercet.records import Forecast

D = 4


def parts(seed=0):
    rng = np.random.default_rng(seed)
    B = rng.standard_normal((D, D))
    T = rng.standard_normal((D, D, D))
    T = sum(T.transpose(p) for p in ((0, 1, 2), (0, 2, 1), (1, 0, 2), (1, 2, 0), (2, 0, 1), (2, 1, 0))) / 6
    return rng.standard_normal(D), B + B.T, T, rng.standard_normal(D), rng


def plain(g, B, T, sigma, power):
    def m(s):
        cubic = 0.0 if T is None else jnp.einsum("abc,a,b,c", T, s, s, s) / 6
        return g @ s + s @ B @ s / 2 + cubic + sigma / power * jnp.sum(s**2) ** (power / 2)

    return m


@partial(jax.jit, static_argnums=(0, 1))
def automatic(cubic, power, g, B, T, sigma, s):
    m = plain(g, B, T if cubic else None, sigma, power)
    return m(s), jax.grad(m)(s), jax.hessian(m)(s), jax.jacfwd(jax.hessian(m))(s)


def derivatives(g, B, T, sigma, power, s):
    """The value and three derivatives of the definition at s."""
    with jax.enable_x64(True):
        given = np.zeros((D, D, D)) if T is None else T
        return [np.asarray(part) for part in automatic(T is not None, power, g, B, given, sigma, s)]


@pytest.mark.parametrize("power", [3, 4])
@pytest.mark.parametrize("cubic", [False, True])
@pytest.mark.parametrize("sigma", [0.0, 0.7, 1e4])
def test_the_dense_model_has_the_derivatives_of_its_formula(power, cubic, sigma):
    g, B, T, s, _ = parts()
    T = T if cubic else None
    value, gradient, hessian, third = derivatives(g, B, T, sigma, power, s)
    model = DenseModel(g, B, T, Regularizer(sigma, power))
    scale = 1 + sigma
    np.testing.assert_allclose(model.value(s), value, rtol=1e-13)
    np.testing.assert_allclose(model.gradient(s), gradient, rtol=1e-12, atol=1e-14 * scale)
    np.testing.assert_allclose(model.hessian(s), hessian, rtol=1e-12, atol=1e-14 * scale)
    np.testing.assert_allclose(model.third_tensor(s), third, rtol=1e-11, atol=1e-13 * scale)


@pytest.mark.parametrize("power", [3, 4])
def test_the_regularizer_alone_has_the_derivatives_of_its_formula(power):
    s = parts()[3]
    regularizer = Regularizer(2.5, power)
    zero = np.zeros(D)
    value, gradient, hessian, third = derivatives(zero, np.zeros((D, D)), None, 2.5, power, s)
    np.testing.assert_allclose(regularizer.value(s), value, rtol=1e-14)
    np.testing.assert_allclose(regularizer.gradient(s), gradient, rtol=1e-13)
    np.testing.assert_allclose(regularizer.hessian(s), hessian, rtol=1e-12, atol=1e-14)
    np.testing.assert_allclose(regularizer.third(s), third, rtol=1e-12, atol=1e-14)


@pytest.mark.parametrize("power", [3, 4])
def test_the_regularizer_vanishes_to_second_order_at_zero(power):
    regularizer, zero = Regularizer(3.0, power), np.zeros(D)
    assert regularizer.value(zero) == 0.0
    np.testing.assert_array_equal(regularizer.gradient(zero), zero)
    np.testing.assert_array_equal(regularizer.hessian(zero), np.zeros((D, D)))


def test_the_third_derivative_of_the_quartic_along_y_is_that_of_the_notes():
    """third m [y]^3 = T[y]^3 + 6 sigma (s'y)|y|^2 (erratum 6)."""
    g, B, T, s, rng = parts()
    model = DenseModel(g, B, T, Regularizer(0.8, 4))
    for y in rng.standard_normal((20, D)):
        along = np.einsum("abc,a,b,c", model.third_tensor(s), y, y, y)
        expected = np.einsum("abc,a,b,c", T, y, y, y) + 6 * 0.8 * (s @ y) * (y @ y)
        np.testing.assert_allclose(along, expected, rtol=1e-11, atol=1e-12)


@pytest.mark.parametrize("seed", range(5))
def test_one_product_along_p_tells_all_of_T_in_which_p_stands_at_least_twice(seed):
    g, B, T, s, rng = parts(seed)
    p = rng.standard_normal(D)
    p /= np.linalg.norm(p)
    bend, a, Tpp = Bend(p, T @ p @ p), s @ p, T @ p @ p
    q = s - a * p
    cube = a**3 * (Tpp @ p) + 3 * a**2 * (Tpp @ q)  # T[s]^3 without T[p, q, q] and T[q]^3
    assert bend @ s @ s @ s == pytest.approx(cube, rel=1e-11, abs=1e-12)
    np.testing.assert_allclose(bend @ s, (bend @ s).T, rtol=1e-13, atol=1e-14)
    np.testing.assert_allclose(bend @ p @ p, Tpp, rtol=1e-12, atol=1e-13)
    model, y = DenseModel(g, B, bend, Regularizer(0.7)), rng.standard_normal(D)
    rise = (model.value(s + 1e-6 * y) - model.value(s - 1e-6 * y)) / 2e-6
    assert model.gradient(s) @ y == pytest.approx(rise, rel=1e-7, abs=1e-7)
    change = (model.gradient(s + 1e-6 * y) - model.gradient(s - 1e-6 * y)) / 2e-6
    np.testing.assert_allclose(model.hessian(s) @ y, change, rtol=1e-6, atol=1e-6)


@pytest.mark.parametrize("power", [3, 4])
def test_the_third_derivative_of_the_regularizer_is_symmetric(power):
    third = Regularizer(1.3, power).third(parts()[3])
    for axes in ((1, 0, 2), (2, 1, 0), (1, 2, 0)):
        np.testing.assert_allclose(third, third.transpose(axes), rtol=1e-14, atol=1e-16)


@pytest.mark.parametrize("power", [3, 4])
@pytest.mark.parametrize("cubic", [False, True])
def test_the_product_model_equals_the_dense_one(power, cubic):
    g, B, T, s, _ = parts(1)
    regularizer = Regularizer(0.4, power)
    product = ProductModel(g, lambda v: B @ v, (lambda u, v: T @ v @ u) if cubic else None, regularizer)
    dense = DenseModel(g, B, T if cubic else None, regularizer)
    value, gradient, (second, third) = product.evaluate(s)
    np.testing.assert_allclose(value, dense.value(s), rtol=1e-13)
    np.testing.assert_allclose(gradient, dense.gradient(s), rtol=1e-12, atol=1e-14)
    quadratic = DenseModel(g, B, None, Regularizer(0.0, power))
    np.testing.assert_allclose(second.decrease, -quadratic.value(s), rtol=1e-13)
    np.testing.assert_allclose(second.gradient, quadratic.gradient(s), rtol=1e-13)
    if not cubic:
        assert third is None
        return
    taylor = DenseModel(g, B, T, Regularizer(0.0, power))
    np.testing.assert_allclose(third.decrease, -taylor.value(s), rtol=1e-12)
    np.testing.assert_allclose(third.gradient, taylor.gradient(s), rtol=1e-12, atol=1e-14)


def test_the_product_model_takes_one_product_of_each_order():
    g, B, T, s, _ = parts(2)
    calls = []
    model = ProductModel(
        g,
        lambda v: calls.append("B") or B @ v,
        lambda u, v: calls.append("T") or T @ v @ u,
        Regularizer(1.0),
    )
    model.evaluate(s)
    assert calls == ["B", "T"]


def test_add_third_adds_one_sixth_to_the_value_and_one_half_to_the_gradient():
    g, B, T, s, _ = parts(3)
    second = Forecast(-float(g @ s + s @ B @ s / 2), g + B @ s)
    third = add_third(second, s, T @ s @ s)
    _, gradient, _, _ = derivatives(g, B, T, 0.0, 4, s)
    np.testing.assert_allclose(third.decrease, second.decrease - np.einsum("abc,a,b,c", T, s, s, s) / 6, rtol=1e-13)
    np.testing.assert_allclose(third.gradient, gradient, rtol=1e-12)


@pytest.mark.parametrize("power", [3, 4])
@pytest.mark.parametrize("size", [1e-50, 1e-150])
def test_the_derivatives_of_the_regularizer_are_finite_at_tiny_steps(power, size):
    u = np.array([0.6, 0.0, -0.8])
    regularizer = Regularizer(2.0, power)
    np.testing.assert_allclose(regularizer.hessian(size * u), size ** (power - 2) * regularizer.hessian(u), rtol=1e-12)
    np.testing.assert_allclose(regularizer.third(size * u), size ** (power - 3) * regularizer.third(u), rtol=1e-12)
