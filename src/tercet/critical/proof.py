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

import numpy as np

from tercet.objectives.metered import MeteredPoint
from tercet.records import Matrix, Vector

EPS = float(np.finfo(float).eps)
UP = 1.01  # the numbers of the proof are rounded themselves, by far less than this
SURE = 0.01  # with a larger tau they are rounded too much


def proved(point: MeteredPoint, B: Matrix, g: Vector) -> Vector | None:
    """A bound on each |x_j - x*_j|; None where nothing can be proved."""
    if point.able.limits is None or not np.all(np.diag(B) > 0.0):
        return None
    E = 1.0 / np.sqrt(np.diag(B))
    try:
        root = np.linalg.inv(np.linalg.cholesky(B * np.outer(E, E)))
    except np.linalg.LinAlgError:
        return None
    R = E[:, None] * root.T
    limits, rows, d = point.limits(R), np.abs(R), len(g)
    if limits is None:
        return None
    norm = float(np.linalg.norm(root, 2)) ** 2
    tau = float(np.linalg.norm(R.T @ B @ R - np.eye(d), 2)) + norm * float(np.sum(E * E * limits.hessian))
    tau += 4 * d * EPS * float(np.linalg.norm(rows.T @ np.abs(B) @ rows, 2))
    eta = UP * float(np.linalg.norm(R.T @ g) + np.linalg.norm(rows.T @ (limits.gradient + d * EPS * np.abs(g))))
    room = (1.0 - tau) ** 2 - 2.0 * UP * limits.third * eta
    if not (tau <= SURE and room > 0.0):
        return None
    r = 2.0 * eta / (1.0 - tau + np.sqrt(room))
    return UP * r * np.linalg.norm(R, axis=1)
