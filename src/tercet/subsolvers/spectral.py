"""Minimizing g's + 1/2 s'Bs + sigma/p |s|^p exactly, from one tridiagonal form B = QTQ'.

The minimizer solves (B + mu I) s = -g with mu = sigma |s|^(p-2) and mu >= -lambda_min: one equation in mu, and each
trial of a mu costs a tridiagonal solve.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from functools import cache
from typing import Any, Protocol

import numpy as np

from tercet.model import power_of
from tercet.records import Matrix, Vector
from tercet.vectors import length
from tercet.watch import LONG, tridiagonalize

EPS = float(np.finfo(float).eps)
RESOLVED = 64.0  # times eps: a pivot above it, beside the trace, is told from 0


@dataclass(frozen=True, eq=False)
class Cholesky:
    """B = R'R."""

    R: Matrix

    @staticmethod
    def of(B: Matrix) -> Cholesky | None:
        """The factor of a definite matrix; None of any other, also of one that may be singular but for its rounding."""
        R, info = lapack().dpotrf(B, clean=0)
        if info:
            return None
        least = float(R.diagonal().min())  # its square is at least lambda_min
        return Cholesky(R) if least * least > RESOLVED * EPS * float(B.trace()) else None

    def solve(self, v: Matrix) -> Matrix:
        """B^-1 v for a vector, or for columns."""
        return lapack().dpotrs(self.R, v)[0]


@dataclass(eq=False)
class Tridiagonal:
    """T = Q'BQ with its diagonal and off-diagonal; Q is kept as Householder reflectors (none: Q = I)."""

    diag: Vector
    off: Vector
    reflectors: Any = None
    tau: Any = None
    bound: float = field(init=False)  # no |eigenvalue| exceeds it
    floor: float = field(init=False)  # max(0, -lambda_min), the smallest shift that leaves no negative curvature

    def __post_init__(self) -> None:
        if len(self.diag) == 1:
            self.off = np.zeros(1)  # LAPACK's wrappers ask for one entry that is never read
        rows, sides = np.abs(self.diag), np.abs(self.off)
        rows[1:] += sides[: len(rows) - 1]
        rows[:-1] += sides[: len(rows) - 1]
        self.bound, self.floor = float(rows.max()), 0.0
        if lapack().dpttrf(self.diag, self.off)[2] != 0:  # 2: by number, from 1 to 1
            lowest = lapack().dstebz(self.diag, self.off, 2, 0.0, 1.0, 1, 1, 0.0, "E")[1][0]
            self.floor = max(0.0, -float(lowest))

    @staticmethod
    def of(B: Matrix) -> Tridiagonal:
        """The tridiagonal form of a symmetric matrix, at about the price of two Cholesky factorizations."""
        d = len(B)
        if d < 3:
            return Tridiagonal(np.diag(B).copy(), np.diag(B, 1).copy())
        if d < LONG:  # for a small matrix the wrapper of SciPy is faster
            factored, diag, off, tau, _ = lapack().dsytrd(B, lower=1, lwork=8 * d)
        else:
            factored, diag, off, tau = tridiagonalize(B)
        return Tridiagonal(diag, off, np.asfortranarray(factored[1:, :-1]), tau)

    def rotate(self, v: Matrix, back: bool = False) -> Matrix:
        """Q'v, or Qv on the way back, for a vector or for columns."""
        if self.reflectors is None:
            return v
        columns = np.array(v if v.ndim == 2 else v[:, None], order="F")
        trans, work = ("N" if back else "T"), max(64, 32 * columns.shape[1])
        columns[1:] = lapack().dormqr("L", trans, self.reflectors, self.tau, columns[1:], work)[0]
        return columns if v.ndim == 2 else columns[:, 0]

    def times(self, z: Vector) -> Vector:
        """Tz."""
        Tz = self.diag * z
        if len(z) > 1:
            Tz[:-1] += self.off * z[1:]
            Tz[1:] += self.off * z[:-1]
        return Tz

    def lowest(self) -> Vector:
        """The eigenvector of lambda_min."""
        import scipy.linalg

        off = self.off[: len(self.diag) - 1]
        return scipy.linalg.eigh_tridiagonal(self.diag, off, select="i", select_range=(0, 0))[1][:, 0]

    def solver(self, rise: float) -> Any:
        """v -> (T + (floor + rise) I)^-1 v; None where that matrix is not positive definite."""
        # diag + floor comes first: it is 0 at the lowest entry of a diagonal T, and then rise keeps all its digits.
        factor, off, info = lapack().dpttrf(self.diag + self.floor + rise, self.off)
        return None if info else lambda v: lapack().dpttrs(factor, off, v)[0]

    def minimize(self, g: Vector, sigma: float, power: int, radius: float) -> tuple[Vector, float]:
        """The minimizer of g's + 1/2 s'Bs + sigma/p |s|^p over |s| <= radius, and its shift mu."""
        s, mu = regularized_step(self, self.rotate(g), sigma, power, radius)
        return self.rotate(s, back=True), mu

    def shifted(self, shift: float) -> Any:
        """v -> (T + shift I)^-1 v, with a shift that is a little larger where rounding asks for it."""
        rise = max(shift - self.floor, EPS * self.bound, 1e-290)
        while (solve := self.solver(rise)) is None:
            rise *= 4.0
        return solve

    def solve(self, v: Matrix, shift: float) -> Matrix:
        """(B + shift I)^-1 v for a vector, or for columns."""
        return self.rotate(self.shifted(shift)(self.rotate(v)), back=True)


