"""Counting and remembering: every component evaluation of a run passes through here, once."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any, TypeVar

import numpy as np

from tercet.objectives.base import NotFiniteError, Objective, Point, View
from tercet.objectives.span import Span
from tercet.records import Counts, Matrix, Rows, Tensor, Vector

R = TypeVar("R")


class DeadlineError(Exception):
    """The time budget ended inside an iteration; the run ends with the best point so far."""


@dataclass
class Meter:
    """Counts the evaluations of one run and watches its clock; the only thing in a run that is written in place."""

    n: int
    deadline: float = np.inf
    tally: dict[str, int] = field(default_factory=lambda: {"value": 0, "gradient": 0, "hessian": 0, "third": 0})

    def count(self, order: str, evaluations: int) -> None:
        """Add to one order; raises DeadlineError first when the time is up, so that no sub-problem overruns."""
        self.look()
        self.tally[order] += evaluations

    def look(self) -> None:
        """Raise DeadlineError when the time is up."""
        if time.perf_counter() > self.deadline:
            raise DeadlineError

    def counts(self) -> Counts:
        """What has been counted so far."""
        return Counts(**self.tally, n=self.n)


class EvaluationError(Exception):
    """The objective raised; `__cause__` is what it raised."""


class CountedPoint:
    """A point that counts what is asked of it and remembers value, gradient and Hessian, so that each is paid once."""

    def __init__(self, point: Point, x: Vector, meter: Meter):
        self.x: Vector = x
        self.point: Any = point
        self._meter = meter
        self.terms: int = point.terms
        if hasattr(point, "watch"):  # differences make many calls, and each of them looks at the clock
            point.watch(meter.look)

    def value(self) -> float:
        """f(x); counted the first time."""
        return self._value

    def gradient(self) -> Vector:
        """grad f(x); counted the first time."""
        return self._gradient

    def gradient_errors(self) -> Matrix:
        """Rows whose squares sum to the covariance of the gradient; comes with the gradient."""
        self.gradient()
        return evaluated(self.point.gradient_errors)

    def hessian(self) -> Matrix:
        """hess f(x) as a dense matrix; counted the first time."""
        return self._hessian

    def hessian_price(self) -> int:
        """How many terms that takes."""
        return evaluated(self.point.hessian_price)

    def hessian_product(self, v: Vector) -> Vector:
        """hess f(x) v; free once the dense Hessian is there."""
        if "_hessian" in self.__dict__:
            return self._hessian @ v
        return self.pay("hessian", self.terms, lambda: self.point.hessian_product(v))

    def third_product(self, u: Vector, v: Vector) -> Vector:
        """third f(x)[u, v]."""
        return self.pay("third", self.terms, lambda: self.point.third_product(u, v))

    def third_square(self, s: Vector) -> Vector:
        """third f(x)[s, s] over the terms that bend along s."""
        return self.pay("third", self.third_square_price(s), lambda: self.point.third_square(s))

    def third_square_price(self, s: Vector) -> int:
        """How many terms that takes."""
        return evaluated(lambda: self.point.third_square_price(s))

    def third_tensor(self, V: Matrix) -> Tensor:
        """third f(x) over the columns of V, at the price of its k (k + 1) / 2 products."""
        k = V.shape[1]
        return self.pay("third", self.terms * (k * (k + 1) // 2), lambda: self.point.third_tensor(V))

    def third_bound(self, V: Matrix | None, tight: bool = False) -> float:
        """A bound on |third f(x)[y]^3| over the span of V; one evaluation of each term, none where it is infinite."""
        bound = evaluated(lambda: self.point.third_bound(V, tight))
        self._meter.count("third", self.terms if np.isfinite(bound) else 0)
        return bound

    def forget(self) -> None:
        """Keep what was paid for, and let go of what the point remembers beside it."""
        if hasattr(self.point, "forget"):
            self.point.forget()

    @property
    def trail(self) -> Any:
        """What a point nearby can use again, without the terms themselves."""
        return getattr(self.point, "trail", None)

    @property
    def drifted(self) -> bool:
        """Whether rounding of the steps that led here has added up; the same x can be looked at anew."""
        return getattr(self.point, "drifted", False)

    def along(self, v: Vector) -> Vector:
        """Av of a linear model, which is no evaluation of its terms."""
        return evaluated(lambda: self.point.along(v))

    def curvature(self, v: Vector, Av: Vector) -> float:
        """v'Bv of a linear model, from Av."""
        return self.pay("hessian", self.terms, lambda: self.point.curvature(v, Av))

    def hessian_from(self, v: Vector, Av: Vector) -> Vector:
        """Bv of a linear model, from Av; it was counted with v'Bv."""
        return self.pay("hessian", 0, lambda: self.point.hessian_from(v, Av))

    def span(self, p: Vector, Ap: Vector) -> Span:
        """f over x + span{p, x, the last steps}, of a linear model."""
        return Span(self, p, Ap)

    def beside(self, point: Any) -> CountedPoint:
        """Another point over the same terms, counted by the same meter."""
        return CountedPoint(point, point.x, self._meter)

    def is_exact(self) -> bool:
        """Whether the Hessian here owes nothing to a nearby point."""
        return self.hessian_price() >= self.terms

    def memento(self) -> dict[str, Any]:
        """What the point owes to points before it."""
        return self.point.memento()

    def saved(self) -> dict[str, Any]:
        """The value, the gradient if it was taken, and what the point owes to its past."""
        gradient = {"gradient": self._gradient} if "_gradient" in self.__dict__ else {}
        return {"value": self.value(), "memento": self.memento(), **gradient}

    def adopt(self, point: CountedPoint) -> CountedPoint:
        """Take over the value and gradient of the same x over the same terms, which are paid for."""
        self.__dict__.update(_value=point.value(), _gradient=point.gradient())
        return self

    @cached_property
    def _value(self) -> float:
        return float(self.pay("value", self.terms, self.point.value))

    @cached_property
    def _gradient(self) -> Vector:
        return self.pay("gradient", self.terms, self.point.gradient)

    @cached_property
    def _hessian(self) -> Matrix:
        return self.pay("hessian", self.hessian_price(), self.point.hessian)

    def pay(self, order: str, evaluations: int, work: Callable[[], R]) -> R:
        """Count evaluations, then do the work."""
        self._meter.count(order, evaluations)
        result = evaluated(work)
        if order in ("hessian", "third") and not np.all(np.isfinite(np.asarray(result))):
            raise NotFiniteError(order)
        extra = getattr(self.point, "extra", None)  # a point that works by differences says what they took
        for lower, spent in (extra() if extra else {}).items():
            self._meter.count(lower, spent)
        return result


