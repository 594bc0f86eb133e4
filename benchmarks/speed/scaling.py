"""How the time of STM grows with n: generated dense data with 50 columns, n doubling up to 4 x 10^6."""

from __future__ import annotations

import time
from typing import Any

import numpy as np

import tercet
from benchmarks.speed.cases import STARTS, dense_data, penalty, start_at
from benchmarks.speed.contenders import Task, run_ours
from benchmarks.speed.measure import model, prepared
from benchmarks.speed.oracles import pass_seconds
from benchmarks.speed.paths import settling, values_on
from benchmarks.speed.progress import Progress

FULL_SIZES = tuple(125_000 * 2**k for k in range(6))
QUICK_SIZES = tuple(100_000 * 2**k for k in range(4))
L2, GAP = "1e-6", 1e-10


def run_scaling(quick: bool, progress: Progress, sizes: tuple[int, ...] | None = None) -> dict[str, Any]:
    """Seconds and epochs of default STM to the gap, by n, start and seed."""
    progress.begin("scaling")
    begin = time.perf_counter()
    sizes = sizes or (QUICK_SIZES if quick else FULL_SIZES)
    runs_at(min(20_000, *sizes), seeds=1)  # everything is compiled and touched
    runs: list[dict[str, Any]] = []
    for n in sizes:
        progress.show(f"n = {n}")
        runs += runs_at(n, seeds=2 if quick or n > 10**6 else 4)
    return {
        "case": "scaling",
        "title": "default STM on generated dense data, d = 50, n doubling",
        "l2": L2,
        "gap": GAP,
        "sizes": list(sizes),
        "runs": runs,
        "seconds": time.perf_counter() - begin,
    }


def runs_at(n: int, seeds: int) -> list[dict[str, Any]]:
    """All starts and seeds at one n; the minimum is that of a tighter run from zero."""
    problem, plain, _ = model(prepared(dense_data(n)), penalty(L2, n), "sigmoid_squares")
    lowest = tercet.minimize(problem, tol=1e-11, order=1).fun
    runs = []
    for seed in range(seeds):
        for start in STARTS:
            x0 = start_at(start, problem.d, seed)
            before = pass_seconds(plain, x0)
            path = run_ours(tercet.STM())(Task(problem, plain, x0, seed, lowest, 120.0))
            i = settling(values_on(plain, path), len(path.points), lowest + GAP)
            runs.append(
                {
                    "n": n,
                    "start": start,
                    "seed": seed,
                    "seconds": None if i is None else path.seconds[i],
                    "epochs": None if i is None else path.epochs_at(i),
                    "total_seconds": path.total,
                    "pass_seconds": float(np.median(before)),
                    "ended": path.ended,
                }
            )
    return runs
