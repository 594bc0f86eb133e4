"""What is summed over the rows of a linear model, block by block. Each sum is small, pure and can be sent to a worker.

With the margins z = Ax of a block known, all sums that are asked together cost one read of it:

    sum w l,  A'(w l'),  A' diag(w l'') A,  A'(w l'' * Av),  A'(w l''' * Au * Av),  groups of A'(w l'), ...

Penalties and the division by n are left to who asks.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Any, Protocol, TypeVar, cast
from uuid import uuid4

import numpy as np

from tercet.objectives.linear.bounds import limit_sums
from tercet.objectives.linear.model import add_ones
from tercet.objectives.linear.point import STRAIGHT, LinearPoint, LinearView, Penalty
from tercet.objectives.losses import Formula, Loss, as_loss
from tercet.objectives.tables import GROUPS, table_of
from tercet.records import Matrix, Tensor, Vector
from tercet.shards.layout import Block

KEPT = 8  # things made of recipes that a process remembers: what is of JAX is compiled when it is made
MADE: dict[str, Any] = {}
T = TypeVar("T")
NO_PENALTY = Penalty(0.0, 0.0, np.zeros(0))


class Sum(Protocol):
    """A sum over rows."""

    def of(self, point: LinearPoint) -> Any:
        """Over the rows of a block; what blocks give is added up."""
        ...


class Recipe(Protocol):
    """How the rows of a block become sums. It is sent to workers."""

    def sums(self, block: Block, x: Vector, sums: Sequence[Sum]) -> list[Any]:
        """Some sums at x over the rows of a block."""
        ...


@dataclass(frozen=True)
class Value:
    """sum w l."""

    def of(self, point: LinearPoint) -> float:
        """One number."""
        return sum(float(point.margins.coefficients(0, piece).sum()) for piece in point.view.table.pieces)


@dataclass(frozen=True)
class Gradient:
    """A'(w l')."""

    def of(self, point: LinearPoint) -> Vector:
        """One product with A'."""
        return point.view.table.weigh(partial(point.margins.coefficients, 1))


@dataclass(frozen=True)
class Hessian:
    """A' diag(w l'') A."""

    def of(self, point: LinearPoint) -> Matrix:
        """A Gram matrix."""
        return point.view.table.gram(partial(point.margins.coefficients, 2))


@dataclass(frozen=True, eq=False)
class Product:
    """A'(w l'' * Av), or A'(w l''' * Au * Av)."""

    order: int
    vectors: tuple[Vector, ...]

    def of(self, point: LinearPoint) -> Vector:
        """One product with A for each vector, and one with A'."""
        table = point.view.table

        def part(piece: slice) -> Vector:
            c = point.margins.coefficients(self.order, piece)
            for v in self.vectors:
                c = c * table.times(v, piece)
            return c

        return table.weigh(part)


@dataclass(frozen=True, eq=False)
class ThirdSquare:
    """A'(w l''' * (As)^2) over the rows that bend along s; the last entry is how many these are."""

    s: Vector

    def of(self, point: LinearPoint) -> Vector:
        """Like a product of third order."""
        table, bend = point.view.table, point.view.bend()
        bends, count = np.empty(point.terms), 0
        for piece in table.pieces:
            As, (second, third) = table.times(self.s, piece), point.margins.pair(piece)
            count += bend(As, second, third, STRAIGHT, bends[piece])
        return np.append(table.weigh(bends), float(count))


@dataclass(frozen=True, eq=False)
class ThirdTensor:
    """sum_i w_i l_i''' (AV)_i (x) (AV)_i (x) (AV)_i."""

    V: Matrix

    def of(self, point: LinearPoint) -> Tensor:
        """One product of A with V."""
        T = np.zeros((self.V.shape[1],) * 3)
        for piece, block in point.view.table.blocks():
            c, rows = point.margins.coefficients(3, piece), block @ self.V
            T += np.stack([rows.T @ ((c * a)[:, None] * rows) for a in rows.T])
        return T


@dataclass(frozen=True, eq=False)
class ThirdSpread:
    """A' diag(|w l'''| r_i) A with r_i = |a_i|, or |P a_i|: what bounds the third derivative (`linear.bounds`)."""

    P: Matrix | None

    def of(self, point: LinearPoint) -> Matrix:
        """A Gram matrix."""
        table = point.view.table
        return table.gram(lambda piece: np.abs(point.margins.coefficients(3, piece)) * table.lengths(piece, self.P))


@dataclass(frozen=True, eq=False)
class ThirdRowSums:
    """|A|'(|w l'''| |a_i| sum_j |a_ij|), row sums that bound the same over all directions without a Gram matrix."""

    def of(self, point: LinearPoint) -> Vector:
        """One product with |A|'."""
        table = point.view.table
        total = np.zeros(table.shape[1])
        for piece, block in table.blocks():
            entries, c = abs(block), np.abs(point.margins.coefficients(3, piece))
            total += entries.T @ (c * table.lengths(piece) * np.asarray(entries.sum(axis=1)).ravel())
        return total


