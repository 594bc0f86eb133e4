"""How the samples of a run are drawn, grow, and give points: nested beginnings of one order, or independent draws."""

from __future__ import annotations

from dataclasses import replace
from itertools import pairwise
from typing import Any

import numpy as np
import pytest
import scipy.sparse as sp

import tercet
from tercet import Status
from tercet.records import Sizes
from tercet.sampling.draws import Shuffle, Stream
from tests.methods.walks import MODEL, D, N, Told, Walk

# nested ---------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("kind", [tercet.STM, tercet.SCR])
@pytest.mark.parametrize("seed", range(3))
def test_progressive_samples_are_nested_never_shrink_and_end_at_all_terms(kind, seed):
    result = tercet.minimize(MODEL, np.ones(D), method=kind(tercet.Progressive(multiple=20)), seed=seed)
    sizes = result.trace["size_value"]
    assert result.success
    assert sizes[0] == 20 * D
    assert np.all(np.diff(sizes) >= 0)
    assert sizes[-1] == N
    for name in ("size_gradient", "size_hessian", "size_third"):
        assert np.array_equal(result.trace[name], sizes)


@pytest.mark.parametrize("kind", [tercet.STM, tercet.SCR])
def test_a_nested_sample_that_grows_is_looked_at_once_over_its_new_rows(kind):
    result = tercet.minimize(MODEL, np.ones(D), method=kind(tercet.Progressive(multiple=5)), seed=0)
    first = result.trace.rows[0]
    m = first.sizes.value
    # f along x, at x and at the trial point, g at x; x0 is looked at over all terms when the run ends
    looks = {m, 2 * m} if kind is tercet.STM else {m}  # a second one where T was worth its price
    assert first.counts.value - (8 + 1) * m in looks
    assert first.counts.gradient == m
    grew = 0
    for before, row in pairwise(result.trace.rows):
        size, gained = row.sizes.value, row.sizes.value > before.sizes.value
        grew += gained
        # f at the trial points, and after growing f at x over the new sample too; where it did not grow f(x) is known.
        tried = (row.counts.value - before.counts.value) / size - gained
        assert tried in ((1, 2, 3) if size == MODEL.n else (1, 2))
    assert grew >= 2
    assert result.counts.value - result.trace.rows[-1].counts.value >= MODEL.n  # and x0 is compared with at the end


def test_a_hessian_is_formed_once_in_an_iteration_over_its_own_sample():
    result = tercet.minimize(MODEL, np.ones(D), method=tercet.SCR(), seed=0)
    rows = result.trace.rows
    spent = np.diff([0, *(row.counts.hessian for row in rows)])
    assert np.array_equal(spent, [row.sizes.hessian for row in rows])


@pytest.mark.parametrize("sparse", [False, True])
@pytest.mark.parametrize("kind", [tercet.STM, tercet.SCR])
def test_curvature_of_a_sample_serves_gradients_over_all_terms_to_the_end(kind, sparse):
    """B is then an estimate, f and g are not: the same minimum, the same certificate, and far fewer Hessians."""
    rng = np.random.default_rng(8)
    n, d = 60_000, 3
    A = rng.standard_normal((n, d))
    y = (A @ rng.standard_normal(d) + rng.standard_normal(n) > 0).astype(float)
    problem = tercet.LinearModel(sp.csr_array(A) if sparse else A, y, l2=1e-4)
    found = {lag: tercet.minimize(problem, method=kind(tercet.Progressive(lag=lag)), tol=1e-10) for lag in (400.0, 1e9)}
    lagging, exact = found[400.0], found[1e9]
    assert lagging.success
    assert exact.success
    np.testing.assert_allclose(lagging.x, exact.x, atol=1e-8)
    full = lagging.trace["size_gradient"] == n
    assert full.any()
    rounded = lagging.trace["predicted"] <= 1e-13 * np.abs(lagging.trace["f"])  # from there on it takes an exact B
    assert np.all(lagging.trace["size_hessian"][full & ~np.roll(rounded, 1)] <= n / 10)
    assert lagging.trace["hessian"][-1] < 0.5 * exact.trace["hessian"][-1]
    assert lagging.certificate.over == f"all {n} components"


