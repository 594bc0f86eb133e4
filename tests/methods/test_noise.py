"""What sampling error does to a step: its share of the promised decrease, and rejections that it explains."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest

import tercet
from tercet import PaperSigma, Status
from tercet.methods.noise import noise_of, noise_share, sampling_errors
from tercet.records import Forecast, Step
from tests.methods.walks import MODEL, D, N, Walk


@pytest.mark.parametrize("sigma", [PaperSigma(), tercet.SignedEstimate()], ids=["paper", "signed"])
def test_a_rejection_that_noise_explains_leaves_sigma_alone(sigma):
    start = tercet.minimize(MODEL).x  # at the minimum of f every sampled step is noise
    walk = Walk.of(tercet.STM(sizes=tercet.Fixed(0.02, 0.02, 0.02), sigma=sigma), start=start)
    noisy = 0
    for _ in range(200):
        control, row = walk.memory.control, walk.step()
        if isinstance(row, Status):
            assert row is Status.NOISE
            break
        if walk.memory.noisy:
            noisy += 1
            assert not row.accepted
            assert walk.memory.control == control
    assert noisy >= 15


def test_a_rejection_that_noise_explains_enlarges_the_samples_of_a_rule_that_grows():
    start = tercet.minimize(MODEL).x
    walk = Walk.of(tercet.STM(sizes=tercet.Growing(start=0.01, factor=1.1)), start=start)
    before, row = walk.state.sizes, walk.step()
    assert row.sizes == before
    assert not row.accepted
    assert walk.memory.noisy
    assert walk.step().sizes.gradient == int(np.ceil(2 * 1.1 * before.gradient))


def test_without_noise_awareness_a_rejection_raises_sigma():
    start = tercet.minimize(MODEL).x
    walk = Walk.of(tercet.STM(sizes=tercet.Fixed(0.02, 0.02, 0.02), sigma=PaperSigma(), noise_aware=False), start=start)
    for _ in range(5):
        before = walk.memory.control.sigma3
        row = walk.step()
        assert not row.accepted
        assert not walk.memory.noisy
        assert row.sigma == pytest.approx(before, rel=1e-9)
        assert walk.memory.control.sigma3 == 2.0 * before


class Norms:
    """A workspace that tells of decreases what it is given to tell."""

    def __init__(self, weights: Any = None):
        self.weights = weights

    def decreases(self, vectors: np.ndarray) -> np.ndarray | None:
        return None if self.weights is None else vectors**2 @ self.weights


def test_the_share_of_noise_is_what_the_errors_pretend_over_what_the_gradient_promises():
    errors, g = np.array([[1.0, 0.0], [0.0, 2.0]]), np.array([2.0, 1.0])
    assert noise_share(Norms(np.array([1.0, 10.0])), g, errors) == 41.0 / 14.0
    assert noise_share(Norms(), g, errors) == 5.0 / 5.0  # where B is not factored, squared norms stand in
    assert noise_share(Norms(), np.zeros(2), errors) == np.inf
    assert noise_share(Norms(), g, np.zeros((1, 2))) == 0.0


@pytest.mark.parametrize(("replacement", "factor"), [(False, np.sqrt(1 - 200 / N)), (True, 1.0)])
def test_the_errors_of_a_sample_are_smaller_by_the_share_of_the_terms_that_are_in_it(replacement, factor):
    point = Walk.of(tercet.STM(tercet.Fixed(200, 200, 200))).expand().slope
    np.testing.assert_array_equal(sampling_errors(point, N, replacement), factor * point.errors())


def test_a_gradient_over_all_terms_has_no_error_unless_they_are_drawn_with_replacement():
    point = Walk.of(tercet.STM(tercet.Full())).state.point
    assert np.array_equal(sampling_errors(point, N, False), np.zeros((1, D)))
    drawn = Walk.of(tercet.STM(tercet.Fixed(1.0, 1.0, 1.0, replacement=True))).expand().slope
    assert drawn.terms == N
    assert np.linalg.norm(sampling_errors(drawn, N, True)) > 0


def test_the_noise_of_a_step_is_put_together_from_the_errors_of_its_sample():
    """Two standard deviations of g's and twice the decrease that is pretended; the spreads of a single term."""
    walk = Walk.of(tercet.STM(tercet.Fixed(200, 200, 200), tercet.Dense()))
    at = walk.expand()
    g, frame = at.model.taylor.g, at.model.frame
    assert np.array_equal(g, frame.slope(at.g))
    s = -0.1 * g
    quadratic, cubic = Forecast(0.3, g + 2.0 * s), Forecast(0.2, g + 2.5 * s)
    errors = frame.slope(sampling_errors(at.slope, N, False))  # all in the units of the step
    share = noise_share(at.model.workspace, g, errors)
    noise = noise_of(at, Step(s, quadratic, cubic, 1, 1.0), N, False)
    assert noise.share == share
    assert noise.allowance == pytest.approx(2 * (np.linalg.norm(errors @ s) + share * 0.2), rel=1e-14)
    r = np.linalg.norm(s)
    spreads = np.linalg.norm(errors) * np.sqrt(200), 2.0, r / r**2  # |2 s| / r, and 2 |0.5 s| / r^2
    assert noise.spreads == pytest.approx(spreads, rel=1e-12)
    without = noise_of(at, Step(s, quadratic, None, 1, 1.0), N, False)
    assert without.spreads[2] == 0.0
    assert without.allowance == pytest.approx(2 * (np.linalg.norm(errors @ s) + share * 0.3), rel=1e-14)


def test_where_noise_is_all_of_the_gradient_its_bias_is_left_out_of_the_allowance():
    walk = Walk.of(tercet.STM(tercet.Fixed(200, 200, 200)))
    at = walk.expand()

    class Nothing:
        def decreases(self, vectors: np.ndarray) -> np.ndarray:
            return np.zeros(len(vectors))

    at = replace(at, model=replace(at.model, workspace=Nothing()))
    g = at.model.taylor.g
    noise = noise_of(at, Step(g, Forecast(1.0, g), None, 1, 1.0), N, False)
    errors = at.model.frame.slope(sampling_errors(at.slope, N, False))
    assert noise.share == np.inf
    assert noise.allowance == pytest.approx(2 * np.linalg.norm(errors @ g), rel=1e-14)


def test_the_share_that_a_nested_sample_remembers_is_that_of_the_point_it_moved_to():
    walk = Walk.of(tercet.STM(tercet.Progressive(multiple=20), tercet.Dense()))
    at = walk.expand()
    walk.state = replace(walk.state, kept=at)
    assert walk.step().accepted
    point = walk.state.point
    assert point.terms < N
    slope = at.model.frame.slope
    share = noise_share(at.model.workspace, slope(point.gradient()), slope(sampling_errors(point, N, False)))
    assert walk.memory.noise_share > 0
    assert walk.memory.noise_share == share