def evaluated(work: Callable[[], R]) -> R:
    """What the objective gives; what it raises is told apart from errors of our own."""
    try:
        return work()
    except DeadlineError:
        raise
    except Exception as error:
        raise EvaluationError(f"{type(error).__name__}: {error}") from error


@dataclass(frozen=True, eq=False)
class CountedView:
    """A view whose points count."""

    view: View
    meter: Meter

    def at(self, x: Vector, near: Any = None) -> CountedPoint:
        """The mean over these terms at x, counted; `near`, a point or its trail, lets Hessians be used again."""
        return CountedPoint(self.view.at(x, near.trail if isinstance(near, CountedPoint) else near), x, self.meter)

    def recall(self, x: Vector, saved: dict[str, Any]) -> CountedPoint:
        """The point that `CountedPoint.saved` described; what was paid for then is not paid for again."""
        point = CountedPoint(self.view.recall(x, saved["memento"]), x, self.meter)
        point.__dict__.update(_value=float(saved["value"]))
        if "gradient" in saved:
            point.__dict__.update(_gradient=saved["gradient"])
        return point

    def exact(self, point: CountedPoint) -> CountedPoint:
        """The same point, owing nothing to others, for certificates; the point itself where it does not."""
        if point.drifted:
            return self.at(point.x, point)
        if point.is_exact():
            return point
        point.forget()
        return self.at(point.x).adopt(point)

    def settle(self, x: Vector) -> Vector:
        """A start that is no worse for these terms; only looking at f along x takes evaluations."""
        if hasattr(self.view, "shrink"):
            x, looks = evaluated(lambda: self.view.shrink(x))  # type: ignore[attr-defined]
            self.meter.count("value", looks * self.view.terms)  # type: ignore[attr-defined]
        return self.view.settle(x)


@dataclass(frozen=True, eq=False)
class Counted:
    """An objective whose every evaluation is counted by a meter."""

    objective: Objective
    meter: Meter

    def over(self, rows: Rows | None) -> CountedView:
        """The mean over the given terms, counted."""
        return CountedView(self.objective.over(rows), self.meter)
