"""`RobustClassifier`: linear classification with a bounded loss."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy.special import expit, log_expit, softmax
from sklearn.base import BaseEstimator, ClassifierMixin
from sklearn.utils.class_weight import compute_class_weight
from sklearn.utils.multiclass import check_classification_targets
from sklearn.utils.validation import check_is_fitted

from tercet.methods.run import Method
from tercet.objectives.class_model import ClassModel
from tercet.records import Certificate, Matrix, Status, Vector
from tercet.result import Result
from tercet.sklearn.common import (
    announce,
    check_settings,
    model,
    names_of,
    past_points,
    rows_of,
    sandwich,
    seed_of,
    solve,
    used_rows,
)
from tercet.sklearn.joint import joint_errors, joint_model, solve_joint

LOSSES = ("sigmoid_squares", "logistic")


class RobustClassifier(ClassifierMixin, BaseEstimator):
    """Linear classification with a bounded loss: a label that is wrong by far counts no more than 1/2.

    `loss` is "sigmoid_squares", l = 1/2 (p - y)^2, or "logistic", l = -y log p - (1 - y) log(1 - p), both with
    p = 1 / (1 + exp(-z)), z = a'x and y in {0, 1}; the second is convex and not bounded. Both are proper scores, so
    that p estimates a probability. More than two classes are fitted one against the rest (`multi_class="ovr"`), or all
    at once (`multi_class="multinomial"`) with p = softmax(z) and l = 1/2 |p - e_y|^2 or -log p_y; see `ClassModel`.

    `class_weight` is None, "balanced" (a class weighs inversely to the total weight of its rows) or a dict of weights
    by label; it multiplies `sample_weight`. `l2` is that of `LinearModel`; `tol`, `order`, `method` and `max_seconds`
    are those of `minimize`, for each class, and `max_iter` is its `max_iterations`. With `warm_start` a fit begins at
    the coefficients of the last one, else at zero.

    A fit that is not certified warns with a ConvergenceWarning. After Ctrl-C the best point is kept where every class
    has one, and the KeyboardInterrupt goes on.

    After `fit`: `classes_`; `coef_`, of shape (1, n_features) for two classes, else (n_classes, n_features);
    `intercept_`, one for each row of `coef_`; `n_iter_`, one for each run; `result_` and `certificate_`, tuples where
    more than two classes were fitted one against the rest; `n_features_in_`, and `feature_names_in_` where X names its
    columns.
    """

    classes_: NDArray[Any]
    coef_: Vector
    intercept_: Vector
    n_iter_: NDArray[np.int_]
    result_: Result | tuple[Result, ...]
    certificate_: Certificate | tuple[Certificate, ...]

    def __init__(
        self,
        loss: str = "sigmoid_squares",
        *,
        multi_class: str = "ovr",
        l2: float = 1e-3,
        fit_intercept: bool = True,
        class_weight: Any = None,
        tol: float | None = None,
        order: int | None = None,
        max_iter: int = 1000,
        max_seconds: float | None = None,
        method: Method | None = None,
        warm_start: bool = False,
        random_state: Any = None,
    ):
        self.loss = loss
        self.multi_class = multi_class
        self.l2 = l2
        self.fit_intercept = fit_intercept
        self.class_weight = class_weight
        self.tol = tol
        self.order = order
        self.max_iter = max_iter
        self.max_seconds = max_seconds
        self.method = method
        self.warm_start = warm_start
        self.random_state = random_state

    def fit(self, X: Any, y: Any, sample_weight: Any = None) -> RobustClassifier:
        """Minimize f for each class against the rest; of two classes, for the second against the first."""
        check_settings(self, LOSSES)
        if self.multi_class not in ("ovr", "multinomial"):
            raise ValueError(f"RobustClassifier(multi_class={self.multi_class!r}): choose 'ovr' or 'multinomial'.")
        X, y = rows_of(self, X, y)
        check_classification_targets(y)
        X, y, w = used_rows(X, y, sample_weight)
        classes = np.unique(y)
        if len(classes) < 2:
            raise ValueError(
                f"RobustClassifier.fit(y=...): only one class, {classes.tolist()[0]!r}, has rows with a positive "
                "weight; give rows of at least two classes."
            )
        past = past_points(self, X.shape[1])
        if past is not None and not np.array_equal(classes, self.classes_):
            raise ValueError(
                f"RobustClassifier.fit(warm_start=True): the classes are {classes.tolist()}, those of the last fit "
                f"{self.classes_.tolist()}; fit a clone instead."
            )
        w, seed = row_weights(self.class_weight, classes, y, w), seed_of(self)
        if self._is_joint(classes):
            return self._fit_joint(joint_model(self, X, y, w), past, seed)
        parts = against_the_rest(classes)
        results: list[Result] = []
        for k in parts:
            problem = model(self, X, (y == classes[k]).astype(np.float64), w, self.loss)
            results.append(solve(self, problem, None if past is None else past[len(results)], seed))
            if results[-1].status is Status.INTERRUPTED:
                break
        if len(results) == len(parts):
            self._keep(classes, results, X.shape[1])
        announce(self, results, [f" of class {classes[k]!r}" for k in parts[: len(results)]])
        return self

    def _is_joint(self, classes: NDArray[Any]) -> bool:
        """Of two classes the second against the first is all there is."""
        return self.multi_class == "multinomial" and len(classes) > 2

    def _fit_joint(self, problem: ClassModel, past: Matrix | None, seed: int) -> RobustClassifier:
        result = solve_joint(self, problem, past, seed)
        W, d = problem.coefficients(result.x), problem.A.shape[1] - problem.intercept
        self.classes_, self.coef_ = problem.classes, W[:, :d]
        self.intercept_ = W[:, d] if self.fit_intercept else np.zeros(len(W))
        self.n_iter_, self.result_, self.certificate_ = np.array([result.nit]), result, result.certificate
        announce(self, [result], [""])
        return self

    def _keep(self, classes: NDArray[Any], results: list[Result], d: int) -> None:
        points = np.stack([result.x for result in results])
        self.classes_, self.coef_ = classes, points[:, :d]
        self.intercept_ = points[:, d] if self.fit_intercept else np.zeros(len(points))
        self.n_iter_ = np.array([result.nit for result in results])
        self.result_ = results[0] if len(results) == 1 else tuple(results)
        self.certificate_ = results[0].certificate if len(results) == 1 else tuple(r.certificate for r in results)

    def decision_function(self, X: Any) -> Vector:
        """z = a'x for each row: of two classes the log-odds of the second, else one column for each class."""
        check_is_fitted(self)
        X = rows_of(self, X, reset=False)
        z = X @ self.coef_.T + self.intercept_
        return z[:, 0] if len(self.classes_) == 2 else z

    def predict(self, X: Any) -> NDArray[Any]:
        """The most probable class of each row."""
        z = self.decision_function(X)
        return self.classes_[np.argmax(z, axis=1) if z.ndim == 2 else (z > 0).astype(np.intp)]

    def predict_proba(self, X: Any) -> Vector:
        """1 - p and p; of more than two classes softmax(z), or p_k / sum_j p_j of one against the rest."""
        z = self.decision_function(X)
        if self._is_joint(self.classes_):
            return softmax(z, axis=1)
        return softmax(log_expit(z), axis=1) if z.ndim == 2 else np.column_stack([expit(-z), expit(z)])

    def standard_errors(self, X: Any, y: Any, sample_weight: Any = None) -> Vector:
        """Standard errors of `coef_` and, in a last column, of `intercept_`: the roots of diag(H^-1 S H^-1 / n).

        The sandwich of M-estimation, which does not need the model to be true: see `tercet.sklearn.common.sandwich`.
        X, y and sample_weight are those of the fit.
        """
        check_is_fitted(self)
        X, y = rows_of(self, X, y, reset=False)
        X, y, w = used_rows(X, y, sample_weight)
        classes = np.unique(y)
        if not np.array_equal(classes, self.classes_):
            raise ValueError(
                f"standard_errors(y=...): the classes are {classes.tolist()}, those of the fit "
                f"{self.classes_.tolist()}; give the data of the fit."
            )
        w = row_weights(self.class_weight, classes, y, w)
        if isinstance(self.result_, Result) and self._is_joint(classes):
            return joint_errors(joint_model(self, X, y, w), self.result_)
        results = self.result_ if isinstance(self.result_, tuple) else (self.result_,)
        each = [
            sandwich(model(self, X, (y == classes[k]).astype(np.float64), w, self.loss), result, names_of(self))
            for k, result in zip(against_the_rest(classes), results, strict=True)
        ]
        return np.stack(each)

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.input_tags.sparse = True
        return tags


def against_the_rest(classes: NDArray[Any]) -> list[int]:
    """The classes that are set against all others: every one, but of two only the second."""
    return [1] if len(classes) == 2 else list(range(len(classes)))


def row_weights(class_weight: Any, classes: NDArray[Any], y: NDArray[Any], w: Vector | None) -> Vector | None:
    """The weight of each row times that of its class; None where all are one."""
    if class_weight is None:
        return w
    by_class = compute_class_weight(class_weight, classes=classes, y=y, sample_weight=w)
    if not (np.all(np.isfinite(by_class)) and np.all(by_class > 0)):
        raise ValueError(
            f"RobustClassifier(class_weight={class_weight!r}): give every class a positive, finite weight; to leave a "
            "class out, drop its rows."
        )
    factors = by_class[np.searchsorted(classes, y)]
    return factors if w is None else factors * w
