"""Over many draws an error is as rare as the bound says: vectors, matrices, tensors, both kinds of sampling."""

import numpy as np
import pytest

from benchmarks.problems import draws
from benchmarks.problems.draws import NAMES, N, tail_of
from tercet import theory
from tercet.critical.measures import largest_cubic

REPEATS = 4000


def bernstein_of(name, replacement):
    how = {"N": N, "replacement": replacement}
    return {
        "scalar": lambda: theory.vector_bernstein(1, 1.0, **how),
        "vector": lambda: theory.vector_bernstein(4, 1.0, **how),
        "symmetric matrix": lambda: theory.matrix_bernstein(4, 1.0, **how),
        "general matrix": lambda: theory.matrix_bernstein(2, 1.0, columns=3, **how),
        "symmetric tensor": lambda: theory.tensor_bernstein(2, 2.0, **how),
        "general tensor": lambda: theory.tensor_bernstein(2, 2.0, symmetric=False, **how),
        "rank-one symmetric tensor": lambda: theory.tensor_bernstein(2, 2.0, rank_one=True, **how),
        "rank-one general tensor": lambda: theory.tensor_bernstein(2, 2.0, symmetric=False, rank_one=True, **how),
    }[name]()


@pytest.mark.parametrize("replacement", [False, True], ids=["without", "with"])
@pytest.mark.parametrize("n", [3, 30, 150, 270])
@pytest.mark.parametrize("name", NAMES)
def test_errors_are_as_rare_as_the_worst_case_bounds_say(name, n, replacement):
    rng = np.random.default_rng([NAMES.index(name), n, replacement])
    terms, norms = draws.populations(rng, N)[name]
    sizes = norms(draws.errors(rng, terms, n, REPEATS, replacement))
    for statement in ("sharp", "corrected"):
        tail = tail_of(name, replacement, statement)
        for delta in (0.5, 0.1, 0.01):
            assert np.mean(sizes >= tail.accuracy(n, delta)) <= delta
        for t in np.quantile(sizes, (0.5, 0.9, 0.99)):
            frequency = np.mean(sizes >= t)
            assert frequency <= tail.failure(n, t) + 3 * np.sqrt(frequency / REPEATS)


@pytest.mark.parametrize("replacement", [False, True], ids=["without", "with"])
@pytest.mark.parametrize("n", [30, 150, 270])
@pytest.mark.parametrize("name", NAMES)
def test_errors_are_as_rare_as_the_observed_variance_says(name, n, replacement):
    rng = np.random.default_rng([7, NAMES.index(name), n, replacement])
    terms, norms = draws.populations(rng, N)[name]
    terms = terms * rng.choice((0.1, 1.0), N, p=(0.9, 0.1)).reshape(N, *[1] * (terms.ndim - 1))  # small variance
    repeats = 60 if "tensor" in name else 300
    tail, delta, violations = bernstein_of(name, replacement), 0.1, 0
    for share in draws.shares(rng, N, n, repeats, replacement):
        error = norms(np.tensordot(share, terms, 1)[None] - terms.mean(axis=0))[0]
        violations += error >= tail.accuracy(n, delta, observed(share, terms))
    assert violations <= delta * repeats


def observed(share, terms):
    """The variance of a weighted sample: trace for vectors, norm for matrices, a bound over directions for tensors."""
    centred = terms - np.tensordot(share, terms, 1)
    if terms.ndim == 2:
        return share @ np.sum(centred**2, axis=1)
    if terms.ndim == 3:
        left = np.linalg.norm(np.einsum("i,iab,icb->ac", share, centred, centred), 2)
        return max(left, np.linalg.norm(np.einsum("i,iba,ibc->ac", share, centred, centred), 2))
    flat = centred.reshape(len(terms), -1)
    return np.linalg.norm(flat.T @ (share[:, None] * flat), 2)


@pytest.mark.parametrize("n", [10, 100, 1000])
def test_for_signs_the_bound_is_hardly_looser_than_needed(n):
    rng = np.random.default_rng(n)
    sizes = np.abs(2 * rng.binomial(n, 0.5, 200000) / n - 1)
    tail = theory.vector_tail(1, 1.0, replacement=True)
    for delta in (0.1, 0.01, 0.001):
        needed = np.quantile(sizes, 1 - delta)
        assert needed <= tail.accuracy(n, delta) <= 1.6 * needed


def test_the_norms_of_small_tensors_agree_with_an_independent_method():
    rng = np.random.default_rng(0)
    E = rng.standard_normal((200, 2, 2, 2))
    symmetric = sum(np.transpose(E, (0, *(1 + np.array(p)))) for p in PERMUTATIONS) / 6
    for T, grid in zip(symmetric[:30], draws.symmetric_cubic_norms(symmetric, 720)[:30], strict=True):
        by_power, _ = largest_cubic(lambda y, T=T: (T @ y) @ y, 2, starts=32, seed=0)
        assert by_power == pytest.approx(grid, rel=1e-4)
    # Banach: the norm of a symmetric tensor is attained at equal arguments
    np.testing.assert_allclose(
        draws.general_cubic_norms(symmetric, 720), draws.symmetric_cubic_norms(symmetric, 720), rtol=1e-4
    )
    for T, grid in zip(E[:30], draws.general_cubic_norms(E, 720)[:30], strict=True):
        assert alternating(T) == pytest.approx(grid, rel=1e-4)


PERMUTATIONS = [(0, 1, 2), (0, 2, 1), (1, 0, 2), (1, 2, 0), (2, 0, 1), (2, 1, 0)]


def alternating(T, starts=20):
    """The norm by an alternating power iteration from random starts."""
    rng, best = np.random.default_rng(1), 0.0
    for _ in range(starts):
        u, v, w = (x / np.linalg.norm(x) for x in rng.standard_normal((3, 2)))
        for _ in range(200):
            u = np.einsum("abc,b,c->a", T, v, w)
            v = np.einsum("abc,a,c->b", T, u / np.linalg.norm(u), w)
            w = np.einsum("abc,a,b->c", T, u / np.linalg.norm(u), v / np.linalg.norm(v))
            u, v, value, w = u / np.linalg.norm(u), v / np.linalg.norm(v), np.linalg.norm(w), w / np.linalg.norm(w)
        best = max(best, value)
    return best
