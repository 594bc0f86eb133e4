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
CHEAP = 2.0  # gradients: a Hessian that takes longer is kept for the next points


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


@dataclass(frozen=True, eq=False)
class Formed:
    """A dear Hessian that was formed at a point, over the first so many terms of the shuffled order."""

    terms: int
    hessian: Matrix


class CountedPoint:
    """A point that counts what is asked of it and remembers value, gradient and Hessian, so that each is paid once.

    A dear Hessian that was formed nearby over the same terms is used again, until `renew` lets go of it.
    """

    def __init__(self, point: Point, x: Vector, meter: Meter, known: Formed | None = None, keeps: bool = False):
        self.x: Vector = x
        self.point: Any = point
        self._meter = meter
        self._known, self._keeps = known, keeps
        self.terms: int = point.terms
        if hasattr(point, "watch"):  # differences make many calls, and each of them looks at the clock
            point.watch(meter.look)

    def value(self) -> float:
        """f(x); counted the first time."""
        return self._value

    def gradient(self) -> Vector:
        """grad f(x); counted the first time."""
        return self._gradient

    def together(self) -> CountedPoint:
        """The same point with f and grad f taken at once, where the objective has a way to do so."""
        self._meter.look()
        if hasattr(self.point, "together"):
            evaluated(self.point.together)
            self.value(), self.gradient()
        return self

    def gradient_errors(self) -> Matrix:
        """Rows whose squares sum to the covariance of the gradient; comes with the gradient."""
        self.gradient()
        return evaluated(self.point.gradient_errors)

    def hessian(self) -> Matrix:
        """hess f(x) as a dense matrix; counted the first time."""
        return self._hessian

    def hessian_price(self) -> int:
        """How many terms that takes."""
        return 0 if self.borrows else evaluated(self.point.hessian_price)

    @property
    def borrows(self) -> bool:
        """Whether the Hessian is one that was formed nearby."""
        return self._known is not None and self._known.terms == self.terms

    @property
    def formed(self) -> Formed | None:
        """The dear Hessian that was formed here or nearby."""
        if not self._keeps or "_hessian" not in self.__dict__:
            return self._known
        return self._known if self.borrows else Formed(self.terms, self._hessian)

    def renew(self) -> bool:
        """Let go of a Hessian that was formed nearby; whether there was one."""
        borrowed = self.borrows
        self._known = None
        if borrowed:
            self.__dict__.pop("_hessian", None)
        return borrowed

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
        known = self.formed
        formed = {} if known is None else {"formed": {"terms": known.terms, "hessian": known.hessian}}
        return {"value": self.value(), "memento": self.memento(), **gradient, **formed}

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
        if self._known is not None and self.borrows:
            return self._known.hessian
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
    keeps: bool = False  # Hessians are dear

    def at(self, x: Vector, near: Any = None) -> CountedPoint:
        """The mean over these terms at x, counted; `near`, a point or its trail, lets Hessians be used again."""
        if not isinstance(near, CountedPoint):
            return CountedPoint(self.view.at(x, near), x, self.meter, keeps=self.keeps)
        return CountedPoint(self.view.at(x, near.trail), x, self.meter, near.formed, self.keeps)

    def recall(self, x: Vector, saved: dict[str, Any]) -> CountedPoint:
        """The point that `CountedPoint.saved` described; what was paid for then is not paid for again."""
        known = Formed(**saved["formed"]) if "formed" in saved else None
        point = CountedPoint(self.view.recall(x, saved["memento"]), x, self.meter, known, self.keeps)
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
            x, looks = evaluated(lambda: self.view.shrink(x))  # type: ignore[attr-defined] # asked above
            self.meter.count("value", looks * self.view.terms)  # type: ignore[attr-defined] # has shrink
        return self.view.settle(x)


@dataclass(frozen=True, eq=False)
class Counted:
    """An objective whose every evaluation is counted by a meter."""

    objective: Objective
    meter: Meter

    @property
    def dear(self) -> bool:
        """Whether a Hessian takes so long that it is kept for the next points."""
        return self.objective.hessian_cost > CHEAP

    def over(self, rows: Rows | None) -> CountedView:
        """The mean over the given terms, counted."""
        return CountedView(self.objective.over(rows), self.meter, self.dear)
