"""Counting and remembering: every component evaluation of a run passes through here, once."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field, replace
from functools import partial
from operator import attrgetter, call
from time import perf_counter
from typing import Any

import numpy as np

from tercet.objectives.base import NotFiniteError, Objective, Priced, Traits, View, group_errors, traits_of
from tercet.objectives.capabilities import (
    Abilities,
    abilities,
    add_up,
    hessian_from_products,
    result_of,
    tensor_of_products,
)
from tercet.records import ORDERS, Counts, Matrix, Rows, Tensor, Vector
from tercet.watch import watched

CHEAP_HESSIAN = 2.0  # gradients: a Hessian that takes longer serves for several points
GROUP_SUMS = attrgetter("group_sums")
GROUPS = 16  # a sampled gradient's covariance is estimated from this many groups of terms


class DeadlineError(Exception):
    """The time budget ended inside an iteration; the run ends with the best point so far."""


class EvaluationError(Exception):
    """The objective raised; `__cause__` is what it raised, `x` where it was asked."""

    def __init__(self, text: str, x: Vector):
        super().__init__(text)
        self.x = x


@dataclass
class Meter:
    """Counts the evaluations of one run and watches its clock; the only thing in a run that is written in place."""

    n: int
    deadline: float = np.inf
    tally: dict[str, int] = field(default_factory=lambda: dict.fromkeys(ORDERS, 0))
    # (work, matrix) -> work(matrix), a factorization; DeadlineError when the time is up before it ends
    wait: Callable[..., Any] = field(init=False)

    def __post_init__(self) -> None:
        self.wait = call if self.deadline == np.inf else partial(watched, self.look)

    def look(self) -> None:
        """Raise DeadlineError when the time is up."""
        if perf_counter() > self.deadline:
            raise DeadlineError

    def counts(self) -> Counts:
        """What has been counted so far."""
        return Counts(**self.tally, n=self.n)


@dataclass(eq=False)
class Known:
    """What is known at a point; None is what nobody has asked for."""

    value: float | None = None
    gradient: Vector | None = None
    errors: Matrix | None = None
    hessian: Matrix | None = None


@dataclass(frozen=True, eq=False)
class Formed:
    """A Hessian that was formed at a point, over so many terms of the shuffled order."""

    terms: int
    hessian: Matrix


@dataclass(frozen=True, eq=False)
class Carry:
    """What a point hands to the next: a Hessian, where forming one is dear, and what its engine hands on."""

    formed: Formed | None = None
    engine: Any = None

    def fresh(self) -> Carry:
        """The same without the Hessian."""
        return Carry(None, self.engine)

    def arrays(self) -> dict[str, Any]:
        """As numbers and arrays."""
        formed = {} if self.formed is None else {"formed": {"terms": self.formed.terms, "hessian": self.formed.hessian}}
        return formed if self.engine is None else {**formed, "engine": self.engine.arrays()}


NOTHING = Carry()


class MeteredPoint:
    """f over some terms at x. What is asked for is computed once, counted, and remembered.

    A Hessian that was formed nearby over the same terms is used again; `renewed` and `exact` let go of it.
    """

    def __init__(self, view: MeteredView, x: Vector, given: Carry = NOTHING, known: Known | None = None):
        self.view, self.x, self.given, self.terms = told(view, given), x, given, view.terms
        self.known, self.able = Known() if known is None else known, view.able
        self.made: Any = None  # by the engine, when it is first asked
        self.borrowed = given.formed if given.formed is not None and given.formed.terms == view.terms else None

    def value(self) -> float:
        """f(x)."""
        if self.known.value is None:
            self.known.value = float(self.ask("value", self.able.value))
        return self.known.value

    def gradient(self) -> Vector:
        """grad f(x); over a sample, by an engine that does not tell its error, made of the gradients of groups."""
        if self.known.gradient is None:
            if self.view.rows is not None and not self.able.grouped:
                self.known.gradient, self.known.errors = self.ask("gradient", self.view.grouped, self.x, self.view.rows)
            else:
                self.known.gradient = self.ask("gradient", self.able.gradient)
        return self.known.gradient

    def errors(self) -> Matrix:
        """Rows whose squares sum to the covariance of the gradient; they come with it."""
        gradient = self.known.gradient if self.known.gradient is not None else self.gradient()
        if self.known.errors is None:
            if self.able.grouped:
                sums = self.ask("gradient", GROUP_SUMS, price=0)
                self.known.errors = group_errors(sums, self.terms)
            elif self.view.rows is None:
                self.known.errors = np.zeros((1, len(gradient)))  # these are all terms: there is nothing to tell
            else:  # of a gradient that was recalled
                _, self.known.errors = self.ask("gradient", self.view.grouped, self.x, self.view.rows)
        return self.known.errors

    def hessian(self) -> Matrix:
        """hess f(x) as a dense matrix; one that is borrowed costs nothing."""
        if self.known.hessian is None:
            if self.borrowed is not None:
                self.known.hessian = self.borrowed.hessian
            elif self.able.hessian is not None:
                self.known.hessian = self.ask("hessian", self.able.hessian)
                # The engine has its own now; what it was given can go.
                self.given = Carry(self.given.formed, self.made.carry if self.able.carries else None)
                self.view = told(self.view, self.given)
            else:
                self.known.hessian = self.ask("hessian", hessian_from_products, len(self.x), self.terms)
        return self.known.hessian

    def hessian_product(self, v: Vector) -> Vector:
        """hess f(x) v; free once the dense Hessian is there."""
        return self.ask("hessian", self.able.product, 2, v) if self.known.hessian is None else self.known.hessian @ v

    def third_product(self, u: Vector, v: Vector) -> Vector:
        """third f(x)[u, v]."""
        return self.ask("third", self.able.product, 3, u, v)

    def third_square(self, s: Vector) -> Vector:
        """third f(x)[s, s] over the terms that bend along s."""
        own = self.able.third_square
        return self.ask("third", self.able.product, 3, s, s) if own is None else self.ask("third", own, s)

    def third_tensor(self, V: Matrix) -> Tensor:
        """third f(x) over the columns of V, at the price of its k (k + 1) / 2 products."""
        own, k, m = self.able.third_tensor, V.shape[1], self.terms
        if own is None:
            return self.ask("third", tensor_of_products, V, m)
        return self.ask("third", own, V, price=m * (k * (k + 1) // 2))

    def white(self) -> Any:
        """Coordinates in which the Hessian is nearly a multiple of one; None where the objective has none."""
        own = self.able.white
        return None if own is None else self.ask("hessian", own, finite=False)

    @property
    def residuals(self) -> MeteredResiduals:
        """What is known of its residuals, where the objective has them (`Traits.residuals`)."""
        return MeteredResiduals(self, self.able)

    @property
    def differenced(self) -> Any:
        """What is known of the differences that derivatives are made of (`Differenced`); None where there are none."""
        return None if self.able.drift is None else engine_of(self)

    def third_bound(self, V: Matrix | None, tight: bool = False) -> float:
        """A bound on |third f(x)[y]^3| over the span of V; one evaluation of each term, none where it is infinite."""
        own = self.able.third_bound
        return np.inf if own is None else self.ask("third", own, V, tight, finite=False)

    @property
    def carry(self) -> Carry:
        """What a point nearby can use again."""
        formed = self.given.formed
        if self.view.reuses_hessian and self.known.hessian is not None and self.borrowed is None:
            formed = Formed(self.terms, self.known.hessian)
        if not self.able.carries:
            return Carry(formed)
        return Carry(formed, engine_of(self).carry)

    @property
    def inexact(self) -> int:
        """The lowest order of derivative that owes something to other points; 4 where none does."""
        return min(4 if self.borrowed is None else 2, engine_of(self).inexact if self.able.carries else 4)

    def ask(self, order: str, work: Callable[..., Any], *arguments: Any, price: int = -1, finite: bool = True) -> Any:
        """Have the engine's point work, unless the time is up, and count it: each term once, or what the answer or
        `price` says. What the objective raises is told apart from errors of our own."""
        meter = self.view.meter
        if perf_counter() > meter.deadline:
            raise DeadlineError
        try:
            answer = work(engine_of(self) if self.made is None else self.made, *arguments)
        except DeadlineError:
            raise
        except Exception as error:
            raise EvaluationError(f"{type(error).__name__}: {error}", self.x) from error
        if isinstance(answer, Priced):
            for name in ORDERS:
                meter.tally[name] += getattr(answer, name)
            answer = answer.result
        else:
            meter.tally[order] += self.terms if price < 0 else price
        if finite and order in ("hessian", "third") and not np.isfinite(answer).all():
            raise NotFiniteError(order)
        return answer


@dataclass(frozen=True, eq=False)
class MeteredResiduals:
    """The capability `Linear` of a point, counted."""

    point: MeteredPoint
    able: Any  # what it offers, which has these

    def linear(self) -> Any:
        """A root of the Gauss-Newton matrix; it is paid with the gradient where that is known."""
        return self.point.ask("gradient", self.able.linear, self.point.known.gradient is not None)

    def rest(self) -> Matrix:
        """hess f(x) less the Gauss-Newton matrix."""
        return self.point.ask("hessian", self.able.rest)

    def curve(self, s: Vector) -> Any:
        """The second derivative of the residuals along s."""
        return self.point.ask("third", self.able.curve, s, finite=False)

    def ahead(self, most: float) -> None:
        """f and, where f <= most, what `linear` and `rest` take, made at once by an engine that can."""
        if self.able.ahead is not None:
            self.point.ask("value", self.able.ahead, most)


def engine_of(point: MeteredPoint) -> Any:
    """The engine's own point, made when it is first asked for."""
    if point.made is None:
        point.made = point.view.engine.at(point.x, point.given.engine)
        if point.able.know is not None:
            point.able.know(point.made, point.known.value, point.known.gradient)
    return point.made


