"""Linear models: f(x) = (1/n) sum w_i l(a_i'x, y_i) + penalty(x), all derivatives in closed form.

With the margins z = Ax known, everything else is elementwise and one product:

    g = A'(w l') + p',   B = A' diag(w l'') A + diag(p''),   T[u, v] = A'(w l''' * Au * Av) + p''' * u * v
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import cached_property, partial
from typing import Any
from weakref import ref

import numpy as np
import scipy.sparse as sp
from numpy.typing import NDArray

from tercet.objectives.base import Bound, check_length, digest, group_errors, name_of
from tercet.objectives.losses import Four, Loss, as_loss
from tercet.objectives.span import Path
from tercet.objectives.tables import ALL, Picked, Table, table_of
from tercet.records import Matrix, Rows, Tensor, Vector

COMPILED = 10_000  # with fewer dense rows the compiled formulas do not repay their loading
DENSE_LIMIT = 3000  # above this many variables a d x d Hessian is neither formed nor factored


@dataclass(frozen=True, eq=False)
class Penalty:
    """l2/2 |x|^2 + alpha sum x_j^2 / (1 + x_j^2) over the penalized coordinates; each x_j on its own."""

    l2: float
    alpha: float
    mask: Vector  # 1 where a coordinate is penalized, 0 for the intercept

    @cached_property
    def is_plain(self) -> bool:
        """Whether it is l2/2 |x|^2 and no more."""
        return self.alpha == 0.0 and bool(np.all(self.mask == 1.0))

    def value(self, x: Vector) -> float:
        """The penalty."""
        if self.is_plain:
            return 0.5 * self.l2 * float(x.dot(x))
        q = self.mask * x * x
        return 0.5 * self.l2 * float(np.sum(q)) + (self.alpha * float(np.sum(q / (1 + q))) if self.alpha else 0.0)

    def gradient(self, x: Vector) -> Vector:
        """l2 x + 2 alpha x / (1 + x^2)^2."""
        if self.is_plain:
            return self.l2 * x
        plain = (self.l2 * self.mask) * x
        return plain + self.mask * (2 * self.alpha * x / (1 + x * x) ** 2) if self.alpha else plain

    def curvature(self, x: Vector) -> Vector:
        """The diagonal l2 + alpha (2 - 6 x^2) / (1 + x^2)^3."""
        q = x * x
        return self.mask * (self.l2 + self.alpha * (2 - 6 * q) / (1 + q) ** 3) if self.alpha else self.l2 * self.mask

    def product(self, x: Vector, v: Vector) -> Vector:
        """That diagonal times v."""
        return self.l2 * v if self.is_plain else self.curvature(x) * v

    def third(self, x: Vector) -> Vector:
        """The diagonal 24 alpha x (x^2 - 1) / (1 + x^2)^4."""
        q = x * x
        return self.mask * (self.alpha * 24 * x * (q - 1) / (1 + q) ** 4) if self.alpha else np.zeros_like(x)


@dataclass(frozen=True, eq=False)
class Reference:
    """A Gram matrix A' diag(c) A that was formed before, with the coefficients c that each of its rows had then."""

    rows: Rows | None  # which rows of the model, ascending; None: all
    c: Vector
    gram: Matrix

    def over(self, rows: Rows | None, terms: int) -> Vector | None:
        """c laid out over a larger set of rows, nan where a row is new; None where ours are not among them."""
        if rows is self.rows:
            return self.c
        if self.rows is None:
            return None
        ours = np.zeros(max(self.rows[-1] + 1, 0 if rows is None else rows[-1] + 1), dtype=bool)
        ours[self.rows] = True
        places = np.flatnonzero(ours if rows is None else ours[rows])
        if not np.array_equal(places if rows is None else rows[places], self.rows):  # not nested, or with repeats
            return None
        past = np.full(terms, np.nan)
        past[places] = self.c
        return past


