"""`ClassModel`: linear classification into K classes, all derivatives in closed form.

    f(x) = (1/n) sum_i w_i l(Q U a_i, y_i) + l2/2 |U|^2,     x = U, a (K - 1) x p matrix

Margins z = Q U a_i in R^K do not change p where the same is added to all of them, so K - 1 coordinates suffice. Q is
orthonormal: its columns sum to 0, or leave out a reference class.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import scipy.linalg
import scipy.sparse as sp

from tercet.checks import flag
from tercet.objectives.base import Bound, Traits, as_start, digest
from tercet.objectives.class_point import ClassView
from tercet.objectives.classes import CLASS_LOSSES, Labels, softmax
from tercet.objectives.linear.model import RATE, add_ones, check_matrix, check_penalty, check_weights
from tercet.objectives.tables import table_of
from tercet.once import once
from tercet.records import Matrix, Rows, Vector

DENSE_LIMIT = 3000  # above this many variables a d x d Hessian is neither formed nor factored
THIN = 2.0  # an operation of a product with few columns takes as long as so many of a square one


class ClassModel:
    """Linear classification into K classes: margins z = Q U a_i of the rows a_i of X, and a loss of p = softmax(z).

    `loss` is "softmax", l = -log p_y, multinomial logistic regression, or "brier", l = 1/2 |p - e_y|^2, which is
    bounded and non-convex: its robust counterpart. `y` holds labels of any kind; `classes` are those that occur,
    sorted. x has the shape (K - 1, p), where p counts the columns of X and the intercept, which comes last and is not
    penalized; `coefficients(x)` are the K rows Q U, one for each class. By default these sum to 0 over the classes, as
    they do at the minimum of the penalized objective in all K p variables; with `reference` a label is given whose row
    is 0. `weights` are normalized to mean one.
    """

    def __init__(
        self,
        X: Any,
        y: Any,
        loss: str = "softmax",
        *,
        l2: float = 0.0,
        weights: Any = None,
        intercept: bool = False,
        reference: Any = None,
    ):
        if loss not in CLASS_LOSSES:
            raise ValueError(f"ClassModel(loss={loss!r}): unknown loss; choose one of {', '.join(CLASS_LOSSES)}.")
        A = check_matrix(X)
        self.classes, labels = check_labels(y, A.shape[0])
        self.intercept = flag("ClassModel", "intercept", intercept)
        self.A = add_ones(A) if intercept else A
        self.loss_name, self.l2 = loss, check_penalty("ClassModel", "l2", l2)
        w = None if weights is None else check_weights(weights, A.shape[0])
        self.Q = contrasts(self.classes, reference)
        mask = np.ones(self.A.shape[1])
        if intercept:
            mask[-1] = 0.0
        penalty = np.tile(self.l2 * mask, self.Q.shape[1])
        self.rows = ClassView(self.A, labels, w, CLASS_LOSSES[loss](), self.Q, penalty)
        K = len(self.classes)
        self.traits = Traits(
            dense=self.d <= DENSE_LIMIT,
            hessian_cost=max(2.0, K * self.A.shape[1] / 8),  # a Gram matrix in K p variables, in gradients
            hessian_products=hessian_products(self.A, K),
            provenance="closed-form derivatives",
        )

    @property
    def n(self) -> int:
        """The number of rows."""
        return self.A.shape[0]

    @property
    def d(self) -> int:
        """The number of variables, (K - 1) p."""
        return self.Q.shape[1] * self.A.shape[1]

    @once
    def scales(self) -> Vector:
        """1 / rms of a_ij over the rows where it is not 0, for each class."""
        return np.tile(table_of(self.A).scales(), self.Q.shape[1])

    @property
    def names(self) -> tuple[str, ...]:
        """Of the coordinates: the class, or the number of the contrast, and the column."""
        p = self.A.shape[1]
        columns = [f"x[{j}]" for j in range(p - self.intercept)] + ["intercept"] * self.intercept
        others = np.any(self.Q, axis=1)  # all classes but the reference
        plain = not np.all(others)
        rows = [str(c) for c in self.classes[others]] if plain else [f"contrast {k}" for k in range(self.Q.shape[1])]
        return tuple(f"{row}: {column}" for row in rows for column in columns)

    @property
    def convex(self) -> bool | None:
        """False where the loss is not."""
        return getattr(self.rows.loss, "convex", None)

    def over(self, rows: Rows | None) -> ClassView:
        """The model over the given rows; all of them without a copy."""
        return self.rows if rows is None else self.rows.take(rows)

    def fingerprint(self) -> dict[str, str]:
        """Digests of X, the labels and the weights; loss, penalty and contrasts by their values."""
        A, view = self.A, self.rows
        X = digest(A.data, A.indices, A.indptr) if sp.issparse(A) else digest(A)
        return {
            "X": f"{A.shape[0]} x {A.shape[1]} {X}",
            "y": digest(view.y),
            "weights": "none" if view.w is None else digest(view.w),
            "loss": self.loss_name,
            "l2": repr(self.l2),
            "contrasts": digest(self.Q),
        }

    def bind(self, x0: Any) -> Bound:
        """Start at x0, of the shape (K - 1, p) or flat; by default at zero."""
        shape = (self.Q.shape[1], self.A.shape[1])
        x = np.zeros(shape) if x0 is None else as_start(x0)
        if x.shape not in (shape, (self.d,)) or not np.all(np.isfinite(x)):
            raise ValueError(
                f"minimize(x0=...): x0 has shape {x.shape}; a ClassModel of {len(self.classes)} classes takes finite "
                f"numbers of shape {shape}."
            )
        return Bound(self, x.astype(np.float64).ravel(), lambda v: v.reshape(shape))

    def coefficients(self, x: Any) -> Matrix:
        """Q U: one row of coefficients for each class, the intercept last."""
        return self.Q @ np.asarray(x).reshape(self.Q.shape[1], -1)

    def probabilities(self, X: Any, x: Any) -> Matrix:
        """softmax(z) for new rows, one column for each class."""
        A = check_matrix(X)
        return softmax(((add_ones(A) if self.intercept else A) @ self.coefficients(x).T).T).T

    def likelihood(self, x: Vector) -> tuple[float, float, bool, bool, str] | None:
        """phi, log L, whether phi is an estimate, whether there is a penalty, and a name; None for Brier's score."""
        if self.loss_name != "softmax":
            return None
        view = self.rows
        each = view.at(x).shares.surprise
        return 1.0, -float(np.sum(each if view.w is None else view.w * each)), False, self.l2 > 0.0, "Softmax"


