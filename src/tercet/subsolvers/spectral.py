"""Minimizing g's + 1/2 s'Bs + sigma/p |s|^p exactly when B is diagonal, as it is in its eigenbasis.

The minimizer solves (B + mu I) s = -g with mu = sigma |s|^(p-2) and mu >= -lambda_min: one equation in mu.
"""

from __future__ import annotations

import numpy as np
from scipy.optimize import brentq

from tercet.records import Vector


def regularized_step(values: Vector, c: Vector, sigma: float, power: int, radius: float) -> tuple[Vector, float]:
    """The minimizer s over |s| <= radius, in the eigenbasis, and its shift mu.

    `values` are the eigenvalues of B in ascending order, c the gradient in the eigenbasis. A radius that binds acts
    like a larger sigma. In the hard case (c vanishes where the curvature is most negative) the step gets a component
    along the first eigenvector, without which no minimizer is reached.
    """
    floor = max(0.0, -float(values[0]))

    def length(mu: float) -> float:
        return float(np.linalg.norm(c / (values + mu)))

    def excess(mu: float) -> float:
        r = length(mu)
        return max(r / radius - 1.0, sigma * r ** (power - 2) / mu - 1.0)

    scale = max(float(np.abs(values).max()), float(np.linalg.norm(c)), np.finfo(float).tiny)
    low = floor + 1e-14 * max(floor, scale)
    if excess(low) <= 0.0:
        return hard_case(values, c, sigma, power, radius, low)
    high = 2.0 * low + scale
    while excess(high) > 0.0:
        high *= 16.0
    mu = low + float(
        np.exp(brentq(lambda t: excess(low + np.exp(t)), np.log(1e-16 * low + 1e-300), np.log(high), xtol=1e-12))
    )
    return -c / (values + mu), mu


def hard_case(values: Vector, c: Vector, sigma: float, power: int, radius: float, mu: float) -> tuple[Vector, float]:
    """The step at the smallest shift; where curvature is negative, lengthened along the first eigenvector."""
    s = -c / (values + mu)
    if values[0] >= 0.0:
        return s, mu
    target = min(radius, (mu / sigma) ** (1.0 / (power - 2)) if sigma > 0 else radius)
    rest = target**2 - float(s @ s)
    if rest > 0.0 and np.isfinite(rest):
        s = s.copy()
        s[0] += np.copysign(np.sqrt(rest), s[0] if s[0] != 0 else 1.0)
    return s, mu