@dataclass(frozen=True, eq=False)
class LinearPoint:
    """A linear model over some rows at one x."""

    view: LinearView
    x: Vector
    known: Reference | None = None  # the Gram matrix formed nearby, over rows that are among ours
    path: Path | None = None  # the steps that led here, where there are too many variables for a Gram matrix

    @property
    def trail(self) -> Reference | Path | None:
        """What a point close to this one can use again: the Gram matrix that was formed here or nearby, or the steps
        that led here."""
        return self.__dict__.get("reference", self.known) if self.path is None else self.path.again()

    @property
    def drifted(self) -> bool:
        """Whether the margins are a sum over steps."""
        return self.path is not None and self.path.age > 0

    @cached_property
    def terms(self) -> int:
        """The number of rows."""
        return self.view.table.shape[0]

    @cached_property
    def z(self) -> Vector:
        """The margins Ax, as the loss wants them: one product with A for the value and all derivatives."""
        view, z = self.view, np.empty(self.terms)
        pack = view.loss.pack if view.compiled and hasattr(view.loss, "pack") else None
        for piece in view.table.pieces:
            margins = self.margins[piece] if view.wide or self.path is not None else self.times(piece)
            z[piece] = margins if pack is None else pack(margins, view.y[piece])
        return z

    @cached_property
    def margins(self) -> Vector:
        """Ax, kept where steps are."""
        known = None if self.path is None else self.path.margins
        return self.times() if known is None else known

    def times(self, piece: slice = ALL) -> Vector:
        """A piece of Ax."""
        if np.any(self.x):
            return self.view.table.times(self.x, piece)
        return np.zeros(len(range(*piece.indices(self.terms))))

    def forget(self) -> None:
        """Let go of the margins, and of what was made of them for a Hessian that was not formed."""
        for name in ("z", "margins") if "reference" in self.__dict__ else ("z", "margins", "changes", "past"):
            self.__dict__.pop(name, None)

    @cached_property
    def four(self) -> Four:
        """l, l', l'', l''' of a loss that gives them only together."""
        return self.view.loss.derivatives(self.z, self.view.y)

    def coefficients(self, order: int, piece: slice = ALL) -> Vector:
        """w_i l_i^(order), what each row brings to the sum of that order."""
        view, one = self.view, getattr(self.view.loss, "part", None)
        part = self.four[order][piece] if one is None else one(order, self.z[piece], view.y[piece], view.compiled)
        return part if view.w is None else view.w[piece] * part

    def value(self) -> float:
        """(1/m) sum w_i l_i + penalty."""
        total = sum(float(np.sum(self.coefficients(0, piece))) for piece in self.view.table.pieces)
        return total / self.terms + self.view.penalty.value(self.x)

    @cached_property
    def group_sums(self) -> Matrix:
        """A'(w l'), split into the groups of a sample."""
        return self.view.table.group_sums(partial(self.coefficients, 1))

    def gradient(self) -> Vector:
        """A'(w l')/m + p'."""
        sums = self.group_sums
        return (np.sum(sums, axis=0) if len(sums) > 1 else sums[0]) / self.terms + self.view.penalty.gradient(self.x)

    def gradient_errors(self) -> Matrix:
        """From up to 16 groups of rows; the penalty is the same in every term and drops out."""
        return group_errors(self.group_sums, self.terms)

    def hessian(self) -> Matrix:
        """A' diag(w l'') A / m + diag(p''), where rows whose l'' hardly changed keep the one formed before."""
        B = self.reference.gram / self.terms
        B.ravel()[:: len(B) + 1] += self.view.penalty.curvature(self.x)
        return B

    def hessian_price(self) -> int:
        """The rows whose l'' changed since the Gram matrix nearby was formed."""
        return self.changes[0]

    @cached_property
    def past(self) -> Vector | None:
        """The coefficients that the rows had in the Gram matrix formed nearby, nan where a row is new."""
        return None if self.known is None else self.known.over(self.view.rows, self.terms)

    @cached_property
    def changes(self) -> tuple[int, Vector]:
        """How many rows have a second derivative that differs by more than `stale` from the one formed nearby, and the
        coefficients of a Gram matrix that is fresh in these rows and keeps the others."""
        c, count = np.empty(self.terms), self.terms
        for piece in self.view.table.pieces:
            c[piece] = self.coefficients(2, piece)
            if self.past is not None:
                count -= self.keep(c[piece], self.past[piece])
        return count, c

    def keep(self, c: Vector, past: Vector) -> int:
        """Put back, in place, those of c that hardly differ from the past; returns their number."""
        if self.view.compiled:
            from tercet.objectives.kernels import keep

            return keep(c, past, self.view.stale)
        kept = np.abs(c - past) <= self.view.stale * np.abs(past)
        c[kept] = past[kept]
        return int(np.count_nonzero(kept))

    def gains(self, piece: slice) -> Vector:
        """By how much the coefficients changed; all of it where a row is new."""
        c = self.changes[1][piece]
        if self.past is None:
            return c
        past = self.past[piece]
        if self.view.compiled:
            from tercet.objectives.kernels import gained

            return gained(c, past)
        return np.where(np.isnan(past), c, c - past)

    @cached_property
    def reference(self) -> Reference:
        """The sum A' diag(c) A with c = w l'', fresh in the rows that changed."""
        gram = self.view.table.gram(self.gains)
        if self.past is not None:
            assert self.known is not None
            gram += self.known.gram
        self.__dict__.update(past=None, known=None)  # spent
        return Reference(self.view.rows, self.changes[1], gram)

    def hessian_product(self, v: Vector) -> Vector:
        """A'(w l'' * Av)/m + p'' * v."""
        table = self.view.table
        loss = table.weigh(lambda piece: self.coefficients(2, piece) * table.times(v, piece)) / self.terms
        return loss + self.view.penalty.product(self.x, v)

    def along(self, v: Vector) -> Vector:
        """Av."""
        return self.view.table.times(v)

    def curvature(self, v: Vector, Av: Vector) -> float:
        """v'Bv from Av: no product."""
        loss = sum(float(self.coefficients(2, piece) @ Av[piece] ** 2) for piece in self.view.table.pieces)
        return loss / self.terms + float(self.view.penalty.product(self.x, v) @ v)

    def hessian_from(self, v: Vector, Av: Vector) -> Vector:
        """Bv from Av: the second half of the product."""
        loss = self.view.table.weigh(lambda piece: self.coefficients(2, piece) * Av[piece]) / self.terms
        return loss + self.view.penalty.product(self.x, v)

    def third_product(self, u: Vector, v: Vector) -> Vector:
        """A'(w l''' * Au * Av)/m + p''' * u * v."""
        table = self.view.table

        def bend(piece: slice) -> Vector:
            Au = table.times(u, piece)
            Av = Au if v is u else table.times(v, piece)
            return self.coefficients(3, piece) * Au * Av

        return table.weigh(bend) / self.terms + self.view.penalty.third(self.x) * u * v

    def third_square(self, s: Vector) -> Vector:
        """T[s, s] over the rows that bend along s."""
        loss = self.view.table.weigh(self.bending(s)[1]) / self.terms
        self.__dict__.pop("_bending")
        return loss + self.view.penalty.third(self.x) * s * s

    def third_square_price(self, s: Vector) -> int:
        """The number of rows that bend along s."""
        return self.bending(s)[0]

    def bending(self, s: Vector) -> tuple[int, Vector]:
        """l''' (a's)^2 of the rows whose cubic term 1/2 l''' (a's)^2 is not small beside l'' a's, and their number."""
        last = self.__dict__.get("_bending")
        if last is None or last[0] is not s:
            table, bends = self.view.table, np.empty(self.terms)
            count = sum(self.bend(table.times(s, piece), piece, bends[piece]) for piece in table.pieces)
            last = self.__dict__["_bending"] = (s, count, bends)
        return last[1], last[2]

    def bend(self, As: Vector, piece: slice, out: Vector) -> int:
        """The same for a piece, from its As; returns the number."""
        second, third = self.coefficients(2, piece), self.coefficients(3, piece)
        if self.view.compiled:
            from tercet.objectives.kernels import bend

            return bend(As, second, third, self.view.straight, out)
        curved = third * As
        bends = 0.5 * np.abs(curved) > self.view.straight * np.abs(second)
        out[:] = np.where(bends, curved * As, 0.0)
        return int(np.count_nonzero(bends))

    def third_tensor(self, V: Matrix) -> Tensor:
        """sum_i w_i l_i''' (AV)_i (x) (AV)_i (x) (AV)_i / m + the penalty's diagonal; one product of A with V."""
        diagonal = self.view.penalty.third(self.x)
        T = np.stack([V.T @ ((diagonal * v)[:, None] * V) for v in V.T])
        for piece, block in self.view.table.blocks():
            c, rows = self.coefficients(3, piece) / self.terms, block @ V
            T += np.stack([rows.T @ ((c * a)[:, None] * rows) for a in rows.T])
        return T

    def memento(self) -> dict[str, Any]:
        """The Gram matrix that was formed nearby, or the steps that led here."""
        if self.path is not None:
            return self.path.memento()
        if self.known is None:
            return {}
        rows = {} if self.known.rows is None else {"rows": self.known.rows}
        return {"c": self.known.c, "gram": self.known.gram, **rows}

    def third_bound(self, V: Matrix | None, tight: bool = False) -> float:
        """The largest eigenvalue of V'A' diag(|w l'''| r_i) AV / m, plus the penalty's largest third derivative.

        For a unit y = Vz, |sum_i c_i (a_i'y)^3| <= sum_i |c_i| r_i (a_i'y)^2 with r_i = |V'a_i|, or r_i = |a_i|, which
        takes one Gram matrix. Over all directions the eigenvalue is bounded by the largest row sum.
        """
        table = self.view.table

        def size(piece: slice) -> Vector:
            return np.abs(self.coefficients(3, piece)) / self.terms

        penalty = float(np.max(np.abs(self.view.penalty.third(self.x))))
        if V is None:
            sums = np.zeros(table.shape[1])
            for piece, block in table.blocks():
                entries = abs(block)
                sums += entries.T @ (size(piece) * table.lengths(piece) * np.asarray(entries.sum(axis=1)).ravel())
            return float(np.max(sums)) + penalty
        if len(V) <= DENSE_LIMIT:
            P = V @ V.T if tight else None
            gram = table.gram(lambda piece: size(piece) * table.lengths(piece, P))
            return float(np.linalg.norm(V.T @ gram @ V, 2)) + penalty
        spread = np.zeros((V.shape[1], V.shape[1]))
        for piece, block in table.blocks():
            rows = block @ V
            spread += rows.T @ ((size(piece) * np.linalg.norm(rows, axis=1))[:, None] * rows)
        return float(np.linalg.norm(spread, 2)) + penalty


