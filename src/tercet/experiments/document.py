"""docs/reproduction.md from a store: `python -m tercet.experiments.document FOLDER docs/reproduction.md`.

Every number is read from the stored runs; the figures go into a folder of the same name beside the page.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

from tercet.experiments import figures, store
from tercet.experiments.report import STARTS, about, extras
from tercet.experiments.stored import Problem, Records, power, read
from tercet.experiments.summary import COUNTINGS, GAPS, VERDICT_GAPS, Spread, Verdict, best, cost_table, tuned, verdicts
from tercet.experiments.words import BY, WITH, number, plus_minus, story, tallies, why, winners

UNITS = {"ours": "epochs, every product counted", "paper": "epochs as the paper counts", "seconds": "seconds"}
ANSWERS = {"fewer": "fewer", "more": "**more**", "same": "same", "neither": "neither"}


def write(folder: Path, page: Path) -> Path:
    """Write the page and its figures."""
    records, pictures = read(Path(folder)), Path(page).with_suffix("")
    pictures.mkdir(parents=True, exist_ok=True)
    shown = {}
    for problem, name in zip(records.problems, figures.names(records.problems), strict=True):
        figure = figures.convergence(problem, ("ours", "paper"))
        shown[problem] = f"{pictures.name}/{figures.save(figure, pictures / f'{name}.png', dpi=110).name}"
    store.write_whole(Path(page), text(records, shown))
    return Path(page)


def text(records: Records, pictures: dict[Problem, str]) -> str:
    """The page in Markdown."""
    told, found = story(records), verdicts(records)
    parts = [
        "# The paper's experiments, rerun",
        told.lead,
        *told.findings,
        "## What was rerun",
        bullets(scope(records)),
        "## Does STM need fewer oracle calls?",
        verdict_text(found),
        *(verdict_table(found, settings) for settings in ("paper", "ours")),
        reasons(records, found),
        "## The cheapest method",
        "Lowest mean cost to a gap of 1e-6 among the methods all of whose runs got there.",
        table(
            ("problem", "epochs, ours", "epochs, the paper's", "seconds"),
            [(problem.name, *winners(problem)) for problem in records.problems],
        ),
        "## Problem by problem",
        *(problem_text(problem, pictures.get(problem)) for problem in records.problems),
        *(["## Before trusting a number", bullets(told.notes)] if told.notes else []),
        "## Again",
        "Written from stored runs by `python -m tercet.experiments.document FOLDER docs/reproduction.md`; "
        "`tercet reproduce` makes the runs, and an interactive report beside them. Epochs and iterations do not "
        "depend on the machine; seconds do, and runs share it with others that are made at the same time.",
    ]
    return "\n\n".join(part for part in parts if part) + "\n"


def scope(records: Records) -> list[str]:
    """Data, starts, methods and versions."""
    starts = sorted({run.begins[0] for problem in records.problems for run in problem.runs})
    pairs = {run.begins for problem in records.problems for run in problem.runs}
    methods = dict.fromkeys(tuned(label) for problem in records.problems for label in problem.methods)
    versions = records.settings.get("versions")
    title = records.settings.get("title")
    lines = [
        *([f"{title}."] if title else []),
        f"{len(records.runs)} runs: {len(records.problems)} problems, {len(pairs)} starts and seeds "
        f"({', '.join(STARTS.get(start, start) for start in starts)}).",
        f"Methods: {', '.join(methods)}.",
        *(f"{problem.dataset}: {about(problem)}" for problem in records.problems),
    ]
    if isinstance(versions, dict):
        lines.append("Versions: " + ", ".join(f"{name} {version}" for name, version in versions.items()) + ".")
    return lines


def verdict_text(found: list[Verdict]) -> str:
    """The tally and how to read it."""
    if not found:
        return "STM was not run against SCR or SGD here."
    return (
        table(("STM with", BY["ours"], BY["paper"]), tallies(found))
        + "\n\nBelow, the cost of STM divided by that of its rival, run by run from the same start: geometric mean, "
        "lowest to highest. Within 5 % counts as the same. A method that was run with several choices, such as SGD, "
        "stands with the best one for each gap and counting."
    )


def verdict_table(found: list[Verdict], settings: str) -> str:
    """Ratios under one kind of settings."""
    cells = {(v.dataset, v.l2, v.rival, v.counting, v.gap): v for v in found if v.settings == settings}
    rows = list(dict.fromkeys((dataset, l2, rival) for dataset, l2, rival, _, _ in cells))
    head = ("problem", "rival", *(f"{c}, {power(gap)}" for c in COUNTINGS for gap in VERDICT_GAPS))
    body = [
        (
            f"{row[0]}, l2 = {power(row[1])}",
            row[2],
            *(cell(cells.get((*row, c, g))) for c in COUNTINGS for g in VERDICT_GAPS),
        )
        for row in rows
    ]
    return f"With {WITH[settings]}:\n\n{table(head, body)}" if body else ""


def cell(v: Verdict | None) -> str:
    """Answer, ratio, spread, and runs in which only one got there."""
    if v is None or not v.pairs:
        return "not run"
    ratio = f" {number(v.ratio)} ({number(v.low)} to {number(v.high)})" if v.both else ""
    alone = [f"only {who} in {k} of {v.pairs}" for who, k in (("STM", v.only_stm), ("rival", v.only_rival)) if k]
    alone += [f"{v.apart} of {v.pairs} from different minima"] if v.apart and v.answer != "neither" else []
    return ", ".join([ANSWERS[v.answer] + ratio, *alone])


def reasons(records: Records, found: list[Verdict]) -> str:
    """Where STM needs more calls: what it spent them on; and what third order is good for instead."""
    problems = {(problem.dataset, problem.l2): problem for problem in records.problems}
    worse = [v for v in found if v.answer == "more"]
    if not worse:
        return ""
    against_scr = [why(problems[v.dataset, v.l2], v) + "." for v in worse if v.rival == "SCR" and v.both]
    fast = any(v.rival != "SCR" for v in worse)
    start = (
        "SGD is cheaper to a rough answer: its steps cost a fraction of an epoch. It ends at its sampling noise; "
        "the tables show which gaps are out of its reach."
    )
    instead = (
        "What third derivatives are good for instead: points where the gradient is zero and the Hessian has no "
        "negative eigenvalue, yet a way down exists (`python -m benchmarks.degenerate`), and problems with few terms "
        "whose curvature changes fast (`python -m benchmarks.mgh`)."
    )
    parts = ["### Where it does not, and why", bullets(against_scr), start if fast else "", instead]
    return "\n\n".join(part for part in parts if part)


def problem_text(problem: Problem, picture: str | None) -> str:
    """Figure and cost tables of one problem; of tuned methods the best choice."""
    hidden = extras(problem, None)
    image = f"![Gap against epochs under both countings, {clean(problem.name)}]({picture})" if picture else ""
    parts = [f"### {clean(problem.name)}", image]
    for cost, unit in UNITS.items():
        rows = {label: row for label, row in cost_table(problem, cost).items() if label not in hidden}
        winner = best(rows)
        body = [(label, *(cost_cell(s, label == winner[j]) for j, s in enumerate(row))) for label, row in rows.items()]
        parts.append(table((f"{unit}, to gap", *map(power, GAPS)), body))
    return "\n\n".join(part for part in parts if part)


def cost_cell(s: Spread, first: bool) -> str:
    """Mean and deviation; the best in bold with a star; how many got there where not all did."""
    if not s.reached:
        return f"0 of {s.runs}"
    shown = plus_minus(s)
    if not s.complete:
        return f"{shown} ({s.reached} of {s.runs})"
    return f"**{shown}** ★" if first else shown


def bullets(lines: Iterable[str]) -> str:
    """A list."""
    return "\n".join(f"- {clean(line)}" for line in lines)


def table(head: Iterable[Any], rows: Iterable[Iterable[Any]]) -> str:
    """A table of Markdown; the first column to the left, the others to the right."""
    names = [str(name) for name in head]
    lines = [names, [":--", *["--:"] * (len(names) - 1)], *([clean(str(x)) for x in row] for row in rows)]
    return "\n".join(f"| {' | '.join(line)} |" for line in lines)


def clean(text: str) -> str:
    """Text from files that can neither end a cell nor start markup."""
    flat = " ".join(text.split())
    for sign, safe in (("&", "&amp;"), ("<", "&lt;"), ("|", "\\|"), ("[", "\\["), ("`", "\\`")):
        flat = flat.replace(sign, safe)
    return flat


def main(arguments: Sequence[str] | None = None) -> int:
    """Write the page; bad input ends with one line on standard error."""
    parser = argparse.ArgumentParser(prog="python -m tercet.experiments.document", description=__doc__)
    parser.add_argument("folder", type=Path, help="a store that `tercet reproduce` or `tercet compare` wrote")
    parser.add_argument("page", type=Path, help="the Markdown file to write")
    options = parser.parse_args(arguments)
    try:
        print(f"wrote {write(options.folder, options.page)}")
    except (OSError, ValueError) as error:
        print(f"document: {error}", file=sys.stderr)
        return 2
    return 0


if __name__ == "__main__":
    sys.exit(main())
