"""The loop around a method: budgets, trace, callback, checkpoints, interruptions, and the way home."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Any, NoReturn

import numpy as np

from tercet.critical.bounded import certify_in
from tercet.critical.errors import Travelled
from tercet.critical.looks import VISIBLE
from tercet.methods.checkpoint import Writer
from tercet.methods.guarantee import summarize
from tercet.methods.progress import Progress
from tercet.methods.run import Kernel, Run
from tercet.methods.state import State
from tercet.objectives.base import Bound, NotFiniteError
from tercet.objectives.metered import DeadlineError, EvaluationError, MeteredPoint, exact
from tercet.records import Certificate, Status, Vector
from tercet.result import Info, Result, Row, Trace

BROKEN = (Status.INTERRUPTED, Status.FUNCTION_ERROR, Status.NOT_FINITE)  # f is not asked again without need
HASTY = (*BROKEN, Status.MAX_SECONDS, Status.UNBOUNDED)  # of the certificate only the gradient is taken
NOTHING_ASKED = "No iteration was asked for: this is the certificate of x0, which does not hold."
ENDED = (Status.MAX_ITERATIONS, Status.MAX_EPOCHS, Status.NOISE, Status.ROUNDING, Status.NOT_CERTIFIED)


AT_ONCE = 64  # iterations, after which a compiled loop can be interrupted


def stay(kernel: Kernel, run: Run, state: State, most: int, evaluations: float) -> tuple[State, list[Row], bool]:
    """The `fast_forward` of a method that has none."""
    return state, [], False


@dataclass(eq=False)
class Loop:
    """A run under way: its state, None before the start was looked at, and its rows."""

    run: Run
    kernel: Kernel
    bound: Bound
    callback: Callable[[Info], Any] | None
    max_iterations: int
    max_epochs: float
    state: State | None = None
    rows: list[Row] = field(default_factory=list)
    writer: Writer | None = None

    def __post_init__(self) -> None:
        self.progress = Progress.on_terminal(self.run.n)
        self.fast_forward = getattr(self.kernel, "fast_forward", partial(stay, self.kernel))
        self.evaluations = self.max_epochs * self.run.n

    @property
    def room(self) -> int:
        """How many iterations may go by unseen: one where somebody looks at each, or at the clock."""
        seen = self.callback is not None or self.writer is not None or self.run.meter.deadline < np.inf
        return 1 if seen else min(AT_ONCE, self.max_iterations - len(self.rows))

    def go(self) -> tuple[Status, BaseException | None]:
        """Iterate until there is a reason to end, and leave the last state in the checkpoint."""
        try:
            return self.iterate()
        finally:
            if self.writer is not None:
                self.writer.flush(self.rows)

    def iterate(self) -> tuple[Status, BaseException | None]:
        """Iterate until there is a reason to end."""
        try:
            while True:
                status = self.spent()
                if status is not None:
                    return status, None
                if self.state is None:
                    self.state = self.kernel.begin(self.run)
                self.state, rows, more = self.fast_forward(self.run, self.state, self.room, self.evaluations)
                if any(self.observe(self.state, row) for row in rows):
                    return Status.CALLBACK, None
                if more:
                    continue
                self.state, outcome = self.kernel.step(self.run, self.state)
                if isinstance(outcome, Status):
                    return outcome, None
                if self.observe(self.state, outcome):
                    return Status.CALLBACK, None
        except DeadlineError:
            return Status.MAX_SECONDS, None
        except KeyboardInterrupt as error:
            return Status.INTERRUPTED, error
        except NotFiniteError:
            return Status.NOT_FINITE, None
        except EvaluationError as error:
            if not self.rows and np.array_equal(error.x, self.run.x0):
                raise_to_caller(error)
            return Status.FUNCTION_ERROR, error.__cause__

    def spent(self) -> Status | None:
        """The budget that is used up, if any."""
        if len(self.rows) >= self.max_iterations:
            return Status.MAX_ITERATIONS
        if sum(self.run.meter.tally.values()) >= self.evaluations:
            return Status.MAX_EPOCHS
        return Status.MAX_SECONDS if time.perf_counter() > self.run.meter.deadline else None

    def observe(self, state: State, row: Row) -> bool:
        """Write the trace and ask the callback whether to end."""
        self.rows.append(row)
        if self.progress is not None:
            self.progress.show(row)
        if self.writer is not None:
            self.writer.offer(state, self.run.meter.tally, self.rows)
        if self.callback is None:
            return False
        try:
            answer = self.callback(Info(self.bound.restore(state.point.x.copy()), row.f, row))
            return isinstance(answer, bool | np.bool_) and bool(answer)
        except StopIteration:
            return True

    def finish(
        self, status: Status, error: BaseException | None, method: str, infers: Callable[..., Any] | None = None
    ) -> Result:
        """The better of x and x0 by the full objective, and its certificate."""
        self.run.meter.deadline = np.inf
        if self.progress is not None:
            self.progress.clear()
        x, fun, point = self.best(status)
        try:
            certificate = self.certificate(x, point, status)
        except KeyboardInterrupt as interruption:
            status, error = Status.INTERRUPTED, interruption
            certificate = nothing(self.run, status)
        sampling = summarize(self.rows)
        certificate = certificate if sampling is None else replace(certificate, sampling=sampling)
        if certificate.holds and status in ENDED:
            status = Status.CERTIFIED
        if status is Status.CERTIFIED and not certificate.holds:
            status = Status.NOT_CERTIFIED
        raised = f" It raised {type(error).__name__}: {error}" if status is Status.FUNCTION_ERROR else ""
        unsaved = "" if self.writer is None or self.writer.failure is None else f" {self.writer.complaint()}"
        advice = NOTHING_ASKED if status is Status.MAX_ITERATIONS and self.max_iterations == 0 else status.value
        traffic = getattr(self.run.objective.objective, "traffic", None)
        checked = f" Checked: order {certificate.order} over {certificate.over}; {certificate.how}."
        return Result(
            x=self.bound.restore(x.copy()),
            fun=fun,
            status=status,
            message=advice + met(status, certificate) + raised + checked + unsaved,
            nit=len(self.rows),
            certificate=certificate,
            counts=self.run.meter.counts(),
            trace=Trace(tuple(self.rows)),
            seconds=time.perf_counter() - self.run.started,
            method=method,
            error=error,
            infers=infers,
            **({} if traffic is None else traffic.as_dict()),
        )

    def best(self, status: Status) -> tuple[Vector, float, MeteredPoint | None]:
        """x or x0, whichever has the lower full objective; x0 where neither has one."""
        run, state = self.run, self.state
        first = state is None and status is not Status.INTERRUPTED
        start, start_value = look(lambda: run.full.at(run.x0) if state is None else state.origin, first)
        if state is None or state.x is run.x0:
            return run.x0, start_value, start
        whole = state.point.terms >= run.n
        here, value = look(lambda: state.point if whole else run.full.at(state.x))
        if here is not None and here.inexact == 0 and status not in BROKEN:
            fresh, exactly = look(partial(exact, here))
            here, value = (fresh, exactly) if np.isfinite(exactly) else (here, value)
        certified = state.certificate is not None and state.certificate.holds
        # Beside a start that is nearly the minimizer rounding alone may be higher.
        hidden = VISIBLE * run.traits.epsilon * abs(start_value) if certified else 0.0
        if not np.isfinite(value) or value - start_value > hidden:
            return run.x0, start_value, start
        return state.x, value, here

    def certificate(self, x: Vector, point: MeteredPoint | None, status: Status) -> Certificate:
        """The certificate on the full data; after an interruption or an error only what is already known."""
        if self.state is not None and self.state.certificate is not None and x is self.state.x:
            return self.state.certificate
        t, none = self.run.tolerances, nothing(self.run, status)
        if point is None or not np.isfinite(point.value()):
            return none
        known = point.known.gradient is not None
        if status is Status.INTERRUPTED and not known:
            return none  # who interrupts does not wait for another gradient
        try:
            own = point if status in BROKEN and known else exact(point)
            way = None if self.state is None else Travelled(self.state.memory.reach)
            run, brief = self.run, status in HASTY
            found, _ = certify_in(run.domain, own, run.n, t, run.traits, run.seed, way, brief)
        except (EvaluationError, NotFiniteError):
            return none
        return found if np.isfinite(found.chi1) else none


def met(status: Status, found: Certificate) -> str:
    """Where progress ended above eps_1: what could be met."""
    if found.relative or status not in (Status.ROUNDING, Status.NOT_CERTIFIED) or not found.chi1 > found.eps1:
        return ""
    reach = max(found.chi1, np.nan_to_num(found.rounding_g))
    return f" Asked was |g| <= {found.eps1:.1e}; {reach:.1e} can be met here."


def raise_to_caller(error: EvaluationError) -> NoReturn:
    """What the objective raised at x0, where there is nothing yet that could be lost, with our advice."""
    cause = error.__cause__ or error
    cause.add_note("tercet: the objective raised this at x0; start where it can be evaluated, or correct it.")
    raise cause from None


def look(make: Callable[[], MeteredPoint], first: bool = False) -> tuple[MeteredPoint | None, float]:
    """A point and its value; None and nan where the objective raises, unless it is the first that is asked of it."""
    try:
        point = make()
        return point, point.value()
    except EvaluationError as error:
        if first:
            raise_to_caller(error)
        return None, np.nan
    except KeyboardInterrupt:
        return None, np.nan


def nothing(run: Run, status: Status) -> Certificate:
    """A certificate that says that there is none."""
    t, nan = run.tolerances, float("nan")
    how = f"not computed: {status.name.lower()}"
    return Certificate(nan, nan, nan, t.eps1, t.eps2, t.eps3, t.zeta, t.order, run.n, run.n, how, relative=t.relative)
