"""Derivative code: ours, and what a user would write with SciPy alone, both behind a cache of one point."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

import numpy as np
import scipy.sparse as sp
from scipy.special import expit

ORDERS = ("value", "gradient", "hessian", "third")


class Enough(Exception):  # noqa: N818 - it ends a run, it is no error
    """The run is close enough to the minimum, or its time is up."""


@dataclass(eq=False)
class PlainModel:
    """A linear model as a user writes it with NumPy and SciPy: CSR or dense products, `expit`, nothing compiled."""

    X: Any
    y: np.ndarray
    l2: float
    loss: str = "sigmoid_squares"

    def at(self, w: np.ndarray) -> PlainPoint:
        """The model at w; nothing is computed yet."""
        return PlainPoint(self, w)


@dataclass(eq=False)
class PlainPoint:
    """The model at one w: the margins are shared by value, gradient and Hessian."""

    model: PlainModel
    w: np.ndarray

    @cached_property
    def margins(self) -> np.ndarray:
        """z = Xw."""
        return self.model.X @ self.w

    @cached_property
    def p(self) -> np.ndarray:
        """1 / (1 + exp(-z))."""
        return expit(self.margins)

    @cached_property
    def curvatures(self) -> np.ndarray:
        """l'' of each row."""
        p, q = self.p, self.p * (1 - self.p)
        return q if self.model.loss == "logistic" else q * q + (p - self.model.y) * q * (1 - 2 * p)

    def value(self) -> float:
        """The mean loss and l2/2 |w|^2."""
        y, z = self.model.y, self.margins
        losses = np.logaddexp(0, z) - y * z if self.model.loss == "logistic" else 0.5 * (self.p - y) ** 2
        return float(np.mean(losses) + 0.5 * self.model.l2 * (self.w @ self.w))

    def gradient(self) -> np.ndarray:
        """X'l' / n + l2 w."""
        p, y = self.p, self.model.y
        slopes = p - y if self.model.loss == "logistic" else (p - y) * p * (1 - p)
        return self.model.X.T @ slopes / len(y) + self.model.l2 * self.w

    def hessian(self) -> np.ndarray:
        """X' diag(l'') X / n + l2 I, dense."""
        X, c = self.model.X, self.curvatures
        B = (X.T @ (sp.diags_array(c) @ X)).toarray() if sp.issparse(X) else X.T @ (c[:, None] * X)
        B /= len(c)
        B[np.diag_indices_from(B)] += self.model.l2
        return B

    def product(self, order: int, v: np.ndarray) -> np.ndarray:
        """X'(l'' * Xv) / n + l2 v."""
        X, c = self.model.X, self.curvatures
        return X.T @ (c * (X @ v)) / len(c) + self.model.l2 * v


@dataclass(eq=False)
class Oracle:
    """f, g, B and Bv for `scipy.optimize` from any `at(x)`; remembers the last x, counts, and says when to end.

    The calls raise `Enough` past the `deadline`; `done` tells that a value within `margin` of `lowest` was seen.
    """

    at: Callable[[np.ndarray], Any]
    deadline: float = np.inf
    lowest: float = -np.inf
    margin: float = 0.0
    done: bool = False
    x: np.ndarray | None = None
    point: Any = None
    seen: tuple[np.ndarray, float] | None = None  # where f was asked for last, and f there
    tally: dict[str, int] = field(default_factory=lambda: dict.fromkeys(ORDERS, 0))

    def here(self, x: np.ndarray, order: str) -> Any:
        """The point at x, the same object while x stays."""
        if time.perf_counter() > self.deadline:
            raise Enough
        self.tally[order] += 1
        if self.x is None or not np.array_equal(x, self.x):
            self.x = np.array(x, dtype=float)
            self.point = self.at(self.x)
        return self.point

    def value(self, x: np.ndarray) -> float:
        """f(x)."""
        f = self.here(x, "value").value()
        self.done = self.done or f - self.lowest <= self.margin
        self.seen = (self.x, f)
        return f

    def known(self, x: np.ndarray) -> float | None:
        """f(x) if that was asked for last."""
        return self.seen[1] if self.seen is not None and np.array_equal(self.seen[0], x) else None

    def gradient(self, x: np.ndarray) -> np.ndarray:
        """grad f(x)."""
        return self.here(x, "gradient").gradient()

    def hessian(self, x: np.ndarray) -> np.ndarray:
        """hess f(x), dense."""
        return self.here(x, "hessian").hessian()

    def hessian_product(self, x: np.ndarray, v: np.ndarray) -> np.ndarray:
        """hess f(x) v."""
        return self.here(x, "hessian").product(2, v)


def pass_seconds(model: PlainModel, x: np.ndarray, budget: float = 0.02, least: int = 3, most: int = 15) -> list[float]:
    """Seconds of single f+gradient passes of the plain model at x: as many as fit the budget, within the limits."""
    taken: list[float] = []
    while len(taken) < least or (sum(taken) < budget and len(taken) < most):
        begin = time.perf_counter()
        point = model.at(x)
        point.value()
        point.gradient()
        taken.append(time.perf_counter() - begin)
    return taken
