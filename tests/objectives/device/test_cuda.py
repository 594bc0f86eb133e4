"""On a CUDA device, run by hand: `pytest -m cuda`."""

import numpy as np
import pytest

import tercet
from tests.objectives.device.libraries import data, same

torch = pytest.importorskip("torch")
pytestmark = [
    pytest.mark.cuda,
    pytest.mark.skipif(not torch.cuda.is_available(), reason="no CUDA device"),
    pytest.mark.filterwarnings("ignore:.*Sparse CSR.*"),
]
X, Y, _ = data(200_000, 20)


def problems():
    A, y = torch.tensor(X, device="cuda"), torch.tensor(Y, device="cuda")
    yield "torch", tercet.LinearModel(A, y, l2=1e-3, intercept=True)
    yield "torch CSR", tercet.LinearModel(A.to_sparse_csr(), y, l2=1e-3, intercept=True)
    try:
        import cupy
        from cupyx.scipy.sparse import csr_matrix
    except ImportError:
        return
    B, z = cupy.asarray(X), cupy.asarray(Y)
    yield "cupy", tercet.LinearModel(B, z, l2=1e-3, intercept=True)
    yield "cupy CSR", tercet.LinearModel(csr_matrix(B), z, l2=1e-3, intercept=True)


def test_every_library_gives_what_the_host_gives():
    host = tercet.LinearModel(X, Y, l2=1e-3, intercept=True)
    x, u, v = np.random.default_rng(1).standard_normal((3, 21))
    rows, own = np.random.default_rng(2).permutation(200_000)[:5000], host.over(None).at(x)
    reference = tercet.minimize(host)
    for name, problem in problems():
        print(name)
        point = problem.over(None).at(x)
        for ask in (
            lambda p: p.value(),
            lambda p: p.gradient(),
            lambda p: p.hessian(),
            lambda p: p.product(2, u),
            lambda p: p.product(3, u, v),
            lambda p: p.third_square(u).result,
        ):
            same(ask(point), ask(own), 1e-10)
        same(problem.over(rows).at(x).gradient(), host.over(rows).at(x).gradient(), 1e-10)
        result = tercet.minimize(problem)
        assert result.success
        np.testing.assert_allclose(result.x, reference.x, rtol=1e-6)


def test_a_run_takes_at_most_a_tenth_of_the_data_beyond_it():
    A = torch.randn((1_000_000, 200), dtype=torch.float64, device="cuda")
    y = (A[:, 0] + torch.randn(len(A), device="cuda") > 0).double()
    torch.cuda.synchronize()
    torch.cuda.reset_peak_memory_stats()
    before = torch.cuda.memory_allocated()
    assert tercet.minimize(tercet.LinearModel(A, y, "logistic", l2=1e-3)).success
    assert torch.cuda.max_memory_allocated() - before <= 0.1 * 8 * A.numel()


def test_the_same_seed_gives_the_same_run():
    A, y = torch.tensor(X, device="cuda"), torch.tensor(Y, device="cuda")
    a, b = (tercet.minimize(tercet.LinearModel(A, y, l2=1e-3), seed=3) for _ in range(2))
    np.testing.assert_array_equal(a.x, b.x)
