"""What is a likelihood, and what is not."""

from __future__ import annotations

import numpy as np
import pytest

import tercet
from tercet.inference.likelihood import likelihood_of
from tercet.objectives.losses import LOSSES

X = np.random.default_rng(0).standard_normal((40, 2))
Y = (X[:, 0] > 0) + 1.0
NONE = {"sigmoid_squares", "cauchy", "welsch", "geman_mcclure", "smooth_quantile"}


class Quartic:
    """One's own, from outside."""

    def derivatives(self, z, y):
        r = z - y
        return r**4, 4 * r**3, 12 * r**2, 24 * r


@pytest.mark.parametrize("loss", sorted(LOSSES))
def test_which_losses_are_likelihoods(loss):
    y = Y - 1.0 if loss in ("sigmoid_squares", "logistic") else Y
    found = likelihood_of(tercet.LinearModel(X, y, loss), np.zeros(2))
    assert (found is None) == (loss in NONE)
    if found is not None:
        assert found.estimated == (loss in ("squares", "gamma"))


def test_ones_own_losses_and_other_objectives_are_taken_for_likelihoods():
    assert likelihood_of(tercet.LinearModel(X, Y, Quartic()), np.zeros(2)).phi == 1.0
    assert likelihood_of(tercet.LinearModel(X, Y, lambda z, y: (z - y) ** 2), np.zeros(2)).phi == 1.0
    assert likelihood_of(object(), np.zeros(2)).log is None


def test_weights_count_in_phi():
    w = np.where(np.arange(40) < 20, 3.0, 1.0)
    x = np.array([0.2, -0.1])
    found = likelihood_of(tercet.LinearModel(X, Y, "squares", weights=w), x)
    assert found.phi == pytest.approx(np.sum(w / 2.0 * (Y - X @ x) ** 2) / 38)


def test_a_penalty_is_told():
    assert likelihood_of(tercet.LinearModel(X, Y, "poisson", l2=1e-3), np.zeros(2)).penalized
    assert not likelihood_of(tercet.LinearModel(X, Y, "poisson"), np.zeros(2)).penalized
