"""The report: one HTML file that opens from disk, with the curves, tables and settings of a store inside."""

from __future__ import annotations

import base64
import hashlib
import json
import math
from collections.abc import Iterable
from html import escape
from importlib.resources import files
from pathlib import Path
from string import Template
from typing import Any

from tercet.experiments import store
from tercet.experiments.curves import POINTS, Curve, curve, middle_run, panel_column, rows_to_keep
from tercet.experiments.markup import settings_html, subtitle, summary_html, verdicts_html
from tercet.experiments.stored import (
    AXES,
    FLOOR,
    LABELS,
    PAPER_ORDERS,
    Problem,
    Records,
    Run,
    family_place,
    natural,
    read,
)
from tercet.experiments.summary import GAPS, best_of, spread, tuned
from tercet.records import ORDERS

CURVE_BYTES, RUN_BYTES = 2_000_000, 1_000_000  # what all curves and all runs along the way may take in the file
UNITS = {"ours": "epochs", "paper": "epochs", "paper_derivatives": "epochs", "seconds": "s", "iteration": "iterations"}
STARTS = {"0": "zero", "N": "normal, N(0, I)", "3N": "far, 3 N(0, I)"}
PANELS: list[dict[str, Any]] = [
    {"id": "sigma", "label": "sigma, the regularization", "log": True},
    {
        "id": "ratio",
        "label": "ratio of actual to predicted decrease, within -1 and 3",
        "log": False,
        "dots": True,
        "clip": [-1, 3],
    },
    {"id": "size_gradient", "label": "terms in the gradient sample", "log": True},
    {"id": "size_hessian", "label": "terms in the Hessian sample", "log": True},
    {"id": "size_third", "label": "terms in the third-derivative sample", "log": True},
    {"id": "chi1", "label": "chi_1, the norm of the full gradient", "log": True},
    {"id": "chi2", "label": "chi_2, negative curvature, where computed", "log": True, "sparse": True, "dots": True},
    {"id": "chi3", "label": "chi_3, third-order, where computed", "log": True, "sparse": True, "dots": True},
]


def write(folder: Path) -> Path:
    """Write FOLDER/report.html from the store in the folder, whole or not at all, and give its path."""
    path = Path(folder) / "report.html"
    store.write_whole(path, render(read(Path(folder)), Path(folder).resolve().name))
    return path


def render(records: Records, name: str = "") -> str:
    """The page as text."""
    here = files("tercet.experiments")
    css, js = (here.joinpath(file).read_text(encoding="utf-8") for file in ("page.css", "page.js"))
    title = str(records.settings.get("title") or name or "comparison")
    policy = (
        f"default-src 'none'; script-src {digest(js)}; style-src {digest(css)}; base-uri 'none'; form-action 'none'"
    )
    return Template(here.joinpath("page.html").read_text(encoding="utf-8")).substitute(
        policy=policy,
        title=escape(f"Comparison: {title}"),
        subtitle=escape(subtitle(records)),
        css=css,
        js=js,
        summary=summary_html(records),
        verdicts=verdicts_html(records),
        settings=settings_html(records),
        floor=f"{FLOOR:.0e}",
        data=embedded(page_data(records)),
    )


def digest(text: str) -> str:
    """The source expression that lets exactly this inline text run."""
    return f"'sha256-{base64.b64encode(hashlib.sha256(text.encode()).digest()).decode()}'"


def embedded(value: Any) -> str:
    """JSON that cannot end the script element it stands in."""
    text = json.dumps(value, separators=(",", ":"), allow_nan=False, ensure_ascii=True)
    return text.replace("<", "\\u003c").replace(">", "\\u003e").replace("&", "\\u0026")


