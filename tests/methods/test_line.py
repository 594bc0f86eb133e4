"""One iteration of STM and SCR: the paper's rules, read off the trace, and the sampled variants."""

from __future__ import annotations

from dataclasses import replace
from itertools import pairwise
from typing import Any

import numpy as np
import pytest
import scipy.sparse as sp
from hypothesis import given, settings
from hypothesis import strategies as st

import tercet
from tercet import PaperSigma, Status
from tercet.criticality import Tolerances
from tercet.methods.run import Run
from tercet.objectives.counting import CountedPoint, Formed, Meter
from tercet.records import Forecast, Sizes, Step

RNG = np.random.default_rng(3)
N, D = 3000, 5
X = RNG.standard_normal((N, D))
Y = (X @ RNG.standard_normal(D) + RNG.standard_normal(N) > 0).astype(float)
MODEL = tercet.LinearModel(X, Y, l2=1e-3)
ROUNDING = 1e-12  # relative, of f


class Quartic:
    """g'x + 1/2 x'Bx + 1/6 T[x]^3 + c/4 sum x_i^4 with random coefficients, and its derivatives, in plain NumPy."""

    def __init__(self, seed: int, d: int):
        rng = np.random.default_rng(seed)
        T = rng.standard_normal((d, d, d))
        orders = ((0, 1, 2), (0, 2, 1), (1, 0, 2), (1, 2, 0), (2, 0, 1), (2, 1, 0))
        self.T = sum(np.transpose(T, order) for order in orders) / 6.0
        B = rng.standard_normal((d, d))
        self.B, self.g = (B + B.T) / 2, rng.standard_normal(d)
        self.start = 2.0 * rng.standard_normal(d)

    def value(self, x: np.ndarray) -> float:
        cubic = ((self.T @ x) @ x) @ x / 6.0
        return float(self.g @ x + 0.5 * x @ self.B @ x + cubic + 0.25 * np.sum(x**4))

    def gradient(self, x: np.ndarray) -> np.ndarray:
        return self.g + self.B @ x + 0.5 * (self.T @ x) @ x + x**3

    def hessian(self, x: np.ndarray) -> np.ndarray:
        return self.B + self.T @ x + np.diag(3.0 * x**2)

    def third(self, x: np.ndarray) -> np.ndarray:
        T = self.T.copy()
        i = np.arange(len(x))
        T[i, i, i] += 6.0 * x
        return T

    def minimize(self, method: Any, **options: Any) -> tuple[tercet.Result, list[np.ndarray]]:
        """The run, and all its points with the start first."""
        points = [self.start]
        result = tercet.minimize(
            self.value,
            self.start,
            grad=self.gradient,
            hess=self.hessian,
            third=self.third,
            method=method,
            callback=lambda info: points.append(info.x.copy()),
            **options,
        )
        return result, points


def taylor_decrease(f: Quartic, x: np.ndarray, s: np.ndarray, order: int) -> float:
    """phi(0) - phi(s) of the Taylor polynomial of the given order."""
    cubic = ((f.third(x) @ s) @ s) @ s / 6.0 if order >= 3 else 0.0
    return -float(f.gradient(x) @ s + 0.5 * s @ f.hessian(x) @ s + cubic)


# the paper's Algorithm 1 --------------------------------------------------------------------------------------------


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
        here, size = f.value(x), max(1.0, abs(f.value(x)))
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
            # A step that no model can vouch for is not tried: sigma is then raised tenfold before f is looked at.
            tenfold = np.log10(new / expected)
            assert tenfold == pytest.approx(max(0, round(tenfold)), abs=1e-9)


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
    result, points = f.minimize(kind(sizes=tercet.Full(), sigma=PaperSigma(start=2.0)), max_iterations=1)
    s, x = points[1] - points[0], points[0]
    assert result.trace["accepted"][0]
    r = float(np.linalg.norm(s))
    sigma = result.trace["sigma"][0]
    g = f.gradient(x) + f.hessian(x) @ s
    gradient = g + 0.5 * (f.third(x) @ s) @ s + sigma * r**2 * s if kind is tercet.STM else g + sigma * r * s
    assert np.linalg.norm(gradient) <= 1e-3 * np.linalg.norm(f.gradient(x))


def test_a_point_worse_than_the_start_is_not_returned_though_the_sampled_phases_do_not_look():
    for seed in range(5):
        start = tercet.minimize(MODEL, tol=1e-6).x
        result = tercet.minimize(MODEL, start, seed=seed, max_iterations=2)
        assert result.fun <= tercet.minimize(MODEL, start, max_iterations=0).fun


