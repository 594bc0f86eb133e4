"""The objective with its derivatives, as one writes them with NumPy and SciPy."""

from __future__ import annotations

from typing import Any

import numpy as np
import scipy.sparse as sp
from scipy.special import expit

STEEPEST = 0.0771  # above the largest second derivative of a term in its margin


def second_derivative(p: Any, y: Any) -> Any:
    """l'' of l = 1/2 (p - y)^2 in the margin: p (1-p) (p (1-p) + (p - y) (1-2p))."""
    slope = p * (1 - p)
    return slope * (slope + (p - y) * (1 - 2 * p))


class SigmoidSquares:
    """f(x) = (1/n) sum 1/2 (p_i - y_i)^2 + l2/2 |x|^2 with p = 1 / (1 + exp(-Xx)); the last point's p is kept."""

    def __init__(self, X: Any, y: Any, l2: float):
        self.X, self.y, self.l2 = X, np.asarray(y, dtype=float), l2
        self.n, self.d = X.shape
        self._x: Any = None

    def p(self, x: Any) -> Any:
        """The probabilities at x."""
        if self._x is None or not np.array_equal(x, self._x):
            self._x, self._p = np.array(x), expit(self.X @ x)
        return self._p

    def value(self, x: Any) -> float:
        """f(x)."""
        return float(0.5 * np.mean((self.p(x) - self.y) ** 2) + 0.5 * self.l2 * (x @ x))

    def gradient(self, x: Any) -> Any:
        """X'(r p (1-p))/n + l2 x with r = p - y."""
        p = self.p(x)
        return self.X.T @ ((p - self.y) * p * (1 - p)) / self.n + self.l2 * x

    def curvatures(self, x: Any) -> Any:
        """The second derivative of each term in its margin."""
        return second_derivative(self.p(x), self.y)

    def hessian(self, x: Any) -> Any:
        """X' diag(c) X / n + l2 I, dense."""
        c = self.curvatures(x)[:, None]
        B = self.X.T @ (self.X.multiply(c).tocsr() if sp.issparse(self.X) else c * self.X)
        return (B.toarray() if sp.issparse(B) else B) / self.n + self.l2 * np.eye(self.d)

    def hessian_product(self, x: Any, v: Any) -> Any:
        """X'(c Xv)/n + l2 v."""
        return self.X.T @ (self.curvatures(x) * (self.X @ v)) / self.n + self.l2 * v

    def lipschitz(self) -> float:
        """A bound on |hess f|: the largest eigenvalue of X'X/n times STEEPEST, plus l2."""
        gram = self.X.T @ self.X
        return (
            STEEPEST * float(np.linalg.eigvalsh(gram.toarray() if sp.issparse(gram) else gram)[-1]) / self.n + self.l2
        )
