"""The scikit-learn estimators: their contract, what they minimize, their weights, and that their errors cover."""

import pickle
import subprocess
import sys
import tracemalloc
from dataclasses import dataclass

import numpy as np
import pandas as pd
import pytest
import scipy.sparse as sp
from scipy.integrate import quad
from scipy.optimize import approx_fprime
from scipy.special import expit
from scipy.stats import binomtest

pytest.importorskip("sklearn")
import sklearn
from sklearn.base import clone
from sklearn.exceptions import ConvergenceWarning, NotFittedError
from sklearn.linear_model import LogisticRegression, Ridge
from sklearn.model_selection import GridSearchCV
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler
from sklearn.utils.estimator_checks import parametrize_with_checks

import tercet
from tercet.objectives.losses import LOSSES
from tercet.records import Status
from tercet.sklearn import RobustClassifier, RobustRegressor
from tercet.sklearn.common import model, sandwich, seed_of
from tercet.sklearn.regressor import TUNING, median, spread

CLASSIFIERS = [RobustClassifier("sigmoid_squares"), RobustClassifier("logistic")]
REGRESSORS = [RobustRegressor(loss) for loss in ("cauchy", "welsch", "geman_mcclure", "squares")]
BOTH = [*CLASSIFIERS, *REGRESSORS]


def names(estimator):
    return estimator.loss


def rows(n=120, d=4, seed=0):
    rng = np.random.default_rng(seed)
    return rng.standard_normal((n, d)), rng


def data(estimator, n=120, d=4, seed=0):
    """Rows that suit the estimator: noisy labels, or a line with a few outliers."""
    X, rng = rows(n, d, seed)
    z = X @ np.linspace(-1, 1.5, d) + 0.5
    if isinstance(estimator, RobustClassifier):
        return X, (rng.random(n) < expit(z)).astype(int)
    return X, z + 0.3 * rng.standard_t(2, n)


@parametrize_with_checks(BOTH)
def test_the_contract_of_scikit_learn(estimator, check):
    if "sample_weight_equivalence" in str(check) and isinstance(estimator, RobustRegressor):
        # It has more columns than rows: without a penalty a minimizer is one of many, and no scale can be estimated.
        estimator = clone(estimator).set_params(l2=0.1, **({} if estimator.loss == "squares" else {"scale": 1.0}))
    check(estimator)


# What is minimized


@pytest.mark.parametrize("sparse", [False, True])
@pytest.mark.parametrize("intercept", [False, True])
@pytest.mark.parametrize("estimator", CLASSIFIERS, ids=names)
def test_a_classifier_ends_where_minimize_does(estimator, intercept, sparse):
    X, y = data(estimator)
    X = sp.csr_matrix(X) if sparse else X
    fitted = clone(estimator).set_params(fit_intercept=intercept, l2=1e-2, random_state=3).fit(X, y)
    problem = tercet.LinearModel(X, y, estimator.loss, l2=1e-2, intercept=intercept)
    native = tercet.minimize(problem, seed=seed_of(fitted))
    own = np.append(fitted.coef_, fitted.intercept_) if intercept else fitted.coef_.ravel()
    assert native.success
    assert np.array_equal(own, native.x)
    assert fitted.certificate_ == native.certificate
    assert fitted.n_iter_.tolist() == [native.nit]


@pytest.mark.parametrize("sparse", [False, True])
@pytest.mark.parametrize("estimator", REGRESSORS, ids=names)
def test_a_regressor_is_a_critical_point_in_the_units_of_the_user(estimator, sparse):
    X, y = data(estimator)
    fitted = clone(estimator).set_params(l2=1e-2, random_state=0).fit(sp.csr_array(X) if sparse else X, y)
    scale = {} if estimator.loss == "squares" else {"scale": fitted.scale_}
    point = tercet.LinearModel(X, y, estimator.loss, l2=1e-2, intercept=True, **scale).over(None)
    at = point.at(np.append(fitted.coef_, fitted.intercept_))
    assert np.linalg.norm(at.gradient()) <= 1e-8 * fitted.scale_ * (1 + 1e-6)
    assert np.linalg.eigvalsh(at.hessian())[0] > 0
    assert at.value() == pytest.approx(fitted.scale_**2 * fitted.result_.fun, rel=1e-12)
    assert fitted.result_.success


