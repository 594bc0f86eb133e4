"""f over x + span(V), for few directions V: a linear model again, with the rows AV.

    f(x + V'a) has the margins Ax + (AV)'a, and B over V is AV diag(w l'') (AV)'/m + V diag(p'') V'

What A makes of x and of the last steps is known: it is the margins, and how these changed. So a linear model with too
many variables for a d x d Hessian looks at f over its gradient, x and the last steps at the price of one product with
A, as often as it likes.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from tercet.objectives.metered import Carry, MeteredPoint, engine_of
from tercet.once import once
from tercet.records import ORDERS, Matrix, Rows, Vector
from tercet.vectors import combine, fits, largest

if TYPE_CHECKING:
    from tercet.objectives.linear.point import LinearPoint, Penalty

STEPS = 3  # that are remembered
FRESH = 10  # after this many steps the margins are computed anew, so that rounding does not add up
FAR = 100.0  # or when they moved by this many times what they are: they carry the rounding of where they were
PARALLEL = 1e-10  # directions whose angle is below the root of this are one


def same_rows(a: Rows | None, b: Rows | None) -> bool:
    """Whether two ascending lists of rows are the same; None stands for all."""
    return a is b or (a is not None and b is not None and np.array_equal(a, b))


@dataclass(frozen=True, eq=False)
class Path:
    """How a point was reached: the last steps with what A makes of them, and the margins that these add up to."""

    rows: Rows | None  # of which A has these images; None: all
    steps: tuple[Vector, ...] = ()
    images: tuple[Vector, ...] = ()
    margins: Vector | None = None  # None: to be computed
    age: int = 0  # steps since they were
    moved: float = 0.0  # by how much these changed them

    def onward(self, s: Vector, As: Vector) -> Path:
        """After a step s, which is remembered."""
        return self.ahead(As, largest(As), (*self.steps, s)[-STEPS:], (*self.images, As)[-STEPS:])

    def ahead(self, As: Vector, size: float, steps: tuple[Vector, ...] = (), images: tuple[Vector, ...] = ()) -> Path:
        """After a step that changes the margins by As, by at most `size`; they are computed anew where that is far."""
        assert self.margins is not None
        there, moved = self.margins + As, self.moved + size
        if moved > FAR * largest(there):
            return Path(self.rows, steps, images)
        return Path(self.rows, steps, images, there, self.age + 1, moved)

    def exact(self) -> Path:
        """The same steps, with margins to be computed."""
        return Path(self.rows, self.steps, self.images)

    def arrays(self) -> dict[str, Any]:
        """As arrays."""
        steps = {"steps": np.array(self.steps), "images": np.array(self.images), "age": self.age, "moved": self.moved}
        return steps if self.margins is None else {**steps, "margins": self.margins}

    @staticmethod
    def of(rows: Rows | None, arrays: dict[str, Any], shape: tuple[int, int]) -> Path:
        """From arrays, over a table of this shape; ValueError where they cannot be those of a path."""
        steps, images, margins = arrays["steps"], arrays["images"], arrays.get("margins")
        k, (m, d) = len(steps), shape
        if k > STEPS or (k and (steps.shape != (k, d) or images.shape != (k, m))) or len(images) != k:
            raise ValueError(f"steps of shape {steps.shape} with images of shape {images.shape}")
        if margins is not None and margins.shape != (m,):
            raise ValueError(f"margins of shape {margins.shape} for {m} rows")
        if not all(np.isfinite(part).all() for part in (steps, images, 0.0 if margins is None else margins)):
            raise ValueError("steps or margins that are not finite")
        age, moved = int(arrays["age"]), float(arrays["moved"])
        if not (age >= 0 and 0 <= moved < np.inf):
            raise ValueError(f"steps of age {age} that moved the margins by {moved}")
        return Path(rows, tuple(steps), tuple(images), margins, age, moved)


@dataclass(frozen=True, eq=False)
class Ahead:
    """The margins along a step, z + t As."""

    path: Path  # to x, with its margins
    As: Vector

    @once
    def size(self) -> float:
        """The largest change of a margin along the whole step."""
        return largest(self.As)

    def at(self, t: float) -> Path:
        """To x + ts."""
        return self.path.ahead(self.As if t == 1.0 else t * self.As, abs(t) * self.size)


@dataclass(frozen=True, eq=False)
class SpanImages:
    """What A makes of directions at a point of a linear model; asked and counted through the metered point."""

    metered: MeteredPoint

    def along(self, v: Vector) -> Vector:
        """Av, which is no evaluation of a term."""
        return self.metered.ask("value", lambda point: point.view.table.times(v), price=0)

    def curvature(self, v: Vector, Av: Vector) -> float:
        """v'Bv from Av: no product."""

        def work(point: LinearPoint) -> float:
            parts = (float(point.margins.coefficients(2, p) @ Av[p] ** 2) for p in point.view.table.pieces)
            return sum(parts) / point.terms + float(point.view.penalty.product(point.x, v) @ v)

        return self.metered.ask("hessian", work)

    def product(self, v: Vector, Av: Vector) -> Vector:
        """Bv from Av: the second half of the product; it was counted with v'Bv."""

        def work(point: LinearPoint) -> Vector:
            loss = point.view.table.weigh(lambda p: point.margins.coefficients(2, p) * Av[p]) / point.terms
            return loss + point.view.penalty.product(point.x, v)

        return self.metered.ask("hessian", work, price=0)

    def span(self, p: Vector, Ap: Vector) -> Span:
        """f over x + span{p, x, the last steps}."""
        return Span(self.metered, p, Ap)


