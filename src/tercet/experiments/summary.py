"""What the stored runs say: the cost of reaching a gap, and whether third order needed fewer oracle calls.

Pure functions of the records in a store's folder; nothing is run again and nothing is written.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

import numpy as np

from tercet.experiments.stored import Problem, Records, Run

GAPS = (1e-2, 1e-4, 1e-6, 1e-8, 1e-10)
VERDICT_GAPS = (1e-4, 1e-6, 1e-10)
COUNTINGS = ("ours", "paper")


@dataclass(frozen=True)
class Spread:
    """A number over runs: how many of `runs` reached it, and mean, standard deviation, lowest and highest of those."""

    runs: int
    reached: int
    mean: float
    deviation: float
    low: float
    high: float

    @property
    def complete(self) -> bool:
        """True when every run got there: only then is the mean comparable."""
        return 0 < self.runs == self.reached


def spread(values: Iterable[float]) -> Spread:
    """Mean and spread; a nan is a run that did not get there."""
    x = np.array(list(values), dtype=float)
    there = x[np.isfinite(x)]
    if there.size == 0:
        return Spread(x.size, 0, *(float("nan"),) * 4)
    deviation = float(there.std(ddof=1)) if there.size > 1 else 0.0
    return Spread(x.size, there.size, float(there.mean()), deviation, float(there.min()), float(there.max()))


def cost_table(
    problem: Problem, cost: str, start: str | None = None, gaps: Iterable[float] = GAPS
) -> dict[str, list[Spread]]:
    """For each method the cost to each gap, over its runs."""
    return {
        method: [spread(run.cost_to(gap, cost) for run in problem.of(method, start)) for gap in gaps]
        for method in problem.methods
    }


def best(table: dict[str, list[Spread]]) -> list[str | None]:
    """For each gap the method with the lowest mean among those whose every run got there."""
    columns = range(len(next(iter(table.values()), [])))
    found: list[str | None] = []
    for j in columns:
        complete = {method: row[j].mean for method, row in table.items() if row[j].complete}
        found.append(min(complete, key=lambda method: complete[method]) if complete else None)
    return found


@dataclass(frozen=True)
class Verdict:
    """STM against one rival, to one gap under one counting: the ratio of costs, run by run from the same start.

    `ratio` is the geometric mean over the pairs in which both got there, `low` and `high` are its ends; `answer` is
    "fewer", "more" or "same" (within 5 %), or "neither" where STM did not get there and the rival did not either.
    """

    dataset: str
    l2: float
    settings: str  # "paper" or "ours"
    counting: str
    gap: float
    rival: str  # "SCR" or "best SGD"
    methods: tuple[str, str]
    pairs: int
    both: int
    only_stm: int
    only_rival: int
    apart: int  # pairs whose gaps are measured from different minima
    ratio: float
    low: float
    high: float

    @property
    def answer(self) -> str:
        """Does STM need fewer oracle calls?"""
        if self.only_stm != self.only_rival:
            return "fewer" if self.only_stm > self.only_rival else "more"
        if not self.both:
            return "neither"
        return "fewer" if self.ratio < 0.95 else "more" if self.ratio > 1.05 else "same"


def verdicts(records: Records) -> list[Verdict]:
    """STM against SCR and the best SGD, for every problem, counting, gap, and both kinds of settings."""
    return [
        compare(problem, settings, counting, gap, rival, stm, against)
        for problem in records.problems
        for settings in ("paper", "ours")
        for rival, choose in (("SCR", scr_of), ("best SGD", best_sgd))
        for counting in COUNTINGS
        for gap in VERDICT_GAPS
        for stm in [stm_of(problem, settings, counting, gap)]
        for against in [choose(problem, settings, counting, gap)]
        if stm is not None and against is not None
    ]


def compare(problem: Problem, settings: str, counting: str, gap: float, rival: str, stm: str, against: str) -> Verdict:
    """One verdict, from the runs that share start and seed."""
    ours, theirs = ({run.begins: run for run in problem.of(label)} for label in (stm, against))
    shared = [(ours[begins], theirs[begins]) for begins in ours if begins in theirs]
    costs = np.array([[run.cost_to(gap, counting) for run in pair] for pair in shared], dtype=float).reshape(-1, 2)
    there = np.isfinite(costs)
    both = costs[there.all(axis=1)]
    # a gap that the start already meets costs nothing under any method: a ratio of one
    ratios = np.where(both[:, 0] == both[:, 1], 1.0, both[:, 0] / np.maximum(both[:, 1], 1e-300))
    some = len(ratios) > 0
    return Verdict(
        dataset=problem.dataset,
        l2=problem.l2,
        settings=settings,
        counting=counting,
        gap=gap,
        rival=rival,
        methods=(stm, against),
        pairs=len(shared),
        both=len(both),
        only_stm=int(np.sum(there[:, 0] & ~there[:, 1])),
        only_rival=int(np.sum(there[:, 1] & ~there[:, 0])),
        apart=sum(a.basin != b.basin for a, b in shared),
        ratio=float(np.exp(np.log(np.maximum(ratios, 1e-300)).mean())) if some else float("nan"),
        low=float(ratios.min()) if some else float("nan"),
        high=float(ratios.max()) if some else float("nan"),
    )


def stm_of(problem: Problem, settings: str, counting: str, gap: float) -> str | None:
    """STM under the paper's settings or ours; of a tuned one the choice that did best here."""
    return best_of(problem, labels_of(problem, "STM", settings), counting, gap)


def scr_of(problem: Problem, settings: str, counting: str, gap: float) -> str | None:
    """SCR under the same settings; where only ours was run, that one."""
    labels = labels_of(problem, "SCR", settings) or labels_of(problem, "SCR", "ours")
    return best_of(problem, labels, counting, gap)


def best_sgd(problem: Problem, settings: str, counting: str, gap: float) -> str | None:
    """The setting of SGD that did best."""
    return best_of(problem, {run.method for run in problem.runs if run.family == "SGD"}, counting, gap)


def labels_of(problem: Problem, family: str, settings: str) -> set[str]:
    """The labels of a family under the paper's settings (they say so) or ours (plain, where there is a plain one)."""
    labels = {run.method for run in problem.runs if run.family == family}
    if settings == "paper":
        return {label for label in labels if is_paper(label)}
    return {family} if family in labels else {label for label in labels if not is_paper(label)}


def is_paper(label: str) -> bool:
    """True for a label that names the paper's settings."""
    return "paper" in label.lower()


def best_of(problem: Problem, labels: set[str], counting: str, gap: float, start: str | None = None) -> str | None:
    """The label that got to the gap most often, then cheapest; failing that, the one that ended lowest."""

    def rank(label: str) -> tuple[float, float, float, str]:
        runs = problem.of(label, start)
        costs = spread(run.cost_to(gap, counting) for run in runs)
        return (-costs.reached, costs.mean if costs.reached else 0.0, last_gap(runs), label)

    return min(labels, key=rank, default=None)


def tuned(label: str) -> str:
    """The label without its point on a grid: "SGD batch=0.1 step=1" is a choice of "SGD"."""
    return " ".join(word for word in label.split() if "=" not in word) or label


def last_gap(runs: Iterable[Run]) -> float:
    """The geometric mean of the gaps at the end; infinite where a run has none."""
    ends = [float(run.gap[-1]) if len(run.gap) else np.nan for run in runs]
    return float(np.exp(np.mean(np.log(ends)))) if ends and np.all(np.isfinite(ends)) else float("inf")
