"""`ClassModel`: linear classification into K classes, all derivatives in closed form.

    f(x) = (1/n) sum_i w_i l(Q U a_i, y_i) + l2/2 |U|^2,     x = U, a (K - 1) x p matrix

Margins z = Q U a_i in R^K do not change p where the same is added to all of them, so K - 1 coordinates suffice. Q is
orthonormal: its columns sum to 0, or leave out a reference class.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
import scipy.linalg
import scipy.sparse as sp

from tercet.checks import flag
from tercet.objectives.base import Bound, Traits, as_start, digest
from tercet.objectives.classes import CLASS_LOSSES, ClassLoss, Labels, SoftmaxLoss, softmax
from tercet.objectives.linear.model import add_ones, check_matrix, check_penalty, check_weights
from tercet.objectives.tables import table_of
from tercet.once import once
from tercet.records import Matrix, Rows, Tensor, Vector

DENSE_LIMIT = 3000  # above this many variables a d x d Hessian is neither formed nor factored
GROUPS = 16  # a sampled gradient's covariance is estimated from this many groups of rows
BYTES = 1 << 24  # of the scaled rows of one piece of a Hessian


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
        dense, K = self.d <= DENSE_LIMIT, len(self.classes)
        cost = max(2.0, K * self.A.shape[1] / 8)  # a Gram matrix in K p variables, in gradients
        self.traits = Traits(dense=dense, hessian_cost=cost, provenance="closed-form derivatives")

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
        return softmax((add_ones(A) if self.intercept else A) @ self.coefficients(x).T)

    def likelihood(self, x: Vector) -> tuple[float, float, bool, bool, str] | None:
        """phi, log L, whether phi is an estimate, whether there is a penalty, and a name; None for Brier's score."""
        if self.loss_name != "softmax":
            return None
        view = self.rows
        each = view.loss.value(view.at(x).Z, view.y)
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
        raise ValueError(f"ClassModel(y=...): only one class, {classes[0]!r}; give rows of at least two.")
    return classes, numbers.reshape(-1).astype(np.intp)


