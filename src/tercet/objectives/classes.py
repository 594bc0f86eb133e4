"""Losses of K classes, with their first three derivatives in the margins z in R^K of a row.

With p = softmax(z) and a bar for a mean under p, p has the derivatives

    p_a = p (a - abar),   p_ab = p_b (a - abar) - p (p_b'a)          along a, and along a and b

elementwise in the classes. Arrays are n x K: one row for each row of the data. A loss gives its derivatives from p,
which serves for all of them.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, ClassVar, Protocol

import numpy as np
from numpy.typing import NDArray

from tercet.records import Matrix, Tensor, Vector

Labels = NDArray[np.intp]


class ClassLoss(Protocol):
    """A loss of the margins of a row and the number of its class."""

    def value(self, Z: Matrix, y: Labels) -> Vector:
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
        """l'', a symmetric K x K matrix a row."""
        ...


def softmax(Z: Matrix) -> Matrix:
    """exp(z_k) / sum_j exp(z_j)."""
    E = np.exp(Z - Z.max(axis=1, keepdims=True))
    return E / E.sum(axis=1, keepdims=True)


def dot(a: Matrix, b: Matrix) -> Matrix:
    """a'b of each row, as a column."""
    return np.einsum("nk,nk->n", a, b)[:, None]


def along(p: Matrix, a: Matrix) -> Matrix:
    """p_a = p (a - abar)."""
    return p * (a - dot(p, a))


def along_both(p: Matrix, a: Matrix, p_b: Matrix) -> Matrix:
    """p_ab = p_b (a - abar) - p (p_b'a)."""
    return p_b * (a - dot(p, a)) - p * dot(p_b, a)


def minus_label(p: Matrix, y: Labels) -> Matrix:
    """p - e_y; the entry of y is minus the sum of the others, not 1 - p_y, which loses digits in the tail."""
    r = p.copy()
    rows = np.arange(len(y))
    r[rows, y] = 0.0
    r[rows, y] = -r.sum(axis=1)
    return r


@dataclass(frozen=True)
class SoftmaxLoss:
    """Multinomial logistic regression: l = log sum_k exp(z_k) - z_y. Convex."""

    def value(self, Z: Matrix, y: Labels) -> Vector:
        """log(1 + sum over the other classes of exp(z_k - z_y)), which loses no digits where the label is right."""
        D = Z - Z[np.arange(len(y)), y][:, None]
        top = np.maximum(D.max(axis=1), 0.0)
        E = np.exp(D - top[:, None])
        E[np.arange(len(y)), y] = 0.0
        return np.where(top > 0.0, top + np.log(E.sum(axis=1) + np.exp(-top)), np.log1p(E.sum(axis=1)))

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
        H = -p[:, :, None] * p[:, None, :]
        k = np.arange(p.shape[1])
        H[:, k, k] += p
        return H


@dataclass(frozen=True)
class Brier:
    """The robust counterpart: l = 1/2 |p - e_y|^2, Brier's score. Bounded by 1 and non-convex: a label that is wrong
    by far counts no more. For two classes it is twice the loss of `sigmoid_squares`."""

    convex: ClassVar[bool] = False

    def value(self, Z: Matrix, y: Labels) -> Vector:
        """1/2 |r|^2 with r = p - e_y."""
        r = minus_label(softmax(Z), y)
        return 0.5 * dot(r, r)[:, 0]

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
        columns = [self.product(p, y, np.broadcast_to(e, p.shape)) for e in np.eye(p.shape[1])]
        H = np.stack(columns, axis=2)
        return 0.5 * (H + H.transpose(0, 2, 1))


CLASS_LOSSES: dict[str, Callable[[], Any]] = {"softmax": SoftmaxLoss, "brier": Brier}
