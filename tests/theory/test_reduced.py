"""The bounds for differences, by frequency over many draws."""

from __future__ import annotations

import numpy as np
import pytest

import tercet
from tercet import theory

RNG = np.random.default_rng(0)
N, D = 200, 3
X = RNG.standard_normal((N, D))
Y = (X @ np.ones(D) + RNG.standard_normal(N) > 0).astype(float)
PROBLEM = tercet.LinearModel(X, Y, "sigmoid_squares")
CONSTANTS = theory.constants(PROBLEM)
ANCHOR = RNG.standard_normal(D)


def terms(x, order):
    z = X @ x
    weight = PROBLEM.loss.derivatives(z, Y)[order]
    shape = "ni,nj,nk->nijk"
    return (weight[:, None] * X) if order == 1 else (
        np.einsum("n,ni,nj->nij", weight, X, X) if order == 2 else np.einsum(f"n,{shape}", weight, X, X, X)
    )  # fmt: skip


def differences(distance, order):
    u = np.array([1.0, -2.0, 0.5])
    return terms(ANCHOR + distance * u / np.linalg.norm(u), order) - terms(ANCHOR, order)


def shares(rng, repeats, n):
    """Rows that are 1/n at n of the N terms, drawn without replacement."""
    places = np.argpartition(rng.random((repeats, N)), n, axis=1)[:, :n]
    out = np.zeros((repeats, N))
    np.put_along_axis(out, places, 1.0 / n, axis=1)
    return out


@pytest.mark.parametrize("distance", [0.05, 1.0])
@pytest.mark.parametrize("n", [20, 100])
def test_a_hundred_thousand_gradients_stray_as_rarely_as_the_bound_says(n, distance):
    tail, _, _ = theory.reduced_bounds(CONSTANTS, distance, D, N)
    v, delta, violations = differences(distance, 1), 0.1, 0
    rng, repeats = np.random.default_rng(n), 25000
    for _ in range(4):
        share = shares(rng, repeats, n)
        mean = share @ v
        observed = share @ np.sum(v * v, axis=1) - np.sum(mean * mean, axis=1)
        # accuracy grows with the variance: the bound at a quantile's lower edge counts no violation too few
        edges = np.quantile(observed, np.linspace(0, 1, 60))
        allowed = np.array([tail.accuracy(n, delta, max(float(e), 0.0)) for e in edges])
        place = np.clip(np.searchsorted(edges, observed, side="right") - 1, 0, 59)
        violations += int(np.sum(np.linalg.norm(mean - v.mean(axis=0), axis=1) >= allowed[place]))
    assert violations <= delta * 4 * repeats


@pytest.mark.parametrize("distance", [0.05, 1.0])
def test_hessians_and_third_derivatives_stray_as_rarely(distance):
    _, second, third = theory.reduced_bounds(CONSTANTS, distance, D, N)
    share, n, delta = shares(np.random.default_rng(3), 3000, 60), 60, 0.1
    for tail, order in ((second, 2), (third, 3)):
        A = differences(distance, order).reshape(N, D, -1)
        off = np.tensordot(share, A - A.mean(axis=0), 1)
        errors = np.linalg.norm(off, 2, axis=(1, 2))  # of the unfolding, where the order is 3: no less than the norm
        violations = 0
        for row, error in zip(share, errors, strict=True):
            centred = A[row > 0] - np.tensordot(row, A, 1)
            left = np.linalg.norm(np.mean(centred @ centred.transpose(0, 2, 1), axis=0), 2)
            right = np.linalg.norm(np.mean(centred.transpose(0, 2, 1) @ centred, axis=0), 2)
            violations += error >= tail.accuracy(n, delta, max(left, right))
        assert violations <= delta * 3000


@pytest.mark.parametrize("order", [1, 2, 3])
def test_the_range_shrinks_with_the_distance_and_no_difference_leaves_it(order):
    for distance in (1e-3, 0.1, 3.0):
        tail = theory.reduced_bounds(CONSTANTS, distance, D, N)[order - 1]
        A = differences(distance, order).reshape(N, -1)
        assert tail.width == pytest.approx(distance * theory.reduced_bounds(CONSTANTS, 1.0, D, N)[order - 1].width)
        assert np.max(np.linalg.norm(A, axis=1)) <= 0.5 * tail.width


def test_it_refuses_what_is_no_distance_or_size():
    for wrong in ({"distance": 0.0}, {"d": 0}, {"N": 1.5}):
        with pytest.raises(ValueError, match=next(iter(wrong))):
            theory.reduced_bounds(**{"constants": CONSTANTS, "distance": 1.0, "d": D, "N": N, **wrong})
