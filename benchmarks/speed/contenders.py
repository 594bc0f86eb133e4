"""The methods that are compared, each as a function from a start to the path it took."""

from __future__ import annotations

import time
import warnings
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import scipy.optimize

import tercet
from benchmarks.speed.oracles import ORDERS, Enough, Oracle, PlainModel

HESSIAN_LIMIT = 1000  # methods that factor a dense Hessian are run up to this many variables
TOLERANCE = 1e-10  # of our methods; the gap of 1e-10 needs less than the default 1e-8 where l2 is tiny
CLOSE = 3e-11  # a peer's run ends once it saw a value this close to the minimum

PEERS: dict[str, dict[str, Any]] = {
    "L-BFGS-B": {"ftol": 0.0, "gtol": 1e-13, "maxiter": 10**6, "maxfun": 10**7},
    "Newton-CG": {"xtol": 1e-15, "maxiter": 10**5},
    "trust-ncg": {"gtol": 1e-13, "maxiter": 10**4},
    "trust-krylov": {"gtol": 1e-13, "maxiter": 10**4},
    "trust-exact": {"gtol": 1e-13, "maxiter": 10**4},
}


@dataclass(eq=False)
class Path:
    """The points of a run with the seconds since its begin and the evaluations so far, in epochs by order."""

    seconds: list[float] = field(default_factory=list)
    points: list[np.ndarray] = field(default_factory=list)
    epochs: list[Any] = field(default_factory=list)
    values: list[float | None] = field(default_factory=list)  # f at the points where the run knew it
    total: float = np.nan  # seconds of the whole run, its certificate included
    ended: str = ""
    capped: bool = False

    def add(self, seconds: float, x: np.ndarray, epochs: Any, value: float | None = None) -> None:
        """One more point; x is copied."""
        self.seconds.append(seconds)
        self.points.append(x.copy())
        self.epochs.append(epochs)
        self.values.append(value)

    def epochs_at(self, i: int) -> dict[str, float]:
        """Epochs by order at a point, all of them under `all`."""
        e = self.epochs[i]
        parts = {o: e[o] if isinstance(e, dict) else getattr(e, o) / e.n for o in ORDERS}
        return {**parts, "all": sum(parts.values())}


@dataclass(frozen=True, eq=False)
class Task:
    """One problem with one start and one seed; `lowest` tells peers when to end, `cap` is in seconds."""

    problem: tercet.LinearModel
    plain: PlainModel | None  # None where nobody asks for it
    x0: np.ndarray
    seed: int
    lowest: float
    cap: float


@dataclass(frozen=True)
class Contender:
    """A method by its name, whose derivative code it uses, and how it runs."""

    method: str
    oracle: str  # "tercet": our derivatives, "scipy": plain SciPy's
    run: Callable[[Task], Path]
    ours: bool = False

    @property
    def label(self) -> str:
        """For tables and progress."""
        return self.method if self.ours else f"{self.method} ({self.oracle})"


def run_ours(method: Any, thin: int = 1, max_epochs: float | None = None) -> Callable[[Task], Path]:
    """A method of this library through its callback, which does nothing but keep (every `thin`-th of) the points."""

    def run(task: Task) -> Path:
        path, seen = Path(), 0
        path.add(0.0, task.x0, dict.fromkeys(ORDERS, 0.0))
        begin = time.perf_counter()

        def watch(info: tercet.Info) -> None:
            nonlocal seen
            seen += 1
            if seen % thin == 0:
                path.add(time.perf_counter() - begin, info.x, info.row.counts)

        result = tercet.minimize(
            task.problem,
            task.x0,
            method=method,
            seed=task.seed,
            tol=TOLERANCE,
            # The certificate comes after the last gap; of order 2 it takes all eigenvalues where l2 < zeta and n < d.
            order=1 if task.problem.d > HESSIAN_LIMIT else None,
            max_seconds=task.cap,
            max_epochs=max_epochs,
            max_iterations=100_000,
            callback=watch,
        )
        path.total, path.ended = time.perf_counter() - begin, result.status.name
        path.capped = result.status.name.startswith("MAX_")
        return path

    return run


def run_scipy(method: str, fast: bool) -> Callable[[Task], Path]:
    """A method of `scipy.optimize`, with our derivatives (`fast`) or with plain SciPy's."""

    def run(task: Task) -> Path:
        at = task.problem.over(None).at if fast else task.plain.at
        path = Path()
        path.add(0.0, task.x0, dict.fromkeys(ORDERS, 0))
        begin = time.perf_counter()
        oracle = Oracle(at, begin + task.cap, task.lowest, CLOSE)

        def watch(x: np.ndarray) -> None:
            path.add(time.perf_counter() - begin, x, dict(oracle.tally), oracle.known(x))
            if oracle.done:
                raise Enough

        second = {}
        if method == "trust-exact":
            second = {"hess": oracle.hessian}
        elif method != "L-BFGS-B":
            second = {"hessp": oracle.hessian_product}
        try:
            with warnings.catch_warnings(), np.errstate(all="ignore"):
                warnings.simplefilter("ignore")
                answer = scipy.optimize.minimize(
                    oracle.value,
                    task.x0,
                    jac=oracle.gradient,
                    method=method,
                    callback=watch,
                    options=PEERS[method],
                    **second,
                )
            path.ended = str(answer.message)
        except Enough:
            path.capped = not oracle.done
            path.ended = "time" if path.capped else "close enough"
        path.total = time.perf_counter() - begin
        return path

    return run


def ours(sgd_step: float) -> list[Contender]:
    """The methods of this library; STM first, since the others' caps depend on its time."""
    full = tercet.Full()
    methods = {
        "STM": run_ours(tercet.STM()),
        "SCR": run_ours(tercet.SCR()),
        "STM full (AR3)": run_ours(tercet.STM(full)),
        "SCR full (ARC)": run_ours(tercet.SCR(full)),
        "SGD": run_ours(tercet.SGD(batch=0.05, step=sgd_step), thin=5, max_epochs=30),
    }
    return [Contender(name, "tercet", run, ours=True) for name, run in methods.items()]


def peers(d: int, chosen: tuple[str, ...] = ()) -> list[Contender]:
    """SciPy's methods (the chosen ones) with both oracles; those that factor a Hessian only where d allows."""
    names = [name for name in chosen or PEERS if name != "trust-exact" or d <= HESSIAN_LIMIT]
    return [
        Contender(name, oracle, run_scipy(name, oracle == "tercet")) for name in names for oracle in ("tercet", "scipy")
    ]


def tuned_step(problem: tercet.LinearModel, plain: PlainModel) -> float:
    """The step of SGD, of four around 1/L, that gets lowest from zero in five epochs; L is the largest curvature."""
    X, n = plain.X, len(plain.y)
    v = np.random.default_rng(0).standard_normal(problem.d)
    for _ in range(12):
        v = X.T @ (X @ (v / np.linalg.norm(v))) / n
    curvature = 0.25 * np.linalg.norm(v) + plain.l2  # |l''| is at most 0.155 (sigmoid squares) and 0.25 (logistic)
    steps = [factor / curvature for factor in (0.5, 2.0, 8.0, 32.0)]
    ends = [
        tercet.minimize(problem, method=tercet.SGD(batch=0.05, step=step), max_epochs=5, order=1).fun for step in steps
    ]
    return steps[int(np.argmin(ends))]
