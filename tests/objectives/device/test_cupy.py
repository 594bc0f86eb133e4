"""The code for CuPy, over arrays that pretend to be its own."""

import sys

import numpy as np
import pytest

import tercet
from tercet.objectives.device.cupyarrays import CupyArrays
from tests.objectives.device.libraries import data, same
from tests.objectives.device.pretended_cupy import csr_matrix, modules, ndarray

X, Y, _ = data(3000, 5)


@pytest.fixture(autouse=True)
def pretended(monkeypatch):
    for name, module in modules().items():
        monkeypatch.setitem(sys.modules, name, module)
    monkeypatch.setattr(CupyArrays, "free", lambda self: 1 << 30)


@pytest.mark.parametrize(
    "options", [{}, {"intercept": True, "weights": np.linspace(0.5, 1.5, 3000)}], ids=["", "options"]
)
@pytest.mark.parametrize("sparse", [False, True])
def test_a_model_is_that_of_the_host(sparse, options):
    A = X * (np.abs(X) > 0.4) if sparse else X
    rows = csr_matrix(A) if sparse else A.view(ndarray)
    host, device = (tercet.LinearModel(each, y, l2=1e-2, **options) for each, y in ((A, Y), (rows, Y.view(ndarray))))
    x, u, v = np.random.default_rng(1).standard_normal((3, host.d))
    V = np.linalg.qr(np.stack([u, v], axis=1))[0]
    a, b = host.over(None).at(x), device.over(None).at(x)
    for ask in (
        lambda p: p.value(),
        lambda p: p.gradient(),
        lambda p: p.hessian(),
        lambda p: p.product(2, u),
        lambda p: p.product(3, u, v),
        lambda p: p.third_square(u).result,
        lambda p: p.third_tensor(V),
        lambda p: [p.third_bound(V), p.third_bound(None)],
    ):
        same(ask(b), ask(a))
    same(device.scales, host.scales)
    assert isinstance(b.margins.z, ndarray)
    picked = np.random.default_rng(2).permutation(3000)[:100]
    same(device.over(picked).at(x).gradient(), host.over(picked).at(x).gradient())
    first, second = tercet.minimize(host), tercet.minimize(device)
    assert first.success
    assert second.success
    np.testing.assert_allclose(second.x, first.x, rtol=1e-6, atol=1e-8)
    assert "cuda:0" in second.certificate.how
