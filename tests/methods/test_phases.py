"""Two ways to go on from a point: what is asked of the sub-solver, what is accepted, and what is learned of a step."""

from __future__ import annotations

from dataclasses import replace
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import tercet
from tercet.control.judge import EPS, Score
from tercet.control.sigma import Control, Miss
from tercet.critical.looks import WayDown
from tercet.frame import Same
from tercet.methods.phases import (
    DESCENT,
    PATIENCE,
    Judged,
    Leaving,
    cauchy,
    count_stuck,
    gather,
    left_over,
    noise_explains,
)
from tercet.records import Forecast, Sizes, Step
from tercet.subsolvers.base import Ask
from tests.methods.walks import Flat, Quartic, Told, Walk

G = np.array([3.0, -4.0])
S = np.array([-0.5, 0.25])
QUADRATIC = Forecast(0.75, np.array([1.0, -1.0]))
CUBIC = Forecast(0.5, np.array([0.5, -2.0]))
MODEL = SimpleNamespace(frame=Same(), size=np.sqrt(2.0), taylor=SimpleNamespace(g=G))
HERE = SimpleNamespace(f=2.0, g=G, norm=5.0, consistent=True, model=MODEL)
THERE = SimpleNamespace(f=2.0, g=G, norm=5.0, consistent=False, model=MODEL)  # f and g are over other terms
ASK = Ask(1.0, 2.0, power=4, radius=8.0)


def judged(**changes: Any) -> Judged:
    """An accepted step of both orders from f = 2 to f = 1.5, over the same terms."""
    step = Step(S, QUADRATIC, CUBIC, 1, 2.0)
    made = Judged(step, ASK, 1.5, np.array([2.0, 1.0]), Score(1.0, False), True)
    changes = {"score": Score(-1.0, False), **changes} if changes.get("accepted") is False else changes
    return replace(made, **changes)


def solve(walk: Walk) -> Ask:
    """What the phase asks of the sub-solver."""
    return walk.solve(walk.expand())[1]


# what is asked ------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("kind", [tercet.STM, tercet.SCR])
def test_a_step_of_the_model_is_asked_for_with_what_is_remembered(kind):
    walk = Walk.of(kind())
    walk.remember(control=Control(0.25, 0.5, 0.125), unexplained=0.75)
    ask = solve(walk)
    assert (ask.sigma2, ask.sigma3, ask.radius, ask.unexplained) == (0.25, 0.5, 0.125, 0.75)
    assert ask.power == (4 if kind is tercet.STM else 3)


@pytest.mark.parametrize("start", [np.zeros(5), np.ones(5)], ids=["at 0", "away"])
def test_the_first_radius_is_so_many_times_the_larger_of_x_and_of_the_step_of_steepest_descent(start):
    """Both in the units of the step, `grow` times; the product with B that it takes is counted."""
    walk = Walk.of(tercet.STM(tercet.Full()), start=start)
    at = walk.expand()
    taylor, frame = at.model.taylor, at.model.frame
    g, B = taylor.g, taylor.B.hessian()
    descent = (g @ g) ** 1.5 / (g @ B @ g)
    size = np.linalg.norm(frame.coordinates(at.point.x))
    grow = walk.parts.sigma.grow
    assert solve(walk).radius == pytest.approx(grow * max(size, descent), rel=1e-12)
    walk.remember(control=Control(0.0, 0.0, 0.125))
    assert solve(walk).radius == 0.125


@pytest.mark.parametrize("size", [1e-200, 1e-80, 1e80, 1e120])
def test_the_step_of_steepest_descent_of_a_gradient_whose_powers_are_no_numbers_has_a_length(size):
    class Point:
        def hessian_product(self, v: np.ndarray) -> np.ndarray:
            return 2.0 * v

    assert cauchy(SimpleNamespace(g=np.array([size, 0.0]), B=Point()), False) == pytest.approx(size / 2, rel=1e-12)
    assert cauchy(SimpleNamespace(g=np.zeros(2), B=Point()), False) == 0.0


@pytest.mark.parametrize(("bend", "expected"), [(3.0, 5 / 3), (-3.0, 5 / 3), (0.0, 5.0)])
def test_where_f_bends_down_along_its_gradient_that_length_is_where_its_slope_doubles(bend, expected):
    class Point:
        def hessian_product(self, v: np.ndarray) -> np.ndarray:
            return bend * v

    assert cauchy(SimpleNamespace(g=G, B=Point()), False) == pytest.approx(expected)


@pytest.mark.parametrize(("worth", "first"), [(np.inf, True), (4.0, False), (0.0, False)])
def test_third_derivatives_are_part_of_the_first_step_only_where_they_are_always_bought(worth, first):
    walk, scr = Walk.of(tercet.STM(tercet.Full(), worth=worth)), Walk.of(tercet.SCR())
    assert solve(walk).buy_third == first
    assert not solve(scr).buy_third


