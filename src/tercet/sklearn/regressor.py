"""`RobustRegressor`: linear regression with a loss that hardly sees outliers."""

from __future__ import annotations

import warnings
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
from sklearn.base import BaseEstimator, RegressorMixin
from sklearn.exceptions import ConvergenceWarning
from sklearn.utils.validation import check_is_fitted

from tercet.methods.run import Method
from tercet.objectives.losses import check_scale
from tercet.records import Certificate, Status, Vector
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

# The scale, in standard deviations of Gaussian noise, at which the estimate has 95 % of least squares' efficiency.
TUNING = {"cauchy": 2.3849471, "welsch": 2.9846372, "geman_mcclure": 3.7874188}
LOSSES = (*TUNING, "squares")
DEVIATIONS = 1.4826022  # standard deviations in a median absolute deviation of Gaussian noise
EXACT = 1e-6  # residuals below this fraction of the targets are an exact fit, and tell nothing of a scale
LOST = 2.0  # an estimated scale is wrong when the residuals of the fit at it are wider by this factor
SETTLED = 0.99  # the scale is settled when a fit at it makes it smaller by less than this factor


class RobustRegressor(RegressorMixin, BaseEstimator):
    """Linear regression whose loss levels off: the further out a target lies, the less it pulls.

    `loss` is "cauchy", "welsch" or "geman_mcclure" (see `tercet.objectives.losses`), or "squares", which is not robust.
    `scale` is the residual c where robustness sets in. By default it is estimated: the median absolute deviation of the
    residuals, as a standard deviation, times the constant of the loss that keeps 95 % of the efficiency of least
    squares where the noise is Gaussian; and again after each fit, until it falls no more. Where no such scale is found
    (more features than rows tell apart, or a penalty that outweighs the loss) a ConvergenceWarning says so. Rows that
    are far out in X as well can still pull the fit to themselves, as with any M-estimator.

    These losses are flat far out, so a fit begins at the solution of least squares, not at zero (with `warm_start` at
    the last fit). It is computed in units of c: with x = c u, f(x) = c^2 h(u), where h has targets y / c, scale 1 and
    the same l2. `result_` and `certificate_` belong to h, and do not change with the units of y.

    The other parameters, warnings and Ctrl-C are as in `RobustClassifier`.

    After `fit`: `coef_`, of shape (n_features,); `intercept_`; `scale_`, the unit c above (of "squares" the spread of
    y); `n_iter_`, over all runs of the fit; `result_` and `certificate_`, of its last run; `n_features_in_`, and
    `feature_names_in_` where X names its columns.
    """

    coef_: Vector
    intercept_: float
    scale_: float
    n_iter_: int
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
        warm_start: bool = False,
        random_state: Any = None,
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
        self.warm_start = warm_start
        self.random_state = random_state

    def fit(self, X: Any, y: Any, sample_weight: Any = None) -> RobustRegressor:
        """Minimize f from the solution of least squares, or from the last fit."""
        check_settings(self, LOSSES)
        self._check_scale()
        X, y = rows_of(self, X, y, y_numeric=True)
        X, y, w = used_rows(X, y.astype(np.float64, copy=False), sample_weight)
        past = past_points(self, X.shape[1])
        stages: list[Stage] = []
        task = Task(self, X, y, w, seed_of(self))
        for stage in self._stages(task, None if past is None else past[0]):
            stages.append(stage)
            if stage.run.status is Status.INTERRUPTED:
                break
        self._keep(stages, X.shape[1])
        announce(self, [self.result_], [""])
        if self.scale is None and self.loss != "squares" and task.lost(stages[-1]):
            text = (
                f"RobustRegressor.fit: the scale {self.scale_:.3g} says nothing about the noise: features and penalty "
                "leave none to estimate it from. Give scale or lower l2."
            )
            warnings.warn(text, ConvergenceWarning, stacklevel=2)
        return self

    def _stages(self, task: Task, x: Vector | None) -> Iterator[Stage]:
        """Least squares, then the loss from there; again as long as its residuals ask for a smaller scale."""
        if x is None or self.loss == "squares":
            stage = task.run("squares", spread(task.y, task.w), x)
            yield stage
            x = stage.x
        if self.loss == "squares":
            return
        scale = task.estimate(x) if self.scale is None else float(self.scale)
        while True:
            stage = task.run(self.loss, scale, x)
            yield stage
            if self.scale is not None or not stage.found <= SETTLED * scale:
                return
            x, scale = stage.x, stage.found

    def _check_scale(self) -> None:
        if self.scale is None:
            return
        if self.loss == "squares":
            raise ValueError(
                f"RobustRegressor(loss='squares', scale={self.scale}): squares have no scale; leave it out."
            )
        if isinstance(self.scale, bool) or not isinstance(self.scale, int | float | np.number):
            raise ValueError(f"RobustRegressor(scale={self.scale!r}): give a positive number, or None to estimate it.")
        check_scale("RobustRegressor", float(self.scale))

    def _keep(self, stages: list[Stage], d: int) -> None:
        last = stages[-1]
        x, run = last.x, last.run
        self.coef_, self.intercept_ = x[:d], float(x[d]) if self.fit_intercept else 0.0
        self.scale_, self.result_, self.certificate_ = last.scale, run, run.certificate
        self.n_iter_ = sum(stage.run.nit for stage in stages)

    def predict(self, X: Any) -> Vector:
        """a'x for each row."""
        check_is_fitted(self)
        return rows_of(self, X, reset=False) @ self.coef_ + self.intercept_

    def standard_errors(self, X: Any, y: Any, sample_weight: Any = None) -> Vector:
        """Standard errors of `coef_` and, as a last entry, of `intercept_`: the roots of diag(H^-1 S H^-1 / n).

        The sandwich of M-estimation, which needs neither equal variances nor a known law of the noise: see
        `tercet.sklearn.common.sandwich`. The scale is taken as known. X, y and sample_weight are those of the fit.
        """
        check_is_fitted(self)
        X, y = rows_of(self, X, y, y_numeric=True, reset=False)
        X, y, w = used_rows(X, y, sample_weight)
        return self.scale_ * sandwich(model(self, X, y / self.scale_, w, self.loss), self.result_, names_of(self))

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.input_tags.sparse = True
        return tags


