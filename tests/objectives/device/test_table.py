"""Products with rows on a device, against plain NumPy, however the rows are cut, picked and widened."""

import numpy as np
import pytest

from tercet.objectives.device import table as tables
from tercet.objectives.device.model import arrays_of
from tercet.objectives.device.table import DenseDeviceTable
from tests.objectives.device.libraries import LIBRARIES, data, place, same

N, D = 700, 5


@pytest.fixture(params=[(library, ones, how) for library in LIBRARIES for ones in (False, True) for how in "asp"])
def table(request, monkeypatch):
    """All rows, a sample that was copied, or one that is gathered when it is used; in several pieces."""
    library, ones, how = request.param
    monkeypatch.setattr(tables, "ROWS", 160)
    monkeypatch.setattr(tables, "LEAST", 96 * 8 * D)
    X = data(N, D)[0]
    whole = DenseDeviceTable(arrays_of(place(library)(X), None), place(library)(X), ones)
    whole.arrays.several = True  # as on a device
    rows = np.arange(N) if how == "a" else np.random.default_rng(1).permutation(N)[:300]
    if how != "a":
        monkeypatch.setattr(tables, "COPIED", 1.0 if how == "s" else 0.0)
    made = whole if how == "a" else whole.over(whole.arrays.numbers(rows))
    assert (made.picked is not None) == (how == "p")
    return made, np.hstack([X, np.ones((N, 1))])[rows][:, : D + ones]


def test_products(table):
    found, A = table
    rng = np.random.default_rng(2)
    x, c = rng.standard_normal(A.shape[1]), rng.standard_normal(len(A))
    weights = found.arrays.put(c)
    assert len(found.pieces) > 1
    assert found.shape == A.shape
    same(found.arrays.host(found.times(x))[0], A @ x)
    same(found.weigh(weights), A.T @ c)
    same(found.weigh(lambda piece: weights[piece]), A.T @ c)
    same(found.gram(weights), A.T @ (c[:, None] * A))
    same(found.gram(None), A.T @ A)
    P = rng.standard_normal((A.shape[1], 2))
    P = P @ P.T
    same(found.arrays.host(found.lengths())[0], np.linalg.norm(A, axis=1))
    same(found.arrays.host(found.lengths(P))[0], np.sqrt(np.einsum("ij,jk,ik->i", A, P, A)))


def test_groups_are_dealt_in_turn_and_add_up(table):
    found, A = table
    c = np.random.default_rng(3).standard_normal(len(A))
    sums = found.arrays.host(found.grouped(found.arrays.put(c)))[0]
    if found.sampled:
        same(sums, np.stack([A[k::16].T @ c[k::16] for k in range(16)]))
    else:
        same(sums, (A.T @ c)[None])


@pytest.mark.parametrize("library", LIBRARIES)
def test_scales_are_those_of_the_host_also_of_a_column_that_is_rarely_used(library):
    from tercet.objectives.tables import DenseTable

    X = data(25_000, 3)[0]
    X[:, 1] = 0.0
    X[1, 1] = 4.0  # not among the rows that tell the scale of the others
    X[:, 2] = 0.0
    A = place(library)(X)
    found = DenseDeviceTable(arrays_of(A, None), A).scales()
    assert found[1] == pytest.approx(0.25)
    assert found[2] == 1.0
    assert found[0] == pytest.approx(DenseTable(X).scales()[0], rel=1e-2)


@pytest.mark.parametrize("library", LIBRARIES)
def test_float32_rows_are_widened_piece_by_piece_and_sums_are_those_of_float64(library, monkeypatch):
    monkeypatch.setattr(tables, "LEAST", 96 * 8 * D)
    X = (data(N, D)[0] * [1, 1e3, 1, 1, 1]).astype(np.float32)
    A = place(library)(X)
    x, c = np.random.default_rng(4).standard_normal(D), np.random.default_rng(5).standard_normal(N)
    wide, narrow = (DenseDeviceTable(arrays_of(A, kind), A) for kind in ("float64", "float32"))
    exact = X.astype(float).T @ (c[:, None] * X.astype(float))
    assert len(wide.pieces) > 1
    same(wide.arrays.host(wide.times(x))[0], X.astype(float) @ x)
    same(wide.gram(wide.arrays.put(c)), exact)
    assert 1e-10 < np.max(np.abs(narrow.gram(narrow.arrays.put(c)) - exact)) / np.max(np.abs(exact)) < 1e-5