@pytest.mark.parametrize("class_weight", [None, "balanced", {0: 1.0, 1: 3.0}])
@pytest.mark.parametrize("weighted", [False, True])
def test_the_logistic_loss_gives_scikit_learns_own_model(class_weight, weighted):
    X, y = data(CLASSIFIERS[1])
    w = np.random.default_rng(5).random(len(y)) + 0.1 if weighted else np.ones(len(y))
    ours = RobustClassifier("logistic", l2=0.02, class_weight=class_weight).fit(X, y, w)
    # scikit-learn has C sum w_i l_i + |x|^2 / 2, where the weights of the classes count too
    total = np.sum(w * class_factor(class_weight, y, w))
    theirs = LogisticRegression(C=1 / (0.02 * total), class_weight=class_weight, tol=1e-12, solver="newton-cholesky")
    theirs.fit(X, y, w)
    np.testing.assert_allclose(ours.coef_, theirs.coef_, rtol=1e-5)
    np.testing.assert_allclose(ours.intercept_, theirs.intercept_, rtol=1e-5)
    np.testing.assert_allclose(ours.predict_proba(X), theirs.predict_proba(X), rtol=1e-5)
    assert np.array_equal(ours.predict(X), theirs.predict(X))


def class_factor(class_weight, y, w):
    if class_weight is None:
        return np.ones(len(y))
    if class_weight == "balanced":
        return np.sum(w) / (2 * np.bincount(y, w))[y]
    return np.array([class_weight[k] for k in y])


def test_squares_give_ridge():
    X, y = data(REGRESSORS[0])
    w = np.random.default_rng(2).random(len(y))
    ours = RobustRegressor("squares", l2=0.03).fit(X, y, w)
    theirs = Ridge(alpha=0.03 * np.sum(w), solver="cholesky").fit(X, y, w)
    np.testing.assert_allclose(ours.coef_, theirs.coef_, rtol=1e-8)
    assert ours.intercept_ == pytest.approx(theirs.intercept_, rel=1e-8)


@pytest.mark.parametrize("estimator", REGRESSORS, ids=names)
def test_a_fit_without_an_intercept_goes_through_the_origin(estimator):
    X, y = data(estimator)
    fitted = clone(estimator).set_params(fit_intercept=False).fit(X, y + 5.0)
    assert fitted.intercept_ == 0.0
    assert np.array_equal(fitted.predict(np.zeros((1, 4))), [0.0])
    if estimator.loss == "squares":
        np.testing.assert_allclose(fitted.coef_, np.linalg.lstsq(X, y + 5.0)[0], rtol=1e-8)
    else:  # the residuals are not centered, and the scale has to hold what is left of the 5
        noise = 1.4826 * np.median(np.abs(y + 5.0 - X @ fitted.coef_))
        assert fitted.scale_ == pytest.approx(TUNING[estimator.loss] * noise, rel=0.02)


def test_the_intercept_is_not_penalized():
    X, y = data(REGRESSORS[0])
    heavy = RobustRegressor("squares", l2=1e6).fit(X, y)
    assert np.max(np.abs(heavy.coef_)) < 1e-4
    assert heavy.intercept_ == pytest.approx(np.mean(y), rel=1e-4)


# Weights


@pytest.mark.parametrize("sparse", [False, True])
@pytest.mark.parametrize("estimator", BOTH, ids=names)
def test_whole_weights_are_repeated_rows_and_zero_weights_are_missing_rows(estimator, sparse):
    X, y = data(estimator)
    w = np.random.default_rng(1).integers(0, 4, len(y))
    A = sp.csr_array(X) if sparse else X
    fixed = clone(estimator).set_params(random_state=0, tol=1e-10)
    weighted = clone(fixed).fit(A, y, w)
    used = np.flatnonzero(w)
    removed = clone(fixed).fit(A[used], y[used], w[used])
    assert np.array_equal(weighted.coef_, removed.coef_)
    assert np.array_equal(weighted.intercept_, removed.intercept_)
    many = np.repeat(np.arange(len(y)), w)
    repeated = clone(fixed).fit(A[many], y[many])
    np.testing.assert_allclose(weighted.coef_, repeated.coef_, rtol=1e-7)
    np.testing.assert_allclose(weighted.intercept_, repeated.intercept_, rtol=1e-7)

    x = np.linspace(-0.5, 0.7, 5)
    target = y.astype(float)
    one = model(fixed, A[used], target[used], w[used], estimator.loss).over(None).at(x)
    two = model(fixed, A[many], target[many], None, estimator.loss).over(None).at(x)
    assert one.value() == pytest.approx(two.value(), rel=1e-14)
    np.testing.assert_allclose(one.gradient(), two.gradient(), rtol=1e-12, atol=1e-15)
    np.testing.assert_allclose(one.hessian(), two.hessian(), rtol=1e-12, atol=1e-15)