@dataclass(frozen=True, eq=False)
class Stage:
    """A run in units of a scale, its x in the user's units, and the scale that its residuals ask for."""

    run: Result
    scale: float
    x: Vector
    found: float


@dataclass(frozen=True, eq=False)
class Task:
    """One fit: whose it is, and the rows, with targets in the user's units."""

    estimator: RobustRegressor
    X: Any
    y: Vector
    w: Vector | None
    seed: int

    def run(self, loss: str, scale: float, x: Vector | None) -> Stage:
        """Minimize in units of the scale, from x in the user's units."""
        problem = model(self.estimator, self.X, self.y / scale, self.w, loss)
        run = solve(self.estimator, problem, None if x is None else x / scale, self.seed)
        x = scale * run.x
        return Stage(run, scale, x, np.nan if loss == "squares" else self.estimate(x))

    def residuals(self, x: Vector) -> Vector:
        """y - Xb; the intercept is left in."""
        return self.y - self.X @ x[: self.X.shape[1]]

    def estimate(self, x: Vector) -> float:
        """The tuning constant times the noise that the residuals at x show: their median absolute deviation.

        It is taken about their median where an intercept follows that, and about zero where there is none.
        """
        r = self.residuals(x)
        center = median(r, self.w) if self.estimator.fit_intercept else 0.0
        noise = DEVIATIONS * median(np.abs(r - center), self.w)
        size = median(np.abs(self.y), self.w) or spread(self.y, self.w)
        return TUNING[self.estimator.loss] * max(noise, EXACT * size)

    def lost(self, stage: Stage) -> bool:
        """Whether the scale means nothing: its own fit asks for a larger one, or the coefficients are so many that half
        of the rows can be fitted exactly whatever the others are, and some of the others are not."""
        if stage.found > LOST * stage.scale:
            return True
        d = self.X.shape[1]
        r = self.residuals(stage.x) - (stage.x[d] if self.estimator.fit_intercept else 0.0)
        return 2 * len(stage.x) >= len(self.y) and bool(np.max(np.abs(r)) > stage.scale)


def spread(y: Vector, w: Vector | None) -> float:
    """The standard deviation of the targets, a small part of their size where they are all alike, 1 where all are 0."""
    largest = float(np.max(np.abs(y))) or 1.0
    u = y / largest  # whose squares do not overflow
    size = float(np.sqrt(np.average(u * u, weights=w)))
    deviation = float(np.sqrt(np.average((u - np.average(u, weights=w)) ** 2, weights=w)))
    return largest * max(deviation, EXACT * size) or 1.0


def median(values: Vector, w: Vector | None) -> float:
    """The lowest value with half of the weight at or below it: a row of weight 2 counts as two rows."""
    return float(np.quantile(values, 0.5, method="inverted_cdf", weights=w))
