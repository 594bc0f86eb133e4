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


def times_to(run: Run, gap: str = LAST) -> np.ndarray:
    """Seconds to a gap in each repeat; one infinite time where it was not reached."""
    reached = run["reached"][gap]
    return np.array([np.inf] if reached is None else reached["seconds"])


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

    def beside(self, runs: list[Run]) -> list[Run]:
        """The runs of STM from the starts of these runs: from 0 all of them, else those with the same seeds."""
        seeds = {run.get("seed") for run in runs}
        return [run for run in self.of("STM") if self.start == "zero" or run.get("seed") in seeds]

    def speedup(self, oracles: tuple[str, ...], methods: tuple[str, ...] | None = None) -> Ratio | None:
        """Time of the best peer over that of STM; None where STM or every peer failed without running into a cap."""
        best: Ratio | None = None
        for method, oracle, is_ours in self.methods():
            if is_ours or oracle not in oracles or (methods and method not in methods):
                continue
            theirs = self.of(method, oracle)
            ours, seconds = (Spread.of(map(seconds_to, runs)).median for runs in (self.beside(theirs), theirs))
            caps = [run["cap"] for run in theirs if run["cap"] and not run["reached"][LAST]]
            value = min(seconds, *caps, np.inf) / ours
            if np.isfinite(value) and (best is None or value < best.value):
                best = Ratio(value, not np.isfinite(seconds), f"{method} ({oracle})")
        return best

    def against(self, other: str) -> float:
        """Seconds of STM over those of another of our methods, the median over pairs of runs made one after the other.

        Pairs have the same seed and repeat, so that what else the machine does meets both. A run that did not reach the
        gap took forever. nan where the other method is not there, or never reached it.
        """
        ratios: list[float] = []
        for run in self.of(other):
            for mine in self.of("STM"):
                if mine["seed"] == run["seed"]:
                    pairs = zip(times_to(mine), times_to(run), strict=False)
                    ratios += [a / b for a, b in pairs if np.isfinite(a) or np.isfinite(b)]
        return float(np.median(ratios)) if any(ratios) else np.nan

    def __str__(self) -> str:
        return f"{self.case}, l2 {self.l2}, {'0' if self.start == 'zero' else 'N'}"


def cells(result: dict[str, Any] | None) -> list[Cell]:
    """Every l2 and start of a case that was run."""
    if result is None:
        return []
    pairs = dict.fromkeys((run["l2"], run["start"]) for run in result["runs"])
    return [Cell(result, l2, start) for l2, start in pairs]
