"""scikit-learn estimators of all classes at once and of generalized linear models: contract, and equal to others."""

from __future__ import annotations

import pickle

import numpy as np
import pytest
import scipy.sparse as sp

pytest.importorskip("sklearn")

from sklearn.base import clone
from sklearn.datasets import load_digits, load_iris
from sklearn.linear_model import GammaRegressor as TheirGamma
from sklearn.linear_model import LogisticRegression, PoissonRegressor
from sklearn.metrics import accuracy_score, log_loss
from sklearn.utils.estimator_checks import parametrize_with_checks

import tercet
from tercet.sklearn import GeneralizedRegressor, RobustClassifier

X, Y = load_iris(return_X_y=True)
N = len(Y)
RNG = np.random.default_rng(0)
Z = RNG.standard_normal((300, 3))
MU = np.exp(Z @ [0.5, -0.3, 0.2] + 0.7)
COUNTS = RNG.poisson(MU).astype(float)


@parametrize_with_checks(
    [
        RobustClassifier("logistic", multi_class="multinomial"),
        GeneralizedRegressor("poisson", l2=1e-3),
        GeneralizedRegressor("smooth_quantile", l2=1e-3),
    ]
)
def test_the_contract_of_scikit_learn(estimator, check):
    check(estimator)


# classes --------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("sparse", [False, True])
def test_multinomial_logistic_is_scikit_learns(sparse):
    ours = RobustClassifier("logistic", multi_class="multinomial", l2=1e-2).fit(sp.csr_array(X) if sparse else X, Y)
    theirs = LogisticRegression(C=1 / (N * 1e-2), tol=1e-10, max_iter=1000, solver="newton-cholesky").fit(X, Y)
    assert ours.certificate_.holds
    np.testing.assert_allclose(ours.coef_, theirs.coef_, atol=1e-6)
    np.testing.assert_allclose(ours.predict_proba(X), theirs.predict_proba(X), atol=1e-6)
    np.testing.assert_array_equal(ours.predict(X), theirs.predict(X))
    assert ours.decision_function(X).shape == (N, 3)


def test_digits_have_the_log_loss_and_accuracy_of_scikit_learn():
    A, y = load_digits(return_X_y=True)
    A = A[:600] / 16.0
    y = y[:600]
    ours = RobustClassifier("logistic", multi_class="multinomial", l2=1e-2).fit(A, y)
    theirs = LogisticRegression(C=1 / (600 * 1e-2), tol=1e-8, max_iter=2000, solver="newton-cg").fit(A, y)
    assert log_loss(y, ours.predict_proba(A)) == pytest.approx(log_loss(y, theirs.predict_proba(A)), rel=1e-5)
    assert accuracy_score(y, ours.predict(A)) == accuracy_score(y, theirs.predict(A))


def test_the_bounded_loss_of_all_classes_minimizes_briers_score():
    fitted = RobustClassifier(multi_class="multinomial", l2=1e-3).fit(X, Y)
    model = tercet.ClassModel(X, Y, "brier", l2=1e-3, intercept=True)
    assert fitted.result_.fun == pytest.approx(model.over(None).at(fitted.result_.x.ravel()).value(), rel=1e-12)
    assert fitted.score(X, Y) > 0.95


def test_standard_errors_of_each_class_are_the_sandwich_of_its_row():
    fitted = RobustClassifier("logistic", multi_class="multinomial", l2=1e-2).fit(X, Y)
    errors = fitted.standard_errors(X, Y)
    assert errors.shape == (3, 5)
    model = tercet.ClassModel(X, Y, l2=1e-2, intercept=True)
    told = tercet.infer(model, fitted.result_, "sandwich").delta(lambda x: model.coefficients(x).ravel())
    np.testing.assert_allclose(errors.ravel(), told.standard_errors(), rtol=1e-6)


def test_weights_of_classes_and_rows_and_a_warm_start_count():
    w = RNG.random(N) + 0.1
    ours = RobustClassifier("logistic", multi_class="multinomial", class_weight="balanced", warm_start=True).fit(
        X, Y, w
    )
    again = clone(ours).fit(X, Y, w)
    before = ours.coef_.copy()
    ours.fit(X, Y, w)
    assert ours.n_iter_[0] < again.n_iter_[0]
    np.testing.assert_allclose(ours.coef_, before, rtol=1e-6)
    plain = RobustClassifier("logistic", multi_class="multinomial").fit(X, Y)
    assert np.abs(plain.coef_ - before).max() > 1e-3


def test_two_classes_are_the_same_either_way():
    one, two = (RobustClassifier("logistic", multi_class=how).fit(X[:100], Y[:100]) for how in ("ovr", "multinomial"))
    np.testing.assert_array_equal(one.coef_, two.coef_)


def test_an_unknown_way_is_refused():
    with pytest.raises(ValueError, match="multi_class='softmax'"):
        RobustClassifier(multi_class="softmax").fit(X, Y)


# generalized linear models --------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("loss", "theirs"), [("poisson", PoissonRegressor), ("gamma", TheirGamma)])
def test_a_generalized_model_is_scikit_learns(loss, theirs):
    y = COUNTS + (loss == "gamma")
    ours = GeneralizedRegressor(loss, l2=1e-2).fit(Z, y)
    # their penalty is alpha/2 |x|^2 beside half the mean deviance, as ours
    other = theirs(alpha=1e-2, tol=1e-10, solver="newton-cholesky").fit(Z, y)
    np.testing.assert_allclose(ours.coef_, other.coef_, rtol=1e-6)
    np.testing.assert_allclose(ours.predict(Z), other.predict(Z), rtol=1e-6)


def test_settings_reach_the_loss():
    fits = [GeneralizedRegressor("negative_binomial", dispersion=a).fit(Z, COUNTS).result_.fun for a in (0.1, 2.0)]
    assert fits[0] != fits[1]
    low, high = (GeneralizedRegressor("smooth_quantile", quantile=q, scale=0.1).fit(Z, COUNTS) for q in (0.1, 0.9))
    assert np.mean(low.predict(Z) > COUNTS) == pytest.approx(0.1, abs=0.05)
    assert np.mean(high.predict(Z) > COUNTS) == pytest.approx(0.9, abs=0.05)


def test_the_table_of_a_fit_has_the_names_of_the_frame():
    pd = pytest.importorskip("pandas")
    frame = pd.DataFrame(Z, columns=["age", "dose", "sex"])
    fitted = GeneralizedRegressor().fit(frame, COUNTS)
    told = fitted.infer(frame, COUNTS)
    assert told.names == ("age", "dose", "sex", "intercept")
    native = tercet.minimize(tercet.LinearModel(Z, COUNTS, "poisson", intercept=True))
    np.testing.assert_allclose(told.standard_errors(), native.standard_errors(), rtol=1e-6)
    assert len(pickle.dumps(fitted)) < Z.nbytes  # no data is kept


@pytest.mark.parametrize(
    ("settings", "text"),
    [
        ({"loss": "squares"}, "loss='squares'"),
        ({"loss": "negative_binomial", "dispersion": -1.0}, "dispersion=-1"),
        ({"l2": -1.0}, "l2=-1"),
    ],
)
def test_misuse_is_refused(settings, text):
    with pytest.raises(ValueError, match=text):
        GeneralizedRegressor(**settings).fit(Z, COUNTS)


def test_targets_below_zero_are_refused():
    with pytest.raises(ValueError, match="y holds"):
        GeneralizedRegressor().fit(Z, COUNTS - 5.0)