def told(view: MeteredView, given: Carry) -> MeteredView:
    """The view that knows what a point was handed of it (`Tells`)."""
    tell = getattr(given.engine, "tell", None)
    return view if tell is None else replace(view, engine=tell(view.engine))


def renewed(point: MeteredPoint) -> MeteredPoint:
    """The same point without a Hessian from nearby; the point itself where it has none."""
    if point.borrowed is None:
        return point
    return MeteredPoint(point.view, point.x, point.given.fresh(), replace(point.known, hessian=None))


def exact(point: MeteredPoint) -> MeteredPoint:
    """The same point, owing nothing to others; the point itself where it does not. What was exact is not paid again.

    Where f itself owes something it is the rounding of a sum of steps, which does nothing to a Hessian of this x.
    """
    if point.inexact > 3:
        return point
    own, hessian = point.given.engine, point.known.hessian
    given = Carry(None, None if own is None else own.exact())
    if point.inexact == 0 and point.borrowed is None:
        return MeteredPoint(point.view, point.x, given, Known(hessian=hessian))
    known = Known() if point.inexact < 2 else replace(point.known, hessian=None)
    return MeteredPoint(point.view, point.x, given, known)


def variance(point: MeteredPoint, order: int) -> float:
    """The variance of the terms' derivatives of one order; nan where it is not known. Those that are paid are free."""
    own, known = point.able.variance, point.known
    if own is None:
        return np.nan
    paid = (known.gradient if order == 1 else known.hessian if order == 2 else None) is not None
    return point.ask(ORDERS[order], own, order, price=0 if paid else point.terms, finite=False)


