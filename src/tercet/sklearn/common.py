"""What the two estimators share: checks of settings and rows, the run, the warning, and standard errors."""

from __future__ import annotations

import warnings
from collections.abc import Sequence
from typing import Any

import numpy as np
import scipy.linalg
from sklearn.exceptions import ConvergenceWarning
from sklearn.utils import check_array, check_random_state

from tercet.methods.minimize import check_budgets, check_choices, minimize
from tercet.objectives.linear import LinearModel
from tercet.records import Matrix, Status, Vector
from tercet.result import Result

TABLE: dict[str, Any] = {"accept_sparse": "csr", "dtype": np.float64}  # what X is checked for


def check_settings(estimator: Any, losses: Sequence[str]) -> None:
    """The parameters that no later check would name by the name that they have here."""
    name = type(estimator).__name__
    if estimator.loss not in losses:
        raise ValueError(f"{name}(loss={estimator.loss!r}): unknown loss; choose one of {', '.join(losses)}.")
    count = estimator.max_iter
    if isinstance(count, bool) or not isinstance(count, int | np.integer) or count < 1:
        raise ValueError(f"{name}(max_iter={count!r}): give a positive whole number of iterations.")
    if not (isinstance(estimator.l2, int | float | np.number) and np.isfinite(estimator.l2) and estimator.l2 >= 0):
        raise ValueError(f"{name}(l2={estimator.l2!r}): the penalty is a finite number that is at least 0.")
    check_budgets(tol=estimator.tol, max_seconds=estimator.max_seconds)
    check_choices(estimator.method, estimator.order, 0, None)


def seed_of(estimator: Any) -> int:
    """A seed for `minimize` from `random_state`: None draws from NumPy's global generator, as everywhere in sklearn."""
    return int(check_random_state(estimator.random_state).randint(np.iinfo(np.int32).max))


def used_rows(X: Any, y: Any, sample_weight: Any) -> tuple[Any, Any, Vector | None]:
    """The rows with a positive weight, and their weights; the same X and y where that is all of them."""
    if sample_weight is None:
        return X, y, None
    w = check_array(sample_weight, ensure_2d=False, dtype=np.float64, input_name="sample_weight")
    if w.shape != (X.shape[0],):
        raise ValueError(f"sample_weight has shape {w.shape}; give one weight for each row, shape ({X.shape[0]},).")
    if np.any(w < 0):
        raise ValueError(f"sample_weight[{int(np.argmin(w))}] is {np.min(w)}; weights must be at least 0.")
    if not np.any(w):
        raise ValueError("sample_weight: every weight is zero; give at least one row a positive weight.")
    used = w > 0
    return (X, y, w) if np.all(used) else (X[used], y[used], w[used])


def past_points(estimator: Any, d: int) -> Matrix | None:
    """One x for each row of the coefficients of the last fit; None where there is none or `warm_start` is off."""
    if not estimator.warm_start or not hasattr(estimator, "coef_"):
        return None
    coef = np.atleast_2d(estimator.coef_)
    if coef.shape[1] != d:
        raise ValueError(
            f"{type(estimator).__name__}.fit(warm_start=True): the last fit had {coef.shape[1]} features, "
            f"this one has {d}; fit a clone instead."
        )
    return np.column_stack([coef, np.atleast_1d(estimator.intercept_)]) if estimator.fit_intercept else coef


def model(estimator: Any, X: Any, y: Vector, w: Vector | None, loss: str) -> LinearModel:
    """The objective of an estimator."""
    return LinearModel(X, y, loss, l2=estimator.l2, weights=w, intercept=estimator.fit_intercept)


def solve(estimator: Any, problem: LinearModel, x0: Vector | None, seed: int) -> Result:
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


def announce(estimator: Any, results: Sequence[Result], parts: Sequence[str]) -> None:
    """Warn of every run that is not certified; an interruption goes on to who called, as scikit-learn does it."""
    for result, part in zip(results, parts, strict=True):
        advice = result.message.replace("max_iterations", "max_iter")
        text = f"{type(estimator).__name__}.fit{part} ended with status {result.status.name}. {advice}"
        if result.status is Status.INTERRUPTED:
            raise KeyboardInterrupt(text) from result.error
        if not result.success:
            warnings.warn(text, ConvergenceWarning, stacklevel=3)


def sandwich(problem: LinearModel, result: Result) -> Vector:
    """Standard errors of the M-estimate x: the roots of the diagonal of H^-1 S H^-1 / n.

        H = hess f(x),   S = (1/n) sum_i (s_i - mean s)(s_i - mean s)',   s_i = w_i l'(a_i'x, y_i) a_i,   mean w = 1

    They need only that the rows are independent, not that the model is true (Huber's sandwich, HC0), and say how x
    varies about the minimizer of the expected objective, penalty included. A row with weight 2 counts as one
    observation that weighs double, not as two. Takes H and another weighted Gram matrix.
    """
    if not result.success:
        raise ValueError(f"standard_errors: the fit ended with status {result.status.name}; they need a certified one.")
    if problem.d != len(result.x):
        raise ValueError("standard_errors: fit_intercept was changed after the fit; fit again.")
    if not problem.dense:
        raise ValueError(f"standard_errors: {problem.d} coefficients are too many to form the Hessian; drop features.")
    point = problem.over(None).at(result.x)
    if np.linalg.norm(point.gradient()) > 10 * result.certificate.eps1:
        raise ValueError("standard_errors: the fit is not a critical point of these rows; give the data of the fit.")
    c, table = point.coefficients(1), point.view.table
    mean = table.weigh(c) / problem.n
    S = table.gram(c * c) / problem.n - np.outer(mean, mean)
    try:
        H = scipy.linalg.cho_factor(point.hessian())
    except scipy.linalg.LinAlgError as error:
        raise ValueError(
            "standard_errors: the Hessian is singular, some coefficients are not determined; drop features or raise l2."
        ) from error
    half = scipy.linalg.cho_solve(H, S)
    variances = np.diag(scipy.linalg.cho_solve(H, half.T)) / problem.n
    return np.sqrt(np.maximum(variances, 0.0))  # an exact fit has S = 0 up to rounding
