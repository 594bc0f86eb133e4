"""A bound on |x - x*| that is proved, by Newton and Kantorovich, where the objective tells of its third derivative.

With R'BR = I, B the Hessian at x as it was computed, let

    |R'g| + |R'dg| <= eta,   |I - R' hess f(x) R| <= tau,   |third f(y)[Ru, Rv, Rw]| <= M for unit u, v, w and all y,

dg the rounding of g. In coordinates c with y = x + Rc the map c -> c - R' grad f(x + Rc) has a derivative of norm at
most tau + M|c|, so it maps the ball |c| <= r into itself, and contracts it, where

    eta + tau r + M r^2 / 2 <= r   and   tau + M r < 1,   as for r = 2 eta / (1 - tau + sqrt((1 - tau)^2 - 2 M eta)).

The fixed point is the only stationary point x* in there, hess f is positive definite in the whole ball, so it is a
minimizer and alone, and |x_j - x*_j| <= |R_j| r with the rows R_j of R. Other units of f or of x_j change nothing.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from tercet.objectives.metered import MeteredPoint
from tercet.records import Matrix, Vector
from tercet.vectors import length

EPS = float(np.finfo(float).eps)
UP = 1.01  # the numbers of the proof are rounded themselves, by far less than this
SURE = 0.01  # with a larger tau they are rounded too much


@dataclass(frozen=True, eq=False)
class Proof:
    """That x is beside a minimizer, and how little third derivatives can do about it."""

    bound: Vector  # on each |x_j - x*_j|
    eta: float  # Newton's step and the rounding of g, in the norm of B
    third: float  # M

    @property
    def correction(self) -> float:
        """What the third-order correction of a step as long as eta, 1/2 B^-1 T[s, s], is at most in the norm of B."""
        return 0.5 * self.third * self.eta * self.eta

    def bends(self, length: float) -> float:
        """By which share a curvature v'Bv changes at most within this length, or eta, in the norm of B."""
        return self.third * max(length, self.eta)


def proved(point: MeteredPoint, B: Matrix, g: Vector) -> Proof | None:
    """A bound on each |x_j - x*_j|; None where nothing can be proved."""
    if point.able.limits is None or not np.all(np.diag(B) > 0.0):
        return None
    E = 1.0 / np.sqrt(np.diag(B))
    try:
        root = np.linalg.inv(np.linalg.cholesky(B * np.outer(E, E)))
    except np.linalg.LinAlgError:
        return None
    R = E[:, None] * root.T
    limits, rows, d = point.ask("value", point.able.limits, R, price=0), np.abs(R), len(g)  # it takes no term
    tau = size(R.T @ B @ R - np.eye(d)) + float(np.sum(root * root)) * float(np.sum(E * E * limits.hessian))
    tau += 4 * d * EPS * size(rows.T @ np.abs(B) @ rows)
    eta = UP * (size(R.T @ g) + size(rows.T @ (limits.gradient + d * EPS * np.abs(g))))
    room = (1.0 - tau) ** 2 - 2.0 * UP * limits.third * eta if tau <= SURE else 0.0
    if not room > 0.0:
        return None
    r = 2.0 * eta / (1.0 - tau + np.sqrt(room))
    return Proof(UP * r * np.sqrt(np.einsum("ij,ij->i", R, R)), eta, UP * limits.third)


def size(A: Vector | Matrix) -> float:
    """The root of the sum of squares, which no norm of a matrix exceeds."""
    return length(A.ravel())