@pytest.mark.parametrize("estimator", BOTH, ids=names)
def test_only_the_ratios_of_weights_matter(estimator):
    X, y = data(estimator)
    w = np.random.default_rng(1).random(len(y)) + 0.5
    one, eight = (clone(estimator).set_params(random_state=0).fit(X, y, c * w) for c in (1.0, 8.0))
    np.testing.assert_allclose(one.coef_, eight.coef_, rtol=1e-12)


def test_class_weights_multiply_sample_weights_also_where_they_are_balanced():
    X, y = data(CLASSIFIERS[0])
    w = np.random.default_rng(1).integers(1, 4, len(y))
    labels = np.array(["no", "yes"])[y]
    for class_weight in ("balanced", {"no": 0.5, "yes": 2.0}):
        base = RobustClassifier(class_weight=class_weight, random_state=0)
        plain = RobustClassifier(random_state=0)
        by_label = class_weight if class_weight == "balanced" else {0: 0.5, 1: 2.0}
        both = clone(base).fit(X, labels, w)
        product = plain.fit(X, labels, w * class_factor(by_label, y, w))
        np.testing.assert_allclose(both.coef_, product.coef_, rtol=1e-10)
        repeated = clone(base).fit(X.repeat(w, axis=0), labels.repeat(w))
        np.testing.assert_allclose(both.coef_, repeated.coef_, rtol=1e-6)


def test_the_weighted_median_counts_a_weight_as_that_many_rows():
    rng = np.random.default_rng(0)
    for _ in range(50):
        values, w = rng.standard_normal(9), rng.integers(1, 5, 9)
        assert median(values, w.astype(float)) == median(values.repeat(w), None)


# More than two classes


def three(n=300):
    X, rng = rows(n, 3)
    y = np.argmax(X + 0.7 * rng.standard_normal((n, 3)), axis=1)
    return X, np.array(["ash", "elm", "oak"])[y]


@pytest.mark.parametrize("loss", ["sigmoid_squares", "logistic"])
def test_many_classes_are_fitted_one_against_the_rest(loss):
    X, y = three()
    fitted = RobustClassifier(loss, random_state=0).fit(X, y)
    assert fitted.classes_.tolist() == ["ash", "elm", "oak"]
    assert fitted.coef_.shape == (3, 3)
    assert fitted.intercept_.shape == fitted.n_iter_.shape == (3,)
    assert all(certificate.holds for certificate in fitted.certificate_)
    for k, label in enumerate(fitted.classes_):
        alone = RobustClassifier(loss, random_state=0).fit(X, y == label)
        assert np.array_equal(alone.coef_[0], fitted.coef_[k])
    p = expit(fitted.decision_function(X))
    np.testing.assert_allclose(fitted.predict_proba(X), p / np.sum(p, axis=1, keepdims=True), rtol=1e-12)
    assert np.array_equal(fitted.predict(X), fitted.classes_[np.argmax(p, axis=1)])
    assert fitted.score(X, y) > 0.6


def test_probabilities_stay_finite_far_out():
    X, y = three()
    P = RobustClassifier().fit(X, y).predict_proba(1e6 * X)
    assert np.all(np.isfinite(P))
    np.testing.assert_allclose(np.sum(P, axis=1), 1.0, rtol=1e-12)


# Robustness


def efficiency(loss, scale):
    """(E psi')^2 / E psi^2 under a standard Gaussian: the variance of the mean over that of the M-estimate."""
    parts = LOSSES[loss](scale).derivatives

    def mean(order, power):
        def density(r):
            return parts(np.array([r]), np.zeros(1))[order][0] ** power * np.exp(-r * r / 2)

        return quad(density, -12, 12, limit=200)[0] / np.sqrt(2 * np.pi)

    return mean(2, 1) ** 2 / mean(1, 2)


@pytest.mark.parametrize("loss", TUNING)
def test_the_scale_keeps_95_percent_of_the_efficiency(loss):
    assert efficiency(loss, TUNING[loss]) == pytest.approx(0.95, abs=1e-6)


