"""A linear model over some rows at one x.

With the margins z = Ax known, everything else is elementwise and one product:

    g = A'(w l') + p',   B = A' diag(w l'') A + diag(p''),   T[u, v] = A'(w l''' * Au * Av) + p''' * u * v
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

import numpy as np

from tercet.objectives.base import Priced
from tercet.objectives.linear import bounds
from tercet.objectives.linear.span import FRESH, Ahead, Path, SpanImages, same_rows
from tercet.objectives.linear.start import shrink, unseen_to_rest
from tercet.objectives.losses import LOOPED, Formula, Four, Loss
from tercet.objectives.tables import ALL, Coefficients, Picked, Table
from tercet.once import once
from tercet.records import Matrix, Rows, Tensor, Vector

WALKED = 300_000  # entries, with more of which the arithmetic of an iteration takes longer than all beside it
NARROW = 64  # variables; matrices of more are left to LAPACK
STRAIGHT = 0.2  # a row's third derivative is left out when its cubic term is below this fraction


@dataclass(frozen=True, eq=False)
class Penalty:
    """l2/2 |x|^2 + alpha sum x_j^2 / (1 + x_j^2) over the penalized coordinates; each x_j on its own."""

    l2: float
    alpha: float
    mask: Vector  # 1 where a coordinate is penalized, 0 for the intercept

    @once
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
class LinearView:
    """Rows of a linear model: their data, targets and weights, and the penalty that every term shares."""

    table: Table
    y: Vector
    w: Vector | None  # weights with mean one over all n rows; None: all one
    loss: Loss
    formula: Formula  # of the loss
    penalty: Penalty
    compiled: bool  # whether the compiled twins of the elementwise formulas are used
    wide: bool  # whether there are too many variables for a Gram matrix
    rows: Rows | None = None  # which rows of the model, ascending; None: all

    @once
    def terms(self) -> int:
        """The number of rows."""
        return self.table.shape[0]

    @once
    def looped(self) -> Any:
        """The rows for compiled loops; None where there are many, or a loss that these do not know."""
        table: Any = self.table
        ours = self.rows is None and type(self.loss) in LOOPED
        if not ours or table.shape[1] > NARROW or table.A.size > WALKED:
            return None
        from tercet.objectives.linear.rows import data_of  # compiled, and loaded only where it is used

        return data_of(self)

    def at(self, x: Vector, carry: Path | None = None) -> LinearPoint:
        """These rows at x."""
        same = carry is not None and (carry.rows is self.rows or same_rows(carry.rows, self.rows))
        return LinearPoint(self, x, carry if same else None)

    def losses(self, z: Vector, scales: Sequence[float]) -> Vector:
        """(1/m) sum w_i l(t z_i, y_i) for each t, all at once."""
        k, formula = len(scales), self.formula
        margins, y = np.outer(scales, z).ravel(), np.tile(self.y, k)
        if formula.part is not None:
            each = formula.part(0, margins if formula.pack is None else formula.pack(margins, y), y)
        else:
            each = self.loss.derivatives(margins, y)[0] if formula.value is None else formula.value(margins, y)
        rows = each.reshape(k, -1)
        return (rows if self.w is None else rows * self.w).sum(axis=1) / self.terms

    def recall(self, arrays: dict[str, Any]) -> Path:
        """What a point carried, from its arrays."""
        return Path.of(self.rows, arrays, self.table.shape)

    def take(self, rows: Rows) -> LinearView:
        """The given rows; their data stays where it is."""
        picked = Picked.of(rows)
        w = None if self.w is None else self.w[picked.rows]
        return replace(self, table=self.table.over(picked), y=self.y[picked.rows], w=w, rows=picked.rows)

    def stack(self, images: list[Vector]) -> Matrix:
        """Images of several directions, one below the other."""
        return np.stack(images)

    def host(self, values: Any) -> Any:
        """Few numbers that are on the host."""
        return values

    def bend(self) -> Callable[[Vector, Vector, Vector, float, Vector], int]:
        """The formula, or its compiled twin."""
        if not self.compiled:
            return bend
        from tercet.objectives import kernels

        return kernels.bend

    def start(self, x: Vector) -> Priced[Vector]:
        """x brought back to where the loss of a sample is not flat, and to rest where its rows do not look."""
        nearer, looked = shrink(self, x)
        return Priced(unseen_to_rest(self, nearer) if self.rows is not None else nearer, value=looked)


class Margins:
    """z = Ax over some rows, and what each row brings to a sum, w_i l^(order)(z_i, y_i); z is computed once, and kept.

    Where the steps that led to x are remembered (`path`), Ax may be known from them.
    """

    def __init__(self, view: LinearView, x: Vector, path: Path | None):
        self.view, self.x = view, x
        self.made: Vector | None = None if path is None else path.margins
        self.as_wanted: Vector | None = None

    @property
    def z(self) -> Vector:
        """Ax: one product with A for the value and all derivatives."""
        if self.made is None:
            self.made = self.times()
        return self.made

    @property
    def packed(self) -> Vector:
        """z as the loss wants it."""
        if self.as_wanted is None:
            self.as_wanted = self.z if self.view.formula.pack is None else self.pack(self.view.formula.pack)
        return self.as_wanted

    def pack(self, pack: Callable[[Vector, Vector], Vector]) -> Vector:
        """z as the loss wants it, made a piece at a time."""
        view, z = self.view, self.z
        if len(view.table.pieces) == 1:
            return pack(z, view.y)
        out = np.empty(view.terms)
        for piece in view.table.pieces:
            out[piece] = pack(z[piece], view.y[piece])
        return out

    def times(self, piece: slice = ALL) -> Vector:
        """A piece of Ax."""
        if self.x.any():
            return self.view.table.times(self.x, piece)
        return np.zeros(len(range(*piece.indices(self.view.terms))))

    @once
    def four(self) -> Four:
        """l, l', l'', l''' of a loss that gives them only together."""
        return self.view.loss.derivatives(self.packed, self.view.y)

    def pair(self, piece: slice) -> tuple[Vector, Vector]:
        """w_i l_i'' and w_i l_i''', in one go where the loss lets them be had one at a time."""
        view, one = self.view, self.view.formula.part
        if one is None or view.w is not None:
            return self.coefficients(2, piece), self.coefficients(3, piece)
        z, y = self.packed[piece], view.y[piece]
        return one(2, z, y), one(3, z, y)

    def coefficients(self, order: int, piece: slice = ALL) -> Vector:
        """w_i l_i^(order)."""
        view, formula = self.view, self.view.formula
        if formula.part is not None:
            part = formula.part(order, self.packed[piece], view.y[piece])
        elif order == 0 and formula.value is not None:
            part = formula.value(self.z[piece], view.y[piece])
        else:
            part = self.four[order][piece]
        return part if view.w is None else view.w[piece] * part

    def each(self, order: int) -> Coefficients:
        """The same for a sum over all rows: made while they are used, where there are several pieces of them."""
        return self.coefficients(order) if len(self.view.table.pieces) == 1 else partial(self.coefficients, order)


def bend(As: Vector, second: Vector, third: Vector, straight: float, out: Vector) -> int:
    """Count the rows with |l''' a's| / 2 > straight |l''|; out is l''' (a's)^2 there and 0 elsewhere."""
    curved = third * As
    bends = 0.5 * np.abs(curved) > straight * np.abs(second)
    out[:] = np.where(bends, curved * As, 0.0)
    return int(np.count_nonzero(bends))


class LinearPoint:
    """A linear model over some rows at one x.

    `path` are the margins, and the steps that led here, where f was looked at over their span; `carry` is the same for
    a point nearby, and `inexact` the lowest order of derivative that owes something to it.
    """

    carry: Path | None = None

    def __init__(self, view: LinearView, x: Vector, path: Path | None = None):
        self.view, self.x, self.terms = view, x, view.terms
        self.margins, self.path = Margins(view, x, path), path
        self.sums: Matrix | None = None
        self.carry = None if path is None else Path(path.rows, path.steps, path.images)
        # Margins that are a sum over steps carry rounding that adds up.
        self.inexact = 0 if path is not None and path.age > 0 else 4

    def value(self) -> float:
        """(1/m) sum w_i l_i + penalty."""
        penalty, total = self.view.penalty.value(self.x), 0.0
        for piece in self.view.table.pieces:
            total += float(self.margins.coefficients(0, piece).sum())
        return total / self.terms + penalty

    @property
    def group_sums(self) -> Matrix:
        """A'(w l'), split into the groups of a sample; the penalty is the same in every term and left out."""
        if self.sums is None:
            self.sums = self.view.table.group_sums(self.margins.each(1))
        return self.sums

    def gradient(self) -> Vector:
        """A'(w l')/m + p'."""
        penalty, sums = self.view.penalty.gradient(self.x), self.group_sums
        return (sums.sum(axis=0) if len(sums) > 1 else sums[0]) / self.terms + penalty

    def hessian(self) -> Matrix:
        """A' diag(w l'') A / m + diag(p'')."""
        curvature = self.view.penalty.curvature(self.x)
        B = self.view.table.gram(self.margins.each(2)) / self.terms
        B.ravel()[:: len(B) + 1] += curvature
        return B

    def product(self, order: int, *vectors: Vector) -> Vector:
        """Bv = A'(w l'' * Av)/m + p'' * v, or T[u, v] = A'(w l''' * Au * Av)/m + p''' * u * v."""
        table, penalty, (u, v) = self.view.table, self.view.penalty, (vectors[0], vectors[-1])

        def part(piece: slice) -> Vector:
            Au = table.times(u, piece)
            if order == 2:
                return self.margins.coefficients(2, piece) * Au
            return self.margins.coefficients(3, piece) * Au * (Au if v is u else table.times(v, piece))

        loss = table.weigh(part) / self.terms
        return loss + (penalty.product(self.x, v) if order == 2 else penalty.third(self.x) * u * v)

    def third_square(self, s: Vector) -> Priced[Vector]:
        """T[s, s] over the rows that bend along s."""
        penalty, table = self.view.penalty.third(self.x) * s * s, self.view.table
        bends, count, bend = np.empty(self.terms), 0, self.view.bend()
        for piece in table.pieces:
            As, (second, third) = table.times(s, piece), self.margins.pair(piece)
            count += bend(As, second, third, STRAIGHT, bends[piece])
        return Priced(table.weigh(bends) / self.terms + penalty, third=count)

    def third_tensor(self, V: Matrix) -> Tensor:
        """sum_i w_i l_i''' (AV)_i (x) (AV)_i (x) (AV)_i / m + the penalty's diagonal; one product of A with V."""
        diagonal = self.view.penalty.third(self.x)
        T = np.stack([V.T @ ((diagonal * v)[:, None] * V) for v in V.T])
        for piece, block in self.view.table.blocks():
            c, rows = self.margins.coefficients(3, piece) / self.terms, block @ V
            T += np.stack([rows.T @ ((c * a)[:, None] * rows) for a in rows.T])
        return T

    # what the rows and the loss alone tell
    third_bound, limits, variance = bounds.third_bound, bounds.limits, bounds.variance

    def scatter(self) -> Matrix:
        """A' diag(w l')^2 A / m less the square of its mean: the penalty is the same in every term."""
        c, table = self.margins.coefficients(1), self.view.table
        mean = table.weigh(c) / self.terms
        return table.gram(c * c) / self.terms - np.outer(mean, mean)

    def standing(self) -> Path:
        """The path to x with its margins; these are computed anew where many steps added up to them."""
        path = self.path
        if path is None:
            return Path(self.view.rows, margins=self.margins.z)
        if path.age >= FRESH:
            return Path(path.rows, path.steps, path.images, self.margins.times())
        return Path(path.rows, path.steps, path.images, self.margins.z, path.age, path.moved)

    def line(self, s: Vector) -> Ahead:
        """f along s, from As."""
        return Ahead(self.standing(), self.view.table.times(s))

    def images(self, point: Any) -> SpanImages:
        """What A makes of directions, and f over their span."""
        return SpanImages(point)
