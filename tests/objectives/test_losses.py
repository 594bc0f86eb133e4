"""Losses: three derivatives against automatic differentiation of an independent formula, also far out."""

import warnings

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from tercet.objectives import kernels
from tercet.objectives.linear import LinearModel
from tercet.objectives.losses import (
    LOSSES,
    Cauchy,
    Formula,
    GemanMcClure,
    JaxLoss,
    Logistic,
    SigmoidSquares,
    Welsch,
    as_loss,
)

SCALES = (0.1, 1.0, 5.0)
ROBUST = {
    "cauchy": lambda c: lambda z, y: c**2 / 2 * jnp.log(1 + (z - y) ** 2 / c**2),
    "welsch": lambda c: lambda z, y: c**2 / 2 * (1 - jnp.exp(-((z - y) ** 2) / c**2)),
    "geman_mcclure": lambda c: lambda z, y: c**2 / 2 * (1 - c**2 / (c**2 + (z - y) ** 2)),
}
# Written so that exp never overflows: with y in {0, 1} the loss of z at y = 1 is that of -z at y = 0.
PLAIN = {
    "sigmoid_squares": lambda z, y: 0.5 * (0.5 * (1 + jnp.tanh(z / 2)) - y) ** 2,
    "logistic": lambda z, y: jnp.maximum(z, 0) + jnp.log1p(jnp.exp(-jnp.abs(z))) - y * z,
    "squares": lambda z, y: z**2 / 2 - z * y + y**2 / 2,
}
OF_GLM = ("poisson", "negative_binomial", "gamma", "smooth_quantile")  # in test_glm.py
CASES = [(name, None) for name in PLAIN] + [(name, c) for name in ROBUST for c in SCALES]


def formula(name, scale):
    return PLAIN[name] if scale is None else ROBUST[name](scale)


def grid(name):
    z = np.concatenate([np.linspace(-6, 6, 121) + 0.013, [-30.0, 30.0]])
    targets = (0.0, 1.0) if name in ("sigmoid_squares", "logistic") else (0.0, 1.0, -2.5, 0.37)
    Z, Y = (a.ravel() for a in np.meshgrid(z, targets))
    return Z, Y


def automatic(f, z, y):
    chain = [f]
    for _ in range(3):
        chain.append(jax.grad(chain[-1]))
    with jax.enable_x64(True):
        return [np.asarray(jax.jit(jax.vmap(g))(z, y)) for g in chain]


def test_every_loss_is_in_this_test():
    assert {name for name, _ in CASES} == set(LOSSES) - set(OF_GLM)


@pytest.mark.parametrize(("name", "scale"), CASES)
def test_value_and_three_derivatives_equal_automatic_differentiation(name, scale):
    z, y = grid(name)
    found = as_loss(name, scale).derivatives(z, y)
    for order, (ours, theirs) in enumerate(zip(found, automatic(formula(name, scale), z, y), strict=True)):
        # The plain formula subtracts numbers near its own size, with one more power of 1/c for each derivative.
        scale_of_order = max(1.0, np.abs(theirs).max())
        np.testing.assert_allclose(ours, theirs, rtol=1e-10, atol=3e-14 * scale_of_order, err_msg=f"order {order}")


@pytest.mark.parametrize(("name", "scale"), CASES)
def test_each_derivative_is_the_slope_of_the_one_before(name, scale):
    """Central differences of the closed form itself: error h^2/6 |l^(k+3)| + eps |l^(k)| / h."""
    z, y = grid(name)
    c, h = scale or 1.0, 1e-5 * (scale or 1.0)
    up, here, down = (as_loss(name, scale).derivatives(z + k * h, y) for k in (1, 0, -1))
    for order in range(3):
        slope = (up[order] - down[order]) / (2 * h)
        rounding = 1e-15 * (np.abs(here[order]) + c ** (2 - order) + np.abs(z * here[1]) * (order == 0)) / h
        error = 200 * h**2 / c ** (order + 1) + 4 * rounding
        assert np.all(np.abs(slope - here[order + 1]) <= error), f"order {order + 1}"