@cache
def lapack() -> Any:
    """scipy.linalg.lapack, imported when a matrix is first factored."""
    import scipy.linalg.lapack

    return scipy.linalg.lapack


def regularized_step(T: Tridiagonal, c: Vector, sigma: float, power: int, radius: float) -> tuple[Vector, float]:
    """The minimizer s of c's + 1/2 s'Ts + sigma/p |s|^p over |s| <= radius, and its shift mu.

    A radius that binds acts like a larger sigma. Safeguarded Newton steps on 1/|s(mu)| = 1/rho(mu), where
    rho = min(radius, (mu/sigma)^(1/(p-2))) is the length that goes with mu; the left side is nearly linear in mu.
    """
    guess = np.inf
    if T.floor <= RESOLVED * EPS * T.bound:
        if not c.any():
            return np.zeros_like(c), 0.0
        solve = T.solver(EPS * T.bound)  # an eigenvalue that is 0 but for rounding leads nowhere, also one below 0
        if solve is not None:
            s = -solve(c)
            r = length(s)
            if sigma == 0.0 and r <= radius:
                return s, 0.0
            guess = sigma * power_of(r, power - 2)  # the shift where the regularizer hardly acts
    s, rise = secular(T, c, guess, sigma, power, radius)
    return lengthen(T, s, target(T.floor + rise, sigma, power, radius)), T.floor + rise


def target(mu: float, sigma: float, power: int, radius: float) -> float:
    """The length that goes with mu: rho = min(radius, (mu/sigma)^(1/(p-2)))."""
    return min(radius, (mu / sigma) ** (1.0 / (power - 2)) if sigma > 0.0 else np.inf)


class Shiftable(Protocol):
    """A symmetric matrix T that is solved with at any shift."""

    @property
    def bound(self) -> float:
        """No |eigenvalue| exceeds it."""
        ...

    @property
    def floor(self) -> float:
        """max(0, -lambda_min)."""
        ...

    def solver(self, rise: float) -> Any:
        """v -> (T + (floor + rise) I)^-1 v; None where that matrix is not positive definite."""
        ...


def secular(T: Shiftable, c: Vector, guess: float, sigma: float, power: int, radius: float) -> tuple[Vector, float]:
    """s and the rise mu - floor at which |s| = rho, or the smallest that rounding lets T + mu I stay definite at."""
    q, size = power - 2, length(c)
    # |s| <= |c| / rise and |s| >= |c| / (bound + mu) enclose the root.
    high = max(size / radius, size ** (q / (q + 1)) * sigma ** (1.0 / (q + 1)), 1e-280) * (1.0 + 1e-12)
    low = sigma * power_of(size / (T.bound + T.floor + high), q) if T.floor == 0.0 else 0.0
    finest = EPS * (T.bound + T.floor) if T.floor > 0.0 else 0.0
    while T.solver(high) is None:  # rounding of the floor, or of an eigenvalue that should be 0
        high = max(4.0 * high, EPS * (T.bound + T.floor), 1e-280)
    rise, best = min(high, max(low, guess)), None
    for _ in range(200):
        solve, mu = T.solver(rise), T.floor + rise
        following = np.nan
        if solve is None:
            low = rise
        else:
            s = -solve(c)
            r, rho = length(s), target(mu, sigma, power, radius)
            if r <= rho:
                high, best = rise, s
            else:
                low = rise
            if abs(r - rho) <= 1e-13 * rho:
                return s, rise
            u = s / r if r > 0.0 else s
            bend = float(u @ solve(u)) / r if r > 0.0 else 0.0
            slope = bend + (0.0 if rho >= radius else 1.0 / max(q * mu * rho, 1e-300))
            following = rise - (1.0 / r - 1.0 / rho) / slope if slope > 0.0 and rho > 0.0 and r > 0.0 else np.nan
        if best is not None and high - low <= max(finest, 4 * EPS * high):
            return best, high
        inside = low < following < high
        rise = following if inside else float(np.sqrt(max(low, finest, 1e-280) * high))
        rise = rise if low < rise < high else 0.5 * (low + high)
    return (best if best is not None else -T.solver(high)(c)), high


def lengthen(T: Tridiagonal, s: Vector, rho: float) -> Vector:
    """In the hard case (c has no part where the curvature is most negative) s is too short at the smallest shift.

    The missing length lies along the eigenvector of lambda_min, which changes (T + mu I) s by rounding only.
    """
    if T.floor == 0.0:
        return s
    missing = rho**2 - float(s @ s)
    if not missing > 1e-12 * rho**2 or not np.isfinite(missing):
        return s
    v = T.lowest()
    along = float(s @ v)
    sign = 1.0 if along > 0.0 else -1.0
    return s + sign * (np.sqrt(along**2 + missing) - abs(along)) * v
