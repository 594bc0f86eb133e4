"""Medians over repeats and seeds of the raw numbers of one case."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

import numpy as np

from benchmarks.speed.cases import GAPS

LAST = GAPS[-1]
Run = dict[str, Any]


def seconds_to(run: Run, gap: str = LAST) -> float:
    """The median over repeats; infinite where the gap was not reached."""
    reached = run["reached"][gap]
    return float(np.median(reached["seconds"])) if reached else np.inf


def passes_to(run: Run, gap: str = LAST) -> float:
    """Seconds over the seconds of the plain pass beside the same repeat, median over repeats."""
    reached = run["reached"][gap]
    if not reached:
        return np.inf
    return float(np.median(np.divide(reached["seconds"], run["pass_seconds"])))


def epochs_to(run: Run, gap: str = LAST, order: str = "all") -> float:
    """Evaluations over n; infinite where the gap was not reached, nan where they are not known."""
    reached = run["reached"][gap]
    if not reached:
        return np.inf
    epochs = reached["epochs"][order]
    return np.nan if epochs is None else epochs


@dataclass(frozen=True)
class Spread:
    """Median, smallest and largest over seeds."""

    median: float
    low: float
    high: float
    reached: int
    count: int

    @staticmethod
    def of(values: Iterable[float]) -> Spread:
        """A run that did not get there counts as infinite."""
        v = np.array(list(values), dtype=float)
        if not v.size:
            return Spread(np.inf, np.inf, np.inf, 0, 0)
        middle = np.sort(v)[v.size // 2] if np.isinf(v).any() else np.median(v)  # inf - inf would be nan
        return Spread(float(middle), float(v.min()), float(v.max()), int(np.isfinite(v).sum()), v.size)


@dataclass(frozen=True)
class Ratio:
    """A ratio of times; `bound` says that it is at least this, since the peer ran into its cap."""

    value: float
    bound: bool
    who: str


class Cell:
    """The runs of one case at one l2 from one start."""

    def __init__(self, result: dict[str, Any], l2: str, start: str):
        self.l2, self.start, self.case = l2, start, result["case"]
        self.runs = [run for run in result["runs"] if run["l2"] == l2 and run["start"] == start]

    def of(self, method: str, oracle: str | None = None) -> list[Run]:
        """The runs of a method, one for each seed."""
        return [r for r in self.runs if r["method"] == method and (oracle is None or r["oracle"] == oracle)]

    def methods(self) -> list[tuple[str, str, bool]]:
        """(method, oracle, ours) in the order of the first runs."""
        return list(dict.fromkeys((r["method"], r["oracle"], r["ours"]) for r in self.runs))

    def seconds(self, method: str, oracle: str | None = None) -> Spread:
        """To the tightest gap."""
        return Spread.of(seconds_to(run) for run in self.of(method, oracle))

    def passes(self, method: str, oracle: str | None = None) -> Spread:
        """To the tightest gap."""
        return Spread.of(passes_to(run) for run in self.of(method, oracle))

    def speedup(self, oracles: tuple[str, ...], methods: tuple[str, ...] | None = None) -> Ratio | None:
        """Time of the best peer over that of STM; None where STM or every peer failed without running into a cap."""
        ours = self.seconds("STM").median
        best, bound, who = np.inf, False, ""
        for method, oracle, is_ours in self.methods():
            if is_ours or oracle not in oracles or (methods and method not in methods):
                continue
            seconds = self.seconds(method, oracle).median
            caps = [run["cap"] for run in self.of(method, oracle) if run["cap"] and not run["reached"][LAST]]
            if min(seconds, *caps, np.inf) < best:
                best, bound, who = min(seconds, *caps, np.inf), not np.isfinite(seconds), f"{method} ({oracle})"
        if not (np.isfinite(ours) and np.isfinite(best)):
            return None
        return Ratio(best / ours, bound, who)

    def against(self, other: str) -> float:
        """Seconds of STM over those of another of our methods; nan where one is not there."""
        mine, theirs = self.seconds("STM").median, self.seconds(other).median
        return mine / theirs if np.isfinite(mine) and np.isfinite(theirs) else np.nan

    def __str__(self) -> str:
        return f"{self.case}, l2 {self.l2}, {'0' if self.start == 'zero' else 'N'}"


def cells(result: dict[str, Any] | None) -> list[Cell]:
    """Every l2 and start of a case that was run."""
    if result is None:
        return []
    pairs = dict.fromkeys((run["l2"], run["start"]) for run in result["runs"])
    return [Cell(result, l2, start) for l2, start in pairs]