@pytest.mark.parametrize("loss", TUNING)
def test_the_scale_of_gaussian_noise_is_found(loss):
    X, rng = rows(20_000, 2)
    fitted = RobustRegressor(loss).fit(X, X @ [1.0, 2.0] + 7.0 * rng.standard_normal(20_000))
    assert fitted.scale_ == pytest.approx(7.0 * TUNING[loss], rel=0.03)  # 3.6 standard errors of the deviation


@pytest.mark.parametrize("size", [20.0, 1e3, 1e7])
@pytest.mark.parametrize("loss", TUNING)
def test_targets_that_are_off_by_any_amount_do_not_move_the_fit(loss, size):
    X, rng = rows(400, 4)
    x = np.arange(1.0, 5.0)
    clean = X @ x + 3.0 + rng.standard_normal(400)
    y = clean + np.where(np.arange(400) < 80, size, 0.0)
    reference = RobustRegressor(loss).fit(X[80:], clean[80:])
    fitted, squares = RobustRegressor(loss).fit(X, y), RobustRegressor("squares").fit(X, y)
    off = np.linalg.norm(fitted.coef_ - reference.coef_)
    assert off < 0.1
    assert off < 0.2 * np.linalg.norm(squares.coef_ - reference.coef_)
    assert abs(fitted.intercept_ - 3.0) < 0.5


@pytest.mark.parametrize("estimator", REGRESSORS, ids=names)
def test_the_fit_follows_the_units_of_the_targets(estimator):
    X, y = data(estimator)
    base = clone(estimator).set_params(random_state=0).fit(X, y)
    for unit in (2.0**-40, 2.0**40):
        other = clone(estimator).set_params(random_state=0).fit(X, unit * y)
        assert np.array_equal(other.coef_, unit * base.coef_)
        assert other.scale_ == unit * base.scale_
        assert other.certificate_ == base.certificate_


@pytest.mark.parametrize("estimator", REGRESSORS, ids=names)
def test_far_from_zero_a_flat_loss_is_not_taken_for_a_fit(estimator):
    X, y = data(estimator)
    for scale in [None] if estimator.loss == "squares" else [None, 1.0]:
        fitted = clone(estimator).set_params(scale=scale).fit(X, y + 1e4)
        assert fitted.intercept_ == pytest.approx(1e4 + 0.5, abs=0.3)


def test_the_spread_is_never_zero_nor_mere_rounding():
    assert spread(np.zeros(7), None) == 1.0
    assert spread(np.full(49, 0.1), None) == pytest.approx(1e-7)
    assert spread(np.array([1e4, 1e4 + 2.0]), None) == pytest.approx(1.0)
    assert spread(np.array([-1e300, 1e300]), None) == pytest.approx(1e300)
    assert spread(np.array([0.0, 4.0]), np.array([3.0, 1.0])) == pytest.approx(np.sqrt(3.0))


@pytest.mark.parametrize("estimator", REGRESSORS, ids=names)
@pytest.mark.parametrize("target", [0.0, 0.1, 1e5])
def test_targets_that_are_all_alike_or_fitted_exactly_are_no_trouble(estimator, target):
    X, _ = rows(50, 3)
    alike = clone(estimator).fit(X, np.full(50, target))
    np.testing.assert_allclose(alike.predict(X), target, atol=1e-7 * max(target, 1))
    exact = clone(estimator).set_params(l2=0.0).fit(X, target + X @ [1.0, -2.0, 3.0])
    np.testing.assert_allclose(exact.coef_, [1.0, -2.0, 3.0], atol=1e-7 * max(target, 1))


@pytest.mark.parametrize("seed", range(6))
@pytest.mark.parametrize("loss", TUNING)
def test_a_scale_that_cannot_be_estimated_is_said(loss, seed):
    X, rng = rows(15, 30, seed)
    y = X @ rng.standard_normal(30)
    with pytest.warns(ConvergenceWarning, match="Give scale or lower l2"):
        RobustRegressor(loss, l2=1e-4).fit(X, y)
    assert RobustRegressor(loss, l2=1e-4, scale=10.0).fit(X, y).score(X, y) > 0.99


# Standard errors