def test_where_t_is_formed_it_is_part_of_the_first_step():
    f = Quartic(0, 3)
    problem = tercet.objectives.functions.Function(lambda x: f.value(x), grad=f.gradient, hess=f.hessian, third=f.third)
    assert solve(Walk.of(tercet.STM(), problem, f.start)).buy_third


# what is accepted ---------------------------------------------------------------------------------------------------


def accepts(score: Score, gradient: Any = (0.0, 1.0)) -> bool:
    trial = SimpleNamespace(gradient=lambda: np.array(gradient), x=np.zeros(2))
    accepted, slope = DESCENT.verdict(HERE, trial, score, 0.1)
    assert not accepted or np.array_equal(slope, gradient)
    return accepted


def test_a_step_of_the_model_is_accepted_from_eta1_on():
    assert accepts(Score(0.1, False))
    assert accepts(Score(9.0, False))
    assert not accepts(Score(np.nextafter(0.1, 0), False))
    assert not accepts(Score(-np.inf, False))


def test_a_step_to_a_gradient_that_is_not_finite_is_rejected():
    assert not accepts(Score(1.0, False), (np.nan, 0.0))
    assert not accepts(Score(1.0, False), (np.inf, 0.0))


def test_where_f_is_rounded_off_a_smaller_gradient_decides():
    assert accepts(Score(-3.0, True), (0.0, 4.9))
    assert not accepts(Score(1.0, True), (0.0, 5.0))
    assert not accepts(Score(-np.inf, True), (0.0, 0.0))


def test_where_g_is_over_other_terms_its_gradient_is_not_looked_at():
    def untouched() -> Any:
        raise AssertionError("the gradient was asked for")

    trial = SimpleNamespace(gradient=untouched)
    assert DESCENT.verdict(THERE, trial, Score(0.5, False), 0.1) == (True, None)
    assert DESCENT.verdict(THERE, trial, Score(0.5, True), 0.1) == (False, None)


def test_a_way_down_is_accepted_only_where_f_falls_as_it_was_seen_to():
    leaving, trial = Leaving(WayDown(np.ones(1), 1.0, 3)), SimpleNamespace()
    assert leaving.verdict(HERE, trial, Score(0.1, False), 0.1) == (True, None)
    assert leaving.verdict(HERE, trial, Score(0.09, False), 0.1) == (False, None)


# what is learned ----------------------------------------------------------------------------------------------------


def test_the_evidence_is_how_each_polynomial_missed_f_and_its_slope():
    made = gather(HERE, judged(), 0.0)
    g = np.array([2.0, 1.0])
    assert made.quadratic == Miss(1.5 - (2.0 - 0.75), float((g - QUADRATIC.gradient) @ S))
    assert made.cubic == Miss(1.5 - (2.0 - 0.5), float((g - CUBIC.gradient) @ S))
    assert (made.ratio, made.accepted, made.power) == (1.0, True, 4)
    assert made.length == pytest.approx(np.linalg.norm(S), rel=1e-15)


def test_what_noise_may_do_is_taken_off_the_miss_of_f():
    assert gather(HERE, judged(), 0.125).quadratic.value == 0.25 - 0.125


def test_without_a_third_derivative_there_is_no_evidence_about_it():
    assert gather(HERE, judged(step=Step(S, QUADRATIC, None, 1, 2.0)), 0.0).cubic is None


@pytest.mark.parametrize(
    "changes",
    [
        {"accepted": False},
        {"slope": None},
        {"step": Step(S, QUADRATIC, CUBIC, 1, 2.0, trial=object())},
    ],
    ids=["rejected", "no gradient over the same terms", "f was looked at before"],
)
def test_slopes_are_compared_only_where_there_are_gradients_over_the_same_terms(changes):
    made = gather(HERE, judged(**changes), 0.0)
    assert np.isnan(made.quadratic.slope)
    assert np.isnan(made.cubic.slope)
    assert made.quadratic.value == 0.25


def test_what_a_quadratic_left_of_the_gradient_is_measured_where_the_step_tells():
    left = np.linalg.norm(np.array([2.0, 1.0]) - QUADRATIC.gradient) / 5.0
    looked = Step(S, QUADRATIC, CUBIC, 1, 2.0, trial=object())
    assert left_over(0.4, HERE, judged()) == pytest.approx(left, rel=1e-15)
    assert left_over(0.4, HERE, judged(accepted=False)) == 0.4
    assert left_over(0.4, HERE, judged(slope=None)) == 0.4
    assert left_over(0.4, HERE, judged(step=looked)) == 0.4
    assert left_over(0.4, HERE, judged(step=replace(looked, left=0.125))) == 0.125


