"""The figures of the report as PNG and PDF (needs Matplotlib, extra `plot`), and their data as CSV."""

from __future__ import annotations

import csv
import re
from collections.abc import Iterable
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from tercet.experiments.curves import curve, middle_run, panel_column
from tercet.experiments.report import PANELS, UNITS, extras
from tercet.experiments.stored import AXES, COSTS, LABELS, Problem, Records, read
from tercet.experiments.summary import GAPS, cost_table, verdicts

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

COLORS = (
    "#0b5cad", "#b3420a", "#1a7a4c", "#8a3a9e", "#7a6100", "#0f7280", "#b0225f", "#4a5568", "#8f2d23", "#000000",
)  # fmt: skip
DASHES = ("-", (0, (5, 2)), (0, (1, 2)), (0, (6, 2, 1, 2)), (0, (8, 2, 1, 2, 1, 2)))
MARKERS = ("o", "s", "^", "D", "v", "x", "+", "h")
SHOWN = ("ours", "paper", "seconds", "iteration")
VERDICT_COLUMNS = (
    "dataset", "l2", "settings", "counting", "gap", "rival", "answer", "ratio", "low", "high", "pairs", "both",
    "only_stm", "only_rival",
)  # fmt: skip


def write(folder: Path) -> list[Path]:
    """Write FOLDER/figures: for every problem two figures, each as PNG and PDF, and three tables for all."""
    records, out = read(Path(folder)), Path(folder) / "figures"
    out.mkdir(exist_ok=True)
    paths = write_tables(records, out)
    for problem, name in zip(records.problems, names(records.problems), strict=True):
        for kind, figure in (("gap", convergence(problem)), ("run", along_a_run(problem))):
            for suffix in ("png", "pdf"):
                paths.append(save(figure, out / f"{kind}-{name}.{suffix}"))
    return paths


def save(figure: Figure, path: Path, dpi: int = 150) -> Path:
    """Write a figure without a date, so that the same runs give the same file."""
    metadata: dict[str, Any] = {"CreationDate": None} if path.suffix == ".pdf" else {"Software": None}
    figure.savefig(path, dpi=dpi, metadata=metadata)
    return path


def names(problems: Iterable[Problem]) -> list[str]:
    """File names: only letters, digits, dot, dash; a number is added where two would be equal."""
    found: list[str] = []
    for problem in problems:
        name = re.sub(r"[^A-Za-z0-9]+", "-", problem.dataset).strip("-")[:60] or "data"
        name = f"{name}-l2-{problem.l2:.3g}"
        found.append(name if name not in found else f"{name}-{len(found)}")
    return found


