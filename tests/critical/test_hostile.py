"""Functions made to deceive: each was a false success, a false claim or a refusal of a minimizer once."""

from __future__ import annotations

import numpy as np
import pytest

import tercet
from tercet import Status
from tests.critical.problems import polynomial

jax = pytest.importorskip("jax")
jnp = jax.numpy


def product_to(power):
    """(x_0 x_1 - 1)^power, whose minimizers are a curve, with its derivatives."""

    def grad(x):
        return power * (x[0] * x[1] - 1.0) ** (power - 1) * x[::-1]

    def hess(x):
        r = x[0] * x[1] - 1.0
        swap = np.array([[0.0, 1.0], [1.0, 0.0]])
        return power * r ** (power - 2) * ((power - 1) * np.outer(x[::-1], x[::-1]) + r * swap)

    return lambda x: float((x[0] * x[1] - 1.0) ** power), {"grad": grad, "hess": hess}


@pytest.mark.parametrize("power", [2, 4])
@pytest.mark.parametrize("at", [1.0, 2.0, -0.3, 30.0])
def test_at_a_curve_of_minimizers_across_which_f_is_flat_the_minimizer_is_one_of_many(at, power):
    fun, derivatives = product_to(power)
    certificate = tercet.certify(fun, [at, 1.0 / at], **derivatives)
    assert certificate.holds
    assert certificate.strict is False
    assert certificate.involved == (0, 1)


@pytest.mark.parametrize("x0", [(2.0, 0.1), (0.3, 5.0), (-1.0, -3.0), (1.2, 1.1)])
def test_a_run_into_a_flat_curve_of_minimizers_says_so_too(x0):
    fun, derivatives = product_to(4)
    result = tercet.minimize(fun, x0, **derivatives)
    assert result.success
    assert result.certificate.strict is False


@pytest.mark.filterwarnings("ignore::RuntimeWarning")  # where numbers end
@pytest.mark.parametrize("scale", [1.0, 1e6])
@pytest.mark.parametrize("x0", [0.1, 0.3, 0.5, 2.0])
def test_a_function_that_is_flat_to_all_orders_is_no_success_without_a_right_digit(x0, scale):
    """exp(-1/x^2): numbers end at x = 0.04, before it does."""

    def fun(x):
        y = x[0] / scale
        return float(np.exp(-1.0 / y**2)) if y else 0.0

    def grad(x):
        y = x[0] / scale
        return np.array([2.0 / y**3 * np.exp(-1.0 / y**2) / scale]) if y else np.zeros(1)

    result = tercet.minimize(fun, [x0 * scale], grad=grad)
    assert not result.success or 0.0 < result.certificate.digits < 1.0 - np.log10(abs(result.x[0]) / (x0 * scale))
    assert not tercet.certify(fun, [0.01 * scale], grad=grad).holds


@pytest.mark.parametrize("off", [0.0, 1e-9, 1e-7])
@pytest.mark.parametrize("share", [-0.3, 0.5, 1.3])
def test_terms_that_became_the_same_are_one_of_many_or_left(share, off):
    """Two exponentials fitted by three: where shares have one sign f falls when they part, else no share is told."""
    t = np.linspace(0.0, 1.15, 24)
    y = 0.0951 * np.exp(-t) + 0.8607 * np.exp(-3 * t) + 1.5576 * np.exp(-5 * t)

    def terms(b):
        return sum(b[2 * k] * jnp.exp(-b[2 * k + 1] * t) for k in range(len(b) // 2))

    with jax.enable_x64(True):
        two = tercet.minimize(lambda b: jnp.sum((terms(b) - y) ** 2), np.array([0.6, 1.5, 2.0, 4.5]))
        assert two.success
        a, c, *rest = two.x
        x = np.array([share * a, c + off, (1 - share) * a, c - off, *rest])
        found = tercet.certify(lambda b: jnp.sum((terms(b) - y) ** 2), x)
    assert not found.holds or (found.strict is False and {0, 2} <= set(found.involved))
    assert found.way_down is not None or not 0.0 < share < 1.0


@pytest.mark.filterwarnings("ignore::RuntimeWarning")  # it overflows far out
@pytest.mark.parametrize("x0", [0.0, 0.5, -3.0, 40.0])
def test_where_f_is_flat_until_it_overflows_it_does_not_rise(x0):
    """log(e^(x_0) (1 + e^(x_1))) - x_0 - x_1 / 3, naively: inf beyond x_0 = 709."""

    def fun(x):
        return float(np.log(np.exp(x[0]) + np.exp(x[0] + x[1])) - x[0] - x[1] / 3.0)

    def grad(x):
        return np.array([0.0, 1.0 / (1.0 + np.exp(-x[1])) - 1.0 / 3.0])

    def hess(x):
        p = 1.0 / (1.0 + np.exp(-x[1]))
        return np.diag([0.0, p * (1.0 - p)])

    result = tercet.minimize(fun, [x0, 1.0], grad=grad, hess=hess)
    assert result.success
    assert result.certificate.strict is False
    assert result.certificate.involved == (0,)
    assert result.certificate.digits > 7


@pytest.mark.parametrize("given", [("grad",), ("grad", "hess")], ids="+".join)
@pytest.mark.parametrize("seed", range(10))
def test_a_minimum_of_zero_is_certified_with_any_derivatives(seed, given):
    """sum_j w_j x_j^2 from up to 1e12 away."""
    rng = np.random.default_rng(seed)
    d = int(rng.integers(1, 6))
    w, x0 = 10.0 ** rng.uniform(-3, 3, d), rng.standard_normal(d) * 10.0 ** rng.integers(-3, 13)
    parts = {"grad": lambda x: 2 * w * x, "hess": lambda x: np.diag(2 * w)}
    result = tercet.minimize(lambda x: float(w @ x**2), x0, **{name: parts[name] for name in given})
    assert result.status is Status.CERTIFIED
    assert np.max(np.abs(result.x / x0)) <= 1e-8
    assert result.counts.epochs <= 600


@pytest.mark.parametrize("unit", [1e-6, 1.0, 1e6])
def test_who_takes_part_does_not_depend_on_how_large_a_parameter_happens_to_be(unit):
    """Two constant columns, one coefficient a hundredth of the other."""
    rng = np.random.default_rng(0)
    X = np.column_stack([rng.standard_normal(100), np.full((100, 2), [2.0 * unit, 3.0])])
    y = X[:, 0] + 1.0 + 0.1 * rng.standard_normal(100)
    model = tercet.LinearModel(X, y, "squares")
    best = tercet.minimize(model).x
    level = 2.0 * unit * best[1] + 3.0 * best[2]
    for small in (1e-2, 1e-4, 1e-8):
        x = np.array([best[0], small / unit, (level - 2.0 * small) / 3.0])
        found = tercet.certify(model, x)
        assert found.holds
        assert found.involved == (1, 2)


@pytest.mark.filterwarnings("ignore::RuntimeWarning")  # steps of differences lead far out
def test_no_more_digits_are_claimed_than_are_right_where_all_derivatives_are_differences():
    """Central differences miss T h^2 / 6 of the gradient, and x by what that does."""
    above = []
    for seed in range(25):
        known = polynomial(seed)
        result = tercet.minimize(known.fun, known.x0, max_iterations=100)
        if result.success:
            above.append(result.certificate.digits - known.digits(result.x))
    assert len(above) >= 5
    assert max(above) <= 1.0
