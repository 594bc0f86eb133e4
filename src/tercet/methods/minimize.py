"""`minimize`: check the arguments, drive a method within its budgets, hand back the best point and its certificate."""

from __future__ import annotations

import os
import time
from collections.abc import Callable
from contextlib import nullcontext
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

import numpy as np

from tercet.checks import flag, kind_of_file, number, whole
from tercet.control.sigma import PaperSigma, SignedEstimate, TrustRegion
from tercet.critical.tolerances import Tolerances
from tercet.domain import EVERYWHERE, Box, Domain
from tercet.frame import Euclidean, Natural
from tercet.methods.accelerated import AcceleratedCubic, AcceleratedTensor
from tercet.methods.binding import bind_within
from tercet.methods.checkpoint import (
    Checkpoint,
    CheckpointError,
    Writer,
    describe,
    differences,
    read,
    rebuild,
    try_to_write,
)
from tercet.methods.loop import Loop
from tercet.methods.reduced import Reduced
from tercet.methods.run import Method, Run
from tercet.methods.saved import recall
from tercet.methods.schemes import EstimateSequence, NearOptimal, Unaccelerated
from tercet.methods.sgd import SGD
from tercet.methods.stm import SCR, STM
from tercet.objectives.base import Bound, Problem, traits_of
from tercet.objectives.checking import DerivativeError
from tercet.objectives.checking import check_derivatives as compare_with_differences
from tercet.objectives.functions import Function
from tercet.objectives.metered import EvaluationError, Meter
from tercet.objectives.own import OwnObjective
from tercet.result import Info, Result
from tercet.sampling import Adaptive, Fixed, Full, Growing, Progressive, Ranges, Theory
from tercet.storage import UNREADABLE
from tercet.subsolvers import Accelerated, Dense, GaussNewton, GradientDescent, Krylov, Subspace
from tercet.threads import one_thread
from tercet.watch import LONG

Tolerance = float | Tolerances | None
PARTS: dict[str, type] = {
    part.__qualname__: part
    for part in (
        STM, SCR, SGD, PaperSigma, SignedEstimate, TrustRegion, Natural, Euclidean, Full, Fixed, Growing, Adaptive,
        Progressive, Theory, Ranges, Dense, GaussNewton, Krylov, Subspace, GradientDescent, Accelerated,
        AcceleratedTensor, AcceleratedCubic, NearOptimal, EstimateSequence, Unaccelerated, Reduced,
    )
}  # fmt: skip
FINEST = float(np.finfo(float).eps)
SINGLE = float(np.finfo(np.float32).eps)
THIRD_ORDER_LIMIT = 3000  # up to this many variables a third-order certificate is asked for by default


def minimize(
    problem: Any,
    x0: Any = None,
    *,
    method: Method | None = None,
    tol: Tolerance = None,
    order: int | None = None,
    bounds: Any = None,
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
    args: Any = (),
    checkpoint: str | Path | None = None,
    checkpoint_every: int | None = None,
    check_derivatives: bool = False,
) -> Result:
    """Find a minimizer x to half of the digits that its precision has: each x_j to sqrt(eps) of its size.

    This default does not depend on the units of f and of x. A `tol` asks instead that chi_i(x) <= eps_i for i = 1 ...
    order, eps_1 = tol, eps_2 = tol^(2/3), eps_3 = tol^(1/3), as the paper has it; a `Tolerances` says each of them.
    `problem` is a LinearModel, a FiniteSum, Residuals, an objective of your own, or a plain function of x0's structure:
    JAX differentiates it where it can be traced, or derivatives are given in NumPy, `grad(x)`, `hess(x)`, `hvp(x, v)`,
    `third(x)` or `tvp(x, u, v)` = T[u, v], all followed by `args`; what is left out is made of differences.
    `bounds` are a pair (low, high) for each entry of x, None or inf for no bound, or a `scipy.optimize.Bounds`; f is
    never asked beyond them, and an x0 outside is moved inside. `method` is an STM (the default), SCR or SGD, or for a
    convex sum an AcceleratedTensor or AcceleratedCubic; `order`, 1, 2 or 3, is how much the certificate asks.
    Budgets: `max_iterations` (1000), `max_seconds`, `max_epochs` (evaluations of all orders over n). `callback(info)`
    ends the run by True or StopIteration. `checkpoint`, a file, is written every ten seconds and at the end, or after
    every `checkpoint_every`-th iteration; `resume` goes on from it. `check_derivatives` compares with differences.
    The point returned is never worse than x0 by the full objective, but for its last digits. The same seed gives the
    same result.
    """
    check_budgets(tol=tol, max_iterations=max_iterations, max_seconds=max_seconds, max_epochs=max_epochs)
    check_choices(method, order, seed, callback, check_derivatives)
    check_checkpoint(checkpoint, checkpoint_every)
    target = as_problem(problem, given(grad=grad, hess=hess, hvp=hvp, third=third, tvp=tvp), args)
    bound, domain, note = bind_within("minimize", target, x0, bounds)
    if check_derivatives:
        verify(bound, seed, domain)
    budgets = {"max_iterations": max_iterations, "max_seconds": max_seconds, "max_epochs": max_epochs}
    chosen = method or STM()
    settings = settings_of(bound.objective.d, tol, order, seed, budgets, checkpoint_every, domain)
    result = launch(target, bound, chosen, settings, callback, checkpoint, None, domain)
    return replace(result, message=result.message + note) if note else result