# samples ------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("kind", [tercet.STM, tercet.SCR])
@pytest.mark.parametrize("seed", range(3))
def test_progressive_samples_are_nested_never_shrink_and_end_at_all_terms(kind, seed):
    result = tercet.minimize(MODEL, np.ones(D), method=kind(), seed=seed)
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
    n = MODEL.n  # f at x0 over all terms, to compare with; then f along x, at x and at the trial point, g at x
    assert (first.counts.value, first.counts.gradient) == (n + (8 + 2) * m, m)
    grew = 0
    for before, row in pairwise(result.trace.rows):
        size, gained = row.sizes.value, row.sizes.value > before.sizes.value
        grew += gained
        # f at the trial point, and after growing f at x over the new sample too; where it did not grow f(x) is known.
        assert row.counts.value - before.counts.value == (2 * size if gained else size)
    assert grew >= 2


def test_a_nested_sample_that_grows_forms_the_hessian_anew_only_where_it_has_to():
    result = tercet.minimize(MODEL, np.ones(D), method=tercet.SCR(), seed=0)
    rows = result.trace.rows
    spent = np.diff([0, *(row.counts.hessian for row in rows)])
    assert spent[0] == rows[0].sizes.value
    assert np.all(spent <= [row.sizes.value for row in rows])
    assert np.any(spent < [row.sizes.value for row in rows])


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
    line = make_line(tercet.STM(tercet.Full(), worth=worth))
    line.memory.unexplained = unexplained
    assert line.bends() == bought
    scr = make_line(tercet.SCR())
    scr.memory.unexplained = unexplained
    assert not scr.bends()


@pytest.mark.parametrize(("terms", "least"), [(0.01, 0.165), (0.3, 0.165), (0.8, 0.4), (1.0, 0.5)])
def test_over_a_sample_third_derivatives_are_bought_for_less(terms, least):
    line = make_line(tercet.STM(tercet.Fixed(1.0, 1.0, terms), worth=2.0))
    for unexplained, bought in ((least * 0.99, False), (least * 1.01, True)):
        line.memory.unexplained = unexplained
        assert line.bends() == bought


@pytest.mark.parametrize("dear", [False, True])
def test_no_third_derivative_is_bought_for_what_a_dear_hessian_on_a_small_sample_left(dear):
    """Its own error; a Hessian that is cheap stays behind only on a sample that is large enough."""
    pytest.importorskip("jax")
    X = np.random.default_rng(0).standard_normal((300, 24))
    problem = tercet.FiniteSum(lambda w, x: (1 - x @ w) ** 2, X) if dear else tercet.LinearModel(X, np.ones(300))
    line = make_line(tercet.STM(worth=2.0), problem, np.zeros(24))
    line.memory.sizes, line.memory.unexplained = Sizes(100, 100, 100, 100), 0.4
    assert line.bends()
    line.memory.sizes = Sizes(300, 300, 100, 100)
    assert line.bends() != dear
    line.memory.unexplained = 0.6
    assert line.bends()


@pytest.mark.parametrize("replacement", [False, True])
@pytest.mark.parametrize("sizes", [(200, 100, 50), (0.1, 0.05, 0.01)], ids=["counts", "fractions"])
def test_fixed_draws_three_independent_samples_of_the_sizes_asked(sizes, replacement):
    expected = [size if isinstance(size, int) else round(size * N) for size in sizes]
    drawn: list[list[int]] = []
    line = make_line(tercet.STM(tercet.Fixed(*sizes, replacement=replacement), tercet.Dense(), worth=np.inf))
    independent = line.draws.independent

    def record(m: int) -> Any:
        rows = independent(m)
        drawn.append(sorted(rows))
        return rows

    line.draws.independent = record
    before = line.run.meter.counts()
    for k in range(4):
        row = line.step()
        counts = line.run.meter.counts()
        assert (row.sizes.value, row.sizes.gradient, row.sizes.hessian, row.sizes.third) == (N, *expected)
        assert counts.value - before.value == (2 * N if k == 0 else N)  # f at the trial point; f(x) is known
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
    line = make_line(tercet.STM(tercet.Fixed(200, 100, 50), tercet.Dense(), worth=np.inf))
    before = 0
    for _ in range(4):
        line.step()
        after = line.run.meter.counts().gradient
        assert after - before == 200
        before = after


def make_line(method: Any, problem: Any = MODEL, start: Any = None, seed: int = 0) -> Any:
    """A run of the method that is taken step by step."""
    bound = problem.bind(np.ones(problem.d) if start is None else start)
    run = Run(bound.objective, bound.x0, seed, Tolerances.of(1e-8, 3), Meter(bound.objective.n))
    return method.start(run)


