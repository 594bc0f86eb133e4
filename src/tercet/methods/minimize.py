"""`minimize`: check the arguments, drive a method within its budgets, hand back the best point and its certificate."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import numpy as np

from tercet.criticality import Tolerances, certify
from tercet.methods.progress import Progress
from tercet.methods.run import Method, Run, Walk
from tercet.methods.stm import STM
from tercet.objectives.base import Bound
from tercet.objectives.counting import AnyPoint, DeadlineError, EvaluationError, Meter, NotFiniteError
from tercet.objectives.functions import Function
from tercet.records import Certificate, Status, Vector
from tercet.result import Info, Result, Row, Trace

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
) -> Result:
    """Find x with chi_i(x) <= eps_i for i = 1 ... order, where eps_1 = tol, eps_2 = tol^(2/3), eps_3 = tol^(1/3).

    `problem` is a LinearModel, a FiniteSum, or a plain function of x0's structure. A plain function is differentiated
    by JAX where it can be traced; or its derivatives are given as NumPy callables: `grad(x)`, `hess(x)` or
    `hvp(x, v)`, `third(x)` (dense) or `tvp(x, u, v)` = T[u, v]. What is left out is made from what is there by
    differences, and the certificate says so.

    `method` is an STM (the default), SCR or SGD. `order` is how much the certificate asks: 1, 2 or 3 (default 3 up to
    3000 variables, else 2). Budgets: `max_iterations` (default 1000), `max_seconds`, `max_epochs` (component
    evaluations of all orders over n). `callback(info)` is called after every iteration; returning True or raising
    StopIteration ends the run.

    The point returned is never worse than x0 by the full objective. The same seed gives the same result.
    """
    check_budgets(tol=tol, max_iterations=max_iterations, max_seconds=max_seconds, max_epochs=max_epochs)
    check_choices(method, order, seed, callback)
    started = time.perf_counter()
    derivatives = {"grad": grad, "hess": hess, "hvp": hvp, "third": third, "tvp": tvp}
    bound = bind(problem, x0, {name: call for name, call in derivatives.items() if call is not None})
    asked = order or (3 if bound.objective.d <= THIRD_ORDER_LIMIT else 2)
    deadline = np.inf if max_seconds is None else started + max_seconds
    run = Run(bound.objective, bound.x0, seed, Tolerances.of(tol, asked), Meter(bound.objective.n, deadline))
    walk = (method or STM()).start(run)
    drive = Drive(run, walk, bound, callback, started, 1000 if max_iterations is None else max_iterations, max_epochs)
    status, error = drive.go()
    return drive.finish(status, error, repr(method or STM()))


def bind(problem: Any, x0: Any, derivatives: dict[str, Callable[..., Any]]) -> Bound:
    """The objective of a flat vector behind whatever the user gave."""
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
        return problem.bind(x0)
    if not callable(problem):
        raise ValueError(f"minimize(problem={problem!r}): give a LinearModel, a FiniteSum or a function of x.")
    return Function(problem, **derivatives).bind(x0)


class Drive:
    """The loop around a method: budgets, trace, callback, interruptions, and the way home with the best point."""

    def __init__(
        self,
        run: Run,
        walk: Walk,
        bound: Bound,
        callback: Callable[[Info], Any] | None,
        started: float,
        max_iterations: int,
        max_epochs: float | None,
    ):
        self.run, self.walk, self.bound, self.callback, self.started = run, walk, bound, callback, started
        self.max_iterations, self.max_epochs = max_iterations, np.inf if max_epochs is None else max_epochs
        self.rows: list[Row] = []
        self.progress = Progress(run.n)

    def go(self) -> tuple[Status, BaseException | None]:
        """Iterate until there is a reason to end."""
        try:
            while True:
                outcome = self.spent() or self.walk.step()
                if isinstance(outcome, Status):
                    return outcome, None
                if self.observe(outcome):
                    return Status.CALLBACK, None
        except DeadlineError:
            return Status.MAX_SECONDS, None
        except KeyboardInterrupt as error:
            return Status.INTERRUPTED, error
        except NotFiniteError:
            return Status.NOT_FINITE, None
        except EvaluationError as error:
            return Status.FUNCTION_ERROR, error.__cause__

    def spent(self) -> Status | None:
        """The budget that is used up, if any."""
        if len(self.rows) >= self.max_iterations:
            return Status.MAX_ITERATIONS
        if self.run.meter.counts().epochs >= self.max_epochs:
            return Status.MAX_EPOCHS
        return Status.MAX_SECONDS if time.perf_counter() > self.run.meter.deadline else None

    def observe(self, row: Row) -> bool:
        """Write the trace and ask the callback whether to end."""
        row = replace(row, seconds=time.perf_counter() - self.started)
        self.rows.append(row)
        self.progress.show(row)
        if self.callback is None:
            return False
        try:
            answer = self.callback(Info(self.bound.restore(self.walk.x.copy()), row.f, row))
            return isinstance(answer, bool | np.bool_) and bool(answer)
        except StopIteration:
            return True

    def finish(self, status: Status, error: BaseException | None, method: str) -> Result:
        """The better of x and x0 by the full objective, and its certificate."""
        self.run.meter.deadline = np.inf
        self.progress.clear()
        x, fun, point = self.best()
        try:
            certificate = self.certificate(x, point, status)
        except KeyboardInterrupt as interruption:
            status, error = Status.INTERRUPTED, interruption
            certificate = self.nothing(status)
        if certificate.holds and status in (Status.MAX_ITERATIONS, Status.MAX_EPOCHS, Status.NOISE, Status.ROUNDING):
            status = Status.CERTIFIED
        if status is Status.CERTIFIED and not certificate.holds:
            status = Status.NOT_CERTIFIED
        message = status.value
        if status is Status.FUNCTION_ERROR:
            message += f" It raised {type(error).__name__}: {error}"
        message += f" Checked: order {certificate.order} over {certificate.over}; {certificate.how}."
        return Result(
            x=self.bound.restore(x.copy()),
            fun=fun,
            status=status,
            message=message,
            nit=len(self.rows),
            certificate=certificate,
            counts=self.run.meter.counts(),
            trace=Trace(tuple(self.rows)),
            seconds=time.perf_counter() - self.started,
            method=method,
            error=error,
        )

    def best(self) -> tuple[Vector, float, AnyPoint | None]:
        """x or x0, whichever has the lower full objective; x0 where neither has one."""
        start, start_value = self.look(lambda: self.run.start)
        if self.walk.x is self.run.x0:
            return self.run.x0, start_value, start
        here, value = self.look(lambda: self.walk.full_point() or self.run.view(None).at(self.walk.x))
        if np.isnan(value) or value > start_value:
            return self.run.x0, start_value, start
        return self.walk.x, value, here

    def look(self, make: Callable[[], AnyPoint]) -> tuple[AnyPoint | None, float]:
        """A point and its value; None and nan where the objective raises."""
        try:
            point = make()
            return point, point.value()
        except (EvaluationError, KeyboardInterrupt):
            return None, np.nan

    def nothing(self, status: Status) -> Certificate:
        """A certificate that says that there is none."""
        t, n, nan = self.run.tolerances, self.run.n, float("nan")
        how = f"not computed: {status.name.lower()}"
        return Certificate(nan, nan, nan, t.eps1, t.eps2, t.eps3, t.zeta, t.order, n, n, how)

    def certificate(self, x: Vector, point: AnyPoint | None, status: Status) -> Certificate:
        """The certificate on the full data; after an interruption or an error only what is already known."""
        if self.walk.certificate is not None and x is self.walk.x:
            return self.walk.certificate
        t, nothing = self.run.tolerances, self.nothing(status)
        hasty = (Status.INTERRUPTED, Status.FUNCTION_ERROR, Status.NOT_FINITE, Status.MAX_SECONDS, Status.UNBOUNDED)
        if point is None or not np.isfinite(point.value()):
            return nothing
        try:
            order = 1 if status in hasty else t.order
            exact = self.run.view(None).exact(point)
            asked = replace(t, order=order)
            partial, _ = certify(exact, self.run.n, asked, self.run.dense, self.run.how, self.run.seed)
        except (EvaluationError, NotFiniteError):
            return nothing
        if not np.isfinite(partial.chi1):
            return nothing
        return replace(partial, order=t.order)


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