def convergence(problem: Problem, axes: Iterable[str] = SHOWN) -> Figure:
    """Gap against each cost: geometric mean over the runs, and the band from the lowest to the highest."""
    axes = tuple(axes)
    figure = new_figure(5.2 * min(2, len(axes)), 4.0 * -(-len(axes) // 2) + 0.7)
    grid = figure.subplots(-(-len(axes) // 2), min(2, len(axes)), squeeze=False, sharey=True)
    for ax, axis in zip(grid.flat, axes, strict=False):
        for label, style in styles(problem).items():
            draw_curve(ax, problem, label, axis, style)
        ax.set(xscale="log", yscale="log", xlabel=LABELS[axis])
        ax.grid(alpha=0.25, linewidth=0.6)
    for ax in grid[:, 0]:
        ax.set_ylabel("gap f - f*")
    finish(figure, grid.flat[0], f"{problem.name}: mean and range over runs")
    return figure


def draw_curve(ax: Axes, problem: Problem, label: str, axis: str, style: dict[str, Any]) -> None:
    """One method in one panel. A logarithmic axis has no zero: the start is drawn at the first positive cost."""
    c = curve(problem.of(label), axis)
    if c is None or not np.any(c.x > 0):
        return
    x = np.maximum(c.x, c.x[c.x > 0][0])
    ax.fill_between(x, c.low, c.high, step="post", color=style["color"], alpha=0.13, linewidth=0)
    ax.plot(x, c.mean, drawstyle="steps-post", label=label, markevery=max(1, len(x) // 6), **style)


def along_a_run(problem: Problem) -> Figure:
    """sigma, ratio, the sizes and chi_1..3 against epochs (ours), along the middle run of each method."""
    figure = new_figure(14, 7)
    grid = figure.subplots(2, 4)
    for ax, panel in zip(grid.flat, PANELS, strict=True):
        for label, style in styles(problem).items():
            run = middle_run(problem.of(label))
            if run is None:
                continue
            x, y = run.cost("ours"), panel_column(run, panel["id"])
            known = np.isfinite(y) & (x > 0)
            y = np.maximum(y, 1e-16) if panel["log"] else np.clip(y, *panel["clip"])
            line = {**style, "linestyle": "none"} if panel.get("dots") else {**style, "drawstyle": "steps-post"}
            many = 1 if panel.get("dots") else max(1, int(known.sum()) // 6)
            ax.plot(x[known], y[known], label=label, markevery=many, **line)
        # a scale is logarithmic only where there is something to show on it
        ax.set(xscale="log", xlabel=f"{UNITS['ours']} (ours)", yscale="log" if panel["log"] else "linear")
        ax.set_title(panel["label"], fontsize=9)
        ax.grid(alpha=0.25, linewidth=0.6)
    finish(figure, grid.flat[5], f"{problem.name}: along one run of each method")
    return figure


def styles(problem: Problem) -> dict[str, dict[str, Any]]:
    """Color, dash and marker of every method that is drawn: of a tuned one the best choice."""
    hidden = extras(problem, None)
    shown = [label for label in problem.methods if label not in hidden]
    return {
        label: {
            "color": COLORS[i % len(COLORS)],
            "linestyle": DASHES[i % len(DASHES)],
            "marker": MARKERS[i % len(MARKERS)],
            "markersize": 4.5,
            "markerfacecolor": "white",
            "linewidth": 1.5,
        }
        for i, label in enumerate(shown)
    }


def new_figure(width: float, height: float) -> Figure:
    """A figure outside pyplot: nothing global is opened or left behind."""
    from matplotlib.figure import Figure

    return Figure(figsize=(width, height), layout="constrained")


def finish(figure: Figure, ax: Axes, title: str) -> None:
    """Title above, one legend for all panels below. A dollar sign in a name is no mathematics."""
    handles, labels = ax.get_legend_handles_labels()
    figure.suptitle(title.replace("$", r"\$"), fontsize=11)
    if handles:
        texts = [label.replace("$", r"\$") for label in labels]
        figure.legend(handles, texts, loc="outside lower center", ncols=min(5, len(labels)), fontsize=8)
    figure.draw_without_rendering()  # lays it out, once for all files
    figure.set_layout_engine("none")


def write_tables(records: Records, out: Path) -> list[Path]:
    """costs.csv, curves.csv and verdicts.csv, in full precision."""
    spreads = ("runs", "reached", "mean", "deviation", "low", "high")
    costs = (
        (problem.dataset, problem.l2, method, cost, gap, *(getattr(s, name) for name in spreads))
        for problem in records.problems
        for cost in COSTS
        for method, row in cost_table(problem, cost).items()
        for gap, s in zip(GAPS, row, strict=True)
    )
    curves = (
        (problem.dataset, problem.l2, method, axis, *values)
        for problem in records.problems
        for method in problem.methods
        for axis in AXES
        if (c := curve(problem.of(method), axis)) is not None
        for values in zip(c.x.tolist(), c.mean.tolist(), c.low.tolist(), c.high.tolist(), strict=True)
    )
    answers = ([getattr(v, name) for name in VERDICT_COLUMNS] for v in verdicts(records))
    return [
        table(out / "costs.csv", ("dataset", "l2", "method", "cost", "gap", *spreads), costs),
        table(out / "curves.csv", ("dataset", "l2", "method", "cost", "x", "mean", "low", "high"), curves),
        table(out / "verdicts.csv", VERDICT_COLUMNS, answers),
    ]


def table(path: Path, head: Iterable[str], rows: Iterable[Iterable[Any]]) -> Path:
    """One file of comma-separated values."""
    with open(path, "w", newline="", encoding="utf-8") as file:
        writer = csv.writer(file)
        writer.writerow(head)
        writer.writerows(rows)
    return path