@pytest.mark.parametrize("sigma", [PaperSigma(), tercet.SignedEstimate()], ids=["paper", "signed"])
def test_a_rejection_that_noise_explains_leaves_sigma_alone(sigma):
    start = tercet.minimize(MODEL).x  # at the minimum of f every sampled step is noise
    line = make_line(tercet.STM(sizes=tercet.Fixed(0.02, 0.02, 0.02), sigma=sigma), start=start)
    noisy = 0
    for _ in range(200):
        control, row = line.memory.control, line.step()
        if isinstance(row, Status):
            assert row is Status.NOISE
            break
        if line.memory.noisy:
            noisy += 1
            assert not row.accepted
            assert line.memory.control == control
    assert noisy >= 15


def test_a_rejection_that_noise_explains_enlarges_the_samples_of_a_rule_that_grows():
    start = tercet.minimize(MODEL).x
    line = make_line(tercet.STM(sizes=tercet.Growing(start=0.01, factor=1.1)), start=start)
    before, row = line.memory.sizes, line.step()
    assert not row.accepted
    assert line.memory.noisy
    assert line.memory.sizes.gradient == int(np.ceil(2 * 1.1 * before.gradient))


def test_without_noise_awareness_a_rejection_raises_sigma():
    start = tercet.minimize(MODEL).x
    line = make_line(
        tercet.STM(sizes=tercet.Fixed(0.02, 0.02, 0.02), sigma=PaperSigma(), noise_aware=False), start=start
    )
    for _ in range(5):
        before = line.memory.control.third
        row = line.step()
        assert not row.accepted
        assert not line.memory.noisy
        assert line.memory.control.third == 2.0 * max(before, row.sigma)


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


@pytest.mark.parametrize("kind", [tercet.STM, tercet.SCR])
def test_steps_that_shrink_at_zero_end_before_they_underflow(kind):
    result = tercet.minimize(
        lambda x: 0.0 if x[0] == 0 else np.nan, np.zeros(1), grad=lambda x: np.ones(1), method=kind()
    )
    assert result.status is tercet.Status.ROUNDING
    assert result.fun == 0.0


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
    assert np.all(lagging.trace["size_hessian"][full] <= n / 10)
    assert lagging.trace["hessian"][-1] < 0.5 * n < exact.trace["hessian"][-1]
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
        result = tercet.minimize(problem, tol=1e-10, seed=seed)
        assert result.success
        lagged = np.count_nonzero((result.trace["size_gradient"] == n) & (result.trace["size_hessian"] < n))
        seen += lagged > 0
        assert lagged <= 4, "such a B does not serve for long"
        assert result.trace["size_hessian"][-1] == n
    assert seen > 0, "the example must begin with a B that misleads"


@pytest.mark.parametrize("kind", [tercet.STM, tercet.SCR])
def test_a_dear_hessian_serves_while_it_explains_the_gradient(kind):
    """Fewer Hessians, some more values and gradients, and the same certified minimum."""
    rng = np.random.default_rng(8)
    n, d = 4000, 5
    A = rng.standard_normal((n, d))
    y = (A @ rng.standard_normal(d) + rng.standard_normal(n) > 0).astype(float)
    found = {}
    for cost in (2.0, 50.0):
        problem = tercet.LinearModel(A, y, l2=1e-4)
        problem.hessian_cost = cost
        problem.rows = replace(problem.rows, stale=0.0)
        found[cost] = tercet.minimize(problem, 2 * np.ones(d), method=kind(tercet.Full()), tol=1e-10)
    cheap, dear = found[2.0], found[50.0]
    assert cheap.success
    assert dear.success
    np.testing.assert_allclose(dear.x, cheap.x, atol=1e-9)
    assert dear.trace["hessian"][-1] < 0.8 * cheap.trace["hessian"][-1]
    assert cheap.nit < dear.nit < 2 * cheap.nit


def test_a_rejected_step_of_a_hessian_from_nearby_is_followed_by_one_from_here():
    line = make_line(tercet.SCR(tercet.Full()), MODEL)
    line.step()
    line.expand()
    here = line.here
    assert here is not None
    far = CountedPoint(here.second.point, here.second.x, line.run.meter, Formed(here.second.terms, -np.eye(line.run.d)))
    line.here = replace(here, second=far)
    row = line.judge(Step(1e3 * here.first.gradient(), Forecast(1.0, here.first.gradient()), None, 1, 1.0))
    assert not row.accepted
    assert line.here is None
    assert not far.borrows
