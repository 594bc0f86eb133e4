"""The paper's own settings: 5 % samples, factors 0.8/1.2/2, gradient descent inside. No crash, no runaway."""

from __future__ import annotations

import numpy as np
import pytest
from sklearn.datasets import load_breast_cancer

import tercet
from tercet import Status


def cancer() -> tuple[np.ndarray, np.ndarray]:
    X, y = load_breast_cancer(return_X_y=True)
    return (X - X.mean(axis=0)) / X.std(axis=0), y.astype(float)


def generated() -> tuple[np.ndarray, np.ndarray]:
    rng = np.random.default_rng(0)
    X = rng.standard_normal((2000, 20)) * np.geomspace(1.0, 0.1, 20)
    return X, (X @ rng.standard_normal(20) + 0.5 * rng.standard_normal(2000) > 0).astype(float)


PROBLEMS = {
    "breast cancer, sigmoid": tercet.LinearModel(*cancer(), "sigmoid_squares", l2=1e-3),
    "breast cancer, logistic": tercet.LinearModel(*cancer(), "logistic", l2=1e-3),
    "generated, sigmoid": tercet.LinearModel(*generated(), "sigmoid_squares", l2=1e-3),
}


def test_the_settings_are_those_of_the_paper():
    for method in (tercet.STM.paper(), tercet.SCR.paper()):
        assert method.sizes == tercet.Fixed(0.05, 0.05, 0.05)
        assert method.sigma == tercet.PaperSigma(start=1.0, gamma=(0.8, 1.2, 2.0), eta1=0.2, eta2=0.8)
        assert method.subsolver == tercet.GradientDescent(step=1.0)
    assert tercet.STM.paper(step=0.1).subsolver.step == 0.1
    assert tercet.STM.paper().worth == np.inf


@pytest.mark.parametrize("name", PROBLEMS)
@pytest.mark.parametrize("make", [tercet.STM.paper, tercet.SCR.paper], ids=["STM", "SCR"])
@pytest.mark.parametrize("step", [1.0, 0.1, 0.01])
def test_a_hundred_iterations_end_at_the_noise_or_go_on_and_sigma_does_not_run_away(name, make, step):
    problem = PROBLEMS[name]
    for seed in range(3):
        values: list[float] = []
        f0 = tercet.minimize(problem, max_iterations=0).fun
        result = tercet.minimize(
            problem,
            method=make(step),
            seed=seed,
            max_iterations=100,
            callback=lambda info, v=values: v.append(info.fun),
        )
        assert result.nit <= 100
        assert np.max(result.trace["sigma"]) < 1e6
        assert max(values) <= f0
        assert np.all(np.diff([f0, *values]) <= 0)
        assert result.fun == values[-1]
        assert result.fun < 0.9 * f0
        if result.nit < 100:
            assert result.status in (Status.NOISE, Status.CERTIFIED)
            if result.status is Status.NOISE:
                assert "sampling noise" in result.message
                assert "larger samples" in result.message
        else:
            assert result.status in (Status.MAX_ITERATIONS, Status.NOISE)
        assert np.all(result.trace["third_bought"]) == (make is tercet.STM.paper)


@pytest.mark.parametrize("make", [tercet.STM.paper, tercet.SCR.paper], ids=["STM", "SCR"])
def test_every_iteration_draws_five_percent_and_takes_values_over_all_terms(make):
    result = tercet.minimize(PROBLEMS["generated, sigmoid"], method=make(), max_iterations=10)
    assert np.all(result.trace["size_value"] == 2000)
    for column in ("size_gradient", "size_hessian", "size_third"):
        assert np.all(result.trace[column] == 100)