def page_data(records: Records) -> dict[str, Any]:
    """Everything the script reads: curves thinned and rounded, costs in full precision."""
    labels = {run.method: run.family for problem in records.problems for run in problem.runs}
    # the many choices of a tuned method come last, so that the others get colors of their own
    ordered = sorted(labels, key=lambda label: ("=" in label, family_place(labels[label]), natural(label)))
    styles = {label: i for i, label in enumerate(ordered)}
    pieces = sum(len(problem.methods) * len(views(problem)) for problem in records.problems) or 1
    curve_points = max(20, min(POINTS, CURVE_BYTES // (30 * len(AXES) * pieces)))
    run_points = max(20, min(POINTS, RUN_BYTES // (90 * pieces)))
    return {
        "axes": [{"id": axis, "label": LABELS[axis], "unit": UNITS[axis]} for axis in AXES],
        "gaps": list(GAPS),
        "panels": PANELS,
        "problems": [problem_data(problem, styles, curve_points, run_points) for problem in records.problems],
    }


def views(problem: Problem) -> list[str | None]:
    """All starts together, then each kind of start where there are several."""
    starts = problem.starts
    return [None, *starts] if len(starts) > 1 else [None]


def problem_data(problem: Problem, styles: dict[str, int], curve_points: int, run_points: int) -> dict[str, Any]:
    """One data set with one l2."""
    return {
        "name": problem.name,
        "about": about(problem),
        "views": [
            {
                "label": "all" if start is None else STARTS.get(start, start),
                "methods": [
                    method_data(runs, styles[label], label in extra, curve_points, run_points)
                    for label in problem.methods
                    if (runs := problem.of(label, start))
                ],
            }
            for start in views(problem)
            for extra in [extras(problem, start)]
        ],
    }


def extras(problem: Problem, start: str | None) -> set[str]:
    """Of every method that was tuned over a grid, all choices but the best to 1e-6: drawn when asked for."""
    groups: dict[str, set[str]] = {}
    for label in problem.methods:
        groups.setdefault(tuned(label), set()).add(label)
    best = {best_of(problem, group, "ours", 1e-6, start) for group in groups.values()}
    return set(problem.methods) - best


def about(problem: Problem) -> str:
    """The problem in a sentence or two."""
    parts = [f"n = {problem.first('n')} terms, d = {problem.first('d')} parameters, loss {problem.first('loss')}."]
    note = problem.first("lambda_note")
    parts += [f"l2: {note}."] if note else []
    parts += [f"f* = {float(problem.minima[0]['f']):.12g}.", problem.text]
    return " ".join(part for part in parts if part)


def method_data(runs: list[Run], style: int, extra: bool, curve_points: int, run_points: int) -> dict[str, Any]:
    """One method on one problem."""
    curves = {axis: curve(runs, axis, curve_points) for axis in AXES}
    return {
        "label": runs[0].method,
        "style": style,
        "extra": extra,
        "runs": len(runs),
        "failed": sum(run.failed for run in runs),
        "curves": {axis: curve_data(c) for axis, c in curves.items() if c is not None},
        "run": run_data(middle_run(runs), run_points),
        "costs": {axis: [cost_data(runs, axis, gap) for gap in GAPS] for axis in AXES},
        "orders": {
            counting: [
                [plain(spread(run.cost_to(gap, order) for run in runs).mean) for order in orders] for gap in GAPS
            ]
            for counting, orders in (("ours", ORDERS), ("paper", PAPER_ORDERS))
        },
    }


def cost_data(runs: list[Run], cost: str, gap: float) -> list[float | int | None]:
    """Runs, how many got there, mean, standard deviation, lowest, highest."""
    s = spread(run.cost_to(gap, cost) for run in runs)
    return [s.runs, s.reached, plain(s.mean), plain(s.deviation), plain(s.low), plain(s.high)]


def curve_data(c: Curve) -> dict[str, list[float | None]]:
    """A curve with five digits of cost and four of gap."""
    return {"x": rounded(c.x, 5), "y": rounded(c.mean, 4), "low": rounded(c.low, 4), "high": rounded(c.high, 4)}


def run_data(run: Run | None, points: int) -> dict[str, Any] | None:
    """The columns of one run along the way; a column without a number is left out."""
    if run is None:
        return None
    keep = rows_to_keep(run, points)
    columns = {panel["id"]: rounded(panel_column(run, panel["id"])[keep], 4) for panel in PANELS}
    known = {name: values for name, values in columns.items() if any(v is not None for v in values)}
    start, seed = run.begins
    return {"start": start, "seed": seed, **{axis: rounded(run.cost(axis)[keep], 5) for axis in AXES}, **known}


def rounded(values: Iterable[float], digits: int) -> list[float | None]:
    """Numbers with few digits, None for what is not finite."""
    return [plain(float(f"{value:.{digits}g}")) for value in values]


def plain(value: float) -> float | int | None:
    """A number as JSON has it: whole numbers without a fraction, None for nan and infinity."""
    if not math.isfinite(value):
        return None
    return int(value) if value == int(value) and abs(value) < 1e15 else value
