"""Degenerate starts: from a second-order point that is no minimum, who gets away?

    python -m benchmarks.degenerate [--seeds 20]

Each problem is started exactly at, and 1e-6 beside, its degenerate point, as a deterministic function and as a sampled
finite sum. STM must reach a lower point whose certificate holds, for every seed; SciPy's trust-exact, given the same
derivatives, stays. At the genuine flat minimum STM must stop with success.
"""

from __future__ import annotations

import argparse

import jax
import numpy as np
import scipy
import scipy.optimize

import tercet
from benchmarks.problems.degenerate import PROBLEMS, Degenerate


def starts(problem: Degenerate, seeds: int) -> list[np.ndarray]:
    """The degenerate point itself, and points 1e-6 beside it in random directions."""
    beside = []
    for seed in range(seeds):
        y = np.random.default_rng(seed).standard_normal(problem.start.shape)
        beside.append(problem.start + 1e-6 * y / np.linalg.norm(y))
    return [problem.start, *beside]


def judge(problem: Degenerate, result: tercet.Result, f0: float) -> bool:
    """A lower point with a certificate that holds; at a genuine minimum the certificate alone."""
    lower = result.fun < f0 - 1e-6 if problem.degenerate else result.fun <= f0 + 1e-12
    return bool(lower and result.success)


def trust_exact_leaves(problem: Degenerate, start: np.ndarray) -> bool:
    """Whether SciPy's trust-exact gets below the start from there."""
    with jax.enable_x64(True):
        f, g, h = jax.jit(problem.fun), jax.jit(jax.grad(problem.fun)), jax.jit(jax.hessian(problem.fun))
        call = [lambda x, k=k: np.asarray(k(x), dtype=float) for k in (f, g, h)]
        run = scipy.optimize.minimize(
            call[0], start, jac=call[1], hess=call[2], method="trust-exact", options={"gtol": 1e-8}
        )
        return bool(run.fun < float(call[0](start)) - 1e-6)


def main() -> None:
    """Run all and print one line per problem."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seeds", type=int, default=20)
    seeds = parser.parse_args().seeds
    print(f"tercet {tercet.__version__}, SciPy {scipy.__version__}, {seeds} seeds; good runs of all runs")
    print(f"{'problem':<16}{'function at':>12}{'beside':>10}{'sum at':>10}{'sum beside':>12}   trust-exact at / beside")
    bad = 0
    for problem in PROBLEMS:
        total = tercet.FiniteSum(problem.loss, problem.data)
        points = starts(problem, seeds)
        cells, scipy_leaves = [], [trust_exact_leaves(problem, x) for x in points]
        for target in (problem.fun, total):
            with jax.enable_x64(True):
                f0 = float(problem.fun(points[0]) if target is problem.fun else mean_loss(problem, points[0]))
            # Every seed draws other samples; a deterministic function has none, so its exact start is run once.
            exact = [(points[0], seed) for seed in range(1 if target is problem.fun else seeds)]
            beside = [(x, seed) for seed, x in enumerate(points[1:])]
            for runs in (exact, beside):
                good = [judge(problem, tercet.minimize(target, x, seed=seed), f0) for x, seed in runs]
                bad += len(good) - sum(good)
                cells.append(f"{sum(good)}/{len(good)}")
        print(
            f"{problem.name:<16}{cells[0]:>12}{cells[1]:>10}{cells[2]:>10}{cells[3]:>12}   "
            f"{'leaves' if scipy_leaves[0] else 'stays'} / leaves {sum(scipy_leaves[1:])} of {seeds}",
            flush=True,
        )
    print("every run as promised" if bad == 0 else f"{bad} runs broke the promise")


def mean_loss(problem: Degenerate, x: np.ndarray) -> jax.Array:
    """The finite sum at x, in one go."""
    return jax.vmap(lambda *example: problem.loss(x, *example))(*problem.data).mean()


if __name__ == "__main__":
    main()
