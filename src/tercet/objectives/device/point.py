"""A linear model on a device over some rows at one x.

The formulas are those of `tercet.objectives.linear.point`. Margins and coefficients stay on the device and are made a
piece at a time; each answer comes to the host by one transfer.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

import numpy as np

from tercet.objectives.base import Priced
from tercet.objectives.device.arrays import Array
from tercet.objectives.device.csr import CsrDeviceTable
from tercet.objectives.device.formulas import Formulas, told
from tercet.objectives.device.path import DeviceAhead, DevicePath
from tercet.objectives.device.table import DenseDeviceTable
from tercet.objectives.linear.bounds import GRAM_LIMIT
from tercet.objectives.linear.point import STRAIGHT, Penalty
from tercet.objectives.linear.span import FRESH, SpanImages
from tercet.objectives.linear.start import shrink, unseen_to_rest
from tercet.objectives.tables import ALL
from tercet.once import once
from tercet.records import Matrix, Tensor, Vector


@dataclass(frozen=True, eq=False)
class DeviceView:
    """Rows of a linear model: their data, targets and weights, and the penalty that every term shares."""

    table: DenseDeviceTable | CsrDeviceTable
    y: Array  # targets, or 1 - 2y for a loss of two classes
    w: Array | None  # weights with mean one over all n rows; None: all one
    formulas: Formulas
    penalty: Penalty
    wide: bool  # whether there are too many variables for a Gram matrix
    rows: Any = None  # which rows of the model, in the order of their drawing; None: all

    @once
    def terms(self) -> int:
        """The number of rows."""
        return self.table.shape[0]

    def at(self, x: Vector, carry: DevicePath | None = None) -> DevicePoint:
        """These rows at x."""
        return DevicePoint(self, x, carry if carry is not None and carry.rows is self.rows else None)

    def losses(self, z: Array, scales: Sequence[float]) -> Vector:
        """(1/m) sum w_i l(t z_i, y_i) for each t, in one transfer."""
        looks = [self.formulas.look(t * z, None, 1.0, self.y, self.w) for t in scales]
        found = self.table.arrays.host(*(each for look in looks for each in look))
        return np.array([told([each])[0] for each in found]) / self.terms

    def recall(self, arrays: dict[str, Any]) -> DevicePath:
        """What a point carried, from its arrays."""
        return DevicePath.of(self.table.arrays, self.rows, arrays, self.table.shape)

    def take(self, rows: Any) -> DeviceView:
        """The given rows."""
        on = self.table.arrays
        picked = on.numbers(rows)
        w = None if self.w is None else on.rows(self.w, picked)
        return replace(self, table=self.table.over(picked), y=on.rows(self.y, picked), w=w, rows=picked)

    def start(self, x: Vector) -> Priced[Vector]:
        """x brought back to where the loss of a sample is not flat, and to rest where its rows do not look."""
        nearer, looked = shrink(self, x)
        return Priced(unseen_to_rest(self, nearer) if self.rows is not None else nearer, value=looked)

    def stack(self, images: list[Array]) -> Array:
        """Images of several directions, one below the other."""
        return self.table.arrays.xp.stack(images)

    def host(self, values: Array) -> Any:
        """Few numbers, on the host."""
        return self.table.arrays.host(values)[0]


class DeviceMargins:
    """z = Ax over some rows, on the device, and what each row brings to a sum, w_i l^(order)(z_i, y_i)."""

    def __init__(self, view: DeviceView, x: Vector, path: DevicePath | None):
        self.view, self.x, self.path = view, x, path
        self.whole: Array | None = None

    @property
    def z(self) -> Array:
        """Ax, computed once, and kept; what it was made of is let go of."""
        if self.whole is None:
            known = None if self.path is None else self.path.margins
            self.whole, self.path = self.times() if known is None else known, None
        return self.whole

    def times(self) -> Array:
        """Ax by a product with A; none where x is 0."""
        return self.view.table.times(self.x) if self.x.any() else 0.0 * self.view.y

    def coefficients(self, order: int, piece: slice = ALL) -> Array:
        """w_i l_i^(order)."""
        view, z = self.view, self.z
        if piece == ALL:
            return view.formulas.part(order, z, view.y, view.w)
        return view.formulas.part(order, z[piece], view.y[piece], None if view.w is None else view.w[piece])

    def look(self) -> Sequence[Array]:
        """sum_i w_i l_i on the device; where z follows from what is known, the whole of it is not made."""
        view, path = self.view, self.path
        if self.whole is None and path is not None and path.base is not None:
            return view.formulas.look(path.base, path.ahead, path.t, view.y, view.w)
        return view.formulas.look(self.z, None, 1.0, view.y, view.w)


class DevicePoint:
    """A linear model on a device over some rows at one x."""

    carry: DevicePath | None = None
    inexact: int = 4

    def __init__(self, view: DeviceView, x: Vector, path: DevicePath | None = None):
        self.view, self.x, self.terms = view, x, view.terms
        self.margins, self.path = DeviceMargins(view, x, path), None if path is None else path.without()
        self.total: float | None = None if path is None else path.total
        self.carry = None if path is None else path.again()
        if path is not None and path.age > 0:  # the margins are a sum over steps, whose rounding adds up
            self.inexact = 0

    def host(self, *arrays: Array) -> list[Any]:
        """On the host, by one transfer."""
        return self.view.table.arrays.host(*arrays)

    def value(self) -> float:
        """(1/m) sum w_i l_i + penalty."""
        total = told(self.host(*self.margins.look()))[0] if self.total is None else self.total
        return total / self.terms + self.view.penalty.value(self.x)

    @once
    def group_sums(self) -> Matrix:
        """A'(w l'), split into the groups of a sample; the penalty is left out."""
        _ = self.margins.z  # for the Hessian, too
        return self.host(self.view.table.grouped(partial(self.margins.coefficients, 1)))[0]

    def gradient(self) -> Vector:
        """A'(w l')/m + p'."""
        return self.group_sums.sum(axis=0) / self.terms + self.view.penalty.gradient(self.x)

    def first(self) -> tuple[float, Vector]:
        """f(x) and its gradient, in one transfer."""
        _ = self.margins.z
        sums = self.view.table.grouped(partial(self.margins.coefficients, 1))
        *looks, self.group_sums = self.host(*self.margins.look(), sums)
        return told(looks)[0] / self.terms + self.view.penalty.value(self.x), self.gradient()

    def hessian(self) -> Matrix:
        """A' diag(w l'') A / m + diag(p'')."""
        B = self.view.table.gram(partial(self.margins.coefficients, 2)) / self.terms
        B.ravel()[:: len(B) + 1] += self.view.penalty.curvature(self.x)
        return B

    def product(self, order: int, *vectors: Vector) -> Vector:
        """Bv = A'(w l'' * Av)/m + p'' * v, or T[u, v] = A'(w l''' * Au * Av)/m + p''' * u * v."""
        table, penalty, (u, v) = self.view.table, self.view.penalty, (vectors[0], vectors[-1])
        Au = table.times(u)
        both = Au if order == 2 else Au * (Au if v is u else table.times(v))
        loss = table.weigh(lambda piece: self.margins.coefficients(order, piece) * both[piece]) / self.terms
        return loss + (penalty.product(self.x, v) if order == 2 else penalty.third(self.x) * u * v)

    def third_square(self, s: Vector) -> Priced[Vector]:
        """T[s, s] over the rows that bend along s: those with |l''' a's| / 2 above a fifth of |l''|."""
        table, xp, counts = self.view.table, self.view.table.arrays.xp, []
        As = table.times(s)

        def part(piece: slice) -> Array:
            curved = self.margins.coefficients(3, piece) * As[piece]
            bends = 0.5 * xp.abs(curved) > STRAIGHT * xp.abs(self.margins.coefficients(2, piece))
            none = xp.zeros_like(curved)
            counts.append(xp.sum(xp.where(bends, none + 1.0, none)))
            return xp.where(bends, curved * As[piece], none)

        loss, count = self.host(table.weighed(part), sum(counts[1:], counts[0]) if counts else None)
        penalty = self.view.penalty.third(self.x) * s * s
        return Priced(loss / self.terms + penalty, third=int(count))

    def third_tensor(self, V: Matrix) -> Tensor:
        """sum_i w_i l_i''' (AV)_i (x) (AV)_i (x) (AV)_i / m + the penalty's diagonal; one product of A with V."""
        table, diagonal = self.view.table, self.view.penalty.third(self.x)
        T, on = np.stack([V.T @ ((diagonal * v)[:, None] * V) for v in V.T]), table.arrays
        for piece, rows in table.images(V):
            c = self.margins.coefficients(3, piece) / self.terms
            weighed = [rows * c[:, None] * rows[:, k : k + 1] for k in range(V.shape[1])]
            T += on.host(on.xp.stack([each.T @ rows for each in weighed]))[0]
        return T

    def third_bound(self, V: Matrix | None, tight: bool = False) -> float:
        """A bound on |T[y]^3| over unit y in the span of V, from the lengths of the rows (`linear.bounds`)."""
        table, xp = self.view.table, self.view.table.arrays.xp
        penalty = float(np.max(np.abs(self.view.penalty.third(self.x))))
        P = V @ V.T if V is not None and tight and len(V) <= GRAM_LIMIT else None
        size = xp.abs(self.margins.coefficients(3)) * table.lengths(P) / self.terms
        if V is not None and len(V) <= GRAM_LIMIT:
            return float(np.linalg.norm(V.T @ table.gram(size) @ V, 2)) + penalty
        if V is None:
            return float(np.max(table.absolute_sums(size))) + penalty
        parts = [(rows * size[piece][:, None]).T @ rows for piece, rows in table.images(V)]
        return float(np.linalg.norm(sum(self.host(*parts)), 2)) + penalty

    def variance(self, order: int) -> float:
        """The variance of the terms' derivatives of one order (`linear.bounds`)."""
        table, c = self.view.table, self.margins.coefficients(order)
        norms = table.lengths()
        if order == 1:
            square, mean = self.host(table.arrays.xp.sum((c * norms) ** 2), table.weighed(c))
            return max(0.0, float(square) / self.terms - float(mean @ mean) / self.terms**2)
        spread = table.gram(c**2 * norms ** (2 * order - 2)) / self.terms
        if order == 2:
            B = table.gram(c) / self.terms
            spread = spread - B @ B
        return max(0.0, float(np.linalg.eigvalsh((spread + spread.T) / 2)[-1]))

    def standing(self) -> DevicePath:
        """The path to x with its margins; these are computed anew where many steps added up to them."""
        path = self.path or DevicePath(self.view.table.arrays, self.view.rows)
        old = path.age >= FRESH
        return path.standing(self.margins.times() if old else self.margins.z, old)

    def line(self, s: Vector) -> DeviceAhead:
        """f along s, from As; f at x + s comes along, by the same transfer."""
        view, path, As = self.view, self.standing(), self.view.table.times(s)
        looks = view.formulas.look(path.base, As, 1.0, view.y, view.w, sizes=True)
        total, here, ahead = told(self.host(*looks))
        return DeviceAhead(path, As, total, here, ahead)

    def images(self, point: Any) -> SpanImages:
        """What A makes of directions, and f over their span."""
        return SpanImages(point)
