"""`CurveRegressor`: scikit-learn's contract, `curve_fit`'s numbers, and standard errors that cover."""

import pickle
import warnings
from dataclasses import dataclass

import numpy as np
import pytest
import scipy.optimize

pytest.importorskip("sklearn")
from sklearn.base import clone
from sklearn.exceptions import ConvergenceWarning, NotFittedError
from sklearn.model_selection import cross_val_score
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import FunctionTransformer
from sklearn.utils.estimator_checks import parametrize_with_checks

import tercet
from tercet.sklearn import CurveRegressor

RNG = np.random.default_rng(0)
X = RNG.uniform(0.0, 4.0, (60, 1))
TRUE = np.array([2.5, 1.3, 0.5])


def decay(X, height, rate, floor):
    return height * np.exp(-rate * np.asarray(X)[:, 0]) + floor


@dataclass(frozen=True)
class Plane:
    """A function whose name is the same in every process, as that of a test has to be."""

    def __call__(self, X, a, b):
        return a + b * np.sum(np.asarray(X), axis=1)


plane = Plane()


Y = decay(X, *TRUE) + 0.05 * RNG.standard_normal(60)


@parametrize_with_checks([CurveRegressor(plane)])
def test_the_contract_of_scikit_learn(estimator, check):
    check(estimator)


def test_it_is_curve_fit_and_scipy():
    model = CurveRegressor(decay).fit(X, Y)
    theirs, cov = scipy.optimize.curve_fit(decay, X, Y, [2.0, 1.0, 0.3], xtol=1e-14, ftol=1e-14)
    np.testing.assert_allclose(model.params_, theirs, rtol=1e-6)
    np.testing.assert_allclose(model.covariance_, cov, rtol=1e-4)
    np.testing.assert_allclose(model.standard_errors_, np.sqrt(np.diag(cov)), rtol=1e-4)
    assert model.param_names_ == ("height", "rate", "floor")
    assert model.certificate_.holds
    np.testing.assert_allclose(model.predict(X), decay(X, *model.params_))
    assert model.score(X, Y) > 0.9


def test_weights_are_one_over_variances_and_0_leaves_a_row_out():
    w = RNG.uniform(0.2, 3.0, 60)
    w[:5] = 0.0
    model = CurveRegressor(decay).fit(X, Y, w)
    tight = {"sigma": w[5:] ** -0.5, "xtol": 1e-14, "ftol": 1e-14}
    theirs, cov = scipy.optimize.curve_fit(decay, X[5:], Y[5:], [2.0, 1.0, 0.3], **tight)
    np.testing.assert_allclose(model.params_, theirs, rtol=1e-6)
    np.testing.assert_allclose(model.covariance_, cov, rtol=1e-4)


def test_standard_errors_of_the_curve_are_the_delta_methods_and_cover():
    model = CurveRegressor(decay, p0=TRUE).fit(X, Y)
    there = np.array([[0.5], [2.0]])
    _, std = model.predict(there, return_std=True)
    e = np.exp(-model.params_[1] * there[:, 0])
    J = np.stack([e, -model.params_[0] * there[:, 0] * e, np.ones(2)], axis=1)
    np.testing.assert_allclose(std, np.sqrt(np.einsum("ni,ij,nj->n", J, model.covariance_, J)), rtol=1e-5)
    rng, hits, runs = np.random.default_rng(7), np.zeros(2), 100
    for _ in range(runs):
        found, std = model.fit(X, decay(X, *TRUE) + 0.05 * rng.standard_normal(60)).predict(there, return_std=True)
        hits += np.abs(found - decay(there, *TRUE)) <= 2.0 * std
    assert np.all(np.abs(hits / runs - 0.95) <= 3.5 * np.sqrt(0.05 * 0.95 / runs))


def test_it_is_cloned_pickled_and_used_in_pipelines():
    model = CurveRegressor(decay, p0=[2.0, 1.0, 0.3]).fit(X, Y)
    again = pickle.loads(pickle.dumps(model))
    np.testing.assert_array_equal(again.predict(X), model.predict(X))
    assert cross_val_score(make_pipeline(FunctionTransformer(), clone(model)), X, Y, cv=3).min() > 0.8
    with pytest.raises(NotFittedError):
        clone(model).predict(X)


def test_a_fit_that_is_not_certified_warns():
    with pytest.warns(ConvergenceWarning, match="max_iter"):
        CurveRegressor(decay, p0=[9.0, 9.0, 9.0], max_iter=1).fit(X, Y)


def test_what_the_data_do_not_tell_has_no_standard_error():
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ConvergenceWarning)
        model = CurveRegressor(lambda X, a, b: (a + b) * np.asarray(X)[:, 0]).fit(X, Y)
    assert np.all(np.isinf(model.standard_errors_))
    assert not (model.certificate_.holds and model.certificate_.strict)


@pytest.mark.parametrize(
    ("settings", "says"),
    [
        ({"f": 3}, "f is a function"),
        ({"absolute_sigma": "yes"}, "absolute_sigma"),
        ({"max_iter": 0}, "max_iter"),
        ({"tol": -1.0}, "tol"),
        ({"p0": [1.0, 2.0, 3.0, 4.0]}, "takes 3 parameters"),
    ],
)
def test_bad_settings_are_refused_when_it_is_fitted(settings, says):
    with pytest.raises(ValueError, match=says):
        CurveRegressor(**{"f": decay, **settings}).fit(X, Y)


def test_a_model_in_jax_is_differentiated():
    jnp = pytest.importorskip("jax").numpy
    model = CurveRegressor(lambda X, a, b, c: a * jnp.exp(-b * X[:, 0]) + c).fit(X, Y)
    np.testing.assert_allclose(model.params_, CurveRegressor(decay).fit(X, Y).params_, rtol=1e-7)
    assert tercet.curve_fit(decay, X, Y).success
    assert "JAX" in model.certificate_.how
