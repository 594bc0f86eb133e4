"""The figures that are asked for, from stored runs: ratios over cases, their mean, worst and quantiles."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from benchmarks.suite.cases import LINEAR
from benchmarks.suite.contenders import MINPACK, SCIPY

Result = dict[str, Any]
LAST = "1e-8"
LEFT_OUT = ("03", "10", "18", "24")  # of the sums over MGH, as published comparisons do
SOLVED = 6.0  # right digits of the worst parameter


def geometric_mean(ratios: Iterable[float]) -> float:
    """exp mean log; nan of nothing."""
    logs = np.log(list(ratios))
    return float(np.exp(np.mean(logs))) if len(logs) else float("nan")


def taken(result: Result, contender: str, quantity: str, gap: str = LAST) -> float:
    """What a contender took to a gap; infinite where it did not get there, nan where it was not run."""
    run = result["runs"].get(contender)
    if run is None:
        return float("nan")
    mark = run["reached"].get(gap)
    return float("inf") if not mark else max(float(mark[quantity]), 1e-6 if quantity == "seconds" else 1.0)


def best_of_scipy(result: Result, quantity: str = "seconds", gap: str = LAST) -> tuple[str, float]:
    """SciPy's best method on a case, and what it took; where none arrived, the longest that one tried, as a bound."""
    times = {name: taken(result, name, quantity, gap) for name in SCIPY if name in result["runs"]}
    name = min(times, key=times.__getitem__, default="")
    if name and np.isfinite(times[name]):
        return name, times[name]
    tried = {name: result["runs"][name].get(quantity) or 0.0 for name in times}
    return "none", max(tried.values(), default=float("nan"))


@dataclass(frozen=True)
class Ratios:
    """One number for each case, `failed` cases in which the numerator's or denominator's method did not arrive."""

    by_case: dict[str, float] = field(default_factory=dict)
    failed: tuple[str, ...] = ()

    @property
    def values(self) -> np.ndarray:
        """In increasing order."""
        return np.sort(list(self.by_case.values()))

    def quantile(self, q: float) -> float:
        """nan of nothing."""
        return float(np.quantile(self.values, q)) if self.by_case else float("nan")


def ratios(results: Iterable[Result], of: Callable[[Result], float], failed: Callable[[Result], bool]) -> Ratios:
    """`of` over the cases where it is finite and positive; those where our method failed are named."""
    found, lost = {}, []
    for result in results:
        value = of(result)
        if failed(result):
            lost.append(result["case"])
        elif np.isfinite(value) and value > 0:
            found[result["case"]] = float(value)
    return Ratios(found, tuple(lost))


def not_reached(result: Result, contender: str = "STM", gap: str = LAST) -> bool:
    """The contender was run and did not arrive."""
    return bool(np.isinf(taken(result, contender, "value", gap)))


def against(results: list[Result], other: str, quantity: str, gap: str = LAST) -> Ratios:
    """STM over another contender."""
    return ratios(
        results,
        lambda r: taken(r, "STM", quantity, gap) / taken(r, other, quantity, gap),
        lambda r: not_reached(r, gap=gap),
    )


@dataclass(frozen=True)
class Figure:
    """A figure by its name, what is asked, and how it is read from some cases: as ratios, or as words."""

    what: str
    must: str
    aim: str
    groups: tuple[str, ...]
    of: Callable[[list[Result]], Ratios | str]
    more_is_better: bool = False


def linear(results: Iterable[Result]) -> list[Result]:
    """Linear models."""
    return [r for r in results if r["group"] in LINEAR]


def iterations(results: list[Result]) -> Ratios:
    """Iterations of STM over all data, n <= 10,000."""
    small = [r for r in results if r["n"] <= 10_000]
    return ratios(small, lambda r: taken(r, "STM", "full_iterations"), not_reached)


