"""`LinearModel`: data, loss and penalty as a problem, checked."""

from __future__ import annotations

from copy import copy
from dataclasses import replace
from typing import Any, cast

import numpy as np
import scipy.sparse as sp

from tercet.checks import flag, memory, number, plain_array, sparse_matrix
from tercet.objectives.base import Bound, Traits, check_length, digest, name_of
from tercet.objectives.linear.point import LinearView, Penalty
from tercet.objectives.losses import Formula, as_loss
from tercet.objectives.tables import table_of
from tercet.records import Rows, Vector
from tercet.watch import Look

COMPILED = 10_000  # with fewer dense rows the compiled formulas do not repay their loading
DENSE_LIMIT = 3000  # above this many variables a d x d Hessian is neither formed nor factored
LARGEST = 1e90  # entries of X, and penalties: sums of their third powers are numbers
VECTORS = 16  # of the length of x, that a run keeps


class LinearModel:
    """f(x) = (1/n) sum_i w_i l(a_i'x, y_i) + l2/2 |x|^2 + alpha sum_j x_j^2 / (1 + x_j^2).

    X is a NumPy array or a SciPy sparse matrix with rows a_i. `loss` is a name (sigmoid_squares, logistic, squares,
    cauchy, welsch, geman_mcclure; the last three with a `scale`), an object with `derivatives(z, y)` that gives l and
    its first three derivatives in z, or a scalar JAX function l(z, y). `weights` are normalized to mean one. With
    `intercept` a last coordinate is added to x that is not penalized.
    """

    def __init__(
        self,
        X: Any,
        y: Any,
        loss: Any = "sigmoid_squares",
        *,
        l2: float = 0.0,
        alpha: float = 0.0,
        scale: float | None = None,
        weights: Any = None,
        intercept: bool = False,
    ):
        self.loss = as_loss(loss, scale)
        A = check_matrix(X)
        targets = check_targets(y, A.shape[0])
        if hasattr(self.loss, "check"):
            self.loss.check(targets)
        l2, alpha = check_penalty("LinearModel", "l2", l2), check_penalty("LinearModel", "alpha", alpha)
        self.intercept = flag("LinearModel", "intercept", intercept)
        if intercept:
            A = add_ones(A)
        mask = np.ones(A.shape[1])
        if intercept:
            mask[-1] = 0.0
        w = None if weights is None else check_weights(weights, A.shape[0])
        self.A = A
        compiled = sp.issparse(A) or A.shape[0] >= COMPILED
        wide, penalty = A.shape[1] > DENSE_LIMIT, Penalty(l2, alpha, mask)
        formula = Formula.of(self.loss, compiled)
        self.rows = LinearView(table_of(A), targets, w, self.loss, formula, penalty, compiled, wide)
        self.traits = Traits(dense=not wide, images=True, provenance="closed-form derivatives")

    @property
    def n(self) -> int:
        """The number of rows."""
        return self.A.shape[0]

    @property
    def d(self) -> int:
        """The number of coefficients, the intercept among them."""
        return self.A.shape[1]

    def over(self, rows: Rows | None) -> LinearView:
        """The model over the given rows; all of them without a copy."""
        return self.rows if rows is None else self.rows.take(rows)

    def clocked(self, look: Look) -> LinearModel:
        """The same model, that looks at the clock within Gram matrices and beside long factorizations."""
        other, table = copy(self), cast(Any, self.rows.table)
        other.rows = replace(self.rows, table=replace(table, look=look))
        return other

    def fingerprint(self) -> dict[str, str]:
        """Digests of X, y and the weights; the loss and the penalties by their values."""
        view, A = self.rows, self.A
        X = digest(A.data, A.indices, A.indptr) if sp.issparse(A) else digest(A)
        settings = {"l2": view.penalty.l2, "alpha": view.penalty.alpha, "intercept": self.intercept}
        return {
            "X": f"{A.shape[0]} x {A.shape[1]} {X}",
            "y": digest(view.y),
            "weights": "none" if view.w is None else digest(view.w),
            "loss": name_of(getattr(view.loss, "function", view.loss)),
            **{name: repr(value) for name, value in settings.items()},
        }

    def bind(self, x0: Any) -> Bound:
        """Start at x0, by default at zero."""
        start = np.zeros(self.d) if x0 is None else check_length("problem", x0, self.d)
        return Bound(self, start, lambda x: x)

    def margins(self, X: Any, x: Vector) -> Vector:
        """z = Ax for new rows, the intercept added if the model has one."""
        A = check_matrix(X)
        return (add_ones(A) if self.intercept else A) @ x