def plain_sandwich(loss, X, y, w, x, l2, scale=None):
    """H^-1 S H^-1 / n from differences of the plain gradients of the rows, intercept last."""
    A = np.column_stack([X, np.ones(len(y))])
    mask = np.append(np.ones(X.shape[1]), 0.0)
    of = LOSSES[loss]() if scale is None else LOSSES[loss](scale)
    w = w / np.mean(w)

    def scores(x):
        return (w * of.derivatives(A @ x, y)[1])[:, None] * A + l2 * mask * x

    H = approx_fprime(x, lambda x: np.mean(scores(x), axis=0), 1e-7)
    S = np.mean([np.outer(s, s) for s in scores(x)], axis=0)
    return np.sqrt(np.diag(np.linalg.inv(H) @ S @ np.linalg.inv(H).T) / len(y))


@pytest.mark.parametrize("sparse", [False, True])
@pytest.mark.parametrize("estimator", BOTH, ids=names)
def test_standard_errors_are_the_sandwich_of_the_plain_formulas(estimator, sparse):
    X, y = data(estimator)
    w = np.random.default_rng(1).random(len(y)) + 0.2
    A = sp.csr_matrix(X) if sparse else X
    fitted = clone(estimator).set_params(l2=0.05).fit(A, y, w)
    x = np.append(fitted.coef_, fitted.intercept_)
    scale = fitted.scale_ if estimator.loss in TUNING else None
    expected = plain_sandwich(estimator.loss, X, y.astype(float), w, x, 0.05, scale)
    np.testing.assert_allclose(np.ravel(fitted.standard_errors(A, y, w)), expected, rtol=1e-5)


def test_standard_errors_come_for_each_class_and_without_an_intercept():
    X, y = three()
    fitted = RobustClassifier(fit_intercept=False, class_weight="balanced").fit(X, y)
    errors = fitted.standard_errors(X, y)
    assert errors.shape == fitted.coef_.shape
    alone = RobustClassifier(fit_intercept=False).fit(X, y == "elm", class_factors(y))
    np.testing.assert_allclose(errors[1], alone.standard_errors(X, y == "elm", class_factors(y))[0], rtol=1e-4)


def class_factors(y):
    _, codes = np.unique(y, return_inverse=True)
    return (1.0 / np.bincount(codes))[codes]


def heavy_tails(rng, X, x):
    """Noise with infinite variance whose width changes with the first feature."""
    return X @ x[:-1] + x[-1] + (0.5 + np.abs(X[:, 0])) * rng.standard_t(2, len(X))


def labels(rng, X, x):
    return (rng.random(len(X)) < expit(X @ x[:-1] + x[-1])).astype(int)


@pytest.mark.parametrize(
    ("estimator", "draw"),
    [
        (RobustRegressor("cauchy", l2=0.0), heavy_tails),
        (RobustRegressor("welsch", l2=0.0, scale=3.0), heavy_tails),
        (RobustClassifier("sigmoid_squares", l2=0.0), labels),
        (RobustClassifier("logistic", l2=0.0), labels),
    ],
    ids=["cauchy", "welsch", "sigmoid_squares", "logistic"],
)
def test_intervals_cover_as_often_as_they_say(estimator, draw):
    x, runs, n = np.array([1.0, -0.5, 0.3]), 300, 600
    hits, narrow = np.zeros(3, dtype=int), np.zeros(3, dtype=int)
    for seed in range(runs):
        X, rng = rows(n, 2, seed)
        y = draw(rng, X, x)
        fitted = clone(estimator).set_params(random_state=0).fit(X, y)
        off = np.abs(np.append(fitted.coef_, fitted.intercept_) - x)
        errors = np.ravel(fitted.standard_errors(X, y))
        hits += off <= 1.959964 * errors
        narrow += off <= 0.75 * 1.959964 * errors
    assert min(binomtest(int(k), runs, 0.95).pvalue for k in hits) > 0.01 / 3
    assert max(binomtest(int(k), runs, 0.95).pvalue for k in narrow) < 0.01 / 3  # a quarter too small would show


