"""RESULTS.md from the stored numbers: the figures that were asked for, then every case."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np

from benchmarks.speed.cases import GAPS
from benchmarks.speed.contenders import HESSIAN_LIMIT, TOLERANCE
from benchmarks.speed.figures import MATRICES, Figure, Results, figures, medians_by_n
from benchmarks.speed.oracles import ORDERS
from benchmarks.speed.summary import LAST, Cell, Ratio, Spread, cells, epochs_to, passes_to, seconds_to

REPORT = Path(__file__).resolve().parents[1] / "RESULTS.md"
ORDER = ("a9a", "covtype", "covtype_raw", "sparse", "dense", "logistic", "sums", "scaling", "memory", "startup")
INTRODUCTION = f"""\
# Speed: seconds, passes and memory against what people use

Written by `python -m benchmarks.speed`; do not edit. `make bench` measures everything again (forty minutes),
`make bench-quick` a part of it (under five minutes), `python -m benchmarks.speed --render` only writes this page.

- One process, one thread, everything compiled before the clock starts; ours and the peers in turn on the same data.
- **Oracles.** (tercet): the peer is given our own derivatives, `problem.over(None).at(x)`. (scipy): the derivatives
  that a user writes with NumPy and SciPy alone (CSR products, `expit`). Both behind a cache of one point, so that f, g
  and B at one x share the margins.
- **Time to a gap**: until the first iterate with f - f* <= gap by the full objective, evaluated after the run from the
  points that a callback kept. f* is the lowest value of long runs; a run that settles in another minimum is measured
  to that one and marked †.
- **Passes**: seconds over the seconds of one plain f+gradient pass (SciPy CSR, NumPy for dense data) measured right
  before and after the run. **Epochs**: component evaluations over n, by order f + g + B + T; a Hessian product counts
  one.
- Medians over repeats, then over seeds, smallest and largest seed in brackets. — : not reached, because the run ended
  by itself or after its cap (> seconds). From 0 a deterministic peer takes one path, so it is run for one seed. A
  peer that ran into its cap from a start is not run again from it with other seeds.
- STM over SCR and over full STM: the median over pairs of runs of one seed, made one after the other.
- Ours run with tol = {TOLERANCE:g} and the default certificate, of order 1 where d > {HESSIAN_LIMIT}.
- SGD has a batch of 5 % and the best of four steps, 30 epochs long.
- Memory: the growth of the resident set at its peak, from before `LinearModel(X, y)` to the end, in a fresh warm
  process; the figure allows {MATRICES} d x d matrices.
