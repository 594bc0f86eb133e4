"""One run becomes one record: a method on a data set from a start, watched from outside.

The objective over all data and its gradient along the path are evaluated afterwards, outside the clock and the counts.
"""

from __future__ import annotations

import contextlib
import io
import time
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np
import scipy.optimize

import tercet
from tercet.datasets.catalogue import Dataset
from tercet.experiments import methods
from tercet.experiments.methods import Plan, SciPyMethod
from tercet.experiments.spec import scale_of
from tercet.experiments.traces import COLUMNS, TOL, Mark, Watch, certificate_at, certificate_json, pack, plain, trace_of
from tercet.objectives.metered import Meter, Metered
from tercet.records import Certificate, Counts, Sizes, Status, Vector
from tercet.result import Info

MOST_ROWS = 400
MOST_ROWS_LARGE = 120  # where one value over all data takes tens of milliseconds
LARGE = 3_000_000  # stored entries of X


@dataclass(frozen=True)
class Task:
    """One run, as it is handed to a worker."""

    dataset: str
    l2: float
    start: str
    seed: int
    plan: Plan
    max_epochs: float
    max_seconds: float | None = None
    loss: str = ""
    note: str = ""

    @property
    def key(self) -> dict[str, Any]:
        """What tells this run from all others of the comparison."""
        return {
            "dataset": self.dataset,
            "l2": self.l2,
            "start": self.start,
            "seed": self.seed,
            "method": self.plan.label,
        }

    def as_json(self) -> dict[str, Any]:
        """For the way to a worker."""
        return asdict(self)

    @staticmethod
    def from_json(found: dict[str, Any]) -> Task:
        """The task again."""
        return Task(**{**found, "plan": Plan(**found["plan"])})


class SpentError(Exception):
    """A budget is used up; the value is the status."""


@dataclass(frozen=True, eq=False)
class Ended:
    """How a run ended."""

    status: str
    message: str
    x: Vector | None
    certificate: Certificate | None
    error: str | None = None


# --- problems and starts


def problem_of(dataset: Dataset, l2: float, loss: str = "") -> tercet.LinearModel:
    """The linear model of a data set; an empty loss is the data set's own."""
    return tercet.LinearModel(dataset.X, dataset.y, loss or dataset.info.loss, l2=l2)


def loss_name(dataset: Dataset, loss: str) -> str:
    """The loss in words."""
    own = loss or dataset.info.loss
    return own if isinstance(own, str) else type(own).__name__


def start_of(start: str, seed: int, d: int) -> Vector:
    """Zero, or a multiple of N(0, I) that the seed decides."""
    scale = scale_of(start)
    return np.zeros(d) if scale == 0 else scale * np.random.default_rng([seed, 7]).standard_normal(d)


# --- the run


def run(task: Task, dataset: Dataset, problem: tercet.LinearModel) -> dict[str, Any]:
    """The record of one run; a method that raises gives a record with its error."""
    record = head(task, problem.n, problem.d, loss_name(dataset, task.loss))
    x0 = start_of(task.start, task.seed, problem.d)
    watch = Watch(problem.n, task.max_epochs)
    watch.add(Mark(0, 0.0, Counts(n=problem.n), Sizes(0, 0, 0, 0), x0), x0)
    try:
        method = methods.make(task.plan)
        record["settings"] = methods.printable(task.plan, method)
        warm_up(problem, x0)
        # what a run prints has no place among others; np.errstate: diverging runs are outcomes, not warnings
        quiet = io.StringIO()
        with contextlib.redirect_stderr(quiet), contextlib.redirect_stdout(quiet), np.errstate(all="ignore"):
            go = run_scipy if isinstance(method, SciPyMethod) else run_ours
            ended = go(task, method, problem, x0, watch)
    except (Exception, SystemExit) as error:  # a method that fails is a row of the comparison
        ended = Ended("ERROR", "The method raised an exception.", watch.last, None, told(error))
    with np.errstate(all="ignore"):
        return finish(record, ended, watch, problem, getattr(dataset.X, "nnz", np.size(dataset.X)))


def told(error: BaseException) -> str:
    """An exception in one line of bounded length."""
    text = " ".join(f"{type(error).__name__}: {error}".split())
    return text if len(text) <= 500 else text[:500] + "..."


def warm_up(problem: tercet.LinearModel, x0: Vector) -> None:
    """Load what is compiled, so that no run is charged for it."""
    point = problem.over(np.arange(min(2, problem.n))).at(x0)
    if problem.traits.dense:
        point.hessian()
    point.gradient()


def run_ours(task: Task, method: Any, problem: tercet.LinearModel, x0: Vector, watch: Watch) -> Ended:
    """A method with `start(run)`, driven by `minimize`."""
    two = getattr(method, "order", 3) < 3  # sizes of a sample that is never drawn mean nothing

    def callback(info: Info) -> bool:
        r = info.row
        s = Sizes(r.sizes.value, r.sizes.gradient, r.sizes.hessian, 0) if two else r.sizes
        mark = Mark(r.iteration + 1, r.seconds, r.counts, s, None, r.sigma, r.ratio, r.accepted, r.third_bought)
        return watch.add(mark, info.x)

    result = tercet.minimize(
        problem,
        x0,
        method=method,
        tol=TOL,
        seed=task.seed,
        max_iterations=10**9,
        max_seconds=task.max_seconds,
        callback=callback,
    )
    status, holds = result.status, result.certificate.holds
    if status in (Status.CERTIFIED, Status.NOT_CERTIFIED) and watch.marks[-1].counts != result.counts:
        # the stop test evaluated derivatives after the last step, which have to be paid for as well
        n, last = problem.n, watch.marks[-1]
        sizes = Sizes(n, n, n, n)
        watch.add(Mark(last.iteration, result.seconds, result.counts, sizes, None, last.sigma, sampled=False), result.x)
    if status is Status.CALLBACK:
        status = Status.CERTIFIED if holds else Status.MAX_EPOCHS
    message = status.value if result.status is Status.CALLBACK else result.message
    error = None if result.error is None else told(result.error)
    return Ended(status.name, message, result.x, result.certificate, error)


