"""Curves over runs: what a method's runs have reached after a given cost, thinned to a few points."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from tercet.experiments.stored import Run
from tercet.records import Rows, Vector

POINTS = 200


@dataclass(frozen=True, eq=False)
class Curve:
    """Geometric mean, lowest and highest of the gap over `runs` runs after the cost x. A step function of x."""

    x: Vector
    mean: Vector
    low: Vector
    high: Vector
    runs: int


def after(costs: Vector, values: Vector, x: Vector) -> Vector:
    """The value of the last row whose cost is at most x; nan before the first row."""
    place = np.searchsorted(costs, x, side="right") - 1
    return np.where(place < 0, np.nan, values[np.maximum(place, 0)])


def curve(runs: list[Run], cost: str, points: int = POINTS) -> Curve | None:
    """The curve over the runs that have a path, or None.

    A run that has ended stays at its last gap. Where one run is not finite there is no mean: nan, a hole in the line.
    """
    paths = [(np.maximum.accumulate(run.cost(cost)), run.gap) for run in runs if len(run.gap)]
    if not paths:
        return None
    x = grid([costs for costs, _ in paths], points)
    gaps = np.array([after(costs, gap, x) for costs, gap in paths])
    mean = np.exp(np.log(gaps).mean(axis=0))
    return keep_changes(Curve(x, mean, gaps.min(axis=0), gaps.max(axis=0), len(paths)))


def grid(costs: list[Vector], points: int) -> Vector:
    """Every cost at which a run has a row; of too many, those nearest to a logarithmic and an even spacing."""
    union = np.unique(np.concatenate(costs))
    if len(union) <= points:
        return union
    positive = union[union > 0]
    wanted = np.concatenate(
        [np.geomspace(positive[0], positive[-1], points // 2), np.linspace(union[0], union[-1], points - points // 2)]
    )
    return union[np.unique(np.searchsorted(union, wanted).clip(max=len(union) - 1))]


def keep_changes(c: Curve) -> Curve:
    """Without the points at which mean and band stay within 1e-4 of the one before."""
    keep = [0]
    for i in range(1, len(c.x)):
        if any(changed(column[keep[-1]], column[i]) for column in (c.mean, c.low, c.high)):
            keep.append(i)
    if keep[-1] != len(c.x) - 1:
        keep.append(len(c.x) - 1)  # how far the runs went is worth a point
    return Curve(c.x[keep], c.mean[keep], c.low[keep], c.high[keep], c.runs)


def changed(a: float, b: float) -> bool:
    """True when b differs from a by more than a reader could see."""
    return bool(np.isnan(a) != np.isnan(b) or abs(a - b) > 1e-4 * abs(a))


def rows_to_keep(run: Run, points: int = POINTS) -> Rows:
    """Places of at most `points` rows of a run, first and last among them, and those where chi_2 is known."""
    n = len(run.gap)
    if n <= points:
        return np.arange(n)
    known = np.flatnonzero(np.isfinite(run.column("chi2")))
    spaced = np.concatenate([np.geomspace(1, n, points // 2) - 1, np.linspace(0, n - 1, points // 2 - 5)])
    return np.unique(np.concatenate([spaced.astype(int), known[:5], [n - 1]]))


def panel_column(run: Run, name: str) -> Vector:
    """A column along the run; SGD has neither sigma nor a ratio, whatever stands in their place."""
    values = run.column(name)
    return np.full_like(values, np.nan) if run.family == "SGD" and name in ("sigma", "ratio") else values


def middle_run(runs: list[Run]) -> Run | None:
    """The run in the middle when they are ordered by their gap at the end, then by what they spent."""
    there = [run for run in runs if len(run.gap)]
    if not there:
        return None
    tightest = 1e-10
    ordered = sorted(
        there,
        key=lambda run: (
            np.nan_to_num(run.cost_to(tightest, "ours"), nan=np.inf),
            np.nan_to_num(run.gap[-1], nan=np.inf),
        ),
    )
    return ordered[(len(ordered) - 1) // 2]
