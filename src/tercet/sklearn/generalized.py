"""`GeneralizedRegressor`: Poisson, negative binomial and gamma regression, and regression to a quantile."""

from __future__ import annotations

from typing import Any

import numpy as np
from sklearn.base import BaseEstimator, RegressorMixin
from sklearn.utils.validation import check_is_fitted

from tercet.inference import Inference
from tercet.methods.inferring import infer
from tercet.methods.run import Method
from tercet.objectives.glm import NegativeBinomial, SmoothQuantile
from tercet.objectives.linear import LinearModel
from tercet.records import Certificate, Vector
from tercet.result import Result
from tercet.sklearn.common import announce, check_settings, names_of, past_points, rows_of, seed_of, solve, used_rows

LOSSES = ("poisson", "negative_binomial", "gamma", "smooth_quantile")


class GeneralizedRegressor(RegressorMixin, BaseEstimator):
    """Generalized linear regression: f(x) = (1/W) sum_i w_i l(a_i'x, y_i) + l2/2 |x|^2.

    `loss` is "poisson", "negative_binomial" (with a `dispersion`) or "gamma", for targets whose mean is exp(a'x), or
    "smooth_quantile" (with a `quantile`, and a `scale` over which its kink is rounded off), which has no link. The
    other parameters, warnings and Ctrl-C are as in `RobustClassifier`.

    After `fit`: `coef_`, of shape (n_features,); `intercept_`; `n_iter_`; `result_` and `certificate_`;
    `n_features_in_`, and `feature_names_in_` where X names its columns.
    """

    coef_: Vector
    intercept_: float
    n_iter_: int
    result_: Result
    certificate_: Certificate

    def __init__(
        self,
        loss: str = "poisson",
        *,
        dispersion: float = 1.0,
        quantile: float = 0.5,
        scale: float = 1.0,
        l2: float = 0.0,
        fit_intercept: bool = True,
        tol: float | None = None,
        order: int | None = None,
        max_iter: int = 1000,
        max_seconds: float | None = None,
        method: Method | None = None,
        warm_start: bool = False,
        random_state: Any = None,
    ):
        self.loss = loss
        self.dispersion = dispersion
        self.quantile = quantile
        self.scale = scale
        self.l2 = l2
        self.fit_intercept = fit_intercept
        self.tol = tol
        self.order = order
        self.max_iter = max_iter
        self.max_seconds = max_seconds
        self.method = method
        self.warm_start = warm_start
        self.random_state = random_state

    def fit(self, X: Any, y: Any, sample_weight: Any = None) -> GeneralizedRegressor:
        """Minimize f from zero, or from the last fit."""
        check_settings(self, LOSSES)
        X, y = rows_of(self, X, y, y_numeric=True)
        problem, d = self._problem(X, y, sample_weight)
        past = past_points(self, d)
        result = solve(self, problem, None if past is None else past[0], seed_of(self))
        self.coef_, self.intercept_ = result.x[:d], float(result.x[d]) if self.fit_intercept else 0.0
        self.n_iter_, self.result_, self.certificate_ = result.nit, result, result.certificate
        announce(self, [result], [""])
        return self

    def _problem(self, X: Any, y: Any, sample_weight: Any) -> tuple[LinearModel, int]:
        """The objective over the rows that count, and the number of features."""
        X, y, w = used_rows(X, y.astype(np.float64, copy=False), sample_weight)
        model = LinearModel(X, y, self._loss(), l2=self.l2, weights=w, intercept=self.fit_intercept)
        return model, X.shape[1]

    def _loss(self) -> Any:
        if self.loss == "negative_binomial":
            return NegativeBinomial(self.dispersion)
        return SmoothQuantile(self.quantile, self.scale) if self.loss == "smooth_quantile" else self.loss

    def predict(self, X: Any) -> Vector:
        """The mean exp(a'x) of each row, or its quantile a'x."""
        check_is_fitted(self)
        z = rows_of(self, X, reset=False) @ self.coef_ + self.intercept_
        return z if self.loss == "smooth_quantile" else np.exp(z)

    def infer(self, X: Any, y: Any, sample_weight: Any = None, *, kind: str | None = None, **options: Any) -> Inference:
        """`tercet.infer` of the fit: covariance, standard errors, intervals and the table. The data are those of it."""
        check_is_fitted(self)
        X, y = rows_of(self, X, y, y_numeric=True, reset=False)
        problem, d = self._problem(X, y, sample_weight)
        names = [*(names_of(self) or [f"x{j}" for j in range(d)]), *(["intercept"] if self.fit_intercept else [])]
        return infer(problem, self.result_, kind, names=names, **options)

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.input_tags.sparse = True
        tags.target_tags.positive_only = self.loss != "smooth_quantile"
        return tags
