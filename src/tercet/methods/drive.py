"""The loop around a method: budgets, trace, callback, checkpoints, interruptions, and the way home."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import replace
from functools import partial
from typing import Any

import numpy as np

from tercet.criticality import certify
from tercet.methods.checkpoint import Writer
from tercet.methods.progress import Progress
from tercet.methods.promise import summarize
from tercet.methods.run import Run, Walk
from tercet.objectives.base import Bound, NotFiniteError
from tercet.objectives.counting import CountedPoint, DeadlineError, EvaluationError
from tercet.records import Certificate, Status, Vector
from tercet.result import Info, Result, Row, Trace

BROKEN = (Status.INTERRUPTED, Status.FUNCTION_ERROR, Status.NOT_FINITE)  # f is not asked again without need


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
        self.writer: Writer | None = None

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
        if self.writer is not None:
            self.writer.offer(self.walk.state(), self.rows)
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
        x, fun, point = self.best(status)
        try:
            certificate = self.certificate(x, point, status)
        except KeyboardInterrupt as interruption:
            status, error = Status.INTERRUPTED, interruption
            certificate = self.nothing(status)
        certificate = replace(certificate, sampling=summarize(self.rows))
        ended = (Status.MAX_ITERATIONS, Status.MAX_EPOCHS, Status.NOISE, Status.ROUNDING, Status.NOT_CERTIFIED)
        if certificate.holds and status in ended:
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

    def best(self, status: Status) -> tuple[Vector, float, CountedPoint | None]:
        """x or x0, whichever has the lower full objective; x0 where neither has one."""
        start, start_value = self.look(lambda: self.run.start)
        if self.walk.x is self.run.x0:
            return self.run.x0, start_value, start
        here, value = self.look(lambda: self.walk.full_point() or self.run.view(None).at(self.walk.x))
        if here is not None and here.drifted and status not in BROKEN:
            fresh, exactly = self.look(partial(self.run.view(None).exact, here))
            here, value = (fresh, exactly) if np.isfinite(exactly) else (here, value)
        if not np.isfinite(value) or value > start_value:
            return self.run.x0, start_value, start
        return self.walk.x, value, here

    def look(self, make: Callable[[], CountedPoint]) -> tuple[CountedPoint | None, float]:
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

    def certificate(self, x: Vector, point: CountedPoint | None, status: Status) -> Certificate:
        """The certificate on the full data; after an interruption or an error only what is already known."""
        if self.walk.certificate is not None and x is self.walk.x:
            return self.walk.certificate
        t, nothing = self.run.tolerances, self.nothing(status)
        hasty = (Status.INTERRUPTED, Status.FUNCTION_ERROR, Status.NOT_FINITE, Status.MAX_SECONDS, Status.UNBOUNDED)
        if point is None or not np.isfinite(point.value()):
            return nothing
        if status is Status.INTERRUPTED and "_gradient" not in point.__dict__:
            return nothing  # who interrupts does not wait for another gradient
        try:
            order = 1 if status in hasty else t.order
            known = status in BROKEN and "_gradient" in point.__dict__
            exact = point if known else self.run.view(None).exact(point)
            asked = replace(t, order=order)
            found, _ = certify(exact, self.run.n, asked, self.run.dense, self.run.how, self.run.seed)
        except (EvaluationError, NotFiniteError):
            return nothing
        if not np.isfinite(found.chi1):
            return nothing
        return replace(found, order=t.order)
