"""One case: every contender from every start, interleaved, each run beside a plain pass over the data."""

from __future__ import annotations

import time
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import scipy.sparse as sp

import tercet
from benchmarks.speed.cases import GAPS, Case, Data, penalty, start_at, subset_of
from benchmarks.speed.contenders import Contender, Path, Task, ours, peers, run_ours, tuned_step
from benchmarks.speed.learners import learners
from benchmarks.speed.oracles import PlainModel, pass_seconds
from benchmarks.speed.paths import crossings, reference
from benchmarks.speed.progress import Progress

OURS = ("STM", "SCR", "STM full (AR3)")  # whose ratios are figures that a few percent decide
MORE = 4  # so these, which are short, are timed this many times more, and for all seeds, whatever the budget says


@dataclass(eq=False)
class Setting:
    """A case at one l2: the problem for us, the same for plain SciPy, its minimum, and who runs on it."""

    l2: str
    problem: tercet.LinearModel
    plain: PlainModel
    lowest: float
    contenders: list[Contender]
    sgd_step: float
    setup: float  # seconds that LinearModel(...) took
    hopeless: set[tuple[str, str]] = field(default_factory=set)  # who ran into the cap from a start before


def data_bytes(X: Any, y: np.ndarray) -> int:
    """What the data take in memory."""
    parts = (X.data, X.indices, X.indptr) if sp.issparse(X) else (X,)
    return sum(part.nbytes for part in parts) + y.nbytes


def prepared(data: Data) -> Data:
    """X as a CSR array with sorted 32-bit indices or a C-ordered array; ours and the peers get the same."""
    X, y = data
    if sp.issparse(X):
        X = sp.csr_array(X)
        X.sum_duplicates()
        if max(X.shape[1], X.nnz) < 2**31:
            X.indices, X.indptr = X.indices.astype(np.int32), X.indptr.astype(np.int32)
        return X, y
    return np.ascontiguousarray(X), y


def model(data: Data, l2: float, loss: str) -> tuple[tercet.LinearModel, PlainModel, float]:
    """The problem for us and for SciPy alone, and how long ours took to make."""
    X, y = data
    begin = time.perf_counter()
    problem = tercet.LinearModel(X, y, loss, l2=l2)
    return problem, PlainModel(X, y, l2, loss), time.perf_counter() - begin


def warm_up(case: Case, data: Data) -> None:
    """Compile or load every kernel and touch every code path with a few rows."""
    rows = subset_of(data, min(500, len(data[1])))
    problem, plain, _ = model(rows, 1e-2, case.loss)
    task = Task(problem, plain, start_at("normal", problem.d, 0), 0, -np.inf, 0.3)
    for contender in ours(0.1) + peers(problem.d, case.peers) + (learners() if case.loss == "logistic" else []):
        contender.run(task)
    # A sample of the size that a real run begins with, so that gathering and growing are compiled too.
    rows = subset_of(data, min(20_000, len(data[1])))
    run_ours(tercet.STM())(Task(*model(rows, 1e-3, case.loss)[:2], task.x0, 0, -np.inf, 3.0))


def set_up(case: Case, data: Data, name: str) -> Setting:
    """The problem at one l2, its minimum and the step of SGD, none of which is timed."""
    l2 = penalty(name, len(data[1]))
    problem, plain, seconds = model(data, l2, case.loss)
    starts = [start_at(start, problem.d, 0) for start in case.starts]
    lowest = reference(problem, starts, seconds=case.longest)
    step = tuned_step(problem, plain)
    contenders = ours(step) + peers(problem.d, case.peers) + (learners() if case.loss == "logistic" else [])
    return Setting(name, problem, plain, lowest, contenders, step, seconds)


@dataclass(eq=False)
class Timings:
    """The repeats of one contender on one task: the first path is evaluated, the others only timed."""

    contender: Contender
    cap: float
    path: Path | None = None
    clocks: list[list[float]] = field(default_factory=list)
    totals: list[float] = field(default_factory=list)
    busy: list[float] = field(default_factory=list)  # seconds of the processor, to tell how quiet the machine was
    passes: list[list[float]] = field(default_factory=list)

    def wants_more(self, enough: float) -> bool:
        """Whether another repeat tells something: not after a cap, nor where the run is long anyway."""
        return self.path is None or (not self.path.capped and sum(self.totals) < enough)

    def run(self, task: Task) -> None:
        """One run between two groups of plain passes."""
        before = pass_seconds(task.plain, task.x0)
        busy = time.process_time()
        path = self.contender.run(task)
        busy = time.process_time() - busy
        after = pass_seconds(task.plain, task.x0)
        if self.path is None:
            self.path = path
        elif len(path.points) != len(self.path.points):
            return  # not the same path, as under a deadline that struck elsewhere; the first one stands
        self.clocks.append(path.seconds)
        self.totals.append(path.total)
        self.busy.append(busy)
        self.passes.append(before + after)

    def report(self, setting: Setting, start: str, seed: int) -> dict[str, Any]:
        """Everything that is kept of it."""
        path = self.path
        assert path is not None
        crossed = crossings(setting.problem, setting.plain, path, setting.lowest, [float(gap) for gap in GAPS])
        reached = {
            gap: None
            if i is None
            else {
                "seconds": [clock[i] for clock in self.clocks],
                "iterations": i,
                "epochs": path.epochs_at(i),
            }
            for gap, i in zip(GAPS, crossed.at, strict=True)
        }
        return {
            "method": self.contender.method,
            "oracle": self.contender.oracle,
            "ours": self.contender.ours,
            "l2": setting.l2,
            "start": start,
            "seed": seed,
            "reached": reached,
            "pass_seconds": [float(np.median(group)) for group in self.passes],
            "pass_spread": [[min(group), max(group)] for group in self.passes],
            "total_seconds": self.totals,
            "cpu_seconds": self.busy,
            "ended": path.ended,
            "cap": self.cap if path.capped else None,
            "last": crossed.last,
            "lowest": crossed.lowest,
            "other_minimum": crossed.other_minimum,
            "points": len(path.points),
        }


