"""The model of a convex function, minimized by the geometry of its quadratic and its fourth power."""

from __future__ import annotations

import numpy as np
import pytest
from scipy.optimize import minimize

import tercet
from tercet.model import Regularizer
from tercet.objectives.metered import Meter, Metered
from tercet.subsolvers.base import Taylor
from tercet.subsolvers.convex import LONGEST, minimize_convex, space_of

RNG = np.random.default_rng(1)
X = RNG.standard_normal((200, 6))
Y = (X @ np.ones(6) + RNG.standard_normal(200) > 0).astype(float)
MODEL = tercet.LinearModel(X, Y, "logistic", l2=1e-4)


def taylor(x, third=True):
    meter = Meter(200)
    point = Metered.of(MODEL, meter).over(None).at(x)
    return Taylor(point.gradient(), point, point if third else None, False), point, meter


@pytest.mark.parametrize("dense", [True, False], ids=["formed", "Krylov"])
@pytest.mark.parametrize("third", [True, False])
@pytest.mark.parametrize("sigma", [0.05, 1.0, 30.0])
@pytest.mark.parametrize("where", [0.0, 1.0, -2.0])
def test_it_is_the_minimizer_that_a_general_method_finds(where, sigma, third, dense):
    at, point, meter = taylor(where * np.linspace(0.2, 1.0, 6), third)
    power = 4 if third else 3
    solved = minimize_convex(at, space_of(at, dense), sigma, power, 1e-7)
    act = Regularizer(sigma, power)

    def model(s):
        cubic = s @ point.third_product(s, s) / 6 if third else 0.0
        return at.g @ s + 0.5 * s @ point.hessian_product(s) + cubic + act.value(s)

    reference = minimize(model, np.zeros(6), method="BFGS", options={"gtol": 1e-9})
    assert model(solved.s) <= reference.fun + 1e-10
    np.testing.assert_allclose(solved.s, reference.x, atol=1e-4)
    assert solved.decrease == pytest.approx(act.value(solved.s) - model(solved.s), rel=1e-9)
    bend = 0.5 * point.third_product(solved.s, solved.s) if third else 0.0
    np.testing.assert_allclose(solved.slope, at.g + point.hessian_product(solved.s) + bend, atol=1e-12)
    left = np.linalg.norm(solved.slope + act.gradient(solved.s))
    assert left <= 1e-7 * sigma * np.linalg.norm(solved.s) ** (power - 1)
    assert (meter.counts().third > 0) == third


def test_a_step_takes_one_product_with_t_and_no_more():
    at, _, meter = taylor(np.ones(6))
    space = space_of(at, True)
    before = meter.counts().third
    solved = minimize_convex(at, space, 1.0, 4, 0.05)
    assert meter.counts().third - before == 200 * solved.inner


def test_a_model_that_is_not_convex_is_told_and_not_followed():
    class Wild:
        sign = 1.0

        def third_product(self, u, v):
            self.sign = -self.sign
            return self.sign * 1e3 * u * v

    at, _, _ = taylor(np.ones(6))
    wild = Taylor(at.g, at.B, Wild(), False)
    assert minimize_convex(wild, space_of(at, True), 1e-3, 4, 0.05) is None
    assert LONGEST < 100
