"""Two coordinates in which a Gauss-Newton matrix root'root + mu I is solved with for every mu, from one factorization.

`Singular`: the singular vectors of the root, in which it is diag(q^2) and small q keep their digits. `Squared`: the
matrix itself, made tridiagonal, for a tenth of the time; it knows nothing below eps q_1^2, so that a step is taken
from it only where what it solves with is well above that.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Protocol

import numpy as np

from tercet.objectives.base import NotFiniteError
from tercet.once import once
from tercet.records import Matrix, Vector
from tercet.subsolvers.base import Ask
from tercet.subsolvers.spectral import EPS, Tridiagonal, secular
from tercet.vectors import length

SAME = 1e-6  # of its terms: root'image is the gradient, and not that of other examples
HEAVY = 4e6  # multiplications, from which on the square is tried first: below they take no time
ABOVE = 100.0  # times the rounding of the square: what is solved with is told from it to two digits

Found = tuple[Vector, float, Callable[[Vector], Vector]]  # coordinates of a step, its shift, and the way to solve


class Basis(Protocol):
    """Coordinates c = V's."""

    @property
    def slope(self) -> Vector:
        """V'g."""
        ...

    def inside(self, s: Vector) -> Vector:
        """V's."""
        ...

    def outside(self, c: Vector) -> Vector:
        """Vc."""
        ...

    def times(self, c: Vector) -> Vector:
        """V'root'root V c."""
        ...

    def minimize(self, ask: Ask) -> Found | None:
        """The minimizer of the Gauss-Newton model; None where it has not the digits."""
        ...


@dataclass(frozen=True, eq=False)
class Squares:
    """diag(q^2) as a matrix for `secular`."""

    values: Vector

    @property
    def floor(self) -> float:
        """None of q^2 is below 0."""
        return 0.0

    @property
    def bound(self) -> float:
        """The largest."""
        return float(self.values[0])

    def solver(self, rise: float) -> Any:
        """v -> v / (q^2 + rise); None where that is no positive matrix."""
        if not self.values[-1] + rise > 0.0:
            return None
        return lambda v: v / (self.values + rise)


@dataclass(frozen=True, eq=False)
class Singular:
    """The coordinates of the singular vectors; where there are fewer rows than variables, and not `whole`, of the rows
    alone, outside of which no step of this model leads."""

    linear: Any
    g: Vector
    whole: bool

    @once
    def svd(self) -> tuple[Vector, Matrix, Vector]:
        """q with zeros where there are fewer rows than coordinates, V', and V'g."""
        root, image = self.linear.root, self.linear.image
        if not np.isfinite(root).all():  # in units of x so long that rows of the Jacobian overflow
            raise NotFiniteError("hessian")
        U, q, Vt = np.linalg.svd(root, full_matrices=self.whole and root.shape[0] < root.shape[1])
        own = np.linalg.norm(root.T @ image - self.g) <= SAME * np.linalg.norm(np.abs(root.T) @ np.abs(image))
        values = np.zeros(len(Vt))
        values[: len(q)] = q
        slope = Vt @ self.g
        if own:
            slope = np.zeros(len(Vt))
            slope[: len(q)] = q * (U[:, : len(q)].T @ image)
        return values, Vt, slope

    @property
    def slope(self) -> Vector:
        """V'g."""
        return self.svd[2]

    def inside(self, s: Vector) -> Vector:
        """V's."""
        return self.svd[1] @ s

    def outside(self, c: Vector) -> Vector:
        """Vc."""
        return c @ self.svd[1]

    def times(self, c: Vector) -> Vector:
        """diag(q^2) c."""
        q = self.svd[0]
        return q * q * c

    def minimize(self, ask: Ask) -> Found:
        """Directions of which nothing is known are left alone by the free step."""
        q, _, slope = self.svd
        seen = q > EPS * len(q) * q[0]
        T, size = Squares(q * q), np.where(seen, q * q, 1.0)
        if not slope.any():
            return np.zeros_like(q), 0.0, lambda v: np.where(seen, v, 0.0) / size
        c = np.where(seen, -slope / size, 0.0)
        if ask.sigma2 == 0.0 and length(c) <= ask.radius:
            return c, 0.0, lambda v: np.where(seen, v / size, 0.0)
        c, mu = secular(T, slope, 0.0, ask.sigma2, ask.power, ask.radius)
        return c, mu, T.solver(mu)


@dataclass(frozen=True, eq=False)
class Squared:
    """The coordinates of the tridiagonal form T of root'root."""

    T: Tridiagonal
    slope: Vector

    @staticmethod
    def of(gram: Matrix, g: Vector, wait: Callable[..., Any]) -> Squared:
        """One tridiagonalization, which the clock may interrupt."""
        T = wait(Tridiagonal.of, gram)
        return Squared(T, T.rotate(g))

    def inside(self, s: Vector) -> Vector:
        """Q's."""
        return self.T.rotate(s)

    def outside(self, c: Vector) -> Vector:
        """Qc."""
        return self.T.rotate(c, back=True)

    def times(self, c: Vector) -> Vector:
        """Tc."""
        return self.T.times(c)

    def minimize(self, ask: Ask) -> Found | None:
        """None where T + mu I is not well above the rounding of T."""
        T, least = self.T, ABOVE * EPS * self.T.bound
        if T.floor > least or not self.slope.any():
            return None
        free = T.solver(-T.floor - least) if ask.sigma2 == 0.0 else None
        if free is not None:
            solve = T.solver(-T.floor)
            c = -solve(self.slope)
            if length(c) <= ask.radius:
                return c, 0.0, solve
        c, rise = secular(T, self.slope, 0.0, ask.sigma2, ask.power, ask.radius)
        mu = T.floor + rise
        if T.solver(rise - least) is None:
            return None
        return c, mu, T.solver(rise)


def is_heavy(linear: Any) -> bool:
    """Whether the square is worth trying: there are as many rows as variables, and much to do."""
    m, d = linear.rows.shape[0], linear.rows.shape[1] - 1
    return m >= d and float(m) * d * d > HEAVY