def cap_for(case: Case, contender: Contender, stm_seconds: float, late: bool) -> float:
    """How long a run may take: ours long, the others by the time of STM."""
    if contender.method in OURS:
        return 2 * case.longest
    asked = contender.method == "L-BFGS-B" and contender.oracle == "tercet"
    patience = 3.0 if late else (case.lbfgs_patience if asked else case.patience)
    return float(np.clip(patience * stm_seconds, case.shortest, 3 * case.longest if asked else case.longest))


def run_cell(
    case: Case, setting: Setting, start: str, seed: int, progress: Progress, begin: float, late: bool = False
) -> list[dict[str, Any]]:
    """All contenders on one task, in turn, again and again; what is slow, or when the budget runs low, only once.

    Ours are timed more often, and when it is late only they are.
    """
    x0 = start_at(start, setting.problem.d, seed)
    # From zero a deterministic method takes the same path for every seed; full STM is timed again beside STM.
    chosen = [
        c
        for c in setting.contenders
        if (c.label, start) not in setting.hopeless
        and (seed == 0 or start != "zero" or c.method in (*OURS, "SGD"))
        and (not late or c.method in OURS)
    ]
    timings: dict[str, Timings] = {}
    stm_seconds = case.longest

    def spent() -> float:
        return (time.perf_counter() - begin) / case.budget

    def wanted(c: Contender, repeat: int) -> bool:
        return c.method in OURS or repeat == 0 or (repeat < case.repeats and spent() <= 0.5)

    for repeat in range(case.repeats + MORE):
        for c in chosen:
            timing = timings.setdefault(c.label, Timings(c, cap_for(case, c, stm_seconds, spent() > 1)))
            if not (wanted(c, repeat) and timing.wants_more(case.enough * (3 if c.method in OURS else 1))):
                continue
            progress.show(f"l2 {setting.l2}  start {start}  seed {seed}  {c.label}")
            timing.run(Task(setting.problem, setting.plain, x0, seed, setting.lowest, timing.cap))
            if c.method == "STM" and repeat == 0:
                stm_seconds = timing.totals[0]
    reports = [timing.report(setting, start, seed) for timing in timings.values()]
    for contender, report in zip(chosen, reports, strict=True):
        if report["cap"] is not None and report["reached"][GAPS[-1]] is None and contender.method not in OURS:
            setting.hopeless.add((contender.label, start))
    return reports


def run_settings(case: Case, settings: list[Setting], progress: Progress) -> dict[str, Any]:
    """All runs of a case; seeds are the outermost loop, so that a spent budget costs the last ones."""
    runs: list[dict[str, Any]] = []
    begin, done = time.perf_counter(), 0
    for seed in range(case.seeds):
        # Another seed like the ones before would go beyond the budget.
        late = seed > done or (seed > 0 and time.perf_counter() - begin > case.budget * seed / (seed + 1))
        for setting in settings:
            for start in case.starts:
                runs += run_cell(case, setting, start, seed, progress, begin, late)
        done += not late
    return {
        "case": case.name,
        "title": case.title,
        "seeds": case.seeds,
        "peer_seeds": done,
        "settings": {
            s.l2: {
                "l2": s.plain.l2,
                "lowest": s.lowest,
                "lowest_seen": min([s.lowest, *(r["last"] for r in runs if r["l2"] == s.l2)]),
                "setup_seconds": s.setup,
                "sgd_step": s.sgd_step,
            }
            for s in settings
        },
        "runs": runs,
    }


def run_case(case: Case, progress: Progress) -> dict[str, Any]:
    """The raw numbers of a case."""
    progress.begin(case.name)
    progress.show("data")
    whole = time.perf_counter()
    X, y = prepared(case.make())
    read = time.perf_counter() - whole
    warm_up(case, (X, y))
    settings = []
    for name in case.penalties:
        progress.show(f"minimum at l2 {name}")
        settings.append(set_up(case, (X, y), name))
    return {
        **run_settings(case, settings, progress),
        "loss": case.loss,
        "n": X.shape[0],
        "d": X.shape[1],
        "entries": int(X.nnz if sp.issparse(X) else X.size),
        "data_bytes": data_bytes(X, y),
        "read_seconds": read,
        "seconds": time.perf_counter() - whole,
    }