@dataclass(frozen=True, eq=False)
class LinearView:
    """Rows of a linear model: their data, targets and weights, and the penalty that every term shares."""

    table: Table
    y: Vector
    w: Vector | None  # weights with mean one over all n rows; None: all one
    loss: Loss
    penalty: Penalty
    compiled: bool  # whether the compiled twins of the elementwise formulas are used
    rows: Rows | None = None  # which rows of the model, ascending; None: all
    stale: float = 0.2  # a row's second derivative is formed again when it changed by more than this fraction
    straight: float = 0.2  # a row's third derivative is left out when its cubic term is below this fraction

    @property
    def terms(self) -> int:
        """The number of rows."""
        return self.table.shape[0]

    @property
    def wide(self) -> bool:
        """Whether there are too many variables for a Gram matrix."""
        return self.table.shape[1] > DENSE_LIMIT

    def at(self, x: Vector, near: Any = None) -> LinearPoint:
        """These rows at x."""
        # Only the Gram matrix or the path is kept, not the point, so that a long run does not hold its whole past.
        trail = getattr(near, "trail", near)
        if isinstance(trail, Path):
            return LinearPoint(self, x, path=trail if trail.view() is self else None)
        return LinearPoint(self, x, trail)

    def recall(self, x: Vector, memento: dict[str, Any]) -> LinearPoint:
        """These rows at x, with what the memento tells of the points before."""
        if not memento:
            return LinearPoint(self, x)
        if "steps" in memento:
            return LinearPoint(self, x, path=Path.of(self, memento))
        rows = memento.get("rows")
        same = rows is not None and self.rows is not None and np.array_equal(rows, self.rows)
        return LinearPoint(self, x, Reference(self.rows if same else rows, memento["c"], memento["gram"]))

    def take(self, rows: Rows) -> LinearView:
        """The given rows; their data stays where it is."""
        picked = Picked.of(rows)
        w = None if self.w is None else self.w[picked.rows]
        return replace(self, table=self.table.over(picked), y=self.y[picked.rows], w=w, rows=picked.rows)

    def shrink(self, x: Vector) -> tuple[Vector, int]:
        """tx with the lowest f of t = 1, 1/4, ..., 4^-6 and 0, and how often f was looked at.

        Far from 0 a loss that saturates is flat in most rows, and no derivative tells the way back; along x the margins
        are known, so that a sample of the rows tells it for next to nothing.
        """
        if self.rows is None or not np.any(x):
            return x, 0
        z, path = self.table.times(x), Path(ref(self))
        scales = [*(0.25**k for k in range(7)), 0.0]
        values = [LinearPoint(self, t * x, path=replace(path, margins=t * z)).value() for t in scales]
        lowest = int(np.nanargmin([*values, np.inf]))
        return (x if lowest in (0, len(scales)) else scales[lowest] * x), len(scales)

    def settle(self, x: Vector) -> Vector:
        """x at the l2 penalty's minimum along the directions that no row here sees (Av = 0); the loss stays the same.

        Without this a coordinate that the sample does not speak of keeps its start, however far out, until all data
        is used. Costs no evaluation of any term.
        """
        penalty, (m, d) = self.penalty, self.table.shape
        if penalty.l2 == 0.0 or penalty.alpha > 0.0 or not np.any(x):
            return x
        if d > DENSE_LIMIT:
            seen = np.zeros(d, dtype=bool)
            for _, block in self.table.blocks():
                seen[block.indices if sp.issparse(block) else np.any(block, axis=0)] = True
            free = ~seen & (penalty.mask > 0) & (x != 0.0)
            return np.where(free, 0.0, x) if np.any(free) else x
        gram = self.table.gram(np.ones(m))
        lengths = np.sqrt(np.diag(gram))  # of the columns, so that a badly scaled one does not look like nothing
        lengths[lengths == 0.0] = 1.0
        values, vectors = np.linalg.eigh(gram / np.outer(lengths, lengths))
        N, _ = np.linalg.qr(vectors[:, values <= 1e-13 * d] / lengths[:, None])
        weighted = penalty.mask[:, None] * N
        return x - N @ np.linalg.lstsq(N.T @ weighted, weighted.T @ x, rcond=1e-10)[0]