def saved(point: MeteredPoint) -> dict[str, Any]:
    """The value, the gradient if it was taken, and what the point owes to its past."""
    gradient = {} if point.known.gradient is None else {"gradient": point.known.gradient}
    return {"value": point.value(), "carry": point.given.arrays(), **gradient}


@dataclass(frozen=True, eq=False)
class MeteredView:
    """A view whose points count."""

    engine: View
    meter: Meter
    objective: Objective
    able: Abilities
    rows: Rows | None  # None: all terms
    terms: int
    reuses_hessian: bool

    def at(self, x: Vector, given: Carry = NOTHING) -> MeteredPoint:
        """The mean over these terms at x, with what a point nearby handed on."""
        return MeteredPoint(self, x, given)

    def counted(self, metered: Metered) -> MeteredView:
        """The same terms, counted by another meter."""
        return metered.over(self.rows)

    def first_at(self, x: Vector, given: Carry = NOTHING) -> MeteredPoint:
        """The same, with f and its gradient taken at once where the engine has a way to do so, and the gradient of a
        sample then tells its error."""
        point = MeteredPoint(self, x, given)
        if self.able.first is not None and (self.able.grouped or self.rows is None):
            value, gradient = point.ask("value", self.able.first)
            self.meter.tally["gradient"] += self.terms
            point.known.value, point.known.gradient = float(value), gradient
        return point

    def recall(self, x: Vector, arrays: dict[str, Any]) -> MeteredPoint:
        """The point that `saved` described; what was paid for then is not paid for again."""
        carry, recall = arrays["carry"], getattr(self.engine, "recall", None)
        formed = Formed(**carry["formed"]) if "formed" in carry else None
        engine = recall(carry["engine"]) if "engine" in carry and recall is not None else None
        return MeteredPoint(self, x, Carry(formed, engine), Known(float(arrays["value"]), arrays.get("gradient")))

    def start(self, x: Vector) -> Vector:
        """A start that is no worse for these terms."""
        better = getattr(self.engine, "start", None)
        return x if better is None else self.at(x).ask("value", lambda point: better(x), price=0)

    @property
    def seed(self) -> Carry:
        """What the first point of a run is given."""
        own = getattr(self.engine, "seed", None)
        return NOTHING if own is None else Carry(None, own())

    def grouped(self, point: Any, x: Vector, rows: Rows) -> Any:
        """The gradient over a sample, and its errors, from the gradients over groups to which the terms are dealt."""
        m = len(rows)
        groups = [self.objective.over(rows[k::GROUPS]) for k in range(min(GROUPS, m))]
        answers = [group.at(x).gradient() for group in groups]
        sums = np.stack([group.terms * result_of(answer) for group, answer in zip(groups, answers, strict=True)])
        both = np.sum(sums, axis=0) / m, group_errors(sums, m)
        priced = [add_up(None, [a], "gradient", group.terms) for group, a in zip(groups, answers, strict=True)]
        return add_up(both, priced, "gradient", 0)


@dataclass(frozen=True, eq=False)
class Metered:
    """An objective whose every evaluation is counted by a meter."""

    objective: Objective
    meter: Meter
    traits: Traits
    reuses_hessian: bool

    @staticmethod
    def of(objective: Objective, meter: Meter) -> Metered:
        """What an objective says of itself; nothing is evaluated."""
        clocked, traits = getattr(objective, "clocked", None), traits_of(objective)
        own = objective if clocked is None or meter.deadline == np.inf else clocked(meter.look)
        return Metered(own, meter, traits, traits.hessian_cost > CHEAP_HESSIAN)

    def over(self, rows: Rows | None) -> MeteredView:
        """The mean over the given terms, counted; all of them may be another kind of points than a sample is."""
        view = self.objective.over(rows)
        able = abilities(type(view.at(np.zeros(self.objective.d))))
        return MeteredView(view, self.meter, self.objective, able, rows, view.terms, self.reuses_hessian)
