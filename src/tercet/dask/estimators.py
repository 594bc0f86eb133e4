"""Robust linear models on a Dask cluster, in the manner of scikit-learn."""

from __future__ import annotations

import warnings
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy.special import expit
from sklearn.base import BaseEstimator, ClassifierMixin, RegressorMixin
from sklearn.exceptions import ConvergenceWarning
from sklearn.utils.validation import check_is_fitted

from tercet.dask.model import LinearModel, client_of
from tercet.methods.minimize import minimize
from tercet.methods.run import Method
from tercet.objectives.sharded.driver import SAMPLE
from tercet.objectives.sharded.model import ShardedLinearModel
from tercet.records import Certificate, Status, Vector
from tercet.result import Result
from tercet.shards import Shards
from tercet.sklearn.classifier import LOSSES as CLASSIFIERS
from tercet.sklearn.common import announce, check_settings, seed_of
from tercet.sklearn.regressor import DEVIATIONS, EXACT, SETTLED, TUNING, median
from tercet.sklearn.regressor import LOSSES as REGRESSORS


class RobustClassifier(ClassifierMixin, BaseEstimator):
    """`tercet.sklearn.RobustClassifier` for data on a Dask cluster: two classes, a bounded loss, a certificate.

    `fit(X, y)` takes a dask array in row chunks, a dask dataframe (y a series, or the name of a column), or `Shards`
    with targets 0 and 1. `client` is a `distributed.Client`, by default the last one made; `sample_bytes` is that of
    `tercet.dask.LinearModel`. The other parameters are those of `tercet.sklearn.RobustClassifier`.

    After `fit`: `classes_`, `coef_`, `intercept_`, `n_iter_`, `result_`, `certificate_`, `n_features_in_`.
    """

    classes_: NDArray[Any]
    coef_: Vector
    intercept_: Vector
    result_: Result
    certificate_: Certificate

    def __init__(
        self,
        loss: str = "sigmoid_squares",
        *,
        l2: float = 1e-3,
        fit_intercept: bool = True,
        tol: float | None = None,
        order: int | None = None,
        max_iter: int = 1000,
        max_seconds: float | None = None,
        method: Method | None = None,
        random_state: Any = None,
        sample_bytes: int = SAMPLE,
        client: Any = None,
    ):
        self.loss = loss
        self.l2 = l2
        self.fit_intercept = fit_intercept
        self.tol = tol
        self.order = order
        self.max_iter = max_iter
        self.max_seconds = max_seconds
        self.method = method
        self.random_state = random_state
        self.sample_bytes = sample_bytes
        self.client = client

    warm_start = False  # as `check_settings` asks for it

    def fit(self, X: Any, y: Any = None, sample_weight: Any = None) -> RobustClassifier:
        """Minimize f for the second class against the first."""
        check_settings(self, CLASSIFIERS)
        client = client_of("RobustClassifier", self.client)
        classes, X, targets = labelled(X, y)
        if len(classes) != 2:
            some = ", ".join(repr(label) for label in classes[:5].tolist())
            raise ValueError(f"tercet.dask.RobustClassifier.fit(y=...): the classes are {some}; give rows of two.")
        problem = LinearModel(X, targets, client=client, weights=sample_weight, loss=self.loss, **settings(self))
        result = solve(self, problem, None, seed_of(self))
        self.classes_, self.n_features_in_ = classes, problem.driver.layout.columns
        self.coef_, self.intercept_ = parted(self, result.x)
        self.coef_, self.intercept_ = self.coef_[None, :], np.atleast_1d(self.intercept_)
        self.n_iter_ = np.array([result.nit])
        self.result_, self.certificate_ = result, result.certificate
        announce(self, [result], [""])
        return self

    def decision_function(self, X: Any) -> Any:
        """z = a'x for each row, the log-odds of the second class; lazy where X is."""
        check_is_fitted(self)
        return margins(X, self.coef_[0], float(self.intercept_[0]))

    def predict(self, X: Any) -> Any:
        """The more probable class of each row; lazy where X is."""
        return each(self.decision_function(X), chosen, self.classes_)

    def predict_proba(self, X: Any) -> Any:
        """p of the second class for each row of X, beside 1 - p; an array of NumPy also where X is lazy."""
        z = np.asarray(self.decision_function(X))
        return np.column_stack([expit(-z), expit(z)])


