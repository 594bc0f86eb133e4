"""What the rows of a linear model tell of its third derivative, and of the spread of its terms.

The penalty is the same in every term and drops out of the spread.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from tercet.objectives.capabilities import Limits
from tercet.objectives.suprema import known_suprema, penalty_bounds
from tercet.records import Matrix, Vector

if TYPE_CHECKING:
    from tercet.objectives.linear.point import LinearPoint, LinearView, Penalty
    from tercet.objectives.losses import Loss

EPS = float(np.finfo(float).eps)
FEW = 16  # roundings in a loss, its derivatives and the penalty
GRAM_LIMIT = 3000  # up to this many variables a Gram matrix is formed


def third_bound(point: LinearPoint, V: Matrix | None, tight: bool = False) -> float:
    """The largest eigenvalue of V'A' diag(|w l'''| r_i) AV / m, plus the penalty's largest third derivative.

    For a unit y = Vz, |sum_i c_i (a_i'y)^3| <= sum_i |c_i| r_i (a_i'y)^2 with r_i = |V'a_i|, or r_i = |a_i|, which
    takes one Gram matrix. Over all directions the eigenvalue is bounded by the largest row sum.
    """
    table = point.view.table

    def size(piece: slice) -> Vector:
        return np.abs(point.margins.coefficients(3, piece)) / point.terms

    penalty = float(np.max(np.abs(point.view.penalty.third(point.x))))
    if V is None:
        sums = np.zeros(table.shape[1])
        for piece, block in table.blocks():
            entries = abs(block)
            sums += entries.T @ (size(piece) * table.lengths(piece) * np.asarray(entries.sum(axis=1)).ravel())
        return float(np.max(sums)) + penalty
    if len(V) <= GRAM_LIMIT:
        P = V @ V.T if tight else None
        gram = table.gram(lambda piece: size(piece) * table.lengths(piece, P))
        return float(np.linalg.norm(V.T @ gram @ V, 2)) + penalty
    spread = np.zeros((V.shape[1], V.shape[1]))
    for piece, block in table.blocks():
        rows = block @ V
        spread += rows.T @ ((size(piece) * np.linalg.norm(rows, axis=1))[:, None] * rows)
    return float(np.linalg.norm(spread, 2)) + penalty


def limits(point: LinearPoint, V: Matrix) -> Limits:
    """What holds of f for certain: with |l'''| <= sup l''' at every margin, and r_i = |V'a_i|,

        |third f(y)[Vu, Vv, Vw]| <= sum_i w_i sup l''' r_i^3 / m   for unit u, v, w and every y

    (and the penalty's part), and a sum of k products is rounded by at most k eps of the sum of their sizes, a margin of
    size |a_i|'|x| by d eps of that.
    """
    top = steepest(point.view.loss)
    sums = limit_sums(point, V, top) if top < np.inf else None
    return limits_of(sums, point.terms, point.view.penalty, point.x, V)


def steepest(loss: Loss) -> float:
    """sup |l'''|, as far as it is known."""
    sup = known_suprema(loss)
    return np.inf if sup is None else sup.third


def limit_sums(point: LinearPoint, V: Matrix, top: float) -> Vector:
    """What limits are made of, summed over the rows: for the third derivative one number, then what bounds the rounding
    of g and that of B, each a number for each variable."""
    view, x = point.view, np.abs(point.x)
    third, sums, squares = 0.0, np.zeros(len(x)), np.zeros(len(x))
    for piece, block in view.table.blocks():
        entries, size = abs(block), np.abs(view.y[piece])
        first, second = (np.abs(point.margins.coefficients(k, piece)) for k in (1, 2))
        weights = 1.0 if view.w is None else view.w[piece]
        if top > 0.0:
            rows = np.asarray(block @ V)
            q = np.einsum("ij,ij->i", rows, rows)  # r_i^2
            third += top * float(np.sum(weights * q * np.sqrt(q)))
        size += entries @ x
        sums += entries.T @ (first + second * size)
        squares += (entries * entries).T @ (second + weights * top * size)
    return np.concatenate([[third], sums, squares])


def limits_of(sums: Vector | None, m: int, penalty: Penalty, x: Vector, V: Matrix) -> Limits:
    """Limits of the mean of m terms and the penalty; without sums nothing is known."""
    if sums is None:
        return Limits(np.inf, np.zeros(len(x)), np.zeros(len(x)))
    units, (first, second) = (m + len(x) + FEW) * EPS, np.split(sums[1:] / m, 2)
    third = float(sums[0]) / m + penalty_bounds(penalty)[2] * float(np.sum(np.linalg.norm(V, axis=1) ** 3))
    return Limits(
        third,
        units * (first + np.abs(penalty.gradient(x))),
        units * (second + np.abs(penalty.curvature(x))),
    )


def weighted_gram(view: LinearView, c: Vector) -> Matrix:
    """(1/m) A' diag(c) A."""
    return view.table.gram(c) / len(c)


def weighted_mean(view: LinearView, c: Vector) -> Vector:
    """(1/m) A'c."""
    return view.table.weigh(c) / len(c)


def variance(point: LinearPoint, order: int) -> float:
    """The variance of the terms' derivatives of one order, as `Bernstein` asks for it.

    With c_i = w_i l_i^(order) at the point and B the mean of c_i a_i a_i':

        order 1:  (1/m) sum c_i^2 |a_i|^2 - |mean of c_i a_i|^2
        order 2:  the largest eigenvalue of (1/m) sum c_i^2 |a_i|^2 a_i a_i' - B^2
        order 3:  at most that of (1/m) sum c_i^2 |a_i|^4 a_i a_i', since (a_i'u)^6 <= |a_i|^4 (a_i'u)^2; it bounds both
                  variances of the unfolded terms too, since (a_i'M a_i)^2 <= |a_i|^2 |M a_i|^2

    Orders 2 and 3 cost a Gram matrix each.
    """
    view, c = point.view, point.margins.coefficients(order)
    norms = view.table.lengths()
    if order == 1:
        mean = weighted_mean(view, c)
        return max(0.0, float(np.mean((c * norms) ** 2) - mean @ mean))
    spread = weighted_gram(view, c**2 * norms ** (2 * order - 2))
    if order == 2:
        B = weighted_gram(view, c)
        spread = spread - B @ B
    return max(0.0, float(np.linalg.eigvalsh((spread + spread.T) / 2)[-1]))
