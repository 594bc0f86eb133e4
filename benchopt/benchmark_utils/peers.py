"""A method of SciPy under benchopt's callback."""

from __future__ import annotations

from typing import Any

import numpy as np
import scipy.optimize
from benchmark_utils.sums import SigmoidSquares


def run_scipy(solver: Any, problem: SigmoidSquares, callback: Any, method: str, **given: Any) -> None:
    """Minimize from 0 and keep every iterate in `solver.x`, until the callback has enough."""
    solver.x = np.zeros(problem.d)

    def see(x: Any) -> None:
        solver.x = np.array(x)
        if not callback():
            raise StopIteration

    if callback():
        scipy.optimize.minimize(problem.value, solver.x, jac=problem.gradient, method=method, callback=see, **given)
