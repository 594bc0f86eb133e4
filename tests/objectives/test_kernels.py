"""Compiled kernels, each against its twin in NumPy or SciPy."""

from dataclasses import replace

import numpy as np
import pytest
import scipy.sparse as sp

from tercet.objectives import linear
from tercet.objectives.kernels import csr_gram, csr_times, csr_weigh, gained, keep, sigmoid_squares
from tercet.objectives.linear import LinearModel
from tercet.objectives.losses import SigmoidSquares

ALL, UNLABELED = np.empty(0, dtype=np.intp), np.empty(0, dtype=np.uint8)


def example(seed, index, n=60, d=9):
    rng = np.random.default_rng(seed)
    X = rng.standard_normal((n, d)) * (rng.random((n, d)) < 0.3)
    X[[4, n - 1]] = 0.0
    A = sp.csr_array(X)
    return X, (A.data, A.indices.astype(index), A.indptr.astype(index)), rng


def draws(rng, n):
    return {"all": ALL, "some": np.sort(rng.permutation(n)[:25]), "repeats": np.sort(rng.integers(0, n, 80))}


both_indices = pytest.mark.parametrize("index", [np.int32, np.int64])
seeds = pytest.mark.parametrize("seed", range(3))


@seeds
@both_indices
@pytest.mark.parametrize("drawn", ["all", "some", "repeats"])
def test_csr_times(seed, index, drawn):
    X, parts, rng = example(seed, index)
    rows = draws(rng, 60)[drawn]
    B, x = X[rows] if len(rows) else X, rng.standard_normal(9)
    z = np.full(len(B), np.nan)
    csr_times(*parts, rows, x, z)
    np.testing.assert_allclose(z, B @ x, rtol=1e-12, atol=1e-14)


@seeds
@both_indices
@pytest.mark.parametrize("drawn", ["all", "some", "repeats"])
@pytest.mark.parametrize("groups", [1, 5])
def test_csr_weigh_adds_to_the_sums_of_each_label(seed, index, drawn, groups):
    X, parts, rng = example(seed, index)
    rows = draws(rng, 60)[drawn]
    B = X[rows] if len(rows) else X
    c = rng.standard_normal(len(B)) * (rng.random(len(B)) < 0.7)
    labels = UNLABELED if groups == 1 else rng.integers(0, groups, len(B)).astype(np.uint8)
    before = rng.standard_normal((groups, 9))
    sums = before.copy()
    csr_weigh(*parts, rows, c, labels, sums)
    place = np.zeros(len(B), dtype=int) if groups == 1 else labels
    expected = before + np.stack([B[place == k].T @ c[place == k] for k in range(groups)])
    np.testing.assert_allclose(sums, expected, rtol=1e-12, atol=1e-13)


@seeds
@both_indices
@pytest.mark.parametrize("drawn", ["all", "some", "repeats"])
def test_csr_gram_adds_the_lower_triangle_and_leaves_the_upper_alone(seed, index, drawn):
    X, parts, rng = example(seed, index)
    rows = draws(rng, 60)[drawn]
    B = X[rows] if len(rows) else X
    c = rng.standard_normal(len(B)) * (rng.random(len(B)) < 0.7)
    before = rng.standard_normal((9, 9))
    flat = before.ravel().copy()
    csr_gram(*parts, rows, c, flat)
    expected = before + np.tril(B.T @ np.diag(c) @ B)
    np.testing.assert_allclose(flat.reshape(9, 9), expected, rtol=1e-12, atol=1e-13)


@pytest.mark.parametrize("d", [1, 2, 3, 10, 124, 1000, 2999, 3000])
def test_csr_gram_finds_the_number_of_columns_from_the_length(d):
    A = sp.csr_array((np.array([2.0, 3.0]), np.array([0, d - 1]), np.array([0, 2])), shape=(1, d))
    if d == 1:
        A = sp.csr_array(np.array([[5.0]]))
    flat = np.zeros(d * d)
    csr_gram(A.data, A.indices, A.indptr, ALL, np.ones(1), flat)
    np.testing.assert_array_equal(flat.reshape(d, d), np.tril(A.toarray().T @ A.toarray()))


# losses -------------------------------------------------------------------------------------------------------------


Z = np.concatenate([np.linspace(-8, 8, 321), np.linspace(-700, 700, 141), [-0.0, 5e-324, -5e-324, 1e-300, 36.8, -36.8]])


@pytest.mark.parametrize("order", range(4))
@pytest.mark.parametrize("target", [0.0, 1.0])
def test_sigmoid_squares_equals_the_formula_also_in_the_tails(order, target):
    y = np.full(len(Z), target)
    loss, found = SigmoidSquares(), np.empty_like(Z)
    sigmoid_squares(order, loss.pack(Z, y), y, found)
    expected = SigmoidSquares().plain(order, Z, y)
    # exp and expit may differ in the last digits, and P^2 has twice the relative error; 0 where squares underflow.
    np.testing.assert_allclose(found, expected, rtol=1e-13, atol=1e-16 if order == 3 else 1e-300)
    np.testing.assert_array_equal(loss.part(order, loss.pack(Z, y), y, True), found)
    np.testing.assert_array_equal(SigmoidSquares().part(order, Z, y, False), expected)
    np.testing.assert_array_equal(SigmoidSquares().derivatives(Z, y)[order], expected)


