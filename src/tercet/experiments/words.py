"""The stored runs in plain language: every sentence is made from their numbers."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

import numpy as np

from tercet.experiments.stored import NOT_CLOSE, Problem, Records, Run, power
from tercet.experiments.summary import COUNTINGS, Spread, Verdict, best, cost_table, spread, verdicts

BY = {"ours": "with every product counted", "paper": "counted as in the paper"}
NOT_JUDGED = "cannot be judged"
WITH = {"paper": "the paper's settings", "ours": "our settings"}


@dataclass(frozen=True)
class Story:
    """A first paragraph, what was found, and what a reader must know before trusting a number."""

    lead: str
    findings: list[str]
    notes: list[str]


def story(records: Records) -> Story:
    """The paper's claim, judged by these runs; which method to use is told by `choice`."""
    found = verdicts(records)
    runs = f"{count(len(records.runs), 'run')} of {count(number_of_methods(records), 'method')} on "
    scope = runs + f"{count(len(records.problems), 'problem')} (data set and l2)."
    lead = f"{claim(found)} {scope}" if found else scope
    findings = [within(found)]
    notes = [note for problem in records.problems for note in problem_notes(problem)]
    return Story(lead, [text for text in findings if text], notes)


def number_of_methods(records: Records) -> int:
    """How many labels there are."""
    return len({record["key"]["method"] for record in records.runs})


def count(number: int, word: str) -> str:
    """A number with its noun."""
    return f"{number} {word}{'' if number == 1 else 's'}"


def number(value: float) -> str:
    """Three significant digits, without exponents where they only hinder reading."""
    if not np.isfinite(value):
        return "-"
    if 999.5 <= abs(value) < 1e6:
        return f"{value:.0f}"
    return f"{value:#.3g}".rstrip(".") if 1e-3 <= abs(value) < 1e3 else f"{value:.3g}"


def claim(found: list[Verdict]) -> str:
    """Whether "STM needs fewer oracle calls than SCR and SGD" holds in these runs, by settings and counting."""
    texts = []
    for settings in ("paper", "ours"):
        words = {c: verdict_word([v for v in found if v.settings == settings], c) for c in COUNTINGS}
        if words["ours"] == words["paper"] == NOT_JUDGED:
            continue
        if words["ours"] == words["paper"]:
            texts.append(f"with {WITH[settings]} it {words['ours']} under both countings")
        else:
            texts.append(f"with {WITH[settings]} it {words['ours']} {BY['ours']} and {words['paper']} {BY['paper']}")
    exceptions = [more_than(found, rival) for rival in ("SCR", "best SGD")]
    start = f"The claim that STM needs fewer oracle calls than SCR and SGD: {'; '.join(texts) or NOT_JUDGED}."
    return " ".join([start, *filter(None, exceptions)])


def verdict_word(found: list[Verdict], counting: str) -> str:
    """`holds`, `holds only in part` or `does not hold`, with the numbers."""
    asked = [v for v in found if v.counting == counting]
    cases = [v for v in asked if v.answer != "neither"]
    good = sum(v.answer == "fewer" for v in cases)
    if not asked:
        return NOT_JUDGED
    if not cases:
        return f"{NOT_JUDGED}, as neither side met a gap in {count(len(asked), 'comparison')},"
    word = "holds" if good == len(cases) else "does not hold" if good <= len(cases) / 2 else "holds only in part"
    rest = f"; in {len(asked) - len(cases)} more neither side met the gap" if len(asked) > len(cases) else ""
    return f"{word} (fewer calls in {good} of {count(len(cases), 'comparison')}{rest})"


def more_than(found: list[Verdict], rival: str) -> str:
    """Where STM needed more calls than a rival."""
    cases = [v for v in found if v.rival == rival]
    worse = [v for v in cases if v.answer == "more"]
    if not worse:
        return ""
    problems, all_problems = ({(v.dataset, v.l2) for v in some} for some in (worse, cases))
    gaps = listing(power(gap) for gap in sorted({v.gap for v in worse}, reverse=True))
    where = (
        "every problem"
        if problems == all_problems
        else listing(f"{d} (l2 = {power(l2)})" for d, l2 in sorted(problems))
    )
    return f"Against {rival} it needs more calls on {where}, to a gap of {gaps.replace(' and ', ' or ')}."


def listing(names: Iterable[str], most: int = 6) -> str:
    """a, b and c; a long list is cut."""
    names = list(names)
    if len(names) > most:
        return f"{', '.join(names[:most])} and {len(names) - most} more"
    return " and ".join(filter(None, [", ".join(names[:-1]), names[-1]])) if names else "none"


def tallies(found: list[Verdict]) -> list[tuple[str, ...]]:
    """Rows of a table: settings and rival, then for each counting how often STM was cheaper and by how much."""
    rows = []
    for settings in ("paper", "ours"):
        for rival in ("SCR", "best SGD"):
            cases = [v for v in found if (v.settings, v.rival) == (settings, rival)]
            if cases:
                texts = [tally([v for v in cases if v.counting == counting]) for counting in COUNTINGS]
                rows.append((f"{WITH[settings]}, against {rival}", *texts))
    return rows


def tally(cases: list[Verdict]) -> str:
    """How often STM needed fewer, the same, or more calls, and the ratio where both met the gap."""
    answers = [v.answer for v in cases]
    words = {"fewer": "fewer", "same": "the same", "more": "more", "neither": "neither side met the gap"}
    counted = ", ".join(f"{text} in {answers.count(answer)}" for answer, text in words.items() if answer in answers)
    ratios = np.array([v.ratio for v in cases if v.both])
    if not ratios.size:
        return f"{counted} of {len(cases)}"
    mean = number(float(np.exp(np.log(ratios).mean())))
    return f"{counted} of {len(cases)}; ratio {mean} ({number(ratios.min())} to {number(ratios.max())})"