@dataclass(frozen=True, eq=False)
class ThirdSpan:
    """V'A' diag(|w l'''| |V'a_i|) AV, where there are too many variables for a Gram matrix."""

    V: Matrix

    def of(self, point: LinearPoint) -> Matrix:
        """One product of A with V."""
        spread = np.zeros((self.V.shape[1], self.V.shape[1]))
        for piece, block in point.view.table.blocks():
            rows, c = block @ self.V, np.abs(point.margins.coefficients(3, piece))
            spread += rows.T @ ((c * np.linalg.norm(rows, axis=1))[:, None] * rows)
        return spread


@dataclass(frozen=True, eq=False)
class Limiting:
    """What limits of the third derivative over the columns of V, and of rounding, are made of (`linear.bounds`)."""

    V: Matrix
    top: float  # sup |l'''|

    def of(self, point: LinearPoint) -> Vector:
        """One product of A with V."""
        return limit_sums(point, self.V, self.top)


@dataclass(frozen=True)
class Squares:
    """sum c^2 |a_i|^2, or A' diag(c^2 |a_i|^(2 order - 2)) A, with c = w l^(order): for variances."""

    order: int

    def of(self, point: LinearPoint) -> Any:
        """A number for order 1, else a Gram matrix."""
        c, norms = point.margins.coefficients(self.order), point.view.table.lengths()
        if self.order == 1:
            return float(np.sum((c * norms) ** 2))
        return point.view.table.gram(c**2 * norms ** (2 * self.order - 2))


@dataclass(frozen=True)
class Scatter:
    """sum s_i s_i' over the gradients of the rows."""

    def of(self, point: LinearPoint) -> Matrix:
        """A Gram matrix."""
        c = point.margins.coefficients(1)
        return point.view.table.gram(c * c)


@dataclass(frozen=True)
class Groups:
    """Sums of gradients over 16 groups, to which the rows of each shard are dealt in turn, for their spread."""

    def of(self, point: LinearPoint) -> Matrix:
        """By the places in the block."""
        labels = (np.arange(point.terms) % GROUPS).astype(np.uint8)
        return cast(Any, replace)(point.view.table, labels=labels).group_sums(point.margins.each(1))


def dealt(block: Block, sums: Matrix) -> Matrix:
    """Sums by the places in a block as sums by the places in its shard."""
    whole = np.zeros((GROUPS, sums.shape[1]))
    whole[: len(sums)] = sums
    return np.roll(whole, block.start % GROUPS, axis=0)


@dataclass(frozen=True, eq=False)
class LinearRecipe:
    """How a block becomes rows of a linear model: by the loss as the user gave it, which a worker makes its own of."""

    loss: Any
    scale: float | None
    intercept: bool
    compiled: bool
    wide: bool
    factor: float = 1.0  # on the weights, so that their mean is one
    token: str = field(default_factory=lambda: uuid4().hex)

    def own_loss(self) -> Loss:
        """The loss of this process."""
        return remembered(self.token, lambda: as_loss(self.loss, self.scale))

    def table(self, X: Any) -> Any:
        """Rows, with a column of ones where there is an intercept."""
        return table_of(add_ones(X) if self.intercept else X)

    def view(self, block: Block) -> LinearView:
        """The rows of a block as those of a linear model."""
        loss, w = self.own_loss(), None if block.w is None else self.factor * block.w
        formula = Formula.of(loss, self.compiled)
        return LinearView(self.table(block.X), block.y, w, loss, formula, NO_PENALTY, self.compiled, self.wide)

    def sums(self, block: Block, x: Vector, sums: Sequence[Sum]) -> list[Any]:
        """Over the rows of a block."""
        point = LinearPoint(self.view(block), x)
        return [dealt(block, each.of(point)) if isinstance(each, Groups) else each.of(point) for each in sums]


def remembered(token: str, make: Callable[[], T]) -> T:
    """What this process made for a recipe, once."""
    made: T | None = MADE.get(token)
    if made is None:
        made = make()
        while len(MADE) >= KEPT:
            MADE.pop(next(iter(MADE)), None)
        MADE[token] = made
    return made


@dataclass(frozen=True, eq=False)
class Sweep:
    """Some sums at x over the blocks of one shard, each block read once."""

    name: str
    recipe: Recipe
    x: Vector
    sums: tuple[Sum, ...]

    def __call__(self, blocks: Iterator[Block]) -> list[Any]:
        """In the order of the blocks."""
        return add_up(self.recipe.sums(block, self.x, self.sums) for block in blocks)


def add_up(parts: Iterator[list[Any]]) -> list[Any]:
    """Sums of sums, one after the other: the order is part of the answer's last bits."""
    total = list(next(parts))
    for part in parts:
        for k, more in enumerate(part):
            total[k] = total[k] + more
    return total