def in_other_units(results: list[Result]) -> Ratios:
    """Iterations in other units over those in the first ones."""
    base = {r["case"]: r for r in results}
    pairs = [r for r in results if r["base"] in base]
    return ratios(
        pairs, lambda r: taken(r, "STM", "iterations") / taken(base[r["base"]], "STM", "iterations"), not_reached
    )


def sums_over_mgh(results: list[Result]) -> str:
    """Function and derivative evaluations over the usual 31, and how many came to |g| <= 1e-8."""
    runs = {r["case"].split("/")[1][:2]: r["runs"]["STM"] for r in results if "STM" in r["runs"]}
    usual = [run for number, run in runs.items() if number not in LEFT_OUT and "counts" in run]
    f, g = (sum(run["counts"][order] for run in usual) for order in ("value", "gradient"))
    return f"{f:.0f} / {g:.0f}; {solved(results)}" if runs else ""


def solved(results: list[Result]) -> str:
    """How many runs of STM ended with |g| <= 1e-8."""
    runs = [r["runs"]["STM"] for r in results if "STM" in r["runs"]]
    good = sum((run.get("gradient_norm") or np.inf) <= 1e-8 or bool(run.get("certified")) for run in runs)
    return f"{good} of {len(runs)}" if runs else ""


def digits(result: Result, contender: str) -> float:
    """Right digits where a contender ended."""
    return result["runs"].get(contender, {}).get("digits") or 0.0


def solved_nist(results: list[Result]) -> str:
    """How many regressions each method has right."""
    counts = {
        name: sum(digits(r, name) >= SOLVED for r in results)
        for name in ("STM", "ARC", "plain", "trust-exact", *MINPACK)
    }
    return ", ".join(f"{name} {count}" for name, count in counts.items()) + f" of {len(results)}" if results else ""


def false_success(results: list[Result]) -> str:
    """Certified with fewer than four right digits."""
    runs = [
        r["case"].split("/")[1] for r in results if r["runs"].get("STM", {}).get("certified") and digits(r, "STM") < 4
    ]
    return f"{len(runs)}: {', '.join(runs)}" if runs else ("0" if results else "")


def nist_evaluations(results: list[Result], other: str = "MINPACK", whole: bool = True) -> Ratios:
    """Function evaluations where both solve: of whole runs, or, of STM, without those of the certificate."""
    both = [r for r in results if min(digits(r, "STM"), digits(r, other)) >= SOLVED]

    def ours(result: Result) -> float:
        run = result["runs"]["STM"]
        return run["counts"]["value"] if whole else run["walked"]

    return ratios(both, lambda r: ours(r) / r["runs"][other]["counts"]["value"], lambda r: False)


def calls(results: list[Result]) -> Ratios:
    """Seconds of whole calls."""
    timed = [r for r in results if r.get("calls")]
    return ratios(timed, lambda r: r["calls"]["minimize"] / r["calls"]["trust-exact"], lambda r: False)


def certified(name: str) -> Callable[[list[Result]], str]:
    """How many runs of one of ours were certified."""

    def of(results: list[Result]) -> str:
        runs = [r["runs"][name] for r in results if name in r["runs"]]
        return f"{sum(bool(run.get('certified')) for run in runs)} of {len(runs)}" if runs else ""

    return of


def speedup(results: list[Result], gap: str = LAST) -> Ratios:
    """SciPy's best over STM, processor seconds."""
    return ratios(
        results,
        lambda r: best_of_scipy(r, "seconds", gap)[1] / taken(r, "STM", "seconds", gap),
        lambda r: not_reached(r, gap=gap),
    )