@pytest.mark.parametrize("order", range(4))
@pytest.mark.parametrize("far", [700.0, 745.0, 800.0, 1e5, np.inf])
def test_sigmoid_squares_has_its_limits_far_out(order, far):
    z, y = np.array([far, far, -far, -far]), np.array([0.0, 1.0, 0.0, 1.0])
    part = SigmoidSquares().part(order, SigmoidSquares().pack(z, y), y, True)
    np.testing.assert_allclose(part, [0.5, 0, 0, 0.5] if order == 0 else np.zeros(4), rtol=0, atol=1e-300)


def test_the_kernel_of_a_loss_does_not_write_into_its_arguments():
    z, y = np.linspace(-1, 1, 5), np.array([0.0, 1, 0, 1, 0])
    before = z.copy(), y.copy()
    packed = SigmoidSquares().pack(z, y)
    kept = packed.copy()
    for order in range(4):
        SigmoidSquares().part(order, packed, y, True)
    np.testing.assert_array_equal(packed, kept)
    np.testing.assert_array_equal(z, before[0])
    np.testing.assert_array_equal(y, before[1])


# keep and gained ----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("stale", [0.0, 0.1, 0.5])
def test_what_hardly_changed_is_kept(stale):
    rng = np.random.default_rng(1)
    past = rng.standard_normal(500)
    c = past * (1 + rng.uniform(-1, 1, 500))
    past[rng.random(500) < 0.2] = np.nan
    past[:3], c[:3] = 0.0, (0.0, 1e-300, -1.0)
    c[3] = past[3] = 0.25  # the same to the last digit
    fresh = c.copy()
    count = keep(c, past, stale)
    kept = np.abs(fresh - past) <= stale * np.abs(past)
    assert 0 < count == kept.sum() < 500
    np.testing.assert_array_equal(c, np.where(kept, past, fresh))
    update = gained(c, past)
    np.testing.assert_array_equal(update[kept], 0.0)
    new = np.isnan(past)
    np.testing.assert_array_equal(update[new], fresh[new])
    np.testing.assert_array_equal(update[~kept & ~new], (fresh - past)[~kept & ~new])


@pytest.mark.parametrize("stale", [0.0, 0.1, 0.5])
@pytest.mark.parametrize("nested", [False, True])
def test_kept_rows_equal_the_branch_in_numpy(stale, nested, monkeypatch):
    monkeypatch.setattr(linear, "COMPILED", 1)
    rng = np.random.default_rng(2)
    X, y = rng.standard_normal((200, 4)), (rng.random(200) < 0.5).astype(float)
    model = LinearModel(X, y, weights=rng.random(200) * (rng.random(200) < 0.9))
    assert model.rows.compiled
    x1 = rng.standard_normal(4)
    x2 = x1 + 0.1 * rng.standard_normal(4)
    found = []
    for compiled in (True, False):
        whole = replace(model.rows, compiled=compiled, stale=stale)
        near = (whole.take(np.arange(0, 200, 3)) if nested else whole).at(x1)
        near.hessian()
        found.append(whole.at(x2, near))
    one, other = found
    assert one.hessian_price() == other.hessian_price()
    assert 0 < one.hessian_price() < 200
    np.testing.assert_allclose(one.changes[1], other.changes[1], rtol=1e-13, atol=1e-300)
    np.testing.assert_allclose(one.gains(slice(50, 150)), other.gains(slice(50, 150)), rtol=1e-11, atol=1e-14)
    np.testing.assert_allclose(one.hessian(), other.hessian(), rtol=1e-12, atol=1e-14)
    np.testing.assert_allclose(one.reference.c, other.reference.c, rtol=1e-13, atol=1e-300)
    assert one.hessian_price() == other.hessian_price()  # the same after the Gram matrix was formed


@pytest.mark.parametrize("loss", ["sigmoid_squares", "logistic", "cauchy"])
def test_a_model_with_many_rows_is_the_same_compiled_or_not(loss):
    rng = np.random.default_rng(3)
    X, y, x = rng.standard_normal((linear.COMPILED, 3)), rng.integers(0, 2, linear.COMPILED), rng.standard_normal(3)
    view = LinearModel(X, y, loss, l2=0.1).over(None)
    assert view.compiled
    assert not LinearModel(X[:-1], y[:-1], loss).over(None).compiled
    assert LinearModel(sp.csr_array(X[:5]), y[:5], loss).over(None).compiled
    one, other = view.at(x), replace(view, compiled=False).at(x)
    np.testing.assert_allclose(one.value(), other.value(), rtol=1e-13)
    np.testing.assert_allclose(one.gradient(), other.gradient(), rtol=1e-11, atol=1e-14)
    np.testing.assert_allclose(one.hessian(), other.hessian(), rtol=1e-11, atol=1e-14)
    np.testing.assert_allclose(one.third_product(x, x), other.third_product(x, x), rtol=1e-11, atol=1e-14)
