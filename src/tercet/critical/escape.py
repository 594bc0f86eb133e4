"""The way down from a point whose gradient is small and whose curvature or third derivative is not."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from tercet.objectives.metered import MeteredPoint
from tercet.records import Vector


@dataclass(frozen=True, eq=False)
class Escape:
    """A unit direction along which f falls although its gradient is small: g'y, y'By and T[y]^3, and its order."""

    y: Vector
    slope: float
    curvature: float
    cubic: float
    order: int

    def length(self, sigma: float) -> float:
        """The t > 0 that minimizes slope t + curvature/2 t^2 + cubic/6 t^3 + sigma/4 t^4; 0 where none is below 0."""
        roots = np.roots([sigma, self.cubic / 2, self.curvature, self.slope])
        real = roots[np.abs(roots.imag) <= 1e-6 * np.abs(roots)].real
        ahead = [float(t) for t in real if t > 0 and self.fall(float(t)) - sigma / 4 * t**4 > 0]
        return max(ahead, key=lambda t: self.fall(t) - sigma / 4 * t**4, default=0.0)

    def most(self, sigma: float) -> float:
        """sigma, or less where so large a one hides the fall: curvature t^2/2 + cubic t^3/6 + sigma t^4/4 is negative
        for some t only while sigma < cubic^2 / (18 curvature)."""
        return min(sigma, self.cubic**2 / (36 * self.curvature)) if self.curvature > 0.0 else sigma

    def fall(self, t: float) -> float:
        """phi(0) - phi(t y)."""
        return -(self.slope * t + self.curvature / 2 * t**2 + self.cubic / 6 * t**3)


def escape_along(point: MeteredPoint, g: Vector, y: Vector, order: int) -> Escape:
    """The direction y or -y, whichever goes down, with the derivatives along it."""
    curvature = float(y @ point.hessian_product(y))
    cubic = float(y @ point.third_product(y, y))
    slope = float(g @ y)
    sign = -1.0 if (cubic > 0 if order == 3 or slope == 0 else slope > 0) else 1.0
    return Escape(sign * y, sign * slope, curvature, sign * cubic, order)
