"""Rates of the schemes of acceleration on the worst functions of their order, and what they guarantee of every step."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

import tercet
from tercet import EstimateSequence, NearOptimal, Unaccelerated
from tercet.methods.schemes import THETA, Landing, Momentum, kappa, next_weight
from tests.methods.worst import KINDS, Chain, drive, slope, worst

LENGTHS = (2, 3, 4, 5, 6, 8, 10, 12, 14, 17, 20, 24, 28, 34, 40, 48)


@pytest.mark.parametrize("p", [2, 3])
def test_plain_steps_fall_like_k_to_the_minus_p(p):
    gaps, _ = worst(KINDS[p], Unaccelerated(), 60, LENGTHS)
    assert slope(gaps, 6, 60) == pytest.approx(-p, abs=0.1)


@pytest.mark.parametrize("p", [2, 3])
def test_the_near_optimal_scheme_falls_like_the_lower_bound_for_order_p(p):
    gaps, _ = worst(KINDS[p], NearOptimal(), 60, LENGTHS)
    assert slope(gaps, 6, 60) == pytest.approx(-(3 * p + 1) / 2, abs=0.1)
    # No method of order p gets below what a chain that is longer than its steps has left.
    for k in (10, 20, 40):
        least = max(
            (m - k) * p / (p + 1) / (Chain(m, p).lipschitz * Chain(m, p).distance ** (p + 1)) for m in LENGTHS if m > k
        )
        assert gaps[k - 1] >= least


@pytest.mark.parametrize("p", [2, 3])
def test_the_estimate_sequence_guarantees_k_to_the_minus_p_plus_one(p):
    _, bounds = worst(KINDS[p], EstimateSequence(), 60, LENGTHS)
    assert slope(bounds, 6, 60) == pytest.approx(-(p + 1), abs=0.01)


def test_the_gap_of_the_estimate_sequence_falls_like_k_to_the_minus_three():
    gaps, _ = worst(KINDS[2], EstimateSequence(), 600, (24, 34, 48, 68))
    assert slope(gaps, 200, 600) == pytest.approx(-3, abs=0.1)


@pytest.mark.parametrize("lipschitz", [True, False])
@pytest.mark.parametrize("scheme", [EstimateSequence(), NearOptimal(), NearOptimal(1.3)])
@pytest.mark.parametrize("p", [2, 3])
def test_the_guarantee_holds_at_every_step_with_a_known_and_an_adapted_constant(p, scheme, lipschitz):
    for m in (1, 5, 30):
        chain = Chain(m, p)
        gaps, bounds, counts = drive(chain, KINDS[p](scheme, chain.lipschitz if lipschitz else None), 25)
        assert np.all(gaps <= bounds * (1 + 1e-9) + 1e-12)
        assert np.all(np.diff(gaps) <= 0.0)
        assert counts.gradient >= 25 if m > 1 else counts.gradient > 0


@pytest.mark.parametrize("p", [2, 3])
def test_kappa_is_what_the_condition_of_a_step_implies(p):
    rng, worst_seen = np.random.default_rng(p), np.inf
    for _ in range(20000):
        s, sigma = rng.standard_normal(3), np.exp(rng.standard_normal())
        r = np.linalg.norm(s)
        rate, e = sigma * r ** (p - 1), rng.standard_normal(3)
        e = s if rng.random() < 0.2 else e
        off = rng.choice([1.0, rng.random()]) * THETA * rate * r * rng.choice([-1.0, 1.0])
        g = -rate * s + off * e / np.linalg.norm(e)
        worst_seen = min(worst_seen, -(g @ s) * sigma ** (1 / p) / np.linalg.norm(g) ** ((p + 1) / p))
    assert kappa(p) * (1 - 1e-12) <= worst_seen <= 1.1 * kappa(p)


@pytest.mark.parametrize("p", [2, 3])
def test_weights_are_allowed_and_grow_like_the_power_p_plus_one(p):
    A, k = 0.0, 0.7
    weights = []
    for _ in range(50):
        a = next_weight(A, k, p)
        assert a ** ((p + 1) / p) <= k * (A + a) * (1 + 1e-9)
        A += a
        weights.append(A)
    np.testing.assert_allclose(weights, weights[0] * np.arange(1, 51) ** (p + 1.0), rtol=1e-9)


def test_a_step_that_is_too_short_for_its_weight_is_not_counted():
    momentum = Momentum.at(np.zeros(2))
    there = Landing(np.ones(2), 1e-3 * np.ones(2), -np.ones(2), 1.0, 1.0, 1.0, None, 1, 1.0, True)
    assert EstimateSequence().absorb(momentum, 1.0, there, 3) is None
    assert EstimateSequence().absorb(momentum, 1e-9, there, 3) is not None


def test_a_lambda_above_its_guess_counts_for_its_share():
    momentum = Momentum(np.zeros(1), np.zeros(1), 2.0, 1.0)
    there = Landing(np.ones(1), np.ones(1), -np.ones(1), 1.0, 4.0, 1.0, None, 1, 1.0, True)
    after = NearOptimal().absorb(momentum, 2.0, there, 3)
    assert after.weight == pytest.approx(2.0 + 0.25 * 2.0)
    assert after.pull == pytest.approx(np.array([-0.5]))
    assert after.guess == 2.0
    whole = NearOptimal().absorb(momentum, 2.0, replace(there, rate=0.5), 3)
    assert (whole.weight, whole.guess) == (4.0, 0.5)


def test_restarts_wait_until_the_gap_is_half_by_the_lowest_curvature_that_was_seen():
    momentum = Momentum(np.zeros(1), np.zeros(1), weight=1.9, steep=3.0, lowest=1.0)
    assert not momentum.restarts(NearOptimal(), 2)  # A mu >= 2
    assert replace(momentum, weight=2.1).restarts(NearOptimal(), 2)
    assert not replace(momentum, weight=2.1, lowest=0.0).restarts(NearOptimal(), 2)
    assert not replace(momentum, weight=2.1).restarts(Unaccelerated(), 2)


@pytest.mark.parametrize("factor", [1.0, 0.5, np.nan, np.inf, True, "2"])
def test_the_factor_of_the_guess_is_above_one(factor):
    with pytest.raises(ValueError, match="factor"):
        tercet.NearOptimal(factor)
