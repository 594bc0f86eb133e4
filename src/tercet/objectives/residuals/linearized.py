"""The residuals at a point as straight lines, and what a Gauss-Newton step needs of them."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from tercet.objectives.residuals.outer import Outer
from tercet.records import Matrix, Rows, Vector


@dataclass(frozen=True, eq=False)
class Linearized:
    """A root of the Gauss-Newton matrix: root'root = (1/m) J' diag(w h) J, and root'image = grad f.

    At most d + 1 rows: J is reduced by QR, so that no digit is lost to a matrix that is squared.
    """

    root: Matrix
    image: Vector

    def scaled(self, E: Vector) -> Linearized:
        """In coordinates c with s = E c."""
        return Linearized(self.root * E, self.image)

    def over(self, some: Rows) -> Linearized:
        """Over some of the variables."""
        return Linearized(self.root[:, some], self.image)

    @property
    def bend(self) -> Vector:
        """The diagonal of root'root: how strongly f bends along each variable, by this model."""
        return np.einsum("ij,ij->j", self.root, self.root)


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
    slope, h = loss.weights(r)
    scale = np.sqrt(w * h / terms)
    image = np.sqrt(w / (terms * h)) * slope
    return np.concatenate([scale[:, None] * J, image[:, None]], axis=1)


def reduced(rows: Matrix) -> Matrix:
    """The triangle of a QR factorization, where that has fewer rows."""
    if rows.shape[0] <= rows.shape[1]:
        return rows
    triangle: Matrix = np.asarray(np.linalg.qr(rows, mode="r"))
    return triangle


def linearized(rows: Matrix) -> Linearized:
    """From [root | image]."""
    triangle = reduced(rows)
    return Linearized(triangle[:, :-1], triangle[:, -1])