def contrasts(classes: Any, reference: Any) -> Matrix:
    """K x (K - 1): orthonormal columns that sum to 0 (Helmert's), or the unit vectors but that of the reference."""
    K = len(classes)
    if reference is None:
        return scipy.linalg.helmert(K).T
    found = np.flatnonzero(classes == reference)
    if len(found) != 1:
        raise ValueError(
            f"ClassModel(reference={reference!r}): no such class; the classes are {classes.tolist()[:10]}."
        )
    return np.delete(np.eye(K), int(found[0]), axis=1)


def check_labels(y: Any, n: int) -> tuple[Any, Labels]:
    """The classes, sorted, and the number of the class of each row."""
    labels = np.asarray(y)
    if labels.shape != (n,):
        raise ValueError(f"ClassModel(y=...): y has shape {labels.shape}, but X has {n} rows; give one label per row.")
    if labels.dtype.kind == "f" and not np.all(np.isfinite(labels)):
        raise ValueError(f"ClassModel(y=...): y[{int(np.argmin(np.isfinite(labels)))}] is not finite; drop that row.")
    try:
        classes, numbers = np.unique(labels, return_inverse=True)
    except TypeError as error:
        raise ValueError(f"ClassModel(y=...): labels of different kinds cannot be sorted ({error}).") from error
    if len(classes) < 2:
        raise ValueError(f"ClassModel(y=...): only one class, {classes.tolist()[0]!r}; give rows of at least two.")
    return classes, numbers.reshape(-1).astype(np.intp)


def hessian_products(A: Any, K: int) -> float:
    """How many products with B take as long as forming and factoring it, by their operations.

    Of a dense matrix the Gram matrices take n p^2 ((K - 1)^2 + 2 K), the factorizations 2 d^3 in the mean, a product 4
    for each entry and class; those of a CSR array are as slow as products with a vector.
    """
    (n, p), d = A.shape, (K - 1) * A.shape[1]
    product = 4 * K * (A.nnz * RATE if sp.issparse(A) else n * p * THIN)
    return float((n * p * p * ((K - 1) ** 2 + 2 * K) + 2 * d**3) / product)
