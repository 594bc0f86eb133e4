"""`minimize_many`: runs from many starts, and the distinct minima that they found."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from html import escape
from typing import TYPE_CHECKING, Any

import numpy as np

from tercet.checks import positive, whole
from tercet.methods.minimize import (
    Tolerance,
    as_problem,
    check_budgets,
    check_choices,
    infers,
    minimize,
)
from tercet.methods.run import Method
from tercet.objectives.base import Problem
from tercet.objectives.own import OwnObjective
from tercet.records import Status, Vector
from tercet.result import Result

if TYPE_CHECKING:
    import pandas as pd
    from matplotlib.axes import Axes

APART = 10.0  # minima are two where an x_j differs by more than this many of their errors
DIGITS = 1e-6  # and by more than this fraction of the largest |x_j| among them
VISIBLE = 64.0  # values of f that differ by fewer roundings are one


@dataclass(frozen=True, eq=False)
class Minimum:
    """A certified minimum, and the starts from which it was found; `result` is that of the most accurate run."""

    result: Result
    starts: tuple[int, ...]

    @property
    def count(self) -> int:
        """How often it was found."""
        return len(self.starts)


@dataclass(frozen=True, eq=False)
class Minima:
    """What `minimize_many` found: distinct certified minima, the lowest first, and how every start ended."""

    minima: tuple[Minimum, ...]
    results: tuple[Result | None, ...]  # one for each start; None where the objective raised there, or after Ctrl-C
    starts: tuple[Any, ...]
    errors: dict[int, str]  # what was raised, by the number of the start

    def __len__(self) -> int:
        return len(self.minima)

    @property
    def best(self) -> Result:
        """The lowest certified minimum; where none was certified, the lowest point."""
        if self.minima:
            return self.minima[0].result
        return min((r for r in self.results if r is not None), key=lambda r: r.fun if np.isfinite(r.fun) else np.inf)

    @property
    def unseen(self) -> float:
        """An estimate of the probability that one more start finds a minimum that is not among these: the share of
        certified runs whose minimum was found once (Good and Turing). nan where no run was certified."""
        runs = sum(minimum.count for minimum in self.minima)
        return sum(minimum.count == 1 for minimum in self.minima) / runs if runs else np.nan

    def table(self) -> dict[str, list[Any]]:
        """Columns: f, how often it was found and in which share of all starts, digits, epochs, verdict."""
        rows = [(m.result.fun, m.count, m.result.certificate, self.epochs(m)) for m in self.minima]
        return {
            "f": [f for f, _, _, _ in rows],
            "count": [count for _, count, _, _ in rows],
            "share": [count / len(self.starts) for _, count, _, _ in rows],
            "digits": [c.digits for _, _, c, _ in rows],
            "epochs": [epochs for _, _, _, epochs in rows],
            "verdict": [c.verdict for _, _, c, _ in rows],
        }

    def epochs(self, minimum: Minimum) -> float:
        """The mean of the evaluations, over n, of the runs to a minimum."""
        runs = (self.results[k] for k in minimum.starts)
        return float(np.mean([run.counts.epochs for run in runs if run is not None]))

    def frame(self) -> pd.DataFrame:
        """The table as a pandas frame (needs pandas)."""
        import pandas as pd

        return pd.DataFrame(self.table())

    def ends(self) -> dict[str, int]:
        """How many starts ended with each status; those where the objective raised are under ERROR."""
        ends: dict[str, int] = {}
        for result in self.results:
            name = "ERROR" if result is None else result.status.name if not result.success else "CERTIFIED"
            ends[name] = ends.get(name, 0) + 1
        return ends

    def plot(self, ax: Axes | None = None) -> Axes:
        """f of each minimum against how often it was found, as bars; the lowest at the left (needs Matplotlib)."""
        import matplotlib.pyplot as plt

        if ax is None:
            _, ax = plt.subplots()
        table, others = self.table(), len(self.starts) - sum(m.count for m in self.minima)
        labels = [f"{f:.6g}" for f in table["f"]] + (["not\ncertified"] if others else [])
        counts = table["count"] + ([others] if others else [])
        colors = ["C0"] * len(self.minima) + ["0.7"]
        ax.bar(range(len(counts)), counts, color=colors[: len(counts)])
        ax.set_xticks(range(len(counts)), labels, rotation=45 if len(counts) > 6 else 0)
        ax.set_xlabel("f of the minimum")
        ax.set_ylabel(f"starts, of {len(self.starts)}")
        return ax

    def __str__(self) -> str:
        t = self.table()
        lines = [f"{'f':>20} {'found':>6} {'share':>6} {'digits':>7} {'epochs':>8}  verdict"]
        for f, count, share, digits, epochs, verdict in zip(*t.values(), strict=True):
            lines.append(f"{f:>20.12g} {count:>6} {share:>6.0%} {digits:>7.1f} {epochs:>8.1f}  {verdict}")
        ends = ", ".join(f"{count} {name.lower()}" for name, count in self.ends().items())
        unseen = "" if np.isnan(self.unseen) else f"; one more start finds another minimum in about {self.unseen:.0%}"
        return "\n".join([*lines, f"{len(self.starts)} starts: {ends}{unseen}"])

    def _repr_html_(self) -> str:
        """The table for a notebook."""
        return f"<pre>{escape(str(self))}</pre>"

    __repr__ = __str__


def minimize_many(
    problem: Any,
    starts: Any = 20,
    x0: Any = None,
    *,
    spread: float = 1.0,
    n_jobs: int = 1,
    method: Method | None = None,
    tol: Tolerance = None,
    order: int | None = None,
    seed: int = 0,
    max_iterations: int | None = None,
    max_seconds: float | None = None,
    max_epochs: float | None = None,
    **derivatives: Callable[..., Any],
) -> Minima:
    """`minimize` from many starts: the distinct certified minima, the lowest first, and how often each was found.

    `starts` is a sequence of starts, each as x0 of `minimize`, or how many are drawn: x0 itself (by default that of the
    problem) and points x0 + spread N(0, I). The other arguments are those of `minimize`; budgets are those of one run.
    With `n_jobs` above 1 runs go on in so many processes (needs joblib); the results are the same.

    Two minima are one where no x_j differs by more than the errors that the certificates tell; where the minimizer is
    one of many (`certificate.kernel`), all with the same f are one. Minima that are the same but for a symmetry of f
    are counted apart. No number of starts proves that the lowest is global; `Minima.unseen` estimates what is missing.
    """
    check_budgets(tol=tol, max_iterations=max_iterations, max_seconds=max_seconds, max_epochs=max_epochs)
    check_choices(method, order, seed, None)
    target = as_problem(problem, derivatives)
    points = starts_of(target, starts, x0, positive("minimize_many", "spread", spread), int(seed))
    jobs = whole("minimize_many", "n_jobs", n_jobs)
    settings = {"method": method, "tol": tol, "order": order, "seed": seed, "max_iterations": max_iterations}
    settings |= {"max_seconds": max_seconds, "max_epochs": max_epochs}
    outcomes = in_processes(target, points, settings, jobs) if jobs > 1 else run_all(target, points, settings)
    raised = [outcome for outcome in outcomes if isinstance(outcome, BaseException)]
    if len(raised) == len(outcomes):
        raise raised[0]
    restore, again = target.bind(points[0]).restore, infers(target)
    results = tuple(
        None if isinstance(o, BaseException) else replace(o, x=restore(o.x.copy()), infers=again) for o in outcomes
    )
    found = [
        Found(k, result, np.asarray(outcome.x))
        for k, (result, outcome) in enumerate(zip(results, outcomes, strict=True))
        if result is not None and result.success and not isinstance(outcome, BaseException)
    ]
    errors = {k: f"{type(o).__name__}: {o}" for k, o in enumerate(outcomes) if isinstance(o, BaseException)}
    return Minima(distinct(found), results, tuple(points), errors)


def starts_of(target: Problem, starts: Any, x0: Any, spread: float, seed: int) -> list[Any]:
    """The starts as they were given, or drawn about x0."""
    if isinstance(starts, int | np.integer) and not isinstance(starts, bool):
        bound = target.bind(x0)
        draws = np.random.default_rng(seed).standard_normal((whole("minimize_many", "starts", starts), len(bound.x0)))
        draws[0] = 0.0
        return [bound.restore(bound.x0 + spread * draw) for draw in draws]
    if x0 is not None:
        raise ValueError("minimize_many(starts=..., x0=...): x0 goes with a number of starts; give one of the two.")
    if not isinstance(starts, Sequence | np.ndarray) or isinstance(starts, str) or len(starts) == 0:
        raise ValueError(f"minimize_many(starts={starts!r}): give a number, or a sequence of at least one start.")
    for start in starts:
        target.bind(start)  # a start of the wrong shape is misuse, not an outcome
    return list(starts)


def run_all(target: Problem, points: Sequence[Any], settings: dict[str, Any]) -> list[Result | Exception]:
    """One run after the other, with x as a vector; what the objective raises at a start is that start's outcome.

    All runs share one objective, so that what is compiled is compiled once.
    """
    outcomes: list[Result | Exception] = []
    shared = OwnObjective(target.bind(points[0]).objective)
    for x0 in points:
        try:
            found = minimize(shared, target.bind(x0).x0, **settings)
        except Exception as error:
            outcomes.append(error)
            continue
        outcomes.append(found)
        if found.status is Status.INTERRUPTED:
            return outcomes + [InterruptedError("not run: interrupted from the keyboard")] * (
                len(points) - len(outcomes)
            )
    return outcomes


def in_processes(
    target: Problem, points: Sequence[Any], settings: dict[str, Any], jobs: int
) -> list[Result | Exception]:
    """The starts dealt out to processes, each of which is given the problem once."""
    try:
        from joblib import Parallel, delayed
    except ImportError as error:
        raise ImportError("minimize_many(n_jobs=...) needs joblib: pip install 'tercet[parallel]'.") from error
    hands = [points[k::jobs] for k in range(min(jobs, len(points)))]
    dealt = Parallel(n_jobs=jobs)(delayed(run_all)(target, hand, settings) for hand in hands)
    outcomes: list[Any] = [None] * len(points)
    for k, hand in enumerate(dealt):
        outcomes[k::jobs] = hand
    return outcomes


@dataclass(frozen=True, eq=False)
class Found:
    """A certified point: the number of its start, its result, and x as a vector."""

    start: int
    result: Result
    x: Vector

    @property
    def digits(self) -> float:
        """How many digits are right; 0 where that is not known."""
        return float(np.nan_to_num(self.result.certificate.digits))

    def is_minimum_of(self, other: Found, sizes: Vector) -> bool:
        """Whether two certified points are one minimum."""
        a, b = self.result.certificate, other.result.certificate
        if a.kernel or b.kernel:
            apart = abs(self.result.fun - other.result.fun)
            rounding = VISIBLE * (a.rounding_f + b.rounding_f) + APART * (a.error_f + b.error_f)
            return bool(a.kernel and b.kernel) and apart <= rounding
        errors = sum(np.array(c.error_x) if c.error_x else np.zeros_like(self.x) for c in (a, b))
        return bool(np.all(np.abs(self.x - other.x) <= APART * errors + DIGITS * sizes))


def distinct(found: Sequence[Found]) -> tuple[Minimum, ...]:
    """The certified points by the minimum that they are, the lowest first."""
    if not found:
        return ()
    sizes, groups = np.max([np.abs(each.x) for each in found], axis=0), list[list[Found]]()
    for one in sorted(found, key=lambda each: each.result.fun):
        near = next((group for group in groups if any(one.is_minimum_of(other, sizes) for other in group)), None)
        groups.append([one]) if near is None else near.append(one)
    best = [max(group, key=lambda each: each.digits).result for group in groups]
    starts = [tuple(sorted(each.start for each in group)) for group in groups]
    minima = [Minimum(result, numbers) for result, numbers in zip(best, starts, strict=True)]
    return tuple(sorted(minima, key=lambda minimum: minimum.result.fun))
