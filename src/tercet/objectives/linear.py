"""Linear models: f(x) = (1/n) sum w_i l(a_i'x, y_i) + penalty(x), all derivatives in closed form.

With the margins z = Ax known, everything else is elementwise and one product:

    g = A'(w l') + p',   B = A' diag(w l'') A + diag(p''),   T[u, v] = A'(w l''' * Au * Av) + p''' * u * v
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from itertools import pairwise
from typing import Any

import numpy as np
import scipy.sparse as sp
from numpy.typing import NDArray

from tercet.objectives.base import Bound, check_length, digest, group_errors, name_of
from tercet.objectives.losses import Four, Loss, as_loss
from tercet.records import Matrix, Rows, Tensor, Vector

DENSE_LIMIT = 3000  # above this many variables a d x d Hessian is neither formed nor factored


@dataclass(frozen=True, eq=False)
class Penalty:
    """l2/2 |x|^2 + alpha sum x_j^2 / (1 + x_j^2) over the penalized coordinates; each x_j on its own."""

    l2: float
    alpha: float
    mask: Vector  # 1 where a coordinate is penalized, 0 for the intercept

    def value(self, x: Vector) -> float:
        """The penalty."""
        q = x * x
        return float(np.sum(self.mask * (0.5 * self.l2 * q + self.alpha * q / (1 + q))))

    def gradient(self, x: Vector) -> Vector:
        """l2 x + 2 alpha x / (1 + x^2)^2."""
        return self.mask * (self.l2 * x + 2 * self.alpha * x / (1 + x * x) ** 2)

    def curvature(self, x: Vector) -> Vector:
        """The diagonal l2 + alpha (2 - 6 x^2) / (1 + x^2)^3."""
        q = x * x
        return self.mask * (self.l2 + self.alpha * (2 - 6 * q) / (1 + q) ** 3)

    def third(self, x: Vector) -> Vector:
        """The diagonal 24 alpha x (x^2 - 1) / (1 + x^2)^4."""
        q = x * x
        return self.mask * (self.alpha * 24 * x * (q - 1) / (1 + q) ** 4)


@dataclass(frozen=True, eq=False)
class Reference:
    """A Gram matrix A' diag(c) A that was formed before, with the coefficients c that each of its rows had then."""

    rows: Rows | None  # which rows of the model; None: all, in order
    c: Vector
    gram: Matrix
    total: int  # the number of rows of the whole model

    def coefficients_in(self, rows: Rows | None) -> Vector | None:
        """c laid out over a larger set of rows, nan where a row is new; None where the sets are not nested."""
        if rows is None and self.rows is None:
            return self.c
        if self.rows is None or (rows is not None and not is_prefix(self.rows, rows)):
            return None
        if rows is None:
            known = np.full(self.total, np.nan)
            known[self.rows] = self.c
            repeats = np.count_nonzero(np.isfinite(known)) < len(self.rows)
            return None if repeats else known
        return np.concatenate([self.c, np.full(len(rows) - len(self.c), np.nan)])