def test_standard_errors_refuse_what_they_cannot_say():
    X, y = data(RobustRegressor())
    fitted = RobustRegressor(l2=0.0).fit(X, y)
    with pytest.raises(ValueError, match="data of the fit"):
        fitted.standard_errors(X[:50], y[:50])
    with pytest.raises(ValueError, match="fit_intercept was changed"):
        clone(fitted).fit(X, y).set_params(fit_intercept=False).standard_errors(X, y)
    with pytest.raises(NotFittedError):
        RobustRegressor().standard_errors(X, y)
    with pytest.warns(ConvergenceWarning):
        short = RobustRegressor(max_iter=1).fit(X, y)
    with pytest.raises(ValueError, match="MAX_ITERATIONS"):
        short.standard_errors(X, y)
    labels = (y > 0).astype(int)
    with pytest.raises(ValueError, match="classes are"):
        RobustClassifier().fit(X, labels).standard_errors(X, labels + 1)
    wide = sp.eye_array(3200, format="csr")
    target = np.arange(3200.0)
    problem = model(RobustRegressor(), wide, target, None, "squares")
    result = tercet.minimize(problem, order=1)
    with pytest.raises(ValueError, match="too many"):
        sandwich(problem, result)


NOT_IDENTIFIED = {
    "a column twice": (lambda X: np.column_stack([X, X[:, 0]]), [0, -1]),
    "a sum of two": (lambda X: np.column_stack([X, X[:, 0] + 2.0 * X[:, 1]]), [0, 1, -1]),
    "a column of zeros": (lambda X: np.column_stack([X, np.zeros(len(X))]), [-1]),
    "a constant": (lambda X: np.column_stack([X, np.full(len(X), 3.0)]), [-1, "intercept"]),
    "in other units": (lambda X: np.column_stack([1e5 * X, 1e-5 * X[:, 0]]), [0, -1]),
}


@pytest.mark.parametrize("kind", NOT_IDENTIFIED)
@pytest.mark.parametrize("l2", [0.0, 1e-3])
@pytest.mark.parametrize("estimator", [RobustRegressor("squares"), RobustClassifier("logistic")], ids=names)
def test_standard_errors_are_nan_and_named_where_the_data_do_not_identify_a_coefficient(estimator, l2, kind):
    X, y = data(estimator)
    make, missing = NOT_IDENTIFIED[kind]
    more, d = make(X), X.shape[1]
    where = [d + 1 if j == "intercept" else j % (d + 1) for j in missing]
    fitted = clone(estimator).set_params(l2=l2).fit(more, y)
    with pytest.warns(UserWarning, match="do not identify") as warned:
        errors = np.ravel(fitted.standard_errors(more, y))
    assert np.flatnonzero(np.isnan(errors)).tolist() == sorted(where)
    text = str(warned[0].message)
    assert all((f"feature {j}" if j <= d else "the intercept") in text for j in where)
    rest = [j for j in range(d) if j not in where]
    assert np.all(errors[rest] > 0)
    if l2 == 0.0 and kind in ("a column twice", "a column of zeros", "a constant"):
        alone = np.ravel(clone(estimator).set_params(l2=l2).fit(X, y).standard_errors(X, y))
        np.testing.assert_allclose(errors[rest], alone[rest], rtol=1e-4)


# Outcomes


@pytest.mark.parametrize("estimator", BOTH, ids=names)
def test_a_fit_that_is_not_certified_warns_with_its_status(estimator):
    X, y = data(estimator)
    short = clone(estimator).set_params(tol=1e-20)
    with pytest.warns(ConvergenceWarning, match=rf"{type(estimator).__name__}\.fit.* ROUNDING"):
        short.fit(X, y)
    assert not np.any(np.isnan(short.predict(X)))
    assert short.result_.status is Status.ROUNDING


@pytest.mark.parametrize("estimator", BOTH, ids=names)
def test_a_budget_in_seconds_ends_a_fit(estimator):
    X, y = data(estimator)
    with pytest.warns(ConvergenceWarning, match="MAX_SECONDS.*raise max_seconds"):
        clone(estimator).set_params(max_seconds=1e-9).fit(X, y)


def test_the_advice_names_the_parameter_of_the_estimator():
    X, y = three()
    with pytest.warns(ConvergenceWarning, match="raise max_iter to go on") as caught:
        RobustClassifier(max_iter=1).fit(X, y)
    assert [label for w in caught for label in ("ash", "elm", "oak") if f"'{label}'" in str(w.message)] == [
        "ash",
        "elm",
        "oak",
    ]


@dataclass(frozen=True)
class Interrupting:
    """The usual sigma, and an interrupt from the keyboard at the second step."""

    eta1: float = 0.1

    def first(self):
        return tercet.SignedEstimate().first()

    def next(self, control, evidence):
        if control != self.first():
            raise KeyboardInterrupt
        return tercet.SignedEstimate().next(control, evidence)


