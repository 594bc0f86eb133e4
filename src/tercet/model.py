"""The regularized Taylor model and its derivatives: formulas only.

    m(s) = g's + 1/2 s'Bs + 1/6 T[s]^3 + sigma/p |s|^p          (paper, eq. 6; f(x) is left out)

with p = 4 for the third-order method and p = 3 for cubic regularization.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from math import inf

import numpy as np

from tercet.records import Forecast, Matrix, Tensor, Vector
from tercet.vectors import length


def power_of(r: float, p: int) -> float:
    """r^p, inf where that is too large for a number."""
    try:
        return float(r) ** p
    except OverflowError:
        return inf


@dataclass(frozen=True)
class Regularizer:
    """sigma/p |s|^p with its gradient and Hessian."""

    sigma: float
    power: int = 4

    def value(self, s: Vector) -> float:
        """sigma/p |s|^p."""
        return self.sigma / self.power * power_of(length(s), self.power)

    def gradient(self, s: Vector) -> Vector:
        """sigma |s|^(p-2) s."""
        return self.sigma * power_of(length(s), self.power - 2) * s

    def hessian(self, s: Vector) -> Matrix:
        """sigma (|s|^(p-2) I + (p-2) |s|^(p-4) s s')."""
        r = length(s)
        H = power_of(r, self.power - 2) * np.eye(len(s))
        if r > 0:
            H = H + (self.power - 2) * power_of(r, self.power - 2) * np.outer(s / r, s / r)
        return self.sigma * H

    def third(self, s: Vector) -> Tensor:
        """The third derivative; along y it is sigma (p-2) (3 (s'y) |y|^2 |s|^(p-4) + (p-4) (s'y)^3 |s|^(p-6)).

        For p = 4 that is 6 sigma (s'y) |y|^2 (notes, erratum 6).
        """
        d, r, q = len(s), length(s), self.power
        if r == 0.0:
            return np.zeros((d, d, d))
        u = s / r  # |s|^(p-3) is all that is left of the length, so that a tiny s overflows nothing
        uI = np.einsum("a,bc->abc", u, np.eye(d))
        mixed = uI + uI.transpose(1, 0, 2) + uI.transpose(1, 2, 0)
        return self.sigma * (q - 2) * r ** (q - 3) * (mixed + (q - 4) * np.einsum("a,b,c->abc", u, u, u))


@dataclass(frozen=True, eq=False)
class ProductModel:
    """m(s) through products with B and T; `third` is None for the second-order model."""

    g: Vector
    hessian: Callable[[Vector], Vector]  # v -> Bv
    third: Callable[[Vector, Vector], Vector] | None  # u, v -> T[u, v]
    regularizer: Regularizer

    def forecasts(self, s: Vector) -> tuple[Forecast, Forecast | None]:
        """The Taylor polynomials of second and third order at s: one product with B and one with T."""
        Bs = self.hessian(s)
        second = Forecast(-float(self.g @ s + 0.5 * (s @ Bs)), self.g + Bs)
        return second, None if self.third is None else add_third(second, s, self.third(s, s))

    def evaluate(self, s: Vector) -> tuple[float, Vector, tuple[Forecast, Forecast | None]]:
        """m(s), grad m(s) = g + Bs + 1/2 T[s]^2 + sigma |s|^(p-2) s, and the forecasts behind them."""
        second, third = self.forecasts(s)
        best = third or second
        value = -best.decrease + self.regularizer.value(s)
        return value, best.gradient + self.regularizer.gradient(s), (second, third)


@dataclass(frozen=True, eq=False)
class Bend:
    """What the one product t = T[p, p] along a unit vector p tells of T: all terms in which p stands at least twice,

    T[s]^3 = 3 (p's)^2 t's - 2 (p's)^3 p't + O(|s - pp's|^2 |s|).
    """

    p: Vector
    t: Vector

    def __matmul__(self, s: Vector) -> Matrix:
        """T[s], a matrix."""
        a, pt = float(self.p @ s), np.outer(self.p, self.t)
        along = float(self.t @ s) - 2.0 * a * float(self.p @ self.t)
        M: Matrix = along * np.outer(self.p, self.p) + a * (pt + pt.T)
        return M


@dataclass(frozen=True, eq=False)
class DenseModel:
    """m(s) with B as an array, and T where there is one: for the whole space when d is small, or for a subspace."""

    g: Vector
    B: Matrix
    T: Tensor | Bend | None
    regularizer: Regularizer

    def value(self, s: Vector) -> float:
        """m(s)."""
        cubic = 0.0 if self.T is None else float(s @ (self.T @ s) @ s) / 6
        return float(self.g @ s + 0.5 * (s @ self.B @ s)) + cubic + self.regularizer.value(s)

    def gradient(self, s: Vector) -> Vector:
        """g + Bs + 1/2 T[s]^2 + sigma |s|^(p-2) s."""
        bend = 0.0 if self.T is None else 0.5 * ((self.T @ s) @ s)
        return self.g + self.B @ s + bend + self.regularizer.gradient(s)

    def hessian(self, s: Vector) -> Matrix:
        """B + T[s] + sigma (|s|^(p-2) I + (p-2) |s|^(p-4) s s')."""
        bend = 0.0 if self.T is None else self.T @ s
        return self.B + bend + self.regularizer.hessian(s)

    def third_tensor(self, s: Vector) -> Tensor:
        """T, where it is an array, plus the regularizer's third derivative at s."""
        bend = self.T if isinstance(self.T, np.ndarray) else 0.0
        return bend + self.regularizer.third(s)


def add_third(second: Forecast, s: Vector, Tss: Vector) -> Forecast:
    """The third-order forecast from the second-order one and T[s, s]: phi gains 1/6 T[s]^3, its gradient 1/2 T[s]^2."""
    return Forecast(second.decrease - float(Tss @ s) / 6, second.gradient + 0.5 * Tss)