@dataclass(frozen=True, eq=False)
class LinearPoint:
    """A linear model over some rows at one x."""

    view: LinearView
    x: Vector
    known: Reference | None = None  # the Gram matrix formed nearby, over rows that are among ours

    @property
    def terms(self) -> int:
        """The number of rows."""
        return self.view.y.shape[0]

    @cached_property
    def losses(self) -> Four:
        """l, l', l'', l''' at the margins z = Ax; one product with A for the value and all derivatives."""
        return self.view.loss.derivatives(self.view.A @ self.x, self.view.y)

    def coefficients(self, order: int) -> Vector:
        """w_i l_i^(order), what each row brings to the sum of that order."""
        part = self.losses[order]
        return part if self.view.w is None else self.view.w * part

    def value(self) -> float:
        """(1/m) sum w_i l_i + penalty."""
        return float(np.mean(self.coefficients(0))) + self.view.penalty.value(self.x)

    def gradient(self) -> Vector:
        """A'(w l')/m + p'."""
        return self.view.A.T @ self.coefficients(1) / self.terms + self.view.penalty.gradient(self.x)

    def gradient_errors(self) -> Matrix:
        """From the gradients of up to 32 groups of rows; the penalty is the same in every term and drops out."""
        return group_errors(self.view.group_sums(self.coefficients(1)))

    def hessian(self) -> Matrix:
        """A' diag(w l'') A / m + diag(p''), where rows whose l'' hardly changed keep the one formed before."""
        B = self.reference.gram / self.terms
        B[np.diag_indices_from(B)] += self.view.penalty.curvature(self.x)
        return B

    def hessian_price(self) -> int:
        """The rows whose l'' changed since the Gram matrix nearby was formed."""
        return int(np.count_nonzero(self.changed))

    @cached_property
    def changed(self) -> NDArray[np.bool_]:
        """The rows whose second derivative differs by more than the model's `stale` from the one formed nearby."""
        c = self.coefficients(2)
        past = None if self.known is None else self.known.coefficients_in(self.view.rows)
        if past is None:
            return np.ones(self.terms, dtype=bool)
        return ~(np.abs(c - past) <= self.view.stale * np.abs(past))

    @cached_property
    def reference(self) -> Reference:
        """The sum A' diag(c) A with c = w l'', fresh in the rows that changed."""
        c = self.coefficients(2)
        if np.all(self.changed) or self.known is None:
            return Reference(self.view.rows, c, self.view.gram(c), self.view.total)
        past = self.known.coefficients_in(self.view.rows)
        assert past is not None
        kept = np.where(self.changed, c, past)
        update = np.where(self.changed, c - np.nan_to_num(past), 0.0)
        return Reference(self.view.rows, kept, self.known.gram + self.view.gram(update), self.view.total)

    def hessian_product(self, v: Vector) -> Vector:
        """A'(w l'' * Av)/m + p'' * v."""
        A = self.view.A
        return A.T @ (self.coefficients(2) * (A @ v)) / self.terms + self.view.penalty.curvature(self.x) * v

    def third_product(self, u: Vector, v: Vector) -> Vector:
        """A'(w l''' * Au * Av)/m + p''' * u * v."""
        A = self.view.A
        Au = A @ u
        Av = Au if v is u else A @ v
        return A.T @ (self.coefficients(3) * Au * Av) / self.terms + self.view.penalty.third(self.x) * u * v

    def third_square(self, s: Vector) -> Vector:
        """T[s, s] over the rows that bend along s."""
        bends, As = self.bending(s)
        weights = np.where(bends, self.coefficients(3) * As * As, 0.0)
        return self.view.A.T @ weights / self.terms + self.view.penalty.third(self.x) * s * s

    def third_square_price(self, s: Vector) -> int:
        """The number of rows that bend along s."""
        return int(np.count_nonzero(self.bending(s)[0]))

    def bending(self, s: Vector) -> tuple[NDArray[np.bool_], Vector]:
        """Rows whose cubic term 1/2 l''' (a's)^2 is not small beside their quadratic one l'' a's; and As."""
        last = self.__dict__.get("_bending")
        if last is None or last[0] is not s:
            As = self.view.A @ s
            bends = 0.5 * np.abs(self.coefficients(3) * As) > self.view.straight * np.abs(self.coefficients(2))
            last = self.__dict__["_bending"] = (s, bends, As)
        return last[1], last[2]

    def third_tensor(self, V: Matrix) -> Tensor:
        """sum_i w_i l_i''' (AV)_i (x) (AV)_i (x) (AV)_i / m + the penalty's diagonal; one product of A with V."""
        rows, c = self.view.A @ V, self.coefficients(3) / self.terms
        diagonal = self.view.penalty.third(self.x)
        loss = [rows.T @ ((c * a)[:, None] * rows) for a in rows.T]
        penalty = [V.T @ ((diagonal * v)[:, None] * V) for v in V.T]
        return np.stack(loss) + np.stack(penalty)

    def memento(self) -> dict[str, Any]:
        """The Gram matrix that was formed nearby."""
        if self.known is None:
            return {}
        rows = {} if self.known.rows is None else {"rows": self.known.rows}
        return {"c": self.known.c, "gram": self.known.gram, **rows}

    def third_bound(self, V: Matrix) -> float:
        """The largest eigenvalue of V'A' diag(|w l'''| |V'a_i|) AV / m, plus the penalty's largest third derivative.

        For a unit y = Vz, |sum_i c_i (a_i'y)^3| <= sum_i |c_i| |V'a_i| (a_i'y)^2.
        """
        rows = self.view.A @ V
        c = np.abs(self.coefficients(3)) * np.linalg.norm(rows, axis=1) / self.terms
        spread = float(np.linalg.norm(rows.T @ (c[:, None] * rows), 2))
        return spread + float(np.max(np.abs(self.view.penalty.third(self.x))))


