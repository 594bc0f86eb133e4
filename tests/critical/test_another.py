"""Of many minimizers with the same f one may be none, and the way down is from there."""

import numpy as np
import pytest

import tercet


def two_rates(t, y):
    """mean (a e^(-bt) + c e^(-dt) - y)^2 with its derivatives to second order; the third by differences of those."""

    def parts(x):
        p, q = np.exp(-x[1] * t), np.exp(-x[3] * t)
        r = x[0] * p + x[2] * q - y
        J = np.column_stack([p, -t * x[0] * p, q, -t * x[2] * q])
        H = np.einsum("i,ij->ij", r, np.column_stack([-t * p, t * t * x[0] * p, -t * q, t * t * x[2] * q])).mean(axis=0)
        bend = np.array([[0, H[0], 0, 0], [H[0], H[1], 0, 0], [0, 0, 0, H[2]], [0, 0, H[2], H[3]]])
        return np.mean(r * r), 2 * J.T @ r / len(t), 2 * (J.T @ J / len(t) + bend)

    return lambda x: parts(x)[0], {"grad": lambda x: parts(x)[1], "hess": lambda x: parts(x)[2]}


def one_rate(t, y):
    """The best a e^(-bt), by Newton's method."""
    a, b = 2.0, 2.0
    for _ in range(60):
        p = np.exp(-b * t)
        r, J = a * p - y, np.column_stack([p, -t * a * p])
        bend = np.array([[0.0, r @ (-t * p)], [r @ (-t * p), r @ (t * t * a * p)]])
        a, b = np.array([a, b]) - np.linalg.solve(J.T @ J + bend, J.T @ r)
    return np.array([a, b])


@pytest.mark.parametrize("share", [-0.3, -2.0, 0.4])
@pytest.mark.parametrize("unit", [1.0, 1e-6, 1e6])
def test_terms_that_became_the_same_part_again(unit, share):
    """Two rates that are equal, with shares of one sign or two: data of two rates are no minimizer there."""
    t = np.linspace(0.0, 2.0 * unit, 25)
    y = np.exp(-t / unit) + np.exp(-4.0 * t / unit)
    a, b = one_rate(t / unit, y)
    fun, derivatives = two_rates(t, y)
    x = np.array([(1 - share) * a, b / unit, share * a, b / unit])
    certificate = tercet.certify(fun, x, **derivatives)
    assert not certificate.holds
    assert fun(x + np.array(certificate.way_down)) < fun(x)
    if unit == 1.0:
        result = tercet.minimize(fun, x, **derivatives)
        assert result.success
        np.testing.assert_allclose(np.sort(result.x[[1, 3]]), [1.0, 4.0], rtol=1e-6)


def test_many_minimizers_that_all_are_remain_a_success():
    """x_1^2 (2 + sin x_0): B is another one along x_0, and nowhere does it bend down."""
    certificate = tercet.certify(
        lambda x: float(x[1] ** 2 * (2 + np.sin(x[0]))),
        np.array([1.0, 0.0]),
        grad=lambda x: np.array([x[1] ** 2 * np.cos(x[0]), 2 * x[1] * (2 + np.sin(x[0]))]),
        hess=lambda x: np.array(
            [[-(x[1] ** 2) * np.sin(x[0]), 2 * x[1] * np.cos(x[0])], [2 * x[1] * np.cos(x[0]), 4 + 2 * np.sin(x[0])]]
        ),
    )
    assert certificate.holds
    assert certificate.strict is False
    assert certificate.involved == (0,)