def check_matrix(X: Any) -> Any:
    """X as a float64 array or a canonical CSR array; ValueError for anything that is not a finite, non-empty table."""
    A = as_numbers("X", X, sparse=True)
    values = A.data if sp.issparse(A) else A
    if A.ndim != 2 or 0 in A.shape:
        raise ValueError(f"LinearModel(X=...): X has shape {A.shape}; give a non-empty table of rows and columns.")
    if 8 * VECTORS * A.shape[1] > memory():
        raise ValueError(
            f"LinearModel(X=...): X has {A.shape[1]} columns, and a run keeps some {VECTORS} vectors of that length, "
            f"{8e-9 * VECTORS * A.shape[1]:.0f} GB, more than the memory here; drop, number anew or hash the columns."
        )
    # A finite sum proves it without another array of the size of X.
    with np.errstate(over="ignore", invalid="ignore"):
        finite = bool(np.isfinite(np.sum(values)))
    if not (finite or np.all(np.isfinite(values))):
        raise ValueError("LinearModel(X=...): X holds nan or inf; drop or fill those entries first.")
    size = max(float(np.max(values)), -float(np.min(values))) if values.size else 0.0
    if size > LARGEST:
        raise ValueError(
            f"LinearModel(X=...): X holds {size:.3g}, whose cube is beyond double precision; rescale its columns."
        )
    return A


def as_numbers(name: str, values: Any, sparse: bool = False) -> Any:
    """An array of floats, or where that is allowed a CSR array, or a ValueError that names the argument."""
    try:
        if sparse and sp.issparse(values):
            return sparse_matrix(values)
        return plain_array(values).astype(np.float64, copy=False)
    except ValueError as error:
        raise ValueError(f"LinearModel({name}=...): {name} is not an array of real numbers ({error}).") from error


def check_penalty(call: str, name: str, weight: Any) -> float:
    """A weight of a penalty, a finite number that is at least 0."""
    if not 0 <= number(weight) <= LARGEST:
        raise ValueError(
            f"{call}({name}={weight!r}): a penalty is a finite number that is at least 0 and at most {LARGEST:g}."
        )
    return float(weight)


def check_targets(y: Any, n: int) -> Vector:
    """y as a finite float64 vector of length n."""
    targets = as_numbers("y", y)
    if targets.shape != (n,):
        raise ValueError(
            f"LinearModel(y=...): y has shape {targets.shape}, but X has {n} rows; give one target per row."
        )
    if not np.all(np.isfinite(targets)):
        raise ValueError(
            f"LinearModel(y=...): y[{int(np.argmin(np.isfinite(targets)))}] is not finite; drop that row or fill it."
        )
    return targets


def check_weights(weights: Any, n: int) -> Vector:
    """Weights of length n, at least 0 and not all 0, normalized to mean one."""
    w = as_numbers("weights", weights)
    if w.shape != (n,):
        raise ValueError(f"LinearModel(weights=...): weights have shape {w.shape}; give one per row, shape ({n},).")
    if not np.all(np.isfinite(w)) or np.any(w < 0) or not np.any(w > 0):
        raise ValueError("LinearModel(weights=...): weights must be finite, at least 0, and not all 0.")
    largest = float(np.max(w))
    if not 1e-100 < largest < 1e100:  # then their sum may be none
        w = w / largest
    return w / np.mean(w)


def add_ones(A: Any) -> Any:
    """A with a last column of ones."""
    ones = np.ones((A.shape[0], 1))
    return sp.csr_array(sp.hstack([A, sp.csr_array(ones)])) if sp.issparse(A) else np.hstack([A, ones])
