"""Two ways to go on from a point: what is asked of the sub-solver, what is accepted, and what is learned of a step."""

from __future__ import annotations

from dataclasses import replace
from itertools import pairwise
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

import tercet
from tercet.control.judge import EPS, Score
from tercet.control.sigma import Control, Miss
from tercet.critical.escape import Escape
from tercet.methods.phases import DESCENT, PATIENCE, Judged, Leaving, count_stuck, gather, left_over, noise_explains
from tercet.records import Forecast, Sizes, Step
from tercet.subsolvers.base import Ask
from tests.methods.walks import Flat, Quartic, Told, Walk

G = np.array([3.0, -4.0])
S = np.array([-0.5, 0.25])
QUADRATIC = Forecast(0.75, np.array([1.0, -1.0]))
CUBIC = Forecast(0.5, np.array([0.5, -2.0]))
HERE = SimpleNamespace(f=2.0, g=G, norm=5.0, point=SimpleNamespace(x=np.ones(2)))
ASK = Ask(1.0, 2.0, power=4, radius=8.0)


def judged(**changes: Any) -> Judged:
    """An accepted step of both orders from f = 2 to f = 1.5, over the same terms."""
    step = Step(S, QUADRATIC, CUBIC, 1, 2.0)
    made = Judged(step, ASK, 1.5, np.array([2.0, 1.0]), Score(1.0, False), True, True)
    changes = {"score": Score(-1.0, False), **changes} if changes.get("accepted") is False else changes
    return replace(made, **changes)


def solve(walk: Walk) -> Ask:
    """What the phase asks of the sub-solver."""
    return walk.state.phase.solve(walk.run, walk.parts, walk.state, walk.expand())[1]


# what is asked ------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("kind", [tercet.STM, tercet.SCR])
def test_a_step_of_the_model_is_asked_for_with_what_is_remembered(kind):
    walk = Walk.of(kind())
    walk.remember(control=Control(0.25, 0.5, 0.125), unexplained=0.75)
    ask = solve(walk)
    assert (ask.sigma2, ask.sigma3, ask.radius, ask.unexplained) == (0.25, 0.5, 0.125, 0.75)
    assert ask.power == (4 if kind is tercet.STM else 3)


def test_sigma_is_raised_tenfold_before_f_is_looked_at_where_a_step_would_be_too_long():
    f = Quartic(0, 3)
    problem = tercet.objectives.functions.Function(lambda x: f.value(x), grad=f.gradient, hess=f.hessian, third=f.third)
    walk = Walk.of(tercet.STM(), problem, f.start)
    walk.remember(control=Control(1e-12, 1e-12))
    before = walk.run.meter.counts()
    step, ask = walk.state.phase.solve(walk.run, walk.parts, walk.state, walk.expand())
    assert ask.sigma3 > 1e-12
    assert np.log10(ask.sigma3 / 1e-12) == pytest.approx(round(np.log10(ask.sigma3 / 1e-12)))
    assert np.max(np.abs(step.s)) <= 3 * max(1.0, np.max(np.abs(f.start)))
    assert walk.run.meter.counts().value == before.value


@pytest.mark.parametrize(
    ("worth", "unexplained", "bought"),
    [
        (5.0, 0.19, False),
        (5.0, 0.21, True),
        (5.0, 3.0, True),
        (0.0, 3.0, False),
        (np.inf, 1e-300, True),
        (np.inf, 0.0, True),
        (1.0, 0.99, False),
        (1.0, 1.0, True),
    ],
)
def test_third_derivatives_are_bought_where_the_last_quadratic_left_more_than_their_worth(worth, unexplained, bought):
    walk, scr = Walk.of(tercet.STM(tercet.Full(), worth=worth)), Walk.of(tercet.SCR())
    for each in (walk, scr):
        each.remember(unexplained=unexplained)
    assert solve(walk).buy_third == bought
    assert not solve(scr).buy_third


@pytest.mark.parametrize(("terms", "least"), [(0.01, 0.165), (0.3, 0.165), (0.8, 0.4), (1.0, 0.5)])
def test_over_a_sample_third_derivatives_are_bought_for_less(terms, least):
    walk = Walk.of(tercet.STM(tercet.Fixed(1.0, 1.0, terms), worth=2.0))
    for unexplained, bought in ((least * 0.99, False), (least * 1.01, True)):
        walk.remember(unexplained=unexplained)
        assert solve(walk).buy_third == bought