def test_an_interruption_keeps_the_best_point_and_goes_on_to_the_caller():
    for estimator in (
        RobustClassifier(method=tercet.STM(sigma=Interrupting())),
        RobustRegressor(method=tercet.STM(sigma=Interrupting())),
    ):
        X, y = data(estimator)
        with pytest.raises(KeyboardInterrupt, match="INTERRUPTED"):
            estimator.fit(X, y)
        assert estimator.result_.status is Status.INTERRUPTED
        assert np.any(estimator.coef_)
        assert estimator.n_iter_ == estimator.result_.nit  # no further run was begun


def test_an_interruption_before_every_class_has_a_point_leaves_the_last_fit_alone():
    X, y = three()
    fitted = RobustClassifier().fit(X, y)
    before = fitted.coef_
    fitted.set_params(method=tercet.STM(sigma=Interrupting()))
    with pytest.raises(KeyboardInterrupt):
        fitted.fit(X, y)
    assert fitted.coef_ is before


@pytest.mark.parametrize("estimator", BOTH, ids=names)
def test_a_warm_start_begins_at_the_last_fit(estimator):
    X, y = data(estimator, n=400)
    scale = {"scale": 0.5} if estimator.loss in TUNING else {}
    warm = clone(estimator).set_params(warm_start=True, random_state=0, **scale)
    first = np.copy(warm.fit(X, y).coef_), np.sum(warm.n_iter_)
    half = warm.fit(X[:200], y[:200])
    assert not np.allclose(half.coef_, first[0], rtol=1e-3)
    again = clone(warm).fit(X, y)
    assert np.array_equal(again.coef_, first[0])
    assert np.sum(again.fit(X, y).n_iter_) < first[1]
    np.testing.assert_allclose(again.coef_, first[0], rtol=1e-6)
    with pytest.raises(ValueError, match="4 features, this one has 3"):
        warm.fit(X[:, :3], y)


@pytest.mark.parametrize("loss", TUNING)
def test_a_warm_start_estimates_the_scale_at_the_last_fit(loss):
    X, y = data(RobustRegressor())
    warm = RobustRegressor(loss, warm_start=True).fit(X, y)
    before, iterations = warm.scale_, warm.n_iter_
    assert warm.fit(X, y).scale_ == pytest.approx(before, rel=0.02)
    assert warm.n_iter_ < iterations
    assert warm.fit(X, 100 * y).scale_ == pytest.approx(100 * before, rel=0.02)


def test_a_warm_start_refuses_other_classes():
    X, y = data(CLASSIFIERS[0])
    warm = RobustClassifier(warm_start=True).fit(X, y)
    with pytest.raises(ValueError, match=r"\[0, 2\].*\[0, 1\]"):
        warm.fit(X, 2 * y)


@pytest.mark.parametrize(
    ("estimator", "fault", "message"),
    [
        (RobustClassifier(), {"loss": "cauchy"}, "loss='cauchy'.*sigmoid_squares, logistic"),
        (RobustRegressor(), {"loss": "huber"}, "loss='huber'.*cauchy, welsch"),
        (RobustRegressor(), {"loss": "squares", "scale": 2.0}, "scale=2.0.*no scale"),
        (RobustRegressor(), {"scale": -1.0}, "scale=-1.0.*positive"),
        (RobustRegressor(), {"scale": "mad"}, "scale='mad'.*positive number"),
        (RobustClassifier(), {"l2": -1.0}, "l2=-1.0.*at least 0"),
        (RobustClassifier(), {"l2": "none"}, "l2='none'"),
        (RobustClassifier(), {"max_iter": 0}, "max_iter=0.*positive whole"),
        (RobustClassifier(), {"max_iter": 2.5}, "max_iter=2.5"),
        (RobustClassifier(), {"tol": 0.0}, "tol=0.0"),
        (RobustClassifier(), {"order": 4}, "order=4"),
        (RobustClassifier(), {"max_seconds": -1}, "max_seconds=-1"),
        (RobustClassifier(), {"method": tercet.STM}, "pass an object"),
        (RobustClassifier(), {"class_weight": "heavy"}, "class_weight"),
        (RobustClassifier(), {"class_weight": {0: 1, 7: 1}}, "not in class_weight"),
        (RobustClassifier(), {"class_weight": {0: 1, 1: 0}}, "class_weight=.*positive"),
        (RobustClassifier(), {"class_weight": {0: 1, 1: -2}}, "class_weight=.*positive"),
        (RobustClassifier(), {"random_state": "x"}, "seed"),
    ],
)
def test_bad_settings_are_refused_with_their_name(estimator, fault, message):
    X, y = data(estimator)
    with pytest.raises(ValueError, match=message):
        clone(estimator).set_params(**fault).fit(X, y)


