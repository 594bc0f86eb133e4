"""A run as it was watched from outside: its marks, the two countings, and the columns of its trace.

Two countings go side by side, in epochs (evaluations over n) and by order: ours, in which every product counts, and the
paper's, in which of each sample that is drawn a derivative counts once in an iteration, however often it is used.
"""

from __future__ import annotations

import base64
from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np

import tercet
from tercet.records import ORDERS, Certificate, Counts, Sizes, Vector

COLUMNS = (
    "iteration", "seconds", "f", "value", "gradient", "hessian", "third",
    "paper_value", "paper_gradient", "paper_hessian", "paper_third", "sigma", "ratio", "accepted",
    "size_gradient", "size_hessian", "size_third", "chi1", "chi2", "chi3", "third_bought",
)  # fmt: skip
CURVATURE_LIMIT = 200  # up to this d chi2 and chi3 are computed along the path
TOL = 1e-8


@dataclass(frozen=True, eq=False)
class Mark:
    """Where a run stood after an iteration; `x` only where the path is to be evaluated."""

    iteration: int
    seconds: float
    counts: Counts
    sizes: Sizes
    x: Vector | None
    sigma: float = np.nan
    ratio: float = np.nan
    accepted: bool | None = None
    third: bool | None = None
    sampled: bool = True  # False for the stop test after the last step, which is over all data


@dataclass(eq=False)
class Watch:
    """Follows a run: its marks, the paper's count so far, and whether the budget is spent."""

    n: int
    max_epochs: float
    marks: list[Mark] = field(default_factory=list)
    last: Vector | None = None
    paper: list[dict[str, int]] = field(default_factory=list)  # terms by order, as the paper counts them
    before: Counts = field(default_factory=Counts)
    due: int = 0

    def add(self, mark: Mark, x: Vector) -> bool:
        """Note an iteration; True when the budget is spent. x is kept at log-uniform places, and the last one."""
        keep = mark.iteration >= self.due
        if keep:
            self.due = max(mark.iteration + 1, int(mark.iteration * 1.01))
        self.last = np.array(x, dtype=np.float64)
        kept = replace(mark, x=self.last if keep else None)
        self.marks.append(kept)
        self.paper.append(self.paper_counts(mark))
        self.before = mark.counts
        return sum(self.paper[-1].values()) >= self.max_epochs * self.n

    def paper_counts(self, mark: Mark) -> dict[str, int]:
        """Terms so far: of each order what was evaluated since the last mark, but at most the sample, once."""
        past = self.paper[-1] if self.paper else dict.fromkeys(ORDERS, 0)
        most = {order: getattr(mark.sizes, order) for order in ORDERS[1:]}  # each value is at a point of its own
        new = {order: getattr(mark.counts, order) - getattr(self.before, order) for order in ORDERS}
        return {order: past[order] + min(new[order], most.get(order, new[order])) for order in ORDERS}


# --- certificates


def certificate_at(problem: tercet.LinearModel, x: Vector, tol: float = TOL) -> Certificate:
    """The certificate of a point on all data, outside the counts."""
    return tercet.minimize(problem, x, method=tercet.STM(tercet.Full()), tol=tol, max_iterations=0).certificate


def certificate_json(c: Certificate) -> dict[str, Any]:
    """The certificate with null for what was not computed."""
    numbers = {name: plain(getattr(c, name)) for name in ("chi1", "chi2", "chi3", "eps1", "eps2", "eps3")}
    return {**numbers, "order": c.order, "holds": c.holds}


def thin(watch: Watch, most: int) -> list[int]:
    """At most `most` places whose x was kept, log-uniform, with the first and the last."""
    last = len(watch.marks) - 1
    kept = [i for i, mark in enumerate(watch.marks) if mark.x is not None and i != last]
    if len(kept) + 1 > most:
        places = np.searchsorted(kept, np.geomspace(1, last, most - 2))
        kept = [0, *(kept[i] for i in np.unique(np.clip(places, 1, len(kept) - 1)))]
    return [*kept, last]


def trace_of(watch: Watch, problem: tercet.LinearModel, most: int) -> dict[str, list[Any]]:
    """The columns of the trace."""
    places = thin(watch, most)
    curved = {places[round(q * (len(places) - 1) / 4)] for q in range(5)} if problem.d <= CURVATURE_LIMIT else set()
    trace: dict[str, list[Any]] = {name: [] for name in COLUMNS}
    view = problem.over(None)
    for i in places:
        mark = watch.marks[i]
        x = watch.last if mark.x is None else mark.x
        assert x is not None
        for name, value in row_of(mark, watch.paper[i], view.at(x), curved_at(problem, x) if i in curved else None):
            trace[name].append(value)
    return trace


def curved_at(problem: tercet.LinearModel, x: Vector) -> Certificate | None:
    """chi2 and chi3 at x, where x is finite."""
    return certificate_at(problem, x) if np.all(np.isfinite(x)) else None


def row_of(mark: Mark, paper: dict[str, int], point: Any, certificate: Certificate | None) -> Iterator[Any]:
    """The cells of one row."""
    first = mark.iteration == 0
    yield from (("iteration", mark.iteration), ("seconds", plain(mark.seconds, 6)), ("f", plain(point.value())))
    for order in ORDERS:
        yield order, plain(getattr(mark.counts, order) / mark.counts.n, 10)
        yield f"paper_{order}", plain(paper[order] / mark.counts.n, 10)
    yield from (("sigma", plain(mark.sigma, 6)), ("ratio", plain(mark.ratio, 6)), ("accepted", mark.accepted))
    for order in ("gradient", "hessian", "third"):
        size = min(getattr(mark.sizes, order), mark.counts.n)
        yield f"size_{order}", None if first or size == 0 or not mark.sampled else size
    yield "chi1", plain(float(np.linalg.norm(point.gradient())), 6)
    yield "chi2", None if certificate is None else plain(certificate.chi2, 6)
    yield "chi3", None if certificate is None else plain(certificate.chi3, 6)
    yield "third_bought", None if first or not mark.sampled else bool(mark.third)


def plain(value: float, digits: int | None = None) -> float | None:
    """A finite number, to that many significant digits; None for anything else."""
    if not np.isfinite(value):
        return None
    return float(value) if digits is None else float(f"{value:.{digits}g}")


def pack(x: Vector) -> str:
    """x as text, bit for bit."""
    return base64.b64encode(np.ascontiguousarray(x, dtype="<f8").tobytes()).decode("ascii")


def unpack(text: str) -> Vector:
    """x again."""
    return np.frombuffer(base64.b64decode(text), dtype="<f8").astype(np.float64)