@pytest.mark.parametrize("dear", [False, True])
def test_no_third_derivative_is_bought_for_what_a_dear_hessian_on_a_small_sample_left(dear):
    """Its own error; a Hessian that is cheap stays behind only on a sample that is large enough."""
    pytest.importorskip("jax")
    X = np.random.default_rng(0).standard_normal((300, 24))
    problem = tercet.FiniteSum(lambda w, x: (1 - x @ w) ** 2, X) if dear else tercet.LinearModel(X, np.ones(300))

    def buys(sizes: Sizes, unexplained: float) -> bool:
        walk = Walk.of(tercet.STM(Told(lambda n, d: sizes), worth=2.0), problem, np.zeros(24))
        walk.remember(unexplained=unexplained)
        return solve(walk).buy_third

    assert buys(Sizes(100, 100, 100, 100), 0.4)
    assert buys(Sizes(300, 300, 100, 100), 0.4) != dear
    assert buys(Sizes(300, 300, 100, 100), 0.6)


# what is accepted ---------------------------------------------------------------------------------------------------


def accepts(score: Score, gradient: Any = (0.0, 1.0), consistent: bool = True) -> bool:
    trial = SimpleNamespace(gradient=lambda: np.array(gradient))
    return DESCENT.accepts(HERE, trial, score, 0.1, consistent)


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
    assert DESCENT.accepts(HERE, trial, Score(0.5, False), 0.1, False)
    assert not DESCENT.accepts(HERE, trial, Score(0.5, True), 0.1, False)


def test_an_escape_is_accepted_only_where_the_decrease_shows_in_f():
    leaving, trial = Leaving(Escape(np.ones(1), 0.0, 0.0, -1.0, 3), 1.0), SimpleNamespace()
    assert leaving.accepts(HERE, trial, Score(0.1, False), 0.1, True)
    assert not leaving.accepts(HERE, trial, Score(0.09, False), 0.1, True)
    assert not leaving.accepts(HERE, trial, Score(1.0, True), 0.1, True)


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
        {"consistent": False},
        {"gradient": None},
        {"step": Step(S, QUADRATIC, CUBIC, 1, 2.0, trial=object())},
    ],
    ids=["rejected", "other terms", "no gradient", "f was looked at before"],
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
    assert left_over(0.4, HERE, judged(consistent=False)) == 0.4
    assert left_over(0.4, HERE, judged(gradient=None)) == 0.4
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
    ("changes", "excused", "expected"),
    [
        ({}, False, (0, False)),
        ({"consistent": False}, False, (2, False)),
        ({"accepted": False}, False, (3, False)),
        ({"accepted": False, "consistent": False}, True, (4, True)),
        ({"consistent": False}, True, (3, False)),
        ({"score": Score(1.0, True)}, False, (4, False)),
        ({"accepted": False, "score": Score(-1.0, True)}, False, (4, False)),
    ],
    ids=["good", "good sample", "bad", "noise", "accepted noise", "accepted in rounding", "rounding"],
)
def test_steps_in_a_row_that_noise_or_rounding_explains_are_counted(changes, excused, expected):
    assert count_stuck(3, 0.5, judged(**changes), HERE, excused) == expected


@pytest.mark.parametrize("consistent", [True, False])
def test_a_step_below_the_rounding_of_x_ends_the_patience_at_once(consistent):
    edge = EPS * np.sqrt(2.0)
    step = judged(consistent=consistent)
    assert count_stuck(0, 0.99 * edge, step, HERE, False) == (PATIENCE, not consistent)
    assert count_stuck(0, 1.01 * edge, step, HERE, False)[0] == 0


def tried(at: Any, **changes: Any) -> Judged:
    """An accepted step of a hundredth of the gradient, half as good as it was predicted to be."""
    step = Step(-0.01 * at.g, Forecast(0.1, at.g), None, 1, 1.0)
    return replace(Judged(step, ASK, at.f - 0.05, at.g, Score(0.5, False), True, True), **changes)


def learn(walk: Walk, phase: Any = DESCENT, **changes: Any) -> Any:
    at = walk.expand()
    return phase.learn(walk.run, walk.parts, walk.state, at, tried(at, **changes))


def test_an_accepted_step_is_remembered_with_its_length_and_what_it_left():
    walk = Walk.of(tercet.STM(tercet.Full()))
    walk.remember(iteration=4, stuck=3, reach=0.5, missed=7.0)
    memory, phase = learn(walk)
    g = walk.state.point.gradient()
    assert phase is DESCENT
    assert (memory.iteration, memory.stuck, memory.reach) == (5, 0, 1.0)
    assert memory.length == pytest.approx(0.01 * np.linalg.norm(g), rel=1e-14)
    assert memory.unexplained == memory.missed == 0.0
    evidence = gather(walk.expand(), tried(walk.expand()), 0.0)
    assert memory.control == walk.parts.sigma.next(Control(1.0, 2.0, 8.0), evidence)
    assert walk.memory.iteration == 4  # what was remembered before is left as it was


def test_a_rejected_step_leaves_the_length_and_what_was_left_and_misses_all():
    walk = Walk.of(tercet.STM(tercet.Full()))
    walk.remember(length=0.5, unexplained=0.25)
    memory, _ = learn(walk, accepted=False, score=Score(-1.0, False))
    assert (memory.length, memory.unexplained, memory.missed) == (0.5, 0.25, np.inf)
    assert memory.control.sigma2 >= 2.0


