"""Dynamic accuracy: what a step promises is right to a fraction omega, and samples are as large as that takes."""

from __future__ import annotations

import numpy as np
import pytest

import tercet
from tercet import Fixed, Status
from tercet.critical.certify import Tolerances
from tercet.experiments import methods
from tercet.experiments.dynamic import DynamicAccuracy, needed
from tercet.methods.phases import asked
from tercet.methods.run import Run
from tercet.objectives.metered import Meter

RNG = np.random.default_rng(0)
N = 6000
X = RNG.standard_normal((N, 5)) * np.geomspace(1.0, 0.3, 5)
Y = (X @ RNG.standard_normal(5) + 0.5 * RNG.standard_normal(N) > 0).astype(float)
PROBLEM = tercet.LinearModel(X, Y, "sigmoid_squares", l2=1e-3)
START = RNG.standard_normal(5)


def fall(s, slope, B, T, third):
    """The decrease of the Taylor polynomial whose derivatives are those of three points."""
    plain = -float(slope.gradient() @ s + 0.5 * s @ B.hessian() @ s)
    return plain - float(T.third_product(s, s) @ s) / 6 if third else plain


def steps(method, seed, most=12):
    """For each step of a run that is not over all terms: how far its promise is from that of all terms, and sizes."""
    objective = tercet.methods.minimize.as_problem(PROBLEM, {}).bind(START).objective
    run = Run.of(objective, START, seed, Tolerances.of(1e-9, 3), Meter(N))
    kernel = method.kernel(run)
    state = kernel.begin(run)
    for _ in range(most):
        ahead, at = kernel.parts.policy.expand(run, kernel.parts, state)
        if ahead.sizes.is_full(N):
            return
        step = at.model.workspace.solve(asked(kernel.parts, ahead, at))
        s, third = at.model.frame.lift(step.s), step.cubic is not None
        whole = [run.full.at(at.point.x)] * 3
        error = abs(fall(s, at.slope, at.B, at.T, third) - fall(s, *whole, third))
        yield error / step.forecast.decrease, ahead.sizes
        state, row = kernel.step(run, state)
        if isinstance(row, Status):
            return


@pytest.mark.parametrize("name", ["STM-dynamic", "SCR-dynamic"])
def test_what_is_promised_is_right_to_a_fraction(name):
    """Two standard deviations stand for the bounds, so one in twenty may miss."""
    for omega in (0.5, 0.25):
        method = methods.make(methods.Plan("", name, {"omega": omega}))
        errors = [error for seed in range(15) for error, _ in steps(method, seed)]
        assert len(errors) >= 20
        assert np.mean(np.array(errors) > omega) <= 0.05


def test_a_finer_fraction_takes_larger_samples_and_they_follow_the_steps():
    taken = {}
    for omega in (0.5, 0.1):
        method = tercet.STM(Fixed(0.01, 0.01, 0.01), policy=DynamicAccuracy(omega))
        sizes = [each.gradient for seed in range(4) for *_, each in steps(method, seed, 1)]
        taken[omega] = np.mean([*sizes, *[N] * (4 - len(sizes))])
        result = tercet.minimize(PROBLEM, START, method=method)
        assert result.success
        assert result.trace["size_gradient"][-1] == N  # of a gradient that vanishes no sample tells enough
        assert result.trace["size_gradient"][0] < N
    assert taken[0.1] > 2 * taken[0.5]


def test_as_few_iterations_as_with_all_terms_and_fewer_derivatives():
    """The complexity of the exact method is kept (their Theorem 3.9), at the price of samples."""
    exact = tercet.minimize(PROBLEM, START, method=tercet.SCR(tercet.Full(nested=False)))
    for seed in range(3):
        result = tercet.minimize(PROBLEM, START, method=tercet.SCR(Fixed(), policy=DynamicAccuracy()), seed=seed)
        assert result.success
        assert result.fun <= exact.fun + 1e-14
        assert result.nit <= exact.nit + 2
        assert result.counts.hessian < exact.counts.hessian


def test_how_many_terms_an_error_asks_for():
    for spread, allowed in ((1.0, 0.1), (1.0, 0.01), (5.0, 1.0)):
        m = needed(spread, allowed, 1000)
        assert spread * np.sqrt(1 / m - 1 / 1000) <= allowed
        assert m == 1 or spread * np.sqrt(1 / (m - 1) - 1 / 1000) > allowed
    assert needed(0.0, 1.0, 10) == 1
    assert needed(np.nan, 1.0, 10) == needed(1.0, 0.0, 10) == 10


@pytest.mark.parametrize(
    "rule",
    [tercet.Progressive(), Fixed(replacement=True), tercet.Theory(0.5, 0.1, tercet.Ranges(1.0, 1.0, 1.0))],
    ids=["nested", "replacement", "promises"],
)
def test_rules_that_cannot_serve_are_refused(rule):
    with pytest.raises(ValueError, match=r"DynamicAccuracy\(\) with sizes="):
        tercet.minimize(PROBLEM, START, method=tercet.STM(rule, policy=DynamicAccuracy()))


def test_settings_and_objectives_are_checked():
    for wrong in (0.0, 1.0, "1", np.nan):
        with pytest.raises(ValueError, match="omega"):
            DynamicAccuracy(wrong)
    shards = tercet.Shards([X[:3000], X[3000:]], [Y[:3000], Y[3000:]])
    method = tercet.STM(Fixed(), policy=DynamicAccuracy())
    with pytest.raises(ValueError, match="in memory"):
        tercet.minimize(tercet.LinearModel(shards, sample_bytes=2000), method=method)
