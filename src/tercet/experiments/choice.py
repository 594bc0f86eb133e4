"""Which method for these data: what each costs beside the cheapest. Pure functions of the records."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from tercet.experiments.stored import Problem, Records, power
from tercet.experiments.summary import Spread, best_of, spread, tuned
from tercet.experiments.words import Story, count, listing, number, number_of_methods, plus_minus, problem_notes

GAP, ROUGH = 1e-6, 1e-2
AS_GOOD = 1.1  # a method within this factor of the best is as good: seconds of single runs differ by more
KINDS = {"seconds": "seconds", "ours": "evaluations"}


@dataclass(frozen=True)
class Standing:
    """How a method fared over all problems; of a tuned one the choice that did best on each.

    `ratios` are its mean costs over those of the cheapest method, one for each problem on which every run of it got
    to the gap.
    """

    method: str
    problems: int  # on which it was run, and on which every run got there
    solved: int
    runs: int
    reached: int
    certified: int
    ratios: dict[str, tuple[float, ...]]

    @property
    def everywhere(self) -> bool:
        """Every run on every problem got there."""
        return self.solved == self.problems

    def mean(self, cost: str) -> float:
        """The geometric mean of its ratios; infinite where there is none."""
        found = self.ratios[cost]
        return float(np.exp(np.mean(np.log(found)))) if found else float("inf")

    def shown(self, cost: str) -> str:
        """Mean and largest ratio."""
        found = self.ratios[cost]
        most = f" (at most {number(max(found))})" if len(found) > 1 else ""
        return f"{number(self.mean(cost))}{most}" if found else "-"


def standings(records: Records, gap: float = GAP) -> list[Standing]:
    """Every method: those that got there everywhere first, then by seconds."""
    costs = {(p, cost): costs_of(p, cost, gap) for p in records.problems for cost in KINDS}
    names = dict.fromkeys(name for p in records.problems for name in costs[p, "ours"])
    found = [standing(name, records.problems, costs) for name in names]
    return sorted(found, key=lambda s: (-s.solved / s.problems, -s.reached / s.runs, s.mean("seconds"), s.method))


def costs_of(problem: Problem, cost: str, gap: float) -> dict[str, tuple[str, Spread]]:
    """For each method its label, of a tuned one that of its best choice here, and its cost to the gap."""
    groups: dict[str, set[str]] = {}
    for label in problem.methods:
        groups.setdefault(tuned(label), set()).add(label)
    chosen = {name: best_of(problem, labels, "ours", gap) or name for name, labels in groups.items()}
    return {
        name: (label, spread(run.cost_to(gap, cost) for run in problem.of(label))) for name, label in chosen.items()
    }


def standing(
    name: str, problems: list[Problem], costs: dict[tuple[Problem, str], dict[str, tuple[str, Spread]]]
) -> Standing:
    """One method over the problems on which it was run."""
    mine = [p for p in problems if name in costs[p, "ours"]]
    runs = [run for p in mine for run in p.of(costs[p, "ours"][name][0])]
    solved = [p for p in mine if costs[p, "ours"][name][1].complete]

    def ratio(problem: Problem, cost: str) -> float:
        least = min(s.mean for _, s in costs[problem, cost].values() if s.complete)
        own = costs[problem, cost][name][1].mean
        return own / least if least > 0 else 1.0 if own == 0 else float("inf")  # a start that is within the gap is free

    return Standing(
        method=name,
        problems=len(mine),
        solved=len(solved),
        runs=len(runs),
        reached=sum(costs[p, "ours"][name][1].reached for p in mine),
        certified=sum(bool((run.record.get("certificate") or {}).get("holds")) for run in runs),
        ratios={cost: tuple(ratio(p, cost) for p in solved) for cost in KINDS},
    )


def story(records: Records) -> Story:
    """Which method to use, in words; and what a reader must know before trusting it."""
    scope = f"{count(len(records.runs), 'run')} of {count(number_of_methods(records), 'method')} on "
    scope += f"{count(len(records.problems), 'problem')} (data set and l2)."
    found = standings(records)
    notes = [note for problem in records.problems for note in problem_notes(problem)]
    findings = [by_evaluations(found), rough(records), not_there(found), uncertified(found)]
    return Story(f"{advice(found)} {scope}".strip(), [text for text in findings if text], notes)


def advice(found: list[Standing]) -> str:
    """The method that got there everywhere in the least seconds, and which are as good."""
    good = [s for s in found if s.everywhere]
    if not found:
        return ""
    if not good:
        best = found[0]
        return (
            f"No method came within {power(GAP)} of the minimum in all of its runs; {best.method} did most often, in "
            f"{best.reached} of {best.runs}. Give them more epochs, or scale the columns."
        )
    first, *others = good
    within = f"all of its {first.runs} runs come" if first.runs > 1 else "its run comes"
    equals = [s.method for s in others if s.mean("seconds") <= AS_GOOD * first.mean("seconds")]
    beside = f" {listing(equals)} {'is' if len(equals) == 1 else 'are'} as good." if equals else ""
    next_best = next((s for s in others if s.method not in equals), None)
    rest = f" The next, {next_best.method}, takes {times(next_best, first)} the time." if next_best else ""
    use = f"For these data use {first.method}: {within} within {power(GAP)} of the minimum, in the least seconds."
    return f"{use}{beside}{rest}"


def times(one: Standing, other: Standing) -> str:
    """How many times as many seconds."""
    return f"{number(one.mean('seconds') / other.mean('seconds'))} times"


def by_evaluations(found: list[Standing]) -> str:
    """The same by counts, which do not depend on the machine."""
    good = sorted((s for s in found if s.everywhere), key=lambda s: s.mean("ours"))
    if len(good) < 2:
        return ""
    first, second = good[:2]
    factor = number(second.mean("ours") / first.mean("ours"))
    return (
        f"By evaluations, which do not depend on the machine, {first.method} is the cheapest; "
        f"{second.method} takes {factor} times as many."
    )


def rough(records: Records) -> str:
    """What to take where a rough answer is enough."""
    good = [s for s in standings(records, ROUGH) if s.everywhere]
    return f"For a rough answer, within {power(ROUGH)}: {good[0].method}." if good else ""


def not_there(found: list[Standing]) -> str:
    """Who did not get there."""
    short = [f"{s.method} ({s.reached} of {s.runs} runs)" for s in found if not s.everywhere]
    return f"Not always within {power(GAP)}: {listing(short)}." if short and len(short) < len(found) else ""


def uncertified(found: list[Standing]) -> str:
    """Whose ends are not certified minimizers."""
    short = [f"{s.method} ({s.certified} of {s.runs} runs)" for s in found if s.certified < s.runs]
    return f"Not always at a point that is certified as a minimizer: {listing(short)}." if short else ""


def rows(records: Records) -> list[tuple[str, ...]]:
    """For each method: runs that got there, certified ends, and its costs over those of the cheapest."""
    return [
        (s.method, f"{s.reached} of {s.runs}", f"{s.certified} of {s.runs}", *(s.shown(cost) for cost in KINDS))
        for s in standings(records)
    ]


def cheapest(problem: Problem) -> tuple[str, ...]:
    """Who got to the gap for the least seconds, and for the fewest evaluations, with what it cost."""
    texts = []
    for cost in KINDS:
        costs = {name: s for name, (_, s) in costs_of(problem, cost, GAP).items() if s.complete}
        winner = min(costs, key=lambda name: costs[name].mean, default=None)
        texts.append("none in all its runs" if winner is None else f"{winner}: {plus_minus(costs[winner])}")
    return tuple(texts)
