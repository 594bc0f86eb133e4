"""scikit-learn's solvers of the logistic loss, which tell nothing on their way: one fit for each tolerance."""

from __future__ import annotations

import time
import warnings
from collections.abc import Callable

import numpy as np
from sklearn.linear_model import LogisticRegression

from benchmarks.speed.contenders import Contender, Path, Task
from benchmarks.speed.oracles import ORDERS

SOLVERS = ("lbfgs", "newton-cg", "newton-cholesky")
TOLERANCES = tuple(10.0**-k for k in range(2, 14, 2))


def run_sklearn(solver: str) -> Callable[[Task], Path]:
    """Fits with smaller and smaller tolerance; each point of the path is a fit of its own, with its own seconds.

    scikit-learn minimizes C sum l + 1/2 |w|^2, so that C = 1 / (n l2). It starts at zero. Epochs are not known.
    """

    def run(task: Task) -> Path:
        path, X, y = Path(), task.plain.X, task.plain.y
        unknown = dict.fromkeys(ORDERS, np.nan)
        begin = time.perf_counter()
        for tol in TOLERANCES:
            model = LogisticRegression(
                C=1.0 / (len(y) * task.plain.l2), solver=solver, tol=tol, max_iter=3000, fit_intercept=False
            )
            fit_begin = time.perf_counter()
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")
                model.fit(X, y)
            x = model.coef_.ravel()
            path.add(time.perf_counter() - fit_begin, x, unknown, task.plain.at(x).value())
            if path.values[-1] - task.lowest <= 1e-10 or time.perf_counter() - begin > task.cap:
                break
        path.total = time.perf_counter() - begin
        path.capped = not path.values[-1] - task.lowest <= 1e-10
        path.ended = f"tol {tol:g}"
        return path

    return run


def learners() -> list[Contender]:
    """The three solvers that suit the problem."""
    return [Contender(f"sklearn {solver}", "sklearn", run_sklearn(solver)) for solver in SOLVERS]
