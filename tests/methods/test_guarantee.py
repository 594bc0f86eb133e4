"""What an iteration can promise of its samples, and what it costs to know."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from time import perf_counter
from typing import Any

import numpy as np
import pytest

import tercet
from tercet import Status, theory
from tercet.methods.guarantee import NO_RECORD, Nothing, Promised, WholeThird, guarantee_of, summarize
from tercet.methods.state import UNKNOWN
from tercet.objectives.functions import Function
from tercet.objectives.metered import Carry, DeadlineError, Formed, MeteredPoint
from tercet.records import Forecast, Sampling, Sizes, Step
from tercet.result import Row
from tercet.sampling.theory import Promise
from tests.methods.walks import MODEL, D, N, Quartic, Walk

RANGES = theory.constants(MODEL).ranges
SIZES = Sizes(N, 300, 200, 100)


@dataclass(frozen=True)
class Promising:
    """A rule that promises what it is told to, and writes down what it was shown."""

    observes: bool = True
    holds: tuple[bool, bool, bool] = (True, True, True)
    nested: bool = False
    replacement: bool = False
    shown: list[Any] = field(default_factory=list)

    def first(self, n: int, d: int) -> Sizes:
        return SIZES

    def next(self, outlook: Any) -> Sizes:
        return outlook.sizes

    def guarantee(self, sizes: Sizes, n: int, d: int, variances: Any) -> Promise:
        self.shown.append((sizes, n, d, variances))
        return Promise(self.holds, 0.125)


def paid(walk: Walk, before: Any) -> tuple[int, int, int, int]:
    now = walk.run.meter.counts()
    return tuple(getattr(now, name) - getattr(before, name) for name in ("value", "gradient", "hessian", "third"))


def a_step(at: Any, third: bool = True) -> Step:
    forecast = Forecast(1.0, at.g)
    return Step(-at.g, forecast, forecast if third else None, 1, 1.0)


def anew(point):
    """The same point, of which nothing is known."""
    return MeteredPoint(point.view, point.x)


# observing ----------------------------------------------------------------------------------------------------------


def test_a_rule_that_does_not_observe_pays_nothing_and_learns_nothing():
    walk = Walk.of(tercet.STM(Promising(observes=False)))
    at, before = walk.expand(), walk.run.meter.counts()
    assert walk.parts.guarantee.observe(at) is UNKNOWN
    assert paid(walk, before) == (0, 0, 0, 0)


def test_variances_are_those_of_the_drawn_terms_each_over_its_own_sample():
    walk = Walk.of(tercet.STM(Promising()))
    at = walk.expand()
    raw = (MODEL.over(point.view.rows).at(at.point.x) for point in (at.slope, at.B, at.T))
    expected = tuple(point.variance(order) for order, point in enumerate(raw, start=1))
    assert walk.parts.guarantee.observe(at) == expected
    assert all(value > 0 for value in expected)


def test_observing_pays_for_the_derivatives_that_nobody_paid_for_yet():
    walk = Walk.of(tercet.STM(Promising(), tercet.Dense()))
    at, before = walk.expand(), walk.run.meter.counts()  # the gradient and B were taken
    walk.parts.guarantee.observe(at)
    assert paid(walk, before) == (0, 0, 0, 100)
    fresh = replace(at, slope=anew(at.slope), B=anew(at.B))
    before = walk.run.meter.counts()
    walk.parts.guarantee.observe(fresh)
    assert paid(walk, before) == (0, 300, 200, 100)


def test_a_method_of_order_two_does_not_ask_for_third_derivatives():
    walk = Walk.of(tercet.SCR(Promising(), tercet.Dense()))
    at, before = walk.expand(), walk.run.meter.counts()
    g, B, T = walk.parts.guarantee.observe(at)
    assert g > 0
    assert B > 0
    assert np.isnan(T)
    assert paid(walk, before) == (0, 0, 0, 0)
    result = tercet.minimize(MODEL, np.ones(D), method=tercet.SCR(bernstein()), max_iterations=5)
    assert result.nit == 5
    assert np.all(result.trace["third"] == 0)


def test_an_objective_that_does_not_know_its_variances_is_not_asked():
    f = Quartic(0, 3)
    problem = Function(lambda x: f.value(x), grad=f.gradient, hess=f.hessian, third=f.third)
    walk = Walk.of(tercet.STM(Promising()), problem, f.start)
    at, before = walk.expand(), walk.run.meter.counts()
    assert np.isnan(walk.parts.guarantee.observe(at)).all()
    assert paid(walk, before) == (0, 0, 0, 0)


def test_observing_looks_at_the_clock_before_it_works():
    walk = Walk.of(tercet.STM(Promising()))
    at, before = walk.expand(), walk.run.meter.counts()
    walk.run.meter.deadline = perf_counter() - 1.0
    with pytest.raises(DeadlineError):
        walk.parts.guarantee.observe(at)
    assert paid(walk, before) == (0, 0, 0, 0)
    walk.run.meter.deadline = np.inf
    assert np.isfinite(walk.parts.guarantee.observe(at)).all()


def test_a_run_whose_time_ends_while_variances_are_taken_ends_with_its_best_point(monkeypatch):
    """The clock jumps when the first variance is asked for."""
    asked = []

    def late(point: Any, order: int) -> float:
        asked.append(order)
        point.view.meter.deadline = perf_counter() - 1.0
        return own(point, order)

    own = tercet.methods.guarantee.variance
    monkeypatch.setattr(tercet.methods.guarantee, "variance", late)
    result = tercet.minimize(MODEL, np.ones(D), method=tercet.STM(bernstein()), max_seconds=3600)
    assert asked == [1]
    assert result.status is Status.MAX_SECONDS
    assert result.nit == 0
    assert result.fun == pytest.approx(MODEL.over(None).at(result.x).value(), rel=1e-14)
    assert result.fun <= MODEL.over(None).at(np.ones(D)).value()


def bernstein() -> tercet.Theory:
    return tercet.Theory(0.3, 0.1, RANGES, (1.0, 1.0, 1.0), 50, bound="bernstein")


def test_the_trace_counts_what_observing_costs():
    """In the iteration after, like a gradient that is taken at the trial point."""
    method = tercet.STM(bernstein(), tercet.Dense(), worth=0.0)
    result = tercet.minimize(MODEL, np.ones(D), method=method, max_iterations=4)
    third = result.trace["third"]
    sizes = result.trace["size_third"]
    assert sizes[0] < N
    assert np.array_equal(third, np.concatenate([[0], np.cumsum(sizes[:-1])]))


# recording ----------------------------------------------------------------------------------------------------------


def test_the_rule_is_shown_the_sizes_and_the_variances_and_its_promise_is_recorded():
    rule = Promising()
    walk = Walk.of(tercet.STM(rule))
    at = walk.expand()
    record = walk.parts.guarantee.record(walk.run, SIZES, at, a_step(at))
    assert rule.shown == [(SIZES, N, D, record.variances)]
    assert record.variances == walk.parts.guarantee.observe(at)
    assert (record.holds, record.failure) == ((True, True, True), 0.125)


def test_what_the_iteration_did_not_use_is_not_promised():
    walk = Walk.of(tercet.STM(Promising(observes=False)))
    guarantee, at = walk.parts.guarantee, walk.expand()
    assert guarantee.record(walk.run, SIZES, at, a_step(at, third=False)).holds == (True, True, False)
    borrowing = at.B.view.at(at.B.x, Carry(Formed(at.B.terms, np.eye(D))))
    assert guarantee.record(walk.run, SIZES, replace(at, B=borrowing), a_step(at)).holds == (True, False, True)


@pytest.mark.parametrize("holds", [(False, True, True), (True, False, True), (True, True, False)])
def test_what_the_rule_does_not_promise_is_not_recorded_as_promised(holds):
    walk = Walk.of(tercet.STM(Promising(observes=False, holds=holds)))
    at = walk.expand()
    assert walk.parts.guarantee.record(walk.run, SIZES, at, a_step(at)).holds == holds


def test_the_variances_of_an_iteration_are_remembered_for_the_next_sizes():
    walk = Walk.of(tercet.STM(Promising()))
    assert np.isnan(walk.memory.variances).all()
    at = walk.expand()
    walk.state = replace(walk.state, kept=at)
    walk.step()
    assert walk.memory.variances == walk.parts.guarantee.observe(at)


def test_a_rule_without_a_guarantee_promises_nothing_and_asks_nothing():
    assert guarantee_of(tercet.Progressive(), 3) == Nothing()
    rule = Promising()
    assert guarantee_of(rule, 2) == Promised(rule, 2)
    walk = Walk.of(tercet.STM(tercet.Fixed(0.1, 0.1, 0.1)))
    at, before = walk.expand(), walk.run.meter.counts()
    assert walk.parts.guarantee.record(walk.run, SIZES, at, a_step(at)) is NO_RECORD
    assert walk.parts.guarantee.third(at.T) is at.T
    assert walk.parts.guarantee.base(at.B) is at.B
    assert paid(walk, before) == (0, 0, 0, 0)
    assert walk.step().guaranteed == (None, None, None)


# what the promises are about ----------------------------------------------------------------------------------------


def test_the_t_that_is_promised_leaves_no_term_out():
    walk = Walk.of(tercet.STM(Promising(observes=False)))
    at = walk.expand()
    framed, s = at.model.taylor.T, 0.01 * np.ones(D)
    T = framed.point  # seen through the units of the step
    assert isinstance(T, WholeThird)
    before = walk.run.meter.counts()
    np.testing.assert_array_equal(T.third_square(s), at.T.third_product(s, s))
    assert paid(walk, before) == (0, 0, 0, 200)  # twice all 100 terms
    before = walk.run.meter.counts()
    assert np.linalg.norm(at.T.third_square(s) - T.third_square(s)) > 0  # which leaves out those that hardly bend
    assert paid(walk, before)[3] < 200
    V = np.eye(D)[:, :2]
    np.testing.assert_array_equal(T.third_tensor(V), at.T.third_tensor(V))


def test_b_over_all_terms_owes_nothing_to_other_points():
    walk = Walk.of(tercet.STM(replace(Promising(observes=False)), tercet.Dense()))
    near = walk.run.full.at(np.ones(D), Carry(Formed(N, np.eye(D))))
    assert walk.parts.guarantee.base(near).inexact == 4
    assert near.inexact == 2


# the run ------------------------------------------------------------------------------------------------------------


def row(guaranteed: Any, failure: float = np.nan) -> Row:
    return Row(0, 0.0, 0.0, 1.0, 1.0, True, 1.0, SIZES, 1, guaranteed=guaranteed, failure=failure)


def test_a_summary_counts_the_iterations_that_promise_and_adds_up_their_failures():
    rows = [row((True, True, False), 0.25), row((None, None, None)), row((True, False, False), 0.125)]
    assert summarize(rows) == Sampling(2, 2, 1, 0, 0.375)


def test_there_is_no_summary_where_nothing_was_promised():
    assert summarize([]) is None
    assert summarize([row((None, None, None))]) is None
