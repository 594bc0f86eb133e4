"""The paper's own settings on its three data sets: 100 iterations, gradient descent inside, 5 % samples.

    python -m benchmarks.paper

Shows that nothing crashes, that sigma does not run away, and what the status says when progress ends at the noise.
"""

from __future__ import annotations

import numpy as np

import tercet
from benchmarks.data import FILES, load


def main() -> None:
    """One line per data set and method."""
    for name in FILES:
        X, y = load(name)
        problem = tercet.LinearModel(X, y, "sigmoid_squares", l2=1e-3)
        lowest = tercet.minimize(problem).fun
        x0 = np.random.default_rng(0).standard_normal(problem.d)
        for label, method in (("STM", tercet.STM.paper()), ("SCR", tercet.SCR.paper())):
            r = tercet.minimize(problem, x0, method=method, max_iterations=100)
            sigma = r.trace["sigma"]
            print(
                f"{name:<10} {label}  iterations {r.nit:>3}  gap {r.fun - lowest:.1e}  sigma {sigma.min():.1e} to "
                f"{sigma.max():.1e}  epochs {r.counts.epochs:7.1f}  {r.status.name}: {r.message[:110]}",
                flush=True,
            )


if __name__ == "__main__":
    main()
