"""When did a run cross a gap: outside the clock, from the points that it left behind."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np

import tercet
from benchmarks.speed.contenders import HESSIAN_LIMIT, Path, Task, run_scipy
from benchmarks.speed.oracles import PlainModel

COARSE = 150  # up to this many points of a path are evaluated before the crossing is looked for more closely
SAME_MINIMUM = 1e-9  # two values this close, relatively, are of one minimum


def first_crossings(
    value: Callable[[int], float], length: int, targets: Sequence[float]
) -> tuple[list[int | None], float]:
    """For each target the first i with value(i) <= target, None where there is none; and the value at the end.

    Long paths are evaluated at every k-th i, then between the last of these above the target and the first below: exact
    where values fall, and within k where they do not.
    """
    k = max(1, length // COARSE)
    known: dict[int, float] = {}

    def look(i: int) -> float:
        if i not in known:
            known[i] = value(i)
        return known[i]

    coarse = sorted({*range(0, length, k), length - 1})
    found: list[int | None] = []
    for target in targets:
        after = next((j for j, i in enumerate(coarse) if look(i) <= target), None)
        if after is None:
            found.append(None)
            continue
        begin = coarse[after - 1] + 1 if after else 0
        found.append(next(i for i in range(begin, coarse[after] + 1) if look(i) <= target))
    return found, look(length - 1)


@dataclass(frozen=True)
class Crossings:
    """Where a path crossed each gap (None: never), its last value, and the minimum that the gaps are taken to."""

    at: list[int | None]
    last: float
    lowest: float
    other_minimum: bool


def values_on(plain: PlainModel, path: Path) -> Callable[[int], float]:
    """f at the i-th point by plain SciPy; what the run knew, and points where it stood still, are not taken again."""

    def value(i: int) -> float:
        while path.values[i] is None and i > 0 and np.array_equal(path.points[i], path.points[i - 1]):
            i -= 1
        if path.values[i] is None:
            path.values[i] = plain.at(path.points[i]).value()
        return path.values[i]

    return value


def settling(value: Callable[[int], float], length: int, target: float) -> int | None:
    """The first i from which on every value is at most the target: few evaluations where each is dear."""
    i = length
    while i > 0 and value(i - 1) <= target:
        i -= 1
    return i if i < length else None


def crossings(
    problem: tercet.LinearModel, plain: PlainModel, path: Path, lowest: float, gaps: Sequence[float]
) -> Crossings:
    """Gaps to `lowest`; where the run settled in another minimum, to that one."""
    value = values_on(plain, path)
    at, last = first_crossings(value, len(path.points), [lowest + gap for gap in gaps])
    if path.capped or abs(last - lowest) <= SAME_MINIMUM * max(abs(lowest), 1e-3):
        return Crossings(at, last, lowest, False)
    basin, _ = polish(problem, path.points[-1], tol=1e-11, seconds=5.0)
    # A run that merely stopped early is polished into `lowest`; one that settled elsewhere moves no more.
    if abs(basin - lowest) <= SAME_MINIMUM * max(abs(lowest), 1e-3) or abs(last - basin) > 1e-6 * max(abs(basin), 1e-3):
        return Crossings(at, last, lowest, False)
    at, last = first_crossings(value, len(path.points), [basin + gap for gap in gaps])
    return Crossings(at, last, basin, True)


def polish(problem: tercet.LinearModel, x: np.ndarray, tol: float, seconds: float) -> tuple[float, np.ndarray]:
    """The minimum that a full-sample STM finds from x, and its point."""
    method = tercet.STM(tercet.Full())
    result = tercet.minimize(problem, x, method=method, tol=tol, order=1, max_seconds=seconds, max_iterations=200)
    return float(result.fun), result.x


def reference(problem: tercet.LinearModel, starts: Sequence[np.ndarray], seconds: float = 30.0) -> float:
    """The lowest value that long runs reach: STM from the starts, polished; SciPy's from zero where d is large.

    L-BFGS-B goes on from the best point, as a check that does not depend on our methods.
    """
    best: tuple[float, np.ndarray] = (np.inf, starts[0])
    if problem.d > HESSIAN_LIMIT:
        best = go_on("trust-ncg", problem, np.zeros(problem.d), seconds)
    else:
        for x0 in starts:
            end = tercet.minimize(problem, x0, tol=1e-11, order=1, max_seconds=seconds, max_iterations=1000)
            best = min(best, (end.fun, end.x), key=lambda pair: pair[0])
        best = min(best, polish(problem, best[1], 1e-13, seconds), key=lambda pair: pair[0])
    check = go_on("L-BFGS-B", problem, best[1], seconds if problem.d > HESSIAN_LIMIT else 0.1 * seconds)
    return min(best[0], check[0])


def go_on(method: str, problem: tercet.LinearModel, x: np.ndarray, seconds: float) -> tuple[float, np.ndarray]:
    """The last value and point of a method of SciPy, with our derivatives, from x."""
    path = run_scipy(method, fast=True)(Task(problem, None, x, 0, -np.inf, seconds))
    return float(problem.over(None).at(path.points[-1]).value()), path.points[-1]