@pytest.mark.parametrize(("name", "scale"), CASES)
@pytest.mark.parametrize("far", [30.0, 800.0, 1e5])
def test_the_tails_are_finite_and_without_warnings(name, scale, far):
    z, y = np.array([far, far, -far, -far]), np.array([0.0, 1.0, 0.0, 1.0])
    with warnings.catch_warnings(), np.errstate(over="raise", divide="raise", invalid="raise"):
        warnings.simplefilter("error")
        parts = as_loss(name, scale).derivatives(z, y)
    assert all(np.all(np.isfinite(part)) for part in parts)


def test_the_tails_have_their_limits():
    z, y = np.array([800.0, 800.0, -800.0, -800.0]), np.array([0.0, 1.0, 0.0, 1.0])
    l0, l1, l2, l3 = as_loss("sigmoid_squares", None).derivatives(z, y)
    np.testing.assert_array_equal(l0, [0.5, 0, 0, 0.5])
    for part in (l1, l2, l3):
        np.testing.assert_array_equal(part, 0.0)
    l0, l1, l2, _ = as_loss("logistic", None).derivatives(z, y)
    np.testing.assert_array_equal(l0, [800, 0, 0, 800])
    np.testing.assert_array_equal(l1, [1, 0, 0, -1])
    for name in ("welsch", "geman_mcclure"):
        np.testing.assert_allclose(as_loss(name, 0.1).derivatives(z, y)[0], 0.005, rtol=1e-6)  # c^2 / 2


@pytest.mark.parametrize("name", ["sigmoid_squares", "logistic"])
def test_no_digits_are_lost_where_the_prediction_is_right(name):
    """At y = 1 and z = 30 the residual is exp(-30): relative accuracy, not only absolute."""
    e = np.exp(-30.0)
    l0, l1, l2, _ = as_loss(name, None).derivatives(np.array([30.0]), np.array([1.0]))
    q = e / (1 + e)
    if name == "sigmoid_squares":
        np.testing.assert_allclose([l0[0], l1[0]], [q**2 / 2, -(q**2) * (1 - q)], rtol=1e-12)
        np.testing.assert_allclose(l2[0], 2 * q**2, rtol=1e-10)  # p'^2 + r p'' = q^2 + q^2 to first order in q
    else:
        np.testing.assert_allclose([l1[0], l2[0]], [-q, q * (1 - q)], rtol=1e-12)


def test_the_logistic_value_keeps_its_digits_where_the_prediction_is_right():
    """log(1 + exp(z)) - z at z = 30 is exp(-30); the difference of two numbers near 30 has no digit of it."""
    l0 = as_loss("logistic", None).derivatives(np.array([30.0]), np.array([1.0]))[0]
    np.testing.assert_allclose(l0, [np.log1p(np.exp(-30.0))], rtol=1e-10)


def test_logistic_and_sigmoid_squares_are_symmetric_in_the_labels():
    z = np.linspace(-40, 40, 81)
    for name in ("sigmoid_squares", "logistic"):
        one = as_loss(name, None).derivatives(z, np.ones(81))
        zero = as_loss(name, None).derivatives(-z, np.zeros(81))
        for order in range(4):
            np.testing.assert_allclose(one[order], (-1) ** order * zero[order], rtol=1e-12, atol=2e-14)


def test_derivatives_do_not_write_into_their_arguments():
    z, y = np.linspace(-1, 1, 5), np.array([0.0, 1, 0, 1, 0])
    for name in set(LOSSES) - set(OF_GLM):
        before = z.copy(), y.copy()
        LOSSES[name]().derivatives(z, y)
        np.testing.assert_array_equal(z, before[0])
        np.testing.assert_array_equal(y, before[1])


def part_of(loss, order, z, y, compiled):
    """One derivative as a linear model asks for it."""
    formula = Formula.of(loss, compiled)
    if formula.part is None:
        return loss.derivatives(z, y)[order]
    return formula.part(order, z if formula.pack is None else formula.pack(z, y), y)


