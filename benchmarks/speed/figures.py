"""The figures that were asked for, computed from the stored numbers; nothing here is typed from a run."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from itertools import pairwise
from typing import Any

import numpy as np

from benchmarks.speed.summary import Cell, Ratio, Spread, cells, epochs_to

Results = dict[str, dict[str, Any]]
MATRICES = 10  # d x d matrices that the O(d^2) of the memory figure allows for


@dataclass(frozen=True)
class Figure:
    """One number that was asked for, "at least" or "at most"; nan: not measured, or (for an aim) not asked for."""

    what: str
    sense: str
    must: float
    aim: float
    value: float
    detail: str = ""
    bound: bool = False  # the true value is at least this

    def holds(self, limit: float) -> bool | None:
        """Whether the value keeps to the limit; None where one is nan, or a lower bound is below."""
        if np.isnan(self.value) or np.isnan(limit) or (self.bound and self.value < limit):
            return None
        return bool(self.value >= limit if self.sense == "at least" else self.value <= limit)


def geometric_mean(values: Iterable[float]) -> float:
    """exp(mean(log v)), nan for none."""
    v = np.array(list(values), dtype=float)
    return float(np.exp(np.mean(np.log(v)))) if v.size else np.nan


def figures(results: Results) -> list[Figure]:
    """All figures, in the order of the issue."""
    main = [cell for name in ("a9a", "covtype") for cell in cells(results.get(name))]
    every = [cell for name in ("a9a", "covtype", "covtype_raw", "sparse", "dense") for cell in cells(results.get(name))]
    return [
        *speedups("best SciPy method with our oracle / STM", main, ("tercet",), 2.0, 3.0),
        *speedups("best SciPy method with the SciPy-only oracle / STM", main, ("scipy",), 3.0, 5.0),
        lbfgs([cell for cell in main if cell.l2 != "1e-3"]),
        *covtype_epochs(cells(results.get("covtype"))),
        *a9a_passes(cells(results.get("a9a"))),
        sparse([cell for cell in cells(results.get("sparse")) if cell.l2 == "1e-6"]),
        *ours_against("SCR", every, "STM / SCR, seconds", (1.1, np.nan), (1.0, 0.8)),
        memory(results.get("memory")),
        doubling(results.get("scaling")),
        *ours_against("STM full (AR3)", cells(results.get("covtype")), "sampled / full STM on covtype, seconds",
                      (0.5, 0.3), (0.5, 0.3)),
    ]  # fmt: skip


def worst(pairs: list[tuple[float, str]], pick: Callable[..., Any]) -> tuple[float, str]:
    """The smallest or largest value and where it is; nan for none."""
    return pick(pairs) if pairs else (np.nan, "")


def ratios(group: list[Cell], oracles: tuple[str, ...], methods: tuple[str, ...] | None = None) -> list[tuple]:
    """(ratio, cell) where there is one."""
    found = ((cell.speedup(oracles, methods), cell) for cell in group)
    return [(ratio, cell) for ratio, cell in found if ratio is not None]


def failures(group: list[Cell]) -> str:
    """Cells where STM did not reach the gap, which no ratio can show."""
    missing = [str(cell) for cell in group if not np.isfinite(cell.seconds("STM").median)]
    return f"; STM did not reach the gap at {'; '.join(missing)}" if missing else ""


def where(ratio: Ratio, cell: Cell) -> str:
    """The peer and the cell."""
    return f"{ratio.who} at {cell}"


def speedups(what: str, group: list[Cell], oracles: tuple[str, ...], must: float, aim: float) -> list[Figure]:
    """The smallest ratio of all cells, and their geometric mean."""
    found = ratios(group, oracles)
    bounds = sum(ratio.bound for ratio, _ in found)
    least = min(found, key=lambda pair: pair[0].value, default=None)
    lowest = np.nan if least is None or failures(group) else least[0].value
    note = f"{len(found)} cells" + (f", {bounds} of them lower bounds" if bounds else "") + failures(group)
    mean = geometric_mean(ratio.value for ratio, _ in found)
    return [
        Figure(f"{what}, each", "at least", 1.3, np.nan, lowest, where(*least) + failures(group) if least else ""),
        Figure(f"{what}, geometric mean", "at least", must, aim, mean, note, bounds > 0),
    ]


def lbfgs(group: list[Cell]) -> Figure:
    """The smallest ratio to L-BFGS-B with our oracle."""
    found = ratios(group, ("tercet",), ("L-BFGS-B",))
    what = "L-BFGS-B with our oracle / STM, l2 <= 1e-6, each"
    least = min(found, key=lambda pair: pair[0].value, default=None)
    if least is None:
        return Figure(what, "at least", 10, 20, np.nan)
    others = ", ".join(f"{'> ' if ratio.bound else ''}{ratio.value:.1f}" for ratio, _ in found)
    return Figure(what, "at least", 10, 20, least[0].value, f"{least[1]}; all: {others}", least[0].bound)


def covtype_epochs(group: list[Cell]) -> list[Figure]:
    """All-oracle epochs by l2, the worse of both starts."""
    asked = {"1e-3": (12, 8), "1e-6": (25, 15), "1e-3/n": (45, 25)}
    answer = []
    for l2, (must, aim) in asked.items():
        spreads = [
            (Spread.of(epochs_to(run) for run in cell.of("STM")).median, str(cell)) for cell in group if cell.l2 == l2
        ]
        value, detail = worst(spreads, max)
        answer.append(Figure(f"all-oracle epochs, covtype scaled, l2 = {l2}", "at most", must, aim, value, detail))
    return answer


def a9a_passes(group: list[Cell]) -> list[Figure]:
    """Effective passes from each start."""
    asked = {("1e-3", "zero"): (20, 12), ("1e-3", "normal"): (30, 20), ("1e-3/n", "zero"): (40, 25),
             ("1e-3/n", "normal"): (70, 40)}  # fmt: skip
    answer = []
    for (l2, start), (must, aim) in asked.items():
        found = [cell.passes("STM") for cell in group if (cell.l2, cell.start) == (l2, start)]
        value = found[0].median if found else np.nan
        detail = f"{found[0].low:.1f} to {found[0].high:.1f} over {found[0].count} seeds" if found else ""
        name = "0" if start == "zero" else "N(0, I)"
        answer.append(Figure(f"effective passes, a9a, l2 = {l2}, start {name}", "at most", must, aim, value, detail))
    return answer


def sparse(group: list[Cell]) -> Figure:
    """The smallest ratio over both oracles and both starts."""
    found = ratios(group, ("tercet", "scipy"))
    what = "sparse d = 50000, l2 = 1e-6: best SciPy / STM"
    least = min(found, key=lambda pair: pair[0].value, default=None)
    if least is None or failures(group):
        return Figure(what, "at least", 1.5, 3, np.nan, failures(group).lstrip("; "))
    return Figure(what, "at least", 1.5, 3, least[0].value, where(*least), least[0].bound)


def ours_against(
    other: str, group: list[Cell], what: str, each: tuple[float, float], mean: tuple[float, float]
) -> list[Figure]:
    """Seconds of STM over those of another of our methods: the largest ratio and the geometric mean."""
    found = [(cell.against(other), str(cell)) for cell in group]
    found = [(value, name) for value, name in found if not np.isnan(value)]
    lost = failures([cell for cell in group if np.isfinite(cell.seconds(other).median)])
    value, detail = (np.inf, lost.lstrip("; ")) if lost else worst(found, max)
    middle = geometric_mean(v for v, _ in found)
    return [
        Figure(f"{what}, each", "at most", *each, value, detail),
        Figure(f"{what}, geometric mean", "at most", *mean, middle, f"{len(found)} cells" + lost),
    ]


def memory(result: dict[str, Any] | None) -> Figure:
    """Peak extra bytes of STM, less `MATRICES` d x d matrices, over the bytes of the data."""
    what = f"peak memory of STM beyond the data and {MATRICES} d x d matrices, of the data"
    runs = [
        run for run in (result or {"runs": []})["runs"] if run["method"] == "STM" and run["extra_bytes"] is not None
    ]
    shares = [
        (max(0.0, run["extra_bytes"] - MATRICES * 8 * run["d"] ** 2) / run["data_bytes"], run["data"]) for run in runs
    ]
    value, _ = worst(shares, max)
    detail = ", ".join(f"{name} {100 * share:.0f} %" for share, name in shares)
    return Figure(what, "at most", 0.3, 0.1, value, detail)


def medians_by_n(result: dict[str, Any]) -> dict[int, float]:
    """Seconds to the gap by n, median over starts and seeds."""
    return {
        n: Spread.of(np.inf if r["seconds"] is None else r["seconds"] for r in result["runs"] if r["n"] == n).median
        for n in result["sizes"]
    }


def doubling(result: dict[str, Any] | None) -> Figure:
    """The largest factor between neighbouring n."""
    what = "time when n doubles, d = 50, each doubling"
    if result is None:
        return Figure(what, "at most", 2.1, 2.0, np.nan)
    times = medians_by_n(result)
    factors = [(times[b] / times[a], f"{a} to {b}") for a, b in pairwise(times)]
    value, detail = worst(factors, max)
    mean = geometric_mean(factor for factor, _ in factors)
    return Figure(what, "at most", 2.1, 2.0, value, f"{detail}; geometric mean {mean:.2f}")
