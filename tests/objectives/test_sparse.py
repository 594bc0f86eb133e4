"""Compiled loops over CSR rows, each against its twin in NumPy or SciPy."""

import numpy as np
import pytest
import scipy.sparse as sp

from tercet.objectives.sparse import csr_forms, csr_gram, csr_times, csr_weigh

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
def test_csr_forms_are_the_squares_of_the_rows_under_a_symmetric_matrix(seed, index, drawn):
    X, parts, rng = example(seed, index)
    rows = draws(rng, 60)[drawn]
    B, M = X[rows] if len(rows) else X, rng.standard_normal((9, 9))
    for P, full in ((np.empty((0, 0)), np.eye(9)), (M + M.T, M + M.T)):
        forms = np.full(len(B), np.nan)
        csr_forms(*parts, rows, P, forms)
        np.testing.assert_allclose(forms, np.einsum("ia,ab,ib->i", B, full, B), rtol=1e-12, atol=1e-13)


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
