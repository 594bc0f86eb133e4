"""The page of a stored run: figures for cases that were seen and held back, quantiles, profiles, the worst cases."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks.suite.cases import LINEAR
from benchmarks.suite.figures import (
    FIGURES,
    Figure,
    Ratios,
    against,
    best_of_scipy,
    geometric_mean,
    speedup,
    taken,
    worst,
)
from benchmarks.suite.profiles import PICTURES, draw

INTRODUCTION = """\
# Suite: cases that nobody tuned on

Written by `python -m benchmarks.suite`; do not edit. `make bench-suite` measures everything again (under forty minutes
on two cores), `make bench-suite-quick` a part of it (under five).

- Processor seconds of one process with one thread; everything compiled before the clock starts. The clock stands still
  while a callback keeps the iterate, and f along the path is evaluated after the run, not counted and not timed.
- **Gap**: (f(x) - f\\*) / (f(o) - f\\*), o = 0 for a linear model and the start for a function. f\\* is the lowest
  value of long runs of all contenders, or the known minimum. A run that comes to rest in another minimum is judged by
  that one and marked †.
- **Epochs**: evaluations of terms, of all orders, over n; a product with a Hessian counts one, and so does forming it.
- Contenders: STM and SCR (defaults), ARC and AR3 (the same over all data), `plain` (`benchmarks/suite/plain.py`) and
  SciPy's methods with our derivatives behind the same meter. A peer has eight times the time of the best so far (four
  in the quick run).
- Cells: geometric mean over cases (worst 5 %; the worst); then how many cases, and how many STM did not solve, which
  the mean leaves out.
"""
SPLITS = ("seen", "held", "all")


def number(value: float) -> str:
    """Three digits."""
    return "—" if not np.isfinite(value) else f"{value:.0f}" if abs(value) >= 1000 else f"{value:.3g}"


def escaped(text: str) -> str:
    """Bars within a table."""
    return text.replace("|", "\\|")


def cell(figure: Figure, results: list[dict[str, Any]]) -> str:
    """A figure over some cases."""
    found = figure.of([r for r in results if r["group"] in figure.groups])
    if isinstance(found, str):
        return found
    if not found.by_case and not found.failed:
        return ""
    tail, last = (0.05, 0.0) if figure.more_is_better else (0.95, 1.0)
    middle = found.quantile(0.5) if "median" in figure.what else geometric_mean(found.values)
    text = (
        f"{number(middle)} ({number(found.quantile(tail))}; {number(found.quantile(last))}), {len(found.by_case)} cases"
    )
    return text + (f", {len(found.failed)} not solved" if found.failed else "")


def of_split(results: Iterable[dict[str, Any]], split: str) -> list[dict[str, Any]]:
    """The cases of a split."""
    return [r for r in results if split in ("all", r["split"])]


def figures_table(results: list[dict[str, Any]]) -> list[str]:
    """Asked and measured, for each split."""
    lines = ["| figure | must | aim | seen | held | all |", "|---|---|---|---|---|---|"]
    for figure in FIGURES:
        cells = " | ".join(cell(figure, of_split(results, split)) for split in SPLITS)
        lines.append(f"| {escaped(figure.what)} | {figure.must} | {figure.aim} | {cells} |")
    return lines


def quantiles_table(results: list[dict[str, Any]]) -> list[str]:
    """Quantiles of every ratio, over all cases and over those held back."""
    qs = (0.0, 0.05, 0.25, 0.5, 0.75, 0.95, 1.0)
    lines = [
        "| ratio | cases | " + " | ".join(f"{100 * q:g} %" for q in qs) + " |",
        "|---" * (len(qs) + 2) + "|",
    ]
    for figure in FIGURES:
        for split in ("all", "held"):
            found = figure.of([r for r in of_split(results, split) if r["group"] in figure.groups])
            if isinstance(found, Ratios) and found.by_case:
                name = escaped(figure.what) + (", held" if split == "held" else "")
                row = " | ".join(number(found.quantile(q)) for q in qs)
                lines.append(f"| {name} | {len(found.by_case)} | {row} |")
    return lines


def worst_table(results: list[dict[str, Any]], how_many: int = 10) -> list[str]:
    """The seen cases in which STM looks worst beside `plain` and beside SciPy's best."""
    seen = [r for r in of_split(results, "seen") if r["group"] in LINEAR]
    several = {r["case"] for r in seen if r["several_minima"]}

    def mark(name: str) -> str:
        return " †" if name in several else ""

    lines = []
    for title, found, more in (
        ("STM / plain, epochs", against(seen, "plain", "epochs"), False),
        ("best of SciPy / STM, processor time", speedup(seen), True),
        ("STM / SCR, processor time", against(seen, "SCR", "seconds"), False),
    ):
        lines += ["", f"**{title}**", "", "| case | ratio |", "|---|---|"]
        lines += [f"| {name}{mark(name)} | {number(ratio)} |" for name, ratio in worst(found, more, how_many)]
        lines += [f"| {name} | not solved |" for name in found.failed]
    return lines


def entry(result: dict[str, Any], name: str) -> str:
    """Milliseconds, epochs and iterations of a contender to 1e-8."""
    run = result["runs"].get(name)
    if run is None:
        return ""
    seconds = taken(result, name, "seconds")
    if not np.isfinite(seconds):
        return f"— {run['ended'][:24].lower()}"
    numbers = " / ".join(number(taken(result, name, q)) for q in ("epochs", "iterations"))
    return f"{number(1e3 * seconds)} / {numbers}{' †' if run.get('other_minimum') is not None else ''}"


def cases_table(results: list[dict[str, Any]]) -> list[str]:
    """Every seen case in one line."""
    names = ("STM", "SCR", "ARC", "AR3", "plain")
    lines = [
        "Milliseconds / epochs / iterations to 1e-8.",
        "",
        "| case | n | d | " + " | ".join(names) + " | best of SciPy, ms |",
        "|---" * (len(names) + 4) + "|",
    ]
    for r in of_split(results, "seen"):
        who, seconds = best_of_scipy(r)
        cells = " | ".join(entry(r, name) for name in names)
        best = "" if not who else f"{'> ' if who == 'none' else ''}{number(1e3 * seconds)} {who}"
        lines.append(f"| {r['case']} | {r['n']} | {r['d']} | {cells} | {best} |")
    return lines


def render(whole: dict[str, Any], stem: Path) -> Path:
    """Write the page and its pictures beside the stored runs."""
    results = whole["cases"]
    pictures = draw(results, stem)
    titles = {name: title for name, (_, _, title) in PICTURES.items()}
    e = whole["environment"]
    held = len(of_split(results, "held"))
    several = [r["case"] for r in of_split(results, "seen") if r["several_minima"]]
    lines = [INTRODUCTION]
    if whole["quick"]:
        lines += ["This is a **quick** run: a part of the cases, shorter budgets.", ""]
    lines += [
        f"{len(results)} cases, {held} of them held back; commit {e['commit']}; {e['machine']['processor']}; "
        f"took {whole['seconds']:.0f} s.",
        "", "## Figures", "", *figures_table(results),
        "", "## Quantiles", "", *quantiles_table(results),
        "", "## Profiles", "",
        *(f"![{titles[path.stem.split('.')[-1]]}]({path.name})" for path in pictures),
        "", "## Worst cases", *worst_table(results),
        "", "## Several minima", "", ", ".join(several) or "none",
        "", "## Cases", "", *cases_table(results), "",
    ]  # fmt: skip
    path = stem.with_name(f"{stem.name}.md")
    path.write_text("\n".join(lines))
    return path
