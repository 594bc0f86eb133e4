"""What every sub-solver, size rule and method promises, by the one list of `entries.py`."""

from __future__ import annotations

from itertools import pairwise

import numpy as np
import pytest

import tercet
from tercet import Status
from tercet.objectives.metered import Meter, Metered
from tercet.sampling.rules import Outlook
from tercet.subsolvers.base import Ask, Taylor
from tests.conformance.entries import COMPARED, METHODS, OBJECTIVES, RULES, SUBSOLVERS

MODEL = OBJECTIVES["linear, dense"]


def taylor(x: np.ndarray) -> tuple[Taylor, Metered]:
    objective = MODEL.bound().objective
    metered = Metered.of(objective, Meter(objective.n))
    point = metered.over(None).at(x)
    return Taylor(point.gradient(), point, point, False), metered


@pytest.mark.parametrize("radius", [np.inf, 0.3])
@pytest.mark.parametrize("buy", [False, True])
@pytest.mark.parametrize("sigma", [1e-3, 1.0, 50.0])
@pytest.mark.parametrize("where", [0.0, 1.0, 4.0])
@pytest.mark.parametrize("name", SUBSOLVERS)
def test_a_step_is_finite_within_the_radius_promises_a_decrease_and_says_what_it_took(name, where, sigma, buy, radius):
    x = where * np.array([1.0, -0.5, 0.3, 0.8])
    at, metered = taylor(x)
    workspace = SUBSOLVERS[name].prepare(at)
    ask = Ask(sigma, sigma, 3 if name == "Subspace" else 4, radius, buy, 1.0)
    step = workspace.solve(ask)
    assert np.all(np.isfinite(step.s))
    # A look at f over a span may go on from a step of this radius, by less than twice as much at a time.
    assert np.linalg.norm(step.s) <= radius * (1 + 1e-9) or step.trial is not None
    assert step.forecast.decrease > 0
    assert step.inner >= 1
    if not buy:
        assert step.cubic is None
    assert metered.meter.counts().hessian > 0
    if step.cubic is None:
        assert metered.meter.counts().third == 0
    for met in workspace.meets(step, ask):
        assert met is None or isinstance(met, bool | np.bool_)
    decreases = workspace.decreases(np.stack([at.g, 2 * at.g]))
    if decreases is not None:
        assert decreases[1] == pytest.approx(4 * decreases[0])
        assert decreases[0] > 0


@pytest.mark.parametrize("name", SUBSOLVERS)
def test_the_same_question_has_the_same_answer(name):
    at, _ = taylor(np.ones(4))
    workspace, ask = SUBSOLVERS[name].prepare(at), Ask(0.1, 0.1, 3, 1.0, False, 1.0)
    first, second = workspace.solve(ask), workspace.solve(ask)
    np.testing.assert_allclose(first.s, second.s, rtol=1e-12)


@pytest.mark.parametrize("kind", [tercet.STM, tercet.SCR])
@pytest.mark.parametrize("name", SUBSOLVERS)
def test_a_run_with_each_sub_solver_is_certified(name, kind):
    problem, _ = MODEL.problem()
    result = tercet.minimize(problem, MODEL.x0, method=kind(subsolver=SUBSOLVERS[name]), tol=1e-6)
    assert result.success, result.message


def outlook(sizes, n, **changes):
    return Outlook(
        **{"n": n, "d": 4, "iteration": 3, "sizes": sizes, "step": 0.1, "noise_share": 0.0, "noisy": False, **changes}
    )