@pytest.mark.parametrize("name", ["sigmoid_squares", "logistic"])
@pytest.mark.parametrize("compiled", [False, True])
@pytest.mark.parametrize("order", range(4))
def test_a_part_alone_is_that_derivative_also_in_the_tails(name, compiled, order):
    z = np.concatenate([np.linspace(-9, 9, 181), [-0.0, 1e-300, -1e-300], np.linspace(-700, 700, 71)])
    z, y = (a.ravel() for a in np.meshgrid(z, (0.0, 1.0)))
    before = z.copy(), y.copy()
    loss = as_loss(name, None)
    with np.errstate(over="raise", divide="raise", invalid="raise"):
        part = part_of(loss, order, z, y, compiled)
    np.testing.assert_array_equal(z, before[0])
    np.testing.assert_array_equal(y, before[1])
    # Where the third derivative changes its sign, its digits are those of the terms that cancel.
    np.testing.assert_allclose(part, loss.derivatives(z, y)[order], rtol=1e-13, atol=1e-16 if order == 3 else 1e-300)


@pytest.mark.parametrize("name", ["sigmoid_squares", "logistic"])
@pytest.mark.parametrize("compiled", [False, True])
def test_parts_equal_automatic_differentiation(name, compiled):
    z, y = grid(name)
    for order, theirs in enumerate(automatic(formula(name, None), z, y)):
        ours = part_of(as_loss(name, None), order, z, y, compiled)
        np.testing.assert_allclose(ours, theirs, rtol=1e-10, atol=3e-14 * max(1.0, np.abs(theirs).max()))


@pytest.mark.parametrize("compiled", [False, True])
def test_parts_have_the_limits_of_the_tails(compiled):
    z, y = np.array([800.0, 800.0, -800.0, -800.0]), np.array([0.0, 1.0, 0.0, 1.0])
    limits = {
        "sigmoid_squares": ([0.5, 0, 0, 0.5], [0, 0, 0, 0]),
        "logistic": ([800, 0, 0, 800], [1, 0, 0, -1]),
    }
    for name, (value, slope) in limits.items():
        loss = as_loss(name, None)
        np.testing.assert_array_equal(part_of(loss, 0, z, y, compiled), value)
        np.testing.assert_array_equal(part_of(loss, 1, z, y, compiled), slope)
        for order in (2, 3):
            np.testing.assert_array_equal(part_of(loss, order, z, y, compiled), 0.0)


@pytest.mark.parametrize("compiled", [False, True])
def test_parts_lose_no_digits_where_the_prediction_is_right(compiled):
    e = np.exp(-30.0)
    z, y, q = np.array([30.0]), np.array([1.0]), e / (1 + e)
    loss = as_loss("sigmoid_squares", None)
    np.testing.assert_allclose(part_of(loss, 0, z, y, compiled), q**2 / 2, rtol=1e-12)
    np.testing.assert_allclose(part_of(loss, 1, z, y, compiled), -(q**2) * (1 - q), rtol=1e-12)
    loss = as_loss("logistic", None)
    np.testing.assert_allclose(part_of(loss, 0, z, y, compiled), np.log1p(e), rtol=1e-12)
    np.testing.assert_allclose(part_of(loss, 1, z, y, compiled), -q, rtol=1e-12)
    np.testing.assert_allclose(part_of(loss, 2, z, y, compiled), q * (1 - q), rtol=1e-12)


def test_a_loss_is_asked_as_its_own_formula_says_and_without_one_for_all_four_at_once():
    robust, logistic, squares = Welsch(2.0), Logistic(), SigmoidSquares()
    assert Formula.of(robust, True) == Formula.of(robust, False) == Formula(value=robust.value)
    for loss in (logistic, squares):  # on little data
        little = Formula.of(loss, False)
        assert little.part is None
        z, y = grid("logistic")
        np.testing.assert_allclose(little.value(z, y), loss.derivatives(z, y)[0], rtol=1e-14, atol=0)
    assert Formula.of(logistic, True) == Formula(logistic.part, None)
    assert Formula.of(squares, True) == Formula(kernels.sigmoid_squares, kernels.pack_sigmoid_squares)


