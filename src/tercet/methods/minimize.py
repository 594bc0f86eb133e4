"""`minimize`: check the arguments, drive a method within its budgets, hand back the best point and its certificate."""

from __future__ import annotations

import os
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np

from tercet.criticality import Tolerances
from tercet.methods.checkpoint import Checkpoint, CheckpointError, Writer, describe, differences, read, rebuild
from tercet.methods.drive import Drive
from tercet.methods.run import Method, Run
from tercet.methods.sgd import SGD
from tercet.methods.sigma import PaperSigma, SignedEstimate
from tercet.methods.stm import SCR, STM
from tercet.objectives.base import Bound, Problem
from tercet.objectives.checking import DerivativeError
from tercet.objectives.checking import check_derivatives as compare_with_differences
from tercet.objectives.counting import Meter
from tercet.objectives.functions import Function
from tercet.result import Info, Result
from tercet.sampling import Adaptive, Fixed, Full, Growing, Progressive, Ranges, Theory
from tercet.subsolvers import Accelerated, Dense, GradientDescent, Krylov, Subspace

PARTS: dict[str, type] = {
    part.__qualname__: part
    for part in (
        STM, SCR, SGD, PaperSigma, SignedEstimate, Full, Fixed, Growing, Adaptive, Progressive,
        Theory, Ranges, Dense, Krylov, Subspace, GradientDescent, Accelerated,
    )
}  # fmt: skip
THIRD_ORDER_LIMIT = 3000  # up to this many variables a third-order certificate is asked for by default


def minimize(
    problem: Any,
    x0: Any = None,
    *,
    method: Method | None = None,
    tol: float = 1e-8,
    order: int | None = None,
    seed: int = 0,
    max_iterations: int | None = None,
    max_seconds: float | None = None,
    max_epochs: float | None = None,
    callback: Callable[[Info], Any] | None = None,
    grad: Callable[..., Any] | None = None,
    hess: Callable[..., Any] | None = None,
    hvp: Callable[..., Any] | None = None,
    third: Callable[..., Any] | None = None,
    tvp: Callable[..., Any] | None = None,
    checkpoint: str | Path | None = None,
    checkpoint_every: int = 1,
    check_derivatives: bool = False,
) -> Result:
    """Find x with chi_i(x) <= eps_i for i = 1 ... order, where eps_1 = tol, eps_2 = tol^(2/3), eps_3 = tol^(1/3).

    `problem` is a LinearModel, a FiniteSum, or a plain function of x0's structure. A plain function is differentiated
    by JAX where it can be traced; or its derivatives are given as NumPy callables: `grad(x)`, `hess(x)` or
    `hvp(x, v)`, `third(x)` (dense) or `tvp(x, u, v)` = T[u, v]. What is left out is made from what is there by
    differences, and the certificate says so.

    `method` is an STM (the default), SCR or SGD. `order` is how much the certificate asks: 1, 2 or 3 (default 3 up to
    3000 variables, else 2). Budgets: `max_iterations` (default 1000), `max_seconds`, `max_epochs` (component
    evaluations of all orders over n). `callback(info)` is called after every iteration; returning True or raising
    StopIteration ends the run. `checkpoint` names a file that is written after every `checkpoint_every`-th iteration
    (at the first accepted step from there); `resume` continues from it. `check_derivatives` compares the derivatives
    with differences first, and raises at the first entry that is off; these evaluations are not counted.

    The point returned is never worse than x0 by the full objective. The same seed gives the same result.
    """
    check_budgets(tol=tol, max_iterations=max_iterations, max_seconds=max_seconds, max_epochs=max_epochs)
    check_choices(method, order, seed, callback)
    check_checkpoint(checkpoint, checkpoint_every)
    derivatives = {"grad": grad, "hess": hess, "hvp": hvp, "third": third, "tvp": tvp}
    target = as_problem(problem, {name: call for name, call in derivatives.items() if call is not None})
    bound = target.bind(x0)
    if check_derivatives:
        try:
            compare_with_differences(bound.objective, bound.x0, seed)
        except DerivativeError:
            raise
        except Exception as error:
            raise ValueError(
                f"minimize(check_derivatives=True): the function raised {type(error).__name__}: {error}"
            ) from error
    settings = {
        "method": describe(method or STM()),
        "tol": tol,
        "order": order or (3 if bound.objective.d <= THIRD_ORDER_LIMIT else 2),
        "seed": int(seed),
        "max_iterations": 1000 if max_iterations is None else int(max_iterations),
        "max_seconds": max_seconds,
        "max_epochs": max_epochs,
        "checkpoint_every": checkpoint_every,
    }
    return launch(target, bound, method or STM(), settings, callback, checkpoint, None)


