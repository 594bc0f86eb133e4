"""Momentum of sampled derivatives: less variance, and steps that converge for samples of any size."""

from __future__ import annotations

import numpy as np
import pytest

import tercet
from tercet.experiments.averaged import Averaged, Means
from tercet.objectives.metered import Meter, Metered

RNG = np.random.default_rng(0)
N = 400
X = RNG.standard_normal((N, 3))
Y = (X @ np.ones(3) + 0.5 * RNG.standard_normal(N) > 0).astype(float)
PROBLEM = tercet.LinearModel(X, Y, "sigmoid_squares", l2=1e-2)
START = np.array([0.5, -0.5, 1.0])
RUN = {"order": 1, "tol": 1e-20}


def gradient(x):
    return Metered.of(PROBLEM, Meter(N)).over(None).at(np.asarray(x)).gradient()


@pytest.mark.parametrize("order", [2, 3])
def test_at_rest_the_variance_falls_to_a_over_two_less_a(order):
    """sigma so large that x stays: the averages are then those of independent samples."""
    off = []

    def watch(info):
        if info.row.iteration > 50:
            off.append(info.row.gradient_norm)

    for a in (1.0, 0.2):
        off.clear()
        method = Averaged(1, a, 1e30, order)
        tercet.minimize(PROBLEM, START, method=method, max_iterations=1500, callback=watch, **RUN)
        square = np.mean(np.square(off)) - np.sum(gradient(START) ** 2)  # E|g|^2 = |grad f|^2 + the variance
        if a == 1.0:
            plain = square
    assert square / plain == pytest.approx(0.2 / 1.8, rel=0.2)


@pytest.mark.parametrize("order", [2, 3])
def test_single_terms_lead_to_a_smaller_gradient_with_momentum_than_without(order):
    """For any size of the samples: one term in an iteration, the same steps otherwise."""
    ends = {}
    for a in (1.0, 0.01):
        seen = []
        method = Averaged(1, a, 3.0, order)
        tercet.minimize(
            PROBLEM, START, method=method, max_iterations=1000, callback=lambda info, seen=seen: seen.append(info.x),
            **RUN,
        )  # fmt: skip
        ends[a] = np.mean([np.linalg.norm(gradient(x)) for x in seen[600::20]])
    assert ends[0.01] < 0.4 * ends[1.0]
    assert ends[0.01] < 0.2 * np.linalg.norm(gradient(START))


@pytest.mark.parametrize("order", [2, 3])
def test_over_all_terms_the_gradient_is_carried_to_the_order_of_the_method(order):
    """(1 - a) of what is carried errs like |s|^order, a of it is exact."""
    full, u = Metered.of(PROBLEM, Meter(N)).over(None), np.array([0.6, 0.0, 0.8])
    errors = []
    for size in (0.1, 0.05):
        here, there = full.at(START), full.at(START + size * u)
        means = Means(here.x, here.gradient(), here.hessian()).after(there, 0.25, order)
        errors.append(np.linalg.norm(means.g - there.gradient()))
        np.testing.assert_allclose(means.B, 0.75 * here.hessian() + 0.25 * there.hessian(), rtol=1e-13)
    assert np.log2(errors[0] / errors[1]) == pytest.approx(order, abs=0.3)


def test_an_iteration_costs_its_batch_and_no_value():
    spent = tercet.minimize(PROBLEM, START, method=Averaged(10, 0.1, 1.0), max_iterations=5, **RUN)
    np.testing.assert_array_equal(np.diff(spent.trace["gradient"], prepend=0), [10] * 5)
    np.testing.assert_array_equal(np.diff(spent.trace["hessian"], prepend=0), [10] * 5)
    third = np.diff(spent.trace["third"], prepend=0)  # carried over the batch, and corrected over what bends of it
    assert third[0] <= 10
    assert np.all((third[1:] >= 10) & (third[1:] <= 20))
    assert set(spent.trace["value"]) == {0}
    second = tercet.minimize(PROBLEM, START, method=Averaged(10, 0.1, 1.0, order=2), max_iterations=5, **RUN)
    assert set(second.trace["third"]) == {0}


def test_it_resumes_bit_for_bit_and_refuses_other_averages(tmp_path, monkeypatch):
    path, method = tmp_path / "run.ckpt", Averaged(10, 0.2, 1.0)
    whole = tercet.minimize(PROBLEM, START, method=method, max_iterations=30, seed=3, **RUN)
    tercet.minimize(PROBLEM, START, method=method, max_iterations=11, seed=3, checkpoint=path, **RUN)
    resumed = tercet.resume(path, PROBLEM, method=method, max_iterations=30)
    assert resumed.x.tobytes() == whole.x.tobytes()
    assert resumed.counts == whole.counts
    arrays = Means.arrays
    monkeypatch.setattr(Means, "arrays", lambda self: {**arrays(self), "B": np.zeros(2)})
    tercet.minimize(PROBLEM, START, method=method, max_iterations=11, checkpoint=path, **RUN)
    with pytest.raises(tercet.CheckpointError, match="averages"):
        tercet.resume(path, PROBLEM, method=method)


def test_settings_are_checked_and_bounds_refused():
    with pytest.raises(ValueError, match="Averaged knows no bounds"):
        tercet.minimize(PROBLEM, bounds=[(0, 1)] * 3, method=Averaged())
    for wrong in ({"batch": 2.0}, {"momentum": 0.0}, {"momentum": 1.1}, {"sigma": 0.0}, {"order": 1}):
        with pytest.raises(ValueError, match=next(iter(wrong))):
            Averaged(**wrong)
