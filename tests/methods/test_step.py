"""One iteration of STM and SCR: the paper's rules, read off the trace, and what an iteration is made of."""

from __future__ import annotations

from dataclasses import replace
from itertools import pairwise
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import tercet
from tercet import PaperSigma
from tercet.objectives.metered import Carry, Formed, MeteredPoint
from tercet.records import Forecast, Meets, Sizes, Step
from tercet.subsolvers.base import Ask
from tests.methods.walks import MODEL, D, Flat, N, Quartic, Told, Walk, dearer

ROUNDING = 1e-12  # relative, of f


def taylor_decrease(f: Quartic, x: np.ndarray, s: np.ndarray, order: int) -> float:
    """phi(0) - phi(s) of the Taylor polynomial of the given order."""
    cubic = ((f.third(x) @ s) @ s) @ s / 6.0 if order >= 3 else 0.0
    return -float(f.gradient(x) @ s + 0.5 * s @ f.hessian(x) @ s + cubic)


# the paper's Algorithm 1 ----------------------------------------------------------------------------------------------


@settings(max_examples=25, deadline=None, derandomize=True)
@given(seed=st.integers(0, 10**6), d=st.integers(1, 4), order=st.sampled_from([2, 3]))
def test_ratio_acceptance_and_sigma_follow_algorithm_1(seed, d, order):
    f, rule = Quartic(seed, d), PaperSigma()
    kind = tercet.STM if order == 3 else tercet.SCR
    result, points = f.minimize(kind(sizes=tercet.Full(), sigma=rule))
    rows = list(result.trace)
    assert result.success
    for k, row in enumerate(rows):
        x, after = points[k], points[k + 1]
        here, size, decrease = f.value(x), max(1.0, abs(f.value(x))), np.inf
        assert row.gradient_norm == pytest.approx(np.linalg.norm(f.gradient(x)), rel=1e-9, abs=1e-14)
        if not row.accepted:
            assert np.array_equal(after, x)  # x changes only on acceptance
            assert row.f == here
        else:
            s = after - x
            assert row.step_norm == pytest.approx(np.linalg.norm(s), rel=1e-6, abs=1e-13)
            assert row.f == f.value(after)
            assert row.f <= here + ROUNDING * size
            decrease = taylor_decrease(f, x, s, order)
            if row.escape == 0 and decrease > 1e-9 * size:  # above rounding, rho can be recomputed
                assert row.ratio == pytest.approx((here - row.f) / decrease, rel=1e-4)
                assert row.ratio >= rule.eta1
        if k + 1 < len(rows) and rows[k + 1].escape == row.escape == 0:
            sigma, new = row.sigma, rows[k + 1].sigma
            if row.ratio > rule.eta2:
                expected = max(rule.minimum, 0.8 * sigma)
            else:
                expected = sigma if row.ratio >= rule.eta1 else 2.0 * sigma
            if decrease > 1e-9 * size:
                assert new == pytest.approx(expected, rel=1e-9)


@pytest.mark.parametrize("seed", range(6))
@pytest.mark.parametrize("kind", [tercet.STM, tercet.SCR])
@pytest.mark.parametrize("sigma", [PaperSigma(), tercet.SignedEstimate()], ids=["paper", "signed"])
def test_with_all_terms_f_never_rises_on_an_accepted_step_and_x_stays_on_a_rejected_one(seed, kind, sigma):
    f = Quartic(seed, 3)
    result, points = f.minimize(kind(sizes=tercet.Full(), sigma=sigma))
    values = np.array([f.value(x) for x in points])
    moved = np.array([not np.array_equal(a, b) for a, b in pairwise(points)])
    assert np.array_equal(moved, result.trace["accepted"].astype(bool))
    assert np.all(np.diff(values) <= ROUNDING * np.maximum(1.0, np.abs(values[1:])))
    assert result.fun == values[-1]