class LinearModel:
    """f(x) = (1/n) sum_i w_i l(a_i'x, y_i) + l2/2 |x|^2 + alpha sum_j x_j^2 / (1 + x_j^2).

    X is a NumPy array or a SciPy sparse matrix with rows a_i. `loss` is a name (sigmoid_squares, logistic, squares,
    cauchy, welsch, geman_mcclure; the last three with a `scale`), an object with `derivatives(z, y)` that gives l and
    its first three derivatives in z, or a scalar JAX function l(z, y). `weights` are normalized to mean one. With
    `intercept` a last coordinate is added to x that is not penalized.
    """

    how = "closed-form derivatives"
    forms_third = False
    hessian_cost = 2.0
    spans = True  # its points know f over the span of a few directions

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
        self.A = A
        compiled = sp.issparse(A) or A.shape[0] >= COMPILED
        self.rows = LinearView(table_of(A), targets, w, self.loss, Penalty(float(l2), float(alpha), mask), compiled)

    @property
    def n(self) -> int:
        """The number of rows."""
        return self.A.shape[0]

    @property
    def d(self) -> int:
        """The number of coefficients, the intercept among them."""
        return self.A.shape[1]

    @property
    def dense(self) -> bool:
        """Whether the d x d Hessian is worth forming."""
        return self.d <= DENSE_LIMIT

    def over(self, rows: Rows | None) -> LinearView:
        """The model over the given rows; all of them without a copy."""
        return self.rows if rows is None else self.rows.take(rows)

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
    if sp.issparse(X):
        if X.dtype.kind not in "fiub":
            raise ValueError(f"LinearModel(X=...): X holds {X.dtype}; give real numbers.")
        A = sp.csr_array(X).astype(np.float64, copy=False)
        if not A.has_canonical_format:
            A = A.copy()  # the user's own is not rearranged
            A.sum_duplicates()
        values = A.data
    else:
        A = values = as_numbers("X", X)
    if A.ndim != 2 or 0 in A.shape:
        raise ValueError(f"LinearModel(X=...): X has shape {A.shape}; give a non-empty table of rows and columns.")
    # A finite sum proves it without another array of the size of X.
    with np.errstate(over="ignore", invalid="ignore"):
        finite = bool(np.isfinite(np.sum(values)))
    if not (finite or np.all(np.isfinite(values))):
        raise ValueError("LinearModel(X=...): X holds nan or inf; drop or fill those entries first.")
    return A


def as_numbers(name: str, values: Any) -> NDArray[np.float64]:
    """An array of floats, or a ValueError that names the argument."""
    try:
        array = np.asarray(values)
        if array.dtype.kind in "cMm":
            raise TypeError(f"it holds {array.dtype}")
        return array.astype(np.float64, copy=False)
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