"""


def number(value: float, digits: int = 3) -> str:
    """A number of a few digits without an exponent where that reads well; — for none."""
    if value is None or not np.isfinite(value):
        return "—"
    return f"{value:.0f}" if abs(value) >= 10 ** (digits - 1) else f"{value:.{digits}g}"


def verdict(figure: Figure, limit: float) -> str:
    """Yes, no, not measured, or nothing where nothing was asked."""
    held = figure.holds(limit)
    if np.isnan(limit):
        return ""
    if held is None:
        return "not measured" if np.isnan(figure.value) else "open: the peer's cap came first"
    return "yes" if held else "**no**"


def figures_table(results: Results) -> list[str]:
    """Asked, measured, held."""
    lines = ["| figure (gap 1e-10) | must | measured | held | aim | reached | where |", "|---|---|---|---|---|---|---|"]
    for f in figures(results):
        sign = "≥" if f.sense == "at least" else "≤"
        aim = "" if np.isnan(f.aim) else f"{sign} {f.aim:g}"
        value = ("> " if f.bound else "") + number(f.value)
        lines.append(
            f"| {f.what} | {sign} {f.must:g} | {value} | {verdict(f, f.must)} | {aim} | "
            f"{verdict(f, f.aim)} | {f.detail} |"
        )
    return lines


def entry(runs: list[dict[str, Any]], gap: str) -> str:
    """Seconds and passes of a method to a gap, with the range over seeds at the tightest one."""
    seconds = Spread.of(seconds_to(run, gap) for run in runs)
    passes = Spread.of(passes_to(run, gap) for run in runs)
    if not np.isfinite(seconds.median):
        caps = [run["cap"] for run in runs if run["cap"]]
        return f"— (> {number(min(caps), 2)} s)" if caps and runs[0]["method"] != "SGD" else "—"
    text = f"{number(seconds.median)} s, {number(passes.median)}"
    if gap == LAST and seconds.count > 1:
        text += f" [{number(seconds.low)} s, {number(passes.low)}; {number(seconds.high)} s, {number(passes.high)}]"
    return text + (f" ({seconds.reached} of {seconds.count})" if seconds.reached < seconds.count else "")


def epochs_entry(runs: list[dict[str, Any]]) -> str:
    """All epochs to the tightest gap and their parts."""
    total = Spread.of(epochs_to(run) for run in runs).median
    if not np.isfinite(total):
        return "—"
    parts = [Spread.of(epochs_to(run, order=order) for run in runs).median for order in ORDERS]
    return f"{number(total)} = " + " + ".join(number(part) for part in parts)


def cell_table(cell: Cell) -> list[str]:
    """One l2 and start: a line for each method, fastest to the tightest gap first."""
    head = " | ".join(f"{gap}: s, passes" for gap in GAPS)
    lines = [f"| method (oracle) | {head} | epochs to {LAST}: f + g + B + T |", "|---" * (len(GAPS) + 2) + "|"]
    ranked = sorted(cell.methods(), key=lambda m: cell.seconds(m[0], m[1]).median)
    for method, oracle, is_ours in ranked:
        runs = cell.of(method, oracle)
        name = f"**{method}**" if is_ours else (method if oracle == "sklearn" else f"{method} ({oracle})")
        mark = " †" if any(run["other_minimum"] for run in runs) else ""
        entries = " | ".join(entry(runs, gap) for gap in GAPS)
        lines.append(f"| {name}{mark} | {entries} | {epochs_entry(runs)} |")
    return lines


def quiet(runs: list[dict[str, Any]]) -> str:
    """Median and 95 % quantile of wall-clock over processor time of runs that are long enough to tell."""
    pairs = [(w, c) for run in runs for w, c in zip(run["total_seconds"], run["cpu_seconds"], strict=True) if c > 0.02]
    return " and ".join(f"{np.quantile([w / c for w, c in pairs], q):.2f}" for q in (0.5, 0.95)) if pairs else "—"


def case_section(result: dict[str, Any]) -> list[str]:
    """The tables of a case."""
    passes = [seconds for run in result["runs"] for seconds in run["pass_seconds"]]
    low, middle, high = (1e3 * np.quantile(passes, q) for q in (0.05, 0.5, 0.95))
    lines = [
        f"{result['n']} rows, {result['d']} columns, {result['entries']} entries, {result['data_bytes'] / 1e6:.1f} MB; "
        f"loss {result['loss']}; {result['seeds']} seeds. One plain pass: {middle:.3g} ms "
        f"(5 % and 95 %: {low:.3g}, {high:.3g}). Wall-clock over processor time of the runs: {quiet(result['runs'])} "
        f"(1 on a quiet machine). Took {result['seconds']:.0f} s."
    ]
    for name, s in result["settings"].items():
        if s["lowest"] - s["lowest_seen"] > 1e-11:
            lines += ["", f"At l2 {name} a run went {s['lowest'] - s['lowest_seen']:.1e} below the f* of the gaps."]
    for cell in cells(result):
        s = result["settings"][cell.l2]
        start = "0" if cell.start == "zero" else "N(0, I)"
        lines += ["", f"**l2 = {cell.l2} ({s['l2']:.3g}), start {start}**, f* = {s['lowest']:.12g}", ""]
        lines += cell_table(cell)
    return lines


def sums_section(result: dict[str, Any]) -> list[str]:
    """JAX finite sums: who is how much slower than STM, then the tables."""
    lines = [
        f"{result['seeds']} seeds, on one core. (scipy): `jax.jit` of the mean over `vmap`, of its gradient, Hessian "
        f"and products. Compiled before the clock starts. Took {result['seconds']:.0f} s.",
        "",
        "| problem | n | d | STM, s | passes | SciPy's best with our oracle / STM | with plain JAX / STM | STM / SCR |",
        "|---" * 8 + "|",
    ]
    for cell in cells(result):
        size, times, passes = result["sizes"][cell.l2], cell.seconds("STM"), cell.passes("STM")
        best = " | ".join(against(cell.speedup((oracle,))) for oracle in ("tercet", "scipy"))
        lines.append(
            f"| {cell.l2} | {size['n']} | {size['d']} | {number(times.median)} | {number(passes.median)} | {best} | "
            f"{number(cell.against('SCR'))} |"
        )
    for cell in cells(result):
        lines += ["", f"**{cell.l2}**, f* = {result['settings'][cell.l2]['lowest']:.12g}", "", *cell_table(cell)]
    return lines


def against(ratio: Ratio | None) -> str:
    """A ratio with the peer's name."""
    return "—" if ratio is None else f"{'> ' if ratio.bound else ''}{number(ratio.value)}, {ratio.who.split(' (')[0]}"