@pytest.mark.parametrize("kind", [tercet.STM, tercet.SCR])
def test_the_first_step_of_a_convex_model_is_its_minimizer(kind):
    """|grad m(s)| at the first step, recomputed by hand, is as small as the sub-solver promises."""
    f = Quartic(11, 3)
    f.B = f.B @ f.B.T + np.eye(3)
    f.T = 0.05 * f.T
    method = kind(sizes=tercet.Full(), sigma=PaperSigma(start=2.0), units=tercet.Euclidean())
    result, points = f.minimize(method, max_iterations=1)
    s, x = points[1] - points[0], points[0]
    assert result.trace["accepted"][0]
    r = float(np.linalg.norm(s))
    sigma = result.trace["sigma"][0]
    g = f.gradient(x) + f.hessian(x) @ s
    gradient = g + 0.5 * (f.third(x) @ s) @ s + sigma * r**2 * s if kind is tercet.STM else g + sigma * r * s
    assert np.linalg.norm(gradient) <= 1e-3 * np.linalg.norm(f.gradient(x))


# sizes ----------------------------------------------------------------------------------------------------------------


def grows(nested: bool) -> Told:
    """B and T over more terms at each iteration; f and g over all."""
    return Told(
        lambda n, d: Sizes(n, n, n // 2, n // 4),
        lambda outlook: replace(outlook.sizes, hessian=min(outlook.n, outlook.sizes.hessian + 10)),
        nested,
    )


@pytest.mark.parametrize("kind", [tercet.STM, tercet.SCR])
@pytest.mark.parametrize("nested", [True, False])
@pytest.mark.parametrize("saddle", [True, False], ids=["at a saddle", "elsewhere"])
def test_the_size_rule_is_asked_once_per_iteration(nested, saddle, kind):
    """Also in one that turns: at the saddle the certificate fails, and the step is the way down that was seen."""
    rule, A = grows(nested), np.random.default_rng(0).standard_normal((400, 3))
    problem = tercet.LinearModel(A, np.zeros(400), loss=Flat())
    start = np.zeros(3) if saddle else 0.5 * tercet.minimize(problem, np.zeros(3)).x
    result = tercet.minimize(problem, start, method=kind(rule))
    assert result.success
    assert (result.trace["escape"][0] == 3) == saddle
    first = 0 if nested else 1  # independent samples are drawn before there is anything to tell of them
    # The last time is the iteration that ended at the certificate, of which there is no row; where f is rounded off,
    # a nested rule is not asked any more, and B is over all terms.
    last = result.nit + 1
    if nested:
        last = min(last, int(np.argmax([*(result.trace["size_hessian"] == 400), True])))
        assert np.all(result.trace["size_hessian"][last:] == 400)
        assert last >= result.nit - 3
    assert [outlook.iteration for outlook in rule.asked] == list(range(first, last))
    expected = 200 + 10 * (np.arange(result.nit) + 1 - first)
    assert np.array_equal(result.trace["size_hessian"][:last], expected[:last])


def test_a_nested_sample_whose_gradient_is_below_the_tolerance_gives_way_to_all_terms_without_a_question():
    rule = Told(lambda n, d: Sizes(50, 50, 50, 50))
    walk, rows = Walk.of(tercet.SCR(rule), tol=1e-6), []
    while not rows or rows[-1].sizes.value == 50:
        x = walk.state.x
        rows.append(walk.step())
    assert rows[-1].sizes == Sizes(N, N, N, N)
    assert len(rule.asked) == len(rows) - 1
    assert all(row.gradient_norm > 1e-6 for row in rows[:-1])
    assert np.linalg.norm(walk.run.sample(50).at(x).gradient()) <= 1e-6


# third derivatives ----------------------------------------------------------------------------------------------------


def test_scr_counts_no_third_derivatives_along_the_way():
    result = tercet.minimize(MODEL, np.ones(D), method=tercet.SCR())
    assert np.all(result.trace["third"] == 0)
    assert not np.any(result.trace["third_bought"])


def test_stm_of_no_worth_buys_no_third_derivative():
    result = tercet.minimize(MODEL, np.ones(D), method=tercet.STM(worth=0.0))
    assert result.success
    assert np.all(result.trace["third"] == 0)
    assert not np.any(result.trace["third_bought"])


def test_stm_of_no_worth_buys_no_third_derivative_of_a_plain_function_either():
    result, _ = Quartic(1, 3).minimize(tercet.STM(worth=0.0))
    steps = result.trace["escape"] == 0
    assert not np.any(result.trace["third_bought"][steps])


def test_stm_of_infinite_worth_buys_third_derivatives_at_every_iteration():
    result = tercet.minimize(MODEL, np.ones(D), method=tercet.STM(worth=np.inf))
    assert result.success
    used, paid = result.trace["third_bought"], np.diff(result.trace["third"], prepend=0.0) > 0
    assert np.all(used | paid)  # a correction that promises no decrease is paid for and not used
    assert np.mean(used) > 0.8


# a Hessian that serves again ------------------------------------------------------------------------------------------


@pytest.mark.parametrize("kind", [tercet.STM, tercet.SCR])
def test_a_dear_hessian_serves_while_it_explains_the_gradient(kind):
    """Fewer Hessians, more values and gradients, less work in all, and the same certified minimum."""
    rng = np.random.default_rng(8)
    n, d = 4000, 5
    A = rng.standard_normal((n, d))
    y = (A @ rng.standard_normal(d) + rng.standard_normal(n) > 0).astype(float)
    found = {}
    for cost in (2.0, 50.0):
        problem = dearer(tercet.LinearModel(A, y, l2=1e-4), cost)
        found[cost] = tercet.minimize(problem, 2 * np.ones(d), method=kind(tercet.Full()), tol=1e-10)
    cheap, dear = found[2.0], found[50.0]
    assert cheap.success
    assert dear.success
    np.testing.assert_allclose(dear.x, cheap.x, atol=1e-9)
    assert dear.trace["hessian"][-1] < 0.8 * cheap.trace["hessian"][-1]
    assert cheap.nit < dear.nit
    spent = {
        cost: sum(r.trace[o][-1] for o in ("value", "gradient")) + 50 * r.trace["hessian"][-1]
        for cost, r in found.items()
    }
    assert spent[50.0] < 0.8 * spent[2.0]


class Uphill:
    """A sub-solver that goes up, and says that it goes down."""

    def __init__(self, g: np.ndarray):
        self.step = Step(g / np.linalg.norm(g), Forecast(1.0, g), None, 1, 1.0)

    def solve(self, ask: Ask) -> Step:
        return self.step

    def meets(self, step: Step, ask: Ask) -> Meets:
        return None, None, None

    def decreases(self, vectors: np.ndarray) -> None:
        return None


def uphill(at: Any) -> Any:
    """The expansion with that sub-solver."""
    return replace(at, model=replace(at.model, workspace=Uphill(at.model.taylor.g)))


@pytest.mark.parametrize(("h", "t"), [(N, N), (500, 500), (500, 100)], ids=["all terms", "B lags", "T lags behind B"])
def test_a_rejected_step_of_a_hessian_from_nearby_is_followed_by_one_from_here(h, t):
    problem = dearer(tercet.LinearModel(MODEL.A, MODEL.rows.y, l2=1e-3))
    walk = Walk.of(tercet.STM(Told(lambda n, d: Sizes(n, n, h, t))), problem)
    at = walk.expand()
    assert (at.B.terms, at.T.terms) == (h, t)
    given = Carry(Formed(h, -np.eye(D)))
    known = replace(at.point.known, hessian=None)
    walk.state = replace(walk.state, point=MeteredPoint(at.point.view, at.point.x, given, known))
    walk.remember(unexplained=0.0)
    near = walk.expand()
    assert near.B.borrowed is given.formed
    walk.state = replace(walk.state, kept=uphill(near))
    assert not walk.step().accepted
    here = walk.expand()
    assert here.B.borrowed is None
    assert here.T is here.B if h == t else here.T.terms == t
    np.testing.assert_array_equal(here.B.hessian(), at.B.view.at(at.B.x).hessian())
    assert here.model.taylor.B.point is here.B  # seen through the units of the step
    assert here.model.taylor.T.point is here.T
    assert np.array_equal(near.B.hessian(), -np.eye(D))  # the one that was tried is left as it was
    assert walk.step().accepted


def test_after_a_rejection_nothing_is_computed_again_where_the_hessian_is_that_of_the_point():
    walk = Walk.of(tercet.SCR(tercet.Full()), dearer(tercet.LinearModel(MODEL.A, MODEL.rows.y, l2=1e-3), 2.0))
    at = walk.expand()
    at.B.hessian()
    walk.state = replace(walk.state, kept=uphill(at))
    before = walk.run.meter.counts()
    assert not walk.step().accepted
    assert walk.state.kept.B is at.B
    assert walk.state.point is at.point
    after = walk.run.meter.counts()
    assert (after.value - before.value, after.gradient, after.hessian) == (N, before.gradient, before.hessian)