def test_curvature_that_misleads_is_taken_over_all_terms_at_once():
    """A column with few entries is hardly in the sample, and its curvature there is far off."""
    rng = np.random.default_rng(9)
    n, d = 60_000, 3
    A = rng.standard_normal((n, d))
    A[:, 2] = 0.0
    A[5:25, 2] = 1.0
    y = (A @ np.array([1.0, -1.0, 2.0]) + rng.standard_normal(n) > 0).astype(float)
    problem = tercet.LinearModel(sp.csr_array(A), y, loss="logistic", l2=1e-9)
    seen = 0
    for seed in range(5):
        result = tercet.minimize(problem, tol=1e-10, seed=seed, method=tercet.STM(tercet.Progressive(multiple=20)))
        assert result.success
        lagged = np.count_nonzero((result.trace["size_gradient"] == n) & (result.trace["size_hessian"] < n))
        seen += lagged > 0
        assert lagged <= 4, "such a B does not serve for long"
        assert result.trace["size_hessian"][-1] == n
    assert seen > 0, "the example must begin with a B that misleads"


@pytest.mark.parametrize(
    "sizes",
    [
        (1000, 300, 100),
        (1000, 100, 300),
        (1000, 1000, 100),
        (1000, 100, 1000),
        (1000, 100, 100),
        (N, 300, 100),
        (N, N, 7),
    ],
    ids=str,
)
def test_g_b_and_t_of_a_nested_rule_are_over_the_beginnings_of_one_order_that_their_sizes_say(sizes):
    m, h, t = sizes
    walk = Walk.of(tercet.STM(Told(lambda n, d: Sizes(m, m, h, t)), tercet.Dense()))
    at, order = walk.expand(), Shuffle(N, 0)
    x, V = at.point.x, np.eye(D)
    f, B, T = (MODEL.over(order.beginning(size)).at(x) for size in sizes)
    assert at.f == f.value()
    np.testing.assert_array_equal(at.g, f.gradient())
    np.testing.assert_array_equal(at.B.hessian(), B.hessian())
    np.testing.assert_array_equal(at.T.third_tensor(V), T.third_tensor(V))
    taylor, slope = at.model.taylor, at.model.frame.slope  # and so it reaches the sub-solver, in the units of the step
    assert (taylor.B.point is at.B, taylor.T.point is at.T) == (True, True)
    np.testing.assert_array_equal(taylor.g, slope(at.g))
    assert (at.B is at.point, at.T is at.point, at.T is at.B) == (h == m, t == m, t == h)


def test_a_step_of_a_nested_rule_pays_for_b_and_t_over_their_own_terms():
    walk = Walk.of(tercet.STM(Told(lambda n, d: Sizes(1000, 1000, 300, 100)), tercet.Dense(), worth=np.inf))
    before = walk.run.meter.counts()
    row = walk.step()
    after = walk.run.meter.counts()
    assert row.sizes == Sizes(1000, 1000, 300, 100)
    assert (after.value - before.value, after.hessian - before.hessian) == (1000, 300)
    assert 0 < after.third - before.third <= 100


def test_b_and_t_of_different_terms_stay_apart_when_the_sample_grows():
    def next_sizes(outlook: Any) -> Sizes:
        return Sizes(N, N, 600, 200) if outlook.iteration == 2 else outlook.sizes

    walk = Walk.of(tercet.STM(Told(lambda n, d: Sizes(1000, 1000, 300, 100), next_sizes), tercet.Dense()))
    for expected in (Sizes(1000, 1000, 300, 100),) * 2 + (Sizes(N, N, 600, 200),) * 3:
        row = walk.step()
        assert row.sizes == expected
        views = walk.state.views
        sizes = (views.value.terms, views.hessian.terms, views.third.terms)
        assert sizes == (expected.value, expected.hessian, expected.third)
        at = walk.expand()
        assert (at.point.terms, at.slope.terms, at.B.terms, at.T.terms) == (expected.value, *sizes)


def test_a_view_whose_size_stays_is_not_gathered_again_when_others_grow():
    walk = Walk.of(tercet.STM(Told(lambda n, d: Sizes(1000, 1000, 300, 100))))
    old = walk.state.views
    grown = walk.parts.policy.grow(walk.run, walk.state, Sizes(N, N, 1000, 100))
    assert grown.views.value is walk.run.full
    assert grown.views.hessian is old.value
    assert grown.views.third is old.third
    assert walk.state.views is old