@pytest.mark.parametrize(("name", "scale"), [("sigmoid_squares", None), ("logistic", None), ("cauchy", 0.7)])
def test_a_jax_function_gives_what_the_closed_form_gives(name, scale):
    z, y = grid(name)
    closed, traced = as_loss(name, scale).derivatives(z, y), JaxLoss(formula(name, scale)).derivatives(z, y)
    for ours, theirs in zip(closed, traced, strict=True):
        assert theirs.dtype == np.float64
        np.testing.assert_allclose(theirs, ours, rtol=1e-9, atol=1e-12)


def test_a_jax_function_as_loss_makes_the_same_model():
    rng = np.random.default_rng(0)
    X, y, x = rng.standard_normal((20, 3)), rng.integers(0, 2, 20), rng.standard_normal(3)
    named = LinearModel(X, y, "sigmoid_squares").over(None).at(x)
    traced = LinearModel(X, y, PLAIN["sigmoid_squares"]).over(None).at(x)
    np.testing.assert_allclose(traced.gradient(), named.gradient(), rtol=1e-11, atol=1e-15)
    np.testing.assert_allclose(traced.hessian(), named.hessian(), rtol=1e-11, atol=1e-15)
    np.testing.assert_allclose(traced.product(3, x, x), named.product(3, x, x), rtol=1e-10, atol=1e-15)


def test_an_object_with_derivatives_is_taken_as_it_is():
    loss = Welsch(2.0)
    assert as_loss(loss, None) is loss


# misuse -------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("kind", [Cauchy, Welsch, GemanMcClure])
@pytest.mark.parametrize("scale", [0.0, -1.0, np.nan, np.inf])
def test_a_bad_scale_is_refused_with_its_value(kind, scale):
    with pytest.raises(ValueError, match=rf"{kind.__name__}\(scale={scale}\)"):
        kind(scale)


def test_an_unknown_name_is_refused_with_the_known_ones():
    with pytest.raises(ValueError, match=r"loss='hinge'.*sigmoid_squares.*geman_mcclure"):
        as_loss("hinge", None)


@pytest.mark.parametrize("loss", ["sigmoid_squares", "logistic", "squares"])
def test_a_scale_for_a_loss_without_one_is_refused(loss):
    with pytest.raises(ValueError, match=rf"loss='{loss}', scale=2\.0"):
        as_loss(loss, 2.0)


def test_a_scale_beside_an_own_loss_is_refused():
    with pytest.raises(ValueError, match=r"scale=2\.0"):
        as_loss(Cauchy(), 2.0)


@pytest.mark.parametrize("loss", [None, 3, ["logistic"]])
def test_what_is_no_loss_is_refused(loss):
    with pytest.raises(ValueError, match=r"LinearModel\(loss="):
        as_loss(loss, None)


@pytest.mark.parametrize("loss", ["sigmoid_squares", "logistic"])
@pytest.mark.parametrize(("labels", "named"), [([-1, 1, 1], "-1.0"), ([1, 2, 1], "2.0"), ([0, 1, 0.5], "0.5")])
def test_labels_other_than_0_and_1_are_refused_with_their_value(loss, labels, named):
    with pytest.raises(ValueError, match=rf"loss='{loss}'\): y holds \[{named}\]"):
        LinearModel(np.eye(3), labels, loss)


@pytest.mark.parametrize("loss", ["squares", "cauchy", "welsch", "geman_mcclure"])
def test_regression_losses_take_any_finite_target(loss):
    model = LinearModel(np.eye(3), [-7.0, 0.2, 1e3], loss)
    assert np.isfinite(model.over(None).at(np.zeros(3)).value())
