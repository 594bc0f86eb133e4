"""What the two estimators share: checks of settings and rows, the run, the warning, and standard errors."""

from __future__ import annotations

import warnings
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import scipy.linalg
from scipy.sparse import issparse
from sklearn.exceptions import ConvergenceWarning
from sklearn.utils import check_array, check_random_state
from sklearn.utils.validation import validate_data

from tercet.checks import flag, refuse_masked, valid_indices
from tercet.methods.minimize import check_budgets, check_choices, minimize
from tercet.objectives.capabilities import result_of
from tercet.objectives.linear import LinearModel
from tercet.objectives.linear.model import check_penalty
from tercet.records import Matrix, Status, Vector
from tercet.result import Result

INVOLVED = 1e-5  # a coefficient is part of a direction whose unit vector has more than this of it
TABLE: dict[str, Any] = {"accept_sparse": "csr", "dtype": np.float64}  # what X is checked for


def check_settings(estimator: Any, losses: Sequence[str]) -> None:
    """The parameters that no later check would name by the name that they have here."""
    name = type(estimator).__name__
    if estimator.loss not in losses:
        raise ValueError(f"{name}(loss={estimator.loss!r}): unknown loss; choose one of {', '.join(losses)}.")
    count = estimator.max_iter
    if isinstance(count, bool) or not isinstance(count, int | np.integer) or count < 1:
        raise ValueError(f"{name}(max_iter={count!r}): give a positive whole number of iterations.")
    check_penalty(name, "l2", estimator.l2)
    for choice in ("fit_intercept", "warm_start"):
        flag(name, choice, getattr(estimator, choice))
    check_budgets(tol=estimator.tol, max_seconds=estimator.max_seconds)
    check_choices(estimator.method, estimator.order, 0, None)


def rows_of(estimator: Any, X: Any, *y: Any, **how: Any) -> Any:
    """scikit-learn's `validate_data`, after what it does not look at: indices of sparse matrices, which it and its
    compiled loops follow blindly, masked entries, which it takes as they are, and numbers that are text."""
    call = type(estimator).__name__
    try:
        X = valid_indices(X) if issparse(X) else refuse_text(X)
        for target in y:
            refuse_masked(target)
    except ValueError as error:
        raise ValueError(f"{call}: X or y is not an array of real numbers ({error}).") from error
    return validate_data(estimator, X, *y, **TABLE, **how)


def refuse_text(X: Any) -> Any:
    """X, where it has neither masked entries nor text."""
    refuse_masked(X)
    entries = np.asarray(X) if hasattr(X, "iloc") or isinstance(X, list | tuple | np.ndarray) else np.empty(0)
    if entries.dtype.kind in "USO" and any(isinstance(entry, str | bytes) for entry in entries.flat):
        raise ValueError("it holds text; give real numbers")
    return X


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
    """`minimize` with an estimator's settings; the result lets go of the problem, so that no data is kept with it."""
    found = minimize(
        problem,
        x0,
        method=estimator.method,
        tol=estimator.tol,
        order=estimator.order,
        seed=seed,
        max_iterations=estimator.max_iter,
        max_seconds=estimator.max_seconds,
    )
    return replace(found, infers=None)


def announce(estimator: Any, results: Sequence[Result], parts: Sequence[str]) -> None:
    """Warn of every run that is not certified; an interruption goes on to who called, as scikit-learn does it."""
    for result, part in zip(results, parts, strict=True):
        advice = result.message.replace("max_iterations", "max_iter")
        text = f"{type(estimator).__name__}.fit{part} ended with status {result.status.name}. {advice}"
        if result.status is Status.INTERRUPTED:
            raise KeyboardInterrupt(text) from result.error
        if not result.success:
            warnings.warn(text, ConvergenceWarning, stacklevel=3)


def sandwich(problem: LinearModel, result: Result, names: Sequence[str] = ()) -> Vector:
    """Standard errors of the M-estimate x: the roots of the diagonal of H^-1 S H^-1 / n.

        H = hess f(x),   S = (1/n) sum_i (s_i - mean s)(s_i - mean s)',   s_i = w_i l'(a_i'x, y_i) a_i,   mean w = 1

    They need only that the rows are independent, not that the model is true (Huber's sandwich, HC0), and say how x
    varies about the minimizer of the expected objective, penalty included. A row with weight 2 counts as one
    observation that weighs double, not as two. Takes H and two other weighted Gram matrices.

    A coefficient that the data do not identify, as those of collinear columns, of a column of zeros, or of a constant
    beside the intercept, has none: it is nan, and a warning names it.
    """
    if not result.success:
        raise ValueError(f"standard_errors: the fit ended with status {result.status.name}; they need a certified one.")
    if problem.d != len(result.x):
        raise ValueError("standard_errors: fit_intercept was changed after the fit; fit again.")
    if not problem.traits.dense:
        raise ValueError(f"standard_errors: {problem.d} coefficients are too many to form the Hessian; drop features.")
    point = problem.over(None).at(result.x)
    told = result.certificate.chi1 + result.certificate.rounding_g + result.certificate.eps1
    if np.linalg.norm(point.gradient()) > 1e3 * told + 1e-12 * np.linalg.norm(point.hessian() @ result.x):
        raise ValueError("standard_errors: the fit is not a critical point of these rows; give the data of the fit.")
    c, table = point.margins.coefficients(1), point.view.table
    mean = table.weigh(c) / problem.n
    S = table.gram(c * c) / problem.n - np.outer(mean, mean)
    loss = table.gram(np.abs(point.margins.coefficients(2))) / problem.n
    unseen, _ = inverted(loss)
    flat, inverse = inverted(result_of(point.hessian()))
    free = unseen | flat
    warn_of_free(free, names, problem)
    variances = np.diag(inverse @ S @ inverse) / problem.n
    return np.where(free, np.nan, np.sqrt(np.maximum(variances, 0.0)))  # an exact fit has S = 0 up to rounding


def names_of(estimator: Any) -> list[str]:
    """The names of the features, where the fit had some."""
    return [str(name) for name in getattr(estimator, "feature_names_in_", ())]


def inverted(M: Matrix) -> tuple[Any, Matrix]:
    """Which coordinates take part in a direction along which M is 0 up to rounding, and its inverse over the others.

    In units in which its diagonal is one, so that a badly scaled column does not look like nothing.
    """
    units = np.sqrt(np.maximum(np.diag(M), 0.0))
    units[units == 0.0] = 1.0
    values, vectors = scipy.linalg.eigh((M + M.T) / 2 / np.outer(units, units))
    zero = values <= 1e-13 * len(M)
    rest = vectors[:, ~zero] / units[:, None]
    involved = np.max(np.abs(vectors[:, zero]), axis=1, initial=0.0) > INVOLVED
    return involved, (rest / values[~zero]) @ rest.T


def warn_of_free(free: Any, names: Sequence[str], problem: LinearModel) -> None:
    """Warn of the coefficients that the data do not identify."""
    if not np.any(free):
        return
    known = [*(names or [f"feature {j}" for j in range(problem.d - problem.intercept)]), "the intercept"]
    found = [known[j] for j in np.flatnonzero(free)]
    some = ", ".join(found[:10]) + (f" and {len(found) - 10} more" if len(found) > 10 else "")
    text = f"standard_errors: the data do not identify {some}; their standard errors are nan. Drop features that are "
    warnings.warn(text + "constant or combinations of others.", UserWarning, stacklevel=4)
