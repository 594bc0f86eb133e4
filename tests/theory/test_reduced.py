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


U = np.array([1.0, -2.0, 0.5]) / np.linalg.norm([1.0, -2.0, 0.5])


def terms(x, order):
    z = X @ x
    weight = PROBLEM.loss.derivatives(z, Y)[order]
    shape = "ni,nj,nk->nijk"
    return (weight[:, None] * X) if order == 1 else (
        np.einsum("n,ni,nj->nij", weight, X, X) if order == 2 else np.einsum(f"n,{shape}", weight, X, X, X)
    )  # fmt: skip


def differences(distance, order, orders=(1,)):
    """f_i^(order)(x) less its Taylor polynomial at the anchor, as far as `orders` go."""
    e, there = distance * U, terms(ANCHOR, order)
    away = terms(ANCHOR + e, order) - there
    for k in range(order + 1, max(orders) + 1):  # the k-th derivative times e as often as is needed
        part = terms(ANCHOR, k)
        for j in range(k - order):
            part = part @ e / (j + 1)
        away = away - part
    return away


def shares(rng, repeats, n):
    """Rows that are 1/n at n of the N terms, drawn without replacement."""
    places = np.argpartition(rng.random((repeats, N)), n, axis=1)[:, :n]
    out = np.zeros((repeats, N))
    np.put_along_axis(out, places, 1.0 / n, axis=1)
    return out


def strayed(order, distance, share, orders):
    """The errors of sampled differences, in the norm of the unfolding (no less than that of a T), and the variances."""
    A = differences(distance, order, orders).reshape(N, D, -1)
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


EACH = [(order, tuple(range(1, top + 1))) for top in (1, 2, 3) for order in range(1, top + 1)]


@pytest.mark.parametrize(("order", "orders"), EACH)
@pytest.mark.parametrize(("distance", "n"), [(0.05, 20), (1.0, 100)])
def test_a_hundred_thousand_samples_stray_as_rarely_as_the_bound_says(distance, n, order, orders):
    tail, delta, violations = theory.reduced_bounds(CONSTANTS, distance, D, N, orders=orders)[order - 1], 0.1, 0
    rng, repeats = np.random.default_rng(n), 5000
    for _ in range(20):
        error, observed = strayed(order, distance, shares(rng, repeats, n), orders)
        # accuracy grows with the variance: the bound at a quantile's lower edge counts no violation too few
        edges = np.quantile(observed, np.linspace(0, 1, 60))
        allowed = np.array([tail.accuracy(n, delta, max(float(e), 0.0)) for e in edges])
        place = np.clip(np.searchsorted(edges, observed, side="right") - 1, 0, 59)
        violations += int(np.sum(error >= allowed[place]))
    assert violations <= delta * 20 * repeats


def test_errors_and_variances_are_those_of_samples_without_replacement():
    """That the frequency above counts what it says: E|error|^2 = (1/n - 1/N) of the variance of a term."""
    n, v = 20, differences(1.0, 1)
    error, observed = strayed(1, 1.0, shares(np.random.default_rng(0), 20000, n), (1,))
    variance = np.sum((v - v.mean(axis=0)) ** 2) / (N - 1)
    assert np.mean(error**2) == pytest.approx((1 / n - 1 / N) * variance, rel=0.03)
    assert np.mean(observed) == pytest.approx((1 - 1 / n) * variance, rel=0.01)


@pytest.mark.parametrize(("order", "orders"), EACH)
def test_the_range_shrinks_with_the_distance_and_no_difference_leaves_it(order, orders):
    power = max(orders) + 1 - order
    for distance in (1e-2, 0.1, 3.0):
        tail, one = (theory.reduced_bounds(CONSTANTS, each, D, N, orders=orders)[order - 1] for each in (distance, 1.0))
        A = differences(distance, order, orders).reshape(N, -1)
        assert tail.width == pytest.approx(distance**power * one.width)
        assert np.max(np.linalg.norm(A, axis=1)) <= 0.5 * tail.width


def test_a_derivative_that_is_not_reduced_is_that_of_a_plain_sample():
    g, B, T = theory.reduced_bounds(CONSTANTS, 1e-3, D, N, orders=(1,))
    assert g.width == pytest.approx(2e-3 * CONSTANTS.L_g)
    assert (B.width, T.width) == (CONSTANTS.ranges.hessian, CONSTANTS.ranges.third)


def test_it_refuses_what_is_no_distance_or_size():
    for wrong in ({"distance": 0.0}, {"d": 0}, {"N": 1.5}, {"orders": (1, 3)}, {"orders": "12"}):
        with pytest.raises(ValueError, match=next(iter(wrong))):
            theory.reduced_bounds(**{"constants": CONSTANTS, "distance": 1.0, "d": D, "N": N, **wrong})
