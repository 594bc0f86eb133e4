"""Problems in free variables: the same minimum where it lies inside, x that never leaves it, errors mapped back."""

from __future__ import annotations

import jax.numpy as jnp
import numpy as np
import pytest
import scipy.optimize

import tercet

RNG = np.random.default_rng(0)
DATA = RNG.normal(3.0, 0.7, 400)
X = RNG.standard_normal((200, 3))
Y = RNG.poisson(np.exp(X @ [0.5, 0.2, -0.3] + 0.4)).astype(float)


def negative_log_likelihood(params, t):
    return 0.5 * ((t - params["mean"]) / params["scale"]) ** 2 + jnp.log(params["scale"])


def normal():
    return tercet.Transformed(tercet.FiniteSum(negative_log_likelihood, DATA), {"scale": tercet.positive})


@pytest.fixture(scope="module")
def fitted():
    return tercet.minimize(normal(), {"mean": np.array(0.0), "scale": np.array(5.0)})


def test_a_scale_stays_positive_and_is_found(fitted):
    assert fitted.success
    assert fitted.x["mean"] == pytest.approx(DATA.mean(), rel=1e-8)
    assert fitted.x["scale"] == pytest.approx(DATA.std(), rel=1e-8)


def test_errors_are_those_of_the_parameter_and_intervals_are_mapped_back(fitted):
    errors = fitted.standard_errors()
    scale = DATA.std()
    assert errors["scale"] == pytest.approx(scale / np.sqrt(800), rel=1e-6)
    assert errors["mean"] == pytest.approx(scale / 20, rel=1e-6)
    lower, upper = fitted.confidence_intervals(0.95)
    reach = 1.959963985 / np.sqrt(800)
    np.testing.assert_allclose([lower["scale"], upper["scale"]], scale * np.exp([-reach, reach]), rtol=1e-6)
    np.testing.assert_allclose(
        [lower["mean"], upper["mean"]], DATA.mean() + 1.959963985 * scale / 20 * np.array([-1, 1])
    )


def test_an_interval_of_a_small_sample_does_not_leave_the_set():
    few = tercet.Transformed(tercet.FiniteSum(negative_log_likelihood, DATA[:2]), {"scale": (0.0, None)})
    result = tercet.minimize(few, {"mean": np.array(2.0), "scale": np.array(1.0)})
    assert result.success
    lower, upper = result.confidence_intervals(0.9999)
    assert 0 < lower["scale"] < result.x["scale"] < upper["scale"]


def test_a_linear_model_inside_its_bounds_has_the_free_minimum():
    model = tercet.LinearModel(X, Y, "poisson", intercept=True)
    free = tercet.minimize(model)
    bounded = tercet.minimize(tercet.Transformed(model, {"x[0]": tercet.positive, 2: (-2, 2), "intercept": (None, 9)}))
    assert bounded.success
    np.testing.assert_allclose(bounded.x, free.x, rtol=1e-7)
    np.testing.assert_allclose(bounded.covariance(), free.covariance(), rtol=1e-6)
    np.testing.assert_allclose(bounded.covariance("sandwich"), free.covariance("sandwich"), rtol=1e-6)
    again = bounded.infer("bootstrap", draws=12)
    assert np.all(again.draws[:, 0] > 0)


def test_a_minimum_outside_is_not_certified_and_x_is_near_the_edge():
    model = tercet.LinearModel(X, Y, "poisson", intercept=True)
    result = tercet.minimize(tercet.Transformed(model, {2: tercet.positive}), max_iterations=200)
    assert not result.success
    other = scipy.optimize.minimize(
        lambda x: model.over(None).at(x).value(),
        np.ones(4) * 0.1,
        jac=lambda x: model.over(None).at(x).gradient(),
        bounds=[(None, None)] * 2 + [(0, None), (None, None)],
    )
    assert 0 < result.x[2] < 1e-3
    np.testing.assert_allclose(result.fun, other.fun, rtol=1e-4)


def test_plain_functions_with_derivatives_and_a_list_of_bounds():
    def f(x):
        return (x[0] - 2.0) ** 2 + (np.log(x[1]) - 1.0) ** 2

    def gradient(x):
        return np.array([2 * (x[0] - 2.0), 2 * (np.log(x[1]) - 1.0) / x[1]])

    problem = tercet.Transformed(f, [(None, None), (0, None)], grad=gradient)
    result = tercet.minimize(problem, np.array([0.0, 0.1]))
    assert result.success
    np.testing.assert_allclose(result.x, [2.0, np.e], rtol=1e-6)
    tercet.assert_minimizer(problem, result.x)


def test_a_run_can_be_resumed(tmp_path):
    model = tercet.Transformed(tercet.LinearModel(X, Y, "poisson"), {0: (0, 3)})
    tercet.minimize(model, max_iterations=2, checkpoint=tmp_path / "run")
    whole = tercet.minimize(model)
    part = tercet.resume(tmp_path / "run", model, max_iterations=1000)
    np.testing.assert_array_equal(part.x, whole.x)


@pytest.mark.parametrize(
    ("where", "x0", "text"),
    [
        ({"width": tercet.positive}, np.ones(3), "no such coordinate"),
        ({0: tercet.positive}, np.array([-1.0, 0.0, 0.0]), r"x\[0\] starts at -1.*strictly between 0 and inf"),
        ({0: tercet.positive}, np.zeros(3), "start inside"),
        ({0: (3, 1)}, np.ones(3), "the lower one first"),
        ({0: "positive"}, np.ones(3), "neither a transform"),
    ],
)
def test_misuse_is_refused(where, x0, text):
    with pytest.raises(ValueError, match=text):
        tercet.minimize(tercet.Transformed(tercet.LinearModel(X, Y, "poisson"), where), x0)