def test_growing_looks_at_f_and_g_only_where_their_terms_change():
    walk = Walk.of(tercet.STM(Told(lambda n, d: Sizes(1000, 1000, 300, 100))))
    before = walk.run.meter.counts()
    lag = walk.parts.policy.grow(walk.run, walk.state, Sizes(1000, 1000, 600, 100))
    assert lag.point is walk.state.point
    assert walk.run.meter.counts() == before
    whole = walk.parts.policy.grow(walk.run, walk.state, Sizes(N, N, 600, 100))
    assert whole.point.terms == N
    assert np.array_equal(whole.x, walk.state.x)
    after = walk.run.meter.counts()
    assert (after.value - before.value, after.gradient - before.gradient) == (N, N)


def test_a_sample_that_grew_forgets_what_the_old_one_told_of_its_noise():
    walk = Walk.of(tercet.STM(Told(lambda n, d: Sizes(1000, 1000, 300, 100))))
    walk.remember(noise_share=3.0, missed=0.5, unexplained=0.4, stuck=2)
    memory = walk.parts.policy.grow(walk.run, walk.state, Sizes(N, N, N, N)).memory
    assert (memory.noise_share, memory.missed, memory.unexplained, memory.stuck) == (0.0, 0.0, 0.4, 2)
    other = Walk.of(tercet.STM(tercet.Fixed(0.1, 0.1, 0.1)))
    other.remember(noise_share=3.0, missed=0.5, stuck=2)
    memory = other.parts.policy.grow(other.run, other.state, Sizes(N, N, N, N)).memory
    assert (memory.noise_share, memory.missed, memory.stuck) == (3.0, 0.5, 0)  # other samples are new hope


def test_a_nested_rule_is_shown_what_the_run_remembers():
    rule = Told(lambda n, d: Sizes(1000, 1000, 300, 100))
    walk = Walk.of(tercet.STM(rule))
    walk.remember(iteration=7, length=0.25, noise_share=0.5, noisy=True, missed=0.125, spreads=(1.0, 2.0, 3.0))
    assert walk.parts.policy.sizes(walk.run, walk.parts, walk.state) == walk.state.sizes
    (seen,) = rule.asked
    assert (seen.n, seen.d, seen.iteration, seen.sizes) == (N, D, 7, walk.state.sizes)
    assert (seen.step, seen.noise_share, seen.noisy, seen.missed) == (0.25, 0.5, True, 0.125)
    assert seen.spreads == (1.0, 2.0, 3.0)
    assert seen.cost == walk.run.traits.hessian_cost


@pytest.mark.parametrize("subsolver", [tercet.Dense(), tercet.Krylov(), tercet.Subspace()], ids=str)
def test_a_sub_solver_that_looks_at_f_itself_has_all_derivatives_over_its_terms(subsolver):
    rule = Told(lambda n, d: Sizes(600, 600, 600, 600), lambda outlook: Sizes(N, N, 600, 300))
    result = tercet.minimize(MODEL, np.ones(D), method=tercet.STM(rule, subsolver), max_iterations=4)
    looks = isinstance(subsolver, tercet.Subspace)
    assert np.all(result.trace["size_value"] == N)
    assert np.all(result.trace["size_hessian"] == (N if looks else 600))
    assert np.all(result.trace["size_third"] == (N if looks else 300))