@dataclass(frozen=True, eq=False)
class LinearView:
    """Rows of a linear model: their data, targets and weights, and the penalty that every term shares."""

    A: Any  # NumPy array or CSR array, m x d
    y: Vector
    w: Vector | None  # weights with mean one over all n rows; None: all one
    loss: Loss
    penalty: Penalty
    total: int  # n, the number of rows of the whole model
    rows: Rows | None = None  # which of them these are; None: all, in order
    stale: float = 0.1  # a row's second derivative is formed again when it changed by more than this fraction
    straight: float = 0.2  # a row's third derivative is left out when its cubic term is below this fraction

    def at(self, x: Vector, near: Sequence[Any] = ()) -> LinearPoint:
        """These rows at x."""
        # Only the finished Gram matrices are kept, not the points, so that a long run does not hold its whole past.
        return LinearPoint(self, x, join_references([point.__dict__.get("reference") for point in near]))

    def recall(self, x: Vector, memento: dict[str, Any]) -> LinearPoint:
        """These rows at x, with the Gram matrix that was formed nearby."""
        if not memento:
            return LinearPoint(self, x)
        return LinearPoint(self, x, Reference(memento.get("rows"), memento["c"], memento["gram"], self.total))

    def take(self, rows: Rows) -> LinearView:
        """The given rows, gathered."""
        w = None if self.w is None else self.w[rows]
        return replace(self, A=self.A[rows], y=self.y[rows], w=w, rows=rows)

    def settle(self, x: Vector) -> Vector:
        """x at the l2 penalty's minimum along the directions that no row here sees (Av = 0); the loss stays the same.

        Without this a coordinate that the sample does not speak of keeps its start, however far out, until all data
        is used. Costs no evaluation of any term.
        """
        penalty, d = self.penalty, self.A.shape[1]
        if penalty.l2 == 0.0 or penalty.alpha > 0.0 or not np.any(x):
            return x
        if d > DENSE_LIMIT:
            blind = np.diff(self.A.tocsc().indptr) == 0 if sp.issparse(self.A) else ~np.any(self.A, axis=0)
            return np.where(blind & (penalty.mask > 0), 0.0, x)
        gram = self.gram(np.ones(self.A.shape[0]))
        lengths = np.sqrt(np.diag(gram))  # of the columns, so that a badly scaled one does not look like nothing
        lengths[lengths == 0.0] = 1.0
        values, vectors = np.linalg.eigh(gram / np.outer(lengths, lengths))
        N, _ = np.linalg.qr(vectors[:, values <= 1e-13 * d] / lengths[:, None])
        weighted = penalty.mask[:, None] * N
        return x - N @ np.linalg.lstsq(N.T @ weighted, weighted.T @ x, rcond=1e-10)[0]

    def gram(self, c: Vector) -> Matrix:
        """A' diag(c) A; rows with c = 0 cost nothing."""
        if not sp.issparse(self.A):
            used = np.flatnonzero(c)
            A, c = (self.A, c) if len(used) == len(c) else (self.A[used], c[used])
            return A.T @ (c[:, None] * A)
        from tercet.objectives.kernels import csr_gram

        return csr_gram(self.A.data, self.A.indices, self.A.indptr, c, self.A.shape[1])

    def group_sums(self, c: Vector) -> Matrix:
        """The means of c_i a_i over up to 32 groups of neighbouring rows."""
        m = len(c)
        ends = np.linspace(0, m, min(32, m) + 1).astype(np.intp)
        if sp.issparse(self.A):
            pick = sp.csr_array((c, np.arange(m), ends), shape=(len(ends) - 1, m))
            sums = (pick @ self.A).toarray()
        else:
            sums = np.stack([c[a:b] @ self.A[a:b] for a, b in pairwise(ends)])
        return sums / np.diff(ends)[:, None]