def test_bad_rows_are_refused():
    X, y = data(CLASSIFIERS[0])
    for w, message in (
        (np.ones(3), "shape"),
        (np.full(len(y), -1.0), "at least 0"),
        (np.zeros(len(y)), "zero"),
        (np.full(len(y), np.nan), "NaN"),
    ):
        with pytest.raises(ValueError, match=message):
            RobustClassifier().fit(X, y, w)
    with pytest.raises(ValueError, match="only one class"):
        RobustClassifier().fit(X, y, y)
    with pytest.raises(ValueError, match="Unknown label type"):
        RobustClassifier().fit(X, y + 0.5 * X[:, 0])


# Life among other estimators


def test_without_scikit_learn_the_import_says_what_to_install():
    code = "import sys; sys.modules['sklearn'] = None; import tercet.sklearn"
    run = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    assert "ImportError: tercet.sklearn needs scikit-learn: pip install 'tercet[sklearn]'." in run.stderr


@pytest.mark.parametrize("estimator", BOTH, ids=names)
def test_the_same_seed_gives_the_same_fit_and_a_pickle_predicts_alike(estimator):
    X, y = data(estimator, n=500)
    one, two = (clone(estimator).set_params(random_state=7).fit(X, y) for _ in range(2))
    assert np.array_equal(one.coef_, two.coef_)
    copy = pickle.loads(pickle.dumps(one))
    assert np.array_equal(copy.predict(X), one.predict(X))
    assert copy.certificate_ == one.certificate_
    given = clone(estimator).set_params(random_state=np.random.RandomState(7)).fit(X, y)
    assert np.array_equal(given.coef_, one.coef_)


@pytest.mark.parametrize("estimator", BOTH, ids=names)
def test_a_search_over_a_pipeline_runs_in_two_processes(estimator):
    X, y = data(estimator)
    frame = pd.DataFrame(X, columns=["a", "b", "c", "d"])
    pipeline = make_pipeline(StandardScaler().set_output(transform="pandas"), estimator)
    name = type(estimator).__name__.lower()
    search = GridSearchCV(pipeline, {f"{name}__l2": [1e-3, 1e-1]}, cv=3, n_jobs=2).fit(frame, y)
    assert search.best_estimator_[-1].feature_names_in_.tolist() == ["a", "b", "c", "d"]
    assert np.all(np.isfinite(search.cv_results_["mean_test_score"]))


def test_sample_weights_are_routed():
    X, y = data(CLASSIFIERS[0])
    w = np.random.default_rng(0).random(len(y))
    with sklearn.config_context(enable_metadata_routing=True):
        routed = make_pipeline(RobustClassifier(random_state=0).set_fit_request(sample_weight=True))
        routed.fit(X, y, sample_weight=w)
        plain = make_pipeline(RobustClassifier(random_state=0).set_fit_request(sample_weight=False)).fit(X, y)
    direct = RobustClassifier(random_state=0).fit(X, y, w)
    assert np.array_equal(routed[-1].coef_, direct.coef_)
    assert not np.array_equal(plain[-1].coef_, direct.coef_)


@pytest.mark.parametrize("sparse", [False, True])
def test_float64_data_is_not_copied(sparse):
    X, rng = rows(20_000, 100)
    y = (X[:, 0] + rng.standard_normal(20_000) > 0).astype(int)
    A = sp.random_array((20_000, 2000), density=0.05, rng=rng, format="csr") if sparse else X
    size = A.data.nbytes + A.indices.nbytes if sparse else A.nbytes
    fit = RobustClassifier(fit_intercept=False, order=1, max_iter=1, method=tercet.SCR(subsolver=tercet.Krylov()))
    with pytest.warns(ConvergenceWarning):
        fit.fit(A[:500], y[:500])  # what is compiled and imported once is not counted below
    tracemalloc.start()
    with pytest.warns(ConvergenceWarning):
        fit.fit(A, y)
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert peak < 0.8 * size
