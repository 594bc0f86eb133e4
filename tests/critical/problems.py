"""Functions whose minimizers are known exactly, with their derivatives written down: f, grad, hess, third at x0."""

from dataclasses import dataclass
from fractions import Fraction
from typing import Any

import numpy as np

import tercet


@dataclass(frozen=True, eq=False)
class Known:
    """A problem for `minimize`, its start, and its minimizer to all digits."""

    fun: Any
    derivatives: dict[str, Any]
    x0: np.ndarray
    minimizer: np.ndarray

    def minimize(self, **settings):
        return tercet.minimize(self.fun, self.x0, **self.derivatives, **settings)

    def digits(self, x):
        """Of the x_j that are right, an x_j that is 0 measured by how far it was at the start."""
        away = np.where(self.minimizer == 0.0, np.abs(self.x0), np.abs(self.minimizer))
        worst = np.max(np.abs(x - self.minimizer) / away)
        return 16.0 if worst == 0.0 else min(16.0, -np.log10(worst))


def solve(A, b):
    """A^-1 b for whole numbers, by fractions."""
    rows = [[Fraction(int(a)) for a in row] + [Fraction(int(c))] for row, c in zip(A, b, strict=True)]
    d = len(rows)
    for k in range(d):
        pivot = next(i for i in range(k, d) if rows[i][k] != 0)
        rows[k], rows[pivot] = rows[pivot], rows[k]
        rows[k] = [a / rows[k][k] for a in rows[k]]
        for i in range(d):
            if i != k and rows[i][k] != 0:
                rows[i] = [a - rows[i][k] * c for a, c in zip(rows[i], rows[k], strict=True)]
    return np.array([float(row[-1]) for row in rows])


def regression(seed):
    """Least squares on whole numbers, columns in units from 1 to 10^6, some nearly collinear."""
    rng = np.random.default_rng(seed)
    n, d = int(rng.integers(6, 25)), int(rng.integers(1, 5))
    X = rng.integers(-9, 10, (n, d))
    if d > 1 and seed % 3 == 0:
        X[:, 1] = 10 ** int(rng.integers(1, 5)) * X[:, 0] + X[:, 1]
    X = X * 10 ** rng.integers(0, 7, d)
    X[:d] += np.eye(d, dtype=int)
    y = rng.integers(-99, 100, n)
    minimizer = solve(X.astype(object).T @ X, X.astype(object).T @ y)
    return Known(tercet.LinearModel(X.astype(float), y.astype(float), "squares"), {}, rng.standard_normal(d), minimizer)


def quadratic(seed):
    """1/2 x'Hx - b'x in whole numbers times a scale, with a constant: condition numbers up to 1e10."""
    rng = np.random.default_rng(seed)
    d = int(rng.integers(1, 6))
    L = np.triu(rng.integers(-5, 6, (d, d)), 1) + np.diag(10 ** rng.integers(0, 6, d))
    H, b = L.astype(object).T @ L, rng.integers(-9, 10, d)
    if all(b == 0):
        b[0] = 1
    minimizer, scale, c = solve(H, b), 10.0 ** rng.integers(-12, 13), float(rng.integers(-5, 6))
    H = H.astype(float)
    parts = {
        "grad": lambda x: scale * (H @ x - b),
        "hess": lambda x: scale * H,
        "third": lambda x: np.zeros((d,) * 3),
    }
    return Known(lambda x: scale * (x @ H @ x / 2 - b @ x + c), parts, rng.standard_normal(d), minimizer)


def polynomial(seed):
    """sum_i w_i ((l_i'(x - m))^2 + c (l_i'(x - m))^3 + (l_i'(x - m))^4), strict at m: 1 + ct + t^2 > 0."""
    rng = np.random.default_rng(seed)
    d = int(rng.integers(1, 6))
    L = rng.standard_normal((d, d)) + 2 * np.eye(d)
    w, c = 10.0 ** rng.uniform(-4, 4, d), rng.uniform(-1, 1, d)
    m = rng.standard_normal(d) * 10.0 ** rng.integers(-3, 4, d)
    t = lambda x: L @ (x - m)  # noqa: E731 - a formula with a name
    parts = {
        "grad": lambda x: L.T @ (w * (2 * t(x) + 3 * c * t(x) ** 2 + 4 * t(x) ** 3)),
        "hess": lambda x: L.T @ ((w * (2 + 6 * c * t(x) + 12 * t(x) ** 2))[:, None] * L),
        "third": lambda x: np.einsum("i,ia,ib,ic->abc", w * (6 * c + 24 * t(x)), L, L, L),
    }
    fun = lambda x: float(w @ (t(x) ** 2 + c * t(x) ** 3 + t(x) ** 4))  # noqa: E731 - a formula with a name
    return Known(fun, parts, m + rng.standard_normal(d), m)


def singular(seed):
    """sum_i w_i (l_i'(x - m))^p, p = 2 or 4 and at least one 4: a strict minimum whose Hessian is singular."""
    rng = np.random.default_rng(seed)
    d = int(rng.integers(1, 5))
    L, w = rng.standard_normal((d, d)) + 2 * np.eye(d), 10.0 ** rng.uniform(-3, 3, d)
    p = np.where(np.arange(d) < max(1, rng.integers(0, d + 1)), 4, 2)
    m = rng.standard_normal(d) * 10.0 ** rng.integers(-2, 3, d)
    t = lambda x: L @ (x - m)  # noqa: E731 - a formula with a name
    parts = {
        "grad": lambda x: L.T @ (w * p * t(x) ** (p - 1)),
        "hess": lambda x: L.T @ ((w * p * (p - 1) * t(x) ** (p - 2))[:, None] * L),
        "third": lambda x: np.einsum("i,ia,ib,ic->abc", w * np.where(p == 4, 24 * t(x), 0.0), L, L, L),
    }
    return Known(lambda x: float(w @ t(x) ** p), parts, m + rng.standard_normal(d), m)


def silent(seed):
    """log sum_i exp(x_0 + l_i'u) - x_0 - k'u, and |((x_0 + L u) - x_0) - y|^2 / 2: f does not depend on x_0, and
    what is computed of it along x_0 is rounding. Its minimizer is not known; 0 stands for it."""
    rng = np.random.default_rng(seed)
    m, d = int(rng.integers(3, 7)), int(rng.integers(1, 4))
    L, y = rng.standard_normal((m, d)), rng.standard_normal(m)
    x0 = rng.standard_normal(d + 1) * (seed % 3 > 0)
    x0[0] *= 10.0 ** rng.integers(0, 3)
    if seed % 2:
        r = lambda x: ((x[0] + L @ x[1:]) - x[0]) - y  # noqa: E731 - a formula with a name
        J = lambda x: np.column_stack([np.full(m, ((1.0 + x[0]) - x[0]) - 1.0), L])  # noqa: E731 - the same
        parts = {"grad": lambda x: J(x).T @ r(x), "hess": lambda x: J(x).T @ J(x)}
        return Known(lambda x: float(r(x) @ r(x) / 2), parts, x0, np.zeros(d + 1))
    A = np.column_stack([np.ones(m), L])
    k = rng.dirichlet(np.ones(m)) @ A
    k[0] = 1.0
    p = lambda x: np.exp(A @ x - np.log(np.sum(np.exp(A @ x))))  # noqa: E731 - a formula with a name
    parts = {"grad": lambda x: A.T @ p(x) - k, "hess": lambda x: A.T @ (np.diag(p(x)) @ (A - p(x) @ A))}
    return Known(lambda x: float(np.log(np.sum(np.exp(A @ x))) - k @ x), parts, x0, np.zeros(d + 1))