FIGURES = (
    Figure("best of SciPy with our oracle / STM, processor time to 1e-8, linear models",
           "1.5; 95 % >= 0.9; none < 0.6", "2.5", LINEAR, speedup, True),
    Figure("best of SciPy with our oracle / STM, processor time to 1e-4, linear models", "", "", LINEAR,
           lambda r: speedup(r, "1e-4"), True),
    Figure("STM / plain, epochs to 1e-8, linear models", "0.75; none > 1.2", "0.5", LINEAR,
           lambda r: against(r, "plain", "epochs")),
    Figure("STM / plain, epochs to 1e-4, linear models", "", "", LINEAR,
           lambda r: against(r, "plain", "epochs", "1e-4")),
    Figure("STM / plain, processor time to 1e-8, linear models", "", "", LINEAR,
           lambda r: against(r, "plain", "seconds")),
    Figure("iterations over full data, linear models, n <= 10,000, to 1e-8 (median)", "median 7, none > 20", "5",
           LINEAR, iterations),
    Figure("STM / SCR, processor time to 1e-8, linear models and sums", "0.9; none > 1.15", "0.75", (*LINEAR, "sums"),
           lambda r: against(r, "SCR", "seconds")),
    Figure("STM / SCR, epochs to 1e-8, linear models and sums", "1.0; none > 1.15", "0.85", (*LINEAR, "sums"),
           lambda r: against(r, "SCR", "epochs")),
    Figure("JAX sums, best of SciPy with our oracle / STM, processor time to 1e-8", "", "", ("sums",), speedup, True),
    Figure("singular minima, function evaluations to |g| <= 1e-8, STM / ARC", "0.55", "0.4", ("singular",),
           lambda r: against(r, "ARC", "value", "gradient")),
    Figure("singular minima, function evaluations to |g| <= 1e-8, STM / trust-exact", "0.4", "0.25", ("singular",),
           lambda r: against(r, "trust-exact", "value", "gradient")),
    Figure("singular minima, evaluations of all orders to |g| <= 1e-8, STM / ARC", "", "", ("singular",),
           lambda r: against(r, "ARC", "epochs", "gradient")),
    Figure("singular minima, evaluations of all orders to |g| <= 1e-8, STM / trust-exact", "", "", ("singular",),
           lambda r: against(r, "trust-exact", "epochs", "gradient")),
    Figure("MGH, f / derivative evaluations over 31; |g| <= 1e-8", "350 / 305", "320 / 280", ("mgh",), sums_over_mgh),
    Figure("MGH from 10 x0, |g| <= 1e-8", "34", "35", ("mgh10",), solved),
    Figure("columns times 10^U(-3, 3), iterations to 1e-8 against unscaled", "at most 1.3", "1.0", ("scaled",),
           in_other_units),
    Figure("NIST sums of squares, six digits", "STM 50", "STM 53", ("nist",), solved_nist),
    Figure("NIST, certified with fewer than four digits", "0", "0", ("nist",), false_success),
    Figure("NIST, function evaluations where both solve, STM / MINPACK", "0.6", "0.4", ("nist",), nist_evaluations),
    Figure("NIST, the same without those of the certificate", "", "", ("nist",),
           lambda r: nist_evaluations(r, whole=False)),
    Figure("NIST, function evaluations where both solve, STM / MINPACK by its defaults", "", "", ("nist",),
           lambda r: nist_evaluations(r, MINPACK[1])),
    Figure("n = 1000, d = 20, processor seconds of whole calls, minimize / trust-exact", "0.7", "0.4", ("small",),
           calls),
    Figure("linear models and sums, STM certified (tol 1e-10)", "", "", (*LINEAR, "sums"), certified("STM")),
    Figure("linear models and sums, SCR certified (tol 1e-10)", "", "", (*LINEAR, "sums"), certified("SCR")),
    Figure("functions, STM certified (tol 1e-8, NIST by default)", "", "", ("mgh", "mgh10", "singular", "nist"),
           certified("STM")),
)  # fmt: skip


def worst(found: Ratios, more_is_better: bool, how_many: int) -> list[tuple[str, float]]:
    """The cases at the bad end."""
    return sorted(found.by_case.items(), key=lambda pair: pair[1], reverse=not more_is_better)[:how_many]