@dataclass(frozen=True, eq=False)
class ClassView:
    """Rows of the model."""

    A: Any
    y: Labels
    w: Vector | None
    loss: ClassLoss
    Q: Matrix
    penalty: Vector  # l2 for each variable, 0 for intercepts
    sampled: bool = False

    @property
    def terms(self) -> int:
        """The number of rows."""
        return self.A.shape[0]

    def at(self, x: Vector, carry: None = None) -> ClassPoint:
        """These rows at x."""
        return ClassPoint(self, x)

    def take(self, rows: Rows) -> ClassView:
        """The given rows, copied."""
        w = None if self.w is None else self.w[rows]
        return ClassView(self.A[rows], self.y[rows], w, self.loss, self.Q, self.penalty, True)

    def margins(self, v: Vector) -> Matrix:
        """Q V a_i for each row, n x K."""
        return (self.A @ v.reshape(self.Q.shape[1], -1).T) @ self.Q.T

    def reduced(self, C: Matrix) -> Matrix:
        """w_i Q'c_i for each row, n x (K - 1)."""
        C = C @ self.Q
        return C if self.w is None else self.w[:, None] * C

    def pieces(self) -> Iterator[tuple[slice, Matrix]]:
        """Dense rows, few at a time, so that K (K - 1) / 2 scaled copies of them fit."""
        k, p = self.Q.shape[1], self.A.shape[1]
        size = max(16, BYTES // (4 * p * k * (k + 1)))
        for start in range(0, self.terms, size):
            piece = slice(start, start + size)
            block = self.A[piece]
            yield piece, block.toarray() if sp.issparse(block) else block


class ClassPoint:
    """The model over some rows at one x."""

    def __init__(self, view: ClassView, x: Vector):
        self.view, self.x = view, x

    @once
    def Z(self) -> Matrix:
        """The margins, one product with A for the value and all derivatives."""
        return self.view.margins(self.x)

    @once
    def P(self) -> Matrix:
        """softmax(z) of each row."""
        return softmax(self.Z)

    def value(self) -> float:
        """(1/m) sum w_i l_i + penalty."""
        view = self.view
        each = view.loss.value(self.Z, view.y)
        mean = float(np.mean(each if view.w is None else view.w * each))
        return mean + 0.5 * float(view.penalty @ (self.x * self.x))

    @once
    def slopes(self) -> Matrix:
        """w_i Q'l_i', n x (K - 1)."""
        return self.view.reduced(self.view.loss.gradient(self.P, self.view.y))

    @property
    def group_sums(self) -> Matrix:
        """Sums of gradients over the groups to which the rows are dealt in turn; the penalty is left out."""
        view, C = self.view, self.slopes
        if not view.sampled:
            return (view.A.T @ C).T.reshape(1, -1)
        count = min(GROUPS, view.terms)
        return np.stack([np.asarray(view.A[g::count].T @ C[g::count]).T.ravel() for g in range(count)])

    def gradient(self) -> Vector:
        """C'A / m + l2 U."""
        return self.group_sums.sum(axis=0) / self.view.terms + self.view.penalty * self.x

    def product(self, order: int, *vectors: Vector) -> Vector:
        """hess f(x) v or third f(x)[u, v]."""
        view, loss, first = self.view, self.view.loss, self.view.margins(vectors[0])
        if order == 2:
            C = loss.product(self.P, view.y, first)
            return self.weighed(C) + view.penalty * vectors[0]
        second = first if vectors[1] is vectors[0] else view.margins(vectors[1])
        return self.weighed(loss.third(self.P, view.y, first, second))

    def weighed(self, C: Matrix) -> Vector:
        """(1/m) sum w_i (Q'c_i) a_i' as a vector."""
        return np.asarray(self.view.A.T @ self.view.reduced(C)).T.ravel() / self.view.terms

    def hessian(self) -> Matrix:
        """(1/m) sum w_i (Q'l_i''Q) (x) a_i a_i' + diag(l2)."""
        k, p = self.view.Q.shape[1], self.view.A.shape[1]
        total = np.zeros((k, p, k, p))
        add = self.add_log if isinstance(self.view.loss, SoftmaxLoss) else self.add_pairs
        for piece, block in self.view.pieces():
            add(total, piece, block)
        B = total.reshape(k * p, k * p) / self.view.terms
        B.ravel()[:: k * p + 1] += self.view.penalty
        return B

    def add_log(self, total: Tensor, piece: slice, block: Matrix) -> None:
        """Q'(diag(p) - p p')Q = sum_k p_k q_k q_k' - (Q'p)(Q'p)': K Gram matrices, and a large one."""
        view, P = self.view, self.P[piece]
        k, p = view.Q.shape[1], block.shape[1]
        root = np.ones(len(block)) if view.w is None else np.sqrt(view.w[piece])
        rows = root[:, None] * block
        grams = np.stack([(P[:, c, None] * rows).T @ rows for c in range(P.shape[1])])
        total += np.einsum("cr,cs,cij->risj", view.Q, view.Q, grams, optimize=True)
        M = ((P @ view.Q)[:, :, None] * rows[:, None, :]).reshape(len(block), k * p)
        total -= (M.T @ M).reshape(k, p, k, p)

    def add_pairs(self, total: Tensor, piece: slice, block: Matrix) -> None:
        """For each pair of contrasts a Gram matrix, all at once."""
        view, p = self.view, block.shape[1]
        H = view.Q.T @ view.loss.curvature(self.P[piece], view.y[piece]) @ view.Q
        rows, columns = np.tril_indices(view.Q.shape[1])
        h = H[:, rows, columns] if view.w is None else view.w[piece, None] * H[:, rows, columns]
        grams = block.T @ (h[:, :, None] * block[:, None, :]).reshape(len(block), -1)
        for q, (r, s) in enumerate(zip(rows, columns, strict=True)):
            gram = grams[:, q * p : (q + 1) * p]
            total[r, :, s] += gram
            if r != s:
                total[s, :, r] += gram

    def scatter(self) -> Matrix:
        """The covariance of the terms' gradients; the penalty is the same in every term."""
        view, C = self.view, self.slopes
        total = np.zeros((len(self.x), len(self.x)))
        for piece, block in view.pieces():
            each = (C[piece][:, :, None] * block[:, None, :]).reshape(len(block), -1)
            total += each.T @ each
        mean = self.group_sums.sum(axis=0) / view.terms
        return total / view.terms - np.outer(mean, mean)
