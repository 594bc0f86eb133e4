"""a9a with the paper's loss: all-oracle epochs to a gap of 1e-10, default STM against SCR with the same rules.

    python -m benchmarks.a9a [--seeds 10]

Epochs count every value, gradient, formed Hessian and third-derivative product, over n. The gap is to the best value
of any run here, checked against SciPy's trust-exact.
"""

from __future__ import annotations

import argparse
from typing import Any

import numpy as np
import scipy
import scipy.optimize

import tercet
from benchmarks.data import load

PENALTIES = (1e-3, 1e-6, 3.07e-8)
SCALES = (0.0, 1.0, 3.0)
GAP = 1e-10


def reference(problem: tercet.LinearModel) -> float:
    """The minimum by SciPy's trust-exact from zero, to |g| <= 1e-12."""
    view = problem.over(None)
    run = scipy.optimize.minimize(
        lambda x: view.at(x).value(),
        np.zeros(problem.d),
        jac=lambda x: view.at(x).gradient(),
        hess=lambda x: view.at(x).hessian(),
        method="trust-exact",
        options={"gtol": 1e-12, "maxiter": 500},
    )
    return float(run.fun)


def epochs_to_gap(problem: tercet.LinearModel, method: Any, x0: np.ndarray, seed: int, lowest: float) -> float:
    """All evaluations until the full objective is within the gap, nan where it never is; watching is not counted."""
    view, reached = problem.over(None), []

    def watch(info: tercet.Info) -> None:
        if not reached and view.at(info.x).value() - lowest <= GAP:
            reached.append(info.epochs)

    result = tercet.minimize(problem, x0, method=method, seed=seed, callback=watch)
    if not result.success:
        print("not certified:", result.message)
    return reached[0] if reached else np.nan


def main() -> None:
    """A table over penalties and starts, then the ratios."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seeds", type=int, default=10)
    seeds = parser.parse_args().seeds
    X, y = load("a9a")
    print(f"tercet {tercet.__version__}, SciPy {scipy.__version__}; mean epochs to {GAP} over {seeds} seeds [min, max]")
    ratios, worst = [], {}
    for l2 in PENALTIES:
        problem = tercet.LinearModel(X, y, "sigmoid_squares", l2=l2)
        lowest = reference(problem)
        for scale in SCALES:
            rows = {}
            for name, method in (("STM", tercet.STM()), ("SCR", tercet.SCR())):
                rows[name] = np.array(
                    [
                        epochs_to_gap(
                            problem,
                            method,
                            scale * np.random.default_rng([seed, 7]).standard_normal(problem.d),
                            seed,
                            lowest,
                        )
                        for seed in range(seeds)
                    ]
                )
            stm, scr = rows["STM"], rows["SCR"]
            ratios.append(stm.mean() / scr.mean())
            worst[l2] = max(worst.get(l2, 0.0), stm.mean())
            print(
                f"l2 {l2:<9g} start {scale:g} N(0, I)   STM {stm.mean():5.1f} [{stm.min():.1f}, {stm.max():.1f}]   "
                f"SCR {scr.mean():5.1f} [{scr.min():.1f}, {scr.max():.1f}]   STM / SCR {ratios[-1]:.2f}   "
                f"reached {int(np.isfinite(stm).sum())}/{seeds}",
                flush=True,
            )
    print("worst start by l2:", ", ".join(f"{l2:g}: {epochs:.1f}" for l2, epochs in worst.items()))
    print(f"STM / SCR: geometric mean {np.exp(np.mean(np.log(ratios))):.3f}, largest {max(ratios):.3f}")


if __name__ == "__main__":
    main()
