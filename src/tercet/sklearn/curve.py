"""`CurveRegressor`: a nonlinear model of one's own, fitted by its residuals."""

from __future__ import annotations

import warnings
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import numpy as np
from sklearn.base import BaseEstimator, RegressorMixin
from sklearn.utils.validation import check_is_fitted, validate_data

from tercet.checks import flag, refuse_masked, whole
from tercet.fitting.curve import curve_fit, deviation, evaluated
from tercet.methods.minimize import check_budgets
from tercet.records import Certificate, Matrix, Vector
from tercet.result import Result
from tercet.sklearn.common import announce, refuse_text, seed_of, used_rows


class CurveRegressor(RegressorMixin, BaseEstimator):
    """Least squares for y = f(X, *params) + noise, with a certificate: `tercet.curve_fit` as an estimator.

    `f(X, *params)` takes X of shape (n_samples, n_features) and gives a vector of n_samples; it is written in NumPy or
    in JAX (`tercet.curve_fit` tells what that changes). The fit starts at `p0`, by default at ones for the parameters
    that the signature names. A row of weight w has a standard deviation of 1 / sqrt(w), up to a common factor that the
    residuals tell, or as it is with `absolute_sigma`. A fit that is not certified gives a ConvergenceWarning.

    After `fit`: `params_`, `param_names_`; `covariance_`, s^2 (J'J)^-1, and `standard_errors_`, inf where the data do
    not tell them; `n_iter_`, `result_`, `certificate_`, `n_features_in_`, and `feature_names_in_` where X names its
    columns.
    """

    params_: Vector
    param_names_: tuple[str, ...]
    covariance_: Matrix
    n_iter_: int
    result_: Result
    certificate_: Certificate

    def __init__(
        self,
        f: Callable[..., Any],
        p0: Any = None,
        *,
        absolute_sigma: bool = False,
        jac: Callable[..., Any] | None = None,
        tol: float | None = None,
        max_iter: int = 1000,
        max_seconds: float | None = None,
        random_state: Any = None,
    ):
        self.f = f
        self.p0 = p0
        self.absolute_sigma = absolute_sigma
        self.jac = jac
        self.tol = tol
        self.max_iter = max_iter
        self.max_seconds = max_seconds
        self.random_state = random_state

    def fit(self, X: Any, y: Any, sample_weight: Any = None) -> CurveRegressor:
        """Fit the parameters, from `p0`."""
        self._check()
        X, y = self._rows(X, y, y_numeric=True)
        X, y, w = used_rows(X, y.astype(np.float64, copy=False), sample_weight)
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # a covariance that is not known is inf
            fit = curve_fit(
                self.f,
                X,
                y,
                self.p0,
                None if w is None else 1.0 / np.sqrt(w),
                self.absolute_sigma,
                jac=self.jac,
                tol=self.tol,
                seed=seed_of(self),
                max_iterations=self.max_iter,
                max_seconds=self.max_seconds,
            )
        self.params_, self.covariance_, self.param_names_ = fit.popt, fit.pcov, fit.names
        self.result_, self.certificate_, self.n_iter_ = (
            replace(fit.result, infers=None),
            fit.certificate,
            fit.result.nit,
        )
        announce(self, [self.result_], [""])
        return self

    def predict(self, X: Any, return_std: bool = False) -> Any:
        """f(X, *params_); with `return_std` also its standard error, sqrt(j' covariance_ j), j its slope in params_.

        That is the uncertainty of the curve. An observation there varies by its noise beside.
        """
        check_is_fitted(self)
        X = self._rows(X, reset=False)
        found = evaluated(self.f, X, self.params_)
        return (found, deviation(self.f, X, self.params_, self.covariance_)) if return_std else found

    @property
    def standard_errors_(self) -> Vector:
        """sqrt(diag(covariance_))."""
        return np.sqrt(np.diag(self.covariance_))

    def _check(self) -> None:
        if not callable(self.f):
            raise ValueError(f"CurveRegressor(f={self.f!r}): f is a function f(X, *params).")
        flag("CurveRegressor", "absolute_sigma", self.absolute_sigma)
        whole("CurveRegressor", "max_iter", self.max_iter)
        check_budgets(tol=self.tol, max_seconds=self.max_seconds)

    def _rows(self, X: Any, *y: Any, **how: Any) -> Any:
        try:
            X = refuse_text(X)
            for target in y:
                refuse_masked(target)
        except ValueError as error:
            raise ValueError(f"CurveRegressor: X or y is not an array of real numbers ({error}).") from error
        return validate_data(self, X, *y, dtype=np.float64, **how)

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.regressor_tags.poor_score = True  # how well f describes some data is not for this class to say
        return tags
