"""The methods that are compared: each runs a case once and leaves its path."""

from __future__ import annotations

import time
import warnings
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np
import scipy.optimize

import tercet
from benchmarks.speed.oracles import Enough
from benchmarks.suite import plain
from benchmarks.suite.cases import FUNCTIONS, Instance, Prepared
from benchmarks.suite.paths import STALLED, Clock, Oracle, Path, tally
from tercet.objectives.base import traits_of
from tercet.objectives.metered import DeadlineError, Meter, Metered
from tercet.records import ORDERS

DENSE = 1000  # up to this many variables peers are given a dense Hessian
QUASI = 200  # up to this many variables BFGS stands for the methods without second derivatives, CG above
OURS = {
    "STM": tercet.STM(),
    "SCR": tercet.SCR(),
    "ARC": tercet.SCR(tercet.Full()),
    "AR3": tercet.STM(tercet.Full()),
}
SCIPY: dict[str, dict[str, Any]] = {
    "L-BFGS-B": {"ftol": 0.0, "gtol": 1e-12, "maxiter": 10**6, "maxfun": 10**7},
    "trust-exact": {"gtol": 1e-12, "maxiter": 10**4},
    "trust-krylov": {"gtol": 1e-12, "maxiter": 10**4},
    "trust-ncg": {"gtol": 1e-12, "maxiter": 10**4},
    "Newton-CG": {"xtol": 1e-15, "maxiter": 10**4},
    "BFGS": {"gtol": 1e-12, "maxiter": 10**5},
    "CG": {"gtol": 1e-12, "maxiter": 10**6},
}
FIRST_ORDER = ("L-BFGS-B", "BFGS", "CG")
MINPACK = ("MINPACK", "MINPACK-defaults")  # asked for all digits, and as `least_squares` asks by itself
MOST_ITERATIONS = {"mgh": 500, "mgh10": 500, "singular": 500}  # else the default


WALL = 10.0  # on a busy machine a run may take so many times its processor seconds


@dataclass(frozen=True, eq=False)
class Task:
    """One run: the problem, its group, the processor seconds it may take, and the values that matter for its end.

    A peer ends once it saw a value at most `close`; a run of ours that has been below `done` for many iterations over
    all data is ended, since nothing is left to be measured but whether rounding lets it be certified.
    """

    instance: Instance
    group: str
    cap: float
    close: float = -np.inf
    done: float = -np.inf


Runner = Callable[[Task], Path]


def asked(group: str) -> float | None:
    """What a run of ours is asked for. A fit is asked what a user asks by saying nothing: each parameter to a part of
    its size. An absolute gradient says nothing of the parameters of a sum of squares, which is small in its own units.
    """
    return None if group == "nist" else 1e-8 if group in FUNCTIONS else 1e-10


def run_ours(method: Any) -> Runner:
    """A method of this library, seen through its callback."""

    def run(task: Task) -> Path:
        objective = task.instance.objective
        n, path, below = objective.n, Path(Clock()), 0
        path.add(0.0, task.instance.x0, (0,) * len(ORDERS), None, True)

        def watch(info: tercet.Info) -> bool:
            nonlocal below
            seconds, begin = path.clock.read(), time.process_time()
            c, full = info.row.counts, info.row.sizes.is_full(n)
            path.add(seconds, info.x, (c.value, c.gradient, c.hessian, c.third), None, full)
            below = below + 1 if full and info.row.f <= task.done else 0
            path.clock.stopped += time.process_time() - begin
            path.capped = seconds > task.cap
            return path.capped or below >= STALLED

        result = tercet.minimize(
            Prepared(objective),
            task.instance.x0,
            method=method,
            tol=asked(task.group),
            order=1 if task.group in ("mgh", "mgh10") or objective.d > DENSE else None,
            max_seconds=WALL * task.cap,
            max_iterations=MOST_ITERATIONS.get(task.group),
            callback=watch,
        )
        path.total, path.ended, path.certified = path.clock.read(), result.status.name, result.success
        path.capped, path.x = path.capped or result.status.name.startswith("MAX_"), np.asarray(result.x)
        path.counts_at_end = (result.counts.value, result.counts.gradient, result.counts.hessian, result.counts.third)
        return path

    return run