@pytest.mark.parametrize("n", [1, 2, 30, 10**6])
@pytest.mark.parametrize("name", RULES)
def test_sizes_are_numbers_of_terms_never_shrink_and_the_answer_is_pure(name, n):
    rule = RULES[name]
    sizes = rule.first(n, 4)
    for changes in ({}, {"noisy": True}, {"noise_share": np.inf}, {"step": 1e-9}, {"missed": np.inf}):
        asked = outlook(sizes, n, **changes)
        following = rule.next(asked)
        assert following == rule.next(asked)
        for before, after in zip(
            (sizes.value, sizes.gradient, sizes.hessian, sizes.third),
            (following.value, following.gradient, following.hessian, following.third),
            strict=True,
        ):
            assert 1 <= after <= n
            assert isinstance(after, int)
            if not isinstance(rule, tercet.Theory):  # whose sizes follow the variances that it sees
                assert after >= before


@pytest.mark.parametrize("name", RULES)
def test_every_rule_that_does_not_stay_reaches_all_terms(name):
    rule, n = RULES[name], 5000
    sizes = rule.first(n, 4)
    for iteration in range(400):
        sizes = rule.next(outlook(sizes, n, iteration=iteration, noisy=True, noise_share=np.inf, missed=np.inf))
    assert sizes.gradient == n or isinstance(rule, tercet.Fixed)


def model_for(name):
    """A problem that the method takes: those with momentum are for convex sums."""
    return OBJECTIVES["linear, logistic"] if name.startswith("Accelerated") else MODEL


@pytest.mark.parametrize("name", METHODS)
def test_a_method_never_ends_worse_than_it_began_and_repeats_itself(name):
    problem, _ = model_for(name).problem()
    start = problem.over(None).at(MODEL.x0).value()
    first, second = (
        tercet.minimize(problem, MODEL.x0, method=METHODS[name], seed=5, max_iterations=60, tol=1e-6) for _ in range(2)
    )
    assert first.fun <= start
    assert first.fun == second.fun
    np.testing.assert_array_equal(first.x, second.x)
    assert first.counts == second.counts
    counted = [row.counts.epochs for row in first.trace]
    assert all(before <= after for before, after in pairwise(counted))
    assert first.counts.epochs >= (counted[-1] if counted else 0)


@pytest.mark.parametrize("stop", [1, 4])
@pytest.mark.parametrize("name", METHODS)
def test_a_method_resumes_bit_for_bit(name, stop, tmp_path):
    problem, _ = model_for(name).problem()
    options = {"method": METHODS[name], "seed": 2, "tol": 1e-6}
    whole = tercet.minimize(problem, MODEL.x0, max_iterations=12, **options)
    path = tmp_path / "run.ckpt"
    tercet.minimize(problem, MODEL.x0, max_iterations=stop, checkpoint=path, **options)
    if not path.exists():
        pytest.skip("no step was accepted before the run was stopped")
    resumed = tercet.resume(path, problem, method=COMPARED.get(name), max_iterations=12)
    np.testing.assert_array_equal(resumed.x, whole.x)
    assert resumed.counts == whole.counts
    assert resumed.status is whole.status
    np.testing.assert_array_equal(resumed.trace["f"], whole.trace["f"])


@pytest.mark.parametrize("name", METHODS)
def test_budgets_callbacks_and_interrupts_end_a_run_with_their_own_status(name):
    problem, _ = model_for(name).problem()

    def interrupt(info: tercet.Info) -> None:
        raise KeyboardInterrupt

    run = {"method": METHODS[name], "tol": 1e-20}
    assert tercet.minimize(problem, MODEL.x0, max_iterations=2, **run).nit <= 2
    spent = tercet.minimize(problem, MODEL.x0, max_epochs=1e-9, **run)
    assert spent.nit == 1  # the budget is looked at before an iteration
    assert spent.status is Status.MAX_EPOCHS
    assert tercet.minimize(problem, MODEL.x0, callback=lambda info: True, **run).status is Status.CALLBACK
    assert tercet.minimize(problem, MODEL.x0, callback=interrupt, **run).status is Status.INTERRUPTED
    late = tercet.minimize(problem, MODEL.x0, max_seconds=1e-9, **run)
    assert late.status is Status.MAX_SECONDS
    np.testing.assert_array_equal(late.x, MODEL.x0)
