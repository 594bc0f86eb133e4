"""`plain`: the trust-region Newton method of the textbooks, as a measure for everything cleverer.

A fresh Hessian at every accepted point; the sub-problem solved exactly by the secular equation where a dense Hessian is
worth it, by truncated conjugate gradients (Steihaug) elsewhere; the radius doubled after a good step that reached it,
quartered after a bad one.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import scipy.linalg
import scipy.optimize

EPS = float(np.finfo(float).eps)


def minimize(oracle: Any, x: np.ndarray, dense: bool, watch: Callable[[np.ndarray], Any], tol: float = 1e-10) -> str:
    """Minimize from x until |g| <= tol or rounding; `watch` sees every iterate. The answer says why it ended."""
    radius, f, g = max(1.0, float(np.linalg.norm(x))), oracle.value(x), oracle.gradient(x)
    while np.linalg.norm(g) > tol:
        s, decrease = exact(g, oracle.hessian(x), radius) if dense else truncated(oracle, x, g, radius)
        last = decrease <= 8 * EPS * abs(f)  # f cannot tell any more; the model can
        trial = oracle.value(x + s)
        ratio = 1.0 if last else (f - trial) / decrease
        length = float(np.linalg.norm(s))
        if not ratio >= 0.25:
            radius = length / 4
        elif ratio > 0.75 and length > 0.9 * radius:
            radius *= 2
        if ratio > 1e-4:
            x, f, g = x + s, trial, oracle.gradient(x + s)
        watch(x)
        if last or radius <= EPS * np.linalg.norm(x):
            return "rounding"
    return "gradient"


def exact(g: np.ndarray, B: np.ndarray, radius: float) -> tuple[np.ndarray, float]:
    """The minimizer of g's + 1/2 s'Bs over |s| <= radius, and the decrease there."""
    try:
        s = -scipy.linalg.cho_solve(scipy.linalg.cho_factor(B), g)
        if np.linalg.norm(s) <= radius:
            return s, float(-0.5 * (g @ s))
    except np.linalg.LinAlgError:
        pass  # not positive definite
    w, V = np.linalg.eigh(B)
    c, up = V.T @ g, w + max(0.0, -w[0])  # B shifted until it is positive semidefinite

    def length(t: float) -> float:
        return float(np.linalg.norm(c / (up + np.exp(t))))

    least = np.log(EPS * max(abs(w[0]), abs(w[-1])) + np.finfo(float).tiny)
    if length(least) <= radius:
        z = -c / (up + np.exp(least))
        if w[0] < 0:  # the hard case: the rest goes along the lowest eigenvector
            z[0] = -np.copysign(np.sqrt(max(radius**2 - z[1:] @ z[1:], 0.0)), c[0])
    else:
        most = np.log(2 * np.linalg.norm(c) / radius)
        z = -c / (up + np.exp(scipy.optimize.brentq(lambda t: 1 / radius - 1 / length(t), least, most)))
    return V @ z, float(-(c @ z + 0.5 * (w * z) @ z))


def truncated(oracle: Any, x: np.ndarray, g: np.ndarray, radius: float) -> tuple[np.ndarray, float]:
    """Steihaug's conjugate gradients on g's + 1/2 s'Bs, |s| <= radius, to min(1/2, sqrt |g|) |g|; and the decrease."""
    s, Bs, r, p = np.zeros_like(g), np.zeros_like(g), g, -g
    size = np.linalg.norm(g)
    for _ in range(10 * len(g)):
        Bp = oracle.hessian_product(x, p)
        curvature = p @ Bp
        step = (r @ r) / curvature if curvature > 0 else np.inf
        if curvature <= 0 or np.linalg.norm(s + step * p) >= radius:  # to the boundary along p
            a, b, c = p @ p, s @ p, s @ s - radius**2
            step = (-b + np.sqrt(max(b * b - a * c, 0.0))) / a
            s, Bs = s + step * p, Bs + step * Bp
            break
        s, Bs, before = s + step * p, Bs + step * Bp, r @ r
        r = r + step * Bp
        if np.linalg.norm(r) <= min(0.5, np.sqrt(size)) * size:
            break
        p = -r + (r @ r / before) * p
    return s, float(-(g @ s + 0.5 * (s @ Bs)))
