"""Sparse rows on a device, against plain NumPy and the model on the host."""

import numpy as np
import pytest
import scipy.sparse as sp

import tercet
from tercet.objectives.device import csr
from tercet.objectives.device.model import arrays_of, table_of
from tests.objectives.device.libraries import same

torch = pytest.importorskip("torch")
pytestmark = pytest.mark.filterwarnings("ignore:.*Sparse CSR.*")
N, D = 400, 7


def rows(n=N, d=D, seed=0):
    rng = np.random.default_rng(seed)
    A = rng.standard_normal((n, d)) * (rng.random((n, d)) < 0.4)
    A[5], A[:, 3] = 0.0, 0.0
    return A


def tensor(A):
    return torch.tensor(A).to_sparse_csr()


@pytest.fixture(params=[(ones, sampled) for ones in (False, True) for sampled in (False, True)])
def table(request, monkeypatch):
    ones, sampled = request.param
    monkeypatch.setattr(csr, "ENTRIES", 300)
    monkeypatch.setattr(csr, "BUFFER", 8 * D * 64)
    A, X = rows(), tensor(rows())
    whole = table_of(arrays_of(X, None), X, ones)
    full = np.hstack([A, np.ones((N, 1))])[:, : D + ones]
    if not sampled:
        return whole, full
    some = np.random.default_rng(1).permutation(N)[:150]
    return whole.over(whole.arrays.numbers(some)), full[some]


def test_products(table):
    found, A = table
    rng = np.random.default_rng(2)
    x, c, V = rng.standard_normal(A.shape[1]), rng.standard_normal(len(A)), rng.standard_normal((A.shape[1], 2))
    put, host = found.arrays.put, lambda a: found.arrays.host(a)[0]
    assert len(found.pieces) > 1
    assert found.shape == A.shape
    same(host(found.times(x)), A @ x)
    same(found.weigh(put(c)), A.T @ c)
    same(found.gram(put(c)), A.T @ (c[:, None] * A))
    same(found.gram(None), A.T @ A)
    same(host(found.lengths()), np.linalg.norm(A, axis=1))
    same(host(found.lengths(V @ V.T)), np.linalg.norm(A @ V, axis=1))
    same(found.absolute_sums(put(c)), np.abs(A).T @ (c * np.abs(A).sum(axis=1)))
    same(np.concatenate([host(part) for _, part in found.images(V)]), A @ V)
    np.testing.assert_array_equal(found.touched(), np.any(A, axis=0))
    sums = host(found.grouped(put(c)))
    same(sums, np.stack([A[k::16].T @ c[k::16] for k in range(16)]) if found.sampled else (A.T @ c)[None])


@pytest.mark.parametrize("wide", [False, True])
def test_the_minimizer_is_that_of_the_host(wide, monkeypatch):
    from tercet.objectives.linear import model

    monkeypatch.setattr(model, "DENSE_LIMIT", 3 if wide else 3000)
    monkeypatch.setattr(model, "DEVICE_DENSE_LIMIT", 3 if wide else 3000)
    A = rows(900, 6, 3)
    y = (A @ np.linspace(-1, 1, 6) + np.random.default_rng(4).standard_normal(900) > 0).astype(float)
    host = tercet.LinearModel(sp.csr_array(A), y, "logistic", l2=1e-2, intercept=True)
    device = tercet.LinearModel(tensor(A), torch.tensor(y), "logistic", l2=1e-2, intercept=True)
    same(device.scales, host.scales)
    a, b = tercet.minimize(host), tercet.minimize(device)
    assert a.success
    assert b.success
    np.testing.assert_allclose(b.x, a.x, rtol=1e-5, atol=1e-7)
    assert b.counts.n == 900


def test_other_layouts_and_precisions_are_refused_with_the_remedy():
    A, y = torch.tensor(rows()), np.zeros(N)
    with pytest.raises(ValueError, match="to_sparse_csr"):
        tercet.LinearModel(A.to_sparse_coo(), y)
    with pytest.raises(ValueError, match="give it in float64"):
        tercet.LinearModel(A.float().to_sparse_csr(), y, accumulate="float64")
    narrow = tercet.LinearModel(A.float().to_sparse_csr(), y)
    assert "float32" in narrow.traits.provenance
