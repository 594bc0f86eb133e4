"""f over x + span(V), for few directions V: a linear model again, with the rows AV.

    f(x + V'a) has the margins Ax + (AV)'a, and B over V is AV diag(w l'') (AV)'/m + V diag(p'') V'

What A makes of x and of the last steps is known: it is the margins, and how these changed. So a linear model with too
many variables for a d x d Hessian looks at f over its gradient, x and the last steps at the price of one product with
A, as often as it likes.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import TYPE_CHECKING, Any
from weakref import ReferenceType, ref

import numpy as np

from tercet.records import Matrix, Vector
from tercet.vectors import combine, fits, largest

if TYPE_CHECKING:
    from tercet.objectives.counting import CountedPoint
    from tercet.objectives.linear import LinearPoint, LinearView, Penalty

STEPS = 3  # that are remembered
FRESH = 10  # after this many steps the margins are computed anew, so that rounding does not add up
FAR = 100.0  # or when they moved by this many times what they are: they carry the rounding of where they were
ORDERS = ("value", "gradient", "hessian")
PARALLEL = 1e-10  # directions whose angle is below the root of this are one


@dataclass(frozen=True, eq=False)
class Path:
    """How a point was reached: the last steps with what A makes of them, and the margins that these add up to."""

    view: ReferenceType[LinearView]  # whose rows A has; a sample that is left is not kept
    steps: tuple[Vector, ...] = ()
    images: tuple[Vector, ...] = ()
    margins: Vector | None = None  # None: to be computed
    age: int = 0  # steps since they were
    moved: float = 0.0  # by how much these changed them

    def onward(self, s: Vector, As: Vector, margins: Vector) -> Path:
        """After a step s from these margins."""
        steps, images, there = (*self.steps, s)[-STEPS:], (*self.images, As)[-STEPS:], margins + As
        moved = self.moved + largest(As)
        if moved > FAR * largest(there):
            return Path(self.view, steps, images)
        return Path(self.view, steps, images, there, self.age + 1, moved)

    def again(self) -> Path:
        """The same steps, with margins to be computed."""
        return Path(self.view, self.steps, self.images)

    def memento(self) -> dict[str, Any]:
        """As arrays."""
        steps = {"steps": np.array(self.steps), "images": np.array(self.images), "age": self.age, "moved": self.moved}
        return steps if self.margins is None else {**steps, "margins": self.margins}

    @staticmethod
    def of(view: LinearView, memento: dict[str, Any]) -> Path:
        """From arrays."""
        steps, images = tuple(memento["steps"]), tuple(memento["images"])
        return Path(ref(view), steps, images, memento.get("margins"), int(memento["age"]), float(memento["moved"]))


@dataclass(eq=False)
class Span:
    """f over x + span(V) in orthonormal coordinates c: s = V'Wc, where W'VV'W = I."""

    counted: CountedPoint  # at x
    p: Vector
    Ap: Vector

    @property
    def point(self) -> LinearPoint:
        """The linear model at x."""
        return self.counted.point

    @cached_property
    def path(self) -> Path:
        """The path to x; its margins are computed anew where many steps added up to them."""
        point, path = self.point, self.point.path or Path(ref(self.point.view))
        if path.age >= FRESH:
            return replace(path, margins=point.times(), age=0, moved=0.0)
        return replace(path, margins=point.margins)

    @cached_property
    def directions(self) -> tuple[Sequence[Vector], Sequence[Vector]]:
        """p, x and the last steps, and what A makes of them."""
        path = self.path
        assert path.margins is not None
        V, AV = (self.p, self.point.x, *path.steps), (self.Ap, path.margins, *path.images)
        kept = [k for k, v in enumerate(V) if fits(v)]
        return [V[k] for k in kept], [AV[k] for k in kept]

    @cached_property
    def gram(self) -> Matrix:
        """VV'."""
        V = self.directions[0]
        G = np.empty((len(V), len(V)))
        for i, u in enumerate(V):
            for j in range(i + 1):
                G[i, j] = G[j, i] = u.dot(V[j])
        return G

    @cached_property
    def W(self) -> Matrix:
        """The change of coordinates; directions that others nearly span are left out."""
        sizes = np.sqrt(np.diag(self.gram))
        values, vectors = np.linalg.eigh(self.gram / np.outer(sizes, sizes))
        used = values > PARALLEL * values[-1]
        return vectors[:, used] / (sizes[:, None] * np.sqrt(values[used]))

    @cached_property
    def x(self) -> Vector:
        """The coordinates of x."""
        return self.project(self.point.x)

    @cached_property
    def blocks(self) -> list[tuple[slice, Matrix]]:
        """AV, few of its columns at a time."""
        images = self.directions[1]
        return [(piece, np.stack([image[piece] for image in images])) for piece in self.point.view.table.pieces]

    def lift(self, c: Vector) -> Vector:
        """V'Wc."""
        return combine(self.W @ c, self.directions[0])

    def project(self, v: Vector) -> Vector:
        """W'Vv."""
        return self.W.T @ np.array([u.dot(v) for u in self.directions[0]])

    def at(self, c: Vector | None = None) -> SpanPoint:
        """f at these coordinates, by default at x."""
        if c is None:
            return SpanPoint(self, np.zeros(self.W.shape[1]), np.zeros_like(self.p), self.counted)
        a, margins = self.W @ c, self.path.margins
        assert margins is not None
        s = combine(a, self.directions[0])
        path = self.path.onward(s, combine(a, self.directions[1]), margins)
        return SpanPoint(self, c, s, self.counted.beside(self.point.view.at(self.point.x + s, path)))


@dataclass(eq=False)
class SpanPoint:
    """f at x + s, where s = V'Wc, and its derivatives over the span. Each counts like those of all variables."""

    span: Span
    c: Vector
    s: Vector
    counted: CountedPoint  # at x + s

    @property
    def point(self) -> LinearPoint:
        """The linear model at x + s."""
        return self.counted.point

    def loss(self, name: str, times: Callable[[Matrix, Vector], Any]) -> Any:
        """W' sum times(AV, w l^(order)) / m over the pieces of the rows."""
        order = ORDERS.index(name)

        def work() -> Any:
            total = sum(times(rows, self.point.coefficients(order, piece)) for piece, rows in self.span.blocks)
            return self.span.W.T @ (total / self.point.terms)

        return self.counted.pay(name, self.point.terms, work)

    @property
    def penalty(self) -> Penalty:
        """The penalty that every term shares; l2/2 |x|^2 looks the same in the coordinates."""
        return self.point.view.penalty

    def value(self) -> float:
        """f(x + s)."""
        return self.counted.value()

    def gradient(self) -> Vector:
        """Its gradient over the span."""
        return self._gradient

    def hessian(self) -> Matrix:
        """B over the span."""
        return self._hessian

    @cached_property
    def _gradient(self) -> Vector:
        if self.counted is self.span.counted:
            return self.span.project(self.counted.gradient())
        loss = self.loss("gradient", lambda rows, part: rows @ part)
        if self.penalty.is_plain:
            return loss + self.penalty.l2 * (self.span.x + self.c)
        return loss + self.span.project(self.penalty.gradient(self.point.x))

    @cached_property
    def _hessian(self) -> Matrix:
        V, W = self.span.directions[0], self.span.W
        loss = self.loss("hessian", lambda rows, part: (rows * part) @ rows.T) @ W
        if self.penalty.is_plain:
            return loss + self.penalty.l2 * np.eye(len(loss))
        curvature = self.penalty.curvature(self.point.x)
        return loss + W.T @ np.array([[(curvature * u).dot(v) for v in V] for u in V]) @ W