# independent ----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("replacement", [False, True])
@pytest.mark.parametrize("sizes", [(200, 100, 50), (0.1, 0.05, 0.01)], ids=["counts", "fractions"])
def test_fixed_draws_three_independent_samples_of_the_sizes_asked(sizes, replacement, monkeypatch):
    expected = [size if isinstance(size, int) else round(size * N) for size in sizes]
    drawn: list[list[int]] = []
    draw = Stream.draw

    def record(stream: Stream, *arguments: Any) -> Any:
        rows, after = draw(stream, *arguments)
        drawn.append(sorted(rows))
        return rows, after

    monkeypatch.setattr(Stream, "draw", record)
    method = tercet.STM(tercet.Fixed(*sizes, replacement=replacement), tercet.Dense(), worth=np.inf)
    walk = Walk.of(method)
    before = replace(walk.run.meter.counts(), value=0)
    for k in range(4):
        row = walk.step()
        counts = walk.run.meter.counts()
        assert (row.sizes.value, row.sizes.gradient, row.sizes.hessian, row.sizes.third) == (N, *expected)
        own = 3 if k == 0 else 1  # f along x0 and at x before the first step; then at the trial point, f(x) is known
        assert counts.value - before.value == own * N
        assert counts.hessian - before.hessian == expected[1]
        assert 0 < counts.third - before.third <= expected[2]
        before = counts
    assert [len(rows) for rows in drawn] == expected * 4
    for k, rows in enumerate(drawn):
        if not replacement:
            assert len(set(rows)) == len(rows)
        assert all(rows != other for other in drawn[:k])
    if replacement:
        assert any(len(set(rows)) < len(rows) for rows in drawn)


def test_fixed_gradients_cost_their_sample_and_no_more_unless_all_rows_are_needed():
    walk = Walk.of(tercet.STM(tercet.Fixed(200, 100, 50), tercet.Dense(), worth=np.inf))
    before = 0
    for _ in range(4):
        walk.step()
        after = walk.run.meter.counts().gradient
        assert after - before == 200
        before = after


@pytest.mark.parametrize("rule", [tercet.Growing, tercet.Adaptive])
def test_independent_samples_with_replacement_reach_the_minimum(rule):
    best = tercet.minimize(MODEL, tol=1e-10).fun
    for seed in range(3):
        result = tercet.minimize(MODEL, method=tercet.STM(sizes=rule(replacement=True)), seed=seed)
        assert result.success, result.status
        assert result.fun - best <= 1e-10


def test_fixed_samples_with_replacement_descend_to_their_noise():
    result = tercet.minimize(MODEL, np.ones(D), method=tercet.STM(sizes=tercet.Fixed(0.3, 0.3, 0.3, replacement=True)))
    best = tercet.minimize(MODEL, tol=1e-10).fun
    assert result.status is Status.NOISE
    assert 0 <= result.fun - best <= 1e-3


def test_growing_and_adaptive_sizes_never_shrink_and_reach_all_terms():
    for rule in (tercet.Growing(), tercet.Adaptive()):
        result = tercet.minimize(MODEL, method=tercet.STM(sizes=rule))
        for name in ("size_gradient", "size_hessian", "size_third"):
            assert np.all(np.diff(result.trace[name]) >= 0)
        assert result.trace["size_gradient"][-1] == N
        assert np.all(result.trace["size_value"] == N)


def test_independent_samples_of_all_terms_are_not_drawn_and_share_one_point():
    walk = Walk.of(tercet.STM(tercet.Fixed(1.0, 1.0, 1.0)))
    at = walk.expand()
    assert at.slope is at.B is at.T is at.point is walk.state.point
    walk.step()
    assert walk.state.stream.state == Stream.of(0).state


def test_what_of_an_independent_rule_is_over_all_terms_is_not_drawn():
    walk = Walk.of(tercet.STM(tercet.Fixed(0.1, 1.0, 0.2)))
    at = walk.expand()
    assert (at.slope.terms, at.B is at.point, at.T.terms) == (N // 10, True, N // 5)


def test_f_and_g_can_be_compared_where_they_are_over_the_same_terms():
    def consistent(rule: Any) -> bool:
        walk = Walk.of(tercet.STM(rule))
        return walk.parts.policy.expand(walk.run, walk.parts, walk.state)[1].consistent

    assert consistent(tercet.Progressive())
    assert consistent(tercet.Fixed(1.0, 0.1, 0.1))
    assert not consistent(tercet.Fixed(0.9, 1.0, 1.0))
    assert not consistent(tercet.Fixed(1.0, 0.9, 1.0, replacement=True))
    assert consistent(tercet.Fixed(1.0, 1.0, 1.0, replacement=True))  # then nothing is drawn


def test_an_independent_rule_is_asked_from_the_second_iteration_on():
    rule = Told(lambda n, d: Sizes(n, 100, 100, 100), nested=False)
    walk = Walk.of(tercet.STM(rule))
    walk.step()
    assert rule.asked == []
    walk.step()
    assert [outlook.iteration for outlook in rule.asked] == [1]