def launch(
    target: Problem,
    bound: Bound,
    method: Method,
    settings: dict[str, Any],
    callback: Callable[[Info], Any] | None,
    path: str | Path | None,
    past: Checkpoint | None,
) -> Result:
    """Run a method with checked settings, from the start or from a checkpoint."""
    started = time.perf_counter() - (0.0 if past is None else past.seconds)
    deadline = np.inf if settings["max_seconds"] is None else started + settings["max_seconds"]
    tolerances = Tolerances.of(settings["tol"], settings["order"])
    run = Run(bound.objective, bound.x0, settings["seed"], tolerances, Meter(bound.objective.n, deadline))
    walk = method.start(run)
    drive = Drive(run, walk, bound, callback, started, settings["max_iterations"], settings["max_epochs"])
    if past is not None:
        walk.restore(past.state)
        drive.rows = list(past.trace)
    if path is not None:
        x0 = bound.restore(bound.x0.copy())
        every = settings["checkpoint_every"]
        drive.writer = Writer(Path(path), settings, target.fingerprint(), x0, run.n, every, len(drive.rows))
    status, error = drive.go()
    return drive.finish(status, error, repr(method))


def resume(
    path: str | Path,
    problem: Any,
    *,
    method: Method | None = None,
    max_iterations: int | None = None,
    max_seconds: float | None = None,
    max_epochs: float | None = None,
    callback: Callable[[Info], Any] | None = None,
    **derivatives: Callable[..., Any],
) -> Result:
    """Continue the run of a checkpoint on the same problem; iterates, samples, counts and trace are those of one run.

    `problem` (for a plain function also its `grad`, `hess`, ...) must be that of the checkpoint: another one is refused
    with the difference named. The method is rebuilt from the checkpoint; where it used parts that are not tercet's own,
    pass `method` again. Budgets that are given replace the old ones. The file is written on as the run goes on.
    """
    check_budgets(tol=1.0, max_iterations=max_iterations, max_seconds=max_seconds, max_epochs=max_epochs)
    check_choices(method, None, 0, callback)
    past = read(path)
    target = as_problem(problem, derivatives)
    changed = differences(past.fingerprint, target.fingerprint())
    if changed:
        raise CheckpointError(f"resume({str(path)!r}): the checkpoint is of another problem: {'; '.join(changed)}.")
    if method is None:
        method = rebuild(past.settings["method"], PARTS)
    elif describe(method) != past.settings["method"]:
        changed = differences(past.settings["method"], describe(method))
        raise CheckpointError(f"resume({str(path)!r}): the checkpoint has another method: {'; '.join(changed)}.")
    budgets = {"max_iterations": max_iterations, "max_seconds": max_seconds, "max_epochs": max_epochs}
    settings = {**past.settings, **{name: value for name, value in budgets.items() if value is not None}}
    return launch(target, target.bind(past.x0), method, settings, callback, path, past)


def as_problem(problem: Any, derivatives: dict[str, Callable[..., Any]]) -> Problem:
    """A problem that can be bound to x0, from whatever the user gave."""
    if isinstance(problem, type):
        raise ValueError(
            f"minimize(problem={problem.__name__}): pass an object, {problem.__name__}(...), not the class."
        )
    if hasattr(problem, "bind"):
        if derivatives:
            raise ValueError(
                f"minimize({next(iter(derivatives))}=...): derivatives go with a plain function; "
                "this problem has its own."
            )
        return problem
    if not callable(problem):
        raise ValueError(f"minimize(problem={problem!r}): give a LinearModel, a FiniteSum or a function of x.")
    return Function(problem, **derivatives)


def check_budgets(**budgets: float | None) -> None:
    """Tolerance and budgets are positive numbers (max_iterations may be 0)."""
    for name, value in budgets.items():
        least = 0 if name == "max_iterations" else np.nextafter(0, 1)
        if value is None and name != "tol":
            continue
        if not isinstance(value, int | float | np.number) or isinstance(value, bool) or not least <= value:
            raise ValueError(f"minimize({name}={value!r}): {name} must be a positive number.")
        if name in ("tol", "max_iterations") and not np.isfinite(value):
            raise ValueError(f"minimize({name}={value!r}): give a finite number.")
        if name == "max_iterations" and value != int(value):
            raise ValueError(f"minimize({name}={value!r}): give a whole number.")


def check_checkpoint(path: Any, every: Any) -> None:
    """The checkpoint can be written where it is asked for; found out before the run, not after hours."""
    if isinstance(every, bool) or not isinstance(every, int | np.integer) or every < 1:
        raise ValueError(f"minimize(checkpoint_every={every!r}): give a positive whole number of iterations.")
    if path is not None and not (Path(path).parent.is_dir() and os.access(Path(path).parent, os.W_OK)):
        raise ValueError(f"minimize(checkpoint={str(path)!r}): its folder is not there or cannot be written to.")


def check_choices(method: Any, order: int | None, seed: Any, callback: Any) -> None:
    """Method, order, seed and callback are of the right kind."""
    if method is not None and not hasattr(method, "start"):
        raise ValueError(
            f"minimize(method={method!r}): pass a method object, for example tercet.STM() or tercet.SCR()."
        )
    if isinstance(method, type):
        raise ValueError(f"minimize(method={method.__name__}): pass an object, {method.__name__}(), not the class.")
    if order is not None and not (isinstance(order, int | np.integer) and 1 <= order <= 3):
        raise ValueError(f"minimize(order={order!r}): order is 1, 2 or 3, the order of the certificate.")
    if isinstance(seed, bool) or not isinstance(seed, int | np.integer) or seed < 0:
        raise ValueError(f"minimize(seed={seed!r}): seed is a whole number that is at least 0.")
    if callback is not None and not callable(callback):
        raise ValueError(f"minimize(callback={callback!r}): callback is a function of one argument.")
