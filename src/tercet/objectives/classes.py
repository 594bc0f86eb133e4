"""Losses of K classes, with their first three derivatives in the margins z in R^K of a row.

With p = softmax(z) and a bar for a mean under p, p has the derivatives

    p_a = p (a - abar),   p_ab = p_b (a - abar) - p (p_b'a)          along a, and along a and b

elementwise in the classes. Arrays are K x n, a column for each row of the data, so that what is taken over the classes
is taken over whole rows of an array. A loss gives its derivatives from p, which serves for all of them.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, ClassVar, Protocol

import numpy as np
from numpy.typing import NDArray

from tercet.records import Matrix, Tensor, Vector

Labels = NDArray[np.intp]


@dataclass(frozen=True, eq=False)
class Shares:
    """p = softmax(z) of each row, and what the label y of the row makes of it."""

    p: Matrix
    surprise: Vector  # -log p_y

    @staticmethod
    def of(Z: Matrix, y: Labels) -> Shares:
        """log(1 + sum over the other classes of exp(z_k - z_y)) loses no digits where the label is right."""
        rows = np.arange(len(y))
        D = Z - Z[y, rows]
        top = D.max(axis=0)  # at least 0, the entry of y
        E = np.exp(np.subtract(D, top, out=D), out=D)
        own = E[y, rows]
        E[y, rows] = 0.0
        others = E.sum(axis=0)
        E[y, rows] = own
        total = others + own
        surprise = np.where(top > 0.0, top + np.log(total), np.log1p(others))
        return Shares(np.divide(E, total, out=E), surprise)


class ClassLoss(Protocol):
    """A loss of the margins of a row and the number of its class."""

    def value(self, shares: Shares, y: Labels) -> Vector:
        """l, one a row."""
        ...

    def gradient(self, p: Matrix, y: Labels) -> Matrix:
        """l', a vector a row."""
        ...

    def product(self, p: Matrix, y: Labels, a: Matrix) -> Matrix:
        """l''[a]."""
        ...

    def third(self, p: Matrix, y: Labels, a: Matrix, b: Matrix) -> Matrix:
        """l'''[a, b]."""
        ...

    def curvature(self, p: Matrix, y: Labels) -> Tensor:
        """l'', a symmetric K x K matrix a row, as an n x K x K array."""
        ...

    def typical(self, p: Matrix, w: Vector) -> Matrix:
        """sum_i w_i l_i'' with p for the law of the labels: what it is in the mean where the model is right."""
        ...


def softmax(Z: Matrix) -> Matrix:
    """exp(z_k) / sum_j exp(z_j)."""
    E = np.exp(Z - Z.max(axis=0))
    return E / E.sum(axis=0)


def dot(a: Matrix, b: Matrix) -> Vector:
    """a'b of each row."""
    return np.einsum("kn,kn->n", a, b)


def along(p: Matrix, a: Matrix) -> Matrix:
    """p_a = p (a - abar)."""
    c = a - dot(p, a)
    return np.multiply(p, c, out=c)


def along_both(p: Matrix, a: Matrix, p_b: Matrix) -> Matrix:
    """p_ab = p_b (a - abar) - p (p_b'a)."""
    return p_b * (a - dot(p, a)) - p * dot(p_b, a)


def minus_label(p: Matrix, y: Labels) -> Matrix:
    """p - e_y; the entry of y is minus the sum of the others, not 1 - p_y, which loses digits in the tail."""
    r = p.copy()
    rows = np.arange(len(y))
    r[y, rows] = 0.0
    r[y, rows] = -r.sum(axis=0)
    return r


@dataclass(frozen=True)
class SoftmaxLoss:
    """Multinomial logistic regression: l = log sum_k exp(z_k) - z_y. Convex."""

    def value(self, shares: Shares, y: Labels) -> Vector:
        """-log p_y."""
        return shares.surprise

    def gradient(self, p: Matrix, y: Labels) -> Matrix:
        """p - e_y."""
        return minus_label(p, y)

    def product(self, p: Matrix, y: Labels, a: Matrix) -> Matrix:
        """p_a."""
        return along(p, a)

    def third(self, p: Matrix, y: Labels, a: Matrix, b: Matrix) -> Matrix:
        """p_ab."""
        return along_both(p, a, along(p, b))

    def curvature(self, p: Matrix, y: Labels) -> Tensor:
        """diag p - p p'."""
        P = p.T
        H = -P[:, :, None] * P[:, None, :]
        k = np.arange(len(p))
        H[:, k, k] += P
        return H

    def typical(self, p: Matrix, w: Vector) -> Matrix:
        """The sum of diag p - p p', whatever the labels are."""
        return np.diag(p @ w) - (p * w) @ p.T


@dataclass(frozen=True)
class Brier:
    """The robust counterpart: l = 1/2 |p - e_y|^2, Brier's score. Bounded by 1 and non-convex: a label that is wrong
    by far counts no more. For two classes it is twice the loss of `sigmoid_squares`."""

    convex: ClassVar[bool] = False

    def value(self, shares: Shares, y: Labels) -> Vector:
        """1/2 |r|^2 with r = p - e_y."""
        r = minus_label(shares.p, y)
        return 0.5 * dot(r, r)

    def gradient(self, p: Matrix, y: Labels) -> Matrix:
        """p (r - rbar)."""
        return along(p, minus_label(p, y))

    def product(self, p: Matrix, y: Labels, a: Matrix) -> Matrix:
        """p_a (r - rbar) + p (p_a - rbar_a) with rbar_a = (r + p)'p_a."""
        r, p_a = minus_label(p, y), along(p, a)
        return p_a * (r - dot(p, r)) + p * (p_a - dot(r + p, p_a))

    def third(self, p: Matrix, y: Labels, a: Matrix, b: Matrix) -> Matrix:
        """p_ab (r - rbar) + p_a (p_b - rbar_b) + p_b (p_a - rbar_a) + p (p_ab - rbar_ab),
        with rbar_ab = (r + p)'p_ab + 2 p_a'p_b."""
        r, p_a, p_b = minus_label(p, y), along(p, a), along(p, b)
        p_ab, s = along_both(p, a, p_b), r + p
        twice = p_a * (p_b - dot(s, p_b)) + p_b * (p_a - dot(s, p_a))
        return p_ab * (r - dot(p, r)) + twice + p * (p_ab - dot(s, p_ab) - 2.0 * dot(p_a, p_b))

    def curvature(self, p: Matrix, y: Labels) -> Tensor:
        """From its products with the K unit vectors."""
        columns = [self.product(p, y, np.broadcast_to(e[:, None], p.shape)).T for e in np.eye(len(p))]
        H = np.stack(columns, axis=2)
        return 0.5 * (H + H.transpose(0, 2, 1))

    def typical(self, p: Matrix, w: Vector) -> Matrix:
        """The sum of (diag p - p p')^2: r is 0 in the mean, and what is left is the square of its derivative."""
        q, wp = p * p, w * p
        return np.diag(q @ w) - (w * q) @ p.T - wp @ q.T + (wp * q.sum(axis=0)) @ p.T


CLASS_LOSSES: dict[str, Callable[[], Any]] = {"softmax": SoftmaxLoss, "brier": Brier}
