"""How an estimate varies: the covariance of x from the curvature of f and from the spread of its terms.

    hessian:   phi H^-1 / n                     where f is the mean of negative log-likelihoods (times phi)
    sandwich:  H^-1 S H^-1 / n                  for any M-estimate whose terms are independent (Huber; HC0)

with H = hess f(x) and S the covariance of the terms' gradients. Along directions in which H is 0 up to rounding nothing
is known; over the others the inverse is taken, in units in which the diagonal of H is 1.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from tercet.critical.errors import Curvature
from tercet.objectives.capabilities import hessian_from_products, result_of
from tercet.objectives.linear import LinearModel
from tercet.records import Certificate, Matrix, Rows, Vector

INVOLVED = 1e-5  # a coordinate takes part in a direction whose unit vector has more than this of it
SHOWN = 6  # names in a reason
ON_BOUND = "on its bound: an estimate does not vary about it as a normal one does"


@dataclass(frozen=True, eq=False)
class Spread:
    """A covariance C that is finite everywhere, the directions K (as columns) of which it knows nothing, and why."""

    C: Matrix
    K: Matrix
    why: tuple[str, ...]  # for each coordinate: empty, or why its variance is not known

    @property
    def known(self) -> np.ndarray[Any, np.dtype[np.bool_]]:
        """The coordinates whose variance is known."""
        return np.array([not reason for reason in self.why], dtype=bool)

    def covariance(self) -> Matrix:
        """C, with nan where it is not known."""
        known = self.known
        return np.where(np.outer(known, known), self.C, np.nan)

    def along(self, J: Matrix) -> Matrix:
        """J C J' for the rows of J; nan for a row that sees a direction of which nothing is known."""
        V = J @ self.C @ J.T
        if self.K.shape[1] == 0:
            return V
        seen = np.max(np.abs(J @ self.K), axis=1) <= INVOLVED * np.max(np.abs(J) @ np.abs(self.K), axis=1)
        seen |= ~np.any(J, axis=1)
        return np.where(np.outer(seen, seen), V, np.nan)


@dataclass(frozen=True, eq=False)
class Inverse:
    """M^-1 over the directions that bend up; the others as columns, and whether one of them bends down."""

    of: Matrix
    others: Matrix
    involved: np.ndarray[Any, np.dtype[np.bool_]]
    falls: bool


def inverted(M: Matrix, epsilon: float) -> Inverse:
    """One eigenvalue problem, in units in which the diagonal of M is 1."""
    if not len(M):
        return Inverse(M, M, np.zeros(0, dtype=bool), False)
    size = np.sqrt(np.abs(np.diag(M)))
    E = np.where(size > 0.0, 1.0 / np.where(size > 0.0, size, 1.0), 1.0)
    curvature = Curvature.of(M, E, epsilon, E)  # no spans are known: those of the units
    up = curvature.seen
    half = E[:, None] * curvature.V[:, up] / np.sqrt(curvature.values[up])
    rest = curvature.V[:, ~up]
    involved = np.max(np.abs(rest), axis=1, initial=0.0) > INVOLVED
    return Inverse(half @ half.T, E[:, None] * rest, involved, curvature.falling().shape[1] > 0)


def hessian_of(objective: Any, x: Vector) -> Matrix:
    """H at x over all terms."""
    point = objective.over(None).at(x)
    own = getattr(point, "hessian", None)
    return np.asarray(result_of(hessian_from_products(point, len(x), objective.n) if own is None else own()))


def scatter_of(objective: Any, x: Vector) -> Matrix:
    """S = (1/n) sum (s_i - s)(s_i - s)', s_i the gradient of term i and s their mean: the engine's own, or from n
    gradients of single terms."""
    point = objective.over(None).at(x)
    own = getattr(point, "scatter", None)
    if own is not None:
        return np.asarray(own())
    each = (np.asarray(result_of(objective.over(np.array([i])).at(x).gradient())) for i in range(objective.n))
    mean = np.asarray(result_of(point.gradient()))
    total = np.zeros((len(x), len(x)))
    for s in each:
        total += np.outer(s - mean, s - mean)
    return total / objective.n


def spread_of(
    objective: Any, x: Vector, phi: float | None, certificate: Certificate, names: Sequence[str], epsilon: float
) -> Spread:
    """phi H^-1 / n, or with phi None the sandwich; over the coordinates that are not on a bound."""
    free = free_of(certificate, len(x))
    some, taken = np.ix_(free, free), [names[j] for j in free]
    inverse = inverted(hessian_of(objective, x)[some], epsilon)
    C = inverse.of @ scatter_of(objective, x)[some] @ inverse.of if phi is None else phi * inverse.of
    plain = Spread(0.5 * (C + C.T) / objective.n, inverse.others, reasons(inverse, certificate, taken))
    if phi is not None and np.isnan(phi):
        text = f"{objective.n} rows leave nothing to estimate the variance from {len(x)} coefficients"
        return replace(plain, why=(text,) * len(x), C=np.zeros((len(x), len(x))))
    return with_held(by_data(objective, x, plain, free, epsilon), free, len(x))


def free_of(certificate: Certificate, d: int) -> Rows:
    """The coordinates that are not on a bound."""
    return np.setdiff1d(np.arange(d), (*certificate.active, *certificate.weak))


def with_held(spread: Spread, free: Rows, d: int) -> Spread:
    """The same of all coordinates, of which those that are not free are on a bound, and have no variance."""
    if len(free) == d:
        return spread
    held, why = np.setdiff1d(np.arange(d), free), np.full(d, ON_BOUND, dtype=object)
    C, K = np.zeros((d, d)), np.zeros((d, spread.K.shape[1] + len(held)))
    C[np.ix_(free, free)] = spread.C
    K[free, : spread.K.shape[1]] = spread.K
    K[held, np.arange(spread.K.shape[1], K.shape[1])] = 1.0
    why[free] = spread.why
    return Spread(C, K, tuple(why))


def reasons(inverse: Inverse, certificate: Certificate, names: Sequence[str]) -> tuple[str, ...]:
    """Why the variances of those coordinates that take part in a direction without curvature are not known."""
    taken = [name for name, part in zip(names, inverse.involved, strict=True) if part]
    listed = ", ".join(taken[:SHOWN]) + (", ..." if len(taken) > SHOWN else "")
    if inverse.falls:
        text = f"f bends down along a combination of {listed}: this is no minimizer"
    elif certificate.strict and not certificate.kernel:
        text = f"f rises more slowly than a square along a combination of {listed}: no standard error exists there"
    else:
        text = f"not identified: f does not change along a combination of {listed}"
    return tuple(text if part else "" for part in inverse.involved)


def by_data(objective: Any, x: Vector, plain: Spread, free: Rows, epsilon: float) -> Spread:
    """Of a linear model with a penalty also those coordinates that the penalty alone identifies."""
    if not isinstance(objective, LinearModel) or objective.rows.penalty.l2 == objective.rows.penalty.alpha == 0.0:
        return plain
    point = objective.rows.at(x)
    gram = objective.rows.table.gram(np.abs(point.margins.coefficients(2)))[np.ix_(free, free)]
    loss = inverted(gram / objective.n, epsilon)
    text = "the data do not identify it, the penalty alone does"
    why = tuple(old or (text if part else "") for old, part in zip(plain.why, loss.involved, strict=True))
    return replace(plain, K=np.hstack([plain.K, loss.others]), why=why)
