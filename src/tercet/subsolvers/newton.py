"""A trust-region Newton method on a dense model, started at s = 0 and unable to jump.

The minimizer of the cubic-plus-quartic model jumps as sigma varies; the far branch gives useless, huge steps. So the
first radius is the first minimizer of the model along -g, and no step is more than twice the one before.
"""

from __future__ import annotations

import numpy as np

from tercet.model import DenseModel, power_of
from tercet.records import Vector
from tercet.subsolvers.spectral import Tridiagonal


def minimize_model(
    model: DenseModel, theta: float, relative: float, radius: float = np.inf, iterations: int = 100
) -> tuple[Vector, int]:
    """An approximate minimizer of the model on the branch of s = 0 within the radius, and the iterations it took.

    It is good enough when |grad m| <= theta |s|^3 and |grad m| <= relative |g|.
    """
    s = np.zeros_like(model.g)
    value, gradient = 0.0, model.g
    reach, norm = first_reach(model, radius), float(np.linalg.norm(model.g))
    for iteration in range(iterations):
        room = radius - float(np.linalg.norm(s))
        small = min(relative * norm, theta * power_of(float(np.linalg.norm(s)), 3))
        if np.linalg.norm(gradient) <= small or float(np.linalg.norm(s)) >= 0.999 * radius:
            return s, iteration
        step, forecast = trust_step(model, s, gradient, min(reach, room))
        trial = s + step
        new = model.value(trial)
        ratio = (value - new) / forecast if forecast > 0 else 0.0
        length = float(np.linalg.norm(step))
        # Near rounding the values no longer tell; a smaller gradient does.
        flat = forecast <= 1e-13 * abs(value)
        if ratio < 0.1 and not (flat and np.linalg.norm(model.gradient(trial)) < np.linalg.norm(gradient)):
            if flat or length <= 1e-15 * float(np.linalg.norm(s)):
                return s, iteration
            reach = 0.25 * length
            continue
        reach = 2.0 * length if ratio > 0.75 else (0.5 * length if ratio < 0.25 else length)
        s, value, gradient = trial, new, model.gradient(trial)
    return s, iterations


def first_reach(model: DenseModel, radius: float) -> float:
    """The first minimizer of the model along -g, at most `radius`."""
    norm = float(np.linalg.norm(model.g))
    if norm == 0.0:
        return min(1.0, radius)
    u = -model.g / norm
    bend = 0.0 if model.T is None else float(u @ (model.T @ u) @ u)
    sigma, power = model.regularizer.sigma, model.regularizer.power
    # derivative along u: sigma t^(p-1) + bend/2 t^2 + u'Bu t - |g|
    slope = [0.0] * (power - 3) + [bend / 2, float(u @ model.B @ u), -norm]
    slope[0] += sigma
    roots = np.roots(slope)
    real = roots[np.abs(roots.imag) <= 1e-8 * np.abs(roots)].real
    real = real[real > 0]
    return min(float(real.min()) if real.size else 1.0, radius)


def trust_step(model: DenseModel, s: Vector, gradient: Vector, reach: float) -> tuple[Vector, float]:
    """The minimizer of the model's own quadratic Taylor polynomial at s within the reach, and its decrease."""
    H = model.hessian(s)
    step, _ = Tridiagonal.of(H).minimize(gradient, 0.0, 3, reach)
    return step, -float(gradient @ step + 0.5 * (step @ H @ step))