def scaling_section(result: dict[str, Any]) -> list[str]:
    """Seconds and epochs by n."""
    lines = [f"l2 = {result['l2']}, gap {result['gap']:g}; medians over starts and seeds.", ""]
    lines += ["| n | s | x of the last | passes | epochs |", "|---|---|---|---|---|"]
    before = np.nan
    for n, seconds in medians_by_n(result).items():
        runs = [run for run in result["runs"] if run["n"] == n and run["seconds"] is not None]
        passes = Spread.of(run["seconds"] / run["pass_seconds"] for run in runs).median
        epochs = Spread.of(run["epochs"]["all"] for run in runs).median
        lines.append(f"| {n} | {number(seconds)} | {number(seconds / before)} | {number(passes)} | {number(epochs)} |")
        before = seconds
    return lines


def memory_section(result: dict[str, Any]) -> list[str]:
    """Peak extra memory by data and method."""
    lines = [f"l2 = {result['l2']}, start N(0, I).", ""]
    lines += ["| data | MB | method (oracle) | extra MB | of the data |", "|---|---|---|---|---|"]
    for run in result["runs"]:
        size, extra = run["data_bytes"], run["extra_bytes"]
        share = "not measured" if extra is None else f"{100 * extra / size:.0f} %"
        name = f"{run['method']} ({run['oracle']})"
        lines.append(f"| {run['data']} | {size / 1e6:.1f} | {name} | {number((extra or np.nan) / 1e6)} | {share} |")
    return lines


def startup_section(result: dict[str, Any]) -> list[str]:
    """Wall-clock seconds of fresh processes."""
    lines = ["| fresh process | s, median | smallest, largest |", "|---|---|---|"]
    for name, times in result["measured"].items():
        lines.append(f"| {name} | {np.median(times):.3f} | {min(times):.3f}, {max(times):.3f} |")
    return [*lines, "", "Cold: an empty folder for compiled kernels (NUMBA_CACHE_DIR). Warm: the same folder again."]


SECTIONS = {"sums": sums_section, "scaling": scaling_section, "memory": memory_section, "startup": startup_section}


def environments(results: Results) -> list[str]:
    """Versions, threads and machine; several lines where cases were measured with different ones."""
    groups: dict[str, list[str]] = {}
    for name, result in results.items():
        e = result["environment"]
        versions = ", ".join(f"{module} {version}" for module, version in e["versions"].items())
        pools = ", ".join(e["threads"]["pools"]) or "unknown"
        numba = e["threads"]["NUMBA_NUM_THREADS"] or "unset"
        text = (
            f"{versions}; commit {e['commit']}; threads: {pools}, numba {numba}; {e['machine']['processor']}, "
            f"{e['machine']['cores']} cores, {e['machine']['system']}; {e['when'][:10]}"
        )
        groups.setdefault(text, []).append(name)
    return [f"- {text} ({', '.join(names)})" for text, names in groups.items()]


def part(results: Results, level: str) -> list[str]:
    """The figures and all cases of one set of results."""
    lines = [*figures_table(results), "", *environments(results)]
    for name in [*ORDER, *(name for name in results if name not in ORDER)]:
        if name in results:
            section = SECTIONS.get(name, case_section)
            lines += ["", f"{level} {name}: {results[name]['title']}", "", *section(results[name])]
    return lines


def render(full: Results, quick: Results) -> str:
    """The whole page: the full results, then those of the last quick run."""
    lines = [INTRODUCTION]
    if full:
        lines += ["## Figures", "", *part(full, "##")]
    if quick:
        lines += ["", "## Quick run", "", "Smaller data, fewer seeds, shorter caps: a check, not the figures.", ""]
        lines += part(quick, "###")
    return "\n".join(lines) + "\n"