class RobustRegressor(RegressorMixin, BaseEstimator):
    """`tercet.sklearn.RobustRegressor` for data on a Dask cluster.

    `fit(X, y)` takes what `tercet.dask.RobustClassifier` takes, with real targets. Without a `scale` it is estimated as
    there, from the residuals of the sample of rows that lives with the driver. The other parameters are those of
    `tercet.sklearn.RobustRegressor`.

    After `fit`: `coef_`, `intercept_`, `scale_`, `n_iter_`, `result_`, `certificate_`, `n_features_in_`.
    """

    coef_: Vector
    intercept_: float
    scale_: float
    result_: Result
    certificate_: Certificate

    def __init__(
        self,
        loss: str = "cauchy",
        *,
        scale: float | None = None,
        l2: float = 0.0,
        fit_intercept: bool = True,
        tol: float | None = None,
        order: int | None = None,
        max_iter: int = 1000,
        max_seconds: float | None = None,
        method: Method | None = None,
        random_state: Any = None,
        sample_bytes: int = SAMPLE,
        client: Any = None,
    ):
        self.loss = loss
        self.scale = scale
        self.l2 = l2
        self.fit_intercept = fit_intercept
        self.tol = tol
        self.order = order
        self.max_iter = max_iter
        self.max_seconds = max_seconds
        self.method = method
        self.random_state = random_state
        self.sample_bytes = sample_bytes
        self.client = client

    warm_start = False  # as `check_settings` asks for it

    def fit(self, X: Any, y: Any = None, sample_weight: Any = None) -> RobustRegressor:
        """Least squares first, then the loss from there; again as long as its residuals ask for a smaller scale."""
        check_settings(self, REGRESSORS)
        if self.scale is not None and self.loss == "squares":
            raise ValueError(f"tercet.dask.RobustRegressor(loss='squares', scale={self.scale}): squares have no scale.")
        client, seed = client_of("RobustRegressor", self.client), seed_of(self)

        def model(loss: str, scale: float | None) -> ShardedLinearModel:
            given = {"client": client, "weights": sample_weight, "loss": loss, "scale": scale}
            return LinearModel(X, y, **given, **settings(self))

        problem = model("squares", None)
        results = [solve(self, problem, None, seed)]
        scale = self.scale or estimate(self, problem, results[-1].x, seed)
        while self.loss != "squares" and results[-1].status is not Status.INTERRUPTED:
            problem = model(self.loss, scale)
            results.append(solve(self, problem, results[-1].x, seed))
            found = estimate(self, problem, results[-1].x, seed)
            if self.scale is not None or not found <= SETTLED * scale:
                break
            scale = found
        last = results[-1]
        self.coef_, self.intercept_ = parted(self, last.x)
        self.scale_, self.n_features_in_ = float(scale), problem.driver.layout.columns
        self.n_iter_, self.result_, self.certificate_ = sum(r.nit for r in results), last, last.certificate
        announce(self, [last], [""])
        return self

    def predict(self, X: Any) -> Any:
        """a'x for each row; lazy where X is."""
        check_is_fitted(self)
        return margins(X, self.coef_, self.intercept_)


def settings(estimator: Any) -> dict[str, Any]:
    """What an estimator hands to its model."""
    return {"l2": estimator.l2, "intercept": estimator.fit_intercept, "sample_bytes": estimator.sample_bytes}


def solve(estimator: Any, problem: ShardedLinearModel, x0: Vector | None, seed: int) -> Result:
    """`minimize` with an estimator's settings."""
    return minimize(
        problem,
        x0,
        method=estimator.method,
        tol=estimator.tol,
        order=estimator.order,
        seed=seed,
        max_iterations=estimator.max_iter,
        max_seconds=estimator.max_seconds,
    )


def parted(estimator: Any, x: Vector) -> tuple[Vector, Any]:
    """Coefficients and intercept."""
    return (x[:-1], float(x[-1])) if estimator.fit_intercept else (x, 0.0)


def labelled(X: Any, y: Any) -> tuple[NDArray[Any], Any, Any]:
    """The classes, X without the targets, and targets that are 1 for the second class and 0 for the others."""
    import dask.array as da

    if isinstance(X, Shards):
        labels = X.labels or {"0.0": 0, "1.0": 1}
        return np.array([float(label) for label, _ in sorted(labels.items(), key=lambda item: item[1])]), X, y
    if isinstance(y, str):
        X, y = X.drop(columns=[y]), X[y]
    if isinstance(y, np.ndarray):
        classes = np.unique(y)
    elif isinstance(y, da.Array):
        classes = np.asarray(da.unique(y).compute())
    elif hasattr(y, "unique"):
        classes = np.sort(np.asarray(y.unique().compute()))
    else:
        raise ValueError(f"tercet.dask.RobustClassifier.fit(y={type(y).__name__}): give a dask array, as X is.")
    return classes, X, (y == classes[-1]).astype(float)


def estimate(estimator: Any, problem: ShardedLinearModel, x: Vector, seed: int) -> float:
    """The tuning constant of the loss times the noise that the residuals of the sample show."""
    if estimator.loss == "squares":
        return 1.0
    drawn = problem.driver.sample(seed)
    r = drawn.y - drawn.X @ (x[:-1] if estimator.fit_intercept else x)
    center = median(r, drawn.w) if estimator.fit_intercept else 0.0
    noise = DEVIATIONS * median(np.abs(r - center), drawn.w)
    size = median(np.abs(drawn.y), drawn.w)
    if noise <= EXACT * size:
        text = f"{type(estimator).__name__}.fit: the sample leaves no noise to estimate a scale from; give scale."
        warnings.warn(text, ConvergenceWarning, stacklevel=3)
    return TUNING[estimator.loss] * max(noise, EXACT * size, float(np.finfo(float).tiny))


def margins(X: Any, coef: Vector, intercept: float) -> Any:
    """Xb + c, chunk by chunk where X is lazy."""
    if hasattr(X, "to_dask_array"):
        X = X.to_dask_array(lengths=None)
    if hasattr(X, "map_blocks"):
        return X.map_blocks(product, coef, intercept, drop_axis=1, dtype=np.float64)
    return product(X, coef, intercept)


def product(X: Any, coef: Vector, intercept: float) -> Vector:
    """Xb + c."""
    return np.asarray(X @ coef) + intercept


def chosen(z: Vector, classes: NDArray[Any]) -> NDArray[Any]:
    """The class on whose side a margin is."""
    return classes[(z > 0).astype(np.intp)]


def each(z: Any, work: Any, *arguments: Any) -> Any:
    """work(z), chunk by chunk where z is lazy."""
    if hasattr(z, "map_blocks"):
        return z.map_blocks(work, *arguments, dtype=np.asarray(arguments[0]).dtype)
    return work(z, *arguments)