def given(**derivatives: Callable[..., Any] | None) -> dict[str, Callable[..., Any]]:
    """Those that are."""
    return {name: call for name, call in derivatives.items() if call is not None}


def settings_of(
    d: int,
    tol: Tolerance,
    order: int | None,
    seed: int,
    budgets: dict[str, Any],
    every: int | None,
    domain: Domain = EVERYWHERE,
) -> dict[str, Any]:
    """What a run is asked for beside its method, as a checkpoint keeps it."""
    most = budgets["max_iterations"]
    return {
        "tol": asdict(tol) if isinstance(tol, Tolerances) else tol,
        "order": order or (tol.order if isinstance(tol, Tolerances) else None) or (3 if d <= THIRD_ORDER_LIMIT else 2),
        "seed": int(seed),
        **budgets,
        "max_iterations": 1000 if most is None else int(most),
        "checkpoint_every": every,
        **({"bounds": [domain.low.tolist(), domain.high.tolist()]} if isinstance(domain, Box) else {}),
    }


def verify(bound: Bound, seed: int, domain: Domain) -> None:
    """Compare the derivatives with differences; ValueError where they differ, or where the function raises."""
    try:
        compare_with_differences(bound.objective, bound.x0, seed, domain)
    except DerivativeError:
        raise
    except Exception as error:
        cause = error.__cause__ if isinstance(error, EvaluationError) else error
        raise ValueError(
            f"minimize(check_derivatives=True): the function raised {type(cause).__name__}: {cause}"
        ) from cause


def launch(
    target: Problem,
    bound: Bound,
    method: Method,
    settings: dict[str, Any],
    callback: Callable[[Info], Any] | None,
    path: str | Path | None,
    past: Checkpoint | None,
    domain: Domain = EVERYWHERE,
) -> Result:
    """Run a method with checked settings, from the start or from a checkpoint."""
    started = time.perf_counter() - (0.0 if past is None else past.seconds)
    deadline = np.inf if settings["max_seconds"] is None else started + settings["max_seconds"]
    tolerances = tolerances_of(given_again(settings["tol"]), settings["order"], traits_of(bound.objective).epsilon)
    meter = Meter(bound.objective.n, deadline)
    run = Run.of(bound.objective, bound.x0, settings["seed"], tolerances, meter, started, domain)
    budget = np.inf if settings["max_epochs"] is None else settings["max_epochs"]
    loop = Loop(run, method.kernel(run), bound, callback, settings["max_iterations"], budget)
    if past is not None:
        loop.state, loop.rows = recall(path, past, run, loop.kernel), list(past.trace)
        run.meter.tally.update(past.tally)
    if path is not None:
        x0 = bound.restore(bound.x0.copy())
        every = settings["checkpoint_every"]
        kept = {"method": describe(method), **settings}
        loop.writer = Writer(Path(path), kept, target.fingerprint(), x0, run.n, every, len(loop.rows))
    # Beside a device threads of the host are worth less than what they take from the one that feeds it.
    with one_thread() if run.traits.on_device and run.d < LONG else nullcontext():
        status, error = loop.go()
        return loop.finish(status, error, repr(method), infers(target, settings.get("bounds")))


