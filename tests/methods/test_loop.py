"""The loop around a method: which budget is spent, which point is returned, and what is known of it."""

from __future__ import annotations

from dataclasses import replace
from time import perf_counter
from typing import Any

import numpy as np
import pytest

import tercet
from tercet import Status
from tercet.methods.loop import Loop, look, nothing, stay
from tercet.methods.step import TensorKernel
from tercet.objectives.metered import EvaluationError
from tests.methods.walks import MODEL, D, N, Walk


def test_a_point_worse_than_the_start_is_not_returned_though_the_sampled_phases_do_not_look():
    for seed in range(5):
        start = tercet.minimize(MODEL, tol=1e-6).x
        result = tercet.minimize(MODEL, start, seed=seed, max_iterations=2)
        assert result.fun <= tercet.minimize(MODEL, start, max_iterations=0).fun


def test_a_start_beside_the_minimizer_ends_certified_though_rounding_may_make_f_higher_there():
    rng = np.random.default_rng(0)
    for _ in range(20):
        model = tercet.LinearModel(rng.standard_normal((200, 3)), rng.random(200) < 0.5, "logistic")
        best = tercet.minimize(model)
        for _ in range(5):
            result = tercet.minimize(model, best.x + 2e-8 * rng.standard_normal(3) * np.abs(best.x))
            assert result.success
            assert result.fun - best.fun <= 16 * result.certificate.rounding_f


def loop(walk: Walk, max_iterations: int = 10, max_epochs: float = np.inf, callback: Any = None) -> Loop:
    bound = MODEL.bind(walk.run.x0)
    return Loop(walk.run, walk.kernel, bound, callback, max_iterations, max_epochs, walk.state)


# budgets ------------------------------------------------------------------------------------------------------------


def test_each_budget_is_spent_where_it_is_reached():
    walk = Walk.of(tercet.STM())
    row = walk.step()
    made = loop(walk, max_iterations=1)
    assert made.spent() is None
    made.rows.append(row)
    assert made.spent() is Status.MAX_ITERATIONS
    epochs = walk.run.meter.counts().epochs
    assert loop(walk, max_epochs=epochs).spent() is Status.MAX_EPOCHS
    assert loop(walk, max_epochs=np.nextafter(epochs, np.inf)).spent() is None
    walk.run.meter.deadline = perf_counter() - 1e-9
    assert loop(walk).spent() is Status.MAX_SECONDS


def test_nothing_is_evaluated_where_a_budget_is_spent_before_the_start():
    walk = Walk.of(tercet.STM())
    made = replace(loop(walk, max_iterations=0), state=None)
    before = walk.run.meter.counts()
    assert made.go() == (Status.MAX_ITERATIONS, None)
    assert made.state is None
    assert walk.run.meter.counts() == before


@pytest.mark.parametrize("kind", [tercet.STM, tercet.SGD])
def test_the_loop_takes_the_steps_of_the_kernel_and_keeps_their_rows_in_order(kind, monkeypatch):
    monkeypatch.setattr(TensorKernel, "fast_forward", stay)  # that the compiled ones are the same is a test of its own
    walk, other = Walk.of(kind()), Walk.of(kind())
    made = replace(loop(walk, max_iterations=5), state=None)
    assert made.go() == (Status.MAX_ITERATIONS, None)
    rows = [other.step() for _ in range(5)]
    assert [row.iteration for row in made.rows] == list(range(5))
    assert [row.step_norm for row in made.rows] == [row.step_norm for row in rows]
    assert made.state.x.tobytes() == other.state.x.tobytes()


# which point --------------------------------------------------------------------------------------------------------


def stand(walk: Walk, x: np.ndarray) -> Loop:
    """A run that got to x over all terms."""
    return replace(loop(walk), state=replace(walk.state, point=walk.run.full.at(x)))


def test_the_better_of_x_and_x0_over_all_terms_is_returned():
    walk = Walk.of(tercet.STM())
    best = tercet.minimize(MODEL).x
    x, value, _ = stand(walk, best).best(Status.MAX_ITERATIONS)
    assert np.array_equal(x, best)
    assert value == MODEL.over(None).at(best).value()
    worse = stand(walk, np.full(D, 50.0))
    x, value, point = worse.best(Status.MAX_ITERATIONS)
    assert x is walk.run.x0
    assert value == MODEL.over(None).at(walk.run.x0).value() == point.value()


