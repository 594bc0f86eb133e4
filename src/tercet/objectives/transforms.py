"""Parameters that live in a part of the line, as functions x_j = phi_j(u_j) of free variables u_j.

    f(phi(u)) has, with D = diag(phi') and h = phi'' and derivatives g, B, T of f at x = phi(u),

    gradient        D g
    Hessian         D B D + diag(h g)
    third [u, v]    D T[Du, Dv] + h u (B D v) + h v (B D u) + D B (h u v) + phi''' g u v

So every objective can be minimized in free variables, with its own derivatives. A minimum at an edge lies at infinity
in u: a run towards it ends as FLAT.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Protocol

import numpy as np
from scipy.special import expit, logit

from tercet.checks import number
from tercet.records import Vector


class Transform(Protocol):
    """A smooth increasing map from the line onto an open interval."""

    @property
    def low(self) -> float:
        """The lower end."""
        ...

    @property
    def high(self) -> float:
        """The upper end."""
        ...

    def derivatives(self, u: Vector) -> tuple[Vector, Vector, Vector, Vector]:
        """phi, phi', phi'', phi''' at each u."""
        ...

    def inverse(self, x: Vector) -> Vector:
        """The u with phi(u) = x."""
        ...


@dataclass(frozen=True)
class Above:
    """x > low: x = low + exp(u)."""

    low: float = 0.0
    high: float = np.inf

    def __post_init__(self) -> None:
        if not np.isfinite(number(self.low)):
            raise ValueError(f"above({self.low!r}): give a finite number.")

    def derivatives(self, u: Vector) -> tuple[Vector, Vector, Vector, Vector]:
        """low + e, e, e, e with e = exp(u)."""
        with np.errstate(over="ignore"):
            e = np.exp(u)
        return self.low + e, e, e, e

    def inverse(self, x: Vector) -> Vector:
        """log(x - low)."""
        return np.log(x - self.low)


@dataclass(frozen=True)
class Below:
    """x < high: x = high - exp(-u)."""

    high: float = 0.0
    low: float = -np.inf

    def __post_init__(self) -> None:
        if not np.isfinite(number(self.high)):
            raise ValueError(f"below({self.high!r}): give a finite number.")

    def derivatives(self, u: Vector) -> tuple[Vector, Vector, Vector, Vector]:
        """high - e, e, -e, e with e = exp(-u)."""
        with np.errstate(over="ignore"):
            e = np.exp(-u)
        return self.high - e, e, -e, e

    def inverse(self, x: Vector) -> Vector:
        """-log(high - x)."""
        return -np.log(self.high - x)


@dataclass(frozen=True)
class Interval:
    """low < x < high: x = low + (high - low) / (1 + exp(-u))."""

    low: float
    high: float

    def __post_init__(self) -> None:
        if not (np.isfinite(number(self.low)) and np.isfinite(number(self.high)) and self.low < self.high):
            raise ValueError(f"interval({self.low!r}, {self.high!r}): give finite numbers, the lower one first.")

    def derivatives(self, u: Vector) -> tuple[Vector, Vector, Vector, Vector]:
        """With p = 1 / (1 + exp(-u)) and q = 1 - p: p, p q, p q (q - p), p q (1 - 6 p q), times the width."""
        p, q, width = expit(u), expit(-u), self.high - self.low
        b = width * p * q
        return self.low + width * p, b, b * (q - p), b * (1.0 - 6.0 * p * q)

    def inverse(self, x: Vector) -> Vector:
        """log of (x - low) / (high - x)."""
        return logit((x - self.low) / (self.high - self.low))


@dataclass(frozen=True)
class Free:
    """Any x: x = u."""

    low: float = -np.inf
    high: float = np.inf

    def derivatives(self, u: Vector) -> tuple[Vector, Vector, Vector, Vector]:
        """u, 1, 0, 0."""
        return u, np.ones_like(u), np.zeros_like(u), np.zeros_like(u)

    def inverse(self, x: Vector) -> Vector:
        """x."""
        return x


positive = Above(0.0)


def above(low: float) -> Above:
    """x > low, as low + exp(u)."""
    return Above(low)


def below(high: float) -> Below:
    """x < high, as high - exp(-u)."""
    return Below(high)


def interval(low: float, high: float) -> Interval:
    """low < x < high, by a logistic curve."""
    return Interval(low, high)


def as_transform(given: Any) -> Transform:
    """A transform, or one from a pair of bounds, of which each may be None."""
    if hasattr(given, "derivatives") and hasattr(given, "inverse"):
        return given
    if not (isinstance(given, tuple | list) and len(given) == 2):
        raise ValueError(f"Transformed(where=...): {given!r} is neither a transform nor a pair (low, high).")
    low, high = (None if end is None or abs(number(end)) == np.inf else end for end in given)
    if low is None:
        return Free() if high is None else Below(high)
    return Above(low) if high is None else Interval(low, high)


@dataclass(frozen=True, eq=False)
class Elementwise:
    """One transform for each coordinate of a vector."""

    transforms: tuple[Transform, ...]

    def derivatives(self, u: Vector) -> tuple[Vector, Vector, Vector, Vector]:
        """phi and its derivatives at each u_j."""
        out = np.empty((4, len(u)))
        for transform, places in self.groups():
            out[:, places] = np.stack(transform.derivatives(u[places]))
        return out[0], out[1], out[2], out[3]

    def inverse(self, x: Vector) -> Vector:
        """u with phi(u) = x."""
        u = np.empty_like(x)
        for transform, places in self.groups():
            u[places] = transform.inverse(x[places])
        return u

    def groups(self) -> list[tuple[Transform, list[int]]]:
        """Coordinates by their transform."""
        groups: dict[Any, list[int]] = {}
        for j, transform in enumerate(self.transforms):
            groups.setdefault(transform, []).append(j)
        return list(groups.items())

    def outside(self, x: Vector) -> int | None:
        """The first coordinate that is not strictly inside, or None."""
        for j, transform in enumerate(self.transforms):
            if not transform.low < x[j] < transform.high:
                return j
        return None
