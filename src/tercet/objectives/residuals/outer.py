"""Outer losses rho(r) of residuals: rho near 1/2 r^2 where |r| is small beside a scale c, and flatter beyond.

Each is given once, as a formula over an array library, so that JAX differentiates the same lines that NumPy computes;
its first two derivatives are given beside it, for the weights of a Gauss-Newton matrix.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np

from tercet.checks import number
from tercet.records import Vector

LEAST = 0.1  # of rho'/r: no weight of a Gauss-Newton matrix is below that, where rho bends down
Three = tuple[Vector, Vector, Vector]
Normal = tuple[float, float | None, bool, bool, str]  # phi, log L, whether phi is an estimate, a penalty, a name


def squares(u: Any, xp: Any) -> Any:
    """1/2 u^2."""
    return 0.5 * u * u


def cauchy(u: Any, xp: Any) -> Any:
    """1/2 log(1 + u^2)."""
    return 0.5 * xp.log1p(u * u)


def welsch(u: Any, xp: Any) -> Any:
    """1/2 (1 - exp(-u^2))."""
    return -0.5 * xp.expm1(-u * u)


def geman_mcclure(u: Any, xp: Any) -> Any:
    """1/2 u^2 / (1 + u^2)."""
    return 0.5 * u * u / (1.0 + u * u)


def soft_l1(u: Any, xp: Any) -> Any:
    """sqrt(1 + u^2) - 1, written so that a small u keeps its digits."""
    return u * u / (1.0 + xp.sqrt(1.0 + u * u))


def huber(u: Any, xp: Any) -> Any:
    """log cosh u: 1/2 u^2 near 0 and |u| - log 2 far out, like Huber's loss, but smooth."""
    small = 0.5 * u * u * (1.0 - u * u / 6.0)
    size = xp.where(xp.abs(u) < 1e-3, 1.0, xp.abs(u))
    return xp.where(xp.abs(u) < 1e-3, small, size + xp.log1p(xp.exp(-2.0 * size)) - np.log(2.0))


def arctan(u: Any, xp: Any) -> Any:
    """1/2 arctan(u^2)."""
    return 0.5 * xp.arctan(u * u)


def slopes(name: str, u: Vector) -> tuple[Vector, Vector]:
    """The first two derivatives in u."""
    if name == "squares":
        return u, np.ones_like(u)
    q = u * u
    if name == "cauchy":
        w = 1.0 / (1.0 + q)
        return u * w, (1.0 - q) * w * w
    if name == "welsch":
        e = np.exp(-q)
        return u * e, (1.0 - 2.0 * q) * e
    if name == "geman_mcclure":
        w = 1.0 / (1.0 + q)
        return u * w * w, (1.0 - 3.0 * q) * w**3
    if name == "soft_l1":
        w = 1.0 / np.sqrt(1.0 + q)
        return u * w, w**3
    if name == "huber":
        t = np.tanh(u)
        return t, 1.0 - t * t
    w = 1.0 / (1.0 + q * q)
    return u * w, (1.0 - 3.0 * q * q) * w * w


FORMULAS: dict[str, Callable[[Any, Any], Any]] = {
    call.__name__: call for call in (squares, cauchy, welsch, geman_mcclure, soft_l1, huber, arctan)
}


@dataclass(frozen=True)
class Outer:
    """rho(r) = c^2 phi(r / c) for a formula phi by name and a scale c."""

    name: str = "squares"
    scale: float = 1.0

    @staticmethod
    def of(call: str, name: Any, scale: Any) -> Outer:
        """Checked; ValueError that names the call."""
        if name not in FORMULAS:
            raise ValueError(f"{call}(loss={name!r}): unknown loss; choose one of {', '.join(FORMULAS)}.")
        if not 1e-100 <= number(scale) <= 1e100:
            raise ValueError(
                f"{call}(scale={scale!r}): scale is a positive number, the residual where robustness sets in."
            )
        if name == "squares" and scale != 1.0:
            raise ValueError(f"{call}(loss='squares', scale={scale!r}): squares have no scale; leave it out.")
        return Outer(str(name), float(scale))

    def value(self, r: Any, xp: Any = np) -> Any:
        """rho(r), elementwise, by NumPy or by `xp`; inf, without a warning, where that is too large."""
        c = self.scale
        with np.errstate(over="ignore"):
            return squares(r, xp) if self.name == "squares" else c * c * FORMULAS[self.name](r / c, xp)

    def derivatives(self, r: Vector) -> Three:
        """rho, rho' and rho''."""
        c = self.scale
        first, second = slopes(self.name, r / c)
        return self.value(r), c * first, second

    def likelihood(self, halves: float, count: int, d: int, penalized: bool = False) -> Normal | None:
        """Of `count` residuals whose rho add up to `halves`, in d variables; None but for squares.

        Those are normal errors of an unknown variance, estimated as phi = sum r^2 / (count - d); log L is at its
        highest, where the variance is sum r^2 / count.
        """
        if self.name != "squares":
            return None
        phi, most = (2.0 * halves / k if k > 0 else np.nan for k in (count - d, count))
        log = -0.5 * count * (np.log(2.0 * np.pi * most) + 1.0) if most > 0.0 else None
        return phi, log, True, penalized, "Squares"

    def weights(self, r: Vector) -> tuple[Vector, Vector]:
        """rho'(r), and the weight h > 0 of each residual in the Gauss-Newton matrix J' diag(h) J.

        h = rho'', but at least a tenth of rho'/r, which bounds rho from above by a parabola.
        """
        if self.name == "squares":
            return r, np.ones_like(r)
        first, second = slopes(self.name, r / self.scale)
        slope = self.scale * first
        ratio = np.divide(slope, r, out=np.ones_like(r), where=r != 0.0)
        return slope, np.maximum(np.maximum(second, LEAST * ratio), np.finfo(float).tiny)
