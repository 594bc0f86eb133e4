"""Tables: products with the rows of A, their sums by groups and Gram matrices, against plain NumPy."""

import numpy as np
import pytest
import scipy.sparse as sp

from tercet.objectives import tables
from tercet.objectives.sparse import SHORT, SparseTable
from tercet.objectives.tables import GROUPS, LONG, DenseTable, Picked, table_of

N, D = 90, 6
RNG = np.random.default_rng(0)
A = RNG.standard_normal((N, D)) * (RNG.random((N, D)) < 0.5)
A[17] = 0.0  # a row without entries
A[:, 4] = 0.0  # and a column

FORMS = {
    "dense": lambda: A.copy(),
    "fortran": lambda: np.asfortranarray(A),
    "strided": lambda: np.repeat(np.repeat(A, 2, axis=0), 3, axis=1)[::2, ::3],
    "csr int32": lambda: csr(np.int32),
    "csr int64": lambda: csr(np.int64),
}
DRAWN = {
    "all": None,
    "small": RNG.permutation(N)[: int(LONG * N)],
    "the empty row in a small one": np.array([17, 3, 80]),
    "large": RNG.permutation(N)[: N // 2],
    "just large for dense rows": RNG.permutation(N)[: int(LONG * N) + 1],
    "small for sparse rows": RNG.permutation(N)[: int(SHORT * N)],
    "just large for sparse rows": RNG.permutation(N)[: int(SHORT * N) + 1],
    "every row, drawn": RNG.permutation(N),
    "small with repeats": np.array([5, 5, 17, 2, 5, 2]),
    "large with repeats": RNG.integers(0, N, N // 2),
    "more than all": RNG.integers(0, N, 2 * N),
    "one row": np.array([41]),
    "the empty row": np.array([17]),
}
every_form = pytest.mark.parametrize("form", FORMS)
every_draw = pytest.mark.parametrize("drawn", DRAWN)


def csr(index):
    """A in CSR with indices of the given type."""
    X = sp.csr_array(A)
    X.indices, X.indptr = X.indices.astype(index), X.indptr.astype(index)
    return X


def build(form, drawn):
    """The table, its rows as a plain array, and the rows' groups."""
    table = table_of(FORMS[form]())
    if DRAWN[drawn] is None:
        return table, A, np.zeros(N, dtype=int)
    picked = Picked.of(DRAWN[drawn])
    return table.over(picked), A[np.sort(DRAWN[drawn])], picked.labels.astype(int)


def close(found, expected):
    np.testing.assert_allclose(found, expected, rtol=1e-13, atol=1e-13)


def test_each_form_has_its_table():
    assert isinstance(table_of(A), DenseTable)
    assert isinstance(table_of(csr(np.int32)), SparseTable)
    for index in (np.int32, np.int64):
        assert csr(index).indices.dtype == csr(index).indptr.dtype == index


@pytest.mark.parametrize("filled", [0.3, 0.49, 0.51, 1.0])
def test_a_sparse_array_that_is_hardly_sparse_has_the_table_of_a_dense_one(filled):
    X = np.random.default_rng(4).standard_normal((10, 100))
    X.ravel()[: round((1 - filled) * X.size)] = 0.0
    table = table_of(sp.csr_array(X))
    assert isinstance(table, DenseTable if filled > 0.5 else SparseTable)
    close(table.times(np.arange(100.0)), X @ np.arange(100.0))


@every_form
def test_a_small_sample_is_copied_and_of_a_large_one_only_the_numbers_are_kept(form):
    whole = table_of(FORMS[form]())
    for name, rows in DRAWN.items():
        if rows is None:
            continue
        table = whole.over(Picked.of(rows))
        if len(rows) <= (SHORT if form.startswith("csr") else LONG) * N:
            assert table.A.shape == (len(rows), D), name
            assert len(table.rows) == 0
        else:
            assert table.A is whole.A, name
            np.testing.assert_array_equal(table.rows, np.sort(rows))


@every_form
@every_draw
def test_the_shape_counts_the_rows_at_hand(form, drawn):
    table, rows, _ = build(form, drawn)
    assert table.shape == rows.shape


@every_form
@every_draw
def test_times_and_weigh_are_the_products_with_A_and_its_transpose(form, drawn):
    table, rows, _ = build(form, drawn)
    rng = np.random.default_rng(1)
    x, c = rng.standard_normal(D), rng.standard_normal(len(rows))
    close(table.times(x), rows @ x)
    close(table.times(np.repeat(x, 2)[::2]), rows @ x)  # not contiguous
    close(table.weigh(c), rows.T @ c)
    c[::3] = 0.0
    close(table.weigh(c), rows.T @ c)
    close(table.weigh(np.zeros_like(c)), np.zeros(D))


@every_form
@every_draw
def test_group_sums_are_the_sums_over_each_group_and_add_up_to_the_whole(form, drawn):
    table, rows, labels = build(form, drawn)
    c = np.random.default_rng(2).standard_normal(len(rows))
    sums = table.group_sums(c)
    assert sums.shape == (1 if DRAWN[drawn] is None else min(GROUPS, len(rows)), D)
    expected = [rows[labels == k].T @ c[labels == k] for k in range(len(sums))]
    close(sums, expected)
    close(np.sum(sums, axis=0), table.weigh(c))


@every_form
@every_draw
def test_gram_is_the_weighted_sum_of_the_rows_squares(form, drawn):
    table, rows, _ = build(form, drawn)
    c = np.random.default_rng(3).standard_normal(len(rows))
    some = np.where(np.arange(len(c)) % 3 == 0, 0.0, c)
    for weights in (c, some, np.abs(some), np.ones_like(c), np.zeros_like(c)):
        B = table.gram(weights)
        close(B, rows.T @ (weights[:, None] * rows))
        close(B, B.T)


@every_form
@every_draw
@pytest.mark.parametrize("size", [1 << 20, 1])
def test_blocks_are_all_rows_once_in_order(form, drawn, size, monkeypatch):
    monkeypatch.setattr(tables, "BLOCK", size)  # 64 rows at a time are the least
    table, rows, _ = build(form, drawn)
    end, parts = 0, []
    for piece, block in table.blocks():
        assert piece.start == end < piece.stop
        assert block.shape == (piece.stop - piece.start, D)
        end = piece.stop
        parts.append(block.toarray() if sp.issparse(block) else block)
    assert end == len(rows)
    np.testing.assert_array_equal(np.concatenate(parts), rows)


@pytest.mark.parametrize("sparse", [False, True])
@pytest.mark.parametrize("m", [None, 36_000])
def test_more_rows_than_fit_in_a_piece_give_the_same(sparse, m):
    rng = np.random.default_rng(4)
    X = rng.standard_normal((40_000, 9)) * (rng.random((40_000, 9)) < 0.3)
    table = table_of(sp.csr_array(X) if sparse else X)
    if m is not None:
        picked = Picked.of(rng.permutation(40_000)[:m])
        table, X, labels = table.over(picked), X[picked.rows], picked.labels
    assert len(table.pieces) > 1
    x, c = rng.standard_normal(9), rng.standard_normal(len(X)) * (rng.random(len(X)) < 0.7)
    np.testing.assert_allclose(table.times(x), X @ x, rtol=1e-12, atol=1e-13)
    np.testing.assert_allclose(table.times(x, table.pieces[1]), (X @ x)[table.pieces[1]], rtol=1e-12, atol=1e-13)
    for given in (c, lambda piece: c[piece]):
        np.testing.assert_allclose(table.weigh(given), X.T @ c, rtol=1e-11, atol=1e-11)
        np.testing.assert_allclose(table.gram(given), X.T @ (c[:, None] * X), rtol=1e-11, atol=1e-11)
    if m is not None:
        expected = [X[labels == k].T @ c[labels == k] for k in range(GROUPS)]
        np.testing.assert_allclose(table.group_sums(c), expected, rtol=1e-11, atol=1e-11)
    far = np.zeros(len(X))
    far[-3:] = 1.0  # pieces without a row of weight are passed over
    np.testing.assert_allclose(table.gram(far), X[-3:].T @ X[-3:], rtol=1e-13, atol=1e-14)


@every_form
@every_draw
def test_nothing_is_written_to(form, drawn):
    table, rows, _ = build(form, drawn)
    x, c = np.ones(D), np.ones(len(rows))
    table.times(x), table.weigh(c), table.group_sums(c), table.gram(c)
    np.testing.assert_array_equal(x, 1.0)
    np.testing.assert_array_equal(c, 1.0)
    held = table.A.toarray() if sp.issparse(table.A) else table.A
    np.testing.assert_array_equal(held, A if len(held) == N else rows)


# Picked -------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("m", [1, 2, 15, 16, 17, 40, 1000])
def test_picked_rows_are_sorted_and_their_groups_equal_in_size(m):
    drawn = np.random.default_rng(m).integers(0, 500, m)
    before = drawn.copy()
    picked = Picked.of(drawn)
    np.testing.assert_array_equal(drawn, before)
    np.testing.assert_array_equal(picked.rows, np.sort(drawn))
    assert picked.rows.dtype == np.intp
    counts = np.bincount(picked.labels)
    assert len(counts) == min(GROUPS, m)
    assert counts.max() - counts.min() <= 1
    assert np.all(np.diff(counts) <= 0)  # the first groups have the odd rows, as `errors` takes it


def test_the_same_rows_in_another_order_are_the_same_sample():
    rng = np.random.default_rng(5)
    drawn = rng.permutation(300)[:100]
    one, other = Picked.of(drawn), Picked.of(rng.permutation(drawn))
    np.testing.assert_array_equal(one.rows, other.rows)
    np.testing.assert_array_equal(one.labels, other.labels)


def test_groups_are_spread_over_the_rows_and_not_in_turns():
    """Rows come sorted; data in any order must not put like rows into one group. The mean place of each group is that
    of a random draw of its size, within 4.5 standard deviations."""
    m = 16_000
    labels = Picked.of(np.arange(m)).labels
    places = np.array([np.mean(np.flatnonzero(labels == k)) for k in range(GROUPS)])
    assert np.all(np.abs(places - (m - 1) / 2) <= 4.5 * m / np.sqrt(12 * m / GROUPS))
    following = np.bincount((labels[1:].astype(int) - labels[:-1]) % GROUPS, minlength=GROUPS)
    assert np.all(np.abs(following - m / GROUPS) <= 4.5 * np.sqrt(m / GROUPS))


@every_form
@every_draw
def test_lengths_of_rows_and_of_their_projections(form, drawn):
    table, rows, _ = build(form, drawn)
    V = np.linalg.qr(np.random.default_rng(5).standard_normal((D, 3)))[0]
    close(table.lengths(), np.linalg.norm(rows, axis=1))
    close(table.lengths(P=V @ V.T), np.linalg.norm(rows @ V, axis=1))
    close(table.lengths(slice(1, 3), V @ V.T), np.linalg.norm(rows[1:3] @ V, axis=1))


@pytest.mark.parametrize("sparse", [False, True])
def test_the_scale_of_a_column_is_one_over_the_mean_square_of_its_entries(sparse):
    """Of those that are not 0, so that a rare feature is as long as a frequent one; 1 for a column of zeros."""
    rng = np.random.default_rng(8)
    X = rng.standard_normal((400, 4)) * [1.0, 1e-6, 1e5, 0.0]
    X[:, 0] *= rng.random(400) < 0.05
    expected = [1 / np.sqrt(np.mean(column[column != 0] ** 2)) for column in X[:, :3].T]
    found = table_of(sp.csr_array(X) if sparse else X).scales()
    np.testing.assert_allclose(found, [*expected, 1.0], rtol=1e-12)
    units = np.array([1e3, 1e-2, 7.0, 1.0])
    np.testing.assert_allclose(table_of(X * units).scales() * units, found, rtol=1e-12)


def test_a_column_whose_entries_are_rare_has_its_scale_also_in_a_long_table(monkeypatch):
    monkeypatch.setattr("tercet.objectives.tables.SOME", 10)
    X = np.ones((100, 2))
    X[:, 1] = 0.0
    X[57, 1] = 4.0
    np.testing.assert_array_equal(table_of(X).scales(), [1.0, 0.25])