def test_a_point_over_a_sample_is_looked_at_over_all_terms_before_it_is_returned():
    walk = Walk.of(tercet.STM(tercet.Progressive(multiple=20)))
    assert walk.state.point.terms < N
    walk.step()
    x, value, point = loop(walk).best(Status.MAX_ITERATIONS)
    assert point.terms == N
    assert value == MODEL.over(None).at(x).value()


def test_before_the_start_was_looked_at_x0_is_the_point():
    walk = Walk.of(tercet.STM())
    x, value, _ = replace(loop(walk), state=None).best(Status.MAX_ITERATIONS)
    assert x is walk.run.x0
    assert value == MODEL.over(None).at(walk.run.x0).value()


@pytest.mark.parametrize("error", [EvaluationError("it raised", np.zeros(1)), KeyboardInterrupt()], ids=repr)
def test_a_point_that_raises_has_no_value(error):
    def make() -> Any:
        raise error

    point, value = look(make)
    assert point is None
    assert np.isnan(value)


# what is known of it ------------------------------------------------------------------------------------------------


def test_the_certificate_that_the_run_ended_with_is_not_made_again():
    walk = Walk.of(tercet.STM(), start=tercet.minimize(MODEL, tol=1e-11).x)
    while not isinstance(walk.step(), Status):
        pass
    made, before = loop(walk), walk.run.meter.counts()
    found = made.certificate(walk.state.x, walk.state.point, Status.CERTIFIED)
    assert found is walk.state.certificate
    assert found.holds
    assert walk.run.meter.counts() == before


@pytest.mark.parametrize("status", [Status.MAX_SECONDS, Status.UNBOUNDED, Status.FUNCTION_ERROR, Status.NOT_FINITE])
def test_after_a_hasty_end_only_the_gradient_is_certified(status):
    walk = Walk.of(tercet.STM(tercet.Full()))
    before = walk.run.meter.counts()
    found = loop(walk).certificate(walk.state.x, walk.state.point, status)
    assert found.chi1 == pytest.approx(np.linalg.norm(walk.state.point.gradient()), rel=1e-14)
    assert np.isnan(found.chi2)
    assert np.isnan(found.chi3)
    assert found.order == 3
    assert walk.run.meter.counts() == before


def test_after_an_interruption_nothing_is_computed_that_is_not_there():
    walk = Walk.of(tercet.STM(tercet.Full()))
    point, before = walk.run.full.at(2 * np.ones(D)), walk.run.meter.counts()
    point.value()
    found = loop(walk).certificate(point.x, point, Status.INTERRUPTED)
    assert np.isnan(found.chi1)
    assert found.how == "not computed: interrupted"
    assert walk.run.meter.counts().gradient == before.gradient
    point.gradient()
    assert np.isfinite(loop(walk).certificate(point.x, point, Status.INTERRUPTED).chi1)


def test_a_certificate_that_says_nothing_does_not_hold():
    walk = Walk.of(tercet.STM())
    assert not nothing(walk.run, Status.NOT_FINITE).holds
    assert nothing(walk.run, Status.NOT_FINITE).eps1 == 1e-8


def test_a_spent_budget_at_a_certified_point_is_a_success_and_other_ends_are_what_they_were():
    best = tercet.minimize(MODEL, tol=1e-11).x
    for status, expected in (
        (Status.MAX_ITERATIONS, Status.CERTIFIED),
        (Status.NOISE, Status.CERTIFIED),
        (Status.CALLBACK, Status.CALLBACK),
        (Status.MAX_SECONDS, Status.MAX_SECONDS),
    ):
        walk = Walk.of(tercet.STM(tercet.Full()), start=best)
        assert loop(walk).finish(status, None, "by hand").status is expected


def test_a_run_that_says_certified_at_a_point_that_is_not_is_not_certified():
    walk = Walk.of(tercet.STM(tercet.Full()))
    result = loop(walk).finish(Status.CERTIFIED, None, "by hand")
    assert result.status is Status.NOT_CERTIFIED
    assert not result.success
