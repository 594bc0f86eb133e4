"""One case: its minimum, then every contender, and from its path when each gap was reached."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Any

import numpy as np
import scipy.optimize

import tercet
from benchmarks.speed.paths import first_crossings
from benchmarks.suite.cases import FUNCTIONS, LINEAR, Case, Instance, Prepared
from benchmarks.suite.contenders import OURS, RUNNERS, Task, names_for
from benchmarks.suite.paths import Oracle, Path
from tercet.objectives.base import traits_of
from tercet.objectives.capabilities import result_of
from tercet.objectives.metered import Meter, Metered
from tercet.records import ORDERS

GAPS = {"1e-4": 1e-4, "1e-8": 1e-8}
CLOSE = 1e-10  # a peer's run ends once it saw a gap this small
DONE = 1e-13  # below this gap there is nothing more to measure
OTHER = 1e-6  # minima whose gap is larger than this are told apart
WARM = 1.0  # seconds of a run that only compiles
GRADIENT = 1e-8  # of functions it is also measured when |g| came down to this


@dataclass(frozen=True)
class Budget:
    """Processor seconds for a run of ours; a peer has `patience` times the best so far within `least` and those."""

    seconds: float = 20.0
    least: float = 2.0
    patience: float = 8.0
    repeats: int = 3  # timings of a run that takes less than `short` seconds; the median is taken
    short: float = 0.3
    quick: bool = False

    def for_peer(self, best: float) -> float:
        """Its seconds, when the best contender so far took `best`."""
        return min(self.seconds, max(self.least, self.patience * best))


FULL = Budget()
QUICK = Budget(seconds=4.0, least=1.0, patience=4.0, short=0.1, quick=True)


def value_at(instance: Instance, x: np.ndarray) -> float:
    """f over all data, not counted."""
    with np.errstate(all="ignore"):
        return float(result_of(instance.objective.over(None).at(np.asarray(x, dtype=float)).value()))


def gradient_norm_at(instance: Instance, x: np.ndarray) -> float:
    """|g| over all data, not counted."""
    with np.errstate(all="ignore"):
        return float(np.linalg.norm(result_of(instance.objective.over(None).at(np.asarray(x, dtype=float)).gradient())))


def polished(instance: Instance, group: str, x: np.ndarray, seconds: float) -> float:
    """The value that `plain` reaches from x."""
    path = RUNNERS["plain"](Task(Instance(instance.objective, x, instance.origin), group, seconds))
    return min(value_at(instance, path.x), value_at(instance, x))


def warm_up(instance: Instance) -> None:
    """Ask once for everything that a peer asks for, so that it is compiled."""
    point, x = instance.objective.over(None).at(instance.x0), instance.x0
    point.value(), point.gradient(), point.product(2, x), point.product(3, x, x)
    if traits_of(instance.objective).dense:
        point.hessian()


def reference(instance: Instance, group: str, budget: Budget, known: float | None = None) -> float:
    """f*: as it is known from before or in closed form, else the lowest value of long runs of `plain` and of STM.

    Everything compiles here, so that no run is measured while it does.
    """
    warm_up(instance)
    known = instance.minimum if instance.minimum is not None else known
    if known is not None and np.isfinite(known):
        if group not in LINEAR:
            attempt("STM", Task(instance, group, WARM))
        return known
    paths = [attempt(name, Task(instance, group, budget.seconds)) for name in ("plain", "STM")]
    ends = [path.x for path in paths if not isinstance(path, str) and np.isfinite(value_at(instance, path.x))]
    if not ends:
        return np.nan
    best = min(ends, key=lambda x: value_at(instance, x))
    return polished(instance, group, best, budget.seconds)


def unit(instance: Instance, lowest: float) -> float:
    """f(origin) - f*, which gaps are relative to; at least a thousandth of |f*|."""
    return max(abs(value_at(instance, instance.origin) - lowest), 1e-3 * abs(lowest), np.finfo(float).tiny)


def attempt(name: str, task: Task) -> Path | str:
    """The path of a run, or what it raised."""
    try:
        return RUNNERS[name](task)
    except Exception as error:
        return f"{type(error).__name__}: {error}"


def timed(name: str, task: Task, budget: Budget) -> tuple[Path | str, list[list[float]]]:
    """A run, and the seconds along its path for each time that it was repeated.

    The first of several short runs finds cold caches, whoever has it: it is not among the times.
    """
    path = attempt(name, task)
    if isinstance(path, str):
        return path, []
    times = [] if path.total < budget.short else [path.seconds]
    while len(times) < budget.repeats and path.total < budget.short:
        again = attempt(name, task)
        if isinstance(again, str) or len(again.seconds) != len(path.seconds):
            break
        times.append(again.seconds)
    return path, times or [path.seconds]


def values_along(instance: Instance, path: Path) -> Callable[[int], float]:
    """f at the i-th iterate: what the run knew, else evaluated now; outside every clock and count."""

    def value(i: int) -> float:
        if path.values[i] is None:
            path.values[i] = value_at(instance, path.points[i])
        return path.values[i]

    return value


def mark(path: Path, times: list[list[float]], n: int, i: int | None) -> dict[str, float] | None:
    """Seconds, iterations and evaluations (each order over n) up to the i-th iterate."""
    if i is None:
        return None
    counts = dict(zip(ORDERS, (c / n for c in path.counts[i]), strict=True))
    return {
        "seconds": float(np.median([t[i] for t in times])),
        "iterations": i,
        "full_iterations": sum(path.full[1 : i + 1]),
        "epochs": sum(counts.values()),
        **counts,
    }


def marks(instance: Instance, group: str, path: Path, times: list[list[float]], base: float, scale: float) -> Any:
    """Where a path crossed each gap to `base`; for a function also where |g| came down."""
    n = instance.objective.n
    targets = [base + gap * scale for gap in GAPS.values()]
    found, _ = first_crossings(values_along(instance, path), len(path.values), targets)
    reached = {name: mark(path, times, n, i) for name, i in zip(GAPS, found, strict=True)}
    if group in FUNCTIONS:
        small = (i for i in range(len(path.values)) if i in path.points)
        i = next((i for i in small if gradient_norm_at(instance, path.points[i]) <= GRADIENT), None)
        reached["gradient"] = mark(path, times, n, i)
    return reached


def basin(instance: Instance, case: Case, path: Path, last: float, lowest: float, scale: float) -> float:
    """The minimum by which a run is judged: f*, or another one where the run had come to rest there."""
    if path.capped or not np.isfinite(last) or last - lowest <= OTHER * scale:
        return lowest
    own = polished(instance, case.group, path.x, 3.0)
    return own if own - lowest > OTHER * scale and last - own <= 1e-8 * scale else lowest


def summary(
    instance: Instance, case: Case, path: Path, times: list[list[float]], lowest: float, scale: float
) -> dict[str, Any]:
    """What is kept of a run."""
    last, counts = value_at(instance, path.x), dict(zip(ORDERS, path.counts_at_end, strict=True))
    base = basin(instance, case, path, last, lowest, scale)
    return {
        "ended": path.ended,
        "capped": path.capped,
        "certified": path.certified,
        "seconds": float(path.total),
        "iterations": len(path.values) - 1,
        "counts": {name: count / instance.objective.n for name, count in counts.items()},
        "walked": path.counts[-1][0] / instance.objective.n,  # values up to the last iterate, without its certificate
        "last": last,
        "gradient_norm": gradient_norm_at(instance, path.x),
        "gap": (last - lowest) / scale,
        "other_minimum": base if base > lowest else None,
        "digits": None if instance.regression is None else instance.regression.digits(path.x),
        "reached": marks(instance, case.group, path, times, base, scale),
    }


def whole_calls(instance: Instance, repeats: int = 7) -> dict[str, float]:
    """Median processor seconds of `minimize` as it stands, and of trust-exact with our derivatives to |g| <= 1e-8."""

    def trust_exact() -> None:
        oracle = Oracle(Metered.of(instance.objective, Meter(instance.objective.n)))
        scipy.optimize.minimize(
            oracle.value, instance.x0, jac=oracle.gradient, hess=oracle.hessian, method="trust-exact",
            options={"gtol": 1e-8},
        )  # fmt: skip

    calls = {"minimize": lambda: tercet.minimize(Prepared(instance.objective), instance.x0), "trust-exact": trust_exact}
    times: dict[str, list[float]] = {name: [] for name in calls}
    for _ in range(repeats):
        for name, call in calls.items():
            begin = time.process_time()
            call()
            times[name].append(time.process_time() - begin)
    return {name: float(np.median(taken)) for name, taken in times.items()}


def run_case(case: Case, budget: Budget, chosen: Iterable[str] = (), known: float | None = None) -> dict[str, Any]:
    """All (or the chosen) contenders on a case. `known` is f* from an earlier run."""
    instance = case.make()
    names = [name for name in names_for(instance, budget.quick) if not chosen or name in chosen]
    lowest = reference(instance, case.group, budget, known)
    scale = unit(instance, lowest)
    paths: dict[str, Any] = {}
    best = np.inf
    for name in names:
        cap = budget.seconds if name in OURS else budget.for_peer(best)
        # A function is also measured by its gradient, and has to end by itself.
        close, done = (-np.inf,) * 2 if case.group in FUNCTIONS else (lowest + CLOSE * scale, lowest + DONE * scale)
        path, times = timed(name, Task(instance, case.group, cap, close, done), budget)
        paths[name] = path, times
        if not isinstance(path, str) and value_at(instance, path.x) - lowest <= 1e-8 * scale:
            best = min(best, path.total)
    ends = [value_at(instance, path.x) for path, _ in paths.values() if not isinstance(path, str)]
    if instance.minimum is None:
        lowest = min([lowest, *(end for end in ends if np.isfinite(end))])
    scale = unit(instance, lowest)
    runs = {
        name: {"ended": f"raised {path}", "reached": {}, "certified": False if name in OURS else None}
        if isinstance(path, str)
        else summary(instance, case, path, times, lowest, scale)
        for name, (path, times) in paths.items()
    }
    return {
        "case": case.name, "group": case.group, "split": case.split, "base": case.base,
        "n": instance.objective.n, "d": instance.objective.d, "lowest": lowest, "scale": scale,
        "several_minima": len({round((r.get("other_minimum") or lowest) / scale, 5) for r in runs.values()}) > 1,
        "calls": whole_calls(instance) if case.group == "small" else None,
        "runs": runs,
    }  # fmt: skip