def is_prefix(small: Rows, large: Rows) -> bool:
    """Whether `large` begins with `small`."""
    return len(small) <= len(large) and bool(np.array_equal(small, large[: len(small)]))


def join_references(parts: Sequence[Reference | None]) -> Reference | None:
    """One reference for disjoint sets of rows, in their order; None where one of them was never formed."""
    formed = [part for part in parts if part is not None]
    if not formed or len(formed) < len(parts):
        return None
    if len(formed) == 1:
        return formed[0]
    rows = [part.rows for part in formed if part.rows is not None]
    if len(rows) < len(formed):
        return None
    gram = np.sum([part.gram for part in formed], axis=0)
    return Reference(np.concatenate(rows), np.concatenate([part.c for part in formed]), gram, formed[0].total)


class LinearModel:
    """f(x) = (1/n) sum_i w_i l(a_i'x, y_i) + l2/2 |x|^2 + alpha sum_j x_j^2 / (1 + x_j^2).

    X is a NumPy array or a SciPy sparse matrix with rows a_i. `loss` is a name (sigmoid_squares, logistic, squares,
    cauchy, welsch, geman_mcclure; the last three with a `scale`), an object with `derivatives(z, y)` that gives l and
    its first three derivatives in z, or a scalar JAX function l(z, y). `weights` are normalized to mean one. With
    `intercept` a last coordinate is added to x that is not penalized.
    """

    how = "closed-form derivatives"
    forms_third = False

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
        for name, penalty in (("l2", l2), ("alpha", alpha)):
            if not (np.isfinite(penalty) and penalty >= 0):
                raise ValueError(f"LinearModel({name}={penalty}): a penalty is a finite number that is at least 0.")
        if intercept:
            A = add_ones(A)
        mask = np.ones(A.shape[1])
        if intercept:
            mask[-1] = 0.0
        self.intercept = intercept
        w = None if weights is None else check_weights(weights, A.shape[0])
        self.rows = LinearView(A, targets, w, self.loss, Penalty(float(l2), float(alpha), mask), A.shape[0])

    @property
    def n(self) -> int:
        """The number of rows."""
        return self.rows.A.shape[0]

    @property
    def d(self) -> int:
        """The number of coefficients, the intercept among them."""
        return self.rows.A.shape[1]

    @property
    def dense(self) -> bool:
        """Whether the d x d Hessian is worth forming."""
        return self.d <= DENSE_LIMIT

    def over(self, rows: Rows | None) -> LinearView:
        """The model over the given rows; all of them without a copy."""
        return self.rows if rows is None else self.rows.take(rows)

    def fingerprint(self) -> dict[str, str]:
        """Digests of X, y and the weights; the loss and the penalties by their values."""
        view, A = self.rows, self.rows.A
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
    if sp.issparse(X):
        if X.dtype.kind not in "fiub":
            raise ValueError(f"LinearModel(X=...): X holds {X.dtype}; give real numbers.")
        A = sp.csr_array(X).astype(np.float64)
        A.sum_duplicates()
        values = A.data
    else:
        A = values = as_numbers("X", X)
    if A.ndim != 2 or 0 in A.shape:
        raise ValueError(f"LinearModel(X=...): X has shape {A.shape}; give a non-empty table of rows and columns.")
    if not np.all(np.isfinite(values)):
        raise ValueError("LinearModel(X=...): X holds nan or inf; drop or fill those entries first.")
    return A


def as_numbers(name: str, values: Any) -> NDArray[np.float64]:
    """An array of floats, or a ValueError that names the argument."""
    try:
        array = np.asarray(values)
        if array.dtype.kind in "cMm":
            raise TypeError(f"it holds {array.dtype}")
        return array.astype(np.float64)
    except (TypeError, ValueError, OverflowError) as error:
        raise ValueError(f"LinearModel({name}=...): {name} is not an array of real numbers ({error}).") from error


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
    return w / np.mean(w)


def add_ones(A: Any) -> Any:
    """A with a last column of ones."""
    ones = np.ones((A.shape[0], 1))
    return sp.csr_array(sp.hstack([A, sp.csr_array(ones)])) if sp.issparse(A) else np.hstack([A, ones])