def infers(target: Problem, bounds: Any = None) -> Callable[..., Any]:
    """`infer` with the problem of a run, for its result."""
    given: dict[str, Any] = {} if bounds is None else {"bounds": list(zip(*bounds, strict=True))}

    def of(result: Result, kind: str | None, **options: Any) -> Any:
        from tercet.methods.inferring import infer  # which minimizes, too

        return infer(target, result, kind, **given, **options)

    return of


def tolerances_of(tol: Tolerance, order: int, epsilon: float) -> Tolerances:
    """What a tolerance asks of a point in a precision; ValueError where that has not the digits."""
    if tol is None:
        return Tolerances.half(epsilon, order)
    if isinstance(tol, int | float):
        return Tolerances.of(tol, order).within_reach(epsilon, epsilon**1.5)
    return replace(tol, order=order).within_reach(epsilon, faintest(epsilon))


def faintest(epsilon: float) -> float:
    """Numbers below it have fewer digits than the precision."""
    return float(np.finfo(float if epsilon < SINGLE else np.float32).tiny) / epsilon


def given_again(tol: Any) -> Tolerance:
    """A tolerance as it was given, from the settings of a run."""
    return Tolerances(**tol) if isinstance(tol, dict) else tol


def resume(
    path: str | Path,
    problem: Any,
    *,
    method: Method | None = None,
    max_iterations: int | None = None,
    max_seconds: float | None = None,
    max_epochs: float | None = None,
    callback: Callable[[Info], Any] | None = None,
    args: Any = (),
    **derivatives: Callable[..., Any],
) -> Result:
    """Continue the run of a checkpoint on the same problem; iterates, samples, counts and trace are those of one run.

    `problem` (for a plain function also its `args`, `grad`, ...) must be that of the checkpoint: another one is refused
    with the difference named. The method is rebuilt from the checkpoint; where it used parts that are not tercet's own,
    pass `method` again. Budgets that are given replace the old ones. The file is written on as the run goes on.
    """
    check_budgets(tol=1.0, max_iterations=max_iterations, max_seconds=max_seconds, max_epochs=max_epochs)
    check_choices(method, None, 0, callback)
    past = read(path)
    target = as_problem(problem, derivatives, args)
    changed = differences(past.fingerprint, target.fingerprint())
    if changed:
        raise CheckpointError(f"resume({str(path)!r}): the checkpoint is of another problem: {'; '.join(changed)}.")
    check_checkpoint(path, None)
    if method is not None and describe(method) != past.settings.get("method"):
        changed = differences(past.settings["method"], describe(method))
        raise CheckpointError(f"resume({str(path)!r}): the checkpoint has another method: {'; '.join(changed)}.")
    try:
        method = rebuild(past.settings["method"], PARTS) if method is None else method
        if method is None:
            raise ValueError("it names no method")
        ends = past.settings.get("bounds")
        pairs = None if ends is None else list(zip(*ends, strict=True))
        bound, domain, moved = bind_within("resume", target, past.x0, pairs)
        if moved:
            raise ValueError("its start is outside its bounds")
        settings = settings_again(past.settings, method, bound.objective.d)
    except CheckpointError:
        raise
    except UNREADABLE as error:
        raise CheckpointError(f"resume({str(path)!r}): its settings are not those of a run ({error}).") from error
    budgets = {"max_iterations": max_iterations, "max_seconds": max_seconds, "max_epochs": max_epochs}
    settings |= {name: value for name, value in budgets.items() if value is not None}
    return launch(target, bound, method, settings, callback, path, past, domain)


def settings_again(saved: dict[str, Any], method: Method, d: int) -> dict[str, Any]:
    """The settings of a checkpoint, through the same checks as the arguments of `minimize`."""
    budgets = {name: saved[name] for name in ("max_iterations", "max_seconds", "max_epochs")}
    check_budgets(tol=given_again(saved["tol"]), **budgets)
    check_choices(method, saved["order"], saved["seed"], None)
    every = saved["checkpoint_every"]
    every = None if every is None else whole("minimize", "checkpoint_every", every)
    settings = settings_of(d, given_again(saved["tol"]), saved["order"], saved["seed"], budgets, every)
    settings |= {"bounds": saved["bounds"]} if "bounds" in saved else {}
    described = {"method": describe(method), **settings}
    if described != saved:
        raise ValueError("; ".join(differences(saved, described)))
    return settings


