"""The residuals at a point as straight lines, and what a Gauss-Newton step needs of them."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from tercet.objectives.residuals.outer import Outer
from tercet.once import once
from tercet.records import Matrix, Rows, Vector

EPS = float(np.finfo(float).eps)


@dataclass(frozen=True, eq=False)
class Linearized:
    """A root of the Gauss-Newton matrix: root'root = (1/m) J' diag(w h) J, and root'image = grad f.

    `rows` are [root | image], one for each residual. By QR they become at most d + 1, so that no digit is lost to a
    matrix that is squared; `gram` is that matrix, for a fraction of the time. Each is made when it is asked for.
    """

    rows: Matrix

    @once
    def triangle(self) -> Matrix:
        """The rows reduced."""
        return reduced(self.rows)

    def over(self, some: Rows) -> Linearized:
        """Over some of the variables."""
        return Linearized(np.column_stack([self.rows[:, :-1][:, some], self.rows[:, -1]]))

    @property
    def root(self) -> Matrix:
        """As few rows as there can be."""
        return self.triangle[:, :-1]

    @property
    def image(self) -> Vector:
        """What goes with them."""
        return self.triangle[:, -1]

    @once
    def gram(self) -> Matrix:
        """root'root."""
        A = self.rows[:, :-1]
        return A.T @ A

    def along(self, v: Vector) -> float:
        """|root v|^2."""
        image = self.rows[:, :-1] @ v
        return float(image @ image)

    @once
    def bend(self) -> Vector:
        """The diagonal of root'root: how strongly f bends along each variable, by this model."""
        A = self.rows[:, :-1]
        return np.einsum("ij,ij->j", A, A)

    def rounding(self, x: Vector) -> float:
        """What the rounding of f is at least: a residual is good to that of the terms J_ij x_j it is made of."""
        made = np.einsum("ij,j->i", self.rows[:, :-1] ** 2, x * x)
        return EPS * float(np.sqrt(self.rows[:, -1] ** 2 @ made))

    def scaled(self, E: Vector) -> Scaled:
        """In coordinates c with s = E c."""
        return Scaled(self, E)


@dataclass(frozen=True, eq=False)
class Scaled:
    """The same in other units; what was factored is shared."""

    own: Linearized
    E: Vector

    def over(self, some: Rows) -> Scaled:
        """Over some of the variables."""
        return Scaled(self.own.over(some), self.E[some])

    @property
    def rows(self) -> Matrix:
        """Those of the other, for their number."""
        return self.own.rows

    @property
    def root(self) -> Matrix:
        """root E."""
        return self.own.root * self.E

    @property
    def image(self) -> Vector:
        """It has no units of x."""
        return self.own.image

    def along(self, v: Vector) -> float:
        """|root E v|^2."""
        return self.own.along(self.E * v)

    @property
    def gram(self) -> Matrix:
        """E root'root E."""
        return self.own.gram * self.E * self.E[:, None]


@dataclass(frozen=True, eq=False)
class Curve:
    """The second derivative b = r''[s, s] of the residuals along a step, in the weights of a Gauss-Newton matrix."""

    slope: Vector  # root'b
    image: float  # b'image
    square: float  # b'b

    def scaled(self, E: Vector) -> Curve:
        """In coordinates c with s = E c."""
        return Curve(self.slope * E, self.image, self.square)

    def over(self, some: Rows) -> Curve:
        """Over some of the variables."""
        return Curve(self.slope[some], self.image, self.square)


def rows_of(r: Vector, J: Matrix, w: Vector, loss: Outer, terms: int) -> Matrix:
    """[root | image] of some residuals, one row for each; `w` are weights with mean one over all terms."""
    scale, image = shares(r, w, loss, terms)
    rows = np.empty((len(r), J.shape[1] + 1))
    np.multiply(scale[:, None], J, out=rows[:, :-1])
    rows[:, -1] = image
    return rows


def shares(r: Vector, w: Vector, loss: Outer, terms: int) -> tuple[Vector, Vector]:
    """What multiplies each row of the Jacobian in the root, and the image."""
    slope, h = loss.weights(r)
    return np.sqrt(w * h / terms), np.sqrt(w / (terms * h)) * slope


def reduced(rows: Matrix) -> Matrix:
    """The triangle of a QR factorization, where that has fewer rows."""
    if rows.shape[0] <= rows.shape[1]:
        return rows
    triangle: Matrix = np.asarray(np.linalg.qr(rows, mode="r"))
    return triangle
