"""What a sample of a linear model tells of its own error: row norms, and the variance of its terms' derivatives.

The penalty is the same in every term and drops out of both.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from tercet.objectives.linear import LinearPoint, LinearView
from tercet.records import Matrix, Vector


def weighted_gram(view: LinearView, c: Vector) -> Matrix:
    """(1/m) A' diag(c) A."""
    return view.table.gram(c) / len(c)


def weighted_mean(view: LinearView, c: Vector) -> Vector:
    """(1/m) A'c."""
    return view.table.weigh(c) / len(c)


def variance(point: Any, order: int) -> float:
    """The variance of the terms' derivatives of one order, as `Bernstein` asks for it; nan where it is not known.

    With c_i = w_i l_i^(order) at the point and B the mean of c_i a_i a_i':

        order 1:  (1/m) sum c_i^2 |a_i|^2 - |mean of c_i a_i|^2
        order 2:  the largest eigenvalue of (1/m) sum c_i^2 |a_i|^2 a_i a_i' - B^2
        order 3:  at most that of (1/m) sum c_i^2 |a_i|^4 a_i a_i', since (a_i'u)^6 <= |a_i|^4 (a_i'u)^2; it bounds both
                  variances of the unfolded terms too, since (a_i'M a_i)^2 <= |a_i|^2 |M a_i|^2

    Orders 2 and 3 cost a Gram matrix each.
    """
    if not isinstance(point, LinearPoint):
        return float("nan")
    view, c = point.view, point.coefficients(order)
    norms = view.table.lengths()
    if order == 1:
        mean = weighted_mean(view, c)
        return max(0.0, float(np.mean((c * norms) ** 2) - mean @ mean))
    spread = weighted_gram(view, c**2 * norms ** (2 * order - 2))
    if order == 2:
        B = weighted_gram(view, c)
        spread = spread - B @ B
    return max(0.0, float(np.linalg.eigvalsh((spread + spread.T) / 2)[-1]))
