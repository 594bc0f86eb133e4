"""On a CUDA device, run by hand: `pytest -m cuda`."""

import numpy as np
import pytest

import tercet
import tercet.torch
from tercet.cli import main
from tercet.objectives.device import triangle
from tercet.objectives.device.arrays import TorchArrays
from tercet.objectives.device.cupyarrays import CupyArrays
from tercet.objectives.device.formulas import PlainFormulas, formulas_of, told
from tercet.objectives.device.losses import NAMES, device_loss
from tercet.objectives.losses import as_loss
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


@pytest.mark.parametrize("kind", ["float64", "float32"])
@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("library", ["torch", "cupy"])
def test_kernels_give_what_plain_operations_give(library, name, kind):
    module = pytest.importorskip("triton" if library == "torch" else library)
    device, rng = torch.device("cuda"), np.random.default_rng(0)
    on = TorchArrays(device, kind, kind) if library == "torch" else CupyArrays(module.cuda.Device(0), kind, kind)
    loss = device_loss(as_loss(name, 0.7 if name in ("cauchy", "welsch", "geman_mcclure") else None), name)
    plain, kernels = PlainFormulas.of(on, loss.part), formulas_of(on, loss)
    assert not isinstance(kernels, PlainFormulas)
    for m in (1, 1024, 300_001):
        base, ahead, y, w = (on.put(v) for v in (*rng.normal(0, 10, (2, m)), rng.choice([-1.0, 1.0], m), rng.random(m)))
        doubled = on.xp.stack([w, w]).T[:, 0]  # entries that do not lie side by side
        for weights in (None, w, doubled):
            for order in range(4):
                found, wanted = on.host(*(f.part(order, base, y, weights) for f in (kernels, plain)))
                # where l'' passes through 0 digits cancel
                np.testing.assert_allclose(found, wanted, *((1e-9, 1e-300) if kind == "float64" else (1e-3, 1e-6)))
            for change, t in ((None, 1.0), (ahead, 0.37)):
                looks = (f.look(base, change, t, y, weights, sizes=change is not None) for f in (kernels, plain))
                found, wanted = (told(on.host(*look)) for look in looks)
                np.testing.assert_allclose(found[: len(wanted)], wanted, 1e-12 if kind == "float64" else 1e-5)


@pytest.mark.parametrize("shape", [(7, 3), (5000, 100), (3000, 300)])
def test_gram_matrices_are_those_of_plain_products(shape):
    A, c = torch.randn(shape, dtype=torch.float64, device="cuda"), torch.randn(shape[0], dtype=torch.float64).cuda()
    on = TorchArrays(A.device, "float64", "float64")
    G = on.whole_gram(on.add_gram(on.add_gram(None, A, c), A[:5], c[:5]))
    same(G.cpu(), (A.T @ (c[:, None] * A) + A[:5].T @ (c[:5, None] * A[:5])).cpu(), 1e-12)


