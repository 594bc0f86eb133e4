"""Minimizing g's + 1/2 s'Bs + sigma/p |s|^p exactly when B is diagonal, as it is in its eigenbasis.

The minimizer solves (B + mu I) s = -g with mu = sigma |s|^(p-2) and mu >= -lambda_min: one equation in mu.
"""

from __future__ import annotations

import numpy as np

from tercet.records import Vector

EPS = float(np.finfo(float).eps)


def regularized_step(values: Vector, c: Vector, sigma: float, power: int, radius: float) -> tuple[Vector, float]:
    """The minimizer s over |s| <= radius, in the eigenbasis, and its shift mu.

    `values` are the eigenvalues of B in ascending order, c the gradient in the eigenbasis. A radius that binds acts
    like a larger sigma. In the hard case (c vanishes where the curvature is most negative) the step gets a component
    along the first eigenvector, without which no minimizer is reached.
    """
    floor = max(0.0, -float(values[0]))
    gaps = values + floor  # exactly 0 at the most negative eigenvalue, so that mu - floor keeps all its digits
    if floor == 0.0 and gaps[0] > 0.0 and sigma == 0.0 and np.linalg.norm(c / gaps) <= radius:
        return -c / gaps, 0.0

    def too_small(rise: float) -> bool:
        with np.errstate(over="ignore"):
            r = float(np.linalg.norm(c / (gaps + rise)))
        return not (r <= radius and sigma * r ** (power - 2) <= floor + rise)

    # The logarithm of mu - floor is bisected: |s(mu)| falls monotonically, over many orders of magnitude.
    low, high = np.log(1e-280), np.log(max(floor, float(np.linalg.norm(c)), 1e-270))
    if not too_small(float(np.exp(low))):
        return hard_case(gaps, c, sigma, power, radius, floor)
    while too_small(float(np.exp(high))):
        high += 10.0
    while high - low > 1e-13 * max(1.0, abs(high)):
        middle = 0.5 * (low + high)
        low, high = (middle, high) if too_small(float(np.exp(middle))) else (low, middle)
    rise = float(np.exp(high))
    return -c / (gaps + rise), floor + rise


def hard_case(gaps: Vector, c: Vector, sigma: float, power: int, radius: float, floor: float) -> tuple[Vector, float]:
    """The step at the smallest shift; where curvature is negative, lengthened along the first eigenvector."""
    s = np.divide(-c, gaps, out=np.zeros_like(c), where=gaps > 0.0)
    if floor == 0.0:
        return s, 0.0
    target = min(radius, (floor / sigma) ** (1.0 / (power - 2)) if sigma > 0 else radius)
    rest = target**2 - float(s @ s)
    if rest > 0.0 and np.isfinite(rest):
        s[0] += np.copysign(np.sqrt(rest), -c[0])
    return s, floor