def test_noise_explains_a_poor_ratio_that_is_within_the_allowance_or_where_it_is_most_of_the_gradient():
    def explains(ratio: float, cubic: float, share: float) -> bool:
        evidence = replace(gather(HERE, judged(), 0.0), ratio=ratio, cubic=Miss(cubic))
        return noise_explains(evidence, SimpleNamespace(share=share))

    assert explains(-1.0, 0.0, 0.0)
    assert explains(-1.0, 1.0, 0.5)
    assert not explains(-1.0, 1.0, 0.49)
    assert not explains(0.75, 0.0, 1.0)


@pytest.mark.parametrize(
    ("changes", "at", "excused", "expected"),
    [
        ({}, HERE, False, (0, False)),
        ({}, THERE, False, (2, False)),
        ({"accepted": False}, HERE, False, (3, False)),
        ({"accepted": False}, THERE, True, (4, True)),
        ({}, THERE, True, (3, False)),
        ({"score": Score(1.0, True)}, HERE, False, (4, False)),
        ({"accepted": False, "score": Score(-1.0, True)}, HERE, False, (4, False)),
    ],
    ids=["good", "good sample", "bad", "noise", "accepted noise", "accepted in rounding", "rounding"],
)
def test_steps_in_a_row_that_noise_or_rounding_explains_are_counted(changes, at, excused, expected):
    assert count_stuck(3, 0.5, judged(**changes), at, excused) == expected


@pytest.mark.parametrize("consistent", [True, False])
def test_a_step_below_the_rounding_of_x_ends_the_patience_at_once(consistent):
    edge = EPS * np.sqrt(2.0)
    at = HERE if consistent else THERE
    assert count_stuck(0, 0.99 * edge, judged(), at, False) == (PATIENCE, not consistent)
    assert count_stuck(0, 1.01 * edge, judged(), at, False)[0] == 0


def tried(at: Any, **changes: Any) -> Judged:
    """An accepted step of a hundredth of the gradient, half as good as it was predicted to be."""
    g = at.model.taylor.g
    step = Step(-0.01 * g, Forecast(0.1, g), None, 1, 1.0)
    return replace(Judged(step, ASK, at.f - 0.05, g, Score(0.5, False), True), **changes)


def learn(walk: Walk, phase: Any = DESCENT, **changes: Any) -> Any:
    at = walk.expand()
    return phase.learn(walk.run, walk.parts, walk.state, at, tried(at, **changes))


def test_an_accepted_step_is_remembered_with_its_length_and_what_it_left():
    walk = Walk.of(tercet.STM(tercet.Full()))
    walk.remember(iteration=4, stuck=3, closer=0.1, rounding=1e-9, looked=True, missed=7.0)
    memory, phase = learn(walk)
    at = walk.expand()
    assert phase is DESCENT
    assert (memory.iteration, memory.stuck) == (5, 0)
    assert (memory.closer, memory.rounding, memory.looked) == (0.1, 1e-9, True)  # what a certificate told
    assert memory.length == pytest.approx(0.01 * np.linalg.norm(at.model.taylor.g), rel=1e-14)
    assert memory.unexplained == memory.missed == 0.0
    np.testing.assert_array_equal(memory.reach.size, np.maximum(np.abs(walk.run.x0), np.abs(at.point.x)))
    np.testing.assert_array_equal(memory.reach.bend, np.diagonal(at.B.hessian()))
    evidence = gather(at, tried(at), 0.0)
    assert memory.control == walk.parts.sigma.next(Control(1.0, 2.0, 8.0), evidence)
    assert walk.memory.iteration == 4  # what was remembered before is left as it was


def test_a_rejected_step_leaves_the_length_and_what_was_left_and_misses_all():
    walk = Walk.of(tercet.STM(tercet.Full()))
    walk.remember(length=0.5, unexplained=0.25)
    memory, _ = learn(walk, accepted=False, score=Score(-1.0, False))
    assert (memory.length, memory.unexplained, memory.missed) == (0.5, 0.25, np.inf)
    assert memory.control.radius <= 0.005 * np.linalg.norm(walk.expand().model.taylor.g)


def test_a_rejection_in_the_rounding_of_f_halves_the_radius_and_leaves_sigma():
    walk = Walk.of(tercet.STM(tercet.Full()))
    memory, _ = learn(walk, accepted=False, score=Score(-1.0, True))
    assert (memory.control.sigma2, memory.control.sigma3) == (1.0, 2.0)
    assert memory.control.radius == pytest.approx(0.005 * np.linalg.norm(walk.expand().model.taylor.g), rel=1e-14)
    assert memory.stuck == 1


