"""For `benchmarks.scale`: the passes of a run as they come, and L-BFGS over the same sums."""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import numpy as np
import scipy.optimize

from tercet.objectives.sharded import ShardedLinearModel
from tercet.objectives.sharded.point import ShardedPoint
from tercet.objectives.sharded.sums import Value

ROUNDS = 100  # of L-BFGS at the most


@contextmanager
def recorded() -> Iterator[list[tuple[int, float, float]]]:
    """Every pass of a run that gives f: the number of passes so far, f and the clock."""
    seen: list[tuple[int, float, float]] = []
    plain = ShardedPoint.sweep

    def sweep(self: Any, *sums: Any) -> Any:
        total = plain(self, *sums)
        if isinstance(sums[0], Value):
            f = total[0] / self.model.n + self.model.penalty.value(self.x)
            seen.append((self.model.traffic.rounds, f, time.perf_counter()))
        return total

    ShardedPoint.sweep = sweep  # type: ignore[method-assign] # watched for this run
    try:
        yield seen
    finally:
        ShardedPoint.sweep = plain  # type: ignore[method-assign] # as it was


def reached(seen: list[tuple[int, float, float]], target: float, start: float) -> tuple[float, float]:
    """Passes and seconds to a value; inf where it was never reached."""
    return next(((float(k), t - start) for k, f, t in seen if f <= target), (np.inf, np.inf))


def lbfgs(model: ShardedLinearModel, target: float) -> tuple[float, float]:
    """Passes and seconds of SciPy's L-BFGS-B over our own sums, one pass a look at f and its gradient."""
    start, passes = time.perf_counter(), [0]

    class ReachedError(Exception):
        pass

    def look(x: np.ndarray) -> tuple[float, np.ndarray]:
        passes[0] += 1
        f, g = model.over(None).at(x).first()
        if f <= target:
            raise ReachedError
        return f, g

    try:
        options = {"maxiter": ROUNDS, "maxfun": ROUNDS, "ftol": 0.0, "gtol": 0.0, "maxcor": 20}
        scipy.optimize.minimize(look, np.zeros(model.d), jac=True, method="L-BFGS-B", options=options)
    except ReachedError:
        return float(passes[0]), time.perf_counter() - start
    return np.inf, time.perf_counter() - start