def test_float32_rows_are_widened_as_they_are_read():
    A = torch.randn((30_001, 130), device="cuda")
    on, wide = TorchArrays(A.device, "float32", "float64"), A.double()
    v, c = torch.randn(130, dtype=torch.float64).cuda(), torch.randn(len(A), dtype=torch.float64).cuda()
    for rows in (A, A[3:, ::2]):
        w = wide[len(A) - len(rows) :, :: 130 // rows.shape[1]]
        if on.mixed:
            same(on.times(rows, v[: rows.shape[1]]).cpu(), (w @ v[: rows.shape[1]]).cpu(), 1e-12)
            same(on.weigh(c[: len(rows)], rows).cpu(), (c[: len(rows)] @ w).cpu(), 1e-12)
            G = on.whole_gram(on.add_gram(None, rows, c[: len(rows)]))
            same(G.cpu(), (w.T @ (c[: len(rows), None] * w)).cpu(), 1e-12)
    y = (A[:, 0] > 0.5).float()
    results = [
        tercet.minimize(tercet.LinearModel(rows, y.to(rows.dtype), "logistic", l2=1e-2, intercept=True))
        for rows in (A, wide)
    ]
    assert results[0].success
    assert "float32 data" in results[0].certificate.how
    np.testing.assert_allclose(results[0].x, results[1].x, rtol=1e-6, atol=1e-9)


def test_a_device_that_runs_out_of_memory_in_mid_run_gives_the_best_point():
    A = torch.randn((400_000, 100), dtype=torch.float64, device="cuda")
    y = (A[:, 0] + torch.randn(len(A), device="cuda") > 0).double()
    hoard = []

    def fill(info):
        if info.row.sizes.value >= len(A) and not hoard:
            torch.cuda.empty_cache()
            for size in (1 << 30, 1 << 24, 1 << 21, 1 << 20, 1 << 9):
                try:
                    while True:
                        hoard.append(torch.empty(size, dtype=torch.uint8, device="cuda"))
                except torch.OutOfMemoryError:
                    continue

    problem = tercet.LinearModel(A, y, "logistic", l2=1e-3)
    begun = problem.over(None).at(np.zeros(100)).value()
    result = tercet.minimize(problem, callback=fill)
    hoard.clear()
    torch.cuda.empty_cache()
    assert result.status is tercet.Status.FUNCTION_ERROR
    assert "out of memory" in result.message
    assert result.fun < begun
    assert np.isfinite(result.x).all()


def test_arrays_on_two_devices_are_refused():
    with pytest.raises(ValueError, match="y is on cpu and X on cuda:0"):
        tercet.LinearModel(torch.tensor(X, device="cuda"), torch.tensor(Y))


def test_fit_takes_the_device(tmp_path, capsys):
    path = tmp_path / "data.svm"
    lines = (
        f"{int(2 * b - 1)} " + " ".join(f"{j + 1}:{v}" for j, v in enumerate(a))
        for a, b in zip(X[:500], Y[:500], strict=True)
    )
    path.write_text("\n".join(lines) + "\n")
    assert main(["fit", str(path), "--l2", "1e-2", "--json", "--device", "cuda"]) == 0
    assert "cuda:0" in capsys.readouterr().out


def test_residuals_are_reduced_where_they_lie():
    def residual(w, a, b):
        return torch.tanh(a @ w) - b

    x, found = np.linspace(-0.5, 0.5, 20), []
    for place in ("cpu", "cuda"):
        rows = (torch.tensor(X[:5000], device=place), torch.tensor(Y[:5000], device=place))
        problem = tercet.torch.Residuals(residual, rows, "soft_l1", batched=True)
        bound = problem.bind(torch.zeros(20, dtype=torch.float64, device=place))
        found.append(bound.objective.over(None).at(x).linear().result)
    assert found[1].rows.shape == (21, 21)
    same(found[1].gram, found[0].gram, 1e-12)
    same(found[1].root.T @ found[1].image, found[0].root.T @ found[0].image, 1e-12)


def triangles():
    if triangle.torch_serves(torch.device("cuda", 0)):
        yield triangle.torch_add_gram
    cupy = pytest.importorskip("cupy")
    if triangle.cupy_serves(0):
        lent = cupy.from_dlpack
        yield lambda total, A, c: torch.from_dlpack(
            triangle.cupy_add_gram(None if total is None else lent(total), lent(A), lent(c))
        )


@pytest.mark.parametrize("d", [1, 2, 7, 8, 31, 50, 64, 65, 99, 100, 127, 128])
def test_a_triangle_of_tiles_is_the_product(d):
    draw = torch.Generator("cuda").manual_seed(d)
    whole = torch.randn((70_001, d + 1), dtype=torch.float64, device="cuda", generator=draw)
    c = torch.randn(len(whole), dtype=torch.float64, device="cuda", generator=draw)
    for A in (whole[:, :d].contiguous(), whole[:64, 1:], whole.T.contiguous().T[:999, 1:]):
        w = c[: len(A)]
        wanted = A.T @ (w[:, None] * A) + A[:5].T @ (w[:5, None] * A[:5])
        for add in triangles():
            total = add(add(None, A, w), A[:5], w[:5]).sum(0)
            same(total.cpu(), wanted.cpu(), 1e-12)
            assert bool((total == total.T).all())