@pytest.mark.parametrize("rounding", [False, True])
def test_a_step_of_no_length_leaves_the_radius_as_it_was(rounding):
    """As where powers of the gradient overflow; there is no radius of 0."""
    walk = Walk.of(tercet.STM(tercet.Full()))
    at = walk.expand()
    nothing = Step(0.0 * at.g, Forecast(0.0, at.g), None, 1, 1.0)
    memory, _ = learn(walk, step=nothing, accepted=False, score=Score(-np.inf, rounding))
    assert memory.control.radius == 8.0
    assert memory.stuck == PATIENCE


@given(
    c1=st.floats(-3.0, -0.1),
    c2=st.floats(-3.0, 3.0),
    c3=st.floats(-3.0, 3.0),
    c4=st.floats(-3.0, 3.0),
)
def test_after_a_rejection_the_evidence_says_where_along_the_step_f_is_lowest(c1, c2, c3, c4):
    """By the derivatives at x and the value that was seen: against a dense scan of that polynomial."""
    s, g = np.array([1.0]), np.array([c1])
    at = SimpleNamespace(f=2.0, g=g, model=SimpleNamespace(frame=Same(), taylor=SimpleNamespace(g=g)))
    quadratic = Forecast(-(c1 + c2 / 2), g)
    step = Step(s, quadratic, Forecast(quadratic.decrease - c3 / 6, g), 1, 0.0)
    rise = c1 + c2 / 2 + c3 / 6 + c4
    made = Judged(step, ASK, 2.0 + rise, None, Score(-1.0, False), False)
    grid = np.linspace(0.1, 3.0, 29_001)
    slope = c1 + c2 * grid + c3 / 2 * grid**2 + 4 * c4 * grid**3
    turns = np.flatnonzero(np.diff(np.sign(slope)))
    if turns.size > 1 and np.diff(grid[turns]).min() < 0.25:
        return  # it turns twice within one stride of the search
    first = 0.1 if slope[0] >= 0 else grid[np.argmax(slope >= 0)] if np.any(slope >= 0) else 3.0
    assert gather(at, made, 0.0).best == pytest.approx(first, abs=1e-3)


# away from a point that is no minimizer -----------------------------------------------------------------------------


def leaving(walk: Walk, fall: float = 0.25) -> Leaving:
    return Leaving(WayDown(np.arange(walk.run.d) / 8.0, fall, 2))


def test_a_way_down_is_gone_as_it_was_looked_at_and_promises_what_was_seen():
    walk = Walk.of(tercet.STM(tercet.Full()))
    at, phase = walk.expand(), leaving(walk)
    step, _ = phase.solve(at, ASK)
    np.testing.assert_allclose(at.model.frame.lift(step.s), phase.way.s, rtol=1e-14)
    assert step.forecast.decrease == 0.25
    assert phase.order == 2
    assert phase.meets(at, tried(at)) == (None, None, None)


def test_after_a_way_down_the_model_begins_anew_within_three_times_its_length():
    walk = Walk.of(tercet.STM(tercet.Full()))
    walk.remember(stuck=3, closer=0.1, looked=True, control=Control(5.0, 5.0, 5.0))
    memory, after = learn(walk, leaving(walk))
    size = 0.01 * np.linalg.norm(walk.expand().model.taylor.g)
    first = walk.parts.sigma.first()
    assert after is DESCENT
    assert (memory.control.sigma2, memory.control.sigma3) == (first.sigma2, first.sigma3)
    assert memory.control.radius == pytest.approx(3 * size, rel=1e-14)
    assert memory.length == pytest.approx(size, rel=1e-14)
    assert (memory.stuck, memory.closer, memory.looked, memory.hopeless) == (0, 0.1, False, False), "as the stop said"


def test_a_way_down_that_is_none_when_f_is_asked_again_is_hopeless():
    walk = Walk.of(tercet.STM(tercet.Full()))
    memory, after = learn(walk, leaving(walk), accepted=False, score=Score(-1.0, False))
    assert after is DESCENT
    assert memory.hopeless
    assert memory.iteration == walk.memory.iteration + 1


@pytest.mark.parametrize("kind", [tercet.STM, tercet.SCR])
@pytest.mark.parametrize("nested", [True, False])
def test_from_a_saddle_of_order_three_f_falls_at_once_and_the_run_goes_on_by_the_model(kind, nested):
    A = np.random.default_rng(0).standard_normal((400, 3))
    rule = Told(lambda n, d: Sizes(n, n, n, n), nested=nested)
    walk = Walk.of(kind(rule), tercet.LinearModel(A, np.zeros(400), loss=Flat()), np.zeros(3))
    first, *rest = (walk.step() for _ in range(4))
    assert (first.escape, first.accepted) == (3, True)  # it was looked at before it was gone
    assert first.f < 0.0
    assert [row.escape for row in rest] == [0, 0, 0]
    assert rest[-1].f < first.f