def run_scipy(task: Task, method: SciPyMethod, problem: tercet.LinearModel, x0: Vector, watch: Watch) -> Ended:
    """A method of SciPy, or one that SciPy can call, with our derivatives, counted the same way."""
    tally = Tally(task, problem, watch)
    more: dict[str, Any] = {"hess": tally.hessian} if method.hessian else {}
    try:
        found = scipy.optimize.minimize(
            tally.value,
            x0,
            jac=tally.gradient,
            method=method.name,
            options=method.options,
            callback=tally.callback,
            **more,
        )
        x: Vector = np.asarray(found.x, dtype=np.float64)
        message = str(found.message)
        tally.mark(x)
        status = "SUCCESS" if found.success else "STOPPED"
    except SpentError as spent:
        assert watch.last is not None
        x, status = watch.last, str(spent)
        message = Status[status].value
        tally.mark(x)
    certificate = certificate_at(problem, x)
    return Ended("CERTIFIED" if certificate.holds else status, message, x, certificate)


class Tally:
    """Values and derivatives over all data for a method of SciPy: counted, timed, and ended by the budgets."""

    def __init__(self, task: Task, problem: tercet.LinearModel, watch: Watch):
        self.problem, self.watch, self.max_epochs = problem, watch, task.max_epochs
        self.meter = Meter(problem.n)
        self.view = Metered.of(problem, self.meter).over(None)
        self.point = self.view.at(start_of(task.start, task.seed, problem.d))
        self.started = time.perf_counter()
        self.deadline = np.inf if task.max_seconds is None else self.started + task.max_seconds
        self.seen = Counts(n=problem.n)

    def at(self, x: Vector) -> Any:
        """The point at x, kept so that its product with the data serves value and derivatives."""
        if time.perf_counter() > self.deadline:
            raise SpentError("MAX_SECONDS")
        if self.meter.counts().epochs >= self.max_epochs:
            raise SpentError("MAX_EPOCHS")
        if not np.array_equal(self.point.x, x):
            self.point = self.view.at(np.array(x, dtype=np.float64))
        return self.point

    def value(self, x: Vector) -> float:
        """f(x)."""
        return float(self.at(x).value())

    def gradient(self, x: Vector) -> Vector:
        """grad f(x)."""
        return np.array(self.at(x).gradient())

    def hessian(self, x: Vector) -> Any:
        """hess f(x)."""
        return self.at(x).hessian()

    def callback(self, intermediate_result: Any) -> None:
        """After an iteration: SciPy gives a result, another method may give x."""
        self.mark(np.asarray(getattr(intermediate_result, "x", intermediate_result), dtype=np.float64))

    def mark(self, x: Vector) -> None:
        """Note where the run stands, once for the same counts."""
        counts = self.meter.counts()
        if counts != self.seen:
            # a Sizes of more than any count: each evaluation is over all data, at a point of its own
            sizes = Sizes(*(4 * [int(1e18)]))
            k = self.watch.marks[-1].iteration + 1
            self.watch.add(Mark(k, time.perf_counter() - self.started, counts, sizes, None, accepted=True), x)
            self.seen = counts


# --- the record


def head(task: Task, n: int, d: int, loss: str) -> dict[str, Any]:
    """The part of a record that is known before the run."""
    return {
        "key": task.key,
        "n": n,
        "d": d,
        "loss": loss,
        "lambda_note": task.note,
        "family": methods.family(task.plan),
        "settings": methods.in_words(task.plan.settings),
        "counting_note": methods.counting(task.plan),
    }


def lost(task: Task, n: int, d: int, loss: str, error: str) -> dict[str, Any]:
    """The record of a run whose process died."""
    empty: dict[str, list[Any]] = {name: [] for name in COLUMNS}
    ended = {"status": "ERROR", "message": "The process of the run ended.", "success": False, "error": error}
    rest = {"fun": None, "seconds": None, "certificate": None, "basin": None, "x": None, "trace": empty}
    return {**head(task, n, d, loss), **ended, **rest}


def finish(
    record: dict[str, Any], ended: Ended, watch: Watch, problem: tercet.LinearModel, entries: int
) -> dict[str, Any]:
    """The whole record: the path is thinned, evaluated over all data, and laid out in columns."""
    trace = trace_of(watch, problem, MOST_ROWS if entries < LARGE else MOST_ROWS_LARGE)
    certificate = ended.certificate
    x = ended.x if ended.x is not None and np.all(np.isfinite(ended.x)) else None
    return {
        **record,
        "status": ended.status,
        "message": ended.message,
        "success": bool(certificate is not None and certificate.holds and ended.error is None),
        "error": ended.error,
        "fun": None if x is None else plain(problem.over(None).at(x).value()),
        "seconds": trace["seconds"][-1],
        "certificate": None if certificate is None else certificate_json(certificate),
        "basin": None,
        "x": None if x is None else pack(x),
        "trace": trace,
    }