def as_problem(problem: Any, derivatives: dict[str, Callable[..., Any]], args: Any = ()) -> Problem:
    """A problem that can be bound to x0, from whatever the user gave."""
    if isinstance(problem, type):
        raise ValueError(
            f"minimize(problem={problem.__name__}): pass an object, {problem.__name__}(...), not the class."
        )
    if hasattr(problem, "bind") or hasattr(problem, "over"):
        if derivatives or not (isinstance(args, tuple) and not args):
            name = next(iter(derivatives), "args")
            raise ValueError(
                f"minimize({name}=...): derivatives and args go with a plain function; this problem has its own."
            )
        return problem if hasattr(problem, "bind") else OwnObjective(problem)
    if not callable(problem):
        raise ValueError(f"minimize(problem={problem!r}): give a LinearModel, a FiniteSum or a function of x.")
    return Function(problem, args, **derivatives)


def check_budgets(**budgets: Any) -> None:
    """Tolerance and budgets are positive numbers (max_iterations may be 0)."""
    for name, value in budgets.items():
        least = 0 if name == "max_iterations" else np.nextafter(0, 1)
        if value is None or (name == "tol" and isinstance(value, Tolerances)):
            continue
        if not least <= number(value):
            raise ValueError(f"minimize({name}={value!r}): {name} must be a positive number.")
        if name in ("tol", "max_iterations") and not np.isfinite(number(value)):
            raise ValueError(f"minimize({name}={value!r}): give a finite number.")
        if name == "max_iterations" and number(value) != int(number(value)):
            raise ValueError(f"minimize({name}={value!r}): give a whole number.")
    tolerances_of(budgets.get("tol"), 3, FINEST)  # before anything is called; again once its precision is known


def check_checkpoint(path: Any, every: Any) -> None:
    """The checkpoint can be written where it is asked for; found out before the run, not after hours."""
    if every is not None and (isinstance(every, bool) or not isinstance(every, int | np.integer) or every < 1):
        raise ValueError(
            f"minimize(checkpoint_every={every!r}): give a positive whole number of iterations, or None for every ten "
            f"seconds."
        )
    if path is None:
        return
    if not isinstance(path, str | os.PathLike) or not Path(path).name:
        raise ValueError(f"minimize(checkpoint={path!r}): give the path of a file.")
    try:
        kind = kind_of_file(path)
        if kind is None:
            try_to_write(Path(path))
    except OSError as error:
        reason = "its folder is not there or cannot be written to"
        raise ValueError(f"minimize(checkpoint={str(path)!r}): {reason} ({error}).") from error
    if kind is not None:
        raise ValueError(f"minimize(checkpoint={str(path)!r}): {kind} lies there; name a file that can be written.")


def check_choices(method: Any, order: int | None, seed: Any, callback: Any, check: Any = False) -> None:
    """Method, order, seed, callback and whether derivatives are checked are of the right kind."""
    flag("minimize", "check_derivatives", check)
    if method is not None and not hasattr(method, "kernel"):
        raise ValueError(
            f"minimize(method={method!r}): pass a method object, for example tercet.STM() or tercet.SCR()."
        )
    if isinstance(method, type):
        raise ValueError(f"minimize(method={method.__name__}): pass an object, {method.__name__}(), not the class.")
    if order is not None and (not isinstance(order, int | np.integer) or order is True or not 1 <= order <= 3):
        raise ValueError(f"minimize(order={order!r}): order is 1, 2 or 3, the order of the certificate.")
    if isinstance(seed, bool) or not isinstance(seed, int | np.integer) or seed < 0:
        raise ValueError(f"minimize(seed={seed!r}): seed is a whole number that is at least 0.")
    if callback is not None and not callable(callback):
        raise ValueError(f"minimize(callback={callback!r}): callback is a function of one argument.")