def test_a_rejection_in_the_rounding_of_f_halves_the_radius_and_leaves_sigma():
    walk = Walk.of(tercet.STM(tercet.Full()))
    memory, _ = learn(walk, accepted=False, score=Score(-1.0, True))
    assert (memory.control.sigma2, memory.control.sigma3) == (1.0, 2.0)
    assert memory.control.radius == pytest.approx(0.005 * np.linalg.norm(walk.state.point.gradient()), rel=1e-14)
    assert not memory.hopeless
    walk.remember(reach=0.1)
    assert learn(walk, accepted=False, score=Score(-1.0, True))[0].hopeless


# away from a saddle -------------------------------------------------------------------------------------------------


def leaving(walk: Walk, sigma: float = 0.5) -> Leaving:
    y = np.zeros(walk.run.d)
    y[0] = 1.0
    return Leaving(Escape(y, 0.0, -1.0, 0.0, 2), sigma)


def test_an_escape_goes_as_far_as_the_model_along_it_says():
    """-t^2/2 + sigma t^4/4 is least at t = 1/sqrt(sigma)."""
    walk = Walk.of(tercet.STM(tercet.Full()))
    step, _ = leaving(walk, 0.25).solve(walk.run, walk.parts, walk.state, walk.expand())
    np.testing.assert_allclose(step.s, [2.0, 0, 0, 0, 0], rtol=1e-12)
    assert step.forecast.decrease == pytest.approx(2.0, rel=1e-12)
    assert step.sigma == 0.25


def test_an_escape_that_is_rejected_is_tried_again_at_half_its_length():
    walk = Walk.of(tercet.STM(tercet.Full()))
    phase = leaving(walk)
    memory, after = learn(walk, phase, accepted=False, score=Score(-1.0, False))
    assert after.escape is phase.escape
    assert (after.sigma, phase.sigma) == (2.0, 0.5)
    assert memory == replace(walk.memory, iteration=walk.memory.iteration + 1)
    near, far = (each.solve(walk.run, walk.parts, walk.state, walk.expand())[0] for each in (after, phase))
    np.testing.assert_allclose(near.s, far.s / 2, rtol=1e-12)


def test_after_an_escape_the_model_begins_anew_within_twice_its_length():
    walk = Walk.of(tercet.STM(tercet.Full()))
    walk.remember(stuck=3, reach=0.25, control=Control(5.0, 5.0, 5.0))
    memory, after = learn(walk, leaving(walk))
    size = 0.01 * np.linalg.norm(walk.state.point.gradient())
    assert after is DESCENT
    assert (memory.control.sigma2, memory.control.sigma3) == (0.01, 0.01)
    assert memory.control.radius == pytest.approx(2 * size, rel=1e-14)
    assert memory.length == pytest.approx(size, rel=1e-14)
    assert (memory.stuck, memory.reach) == (0, 1.0)


def test_an_escape_that_no_longer_shows_in_f_asks_for_a_smaller_gradient_until_it_is_hopeless():
    walk = Walk.of(tercet.STM(tercet.Full()), tol=1e-8)
    norm = np.linalg.norm(walk.state.point.gradient())
    memory, after = learn(walk, leaving(walk), accepted=False, score=Score(-1.0, True))
    assert after is DESCENT
    assert memory.reach == pytest.approx(0.1 * norm / 1e-8, rel=1e-12)
    assert not memory.hopeless
    squares = tercet.LinearModel(np.eye(3), np.zeros(3), "squares", l2=1.0)
    lowest = Walk.of(tercet.STM(tercet.Full()), squares, np.full(3, 1e-17))
    direction = Leaving(Escape(np.eye(3)[0], 0.0, -1.0, 0.0, 2), 1.0)
    assert learn(lowest, direction, accepted=False, score=Score(0.0, True))[0].hopeless


@pytest.mark.parametrize("kind", [tercet.STM, tercet.SCR])
@pytest.mark.parametrize("nested", [True, False])
def test_from_a_saddle_of_order_three_f_falls_along_the_escape_and_the_run_goes_on_by_the_model(kind, nested):
    A = np.random.default_rng(0).standard_normal((400, 3))
    rule = Told(lambda n, d: Sizes(n, n, n, n), nested=nested)
    walk = Walk.of(kind(rule), tercet.LinearModel(A, np.zeros(400), loss=Flat()), np.zeros(3))
    rows = [walk.step() for _ in range(8)]
    escape = [row.escape for row in rows]
    assert escape[0] == 3
    left = escape.index(0)
    assert escape[left:] == [0] * (8 - left)
    assert [row.accepted for row in rows[:left]] == [False] * (left - 1) + [True]
    assert all(late.sigma == 4 * early.sigma for early, late in pairwise(rows[:left]))
    assert all(row.f == 0.0 for row in rows[: left - 1])
    assert rows[left - 1].f < 0.0