@dataclass(eq=False)
class Span:
    """f over x + span(V) in orthonormal coordinates c: s = V'Wc, where W'VV'W = I."""

    metered: MeteredPoint  # at x
    p: Vector
    Ap: Vector

    @property
    def point(self) -> LinearPoint:
        """The linear model at x."""
        return engine_of(self.metered)

    @once
    def path(self) -> Path:
        """The path to x, with its margins."""
        return self.point.standing()

    @once
    def directions(self) -> tuple[Sequence[Vector], Sequence[Vector]]:
        """p, x and the last steps, and what A makes of them."""
        path = self.path
        assert path.margins is not None
        V, AV = (self.p, self.point.x, *path.steps), (self.Ap, path.margins, *path.images)
        kept = [k for k, v in enumerate(V) if fits(v)]
        return [V[k] for k in kept], [AV[k] for k in kept]

    @once
    def gram(self) -> Matrix:
        """VV'."""
        V = self.directions[0]
        G = np.empty((len(V), len(V)))
        for i, u in enumerate(V):
            for j in range(i + 1):
                G[i, j] = G[j, i] = u.dot(V[j])
        return G

    @once
    def W(self) -> Matrix:
        """The change of coordinates; directions that others nearly span are left out."""
        sizes = np.sqrt(np.diag(self.gram))
        values, vectors = np.linalg.eigh(self.gram / np.outer(sizes, sizes))
        used = values > PARALLEL * values[-1]
        return vectors[:, used] / (sizes[:, None] * np.sqrt(values[used]))

    @once
    def x(self) -> Vector:
        """The coordinates of x."""
        return self.project(self.point.x)

    @once
    def blocks(self) -> list[tuple[slice, Matrix]]:
        """AV, few of its columns at a time."""
        images = self.directions[1]
        view = self.point.view
        return [(piece, view.stack([image[piece] for image in images])) for piece in view.table.pieces]

    def lift(self, c: Vector) -> Vector:
        """V'Wc."""
        return combine(self.W @ c, self.directions[0])

    def project(self, v: Vector) -> Vector:
        """W'Vv."""
        return self.W.T @ np.array([u.dot(v) for u in self.directions[0]])

    def at(self, c: Vector | None = None) -> SpanPoint:
        """f at these coordinates, by default at x."""
        if c is None:
            return SpanPoint(self, np.zeros(self.W.shape[1]), np.zeros_like(self.p), self.metered)
        a = self.W @ c
        s = combine(a, self.directions[0])
        path = self.path.onward(s, combine(a, self.directions[1]))
        return SpanPoint(self, c, s, self.metered.view.at(self.point.x + s, Carry(None, path)))


@dataclass(eq=False)
class SpanPoint:
    """f at x + s, where s = V'Wc, and its derivatives over the span. Each counts like those of all variables."""

    span: Span
    c: Vector
    s: Vector
    metered: MeteredPoint  # at x + s

    @property
    def point(self) -> LinearPoint:
        """The linear model at x + s."""
        return engine_of(self.metered)

    def loss(self, name: str, times: Callable[[Matrix, Vector], Any]) -> Any:
        """W' sum times(AV, w l^(order)) / m over the pieces of the rows."""
        order = ORDERS.index(name)

        def work(point: LinearPoint) -> Any:
            total = sum(times(rows, point.margins.coefficients(order, piece)) for piece, rows in self.span.blocks)
            return self.span.W.T @ (point.view.host(total) / point.terms)

        return self.metered.ask(name, work)

    @property
    def penalty(self) -> Penalty:
        """The penalty that every term shares; l2/2 |x|^2 looks the same in the coordinates."""
        return self.point.view.penalty

    def value(self) -> float:
        """f(x + s)."""
        return self.metered.value()

    def gradient(self) -> Vector:
        """Its gradient over the span."""
        return self._gradient

    def hessian(self) -> Matrix:
        """B over the span."""
        return self._hessian

    @once
    def _gradient(self) -> Vector:
        if self.metered is self.span.metered:
            return self.span.project(self.metered.gradient())
        loss = self.loss("gradient", lambda rows, part: rows @ part)
        if self.penalty.is_plain:
            return loss + self.penalty.l2 * (self.span.x + self.c)
        return loss + self.span.project(self.penalty.gradient(self.point.x))

    @once
    def _hessian(self) -> Matrix:
        V, W = self.span.directions[0], self.span.W
        loss = self.loss("hessian", lambda rows, part: (rows * part) @ rows.T) @ W
        if self.penalty.is_plain:
            return loss + self.penalty.l2 * np.eye(len(loss))
        curvature = self.penalty.curvature(self.point.x)
        return loss + W.T @ np.array([[(curvature * u).dot(v) for v in V] for u in V]) @ W