def run_called(go: Callable[[Oracle, Task, Callable[[np.ndarray], None]], str], together: bool = False) -> Runner:
    """A method that calls functions of x, with our derivatives behind them."""

    def run(task: Task) -> Path:
        objective = task.instance.objective
        meter, path = Meter(objective.n, time.perf_counter() + WALL * task.cap), Path(Clock())
        oracle = Oracle(Metered.of(objective, meter), together, time.process_time() + task.cap)
        path.add(0.0, task.instance.x0, (0,) * len(ORDERS), None, True)

        def watch(x: np.ndarray) -> None:
            seconds, begin = path.clock.read(), time.process_time()
            value = oracle.known(x)
            path.add(seconds, x, tally(meter), value, True)
            ends = (value is not None and value <= task.close) or path.stands_still
            path.clock.stopped += time.process_time() - begin
            if ends:
                raise Enough

        try:
            with warnings.catch_warnings(), np.errstate(all="ignore"):
                warnings.simplefilter("ignore")
                path.ended = go(oracle, task, watch)
        except Enough:
            path.ended = "close enough or standing still"
        except DeadlineError:
            path.ended, path.capped = "time", True
        except Exception as error:  # a peer that cannot go on has ended there
            path.ended = f"raised {type(error).__name__}: {error}"
        path.total, path.counts_at_end = path.clock.read(), tally(meter)
        return path

    return run


def run_scipy(method: str) -> Runner:
    """A method of `scipy.optimize`."""

    def go(oracle: Oracle, task: Task, watch: Callable[[np.ndarray], None]) -> str:
        second = {}
        if method == "trust-exact":
            second = {"hess": oracle.hessian}
        elif method not in FIRST_ORDER:
            second = {"hessp": oracle.hessian_product}
        options = dict(SCIPY[method])
        if task.group in FUNCTIONS and "gtol" in options:
            options["gtol"] = 1e-8
        answer = scipy.optimize.minimize(
            oracle.value,
            task.instance.x0,
            jac=oracle.gradient,
            method=method,
            callback=lambda x: watch(x),
            options=options,
            **second,
        )
        return str(answer.message)

    return run_called(go, method in FIRST_ORDER)


def go_plain(oracle: Oracle, task: Task, watch: Callable[[np.ndarray], None]) -> str:
    """The textbook method."""
    objective = task.instance.objective
    dense = traits_of(objective).dense and objective.d <= DENSE
    return plain.minimize(oracle, task.instance.x0, dense, watch, 1e-8 if task.group in FUNCTIONS else 1e-10)


def go_minpack(oracle: Oracle, task: Task, watch: Callable[[np.ndarray], None], tol: float) -> str:
    """Levenberg-Marquardt on the residuals; its evaluations are counted as values (residuals) and gradients."""
    regression, tallies = task.instance.regression, oracle.metered.meter.tally
    residuals, jacobian = regression.compiled()

    def counted(order: str, call: Callable[[np.ndarray], np.ndarray]) -> Callable[[np.ndarray], np.ndarray]:
        def ask(x: np.ndarray) -> np.ndarray:
            oracle.metered.meter.look()
            tallies[order] += 1
            return call(x)

        return ask

    answer = scipy.optimize.least_squares(
        counted("value", residuals), task.instance.x0, jac=counted("gradient", jacobian), method="lm", x_scale="jac",
        xtol=tol, ftol=tol, gtol=tol, max_nfev=5000,
    )  # fmt: skip
    watch(answer.x)
    return str(answer.message)


RUNNERS: dict[str, Runner] = {
    **{name: run_ours(method) for name, method in OURS.items()},
    "plain": run_called(go_plain),
    **{name: run_scipy(name) for name in SCIPY},
    "MINPACK": run_called(partial(go_minpack, tol=1e-15)),
    "MINPACK-defaults": run_called(partial(go_minpack, tol=1e-8)),
}


def names_for(instance: Instance, quick: bool = False) -> list[str]:
    """Who runs on a problem: ours, `plain`, and five methods of SciPy by size.

    With one term the methods over all data are the same as those that sample; of such functions a quick run has only
    the peer with a dense Hessian.
    """
    objective = instance.objective
    ours = ["STM", "ARC"] if objective.n == 1 else ["STM", "SCR", "ARC", "AR3"]
    dense = traits_of(objective).dense and objective.d <= DENSE
    peers = ["trust-exact" if dense else "trust-krylov", "trust-ncg", "Newton-CG", "L-BFGS-B"]
    peers.append("BFGS" if objective.d <= QUASI else "CG")
    peers = peers[:1] if quick and objective.n == 1 else peers
    return [*ours, "plain", *peers, *(MINPACK if instance.regression is not None else [])]
