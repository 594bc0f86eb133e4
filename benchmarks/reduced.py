"""Epochs to a gap of 1e-8 with samples of 5 %: variance reduction, and the methods of others that have it.

    python -m benchmarks.reduced [--data svmguide3 a9a covtype] [--starts 10] [--peers 3]

The paper's loss, l2 = 1e-3 on the mean, starts from N(0, I). All evaluations count, f too. The gap is to the minimum of
the basin that a run ends in; what it takes to look at it is not counted. SVRG, SAGA and SVRC have the best of a grid:
of batches, steps and, for SVRG, passes between anchors; for SVRC, with the schedule of its paper, of the factors before
its lengths and batches, and of the penalty and its decay. "SCR, reduced" is our samples with a second-order model.
"""

from __future__ import annotations

import argparse
import itertools
from collections.abc import Iterator
from functools import partial
from typing import Any

import numpy as np

import tercet
from benchmarks.data import FILES, load
from tercet.experiments.baselines import SAGA, SVRC, SVRG

GAP = 1e-8
BATCHES = (0.01, 0.0025)
# of SVRC: factors before T and its two batches, penalties, decays
SCHEDULES = ((0.5, 1.0, 2.0), (0.03, 0.1, 0.3, 1.0), (0.3, 1.0, 3.0), (0.01, 0.1, 1.0), (0.0, 1.0))
STEPS = (1.0, 2.0, 3.0, 5.0, 7.0, 10.0, 14.0, 20.0)
FIXED = tercet.Fixed()
REDUCED = {
    "STM": tercet.STM(),
    "STM, reduced, radius": tercet.STM(FIXED, policy=tercet.Reduced()),
    "SCR, reduced, radius": tercet.SCR(FIXED, policy=tercet.Reduced()),
    "STM, reduced, paper's factors": tercet.STM(FIXED, sigma=tercet.PaperSigma(), policy=tercet.Reduced()),
    "SCR, reduced, paper's factors": tercet.SCR(FIXED, sigma=tercet.PaperSigma(), policy=tercet.Reduced()),
    "the same, f over all terms": tercet.STM(FIXED, sigma=tercet.PaperSigma(), policy=tercet.Reduced(orders=(1,))),
}


def peers(method: str) -> Iterator[tuple[str, Any]]:
    """The grid of SVRG, SAGA or SVRC."""
    if method == "SVRC":
        for factors in itertools.product(*SCHEDULES):
            yield "epoch {:g}, batches {:g} and {:g}, penalty {:g}, decay {:g}".format(*factors), SVRC(*factors)
        return
    for batch, step in itertools.product(BATCHES, STEPS):
        if method == "SAGA":
            yield f"batch {batch:.2%}, step {step:g}", SAGA(round(1 / batch), step)
            continue
        for passes in (1.0, 2.0):
            yield f"batch {batch:.2%}, step {step:g}, {passes:g} passes", SVRG(batch, step, passes)


def start(problem: tercet.LinearModel, k: int) -> np.ndarray:
    """The k-th start."""
    return np.random.default_rng([k, 7]).standard_normal(problem.d)


def epochs(problem: tercet.LinearModel, method: Any, k: int, most: float, every: int = 1) -> tuple[float, bool]:
    """Epochs until the gap is small, infinite where it never is; and whether the end is certified."""
    whole, path = problem.over(None), list[tuple[float, float]]()

    def look(info: Any) -> bool:
        if info.row.iteration % every == 0:
            path.append((whole.at(info.x).value(), info.row.counts.epochs))
        return not path or not path[-1][0] < 10.0

    with np.errstate(all="ignore"):
        result = tercet.minimize(
            problem, start(problem, k), method=method, seed=k, max_iterations=10**7, max_epochs=most, callback=look
        )
        lowest = tercet.minimize(problem, result.x).fun
    return next((paid for f, paid in path if f - lowest <= GAP), np.inf), result.success


def told(values: list[float]) -> str:
    """Mean and standard deviation of those that arrived, and how many did not."""
    there = [v for v in values if np.isfinite(v)]
    lost = f", {len(values) - len(there)} over the budget" if len(there) < len(values) else ""
    return f"{np.mean(there):5.1f} ± {np.std(there):.1f}{lost}" if there else "over the budget"


def merit(values: list[float]) -> tuple[int, float]:
    """How many did not arrive, then what the others took."""
    there = [v for v in values if np.isfinite(v)]
    return len(values) - len(there), float(np.mean(there)) if there else np.inf


def main() -> None:
    """A line for each data set and method."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--data", nargs="+", default=["svmguide3", "a9a", "covtype"], choices=list(FILES))
    parser.add_argument("--starts", type=int, default=10)
    parser.add_argument("--peers", type=int, default=3, help="starts of SVRG, SAGA and SVRC")
    parser.add_argument("--budget", type=float, default=45.0, help="epochs of these")
    options = parser.parse_args()
    for name in options.data:
        X, y = load(name)
        problem = tercet.LinearModel(X, y, "sigmoid_squares", l2=1e-3)
        for label, method in REDUCED.items():
            found = [epochs(problem, method, k, 200.0) for k in range(options.starts)]
            certified = sum(each[1] for each in found)
            print(f"{name:<10} {label:<32} {told([each[0] for each in found])}; {certified} certified", flush=True)
        for method_name in ("SVRG", "SAGA", "SVRC"):
            run = partial(epochs, problem, most=options.budget, every=1 if method_name == "SVRC" else 5)
            tried = [(text, [run(method, k=k)[0] for k in range(options.peers)]) for text, method in peers(method_name)]
            for batch in ("",) if method_name == "SVRC" else (f"batch {batch:.2%}" for batch in BATCHES):
                text, costs = min((t for t in tried if t[0].startswith(batch)), key=lambda t: merit(t[1]))
                print(f"{name:<10} {method_name:<8} {text:<32} {told(costs)}", flush=True)


if __name__ == "__main__":
    main()
