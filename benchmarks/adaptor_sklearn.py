"""Rows of `benchmarks.adaptors`: `fit` of the estimators against `minimize` on the same problem and seed, on a9a."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

import tercet
from benchmarks.data import load
from tercet.sklearn import RobustClassifier, RobustRegressor
from tercet.sklearn.common import seed_of
from tercet.sklearn.regressor import spread

Row = tuple[str, Callable[[], Any], Callable[[], Any]]


def rows() -> list[Row]:
    """(name, native, adapted) for two losses of each kind, on CSR and dense data; both calls give x."""
    X, y = load("a9a")
    table = []
    for kind, A in (("CSR", X), ("dense", X.toarray())):
        for loss, l2 in (("sigmoid_squares", 1e-3), ("sigmoid_squares", 1e-6), ("logistic", 1e-3)):
            table.append(classification(f"{loss} l2={l2:g}, {kind}", A, y, loss, l2))
        for loss in ("squares", "cauchy"):
            table.append(regression(f"{loss} l2=1e-3, {kind}", A, y, loss, 1e-3))
    return table


def classification(name: str, X: Any, y: np.ndarray, loss: str, l2: float) -> Row:
    estimator = RobustClassifier(loss, l2=l2, random_state=0)

    def native() -> np.ndarray:
        problem = tercet.LinearModel(X, y, loss, l2=l2, intercept=True)
        return tercet.minimize(problem, seed=seed_of(estimator)).x

    return name, native, lambda: estimator.fit(X, y).result_.x


def regression(name: str, X: Any, y: np.ndarray, loss: str, l2: float) -> Row:
    """The robust losses begin at the solution of least squares, also natively; their scale is 1."""
    estimator = RobustRegressor(loss, scale=None if loss == "squares" else 1.0, l2=l2, random_state=0)
    unit = spread(y, None)

    def native() -> np.ndarray:
        seed = seed_of(estimator)
        squares = tercet.LinearModel(X, y / unit, "squares", l2=l2, intercept=True)
        x = tercet.minimize(squares, seed=seed).x
        if loss == "squares":
            return x
        problem = tercet.LinearModel(X, y, loss, l2=l2, intercept=True)
        return tercet.minimize(problem, unit * x, seed=seed).x

    return name, native, lambda: estimator.fit(X, y).result_.x