def within(found: list[Verdict], limit: float = 1.1) -> str:
    """Whether our STM stays below `limit` of SCR's epochs everywhere, every product counted."""
    cases = [v for v in found if (v.settings, v.rival, v.counting) == ("ours", "SCR", "ours") and v.both]
    if not cases:
        return ""
    worst = max(cases, key=lambda v: v.ratio)
    where = f"{number(worst.ratio)} on {worst.dataset}, l2 = {power(worst.l2)}, gap {power(worst.gap)}"
    answer = f"never above {limit:g} of" if worst.ratio <= limit else f"not always within {limit:g} of"
    return f"STM with our settings is {answer} SCR's epochs; the highest mean ratio is {where}."


def winners(problem: Problem, gap: float = 1e-6) -> list[str]:
    """Who reached a gap for the least in our counting, in the paper's, and in seconds, with what it cost."""
    texts = []
    for cost in ("ours", "paper", "seconds"):
        table = cost_table(problem, cost, gaps=(gap,))
        winner = best(table)[0]
        texts.append("none in all its runs" if winner is None else f"{winner}: {plus_minus(table[winner][0])}")
    return texts


def plus_minus(s: Spread) -> str:
    """Mean and standard deviation, or the mean alone of a single run."""
    return number(s.mean) + (f" ± {s.deviation:.2g}" if s.reached > 1 else "")


def problem_notes(problem: Problem) -> list[str]:
    """Other minima, failures, runs below the reference, and values that are not finite."""
    notes = [other_minima(problem), failures(problem), below(problem), strangers(problem), not_finite(problem)]
    return [f"{problem.name}: {note}" for note in notes if note]


def other_minima(problem: Problem) -> str:
    """Runs that ended in a certified minimum above the lowest one."""
    away = [run for run in problem.runs if run.basin > 0]
    if not away:
        known = len(problem.minima)
        return f"{known} different minima are known; no run ended in a higher one." if known > 1 else ""
    values = listing((f"{float(m['f']):.10g}" for m in problem.minima), most=4)
    return (
        f"not all runs end in the same minimum: {len(away)} of {len(problem.runs)} ended in a certified higher one"
        f" ({by_method(away)}); their gap is measured from there. Their values: {values}."
    )


def failures(problem: Problem) -> str:
    """Runs that raised an exception."""
    failed = [run for run in problem.runs if run.failed]
    texts = sorted({str(run.record.get("error") or "no path was stored") for run in failed})
    return f"{count(len(failed), 'run')} failed ({by_method(failed)}): {listing(texts, 3)}." if failed else ""


def below(problem: Problem) -> str:
    """Runs that went lower than the reference: the reference is then not the minimum."""
    lowest = float(problem.minima[0]["f"])
    slack = 1e-12 * (1 + abs(lowest))
    depth = {run: lowest - float(np.nanmin(run.column("f"), initial=np.inf)) for run in problem.runs}
    deeper = [run for run, d in depth.items() if d > slack]
    if not deeper:
        return ""
    most = max(depth[run] for run in deeper)
    return f"{count(len(deeper), 'run')} went below the reference minimum, by up to {most:.1e} ({by_method(deeper)})."


def strangers(problem: Problem) -> str:
    """Certified runs far above every minimum on file."""
    values = np.array([float(m["f"]) for m in problem.minima])
    odd = [
        run
        for run in problem.runs
        if (run.record.get("certificate") or {}).get("holds")
        and run.record.get("fun") is not None
        and np.min(np.abs(values - run.record["fun"])) > NOT_CLOSE * (1 + abs(values[0]))
    ]
    if not odd:
        return ""
    return (
        f"{count(len(odd), 'certified run')} ended at a point that is not among the minima on file ({by_method(odd)});"
        " the gap is measured from the lowest."
    )


def not_finite(problem: Problem) -> str:
    """Runs whose objective left the finite numbers."""
    wild = [run for run in problem.runs if len(run.gap) and not np.all(np.isfinite(run.gap))]
    return f"the objective became infinite or nan in {count(len(wild), 'run')} ({by_method(wild)})." if wild else ""


def by_method(runs: list[Run]) -> str:
    """How many runs of which method."""
    methods = [run.method for run in runs]
    return listing(f"{method}: {methods.count(method)}" for method in sorted(set(methods)))


def why(problem: Problem, v: Verdict) -> str:
    """What made STM dearer than its rival: iterations and third-derivative epochs of both, mean over the runs."""
    stm, rival = (problem.of(method) for method in v.methods)

    def mean(runs: list[Run], cost: str) -> float:
        return spread(run.cost_to(v.gap, cost) for run in runs).mean

    third = "third" if v.counting == "ours" else "paper_third"
    iterations = [number(mean(runs, "iteration")) for runs in (stm, rival)]
    every = [number(mean(runs, v.counting)) for runs in (stm, rival)]
    return (
        f"{problem.name}, gap {power(v.gap)}, {BY[v.counting]}: {v.methods[0]} takes {iterations[0]} iterations and "
        f"{every[0]} epochs, {number(mean(stm, third))} of them third derivatives; "
        f"{v.methods[1]} takes {iterations[1]} iterations and {every[1]} epochs"
    )
