"""Wrong derivatives are found and named; right ones pass."""

import re

import numpy as np
import pytest

import tercet
from tercet.objectives.checking import DerivativeError

RNG = np.random.default_rng(0)
X = RNG.standard_normal((50, 3))
Y = (X[:, 0] > 0).astype(float)


def fun(x):
    return float(np.sum(x**4) + x[0] * x[1])


def grad(x):
    return 4.0 * x**3 + np.array([x[1], x[0], 0.0])


def hess(x):
    B = np.diag(12.0 * x**2)
    B[0, 1] = B[1, 0] = 1.0
    return B


def third(x):
    T = np.zeros((3, 3, 3))
    T[np.arange(3), np.arange(3), np.arange(3)] = 24.0 * x
    return T


RIGHT = {"grad": grad, "hess": hess, "third": third}


@pytest.mark.parametrize("loss", ["sigmoid_squares", "logistic", "squares", "cauchy", "welsch", "geman_mcclure"])
def test_the_losses_of_the_library_pass(loss):
    problem = tercet.LinearModel(X, Y, loss, l2=1e-2, alpha=0.1, intercept=True)
    tercet.minimize(problem, check_derivatives=True, max_iterations=0)


def test_right_derivatives_pass_and_are_not_counted():
    checked = tercet.minimize(fun, np.ones(3), **RIGHT, check_derivatives=True)
    assert checked.counts == tercet.minimize(fun, np.ones(3), **RIGHT).counts


WRONG = {
    "gradient[2]": {"grad": lambda x: grad(x) * np.array([1.0, 1.0, -1.0])},
    "gradient[0]": {"grad": lambda x: grad(x) + np.array([0.1, 0.0, 0.0])},
    "Hessian[0, 0]": {"hess": lambda x: 2.0 * hess(x)},
    "Hessian[1, 0]": {"hess": lambda x: np.diag(np.diag(hess(x)))},
    "third derivative[0, 0, 0]": {"third": lambda x: -third(x)},
}


@pytest.mark.parametrize("entry", WRONG)
def test_the_first_bad_entry_is_named(entry):
    with pytest.raises(DerivativeError, match=re.escape(entry)):
        tercet.minimize(fun, np.array([0.5, 1.0, -1.5]), **{**RIGHT, **WRONG[entry]}, check_derivatives=True)


def test_a_loss_with_a_wrong_third_derivative_is_found():
    class Wrong:
        def derivatives(self, z, y):
            r = z - y
            return r**4, 4 * r**3, 12 * r**2, 12 * r

    with pytest.raises(DerivativeError, match="third derivative"):
        tercet.minimize(tercet.LinearModel(X, Y, Wrong()), check_derivatives=True)
