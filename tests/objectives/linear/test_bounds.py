"""What the rows tell: a bound of the third derivative that is never exceeded, and the spread of the terms."""

import numpy as np
import pytest
import scipy.sparse as sp

from tercet.objectives.linear import LinearModel
from tercet.objectives.linear.bounds import variance
from tests.objectives.linear.models import D, N, build


@pytest.mark.parametrize("loss", ["sigmoid_squares", "cauchy"])
@pytest.mark.parametrize("k", [1, 2, D])
def test_third_bound_is_never_exceeded(loss, k):
    model, _ = build(loss, weighted=True, alpha=0.5, l2=0.1)
    rng = np.random.default_rng(11)
    for _ in range(5):
        point = model.over(rng.integers(0, N, 20)).at(rng.standard_normal(D))
        V = np.linalg.qr(rng.standard_normal((D, k)))[0]
        Z = rng.standard_normal((400, k))
        Z /= np.linalg.norm(Z, axis=1)[:, None]
        T = point.third_tensor(V)
        largest = np.abs(np.einsum("abc,ia,ib,ic->i", T, Z, Z, Z)).max()
        assert 0 < largest <= point.third_bound(V)


@pytest.mark.parametrize("sparse", [False, True])
@pytest.mark.parametrize("k", [1, 2, D])
def test_the_bounds_on_the_third_derivative_are_ordered_by_their_effort(sparse, k):
    """Over the span of V with |V'a_i|, with |a_i|, and over all directions: each at least the one before."""
    model, _ = build(sparse=sparse, weighted=True, alpha=0.5, l2=0.1)
    rng = np.random.default_rng(18)
    for rows in (None, rng.integers(0, N, 20), np.array([3, 7])):
        point = model.over(rows).at(rng.standard_normal(D))
        V = np.linalg.qr(rng.standard_normal((D, k)))[0]
        Z = rng.standard_normal((400, k))
        Z /= np.linalg.norm(Z, axis=1)[:, None]
        largest = np.abs(np.einsum("abc,ia,ib,ic->i", point.third_tensor(V), Z, Z, Z)).max()
        tight, plain_bound, everywhere = point.third_bound(V, tight=True), point.third_bound(V), point.third_bound(None)
        assert 0 < largest <= tight <= plain_bound * (1 + 1e-12)
        assert plain_bound <= everywhere * (1 + 1e-12)
        assert np.isfinite(everywhere)


@pytest.mark.parametrize("sparse", [False, True])
@pytest.mark.parametrize("tight", [False, True])
def test_with_too_many_variables_for_a_gram_matrix_the_bound_is_the_tight_one(sparse, tight, monkeypatch):
    model, _ = build(sparse=sparse, weighted=True, alpha=0.5)
    rng = np.random.default_rng(20)
    point, V = model.over(None).at(rng.standard_normal(D)), np.linalg.qr(rng.standard_normal((D, 2)))[0]
    expected = point.third_bound(V, tight=True)
    monkeypatch.setattr("tercet.objectives.linear.bounds.GRAM_LIMIT", D - 1)
    assert point.third_bound(V, tight) == pytest.approx(expected, rel=1e-12)


# the spread of the terms --------------------------------------------------------------------------------------------


@pytest.mark.parametrize("sparse", [False, True])
def test_variances_are_those_of_the_terms(sparse):
    rng = np.random.default_rng(0)
    A = rng.standard_normal((40, 3))
    model = LinearModel(sp.csr_array(A) if sparse else A, (A[:, 0] > 0).astype(float), l2=0.3)
    x, rows = rng.standard_normal(3), np.arange(5, 25)
    point = model.over(rows).at(x)
    singles = [model.over(np.array([i])).at(x) for i in rows]
    g = np.array([p.gradient() for p in singles])
    B = np.array([p.hessian() for p in singles])
    T = np.array([p.third_tensor(np.eye(3)) for p in singles])
    assert variance(point, 1) == pytest.approx(np.mean(np.sum((g - g.mean(0)) ** 2, axis=1)))
    centred = B - B.mean(0)
    assert variance(point, 2) == pytest.approx(np.linalg.norm(np.mean(centred @ centred, axis=0), 2))
    directions = np.random.default_rng(0).standard_normal((500, 3))
    directions /= np.linalg.norm(directions, axis=1)[:, None]
    along = np.einsum("iabc,ga,gb,gc->ig", T, directions, directions, directions)
    assert np.max(np.var(along, axis=0)) <= variance(point, 3)
    assert [point.variance(order) for order in (1, 2, 3)] == [variance(point, order) for order in (1, 2, 3)]
