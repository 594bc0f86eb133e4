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


def strayed(order, distance, share):
    """The errors of sampled differences, in the norm of the unfolding (no less than that of a T), and the variances."""
    A = differences(distance, order).reshape(N, D, -1)
    k = A.shape[2]
    mean = (share @ A.reshape(N, -1)).reshape(-1, D, k)
    error = np.linalg.norm(mean - A.mean(axis=0), 2, axis=(1, 2))
    squares = (np.einsum("nij,nkj->nik", A, A), np.einsum("nji,njk->nik", A, A))
    sides = (np.einsum("nij,nkj->nik", mean, mean), np.einsum("nji,njk->nik", mean, mean))
    spread = [
        (share @ square.reshape(N, -1)).reshape(side.shape) - side for square, side in zip(squares, sides, strict=True)
    ]
    if order == 1:  # of vectors it is the mean square
        return error, spread[1].ravel()
    return error, np.maximum(*(np.linalg.norm(each, 2, axis=(1, 2)) for each in spread))


@pytest.mark.parametrize("order", [1, 2, 3])
@pytest.mark.parametrize(("distance", "n"), [(0.05, 20), (1.0, 100)])
def test_a_hundred_thousand_samples_stray_as_rarely_as_the_bound_says(distance, n, order):
    tail, delta, violations = theory.reduced_bounds(CONSTANTS, distance, D, N)[order - 1], 0.1, 0
    rng, repeats = np.random.default_rng(n), 5000
    for _ in range(20):
        error, observed = strayed(order, distance, shares(rng, repeats, n))
        # accuracy grows with the variance: the bound at a quantile's lower edge counts no violation too few
        edges = np.quantile(observed, np.linspace(0, 1, 60))
        allowed = np.array([tail.accuracy(n, delta, max(float(e), 0.0)) for e in edges])
        place = np.clip(np.searchsorted(edges, observed, side="right") - 1, 0, 59)
        violations += int(np.sum(error >= allowed[place]))
    assert violations <= delta * 20 * repeats


def test_errors_and_variances_are_those_of_samples_without_replacement():
    """That the frequency above counts what it says: E|error|^2 = (1/n - 1/N) of the variance of a term."""
    n, v = 20, differences(1.0, 1)
    error, observed = strayed(1, 1.0, shares(np.random.default_rng(0), 20000, n))
    variance = np.sum((v - v.mean(axis=0)) ** 2) / (N - 1)
    assert np.mean(error**2) == pytest.approx((1 / n - 1 / N) * variance, rel=0.03)
    assert np.mean(observed) == pytest.approx((1 - 1 / n) * variance, rel=0.01)


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
