"""The variables that are free between bounds: g, B and T over some x_j in the coordinates of a frame, the others held.

g_F'c,   c'B_FF c,   T_FFF[c, c, c]
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from tercet.frame import Frame
from tercet.once import once
from tercet.records import Matrix, Rows, Tensor, Vector

Indices = Rows
SNAP = 4 * float(np.finfo(float).eps)  # times the size of x_j: nearer to a bound it is on it


@dataclass(frozen=True, eq=False)
class Face:
    """Some of the variables in the coordinates of another frame, within bounds; the others are held at x."""

    inner: Frame  # of all variables
    free: Indices  # the j of those that move
    x: Vector
    low: Vector  # bounds of all variables
    high: Vector

    def lift(self, c: Vector) -> Vector:
        """The step of the free variables; the others stay."""
        return self.inner.lift(embed(c, self.free, len(self.x)))

    def coordinates(self, s: Vector) -> Vector:
        """Those of the free variables."""
        return self.inner.coordinates(s)[self.free]

    def slope(self, g: Vector) -> Vector:
        """That of the free variables."""
        return self.inner.slope(g)[..., self.free]

    def point(self, point: Any) -> FacePoint:
        """The point over the free variables."""
        return FacePoint(self.inner.point(point), self.free, len(self.x))

    def move(self, x: Vector, c: Vector) -> Vector:
        """x + s within the bounds; what comes to one but for rounding is on it."""
        there = x + self.lift(c)
        with np.errstate(invalid="ignore"):
            close = SNAP * np.maximum(np.abs(x), np.abs(there))
            there = np.where(there - self.low <= close, self.low, there)
            return np.where(self.high - there <= close, self.high, there)

    def left(self, x: Vector, slope: Vector) -> Vector:
        """But for what leads across a bound that x is on."""
        x, low, high = x[self.free], self.low[self.free], self.high[self.free]
        return np.where(((x <= low) & (slope > 0.0)) | ((x >= high) & (slope < 0.0)), 0.0, slope)

    @once
    def walls(self) -> tuple[Vector, Vector]:
        """From x to the bounds of the free variables."""
        whole = self.inner.coordinates
        return whole(self.low - self.x)[self.free], whole(self.high - self.x)[self.free]

    @property
    def whole(self) -> Face:
        """All variables."""
        return Face(self.inner, np.arange(len(self.x)), self.x, self.low, self.high)


@dataclass(frozen=True, eq=False)
class FacePoint:
    """The derivatives of a point over some of its d variables."""

    point: Any
    free: Indices
    d: int

    def whole(self, v: Matrix) -> Matrix:
        """A vector, or columns, of all variables."""
        return embed(v, self.free, self.d)

    @once
    def formed(self) -> Matrix:
        """Rows and columns of B."""
        return self.point.hessian()[np.ix_(self.free, self.free)]

    def hessian(self) -> Matrix:
        """The same."""
        return self.formed

    @property
    def residuals(self) -> FaceResiduals:
        """Those of the point, where it has them."""
        return FaceResiduals(self.point.residuals, self.free, self.d)

    def hessian_product(self, v: Vector) -> Vector:
        """Bv."""
        return self.point.hessian_product(self.whole(v))[self.free]

    def third_product(self, u: Vector, v: Vector) -> Vector:
        """T[u, v]."""
        return self.point.third_product(self.whole(u), self.whole(v))[self.free]

    def third_square(self, c: Vector) -> Vector:
        """T[c, c]."""
        return self.point.third_square(self.whole(c))[self.free]

    def third_tensor(self, V: Matrix) -> Tensor:
        """T over the columns of V."""
        return self.point.third_tensor(self.whole(V))

    def third_bound(self, V: Matrix | None, tight: bool = False) -> float:
        """A bound on |T[y]^3| over the span of V."""
        return self.point.third_bound(None if V is None else self.whole(V), tight)


@dataclass(frozen=True, eq=False)
class FaceResiduals:
    """What a point knows of its residuals, over some of its d variables."""

    residuals: Any
    free: Indices
    d: int

    def linear(self) -> Any:
        """Their root over these variables."""
        return self.residuals.linear().over(self.free)

    def curve(self, c: Vector) -> Any:
        """Their second derivative along c."""
        return self.residuals.curve(embed(c, self.free, self.d)).over(self.free)

    def rest(self) -> Matrix:
        """What B has beyond root'root."""
        return self.residuals.rest()[np.ix_(self.free, self.free)]


def embed(v: Matrix, some: Indices, d: int) -> Matrix:
    """A vector, or columns, of d variables that is v over some of them and 0 over the others."""
    out = np.zeros((d, *v.shape[1:]))
    out[some] = v
    return out
